/** Causes of a refusal: the part of a Status that programs read (docs/reference/answers.rst). */

/** The session needs another reason than it has. */
export const REASON_REQUIRED = "ReasonRequired";
/** The session needs an approved ConsoleRequest. */
export const APPROVAL_REQUIRED = "ApprovalRequired";
/** Nothing was wrong but that the request asked for no upgrade. */
export const UPGRADE_REQUIRED = "UpgradeRequired";

/**
 * Return the causes in a Status; none of an older server.
 *
 * @returns {{reason: string, message: string}[]}
 */
export function causesOf(status) {
  const causes = status?.details?.causes;
  if (!Array.isArray(causes)) return [];
  return causes
    .filter((cause) => typeof cause?.reason === "string")
    .map(({ reason, message }) => ({ reason, message: typeof message === "string" ? message : "" }));
}

/** Whether one of the causes has a reason. */
export function has(causes, reason) {
  return causes.some((cause) => cause.reason === reason);
}
