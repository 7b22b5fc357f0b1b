/** Ask another user for the approval that a ConsolePolicy demands, and wait for it. */

import { APPROVAL_REQUIRED, UPGRADE_REQUIRED, causesOf, has } from "../details.js";
import { confirmed } from "../dialogs.js";
import { printable } from "../dom.js";
import { qualifiedName } from "../machines.js";
import { itemPath, listPath } from "../objects.js";
import { minute } from "../times.js";
import { stateOf, TAKE_BACK, WAITING } from "../views/request_model.js";
import { sleep } from "../watch.js";

const LOOK_SECONDS = 2;
const LOOKS_PER_QUESTION = 5; // whether an approval is needed: the server decides that anew, and records refusals
/** What the user reads when the console opens without an approval. */
export const NOT_NEEDED = "no approval is needed any more";
const RIGHTS = { observe: "observe", takeover: "takeover" };
const ACTS = { observe: "observe", drive: "type", takeover: "take over" }; // by right, the lowest first

/** The right that a place asks for. */
export const rightOf = ({ mode }) => RIGHTS[mode] ?? "drive";

/** What its user wants to do: observe, type or take over. */
export const actOf = (place) => ACTS[rightOf(place)];

/** A request for which no approval can follow any more. */
export class EndedRequest extends Error {}

/** Another user has denied a request, or withdrawn its approval. */
export class Denied extends EndedRequest {
  constructor(user, message, isWithdrawn = false) {
    super(message);
    this.user = user;
    this.isWithdrawn = isWithdrawn;
  }
}

/**
 * Create a ConsoleRequest; return it.
 *
 * @param {object} context of the page
 * @param {object} place `{namespace, name, mode, reason}`
 */
export async function createRequest({ api, machines }, place, signal) {
  const { kind, name: machine } = machines.parse(place.name);
  const spec = {
    machine,
    machineResource: qualifiedName(kind),
    right: rightOf(place),
    ...(place.reason && { reason: place.reason }),
  };
  const body = {
    apiVersion: "console.twisted-exec.dev/v1alpha1",
    kind: "ConsoleRequest",
    metadata: { generateName: `${machine.slice(0, 200)}-` },
    spec,
  };
  return api.request(listPath("consolerequests", place.namespace), { method: "POST", body, signal });
}

/** Ask whether a request of the user shall be taken back. */
export function takingBackConfirmed(machine) {
  return confirmed(`Take back your request for ${printable(machine)}?`, "Nobody can approve it then.", TAKE_BACK);
}

/** Delete a ConsoleRequest of the user; the UID keeps another one of the same name. */
export function takeBack({ api }, { namespace, name, uid }) {
  const body = { apiVersion: "v1", kind: "DeleteOptions", preconditions: { uid } };
  return api.request(itemPath("consolerequests", namespace, name), { method: "DELETE", body });
}

/** Read the user's last ConsoleRequest, for a place that was refused; throw why there is nothing to wait for. */
export async function waitingRequest({ api }, place, name, signal) {
  const request = await api.request(itemPath("consolerequests", place.namespace, name), { signal });
  const rights = Object.keys(ACTS);
  // Its approval would not be for what the user wants now.
  if (rights.indexOf(rightOf({ mode: request.spec.right })) < rights.indexOf(rightOf(place))) throw new EndedRequest("");
  // The console would be refused again at once, as by a server whose clock is ahead.
  if (approvalOf(request)) throw new Error(`request "${name}" is approved: try again`);
  return request;
}

/** Resolve when the server answers again. */
export async function answered({ api }, signal, pause = sleep) {
  for (;;) {
    await pause(LOOK_SECONDS, signal);
    signal.throwIfAborted();
    try {
      await api.request(api.small, { signal });
      return;
    } catch (error) {
      signal.throwIfAborted();
      if (error.code) return; // a refusal is an answer, too
    }
  }
}

/**
 * Whether the server refuses a console for want of an approval; true if it does not say.
 *
 * @param {object} context of the page
 * @param {{path: string, query: object}} opening the request that opens the console
 */
export async function isNeeded({ api }, { path, query }, signal) {
  try {
    await api.request(path, { query, signal });
  } catch (problem) {
    const causes = causesOf(problem.status);
    const isOpen = has(causes, UPGRADE_REQUIRED); // nothing else is wrong with it
    return !isOpen && (problem.code !== 403 || has(causes, APPROVAL_REQUIRED));
  }
  return true;
}

/** Return the message of an approval; empty while the request waits. Throw why it does not count. */
function approvalOf(request) {
  const { name } = request.metadata;
  const { decidedBy = "another user", message } = request.status ?? {};
  const decided = Date.parse(request.status?.decisionTime);
  const because = `${decided ? ` at ${minute(decided, Date.now())}` : ""}${message ? `: ${message}` : ""}`;
  const state = stateOf(request, Date.now());
  if (state === "Denied") throw new Denied(decidedBy, `${decidedBy} denied request "${name}"${because}`);
  if (state === "Withdrawn") throw new Denied(decidedBy, `${decidedBy} withdrew the approval of request "${name}"${because}`, true);
  if (state === "Approved") return `${decidedBy} approved${message ? `: ${message}` : " your request"}`;
  if (state === "Used") throw new EndedRequest(`the approval of request "${name}" was for one session, which has begun: ask again`);
  if (state !== WAITING) throw new EndedRequest(`request "${name}" counts no longer (${state}): ask again`);
  return "";
}

/**
 * Resolve with a message when a ConsoleRequest is approved, or no approval is needed any more.
 *
 * The request stays when the user stops waiting: after its approval the console opens without another one.
 *
 * @param {object} context of the page
 * @param {{namespace: string, name: string}} metadata of the request
 * @param {(request: any, approval: string, isOurs: boolean) => void} seen called with the request, as it is read, its
 *     approval, and whether this window is the one that opens the console
 * @param {() => Promise<boolean>} claim makes this window the one, unless another one is
 * @param {() => Promise<boolean>} needed whether the console needs an approval
 * @throws {Error} it was denied or deleted, is used or has expired, or may not be read
 */
export async function approved({ api }, { namespace, name }, signal, seen, claim, needed, pause = sleep) {
  const path = itemPath("consolerequests", namespace, name);
  let isOurs = await claim();
  let isStillNeeded = true;
  for (let looks = 1; ; looks++, await pause(LOOK_SECONDS, signal)) {
    signal?.throwIfAborted();
    let request;
    try {
      request = await api.request(path, { signal });
    } catch (error) {
      if (error.code === 404 && !(await needed())) return NOT_NEEDED; // another window has seen it first
      if (error.code === 404) throw new EndedRequest(`request "${name}" was deleted`);
      if ([401, 403].includes(error.code)) throw error;
      continue; // the server is back soon
    }
    signal?.throwIfAborted();
    const message = approvalOf(request);
    if (message && isOurs) return message;
    seen(request, message, isOurs);
    // The other window may be gone, or have its session, which may be all that the approval is for: look again.
    if (!isOurs) isOurs = await claim();
    else if (!isStillNeeded) return NOT_NEEDED; // nor was it approved a moment before the question
    else if (looks % LOOKS_PER_QUESTION === 0) isStillNeeded = await needed();
  }
}
