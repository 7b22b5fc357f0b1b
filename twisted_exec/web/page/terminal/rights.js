/** The request that opens a console, by the rights of its user. */

import { Backoff } from "../backoff.js";
import { UPGRADE_REQUIRED, causesOf, has, kindOf, nameOf } from "../details.js";
import { rest, sleep } from "../watch.js";

const LOOK_SECONDS = { first: 2, longest: 30 }; // between questions whether the user may open a console now, as of lists

/**
 * Return what the user may do: `{drives, takesOver, opens, mayType, switches, records, endsRecordings, path, query}` of the
 * request that opens the console; and the `machine`, null if the user may not read it.  `opens`: has any right to the console;
 * `switches`: may power the machine on and off; `records` and `endsRecordings`: may begin and end recordings.
 *
 * A user without the right to type is attached as an observer. Behind a kube-apiserver, whose roles know no verbs of
 * consoles, opening needs `get` on `machines/exec`; observers use `machines/console`.
 *
 * @param {object} context of the page
 * @param {string} mode drive, observe or takeover
 * @throws {ApiError} the server does not answer, or wants another token
 */
export async function opening(context, namespace, routeName, mode) {
  const { api, machines } = context;
  const { kind, name } = machines.parse(routeName);
  const may = (verb, subresource) =>
    api.can(verb, kind.plural, subresource, namespace, name, kind.group).catch(otherwise(false));
  const path = machines.path(namespace, routeName);
  const [drives, takesOver, execs, observes, creates, switches, records, endsRecordings, machine] = await Promise.all([
    may("drive", "console"),
    may("takeover", "console"),
    may("get", "exec"),
    may("observe", "console"),
    may("create", "exec"), // includes all rights to a console, unless the verbs are strict
    may("patch", ""),
    // If the server does not say, it refuses the change itself.
    api.can("create", "consolerecordings", "", namespace).catch(otherwise(true)),
    api.can("patch", "consolerecordings", "", namespace).catch(otherwise(true)),
    api.request(path).catch(otherwise(null)),
  ]);
  const mayType = drives || execs;
  const opens = mayType || takesOver || observes || creates;
  const rights = { drives, takesOver, opens, mayType, switches, records, endsRecordings, machine };
  const streams = { stdout: "true", tty: "true" };
  if (mode === "observe" || !mayType) {
    const subresource = kind.subresources.includes("console") && !execs ? "console" : "exec";
    return { ...rights, path: `${path}/${subresource}`, query: { ...streams, readOnly: "true" } };
  }
  const force = mode === "takeover" ? { force: "true" } : {};
  return { ...rights, path: `${path}/exec`, query: { stdin: "true", ...streams, ...force } };
}

/** Return what a server answers that refuses to say more. */
function otherwise(answer) {
  return (problem) => {
    if (problem.isPassing) throw problem;
    return answer;
  };
}

/**
 * Return why the server refuses a console: an ordinary request is answered with a Status.
 *
 * A browser says nothing about a WebSocket that could not be opened.
 *
 * @returns {Promise<{code, reason, message, retryAfterSeconds, kind, name, causes}|null>} null if the server is out of reach, or if it says nothing
 *     but that the request is no WebSocket
 */
export async function explain(api, path, query) {
  try {
    await api.request(path, { query });
  } catch (error) {
    const { code, reason, message, status } = error;
    const causes = causesOf(status);
    if (code && !has(causes, UPGRADE_REQUIRED)) {
      const { retryAfterSeconds = 0 } = status.details ?? {};
      return { code, reason, message, retryAfterSeconds, kind: kindOf(status), name: nameOf(status), causes };
    }
  }
  return null;
}

/**
 * Resolve when the user may open a console that was refused, or the signal aborts. A console that opens ends the pause of the others.
 *
 * @param {import("../api.js").Api} api
 * @param {() => {path: string, query: object}} opening the request that opens it
 * @param {() => boolean} isWanted whether to ask now
 * @param {AbortSignal} signal
 */
export async function untilOpenable(api, opening, isWanted, signal, pause = sleep) {
  const pauses = new Backoff(LOOK_SECONDS.first, LOOK_SECONDS.longest);
  api.forget(); // the rights from before
  for (;;) {
    await rest(pauses.pause(), signal, api, pause);
    if (signal.aborted) return;
    if (!isWanted()) continue;
    const { path, query } = opening();
    const isOpenable = await api.request(path, { query, signal }).then(
      () => false,
      (error) => has(causesOf(error.status), UPGRADE_REQUIRED), // nothing else is wrong with it
    );
    if (isOpenable && isWanted()) break;
  }
  api.forget();
}
