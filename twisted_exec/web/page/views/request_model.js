/**
 * ConsoleRequests as the page shows them (docs/reference/console-policies.rst).
 */

import { duration, minute } from "../times.js";

export const WAITING = "Waiting";
/** What a user may do with an own request that waits. */
export const TAKE_BACK = "Take back";
export const STATE_KINDS = { [WAITING]: "waiting", Approved: "good", Denied: "bad", Withdrawn: "bad", Used: "off", Expired: "off", Deleted: "off" };

const WAITING_MILLISECONDS = 86_400_000; // twisted_exec/api/kinds/consolerequests.py: PENDING_SECONDS
const RIGHTS = { observe: "Observing", drive: "Typing", takeover: "Taking over" };

/** The state of a request, as `state_of` of the server has it, in the words of the page. */
export function stateOf(request, now) {
  const { metadata, status = {} } = request;
  if (metadata.deletionTimestamp) return "Deleted";
  if (status.denied) return status.expirationTime ? "Withdrawn" : "Denied"; // only approvals have that time
  if (status.session) return "Used";
  if (endOf(request) <= now) return "Expired";
  return status.approved ? "Approved" : WAITING;
}

/** When an approval ends, or a request that waits can no longer be approved. */
function endOf({ metadata, status }) {
  if (status?.expirationTime) return Date.parse(status.expirationTime);
  return Date.parse(metadata.creationTimestamp) + WAITING_MILLISECONDS;
}

/**
 * One request as a row.
 *
 * @param {any} request
 * @param {number} now
 * @param {string} reader name of the user of the page; empty if it is not known.
 * @param {Set<string> | null} [sessions] that are open; null if that is not known.
 */
export function rowOf(request, now, reader, sessions = null) {
  const { spec = {}, status = {}, metadata } = request;
  const state = stateOf(request, now);
  const isOwn = reader !== "" && [spec.user, spec.caller].includes(reader);
  const isWaiting = state === WAITING;
  const isInForce = ["Approved", "Used"].includes(state) && endOf(request) > now;
  const isOver = state === "Used" && sessions !== null && ![status.session, status.previousSession].some((each) => sessions.has(each));
  const isPast = status.approved && state !== "Approved"; // the state says nothing of the decision
  const decided = [isPast && "approved", isInForce && `until ${minute(endOf(request), now)}`, status.decidedBy && `by ${status.decidedBy}`];
  const decision = [decided.filter(Boolean).join(" "), status.message].filter(Boolean).join(": ");
  return {
    key: `${metadata.namespace}/${metadata.name}`,
    namespace: metadata.namespace,
    name: metadata.name,
    uid: metadata.uid,
    user: spec.user ?? "",
    caller: spec.caller && spec.caller !== spec.user ? spec.caller : "",
    machine: spec.machine ?? "",
    machineResource: spec.machineResource ?? "",
    right: RIGHTS[spec.right] ?? spec.right ?? "",
    length: spec.seconds ? duration(spec.seconds * 1000) : "",
    reason: spec.reason ?? "",
    since: metadata.creationTimestamp ?? "",
    state,
    decision: isOwn && isWaiting ? "Another user must approve it." : decision,
    actions: isOwn ? (isWaiting ? [TAKE_BACK] : []) : [isWaiting && "Approve", isWaiting && "Deny", isInForce && !isOver && "Withdraw"].filter(Boolean),
  };
}

/** Order of the table: requests that wait, then the newest. */
export function order(first, second) {
  const waits = (row) => Number(row.state === WAITING);
  return waits(second) - waits(first) || (first.since < second.since ? 1 : -1);
}

/** The texts of a row in which the filter looks. */
export function textsOf({ machine, namespace, user, caller, right, reason, state, decision }) {
  return [machine, namespace, user, caller, right, reason, state, decision];
}

/**
 * What a policy demands of the session that a request is for, for the approver.
 *
 * @param {any} policy
 * @returns {string} empty if it demands no approval.
 */
export function demandOf({ metadata, spec }) {
  if (!["Required", "Once"].includes(spec.approval)) return "";
  const facts = [
    spec.approval === "Once" ? "each approval is for one session" : "an approval is for any number of sessions until it ends",
    spec.reason === "Required" && `it needs a reason${spec.reasonPattern ? ` that matches ${spec.reasonPattern}` : ""}`,
    spec.maxSeconds && `a session lasts ${duration(spec.maxSeconds * 1000)} at most`,
    spec.approvers && `approvers: ${spec.approvers}`,
  ];
  return `ConsolePolicy ${metadata.name}: ${facts.filter(Boolean).join("; ")}.`;
}
