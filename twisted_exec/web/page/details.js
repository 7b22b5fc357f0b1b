/** Details of a refusal: the part of a Status that programs read (docs/reference/answers.rst). */

/** The session needs another reason than it has. */
export const REASON_REQUIRED = "ReasonRequired";
/** The session needs an approved ConsoleRequest. */
export const APPROVAL_REQUIRED = "ApprovalRequired";
/** The refusal has no other cause. */
export const DECIDED = "Decided";
/** Nothing was wrong but that the request asked for no upgrade. */
export const UPGRADE_REQUIRED = "UpgradeRequired";

const text = (value) => (typeof value === "string" ? value : "");

/**
 * Return the causes in a Status; none of a server of another project.
 *
 * @returns {{reason: string, message: string, request: string}[]} `request`: the name of a ConsoleRequest, or empty
 */
export function causesOf(status) {
  const causes = status?.details?.causes;
  if (!Array.isArray(causes)) return [];
  return causes
    .filter((cause) => typeof cause?.reason === "string")
    .map(({ reason, message, request }) => ({ reason, message: text(message), request: text(request) }));
}

/** The kind of the objects that are missing, if a server cannot resume a session: it is no longer kept. */
export const KEPT_SESSION = "exec";

/** Return the kind of the object that a Status is about, such as `machines`; empty if it does not say. */
export function kindOf(status) {
  return text(status?.details?.kind);
}

const ROLE_TO_READ = /: ask an administrator for the role [^:;]*$/;

/** Return the message of a refusal without the server's own remedy, which is a role to ask for: a view says that itself. */
export function withoutRemedy(message) {
  return message.replace(ROLE_TO_READ, "");
}

/** Whether one of the causes has a reason. */
export function has(causes, reason) {
  return causes.some((cause) => cause.reason === reason);
}
