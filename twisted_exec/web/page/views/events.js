/** Events of one machine: what the API server, the scheduler and the machine's host report about it. */

import { fill, h, printable } from "../dom.js";
import { age, dateTime, zone, zonedTime } from "../times.js";
import { ListView } from "./list_view.js";
import { badge, emptyState, Table, toolbar } from "./parts.js";

const KINDS = { Warning: "bad" };

/**
 * @param {HTMLElement} container
 * @param {any} context
 * @param {{namespace: string, name: string, query: URLSearchParams}} parameters
 * @returns {{stop(): void}}
 */
export function show(container, context, parameters) {
  const view = new Events(container, context, parameters);
  view.start();
  return view;
}

class Events extends ListView {
  /** @type {ReturnType<typeof rowOf>[] | null} */
  #rows = null;

  constructor(container, context, parameters) {
    super(context, parameters, { plural: "events", group: "", role: "view" });
    this.place = parameters;
    this.machine = context.machines.parse(parameters.name).name;
    this.table = new Table("Events of this machine", columns());
    fill(container, toolbar(this.filter, []), this.problem, this.table.element);
  }

  begin() {
    this.#rows = null;
    this.list((namespace) => `/api/v1/namespaces/${encodeURIComponent(namespace)}/events`, {
      query: { fieldSelector: `involvedObject.name=${this.machine}` },
      onChange: (events) => {
        this.#rows = events && events.map(rowOf).sort(newestFirst);
      },
    });
    this.draw();
  }

  draw() {
    const all = this.#rows ?? [];
    const now = Date.now();
    const rows = this.matching(all, textsOf).map((row) => ({ ...row, age: age(row.time, now) }));
    const none = () => this.noneOf(emptyState("Nothing was reported about this machine in the last hour."), this.place, "events");
    this.table.update(rows, this.emptyOf(this.#rows, this.#rows && this.noRows("event", all.length, all.length ? "" : none())));
  }
}

function columns() {
  return [
    { title: `Last (${zone(-new Date().getTimezoneOffset())})`, class: "time", cell: (row) => h("span", { title: `${zonedTime(row.time)}, ${row.age} ago` }, dateTime(row.time), h("span", { class: "zone" }, zonedTime(row.time).slice(19))) },
    { title: "Type", cell: (row) => badge(row.type, KINDS[row.type]) },
    { title: "Reason", cell: (row) => h("span", { class: "word" }, printable(row.reason)), class: "wide" },
    { title: "Message", cell: (row) => row.message, class: "wide" },
    { title: "Times", cell: (row) => String(row.count) },
    { title: "From", cell: (row) => row.source },
  ];
}

/**
 * One event as a row.
 *
 * @param {any} event of core/v1
 */
export function rowOf({ metadata, type = "", reason = "", message = "", count, series, lastTimestamp, eventTime, source, reportingComponent }) {
  return {
    key: metadata.uid ?? metadata.name,
    type,
    reason,
    message,
    count: series?.count ?? count ?? 1,
    time: series?.lastObservedTime ?? lastTimestamp ?? eventTime ?? metadata.creationTimestamp ?? "",
    version: Number(metadata.resourceVersion ?? 0),
    source: reportingComponent || source?.component || "",
  };
}

/** Compare rows: of one second, which is all that most events say, the newest one was written last. */
export function newestFirst(one, other) {
  return Date.parse(other.time) - Date.parse(one.time) || other.version - one.version;
}

function textsOf({ type, reason, message, source }) {
  return [type, reason, message, source];
}
