/** The machine list: follows the watch, with filters. */

import { button, fill, h, notice, printable, renew } from "../dom.js";
import { age } from "../times.js";
import { namespacesOf } from "./filter.js";
import { ListView } from "./list_view.js";
import { Rows, order } from "./machine_rows.js";
import { countOf, field } from "./parts.js";

const STEP = 200; // rows that are drawn at once; more follow when the user scrolls
const KEPT = "machines";
const COLUMNS = [
  ["name", "Name"],
  ["namespace", "Namespace"],
  ["state", "State"],
  ["pool", "Pool"],
  ["line", "Last line"],
  ["created", "Age"],
];

/**
 * @param {HTMLElement} container
 * @param {any} context
 * @param {{query: URLSearchParams}} parameters
 * @returns {{stop(): void}}
 */
export function show(container, context, parameters) {
  const list = new MachineList(container, context, parameters);
  list.start();
  return list;
}

class MachineList extends ListView {
  #column;
  #isDescending;
  #limit = STEP;
  #rows = new Rows();
  /** @type {Map<string, {element: HTMLElement, text: string}>} rows in the table, by key. */
  #drawn = new Map();
  #selector;
  #suggestions = h("datalist", { id: "namespaces" });
  #status = h("p", { class: "status dim", role: "status" }, "Loading…");
  #empty = h("div");
  #headers;
  #body = h("tbody");
  #table;
  #end = h("div", { class: "end" });
  #bottom;

  constructor(container, context, parameters) {
    const kept = context.store.get(KEPT, {});
    const { plural, group } = context.machines.resource;
    super(context, parameters, { plural, group, role: "view", kept });
    this.#column = kept.column ?? "name";
    this.#isDescending = kept.isDescending ?? false;
    this.#build(container, kept.selector ?? "");
  }

  start() {
    this.#suggest();
    return super.start();
  }

  stop() {
    super.stop();
    this.#bottom.disconnect();
  }

  #build(container, selector) {
    this.filter.id = "machine-filter";
    this.filter.setAttribute("placeholder", "name, state, pool, text");
    this.#selector = h("input", {
      type: "search", spellcheck: "false", autocomplete: "off", class: "mono",
      value: selector, placeholder: "tier=production,zone!=a", oninput: () => this.typed(),
    });
    this.namespaces.setAttribute("list", "namespaces");
    this.#headers = new Map(
      COLUMNS.map(([column, label]) => [
        column,
        h("th", { scope: "col", class: column === "line" ? "last-line" : column }, button(label, () => this.#sort(column), { class: "sort" })),
      ]),
    );
    this.#table = h(
      "table",
      { class: "list machines" },
      h("caption", { class: "visually-hidden" }, "Machines"),
      h("thead", {}, h("tr", {}, [...this.#headers.values()], h("th", { scope: "col", class: "more" }, h("span", { class: "visually-hidden" }, "Views")))),
      this.#body,
    );
    this.#bottom = new IntersectionObserver((entries) => {
      if (!entries.at(-1)?.isIntersecting || this.#drawn.size < this.#limit) return;
      this.#limit += STEP;
      this.draw();
      // It reports changes only: the end may be in view again, or still.
      this.#bottom.unobserve(this.#end);
      this.#bottom.observe(this.#end);
    });
    this.#bottom.observe(this.#end);
    fill(
      container,
      h("div", { class: "page-head" }, h("h1", {}, "Machines"), this.#status),
      h(
        "div",
        { class: "toolbar" },
        field("Filter", this.filter),
        field("Namespaces", this.namespaces),
        field("Labels", this.#selector),
        this.#suggestions,
      ),
      this.problem,
      this.#empty,
      this.#table,
      this.#end,
    );
  }

  begin() {
    const { machines } = this.context;
    this.#rows = new Rows();
    this.#limit = STEP;
    this.#keep();
    for (const kind of machines.kinds) {
      this.watch((namespace) => machines.list(kind, namespace), {
        plural: kind.plural,
        query: { labelSelector: this.#selector.value.trim() },
        onEvent: (event, path) => {
          this.#rows.apply(path, kind, event);
          this.changed();
        },
      });
    }
    this.draw();
  }

  async #suggest() {
    try {
      const { items } = await this.context.api.list("/api/v1/namespaces", { signal: this.signal });
      fill(this.#suggestions, items.map((each) => h("option", { value: each.metadata.name })));
    } catch {
      // Most users may not list namespaces; they type the names.
    }
  }

  #keep() {
    this.context.store.set(KEPT, {
      filter: this.filter.value,
      selector: this.#selector.value,
      namespaces: this.namespaces.value,
      column: this.#column,
      isDescending: this.#isDescending,
    });
  }

  filtered() {
    this.#limit = STEP;
    this.#keep();
    super.filtered();
  }

  #sort(column) {
    this.#isDescending = column === this.#column && !this.#isDescending;
    this.#column = column;
    this.#keep();
    this.draw();
  }

  draw() {
    const compare =
      this.#column === "created"
        ? order("created", !this.#isDescending)
        : order(this.#column, this.#isDescending);
    const rows = this.#rows.select(this.filter.value, compare);
    for (const [column, header] of this.#headers) {
      const direction = this.#isDescending ? "descending" : "ascending";
      if (column === this.#column) header.setAttribute("aria-sort", direction);
      else header.removeAttribute("aria-sort");
    }
    const hasLines = rows.some((row) => row.line || row.problem);
    const namespaces = namespacesOf(this.namespaces.value);
    this.#table.classList.toggle("no-lines", !hasLines);
    this.#table.classList.toggle("one-namespace", namespaces.length === 1 && namespaces[0] !== "");
    this.#drawRows(rows.slice(0, this.#limit));
    this.#drawStatus(rows.length);
  }

  #drawRows(rows) {
    const now = Date.now();
    const drawn = new Map();
    let previous = null;
    for (const row of rows) {
      const shown = { ...row, age: age(row.created, now), kind: null };
      const text = JSON.stringify(shown);
      let entry = this.#drawn.get(row.key);
      if (entry?.text !== text) {
        entry = { element: entry?.element ?? h("tr"), text };
        renew(entry.element, this.#cells(row, shown.age));
      }
      const at = previous ? previous.nextSibling : this.#body.firstChild;
      if (at !== entry.element) this.#body.insertBefore(entry.element, at);
      previous = entry.element;
      drawn.set(row.key, entry);
    }
    for (const [key, { element }] of this.#drawn) if (!drawn.has(key)) element.remove();
    this.#drawn = drawn;
  }

  #cells(row, ageText) {
    const { link, machines } = this.context;
    const name = machines.routeName(row.kind, row.name);
    const part = (where, label) =>
      machines.has(row.kind, where) &&
      h("a", { href: link(row.namespace, name, where), "aria-label": `${label} of ${printable(row.name)}` }, label);
    return [
      h("td", { class: "name" }, h("a", { href: link(row.namespace, name) }, printable(name))),
      h("td", { class: "namespace" }, printable(row.namespace)),
      h("td", { class: "state" }, h("span", { class: `badge ${row.health}` }, printable(row.state))),
      h("td", { class: "pool" }, printable(row.pool)),
      h("td", { class: "last-line" }, row.problem ? h("span", { class: "problem" }, printable(row.problem)) : h("code", {}, printable(row.line))),
      h("td", { class: "created", title: row.created }, ageText),
      h("td", { class: "more" }, part("logs", "Log"), part("screen", "Screen"), part("recordings", "Recordings")),
    ];
  }

  #drawStatus(count) {
    const total = this.#rows.size;
    let empty = null;
    if (total && !count) empty = notice("empty", "No machine matches the filter.");
    else if (!total && !this.isLoading && !this.hasProblem) empty = this.#noMachines();
    // A screen reader would read the same notice again.
    if (this.#empty.textContent !== (empty?.textContent ?? "")) fill(this.#empty, empty);
    this.#table.hidden = !count;
    let status = this.isLoading && !total ? "Loading…" : countOf(count, total, "machine");
    if (!total && this.hasProblem) status = "";
    if (this.#status.textContent !== status) this.#status.textContent = status;
  }

  #noMachines() {
    if (this.#selector.value.trim()) return notice("empty", "No machine has these labels.");
    const [namespace] = namespacesOf(this.namespaces.value);
    return notice(
      "empty",
      h("p", {}, namespace ? `There are no machines in ${printable(this.namespaces.value)}.` : "There are no machines."),
      h("p", { class: "dim" }, "They appear here as soon as they are created."),
    );
  }
}
