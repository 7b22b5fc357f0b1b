/** Console sessions: who is connected to which console, and how to end a session. */

import { button, fill, h, notice, printable } from "../dom.js";
import { follow, itemPath, listPath, may, servedResources } from "./objects.js";
import { confirmed, field, Table } from "./parts.js";
import { matches, order, rowOf } from "./session_model.js";
import { age, dateTime, size } from "./times.js";

const AGE_MS = 5000;

/**
 * @param {HTMLElement} container
 * @param {any} context
 * @param {{namespace?: string, query: URLSearchParams}} parameters
 * @returns {{stop(): void}}
 */
export function show(container, context, parameters) {
  const view = new Sessions(container, context, parameters);
  return { stop: () => view.stop() };
}

class Sessions {
  #stopped = new AbortController();
  #following = new AbortController();
  #rows = [];
  /** @type {Map<string, boolean>} whether the user may end sessions, by namespace. */
  #rights = new Map();

  constructor(container, context, parameters) {
    this.context = context;
    this.filter = h("input", { type: "search", value: parameters.query.get("filter") ?? "", oninput: () => this.#draw() });
    this.namespace = h("input", {
      type: "text", value: parameters.namespace ?? parameters.query.get("namespace") ?? "", placeholder: "all",
      onchange: () => this.#follow(), size: 14,
    });
    this.problem = h("div");
    this.count = h("span", { class: "dim" });
    this.table = new Table("Console sessions", this.#columns());
    this.empty = h("p", { class: "empty", hidden: true });
    fill(
      container,
      h("div", { class: "page-head" }, h("h2", {}, "Sessions"), this.count),
      h("div", { class: "toolbar" }, field("Filter", this.filter), field("Namespace", this.namespace)),
      this.problem,
      this.table.element,
      this.empty,
    );
    const timer = setInterval(() => this.#draw(), AGE_MS);
    this.#stopped.signal.addEventListener("abort", () => clearInterval(timer));
    this.#start();
  }

  stop() {
    this.#following.abort();
    this.#stopped.abort();
  }

  async #start() {
    const resources = await servedResources(this.context.api);
    if (this.#stopped.signal.aborted) return;
    if (resources && !resources.has("consolesessions")) {
      fill(this.problem, notice("warning", "This server does not list console sessions: it is of an older release."));
      return;
    }
    this.#follow();
  }

  #follow() {
    this.#following.abort();
    this.#following = new AbortController();
    this.#rows = [];
    fill(this.problem);
    follow(this.context.api, listPath("consolesessions", this.namespace.value.trim()), {
      signal: this.#following.signal,
      onChange: (objects) => this.#changed(objects),
      onProblem: (error) => this.#failed(error),
    });
  }

  #failed(error) {
    if (error?.code === 403 && !this.namespace.value && this.context.config.namespace) {
      this.namespace.value = this.context.config.namespace;
      this.#follow();
      return;
    }
    fill(this.problem, error && notice("error", printable(error.message), ...remedy(error)));
  }

  #changed(objects) {
    this.#rows = objects.map(rowOf).sort(order);
    for (const namespace of new Set(this.#rows.map((row) => row.namespace))) this.#learn(namespace);
    this.#draw();
  }

  async #learn(namespace) {
    if (this.#rights.has(namespace)) return;
    this.#rights.set(namespace, false);
    this.#rights.set(namespace, await may(this.context.api, "delete", "consolesessions", "", namespace));
    this.#draw();
  }

  #draw() {
    const now = Date.now();
    const rows = this.#rows
      .filter((row) => matches(row, this.filter.value))
      .map((row) => ({
        ...row,
        age: age(row.since, now),
        awayFor: age(row.away, now),
        mayEnd: this.#rights.get(row.namespace) === true,
      }));
    this.table.update(rows);
    this.count.textContent = rows.length === this.#rows.length ? `${rows.length}` : `${rows.length} of ${this.#rows.length}`;
    this.table.element.hidden = rows.length === 0;
    this.empty.hidden = rows.length > 0;
    this.empty.textContent = this.#rows.length ? "No session matches the filter." : "No console is open.";
  }

  #columns() {
    const { link } = this.context;
    return [
      { title: "Machine", cell: (row) => [h("a", { href: link(row.namespace, row.machine) }, printable(row.machine)), " ", h("span", { class: "dim" }, printable(row.namespace))] },
      { title: "User", cell: (row) => [printable(row.user), row.caller && h("span", { class: "dim" }, ` by ${printable(row.caller)}`)] },
      { title: "Role", cell: (row) => row.role || "unknown" },
      { title: "Asked for", cell: (row) => row.mode },
      { title: "Since", cell: (row) => h("span", { title: dateTime(row.since) }, row.age) },
      { title: "Connection", cell: (row) => connection(row) },
      { title: "From", cell: (row) => row.address },
      { title: "Details", cell: details },
      {
        title: "",
        cell: (row) => row.mayEnd && button("End", () => this.#end(row), {
          "data-action": "end", "aria-label": `End the session of ${printable(row.user)} at ${printable(row.machine)}`,
        }),
      },
    ];
  }

  async #end(row) {
    const { api, announce } = this.context;
    const whose = `the session of ${printable(row.user)} at ${printable(row.machine)}`;
    const question = `End ${whose}? The user reads that you ended it. Other sessions continue, and the user may open a new one.`;
    if (!(await confirmed(question, "End the session"))) return;
    try {
      // The UID keeps a session from being ended that has the same name by now.
      await api.request(itemPath("consolesessions", row.namespace, row.name), {
        method: "DELETE",
        body: { apiVersion: "v1", kind: "DeleteOptions", preconditions: { uid: row.uid } },
      });
      announce(`Ended ${whose}.`);
    } catch (error) {
      announce(error.code === 404 ? `${whose} had ended already.` : `Could not end ${whose}: ${printable(error.message)}`);
    }
  }
}

function connection(row) {
  if (row.away) return h("span", { class: "badge waiting", title: "The connection was lost; the user may come back." }, `away ${row.awayFor}`);
  return row.isResumable ? "resumable" : "connected";
}

function details(row) {
  const facts = [
    ["Client", row.agent],
    ["Request", row.via],
    ["API server", row.replica],
    ["To the machine", size(row.toMachine)],
    ["To the user", size(row.toUser)],
    ["Session", row.session],
  ];
  return h(
    "details",
    {},
    h("summary", { "data-action": "details" }, "Details"),
    h("dl", { class: "facts" }, facts.filter(([, value]) => value).map(([name, value]) => [h("dt", {}, name), h("dd", {}, printable(value))])),
  );
}

function remedy(error) {
  if (error.code !== 403) return [];
  return [" Choose a namespace in which you may list sessions; the roles edit and admin include this."];
}
