/** Details of a refusal: the part of a Status that programs read (docs/reference/answers.rst). */

/** The session needs another reason than it has. */
export const REASON_REQUIRED = "ReasonRequired";
/** The session needs an approved ConsoleRequest. */
export const APPROVAL_REQUIRED = "ApprovalRequired";
/** The refusal has no other cause. */
export const DECIDED = "Decided";
/** Nothing was wrong but that the request asked for no upgrade. */
export const UPGRADE_REQUIRED = "UpgradeRequired";

/** The runtime does not get the machine running, and says why. */
export const CANNOT_START = "CannotStart";
/** The session began without the recording that a policy requires by now. */
export const NOT_RECORDED = "NotRecorded";
/** The user lacks a right, which the cause names. */
export const MISSING_RIGHT = "MissingRight";

const text = (value) => (typeof value === "string" ? value : "");

/**
 * Return the causes in a Status; none of a server of another project.
 *
 * @returns {{reason: string, message: string, request: string, user: string, verb: string, remedy: string}[]} `request`: the name of a ConsoleRequest; `user`:
 *     who ended the session; `verb`: of a right that is missing; `remedy`: the end of the Status' message that a view may say itself; each may be empty
 */
export function causesOf(status) {
  const causes = status?.details?.causes;
  if (!Array.isArray(causes)) return [];
  return causes
    .filter((cause) => typeof cause?.reason === "string")
    .map(({ reason, message, request, user, verb, remedy }) => ({ reason, message: text(message), request: text(request), user: text(user), verb: text(verb), remedy: text(remedy) }));
}

/** The kind of the objects that are missing, if a server cannot resume a session: it is no longer kept. */
export const KEPT_SESSION = "exec";

/** Return the name of the object that a Status is about; empty if it does not say. */
export function nameOf(status) {
  return text(status?.details?.name);
}

/** Return the kind of the object that a Status is about, such as `machines`; empty if it does not say. */
export function kindOf(status) {
  return text(status?.details?.kind);
}

/** Return the message of a refusal without the server's own remedy, which is a role to ask for: a view says that itself. */
export function withoutRemedy(message, causes) {
  const { remedy } = causes.find((cause) => cause.remedy) ?? { remedy: "" };
  return remedy && message.endsWith(`: ${remedy}`) ? message.slice(0, -`: ${remedy}`.length) : message;
}

/** Whether one of the causes has a reason. */
export function has(causes, reason) {
  return causes.some((cause) => cause.reason === reason);
}
