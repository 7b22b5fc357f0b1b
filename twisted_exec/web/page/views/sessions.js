/** The list of console sessions, with a button that ends one. */

import { confirmed } from "../dialogs.js";
import { button, fill, h, nameLink, printable } from "../dom.js";
import { itemPath, listPath } from "../objects.js";
import { age, size, zonedTime } from "../times.js";
import { ListView } from "./list_view.js";
import { badge, countOf, emptyState, listHead, Table } from "./parts.js";
import { connectionOf, endOf, order, ownSessions, rowOf, textsOf, THIS_PAGE } from "./session_model.js";

const OPTIONS = {
  plural: "consolesessions",
  role: "console-session-reader",
  missing: "This server does not list console sessions: it is not an exec-apiserver.",
  rights: { mayEnd: ["delete", ""] },
};

/**
 * @param {HTMLElement} container
 * @param {any} context
 * @param {{namespace?: string, query: URLSearchParams}} parameters
 * @returns {{stop(): void}}
 */
export function show(container, context, parameters) {
  const view = new Sessions(container, context, parameters);
  view.start();
  return view;
}

class Sessions extends ListView {
  /** @type {any[] | null} */
  #rows = null;

  constructor(container, context, parameters) {
    super(context, parameters, OPTIONS);
    this.count = h("span", { class: "dim" });
    this.table = new Table("Console sessions", this.#columns());
    fill(container, listHead(this.toolbar, "Sessions", this.count), this.problem, this.table.element);
  }

  begin() {
    this.#rows = null;
    if (!this.isServed) return;
    this.list((namespace) => listPath(this.plural, namespace), {
      onChange: (objects) => {
        this.#rows = objects && objects.map(rowOf).sort(order);
      },
    });
    this.draw();
  }

  draw() {
    const now = Date.now();
    const own = ownSessions(this.context.store);
    const all = (this.#rows ?? []).map((row) => ({ ...row, isOwn: own.has(row.session) }));
    const rows = this.matching(all, textsOf).map((row) => ({
      ...row,
      ...this.rightsIn(row.namespace),
      isOld: this.asOf !== null,
      age: age(row.since, now),
      awayFor: age(row.away, now),
    }));
    const empty = this.noRows("session", all.length, emptyState("No console is open.", "Choose a machine", "#/machines"));
    this.table.update(rows, this.emptyOf(this.#rows, empty));
    this.count.textContent = this.#rows ? countOf(rows.length, all.length, "session") : "";
  }

  #columns() {
    return [
      { title: "Machine", cell: (row) => nameLink(this.machineLink(row), row.machine), class: "name" },
      { title: "Namespace", cell: (row) => row.namespace, class: "rare in-details" },
      { title: "User", cell: (row) => [printable(row.user), row.caller && h("span", { class: "dim" }, ` by ${printable(row.caller)}`), row.isOwn && h("span", { class: "dim" }, ` (${THIS_PAGE})`)], class: "plain" },
      { title: "Role", cell: (row) => row.role || "Unknown", class: "plain" },
      { title: "Age", cell: (row) => h("span", { title: zonedTime(row.since) }, row.age), class: "plain" },
      { title: "Connection", cell: (row) => row.isOld ? badge("Unknown") : h("span", { title: connectionOf(row) }, badge(connectionOf(row).split(",")[0], row.away ? "waiting" : "good")), class: "plain" },
      { title: "From", cell: (row) => row.address, class: "rare in-details" },
      { title: "Details", cell: details, class: "details" },
      {
        title: "",
        cell: (row) => row.mayEnd && button("End", () => this.#end(row), {
          "data-action": "end", "aria-label": `End the session of ${printable(row.user)} at ${printable(row.machine)}`,
        }),
      },
    ];
  }

  async #end(row) {
    const { api, user } = this.context;
    const whose = `the session of ${printable(row.user)} at ${printable(row.machine)}`;
    if (!(await confirmed(`End ${whose}?`, endOf(row, user), "End the session"))) return;
    try {
      // The UID keeps a session from being ended that has the same name by now.
      const body = { apiVersion: "v1", kind: "DeleteOptions", preconditions: { uid: row.uid } };
      await this.acknowledged(`The end of ${whose}`, api.request(itemPath("consolesessions", row.namespace, row.name), { method: "DELETE", body }));
      this.context.announce(`Ended ${whose}.`);
    } catch (error) {
      if (error.code === 404) this.say("", `T${whose.slice(1)} had ended already.`);
      else this.say("error", `Could not end ${whose}: ${printable(error.message)}`);
    }
  }
}

export function details(row) {
  const facts = [
    ["Namespace", row.namespace],
    ["Asked to", row.mode],
    ["Connection", row.isOld ? "Unknown" : connectionOf(row)],
    ["From", row.address],
    ["Client", row.agent],
    ["Request", row.via],
    ["API server", row.replica],
    ["To the machine", `${size(row.toMachine)}, with the framing`],
    ["To the user", `${size(row.toUser)}, with the framing`],
    ["Session", row.session],
  ];
  return h(
    "details",
    {},
    h("summary", { "data-action": "details" }, "Details"),
    h("dl", { class: "facts" }, facts.filter(([, value]) => value).map(([name, value]) => [h("dt", {}, name), h("dd", {}, printable(value))])),
  );
}
