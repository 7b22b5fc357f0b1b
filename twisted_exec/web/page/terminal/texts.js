/** Texts of a console's status, without a DOM. */

import { NO_ANSWER, startCommand } from "../api.js";
import { APPROVAL_REQUIRED, CANNOT_START, DECIDED, KEPT_SESSION, MISSING_RIGHT, NOT_RECORDED, REASON_REQUIRED, causesOf, has, kindOf, withoutRemedy } from "../details.js";
import { printable } from "../dom.js";
import { STOPPED } from "../session/session.js";
import { duration, minute, size } from "../times.js";
import { counted } from "../views/session_model.js";

export { size as amount };

const RESUMED_MILLISECONDS = 10_000;
const OPENING_MILLISECONDS = 2000; // until a new session counts as delayed
/** Reasons of a Status. */
export const MACHINE_DELETED = "MachineDeleted";
export const POWERED_OFF = "PoweredOff";
const SESSION_DELETED = "SessionDeleted";
const POOL_DELETED = "PoolDeleted";
export const REVOKED = "AuthorizationWithdrawn"; // a token or a permission has ended
const LOGIN_EXPIRED = "the certificate or token of this session expired"; // its message begins so: wire/endings.py
export const SHUTDOWN = "Shutdown"; // state of a machine that is off
export const NOT_STARTED = "NotStarted"; // of the page alone
/** Title of a console whose machine does not run. */
export const NOT_RUNNING = "The machine is not running";
/** What follows behind that title, unless only its user can start the machine. */
export const OPENS = "This console opens as soon as the machine runs.";
const DELETED = "The machine is deleted";
const NO_MACHINE = "There is no such machine"; // behind its name
/** Why there can be no session with a machine that is known to be off. */
export const MACHINE_IS_OFF = { reason: POWERED_OFF, message: "This machine is off.", isSeen: true };
const POOLS = ["machinepools", "fleets"]; // kinds, by dialect

const BANNER = { lines: 4, columns: 80 };
const CONTROLS = /[\u0000-\u001f\u007f-\u009f]/g;
const INNER = /poollet|websocket/i; // parts of the service that its users need not know
const HOST_AWAY = "host of the machine cannot be reached now";
const DEMAND = /^(ConsolePolicy "[^"]+" requires )(.+)$/s;
const LACKS_RIGHT = /is forbidden: User "[^"]*" cannot /; // the words of RBAC
const MACHINE = /^\w+ "[^"]+"/; // of this console
const OPEN_AGAIN = /; open the console .*$/; // with other credentials, which the login asks for
const TIMES = /\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g;
const PLAIN_DEMAND = /(?<=^ConsolePolicy "[^"]+" requires )(a reason|the approval of another user)(?=\.$)/;
const FIRST_WORD = /^(a|an|another|cannot|from|machine|message|no|nobody|nothing|request|somebody|the|there|this|what|you|your)\b/; // others may be names

/**
 * Return `{kind, text}` of a state of a session; kind: good, waiting, bad or off.
 *
 * @param {string} name
 * @param {any} detail as ConsoleSession says; `since` of the state connecting: the terminal has been used before; its `reason`:
 *     STOPPED, if the web console on this computer was stopped then; `asked` of the state ended: the user has asked for an
 *     approval then
 * @param {number} now milliseconds
 */
export function stateText(name, detail, now) {
  if (detail.since !== undefined) {
    const isAgain = isOpeningAgain({ name, detail });
    const isBack = waitsForLogin(detail);
    const lost = detail.restarts ? `${printable(detail.restarts)}; reconnecting` : "Connection lost";
    const brief = detail.reason === STOPPED ? "Web console on this computer stopped" : isAgain ? "Connecting" : lost;
    const what = detail.reason === STOPPED && isBack ? "Web console on this computer started again" : `${brief} for ${duration(now - detail.since)}`;
    return { kind: isAgain ? "waiting" : "bad", text: `${what}${isBack ? "; waiting for your login" : ""}` };
  }
  if (name === "connecting") return { kind: "waiting", text: "Connecting" };
  if (name === "resumed") {
    const what = detail.anew ? "New session" : "Reconnected";
    return { kind: "good", text: detail.seconds < 1 ? what : `${what} after ${duration(detail.seconds * 1000)}` };
  }
  if (name === "open") {
    return { kind: "good", text: detail.resumable === false ? "Connected (cannot be resumed)" : "Connected" };
  }
  if (detail.asked !== undefined) return { kind: "waiting", text: `Waiting for approval, ${duration(Math.max(0, now - detail.asked))}` };
  return { kind: "off", text: "No session" }; // the panel says why
}

/** Whether the server answers, but not to this user: it wants another token. */
function waitsForLogin({ unauthorized, code }) {
  return Boolean(unauthorized) || code === 401;
}

/**
 * Return `{kind, text}` of a state that began at `at`: a connection that came back is soon an ordinary one, and one
 * whose server is silent may be none.
 *
 * @param {{name: string, detail: object, at: number, silentSince: number | null}} state
 * @param {number} now milliseconds
 */
export function presentText(state, now) {
  const { name, detail, silentSince } = state;
  if (silentSince !== null) return { kind: "waiting", text: `No answer for ${duration(now - silentSince)}` };
  return name === "resumed" && !isBackNow(state, now) ? stateText("open", {}, now) : stateText(name, detail, now);
}

/** Whether it is news that a connection has come back. */
export function isBackNow({ name, at }, now) {
  return name === "resumed" && now - at <= RESUMED_MILLISECONDS;
}

/** Whether a new session connects in a terminal that has been used, and the web console on this computer was not stopped. */
export function isOpeningAgain({ name, detail }) {
  return name === "connecting" && detail.since !== undefined && detail.reason !== STOPPED;
}

/**
 * Whether the output that is in sight is old: the connection of a session is lost, its server is silent, or something is
 * in the way of a new session.
 */
export function isAway(state, now) {
  const { detail, silentSince } = state;
  const isAtOnce = isOpeningAgain(state) && !detail.message && now - detail.since < OPENING_MILLISECONDS;
  return silentSince !== null || (detail.since !== undefined && !isAtOnce);
}

/** Return what the user reads of input that was dropped after a loss; `unsent` pieces are behind those that were sent. */
export function droppedKeys({ sent, unsent }) {
  if (!sent) return unsent ? `${keys(unsent)} typed meanwhile ${unsent === 1 ? "was" : "were"} discarded.` : "";
  const text = `${keys(sent)} may not have reached the machine`;
  return unsent ? `${text}; ${keys(unsent)} typed after that ${unsent === 1 ? "was" : "were"} discarded.` : `${text}.`;
}

/**
 * Keys that were lost at one time, for one cause.
 *
 * @typedef {object} Loss
 * @property {number} at milliseconds since 1970
 * @property {number} sent those that may not have reached the machine
 * @property {number} unsent those behind them, which have not
 * @property {string} [cause] a sentence before the count
 * @property {string} [text] what the server says of them, instead of the count
 */

/** Return what the user reads of a loss: `{at, text}`. */
export function lossLine({ at, sent, unsent, cause = "", text = droppedKeys({ sent, unsent }) }) {
  return { at, text: `${cause} ${text}`.trim() };
}

/** What the user reads, with the keys that were dropped, of a session whose server had lost it. */
export const SESSION_IS_NEW = "The server of this console was started again. This is a new session.";

function keys(count) {
  return `${count} ${count === 1 ? "key" : "keys"}`;
}

/**
 * Return what becomes of keys while there is no session, or the server does not answer; empty if nothing is special.
 *
 * @param {{name: string, detail: any, silentSince: number | null}} state of its detail, beside what ConsoleSession says, `drops`:
 *     the next session gets none of them; `saved`: the session of the page before a reload, with which this page is to go on
 * @param {number} waiting keys that the server has not confirmed
 * @param {number} now milliseconds
 */
export function waitingText({ name, detail, silentSince }, waiting, now) {
  const typed = waiting ? keys(waiting) : "What you type";
  const unlessArrived = waiting === 1 ? ", unless it has arrived," : ", unless they have arrived,";
  if (name === "connecting" && detail.drops) return `${typed} will not be sent`;
  const wait = `${keys(waiting)} ${waiting === 1 ? "waits" : "wait"}`;
  const lost = name === "reconnecting" ? { lostAt: detail.since, seconds: detail.keptSeconds, sent: detail.sent } : name === "connecting" && detail.saved;
  // The server confirms keys up to a second after the machine has got them.
  if (lost) return keptText(lost.sent && waiting ? typed + unlessArrived : typed, lost, detail, now);
  if (name === "connecting") return waiting ? `${wait} for the connection` : "";
  if (silentSince === null || name === "ended") return "";
  return waiting ? `${wait} for the answer` : "What you type waits for the answer";
}

/** The server may have noticed the loss later than the page and still have the session: it gets none of the keys after that time. */
function keptText(typed, { lostAt, seconds }, detail, now) {
  if (seconds && lostAt && now - lostAt > seconds * 1000) return `${typed} will not be sent: the server keeps a session for ${duration(seconds * 1000)}`;
  const within = seconds ? ` within ${duration(seconds * 1000)}` : "";
  return `${typed} will be sent${waitsForLogin(detail) ? " after your login" : ""} if this session goes on${within}`;
}

/** Return who types, and for how long by now; `viewers` are those of the moment `at`. */
export function writerText(viewers, now, { isObserver, isOwn }) {
  if (!viewers) return "Unknown";
  const withheld = viewers.withheld ? `; nothing is sent: ${viewers.withheld}` : "";
  const since = `for ${duration((viewers.seconds ?? 0) * 1000 + now - viewers.at)}${withheld}`;
  if (!isObserver) return `You, ${since}`;
  if (isOwn) return `You, in another session, ${since}`;
  return viewers.writer ? `${viewers.writer}, ${since}` : "Nobody";
}

/**
 * Return the role of each session at a console. The server writes it into its objects a moment later than it tells the
 * session, whose role is certain. Only one user types, but in as many sessions as the user has.
 *
 * @param {{user: string, isOwn: boolean, role: string}[]} people
 * @param {boolean} isObserver whether this session is one
 */
export function withRoles(people, isObserver) {
  const own = people.find(({ isOwn }) => isOwn);
  if (!own) return people;
  return people.map((each) => {
    if (each === own) return { ...each, role: isObserver ? "Observer" : "Writer" };
    return isObserver || each.user === own.user ? each : { ...each, role: "Observer" };
  });
}

/**
 * Return whether the user types at a console, and if not, why; empty while that is unknown.
 *
 * @param {import("./roles.js").Roles} roles
 * @param {{mayType: boolean, isReadOnly: boolean}} session `mayType`: the user has the right; `isReadOnly`: it can never
 *     write
 */
export function roleText({ isUnknown, isObserver, isDenied, writer, isOwn, withheld }, { mayType, isReadOnly }) {
  if (isUnknown) return "";
  if (!isObserver) return withheld ? "Keys are not sent: more people are needed" : "You can type";
  const types = writer && !isOwn ? `; ${writer} types` : "";
  if (isDenied || !mayType) return `Observing (no right to type)${types}`;
  if (isReadOnly) return `Observing (opened to observe only)${types}`;
  if (isOwn) return "Observing; you type in another session";
  if (writer) return `Observing; ${writer} types`;
  return writer === null ? "Observing; nobody types" : "Observing";
}

/**
 * Return the number of sessions at a console, without those whose connections are lost, and of these: `2 viewers, 1 lost`.
 *
 * @param {{count: number, lost?: number}} viewers
 */
export function viewerCount({ count, lost = 0 }) {
  const present = Math.max(0, count - lost);
  return `${present} ${present === 1 ? "viewer" : "viewers"}${lost ? `, ${lost} lost` : ""}`;
}

/**
 * Return the name of each user at a console once, with the number of sessions: `ada (you, 2)`, which is first, `bob (2)`,
 * and last those whose connections are lost, `eve (lost)`.
 */
export function viewerNames(people) {
  const you = people.find(({ isOwn }) => isOwn)?.user;
  const here = people.filter(({ away }) => !away);
  const others = here.filter(({ user }) => user !== you).map(({ user }) => user);
  const count = here.length - others.length;
  const own = count ? [`${you} (you${count > 1 ? `, ${count}` : ""})`] : [];
  const lost = people.filter(({ away }) => away).map(({ user }) => user);
  return [...own, ...counted(others), ...counted(lost, "lost")];
}

/**
 * Return which other users are at a console, as a sentence: `ada is at this console.`; empty if nobody is.
 *
 * @param {{count: number, lost?: number}} viewers
 * @param {any[] | null} people the users of all sessions; null if unknown: then each other session counts
 */
export function othersText({ count, lost = 0 }, people) {
  const own = people?.find(({ isOwn }) => isOwn);
  const others = own && people ? [...new Set(people.filter(({ user, away }) => user !== own.user && !away).map(({ user }) => user))] : null;
  const number = others ? others.length : count - lost - 1;
  if (number < 1) return "";
  return number > 1 ? `${number} others are at this console.` : `${others?.[0] ?? "1 other"} is at this console.`;
}

function demandedBy({ user, policies = [] }) {
  if (!policies.length) return user || "somebody";
  return `${policies.length === 1 ? "ConsolePolicy" : "ConsolePolicies"} ${policies.join(", ")}`;
}

/** Return for whom a console is recorded, and which input: `ada (input: masked), bob (input: all)`. */
export function recordedFor(recordings) {
  return recordings.map((each) => `${demandedBy(each)} (input: ${each.input})`).join(", ");
}

/** Whether a policy requires a recording, which its users cannot end then. */
export function isRequired({ policies = [] }) {
  return policies.length > 0;
}

/** Return when the recordings end that policies require, as a sentence; empty if there are none. */
export function requiredText(recordings) {
  const policies = [...new Set(recordings.filter(isRequired).map(demandedBy))].join(" and ");
  return policies && `The recording for ${policies} ends after the last session; only users who may update the policy can end it earlier.`;
}

/**
 * Return a message about recordings that have begun or ended; empty if there is none.
 *
 * @param {object[]|null} before those that the user knows of; null: nothing yet
 * @param {object[]|null} now null: the server does not know
 */
export function recordingNews(before, now) {
  if (now === null) return "";
  const text = recordedFor(now);
  if (text === recordedFor(before ?? [])) return "";
  return text ? `This console is recorded for ${text}.` : "This console is not recorded any more.";
}

/**
 * Return the banner of a machine: at most four lines of 80 characters, without control characters.
 *
 * @param {unknown} text of the annotation
 */
export function bannerText(text) {
  if (typeof text !== "string") return "";
  const lines = text.trim().split("\n", BANNER.lines).map((line) => [...line.replace(CONTROLS, "")].slice(0, BANNER.columns).join(""));
  return lines.join("\n").trim();
}

/**
 * Return what a user reads who has lost the right to type.
 *
 * @param {{isDenied: boolean, writer: string | null, isOwn: boolean}} roles
 */
export function lostText({ isDenied, writer, isOwn }) {
  if (isDenied) return "You may no longer type at this console. You only observe.";
  const who = isOwn ? "Another session of yours" : (writer ?? "Nobody");
  return `${who} types here now. You only observe: what you type is not sent.`;
}

/**
 * Return what an observer reads whose window is smaller than the one that a full-screen program draws for; empty if it is not.
 * The terminal client, which cannot scroll, begins with the same words (`cli/console/session.py`).
 *
 * @param {string} writer
 * @param {number[]} drawn columns and rows
 * @param {number[]} own
 */
export function largerText(writer, drawn, own) {
  if (own.every((cells, index) => cells >= drawn[index])) return "";
  const whose = writer ? `${writer}'s` : "The writer's";
  return `${whose} window is ${drawn.join("x")} and yours ${own.join("x")}: scroll to see all of it, or choose “Smaller” in Commands.`;
}

/**
 * Return what a user reads who types into a session that was opened to observe only.
 *
 * @param {{mayTakeOver: boolean, writer: string}} console `mayTakeOver`: the user may type in another session
 */
export function readOnlyText({ mayTakeOver, writer }) {
  if (!mayTakeOver) return "What you type is not sent: you may only observe this console.";
  return `What you type is not sent: this console was opened to observe only. Choose “${writer ? "Take over" : "Type here"}” first.`;
}

/** Return a message as a sentence: with a full stop, and with a capital unless it may begin with a name. */
export function sentence(message) {
  const text = FIRST_WORD.test(message) ? message[0].toUpperCase() + message.slice(1) : message;
  return /[\w)]$/.test(text) ? `${text}.` : text;
}

/** Return what a server says as a sentence, with the user's own time. */
export function said(message) {
  return sentence(message.replace(TIMES, (time) => minute(Date.parse(time), Date.now()) || time));
}

/**
 * Return `{text, detail}` of a message of a server: what its user can understand, and its own words if that differs.
 *
 * @param {string} message
 */
export function explained(message) {
  const isInner = INNER.test(message);
  return { text: isInner ? `The ${HOST_AWAY}.` : said(message), detail: isInner ? message : "" };
}

/**
 * Return what is in the way of a session if no server has answered.
 *
 * @param {any} state its detail
 * @param {string} unreachable of a server that nothing reaches
 */
export function unansweredText({ isSilent = false }, unreachable) {
  return isSilent ? NO_ANSWER : unreachable;
}

/**
 * Return `{text, detail}` of the attempts to connect, for a panel; empty while the first one goes on, or after a success.
 *
 * @param {string} name of the state of the session
 * @param {any} state its detail
 * @param {string} unreachable of a server that nothing reaches
 */
export function attemptText(name, state, unreachable) {
  const { message = "", code = 0, unauthorized = false } = state;
  if (waitsForLogin({ unauthorized, code })) return { text: "Waiting for your login.", detail: "" };
  if (name !== "reconnecting" && !message) return { text: "", detail: "" };
  if (!code) return { text: `${sentence(unansweredText(state, unreachable))} The page tries again by itself.`, detail: message === unreachable ? "" : message };
  const { detail } = explained(message);
  const why = detail ? `the ${HOST_AWAY}` : message.replace(/\.$/, "");
  return { text: `The console cannot be opened now: ${why}. The page tries again by itself.`, detail };
}

/**
 * Return `{text, detail}` of why the server, which answers, does not carry a session on, as {@link explained} does; empty
 * if it does not answer, or waits for a login.
 *
 * @param {any} state its detail
 */
export function causeText({ since, message = "", code = 0, unauthorized = false }) {
  const isKnown = since !== undefined && code && message && !waitsForLogin({ unauthorized, code });
  return isKnown ? explained(message) : { text: "", detail: "" };
}

/** When a new session opens behind the stop of the web console on this computer. */
function opensBehindStop() {
  return `Start it again with “${startCommand()}” and log in here: a new session opens then.`;
}

/**
 * Return what a user reads, beside for how long the web console on this computer is stopped, of the new session and of keys that
 * were sent.
 *
 * @param {any} ending
 * @param {any} [detail] of the attempts to open the new session
 */
export function stopAdvice({ unconfirmed: { sent } }, detail = {}) {
  const opens = waitsForLogin(detail) ? "A new session opens after it." : opensBehindStop();
  return [opens, droppedKeys({ sent, unsent: 0 })].filter(Boolean).join(" ");
}

/**
 * Return what a user reads when a new session follows one that has ended so.
 *
 * @param {any} ending
 * @param {boolean} [isOpen] the new one
 */
export function anewText({ reason, message, code, unconfirmed: { sent }, causes = [] }, isOpen = false) {
  const isExpired = reason === REVOKED && message.startsWith(LOGIN_EXPIRED);
  const isStopped = reason === STOPPED;
  const over = isExpired ? "Your login had expired." : isLoggedOut({ reason, code }) ? "Your login had expired or was withdrawn." : has(causes, NOT_RECORDED) ? sentence(message) : "The session before is over.";
  const was = isStopped ? "The web console on this computer was stopped." : over;
  const opens = isStopped ? opensBehindStop() : "A new session opens.";
  if (isOpen) return `${was} This is a new session.`;
  // The line below the terminal counts what is not sent.
  return [was, opens, droppedKeys({ sent, unsent: 0 })].filter(Boolean).join(" ");
}

/**
 * Return the contents of messages, as a MessageBox shows them, of a new session that has taken the place of one that has ended
 * so. A warning stays, so recordings, which may change meanwhile, are a message of their own then.
 *
 * @param {any} ending
 * @param {{loss: string, recorded: string}} next the new one; `loss`: as {@link lostText} says, if its user no longer types;
 *     `recorded`: as {@link recordingNews} says
 */
export function anewMessages(ending, { loss, recorded }) {
  const { sent, unsent } = ending.unconfirmed;
  const text = sent + unsent ? "" : anewText(ending, true); // the cause of the loss says it, too
  if (!loss) return text || recorded ? [{ text, recorded }] : [];
  return [{ text, loss, kind: "warning" }, ...(recorded ? [{ recorded }] : [])];
}

/** What has happened to a session that ended so, and what its user can do about it. */
const ENDINGS = {
  [SESSION_DELETED]: { title: "A user has ended this session", advice: "You may open a new one." },
  Idle: { title: "The session has ended, because it was idle", advice: "The machine goes on; a new session shows its output." },
  TimeOver: { title: "The time for this session is over", advice: "A new one may need a reason or an approval again." },
  [REVOKED]: { title: "Your right to this session has ended", advice: "If a new one is refused, too, ask your administrator." },
  [POWERED_OFF]: { title: NOT_RUNNING, advice: "" },
  [POOL_DELETED]: { title: "The machine has lost its pool", advice: "The console can be opened again when the machine has another pool." },
  LineLost: { title: "The console of the machine is lost", advice: "Open the console again when the machine is back." },
  ShuttingDown: { title: "The server of this console has stopped", advice: "Open the console again when the server is back." },
  TooManyViewers: { title: "There are too many sessions at this console", advice: "Try again when another one has ended." },
  Resumed: { title: "The session goes on in another window", advice: "A session that you open here is another one." },
  ConnectionLost: { title: "The connection is lost", advice: "This server cannot resume sessions. A new one shows the output from then on." },
  InternalError: { title: "The session has ended by a fault of the server", advice: "If this happens again, tell your administrator: the log of the server has the details." },
  ProtocolError: { title: "The session has ended by a fault of the server", advice: "If this happens again, tell your administrator." },
};

/**
 * Return `{title, advice}` of a session that has ended, or was refused: what has happened, and what to do; empty where the
 * message says it.
 *
 * @param {any} ending
 * @param {string} [ownName] of the user
 * @param {boolean} [isLocal] the page is that of the local command, which has the user's credentials
 */
export function endingOf({ reason, exitCode, code, kind, hadSession = !code, causes = [] }, ownName = "", isLocal = false) {
  const user = deletedBy({ reason, causes });
  if (user) return { ...ENDINGS[SESSION_DELETED], title: `${user === ownName ? `You (${user}) have` : `${user} has`} ended this session` };
  if (exitCode !== null && exitCode !== undefined) return { title: "The program at the console has ended", advice: "" };
  if (isMachineStopped({ reason, code, kind, causes })) return { title: NOT_RUNNING, advice: "" };
  if (isMachineMissing({ reason, code, kind })) return { title: reason === MACHINE_DELETED || hadSession ? DELETED : NO_MACHINE, advice: "" };
  if (reason === REVOKED && has(causes, NOT_RECORDED)) return { ...ENDINGS[REVOKED], advice: "" }; // the message says what it takes
  if (isLoggedOut({ reason, code })) return { title: "Your login has expired or was withdrawn", advice: `${isLocal ? "Renew your credentials" : "Log in"}: a new session opens then.` };
  return ENDINGS[reason] ?? { title: !hadSession ? "The console was not opened" : "The session has ended", advice: "" };
}

/** Whether a session has ended because of its token, and the user has no other one yet. */
function isLoggedOut({ reason, code }) {
  return reason === REVOKED && code === 401;
}

/** Return the user who has ended a session; empty if no user has, or if only the message says who: a server of release 0.2.0. */
function deletedBy({ reason, causes }) {
  return (reason === SESSION_DELETED && causes.find((cause) => cause.reason === reason)?.user) || "";
}

/**
 * Return why a session has ended, as a sentence.
 *
 * @param {any} ending
 */
export function endText({ reason, message, exitCode, code, kind, name, causes = [] }) {
  if (reason === "UserLeft") return "You have closed this session.";
  if (exitCode !== null && exitCode !== undefined && (exitCode !== 0 || !message)) {
    return `Its exit code is ${exitCode}.`;
  }
  if (!message && !reason) return "";
  if (deletedBy({ reason, causes })) return ""; // the title says it
  if (reason === POWERED_OFF) return message.replace(MACHINE, "It");
  if (isLoggedOut({ reason, code })) return message === "Unauthorized" ? "" : message.replace(OPEN_AGAIN, "");
  if (reason === REVOKED && LACKS_RIGHT.test(message)) return ""; // the title says it
  if (code === 404 && POOLS.includes(kind)) return `The pool ${name ? `"${name}"` : "of this machine"} does not exist.`;
  if (kind && isMachineMissing({ reason, code, kind })) return ""; // the title says it
  if (code === 404 && kind === KEPT_SESSION) return `The session could not be kept for so long: ${message}`;
  // The message has commands, too, which the page has as buttons.
  const { reason: needsReason, approval } = demands({ causes });
  if (needsReason || approval) return `${demandsText(causes)}.`;
  return withoutRemedy(message, causes) || (reason in ENDINGS ? "" : reason);
}

/**
 * Return what policies demand, as sentences: `{reason, others}`; `reason`: what is wrong with the given one.
 *
 * @param {any[]} causes
 * @param {boolean} hasReason whether the user has given a reason
 */
export function demandTexts(causes, hasReason) {
  const isOfReason = (cause) => hasReason && cause.reason === REASON_REQUIRED;
  const text = (some) => {
    const demanded = demandsText(some);
    return demanded ? explained(`${demanded}.`).text : "";
  };
  return { reason: text(causes.filter(isOfReason)), others: text(causes.filter((each) => !isOfReason(each))) };
}

/** Return what policies demand behind the title of a form: a demand without details is not said twice. */
export function behindTitle(demand) {
  return demand.replace(PLAIN_DEMAND, "it");
}

/** Return the same of causes that name a request of the user, without what they say about it. */
export function demandAlone(causes, hasReason) {
  const cut = (message, end) => (end < 0 ? message : message.slice(0, message.lastIndexOf(": ", end)));
  const alone = ({ message, request, ...each }) => ({ ...each, message: request ? cut(message, message.indexOf(`"${request}"`)) : message });
  return demandTexts(causes.map(alone), hasReason).others;
}

/** Return what policies demand, each named once. */
function demandsText(causes) {
  /** @type {[string, string[]][]} */
  const texts = [];
  for (const { message } of causes.filter(({ reason }) => reason !== MISSING_RIGHT)) {
    const [, policy = "", demand = message] = DEMAND.exec(message) ?? [];
    const last = texts.at(-1);
    if (policy && last?.[0] === policy) last[1].push(demand);
    else texts.push([policy, [demand]]);
  }
  return texts.map(([policy, demands]) => policy + demands.join(", and ")).join("; ");
}

/**
 * Return what screen readers say of an end, which is what the panel shows of it.
 *
 * @param {any} ending
 * @param {{place: {namespace: string, name: string}, machine: any, user: string}} known `machine`: as of MachineWatch; null if unknown
 */
export function announcedEnd(ending, { place, machine, user }) {
  if (isMachineMissing(ending)) {
    const { title, text } = missingTexts(ending.reason === MACHINE_DELETED || ending.hadSession, place);
    return `${title}. ${text}`.trim();
  }
  const isStopped = isMachineStopped(ending) && machine?.runs === false;
  const text = isStopped ? `${stoppedText(machine)} ${OPENS}` : sentence(endText(ending));
  return `${endingOf(ending, user).title}. ${text}`.trim();
}

/** Whether the machine of a console does not exist. */
export function isMachineMissing({ reason, code, kind }) {
  return reason === MACHINE_DELETED || (code === 404 && kind !== KEPT_SESSION && !POOLS.includes(kind));
}

/**
 * Return `{title, text}` about a machine that does not exist; `isDeleted`: it did before.
 *
 * @param {boolean} isDeleted
 * @param {{namespace: string, name: string}} place
 */
export function missingTexts(isDeleted, { namespace, name }) {
  if (isDeleted) return { title: DELETED, text: "Its output stays in the log for some time." };
  return { title: `The namespace ${namespace} has no machine ${name}`, text: "" };
}

/** Whether a session has ended, or could not begin, because its machine does not run. */
export function isMachineStopped(ending) {
  return ending.reason === POWERED_OFF || ending.code === 409 || isNotStarted(ending);
}

/** Whether a machine has never run: no pool has it, or something is in the way of its start, such as a class that is missing. */
export function isNotStarted({ reason, code, kind, causes = [] }) {
  return reason === NOT_STARTED || (code === 404 && POOLS.includes(kind)) || has(causes, CANNOT_START);
}

/** Return why a machine does not run, as a sentence: `Pending: no such image.`; `isOwn`: the user has switched it off here. */
export function stoppedText({ state, problem, isOff, isOwn = false }) {
  if (isOff && state === SHUTDOWN) return isOwn ? "You have powered it off." : "It is powered off.";
  return `${problem ? `${state}: ${problem}` : state}.`;
}

/**
 * Return what the user of a machine that does not run can do, as a sentence; empty if only its start helps.
 *
 * @param {{state: string, isOff: boolean}} machine
 * @param {boolean} maySwitch whether the user may power it on and off
 */
export function startText({ state, isOff }, maySwitch) {
  const others = "users with the role “edit” in its namespace may";
  if (isOff) return maySwitch ? "" : `You may not power it on; ${others}.`;
  if (state !== SHUTDOWN) return "";
  const how = "A machine that has switched itself off starts when it is powered off and then on";
  return maySwitch ? `${how}, with “Power off” and “Power on” in Commands.` : `${how}; ${others} do that.`;
}

/**
 * Whether the user lacks a right: other refusals are about no kind of objects, or have other causes.
 *
 * @param {any} refusal
 */
export function isForbidden({ code, kind, causes = [] }) {
  return code === 403 && Boolean(kind) && causes.every(({ reason }) => reason === DECIDED || reason === MISSING_RIGHT);
}

/** Return why a recording was not begun: which role the user lacks, if that is it. */
export function recordingRefusal({ code, message, status }, namespace) {
  if (!isForbidden({ code, kind: kindOf(status), causes: causesOf(status) })) return `The recording was not begun: ${message}`;
  return `You may not record this console. Ask your administrator for the role “edit” in the namespace ${namespace}.`;
}

/**
 * Return why a recording has not begun, or has failed, as sentences; empty if it has begun, is to end, or nobody knows yet. The
 * runtime begins a recording of the first sort later, so its object stays.
 *
 * @param {any} recording
 */
export function notBegunText({ metadata: { name }, spec, status: { phase = "", message = "" } = {} }) {
  if (!message || spec.ended) return "";
  if (phase === "Failed") return said(`The recording ${name} has failed: ${message}`);
  return phase ? "" : `${said(`The recording ${name} has not begun: ${message}`)} It begins by itself as soon as that is possible; “Recordings” can end it.`;
}

/**
 * Return what policies demand of the user of a refused session: `{reason: boolean, approval: boolean}`.
 *
 * @param {any} ending
 */
export function demands({ causes = [] }) {
  return { reason: has(causes, REASON_REQUIRED), approval: has(causes, APPROVAL_REQUIRED) };
}

/** Return the name of the user's last request for an approval, if a refusal has it. */
export function requestOf({ causes = [] }) {
  return causes.find(({ request }) => request)?.request ?? "";
}
