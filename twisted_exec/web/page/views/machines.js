/** The machine list: follows the watch, with filters; only the rows in sight are drawn. */

import { ask, powerOffConfirmed } from "../dialogs.js";
import { button, fill, h, nameLink, printable } from "../dom.js";
import { age, zonedTime } from "../times.js";
import { namespacesOf } from "./filter.js";
import { ListView } from "./list_view.js";
import { Rows, order, powerChange, rowOf, usersText } from "./machine_rows.js";
import { countOf, emptyState, field, listHead, skeleton, toolbar } from "./parts.js";
import { VisibleRows } from "./visible_rows.js";

const NAMESPACES = "namespaces"; // in the store
/** Those to a console are the ones of opening() in rights.js. */
const RIGHTS = {
  maySwitch: ["patch", ""], readsLog: ["get", "log"], readsScreen: ["get", "screen"],
  drives: ["drive", "console"], execs: ["get", "exec"], observes: ["observe", "console"], takesOver: ["takeover", "console"], creates: ["create", "exec"],
};
const MOST_STATES = 8;
const UNKNOWN_USERS = "The server does not say now who is there";
/** On a phone a tap anywhere on a row opens the console; the other links are behind the row's button. */
const PHONE = matchMedia("(max-width: 700px)");
const COLUMNS = [
  ["name", "Name"],
  ["namespace", "Namespace"],
  ["state", "State"],
  ["users", "Users"],
  ["pool", "Pool"],
  ["line", "Last line"],
  ["created", "Age"],
];
const SORTS = COLUMNS.filter(([column]) => column !== "line");

// `line` is a line of a log.
const classOf = (column) => (column === "line" ? "last-line" : column);

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
  #column = "";
  #isDescending = false;
  #compare;
  #rows;
  #selector;
  #sorting;
  #suggestions = h("datalist", { id: "namespaces" });
  #status = h("p", { class: "status dim", role: "status" });
  #states = h("div", { class: "states", role: "group", "aria-label": "Machines by state" });
  #empty = h("div");
  #skeleton = skeleton();
  #headers;
  #body;
  #table;
  /** @type {Record<string, (row: any) => string>} by column: those that are as wide as their longest text. */
  #texts = {
    name: (row) => this.context.machines.routeName(row.kind, row.name),
    namespace: (row) => row.namespace,
    users: ({ users, isRecorded }) => (isRecorded ? `● REC ${users}` : users),
    pool: (row) => row.pool,
  };

  constructor(container, context, parameters) {
    const { query } = parameters;
    const namespaces = query.size ? null : context.store.get(NAMESPACES); // an address with a query is complete
    const { plural, group } = context.machines.resource;
    super(context, parameters, { plural, group, role: "view", namespaces, rights: RIGHTS, instead: (namespace) => this.#opener(namespace) });
    this.#rows = new Rows(context.machines.resource);
    this.#body = new VisibleRows((row) => this.#shown(row), (row, shown) => this.#cells(row, shown), this.signal);
    this.#build(container, query.get("labels") ?? "");
    this.#order(query.get("sort") ?? "");
  }

  start() {
    this.#suggest();
    return super.start();
  }

  get address() {
    const sort = (this.#isDescending ? "-" : "") + this.#column;
    return { ...super.address, labels: this.#selector.value.trim(), sort: sort === "name" ? "" : sort };
  }

  #build(container, selector) {
    this.filter.id = "machine-filter";
    this.filter.setAttribute("placeholder", "Name, state, user or text");
    this.filter.addEventListener("keydown", (event) => this.#filterKeyPressed(event));
    this.#selector = h("input", {
      type: "search", spellcheck: "false", autocomplete: "off", class: "mono",
      value: selector, placeholder: "tier=production,zone!=a", oninput: () => this.typed(),
    });
    this.namespaces.setAttribute("list", "namespaces");
    const directions = SORTS.flatMap(([column, label]) => [h("option", { value: column }, label), h("option", { value: `-${column}` }, `${label}, descending`)]);
    this.#sorting = h("select", { onchange: () => this.#sort(this.#sorting.value) }, directions);
    this.#headers = new Map(
      COLUMNS.map(([column, label]) => {
        const next = () => this.#sort(column === this.#column && !this.#isDescending ? `-${column}` : column);
        return [column, h("th", { scope: "col", role: "columnheader", class: classOf(column) }, button(label, next, { class: "sort" }))];
      }),
    );
    const actions = h("th", { scope: "col", role: "columnheader", class: "more" }, h("span", { class: "visually-hidden" }, "Actions"));
    this.#table = h(
      "table",
      { class: "list machines", role: "table", onkeydown: (event) => this.#tableKeyPressed(event) },
      h("caption", { class: "visually-hidden" }, "Machines"),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row", "aria-rowindex": 1 }, [...this.#headers.values()], actions)),
      this.#body.element,
    );
    fill(
      container,
      listHead(
        toolbar(this.filter, [["Namespaces", this.namespaces], ["Labels", this.#selector], ["Sort by", this.#sorting]]),
        "Machines", this.#status, this.#states,
      ),
      this.#suggestions,
      this.problem,
      this.#empty,
      this.#skeleton,
      this.#table,
    );
  }

  begin() {
    const { machines } = this.context;
    this.#rows = new Rows(machines.resource);
    this.context.store.set(NAMESPACES, this.namespaces.value);
    this.context.count(this.namespaces.value);
    for (const kind of machines.kinds) {
      this.list((namespace) => machines.list(kind, namespace), {
        plural: kind.plural,
        query: { labelSelector: this.#selector.value.trim() },
        make: (machine) => rowOf(machine, kind),
        onChange: (rows) => this.#rows.set(kind, rows ?? []),
      });
    }
    this.beside("consolesessions", (sessions) => this.#rows.setSessions(sessions));
    this.beside("consolerecordings", (recordings) => this.#rows.setRecordings(recordings));
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

  /** @param {string} sort a column, with a minus for the descending order. */
  #sort(sort) {
    this.#order(sort);
    this.keepAddress();
    this.draw();
  }

  #order(sort) {
    const column = sort.replace(/^-/, "");
    const isKnown = this.#headers.has(column);
    this.#column = isKnown ? column : "name";
    this.#isDescending = isKnown && sort.startsWith("-");
    // The youngest machine was created last.
    this.#compare = order(this.#column, (this.#column === "created") !== this.#isDescending);
    this.#sorting.value = (this.#isDescending ? "-" : "") + this.#column;
  }

  draw() {
    const rows = this.#rows.select(this.filter.value, this.#compare);
    for (const [column, header] of this.#headers) {
      const direction = this.#isDescending ? "descending" : "ascending";
      if (column === this.#column) header.setAttribute("aria-sort", direction);
      else header.removeAttribute("aria-sort");
    }
    const namespaces = namespacesOf(this.namespaces.value);
    // Whatever the filter is: nothing moves while the user types.
    const some = (isSuch) => this.#rows.some(isSuch);
    this.#label("line", some((row) => row.problem) ? "Message" : "Last line");
    this.#table.classList.toggle("no-lines", !some((row) => row.line || row.problem));
    this.#table.classList.toggle("one-namespace", namespaces.length === 1 && namespaces[0] !== "");
    this.#table.classList.toggle("same-namespace", !some((row) => row.namespace !== rows[0]?.namespace));
    for (const [column, textOf] of Object.entries(this.#texts)) this.#table.style.setProperty(`--longest-${column}`, String(this.#rows.longest(textOf)));
    this.#table.hidden = !rows.length;
    this.#table.setAttribute("aria-rowcount", String(rows.length + 1));
    this.#body.update(rows);
    this.#begin(rows);
    this.#drawStatus(rows.length);
    this.#drawStates();
  }

  /** Give the focus, which nothing has yet, to the row of the machine from which the user comes. */
  #begin(rows) {
    const { context } = this;
    const { machine, machines } = context;
    if (!machine) return;
    const isFree = document.activeElement === document.body || document.activeElement?.id === "view";
    const at = rows.findIndex(({ kind, namespace, name }) => namespace === machine.namespace && machines.routeName(kind, name) === machine.name);
    if (isFree && at >= 0) this.#body.focus(at);
    if (!isFree || at >= 0) context.machine = null;
  }

  #label(column, label) {
    const { firstChild } = this.#headers.get(column);
    if (firstChild.textContent !== label) firstChild.textContent = label;
  }

  /** What a row shows, beside what is constant. */
  #shown(row) {
    return { ...row, kind: null, age: age(row.created, Date.now()), isPhone: PHONE.matches, isOld: this.asOf !== null, rights: this.rightsIn(row.namespace) };
  }

  #cells(row, { age: ageText, isPhone, isOld }) {
    const { link, machines } = this.context;
    const name = machines.routeName(row.kind, row.name);
    const cell = (column, attributes, ...children) => h("td", { role: "cell", class: classOf(column), ...attributes }, ...children);
    const text = (column) => cell(column, { title: printable(row[column]) }, printable(row[column]));
    return [
      cell("name", {}, nameLink(link(row.namespace, name), name)),
      text("namespace"),
      cell("state", {}, h("span", { class: `badge ${row.health}` }, printable(row.state))),
      isOld ? cell("users", { title: UNKNOWN_USERS }, h("span", { class: "visually-hidden" }, "Unknown"), h("span", { "aria-hidden": "true" }, "?")) : cell("users", { title: printable(row.users) }, row.isRecorded && h("span", { class: "recorded", title: "Recorded" }, h("span", { "aria-hidden": "true" }, "REC"), h("span", { class: "visually-hidden" }, "Recorded ")), printable(row.users)),
      text("pool"),
      cell("line", { title: printable(row.problem || row.line) }, row.problem ? this.#problem(row, isPhone) : h("code", {}, printable(row.line))),
      cell("created", { title: zonedTime(row.created) }, ageText),
      cell("more", {}, this.#actions(row), button("⋯", () => this.#showActions(this.#rows.get(row.key) ?? row), { class: "quiet icon", "aria-label": `More of ${printable(row.name)}` })),
    ];
  }

  /** What is wrong with a machine; it leads to the line in the log that says so, if that is known. */
  #problem(row, isPhone) {
    const attributes = { class: `problem ${row.severity}` };
    const href = isPhone ? "" : this.#faultLink(row);
    const text = printable(row.problem);
    return href ? h("a", { ...attributes, href, title: `${text} (show it in the log)` }, text) : h("span", attributes, text);
  }

  /** The address of the line in the log that is the fault of a machine; empty if it is not known. */
  #faultLink({ kind, namespace, name, offset }) {
    const { link, machines } = this.context;
    if (offset === null || !machines.has(kind, "logs")) return "";
    return `${link(namespace, machines.routeName(kind, name), "logs")}?offset=${offset}`;
  }

  /**
   * The links and buttons of a machine that its user has the right to; each calls `chosen` first. Until the rights are known,
   * only the button of the power is disabled.
   */
  #actions(row, chosen = () => {}) {
    const { link, machines } = this.context;
    const { maySwitch, readsLog, readsScreen, drives, execs, observes, takesOver, creates } = this.rightsIn(row.namespace);
    const lacks = (...rights) => rights.every((each) => each === false);
    const name = machines.routeName(row.kind, row.name);
    const label = printable(row.name);
    const action = (text, href, attributes = {}) => h("a", { href, onclick: chosen, "aria-label": `${text} ${label}`, ...attributes }, text);
    const part = (text, where, isReadable) => isReadable !== false && machines.has(row.kind, where) && action(text, link(row.namespace, name, where), { "aria-label": `${text} of ${label}` });
    const change = powerChange(row);
    const power = change === "On" ? "Power on" : "Power off";
    const switched = () => {
      chosen();
      this.#switch(row);
    };
    return [
      !lacks(drives, execs) && action("Open", link(row.namespace, name)),
      !lacks(drives, execs, observes, takesOver, creates) && action("Observe", `${link(row.namespace, name)}?mode=observe`),
      part("Log", "logs", readsLog), part("Screen", "screen", readsScreen),
      maySwitch !== false && button(power, switched, { class: "power", disabled: !maySwitch || !change, "aria-label": `${power} ${label}` }),
    ];
  }

  /** Where there is no room for them beside the machine. */
  #showActions(row) {
    const fault = this.#faultLink(row);
    ask(printable(row.name), (close) => [
      h("p", {}, h("span", { class: `badge ${row.health}` }, printable(row.state))),
      row.problem && h("p", { class: `problem ${row.severity}` }, printable(row.problem)),
      row.users && this.asOf === null && h("p", { class: "dim" }, printable(row.users)),
      h("div", { class: "choices" }, fault && h("a", { href: fault, onclick: () => close(null) }, "Show the fault in the log"), this.#actions(row, () => close(null)), button("Cancel", () => close(null))),
    ]);
  }

  /** A console needs other rights than the list. */
  #opener(namespace) {
    const input = h("input", { type: "text", spellcheck: "false", autocomplete: "off", required: true, placeholder: "vm-1" });
    const open = (event) => {
      event.preventDefault();
      this.context.navigate(this.context.link(namespace || this.home, input.value.trim()));
    };
    return h("form", { class: "toolbar", onsubmit: open }, field(`Open a machine by name, in ${printable(namespace || this.home)}`, input), button("Open", null, { type: "submit", class: "primary" }));
  }

  /** Let a machine run, or stop it after a question. */
  async #switch(row) {
    const { api, machines, announce } = this.context;
    const name = printable(row.name);
    if (!row.isOff && !(await powerOffConfirmed(name, this.asOf === null ? printable(usersText(row)) : ""))) return;
    try {
      const path = machines.path(row.namespace, machines.routeName(row.kind, row.name));
      const power = row.isOff ? "On" : "Off";
      await this.acknowledged(`Power ${power.toLowerCase()} of ${name}`, api.patch(path, { spec: { power } }));
      announce(`${name} is being powered ${row.isOff ? "on" : "off"}.`);
    } catch (error) {
      this.say("error", `The power of ${name} was not changed: ${printable(error.message)}`);
    }
  }

  #filterKeyPressed(event) {
    /** @type {HTMLElement[]} */
    const links = [...this.#body.element.querySelectorAll("a")].filter((each) => each.matches(".name a"));
    if (event.key === "Enter" && links.length === 1) {
      this.keepAddress(); // for the way back
      links[0].click();
    } else if (event.key === "ArrowDown") this.#body.focus(0);
    else return;
    event.preventDefault();
  }

  #tableKeyPressed(event) {
    if (event.key !== "ArrowUp" || !this.#body.element.contains(event.target)) return;
    event.preventDefault();
    this.filter.focus();
  }

  #drawStatus(count) {
    const total = this.#rows.size;
    const isUnknown = this.isLoading && !total;
    let empty = null;
    if (total ? !count : !this.isLoading && !this.hasProblem) empty = this.#noMachines(total);
    // A screen reader would read the same notice again.
    if (this.#empty.textContent !== (empty?.textContent ?? "")) fill(this.#empty, empty);
    this.#skeleton.hidden = !isUnknown;
    const status = isUnknown || (!total && this.hasProblem) ? "" : countOf(count, total, "machine");
    if (this.#status.textContent === status) return;
    const noun = status.lastIndexOf(" "); // which a phone has no room for beside the number of all
    fill(this.#status, status.slice(0, noun), h("span", { class: "noun" }, status.slice(noun)));
    this.#status.classList.toggle("some", count !== total);
  }

  /** Show how many machines that the filter finds are in each state, which a click adds to it or takes from it. */
  #drawStates() {
    const chosen = this.#rows.states(this.filter.value);
    const known = /** @type {HTMLElement[]} */ ([...this.#states.children]);
    const buttons = chosen.counts.slice(0, MOST_STATES).map(([state, count]) => {
      const toggle = () => {
        const { states, rest } = this.#rows.states(this.filter.value);
        const others = states.filter((each) => each !== state);
        this.#setFilter([rest, ...(others.length < states.length ? others : [...states, state])].join(" ").trim());
      };
      const shown = known.find((each) => each.dataset.state === state) ?? button("", toggle, { "data-state": state });
      shown.textContent = `${count} ${printable(state)}`;
      shown.setAttribute("aria-pressed", String(chosen.states.includes(state)));
      return shown;
    });
    // Those that stay keep the focus.
    if (buttons.length !== known.length || buttons.some((each) => !known.includes(each))) fill(this.#states, buttons);
  }

  #setFilter(text) {
    this.filter.value = text;
    this.filtered();
  }

  /** @param {number} hidden by the filter. */
  #noMachines(hidden) {
    if (!hidden && this.#selector.value.trim()) return emptyState("No machine has these labels; others are not shown.", "Clear the labels", () => this.clear(this.#selector));
    return this.noRows("machine", hidden, emptyState("There are no machines yet: they appear here as soon as they are created."));
  }
}
