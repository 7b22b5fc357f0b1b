/** Rows of the machine list, without a DOM. */

import { matches } from "./filter.js";

const READY = "Ready";
const OUTPUT = "ConsoleOutput";

/**
 * Return the row of a machine.
 *
 * @param {object} machine as the API has it
 * @param {object} kind its entry of `Machines.kinds`
 */
export function rowOf(machine, kind) {
  const { metadata = {}, spec = {}, status = {} } = machine;
  const condition = (type) => status.conditions?.find((each) => each.type === type);
  const ready = condition(READY);
  const problem = ready && ready.status !== "True" ? ready.message || ready.reason || "" : "";
  return {
    key: metadata.uid ?? `${metadata.namespace}/${metadata.name}`,
    kind,
    namespace: metadata.namespace ?? "",
    name: metadata.name ?? "",
    state: metadata.deletionTimestamp ? "Terminating" : (status.state ?? "Unknown"),
    health: healthOf(status.state, ready, metadata.deletionTimestamp),
    problem,
    pool: (spec.machinePoolRef ?? spec.fleetRef)?.name ?? "",
    line: condition(OUTPUT)?.message ?? "",
    created: metadata.creationTimestamp ?? "",
  };
}

function healthOf(state, ready, isDeleted) {
  if (isDeleted || state === "Terminating") return "off";
  if (state !== "Running") return state === "Pending" ? "waiting" : "off";
  return !ready || ready.status === "True" ? "good" : "bad";
}

/** Return the texts of a row in which the filter looks. */
export function textsOf({ namespace, name, state, pool, line, problem }) {
  return [namespace, name, state, pool, line, problem];
}

const collator = new Intl.Collator("en", { numeric: true });

/** Return a comparison by a column, then by namespace and name. */
export function order(column, isDescending) {
  const sign = isDescending ? -1 : 1;
  return (a, b) =>
    sign * collator.compare(a[column], b[column]) ||
    collator.compare(a.namespace, b.namespace) ||
    collator.compare(a.name, b.name);
}

/** The rows of several watches. */
export class Rows {
  #bySource;

  constructor() {
    this.#bySource = new Map();
  }

  /** Apply an event of the watch `source`. */
  apply(source, kind, event) {
    const rows = event.type === "RESET" ? new Map() : (this.#bySource.get(source) ?? new Map());
    const objects = event.type === "RESET" ? event.items : [event.object];
    for (const object of objects) {
      const row = rowOf(object, kind);
      if (event.type === "DELETED") rows.delete(row.key);
      else rows.set(row.key, row);
    }
    this.#bySource.set(source, rows);
  }

  get size() {
    return [...this.#bySource.values()].reduce((sum, rows) => sum + rows.size, 0);
  }

  /** Return the rows that match a filter, in order. */
  select(filter, compare) {
    const all = [...this.#bySource.values()].flatMap((rows) => [...rows.values()]);
    return all.filter((row) => matches(textsOf(row), filter)).sort(compare);
  }
}
