/** Console alerts: unhealthy consoles, what has matched, and the alerts themselves. */

import { fill, h, notice, printable } from "../dom.js";
import { healthOf, matchOf, rowOf } from "./alert_model.js";
import { follow, listPath, servedResources } from "./objects.js";
import { badge, field, Table } from "./parts.js";
import { matches } from "./session_model.js";
import { age, dateTime } from "./times.js";

const MOST_MATCHES = 500;
const AGE_MS = 5000;
const KINDS = { Critical: "bad", Warning: "waiting", Watching: "good", Degraded: "waiting", Unsupported: "bad" };

/**
 * @param {HTMLElement} container
 * @param {any} context
 * @param {{namespace?: string, query: URLSearchParams}} parameters
 * @returns {{stop(): void}}
 */
export function show(container, context, parameters) {
  const view = new Alerts(container, context, parameters);
  return { stop: () => view.stop() };
}

class Alerts {
  #stopped = new AbortController();
  #following = new AbortController();
  #alerts = [];
  #matches = [];
  /** @type {Map<any, any[]>} unhealthy machines, by kind. */
  #unhealthy = new Map();

  constructor(container, context, parameters) {
    this.context = context;
    this.filter = h("input", { type: "search", value: parameters.query.get("filter") ?? "", oninput: () => this.#draw() });
    this.namespace = h("input", {
      type: "text", value: parameters.namespace ?? parameters.query.get("namespace") ?? "", placeholder: "all",
      onchange: () => this.#follow(), size: 14,
    });
    this.problems = { alerts: h("div"), matches: h("div"), machines: h("div") };
    this.health = new Table("Consoles that are not healthy", this.#healthColumns());
    this.matched = new Table("Matches of alerts", this.#matchColumns());
    this.alerts = new Table("Alerts", alertColumns());
    this.empty = { health: h("p", { class: "empty" }), matches: h("p", { class: "empty" }), alerts: h("p", { class: "empty" }) };
    fill(
      container,
      h("div", { class: "page-head" }, h("h2", {}, "Alerts")),
      h("div", { class: "toolbar" }, field("Filter", this.filter), field("Namespace", this.namespace)),
      h("section", {}, h("h3", {}, "Consoles that are not healthy"), this.problems.machines, this.health.element, this.empty.health),
      h("section", {}, h("h3", {}, "Matches of the last hour"), this.problems.matches, this.matched.element, this.empty.matches),
      h("section", {}, h("h3", {}, "Alerts"), this.problems.alerts, this.alerts.element, this.empty.alerts),
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
    this.isServed = !resources || resources.has("consolealerts");
    if (!this.isServed) {
      fill(this.problems.alerts, notice("warning", "This server has no alerts: it is of an older release."));
    }
    this.#follow();
  }

  #follow() {
    this.#following.abort();
    this.#following = new AbortController();
    const { api, machines } = this.context;
    const { signal } = this.#following;
    const namespace = this.namespace.value.trim();
    const list = (path, problem, onChange, select) =>
      follow(api, path, {
        signal,
        select,
        onChange: (objects) => {
          onChange(objects);
          this.#draw();
        },
        onProblem: (error) => this.#failed(problem, error),
      });
    if (this.isServed) {
      list(listPath("consolealerts", namespace), this.problems.alerts, (objects) => {
        this.#alerts = objects.map(rowOf).sort((first, second) => (first.key < second.key ? -1 : 1));
      });
      const events = namespace ? `/api/v1/namespaces/${encodeURIComponent(namespace)}/events` : "/api/v1/events";
      list(events, this.problems.matches, (objects) => {
        const found = objects.map(matchOf).sort((first, second) => (first.time < second.time ? 1 : -1));
        this.#matches = found.slice(0, MOST_MATCHES);
      }, (event) => matchOf(event) !== null);
    }
    this.#unhealthy.clear();
    for (const kind of machines.kinds) {
      list(machines.list(kind, namespace), this.problems.machines, (objects) => {
        this.#unhealthy.set(kind, objects);
      }, (machine) => healthOf(machine)?.isHealthy === false);
    }
  }

  #failed(problem, error) {
    if (error?.code === 403 && !this.namespace.value && this.context.config.namespace) {
      this.namespace.value = this.context.config.namespace;
      this.#follow();
      return;
    }
    fill(problem, error && notice("error", printable(error.message)));
  }

  #draw() {
    const now = Date.now();
    const wanted = (row) => matches(row, this.filter.value);
    const { machines, link } = this.context;
    const unhealthy = [...this.#unhealthy].flatMap(([kind, objects]) =>
      objects.map((machine) => {
        const { namespace, name } = machine.metadata;
        const health = healthOf(machine);
        return {
          key: `${kind.plural}.${kind.group}/${namespace}/${name}`, namespace, name, ...health,
          age: age(health.since, now), log: link(namespace, machines.routeName(kind, name), "logs"),
          console: link(namespace, machines.routeName(kind, name)),
        };
      }),
    );
    this.#fill(this.health, this.empty.health, unhealthy.filter(wanted), "No console is reported as unhealthy.");
    const found = this.#matches.filter(wanted).map((row) => ({ ...row, age: age(row.time, now) }));
    this.#fill(this.matched, this.empty.matches, found, "No alert has matched.");
    const alerts = this.#alerts.filter(wanted).map((row) => ({ ...row, age: age(row.last, now) }));
    this.#fill(this.alerts, this.empty.alerts, alerts, "There are no alerts; docs/howto/alerts shows how to create one.");
  }

  #fill(table, empty, rows, text) {
    table.update(rows);
    table.element.hidden = rows.length === 0;
    empty.hidden = rows.length > 0;
    empty.textContent = text;
  }

  #healthColumns() {
    return [
      { title: "Machine", cell: (row) => [h("a", { href: row.console }, printable(row.name)), " ", h("span", { class: "dim" }, printable(row.namespace))] },
      { title: "Reason", cell: (row) => badge(row.reason, "bad") },
      { title: "Since", cell: (row) => h("span", { title: dateTime(row.since) }, row.age) },
      { title: "Message", cell: (row) => row.message, class: "wide" },
      { title: "", cell: (row) => h("a", { href: row.log }, "Log") },
    ];
  }

  #matchColumns() {
    return [
      { title: "Last", cell: (row) => h("span", { title: dateTime(row.time) }, row.age) },
      { title: "Machine", cell: (row) => [printable(row.machine), " ", h("span", { class: "dim" }, printable(row.namespace))] },
      { title: "Severity", cell: (row) => badge(row.severity, KINDS[row.severity]) },
      { title: "Pattern", cell: (row) => [printable(row.pattern), " ", h("span", { class: "dim" }, `of ${printable(row.alert)}`)] },
      { title: "Line", cell: (row) => [h("code", {}, printable(row.line)), row.suppressed > 0 && h("span", { class: "dim" }, ` and ${row.suppressed} more`)], class: "wide" },
      { title: "", cell: (row) => h("a", { href: `${this.context.link(row.namespace, row.machine, "logs")}?offset=${row.offset}` }, "Show in the log") },
    ];
  }
}

function alertColumns() {
  return [
    { title: "Alert", cell: (row) => [printable(row.name), " ", h("span", { class: "dim" }, printable(row.namespace))] },
    { title: "State", cell: (row) => [badge(row.state === "None" ? "selects no machine" : row.state, KINDS[row.state]), row.messages.map((text) => h("div", { class: "dim" }, printable(text)))] },
    { title: "Machines", cell: (row) => [String(row.machines), row.selector && h("div", { class: "dim" }, printable(row.selector))] },
    { title: "Matches", cell: (row) => [String(row.matches), row.last && h("span", { class: "dim", title: dateTime(row.last) }, `, last ${row.age} ago`)] },
    {
      title: "Patterns",
      class: "wide",
      cell: (row) => [
        row.presets.length > 0 && h("div", {}, `set ${printable(row.presets.join(", "))}`),
        row.patterns.map((pattern) => h("div", {}, `${printable(pattern.name)}: `, h("code", {}, printable(pattern.text)), pattern.isRegex && h("span", { class: "dim" }, " (RE2)"))),
      ],
    },
  ];
}
