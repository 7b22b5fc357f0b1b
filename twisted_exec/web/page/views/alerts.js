/** Console alerts: unhealthy consoles, the latest matches, and the alerts themselves. */

import { fill, h, nameLink, printable } from "../dom.js";
import { qualifiedName } from "../machines.js";
import { listPath } from "../objects.js";
import { age, zonedTime } from "../times.js";
import { healthOf, healthTextsOf, matchOf, matchTextsOf, rowOf, sickSince, stateText, textsOf } from "./alert_model.js";
import { ListView } from "./list_view.js";
import { badge, copyButton, countOf, listHead, Table } from "./parts.js";

const OPTIONS = { plural: "consolealerts", role: "view", missing: "This server has no alerts: it is not an exec-apiserver." };
const MOST_MATCHES = 500;
const EXAMPLE = `kubectl apply -f - <<EOF
apiVersion: console.twisted-exec.dev/v1alpha1
kind: ConsoleAlert
metadata: {name: linux}
spec: {presets: [linux]}
EOF`;
const KINDS = { Critical: "bad", Warning: "waiting", Watching: "good", Degraded: "waiting", Unsupported: "bad" };

/**
 * @param {HTMLElement} container
 * @param {any} context
 * @param {{namespace?: string, query: URLSearchParams}} parameters
 * @returns {{stop(): void}}
 */
export function show(container, context, parameters) {
  const view = new Alerts(container, context, parameters);
  view.start();
  return view;
}

class Alerts extends ListView {
  /** @type {any[] | null} */
  #alerts = null;
  /** @type {any[] | null} */
  #matches = null;
  /** @type {Map<any, any[]>} unhealthy machines, by kind. */
  #unhealthy = new Map();

  constructor(container, context, parameters) {
    super(context, parameters, OPTIONS);
    this.health = new Table("Consoles that are not healthy", this.#healthColumns());
    this.matched = new Table("Matches of alerts", this.#matchColumns());
    this.alerts = new Table("Alerts", alertColumns());
    this.none = h("div", { hidden: true });
    this.count = h("span", { class: "dim" });
    this.example = h("div", { class: "notice empty" },
      h("p", {}, "No alert looks at what machines print. This one finds kernel panics, lock-ups and failed boots of Linux:"),
      h("pre", { class: "mono scroll", tabindex: 0 }, EXAMPLE), copyButton("Copy the command", () => EXAMPLE));
    this.sections = h("div", {},
      h("section", {}, h("h2", {}, "Consoles that are not healthy"), this.health.element),
      h("section", {}, h("h2", {}, "Matches of the last hour"), this.matched.element),
      h("section", {}, h("h2", {}, "All alerts"), this.alerts.element));
    fill(container, listHead(this.toolbar, "Alerts", this.count), this.problem, this.none, this.sections);
  }

  begin() {
    this.#alerts = this.#matches = null;
    this.#unhealthy.clear();
    const { machines } = this.context;
    if (this.isServed) {
      this.list((namespace) => listPath(this.plural, namespace), {
        onChange: (objects) => {
          this.#alerts = objects && objects.map(rowOf).sort((first, second) => (first.key < second.key ? -1 : 1));
        },
      });
    }
    this.list(eventsPath, {
      plural: "events",
      select: (event) => matchOf(event) !== null,
      onChange: (objects) => {
        const found = objects?.map((each) => /** @type {any} */ (matchOf(each))).sort((first, second) => (first.time < second.time ? 1 : -1));
        this.#matches = found?.slice(0, MOST_MATCHES) ?? null;
      },
    });
    for (const kind of machines.kinds) {
      this.list((namespace) => machines.list(kind, namespace), {
        plural: kind.plural,
        select: (machine) => healthOf(machine)?.isHealthy === false,
        onChange: (objects) => (objects ? this.#unhealthy.set(kind, objects) : this.#unhealthy.delete(kind)),
      });
    }
    this.draw();
  }

  draw() {
    const now = Date.now();
    const unhealthy = [...this.#unhealthy].flatMap(([kind, objects]) => objects.map((machine) => this.#healthRow(kind, machine, now)));
    const isHealthKnown = this.#unhealthy.size === this.context.machines.kinds.length;
    this.#update(this.health, this.matching(unhealthy, healthTextsOf), this.emptyOf(isHealthKnown, this.noRows("unhealthy console", unhealthy.length, "All consoles are healthy, as far as alerts say.")));
    const found = this.matching(this.#matches ?? [], matchTextsOf).map((row) => ({ ...row, age: age(row.time, now) }));
    this.#update(this.matched, found, this.emptyOf(this.#matches, this.noRows("matched line", this.#matches?.length ?? 0, "No alert has matched in the last hour.")));
    const alerts = this.matching(this.#alerts ?? [], textsOf).map((row) => ({ ...row, age: age(row.last, now) }));
    this.#update(this.alerts, alerts, this.emptyOf(this.#alerts, this.noRows("alert", this.#alerts?.length ?? 0, "There are no alerts.")));
    this.count.textContent = this.#alerts ? countOf(alerts.length, this.#alerts.length, "alert") : "";
    this.none.hidden = !isHealthKnown || unhealthy.length + (this.#matches?.length ?? 1) + (this.#alerts?.length ?? 1) > 0;
    this.sections.hidden = !this.none.hidden;
    const none = this.noRows("alert", 0, this.example);
    if (this.none.textContent !== none.textContent) fill(this.none, none);
  }

  /** Draw a table; its section is left out where the server gives no list for it. */
  #update(table, rows, empty) {
    table.update(rows, empty);
    table.element.closest("section").hidden = !rows.length && empty === "";
  }

  #healthRow(kind, machine, now) {
    const { machines, link } = this.context;
    const { namespace, name } = machine.metadata;
    const health = /** @type {any} */ (healthOf(machine));
    const since = sickSince(health, { namespace, name, group: kind.group }, this.#matches ?? []);
    const route = machines.routeName(kind, name);
    const log = link(namespace, route, "logs");
    return {
      key: `${qualifiedName(kind)}/${namespace}/${name}`, namespace, name, ...health, since,
      age: age(since, now),
      log: health.offset === null ? log : `${log}?offset=${health.offset}`,
      console: link(namespace, route),
    };
  }

  #healthColumns() {
    return [
      { title: "Machine", cell: (row) => machineCell(row.console, row.name, row.namespace), class: "name" },
      { title: "Reason", cell: (row) => badge(row.reason, "bad") },
      { title: "For", cell: (row) => h("span", { title: zonedTime(row.since) }, row.age) },
      { title: "Message", cell: (row) => row.message, class: "wide" },
      { title: "", cell: (row) => h("a", { href: row.log }, "Show in the log") },
    ];
  }

  #matchColumns() {
    return [
      { title: "Last", cell: (row) => h("span", { title: zonedTime(row.time) }, `${row.age} ago`) },
      { title: "Machine", cell: (row) => machineCell(this.machineLink(row), row.machine, row.namespace), class: "name" },
      { title: "Severity", cell: (row) => badge(row.severity, KINDS[row.severity]) },
      { title: "Pattern", cell: (row) => [printable(row.pattern), " ", h("span", { class: "dim" }, `of ${printable(row.alert)}`)] },
      { title: "Line", cell: (row) => [h("code", {}, printable(row.line)), row.suppressed > 0 && h("span", { class: "dim" }, ` and ${row.suppressed} more`)], class: "wide" },
      { title: "", cell: (row) => h("a", { href: `${this.machineLink(row, "logs")}?offset=${row.offset}` }, "Show in the log") },
    ];
  }
}

function machineCell(href, name, namespace) {
  return [nameLink(href, name), " ", h("span", { class: "dim" }, printable(namespace))];
}

function eventsPath(namespace) {
  return namespace ? `/api/v1/namespaces/${encodeURIComponent(namespace)}/events` : "/api/v1/events";
}

function alertColumns() {
  return [
    { title: "Alert", cell: (row) => [printable(row.name), " ", h("span", { class: "dim" }, printable(row.namespace))] },
    { title: "State", cell: (row) => [badge(stateText(row), KINDS[row.state]), row.messages.map((text) => h("div", { class: "dim" }, printable(text)))] },
    { title: "Machines", cell: (row) => [String(row.machines), row.selector && h("div", { class: "dim" }, printable(row.selector))] },
    { title: "Matches", cell: (row) => [String(row.matches), row.last && h("span", { class: "dim", title: zonedTime(row.last) }, `, last ${row.age} ago`)] },
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
