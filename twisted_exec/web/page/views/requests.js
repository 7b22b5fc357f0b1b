/** The list of requests for approvals of consoles, with buttons that approve and deny them. */

import { ask } from "../dialogs.js";
import { button, fill, h, nameLink, printable } from "../dom.js";
import { itemPath, listPath } from "../objects.js";
import { takeBack, takingBackConfirmed } from "../terminal/approval.js";
import { age, zonedTime } from "../times.js";
import { selectorText } from "./alert_model.js";
import { ListView } from "./list_view.js";
import { badge, countOf, emptyState, field, listHead, Table } from "./parts.js";
import { demandOf, order, rowOf, STATE_KINDS, TAKE_BACK, textsOf } from "./request_model.js";

const OPTIONS = {
  plural: "consolerequests",
  role: "console-session-reader",
  missing: "This server has no requests for approvals: it is not an exec-apiserver.",
  rights: { mayDecide: ["patch", "approval"], mayDelete: ["delete", ""] },
};
const LONGEST_NOTE = 1024;
/** What an action is in a sentence, and what the request is after it. */
const DECISIONS = {
  Approve: ["approval", "approved"],
  Deny: ["denial", "denied"],
  Withdraw: ["withdrawal of the approval", "no longer approved"],
};

/**
 * @param {HTMLElement} container
 * @param {any} context
 * @param {{namespace?: string, query: URLSearchParams}} parameters
 * @returns {{stop(): void}}
 */
export function show(container, context, parameters) {
  const view = new Requests(container, context, parameters);
  view.start();
  return view;
}

/** Return what a user is about to do. */
function questionOf(action, user) {
  return `${action} the ${action === "Withdraw" ? "approval of the " : ""}request of ${user}`;
}

class Requests extends ListView {
  /** @type {any[] | null} */
  #requests = null;
  /** @type {Set<string> | null} */
  #sessions = null; // that are open, if all of them are known

  constructor(container, context, parameters) {
    super(context, parameters, OPTIONS);
    this.count = h("span", { class: "dim" });
    this.table = new Table("Requests for approvals", this.#columns());
    fill(container, listHead(this.toolbar, "Requests", this.count), this.problem, this.table.element);
  }

  begin() {
    this.#requests = this.#sessions = null;
    if (!this.isServed) return;
    this.list((namespace) => listPath(this.plural, namespace), { onChange: (objects) => (this.#requests = objects) });
    this.beside("consolesessions", (sessions, isWhole) => (this.#sessions = isWhole ? new Set(sessions.map(({ spec }) => spec.session)) : null));
    this.draw();
  }

  draw() {
    const now = Date.now();
    const all = (this.#requests ?? []).map((each) => rowOf(each, now, this.context.user, this.#sessions)).sort(order);
    const rows = this.matching(all, textsOf).map((row) => ({ ...row, ...this.rightsIn(row.namespace), age: age(row.since, now) }));
    const empty = this.noRows("request", all.length, emptyState("There are no requests: a user makes one at a console for which a ConsolePolicy requires an approval."));
    this.table.update(rows, this.emptyOf(this.#requests, empty));
    this.count.textContent = this.#requests ? countOf(rows.length, all.length, "request") : "";
  }

  #columns() {
    const dim = (text) => text && h("div", { class: "dim" }, printable(text));
    return [
      { title: "Machine", cell: (row) => nameLink(this.machineLink(row), row.machine), class: "name" },
      { title: "Namespace", cell: (row) => row.namespace, class: "rare" },
      { title: "User", cell: (row) => [printable(row.user), row.caller && h("span", { class: "dim" }, ` by ${printable(row.caller)}`)], class: "users" },
      { title: "Asks for", cell: (row) => [printable(row.right), row.length && h("span", { class: "dim" }, ` for ${row.length}`)], class: "short" },
      { title: "Age", cell: (row) => h("span", { title: zonedTime(row.since) }, row.age) },
      { title: "State", cell: (row) => [badge(row.state, STATE_KINDS[row.state]), dim(row.decision)], class: "wide" },
      { title: "Reason", cell: (row) => row.reason, class: "wide" },
      { title: "", cell: (row) => this.#buttons(row) },
    ];
  }

  #buttons(row) {
    if (row.actions.includes(TAKE_BACK)) {
      const label = `${TAKE_BACK} your request for ${printable(row.machine)}`;
      return row.mayDelete && button(TAKE_BACK, () => this.#takeBack(row), { "data-action": TAKE_BACK, "aria-label": label });
    }
    return row.mayDecide && row.actions.map((action) =>
      button(action, () => this.#decide(row, action), {
        "data-action": action, "aria-label": `${questionOf(action, printable(row.user))} for ${printable(row.machine)}`,
      }));
  }

  async #takeBack(row) {
    if (!(await takingBackConfirmed(row.machine))) return;
    const whose = `our request for ${printable(row.machine)}`;
    try {
      await this.acknowledged(`Taking back y${whose}`, takeBack(this.context, row));
      this.context.announce(`Y${whose} is taken back.`);
    } catch (error) {
      if (error.code === 404) this.say("", `Y${whose} is gone already.`);
      else this.say("error", `Y${whose} is as it was: ${printable(error.message)}`);
    }
  }

  async #decide(row, action) {
    const { api, announce } = this.context;
    const [user, machine] = [printable(row.user), printable(row.machine)];
    const note = await this.#ask(row, action, `${questionOf(action, user)}?`);
    if (note === null) return;
    const decision = action === "Approve" ? { approved: true } : { denied: true };
    const [noun, participle] = DECISIONS[action];
    try {
      // The UID keeps a request from being decided that has the same name by now.
      const change = { metadata: { uid: row.uid }, status: { ...decision, ...(note && { message: note }) } };
      const act = `The ${noun} of the request of ${user}`;
      await this.acknowledged(act, api.patch(itemPath(this.plural, row.namespace, row.name, "approval"), change));
      announce(`The request of ${user} for ${machine} is ${participle}.`);
    } catch (error) {
      this.say("error", `The request of ${user} for ${machine} is as it was: ${printable(error.message)}`);
    }
  }

  /** Return what the approver remarks; null: the request stays as it is. */
  #ask(row, action, title) {
    const remark = h("input", { type: "text", maxlength: LONGEST_NOTE, autocomplete: "off", placeholder: "Optional" });
    const demands = h("div", { class: "dim" });
    this.#demands(row).then((texts) => fill(demands, texts.map((text) => h("p", {}, printable(text)))));
    const asked = `${row.right} at ${row.namespace}/${row.machine} for ${row.length}${row.caller && `, asked for by ${row.caller}`}.`;
    const ends = action === "Withdraw" && "The session that uses the approval ends.";
    const build = (close) => h(
      "form", { class: "stack", onsubmit: (event) => (event.preventDefault(), close(remark.value.trim())) },
      h("p", {}, printable(asked)), row.reason && h("p", {}, printable(`Reason: ${row.reason}`)), ends && h("p", {}, ends), demands,
      field(`Note for ${printable(row.user)}`, remark),
      h("div", { class: "actions" }, button("Cancel", () => close(null)), button(action, null, { type: "submit", class: action === "Approve" ? "primary" : "danger" })),
    );
    return ask(title, build);
  }

  /** Return what the policies of a machine demand; nothing if the user may not read them. */
  async #demands({ namespace, machine, machineResource }) {
    const { api, machines } = this.context;
    const path = machines.list(machines.kindOf(machineResource), namespace);
    try {
      const { items } = await api.list(listPath("consolepolicies", namespace));
      const demands = items.map(async (policy) => {
        const text = demandOf(policy);
        const query = { fieldSelector: `metadata.name=${machine}`, labelSelector: selectorText(policy.spec.selector) };
        return text && (await api.list(path, { query })).items.length > 0 && text;
      });
      return (await Promise.all(demands)).filter(Boolean);
    } catch {
      return [];
    }
  }
}
