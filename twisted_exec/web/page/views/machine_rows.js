/** Rows of the machine list, without a DOM. */

import { qualifiedName } from "../machines.js";
import { healthOf } from "./alert_model.js";
import { matches } from "./filter.js";
import { stateOf } from "./recording_model.js";
import { counted } from "./session_model.js";

const READY = "Ready";
const OUTPUT = "ConsoleOutput";
const IN_USE = "ConsoleInUse";
const NAMELESS = "In use"; // for users who may not list sessions
const UNHEALTHY = "Unhealthy"; // beside the machine's own state
const STATES = ["Pending", "Running", "Shutdown", "Terminated", "Terminating", UNHEALTHY]; // also while no machine is in one

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
  const isReady = !ready || ready.status === "True";
  const health = healthOf(machine);
  const isSick = health?.isHealthy === false;
  const alert = isSick ? `${health?.reason}: ${health?.message.replace("The machine printed ", "")}` : "";
  const isOff = spec.power === "Off";
  const isPoweredOff = isOff && status.state === "Shutdown"; // as its user has asked for it: no fault, and its state says it
  const unready = isReady || isPoweredOff ? "" : ready.message || ready.reason || "";
  const fault = unready || alert;
  return {
    key: metadata.uid ?? `${metadata.namespace}/${metadata.name}`,
    kind,
    place: placeOf(metadata.namespace, qualifiedName(kind), metadata.name),
    namespace: metadata.namespace ?? "",
    name: metadata.name ?? "",
    state: metadata.deletionTimestamp ? "Terminating" : (status.state ?? "Unknown"),
    health: badgeOf(status.state, isReady && !isSick, metadata.deletionTimestamp),
    isSick,
    problem: fault,
    offset: fault && fault === alert ? (health?.offset ?? null) : null, // of the line in the log that is the fault
    severity: status.state === "Pending" ? "waiting" : "bad",
    pool: (spec.machinePoolRef ?? spec.fleetRef)?.name ?? "",
    line: condition(OUTPUT)?.message ?? "",
    created: metadata.creationTimestamp ?? "",
    isOff,
    isInUse: condition(IN_USE)?.status === "True",
  };
}

/**
 * Return how a user may change the power of a machine: "On", "Off", or empty. One that has not started has nothing that ends,
 * and one that is being deleted does not start again.
 *
 * @param {{state: string, isOff: boolean}} machine
 * @returns {"On" | "Off" | ""}
 */
export function powerChange({ state, isOff }) {
  if (state === "Terminating") return "";
  if (isOff) return "On";
  return state === "Pending" ? "" : "Off";
}

/** Return who is at the console of a row's machine, as a sentence; empty if nobody is. */
export function usersText({ users }) {
  if (users === NAMELESS) return "Its console is in use.";
  return users && `At its console: ${users}.`;
}

function badgeOf(state, isWell, isDeleted) {
  if (isDeleted || state === "Terminating") return "off";
  if (state !== "Running") return state === "Pending" ? "waiting" : "off";
  return isWell ? "good" : "bad";
}

function placeOf(namespace, resource, name) {
  return `${namespace}/${resource}/${name}`;
}

/** Return the texts of a row in which the filter looks. */
export function textsOf({ namespace, name, state, pool, line, problem, users, isRecorded, isSick }) {
  return [namespace, name, state, pool, problem || line, users, isRecorded ? "recorded" : "", isSick ? UNHEALTHY : ""];
}

function statesOf({ state, isSick }) {
  return isSick ? [state, UNHEALTHY] : [state];
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

/** The rows of all kinds of machines. */
export class Rows {
  #byKind = new Map();
  #users = new Map(); // names by place: {here, lost}, of those whose connections are lost
  #recorded = new Set(); // places
  /** @type {any[]} all rows, in the order of the last comparison. */
  #sorted = [];
  #compare = null;
  #isCurrent = false;
  #resource;

  /** @param {object} kind of the machines that sessions and recordings without a resource mean. */
  constructor(kind) {
    this.#resource = qualifiedName(kind);
  }

  /** @param {any[]} rows all machines of a kind. */
  set(kind, rows) {
    this.#byKind.set(kind, rows);
    this.#complete();
  }

  /** @param {any[]} sessions all ConsoleSessions: who is at which machine. */
  setSessions(sessions) {
    this.#users = new Map();
    for (const { spec, metadata, status } of sessions) {
      const place = this.#placeOf(spec, metadata);
      if (!this.#users.has(place)) this.#users.set(place, { here: [], lost: [] });
      this.#users.get(place)[status?.awaySince ? "lost" : "here"].push(spec.user);
    }
    this.#complete();
  }

  /** @param {any[]} recordings all ConsoleRecordings: which machines are recorded. */
  setRecordings(recordings) {
    const open = recordings.filter((each) => stateOf(each) === "Recording");
    this.#recorded = new Set(open.map(({ spec, metadata }) => this.#placeOf(spec, metadata)));
    this.#complete();
  }

  get size() {
    return this.#all().length;
  }

  /**
   * Return the states that a filter names, its other words, and how many machines with these words are in each state, in
   * the order of the states' names. Those whose consoles are not healthy are a state more, the first one.
   */
  states(filter) {
    const all = this.#all();
    const known = new Set([...STATES, ...all.map((row) => row.state)]);
    const words = filter.split(/\s+/);
    const states = words.filter((word) => known.has(word));
    const rest = words.filter((word) => !known.has(word)).join(" ");
    const counts = new Map(states.map((state) => [state, 0]));
    for (const state of all.filter((row) => matches(textsOf(row), rest)).flatMap(statesOf)) counts.set(state, (counts.get(state) ?? 0) + 1);
    const isOther = (state) => Number(state !== UNHEALTHY);
    const compare = (one, other) => isOther(one) - isOther(other) || collator.compare(one, other);
    return { states, rest, counts: [...counts].sort(([one], [other]) => compare(one, other)) };
  }

  /** The length of the longest text, of all rows and not only of those that match a filter. */
  longest(textOf) {
    return this.#all().reduce((most, row) => Math.max(most, textOf(row).length), 0);
  }

  /** Return a row as it is now; undefined if it is gone. */
  get(key) {
    return this.#all().find((row) => row.key === key);
  }

  /** Whether a row, of all and not only of those that match a filter, is such a row. */
  some(isSuch) {
    return this.#all().some(isSuch);
  }

  /** Return the rows that match a filter, in order; those in one of the states that it names. */
  select(filter, compare) {
    if (!this.#isCurrent || compare !== this.#compare) {
      // Rows in the order of last time are sorted with few comparisons; those of 10 000 names take 0.1 s.
      const all = new Map(this.#all().map((row) => [row.key, row]));
      const before = this.#sorted.filter(({ key }) => all.has(key)).map(({ key }) => all.get(key));
      for (const { key } of before) all.delete(key);
      this.#sorted = [...before, ...all.values()].sort(compare);
      this.#compare = compare;
      this.#isCurrent = true;
    }
    const { states, rest } = this.states(filter);
    return this.#sorted.filter((row) => (!states.length || statesOf(row).some((state) => states.includes(state))) && matches(textsOf(row), rest));
  }

  #all() {
    return [...this.#byKind.values()].flat();
  }

  #placeOf(spec, metadata) {
    return placeOf(metadata.namespace, spec.machineResource || this.#resource, spec.machine);
  }

  #complete() {
    for (const row of this.#all()) {
      // Who may not list sessions reads in the machine that there are some.
      const { here = [], lost = [] } = this.#users.get(row.place) ?? {};
      row.users = [...counted(here.sort()), ...counted(lost.sort(), "lost")].join(", ") || (row.isInUse ? NAMELESS : "");
      row.isRecorded = this.#recorded.has(row.place);
    }
    this.#isCurrent = false;
  }
}
