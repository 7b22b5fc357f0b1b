/**
 * ConsoleSessions as the page shows them (docs/reference/sessions.rst).
 */

/** Marks the sessions of this page. */
export const THIS_PAGE = "this page";

const MODES = { Drive: "type", TakeOver: "take over", Watch: "observe" };

/**
 * One session as a row.
 *
 * @param {any} session
 */
export function rowOf(session) {
  const { spec = {}, status = {}, metadata } = session;
  return {
    key: `${metadata.namespace}/${metadata.name}`,
    namespace: metadata.namespace,
    name: metadata.name,
    uid: metadata.uid,
    user: spec.user ?? "",
    caller: spec.caller && spec.caller !== spec.user ? spec.caller : "",
    machine: spec.machine ?? "",
    machineResource: spec.machineResource ?? "",
    mode: MODES[spec.mode] ?? spec.mode ?? "",
    role: status.role ?? "",
    away: status.awaySince ?? "",
    isResumable: status.resumable === true,
    address: spec.address ?? "",
    agent: spec.agent ?? "",
    via: spec.via ?? "",
    replica: spec.replica ?? "",
    session: spec.session ?? "",
    toMachine: status.bytesToMachine ?? 0,
    toUser: status.bytesToUser ?? 0,
    since: metadata.creationTimestamp ?? "",
  };
}

/**
 * Order of the table: machines by name, and the newest session of each first.
 *
 * @param {ReturnType<typeof rowOf>} first
 * @param {ReturnType<typeof rowOf>} second
 * @returns {number}
 */
export function order(first, second) {
  return (
    compare(first.namespace, second.namespace) ||
    compare(first.machine, second.machine) ||
    compare(second.since, first.since) ||
    compare(first.name, second.name)
  );
}

function compare(first, second) {
  return first < second ? -1 : Number(first > second);
}

/**
 * Return each name once, with the number of its sessions if there are several: `["ada (2)", "bob"]`.
 *
 * @param {string[]} names of the users of sessions.
 * @param {string} [note] before the number, also of a single session: `["ada (lost, 2)", "bob (lost)"]`.
 * @returns {string[]}
 */
export function counted(names, note = "") {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].map(([name, count]) => {
    const more = [note, count > 1 ? String(count) : ""].filter(Boolean).join(", ");
    return more ? `${name} (${more})` : name;
  });
}

/**
 * The state of a session's connection.
 *
 * @param {ReturnType<typeof rowOf> & {awayFor?: string}} row
 * @returns {string}
 */
export function connectionOf(row) {
  const state = row.away ? ["Lost", row.awayFor, row.awayFor && "ago"].filter(Boolean).join(" ") : "Connected";
  return row.isResumable ? `${state}, can resume` : state;
}

/**
 * What follows when a session is ended, for the user who ends it.
 *
 * @param {{user: string}} row
 * @param {string} user who ends it.
 * @returns {string}
 */
export function endOf(row, user) {
  const [reader, owner] = row.user === user ? ["Its console says", "you"] : ["The user reads", "the user"];
  return `${reader} that you ended it. Other sessions continue, and ${owner} may open a new one.`;
}

/**
 * The ids of the sessions of this page, of their newest connections and those before.
 *
 * @param {{get(key: string): any}} store of the tab, where the consoles keep what a reload needs.
 * @returns {Set<string>}
 */
export function ownSessions(store) {
  const { places = [] } = store.get("consoles") ?? {};
  const kept = places.map(({ namespace, name }) => store.get(`session.${namespace}/${name}`));
  return new Set(kept.flatMap((each) => (each?.keys ?? []).map(({ session }) => session)));
}

/**
 * The texts of a row in which the filter looks.
 *
 * @param {ReturnType<typeof rowOf> & {isOwn?: boolean}} row
 * @returns {string[]}
 */
export function textsOf(row) {
  return [row.machine, row.namespace, row.user, row.caller, row.role, row.mode, connectionOf(row), row.address, row.isOwn ? THIS_PAGE : ""];
}
