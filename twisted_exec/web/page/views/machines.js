/** The machine list: follows the watch, with filters. */

import { button, fill, h, notice, printable } from "../dom.js";
import { Rows, namespacesOf, order } from "./machine_rows.js";
import { age } from "./times.js";

const STEP = 200; // rows that are drawn at once; more follow when the user scrolls
const AGES_MILLISECONDS = 10_000;
const COLUMNS = [
  ["name", "Name"],
  ["namespace", "Namespace"],
  ["state", "State"],
  ["pool", "Pool"],
  ["line", "Last line"],
  ["created", "Age"],
];

export function show(container, context) {
  const list = new MachineList(container, context);
  list.start();
  return list;
}

class MachineList {
  constructor(container, context) {
    this._context = context;
    const kept = context.store.get("machines", {});
    this._filter = kept.filter ?? "";
    this._selector = kept.selector ?? "";
    this._namespaces = kept.namespaces ?? null; // text; null until the rights are known
    this._column = kept.column ?? "name";
    this._isDescending = kept.isDescending ?? false;
    this._limit = STEP;
    this._problems = new Map();
    this._drawn = new Map(); // key of a row -> its element and what it shows
    this._page = new AbortController();
    this._build(container);
  }

  async start() {
    const { api, config, machines, store } = this._context;
    if (this._namespaces === null) {
      const home = config.namespace || config.machine?.namespace || "default";
      const { plural, group } = machines.resource;
      const all = await api.can("list", plural, "", "", "", group).catch(() => false);
      this._namespaces = all ? "" : (store.get("namespace") ?? home);
    }
    if (this._page.signal.aborted) return;
    this._namespaceField.value = this._namespaces;
    this._follow();
    this._suggest();
    this._ages = setInterval(() => this._draw(), AGES_MILLISECONDS);
  }

  stop() {
    this._page.abort();
    this._watches?.abort();
    clearInterval(this._ages);
    this._bottom.disconnect();
  }

  _build(container) {
    const field = (label, attributes, change) => {
      const input = h("input", { type: "search", spellcheck: "false", autocomplete: "off", ...attributes });
      input.addEventListener("input", () => change(input.value));
      return [h("label", { class: "field" }, h("span", {}, label), input), input];
    };
    const later = debounce(() => this._follow(), 400);
    const [filter] = field(
      "Filter",
      { value: this._filter, placeholder: "name, state, pool, text", id: "machine-filter" },
      (value) => {
        this._filter = value;
        this._limit = STEP;
        this._keep();
        this._draw();
      },
    );
    const [selector] = field(
      "Labels",
      { value: this._selector, placeholder: "tier=production,zone!=a", class: "mono" },
      (value) => {
        this._selector = value;
        later();
      },
    );
    const [namespaces, input] = field(
      "Namespaces",
      { placeholder: "all", list: "namespaces" },
      (value) => {
        this._namespaces = value;
        later();
      },
    );
    this._namespaceField = input;
    this._suggestions = h("datalist", { id: "namespaces" });
    this._status = h("p", { class: "status dim", role: "status" }, "Loading…");
    this._notices = h("div");
    this._headers = new Map(
      COLUMNS.map(([column, label]) => [
        column,
        h("th", { scope: "col", class: column === "line" ? "last-line" : column }, button(label, () => this._sort(column), { class: "sort" })),
      ]),
    );
    this._body = h("tbody");
    this._table = h(
      "table",
      { class: "list machines" },
      h("caption", { class: "visually-hidden" }, "Machines"),
      h("thead", {}, h("tr", {}, [...this._headers.values()], h("th", { scope: "col", class: "more" }, h("span", { class: "visually-hidden" }, "Views")))),
      this._body,
    );
    this._end = h("div", { class: "end" });
    this._bottom = new IntersectionObserver((entries) => {
      if (!entries.at(-1).isIntersecting || this._drawn.size < this._limit) return;
      this._limit += STEP;
      this._draw();
      // It reports changes only: the end may be in view again, or still.
      this._bottom.unobserve(this._end);
      this._bottom.observe(this._end);
    });
    this._bottom.observe(this._end);
    fill(
      container,
      h("div", { class: "page-head" }, h("h1", {}, "Machines"), this._status),
      h("div", { class: "toolbar" }, filter, namespaces, selector, this._suggestions),
      this._notices,
      this._table,
      this._end,
    );
  }

  /** Begin the watches of the present namespaces and selector. */
  _follow() {
    const { api, machines, store } = this._context;
    this._watches?.abort();
    const watches = (this._watches = new AbortController());
    this._rows = new Rows();
    this._limit = STEP;
    this._problems.clear();
    this._pending = new Set();
    const namespaces = namespacesOf(this._namespaces);
    if (namespaces[0]) store.set("namespace", namespaces[0]);
    this._keep();
    for (const kind of machines.kinds) {
      for (const namespace of namespaces) {
        const path = machines.list(kind, namespace);
        this._pending.add(path);
        api.watch(
          path,
          (event) => {
            this._rows.apply(path, kind, event);
            this._pending.delete(path);
            this._changed();
          },
          {
            query: { labelSelector: this._selector.trim() },
            signal: watches.signal,
            onProblem: (error) => {
              if (error) this._problems.set(path, { error, namespace, kind });
              else this._problems.delete(path);
              this._pending.delete(path);
              this._changed();
            },
          },
        );
      }
    }
    this._draw();
  }

  async _suggest() {
    try {
      const { items } = await this._context.api.list("/api/v1/namespaces", { signal: this._page.signal });
      fill(this._suggestions, items.map((each) => h("option", { value: each.metadata.name })));
    } catch {
      // Most users may not list namespaces; they type the names.
    }
  }

  _keep() {
    this._context.store.set("machines", {
      filter: this._filter,
      selector: this._selector,
      namespaces: this._namespaces,
      column: this._column,
      isDescending: this._isDescending,
    });
  }

  _sort(column) {
    this._isDescending = column === this._column && !this._isDescending;
    this._column = column;
    this._keep();
    this._draw();
  }

  /** Draw once for all events of a moment: a change of a thousand machines is a thousand events. */
  _changed() {
    this._timer ??= setTimeout(() => {
      this._timer = null;
      if (!this._page.signal.aborted) this._draw();
    }, 100);
  }

  _draw() {
    if (!this._rows) return;
    const compare =
      this._column === "created"
        ? order("created", !this._isDescending)
        : order(this._column, this._isDescending);
    const rows = this._rows.select(this._filter, compare);
    for (const [column, header] of this._headers) {
      const direction = this._isDescending ? "descending" : "ascending";
      if (column === this._column) header.setAttribute("aria-sort", direction);
      else header.removeAttribute("aria-sort");
    }
    const hasLines = rows.some((row) => row.line || row.problem);
    const namespaces = namespacesOf(this._namespaces ?? "");
    this._table.classList.toggle("no-lines", !hasLines);
    this._table.classList.toggle("one-namespace", namespaces.length === 1 && namespaces[0] !== "");
    this._drawRows(rows.slice(0, this._limit));
    this._drawStatus(rows.length);
  }

  _drawRows(rows) {
    const now = Date.now();
    const drawn = new Map();
    let previous = null;
    for (const row of rows) {
      const shown = { ...row, age: age(row.created, now), kind: null };
      const text = JSON.stringify(shown);
      let entry = this._drawn.get(row.key);
      if (entry?.text !== text) {
        const element = this._row(row, shown.age);
        // The user may be at this row with the keyboard.
        const focused = entry?.element.contains(document.activeElement)
          ? document.activeElement.dataset.part
          : null;
        entry?.element.replaceWith(element);
        entry = { element, text };
        if (focused !== null) element.querySelector(`[data-part="${focused}"]`)?.focus();
      }
      const at = previous ? previous.nextSibling : this._body.firstChild;
      if (at !== entry.element) this._body.insertBefore(entry.element, at);
      previous = entry.element;
      drawn.set(row.key, entry);
    }
    for (const [key, { element }] of this._drawn) if (!drawn.has(key)) element.remove();
    this._drawn = drawn;
  }

  _row(row, ageText) {
    const { link, machines } = this._context;
    const name = machines.routeName(row.kind, row.name);
    const part = (where, label) =>
      machines.has(row.kind, where) &&
      h("a", { href: link(row.namespace, name, where), "data-part": where, "aria-label": `${label} of ${printable(row.name)}` }, label);
    return h(
      "tr",
      {},
      h("td", { class: "name" }, h("a", { href: link(row.namespace, name), "data-part": "" }, printable(name))),
      h("td", { class: "namespace" }, printable(row.namespace)),
      h("td", { class: "state" }, h("span", { class: `badge ${row.health}` }, printable(row.state))),
      h("td", { class: "pool" }, printable(row.pool)),
      h("td", { class: "last-line" }, row.problem ? h("span", { class: "problem" }, printable(row.problem)) : h("code", {}, printable(row.line))),
      h("td", { class: "created", title: row.created }, ageText),
      h("td", { class: "more" }, part("logs", "Log"), part("screen", "Screen"), part("recordings", "Recordings")),
    );
  }

  _drawStatus(count) {
    const total = this._rows.size;
    const notices = [...this._problems.values()].map((problem) => this._explain(problem));
    const isLoading = this._pending.size > 0;
    if (!isLoading && !notices.length && !total) notices.push(this._empty());
    if (total && !count) {
      notices.push(notice("empty", "No machine matches the filter."));
    }
    fill(this._notices, notices);
    this._table.hidden = !count;
    const noun = total === 1 ? "machine" : "machines";
    const text = count === total ? `${total} ${noun}` : `${count} of ${total} ${noun}`;
    let status = isLoading && !total ? "Loading…" : text;
    if (!total && this._problems.size) status = "";
    if (this._status.textContent !== status) this._status.textContent = status;
  }

  _empty() {
    if (this._selector.trim()) return notice("empty", "No machine has these labels.");
    const [namespace] = namespacesOf(this._namespaces);
    return notice(
      "empty",
      h("p", {}, namespace ? `There are no machines in ${printable(this._namespaces)}.` : "There are no machines."),
      h("p", { class: "dim" }, "They appear here as soon as they are created."),
    );
  }

  _explain({ error, namespace, kind }) {
    const where = namespace ? `in the namespace ${printable(namespace)}` : "in all namespaces";
    if (error.code === 403) {
      return notice(
        "error",
        h("p", {}, `You may not list ${kind.plural} ${where}.`),
        h("p", {}, "Name the namespaces that you may read above, or ask your administrator for the role “view” there."),
        h("p", { class: "dim mono" }, printable(error.message)),
      );
    }
    if (error.code === 401) return notice("warning", "Waiting for your login.");
    if (error.code === 0 || error.code >= 500) {
      return notice(
        "warning",
        `The list is not current: ${printable(error.message || "the server cannot be reached")}. The page tries again by itself.`,
      );
    }
    return notice("error", printable(error.message));
  }
}

function debounce(action, milliseconds) {
  let timer = null;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, milliseconds);
  };
}
