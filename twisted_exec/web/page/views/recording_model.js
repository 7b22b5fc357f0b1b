/**
 * Recordings as the page shows them: states, and the content of an asciicast (docs/reference/recording-format.rst).
 *
 * The page does not verify signatures: it says what the recording claims, and which command proves it.
 */

import { dateTime, shortened } from "../times.js";

/** Bytes of content that the page loads; `twisted-exec recording export` has no such limit. */
export const MOST_CONTENT_BYTES = 32 << 20;

/** The role that plays recordings, which includes the right to see them. */
export const PLAYS = "console-recording-reader";

/** Kinds of badges by state, for recordings without a problem. */
const STATE_KINDS = { Recording: "recorded", Failed: "bad", Pending: "waiting", Ending: "waiting" };

/**
 * The state of a ConsoleRecording: its phase, Pending, or Ending.
 *
 * @param {any} recording
 * @returns {string}
 */
export function stateOf(recording) {
  const phase = recording.status?.phase || "Pending";
  const isToEnd = recording.spec?.ended || recording.metadata.deletionTimestamp !== undefined;
  return isToEnd && phase !== "Closed" && phase !== "Failed" ? "Ending" : phase;
}

/**
 * Whether the server has content of a recording.
 *
 * @param {any} recording
 * @returns {boolean}
 */
export function hasContent(recording) {
  return recording.status?.firstOffset !== undefined;
}

/**
 * One recording as a row.
 *
 * @param {any} recording
 * @param {ReturnType<typeof parseCast> | null} [cast] its content, which is newer than the object while it goes on.
 */
export function rowOf(recording, cast = null) {
  const { spec = {}, status = {}, metadata } = recording;
  const state = stateOf(recording);
  const isOpen = !["Closed", "Failed", "Ending"].includes(state);
  const last = cast?.endOffset ?? status.endOffset ?? status.firstOffset;
  const bytes = status.firstOffset === undefined ? NaN : last - status.firstOffset;
  const users = [...new Set([spec.user, ...(spec.users ?? [])].filter(Boolean))];
  return {
    key: `${metadata.namespace}/${metadata.name}`,
    namespace: metadata.namespace,
    name: metadata.name,
    machine: spec.machine ?? "",
    machineResource: spec.machineResource ?? "",
    state,
    kind: isOpen && status.message ? "waiting" : (STATE_KINDS[state] ?? ""),
    message: status.message ?? "",
    severity: state === "Failed" ? "bad" : "waiting", // of the message
    until: !isOpen ? "" : spec.endsWithSessions ? "Goes on until a minute or two after the last session" : "Goes on until a user ends it",
    input: spec.input ?? "",
    users,
    policies: spec.policies ?? [],
    reason: spec.reason ?? "",
    begin: status.startTime ?? metadata.creationTimestamp,
    end: status.endTime ?? "",
    bytes: isOpen && !bytes ? NaN : bytes, // the object of an open recording says it once a minute
    first: status.firstOffset,
    last,
    isPlayable: hasContent(recording),
    isSigned: Boolean(status.head),
    isOpen,
  };
}

/** Say what of the input of a console is recorded. */
export function inputText(input) {
  return input && `${input === "none" ? "no" : input} input`;
}

/** Whether the user may end a recording: one that policies require only with the right to update these. */
export function isEndable({ isOpen, policies, mayEnd, mayUpdatePolicies }) {
  return isOpen && mayEnd === true && (policies.length === 0 || mayUpdatePolicies === true);
}

/** Whether a recording is of a machine: `{name, resource}`. */
export function isOf(recording, machine) {
  const { spec } = recording;
  return spec.machine === machine.name && (!spec.machineResource || spec.machineResource === machine.resource);
}

/**
 * The texts of a row in which the filter looks.
 *
 * @param {ReturnType<typeof rowOf>} row
 * @returns {string[]}
 */
export function textsOf(row) {
  const { namespace, name, machine, state, message, until, begin, input, users, policies, reason } = row;
  return [namespace, name, machine, state, message, until, dateTime(begin), inputText(input), ...users, ...policies, reason];
}

/**
 * Read an asciicast, as far as its lines are complete. Its last event is the time until which it was recorded.
 *
 * @param {string} text
 * @returns {{
 *   header: any, events: [number, string, string][], begin: number | null, isClosed: boolean, heads: number,
 *   signed: number | null, blocks: number, omitted: number, firstOffset: number | null, endOffset: number | null,
 *   notText: number
 * }} begin, signed: milliseconds since 1970. notText: pieces of output that are not UTF-8.
 * @throws {SyntaxError} it is not an asciicast of version 3.
 */
export function parseCast(text) {
  /** @type {any} */
  const cast = {
    header: null, events: [], begin: null, isClosed: false, heads: 0, signed: null, blocks: 0, omitted: 0,
    firstOffset: null, endOffset: null, notText: 0,
  };
  let at = 0;
  for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", at)) {
    const line = text.slice(at, end);
    at = end + 1;
    if (cast.header === null) cast.header = headerOf(line);
    else if (line.startsWith("[")) {
      const event = eventOf(line);
      if (event) cast.events.push(event);
    } else if (line.startsWith("#")) readComment(cast, line);
  }
  if (cast.header === null) throw new SyntaxError("the recording has no content yet");
  const silence = (cast.signed - cast.begin) / 1000 - cast.events.reduce((sum, [interval]) => sum + interval, 0);
  if (cast.begin !== null && silence > 0) cast.events.push([silence, "o", ""]);
  return cast;
}

function headerOf(line) {
  let header = null;
  try {
    header = JSON.parse(line);
  } catch {
    // reported below
  }
  const { cols, rows } = header?.term ?? {};
  if (header?.version !== 3 || !(cols > 0 && cols <= 1000) || !(rows > 0 && rows <= 1000)) {
    throw new SyntaxError("the content is not an asciicast of version 3");
  }
  return header;
}

function eventOf(line) {
  try {
    const [interval, code, data] = JSON.parse(line);
    if (interval >= 0 && typeof code === "string" && typeof data === "string") return [interval, code, data];
  } catch {
    // a damaged line is left out; "twisted-exec recording verify" reports it
  }
  return null;
}

function readComment(cast, line) {
  const [, word, rest] = /^# ([a-z]+) ?(.*)$/.exec(line) ?? [];
  if (word === "block") cast.blocks += 1;
  else if (word === "omitted") cast.omitted += 1;
  else if (word === "raw") cast.notText += 1;
  else if (word === "recording" || word === "head" || word === "at" || word === "end") {
    const fields = objectOf(word === "head" ? rest.slice(0, rest.lastIndexOf(" ")) : rest);
    if (word === "recording") {
      cast.begin = numberOf(fields.time);
      cast.firstOffset = numberOf(fields.first);
    } else if (word === "head") {
      cast.heads += 1;
      cast.signed = numberOf(fields.time);
      cast.isClosed = fields.closed === true;
      cast.endOffset = numberOf(fields.offset) ?? cast.endOffset;
    }
  }
}

function objectOf(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" ? value : {};
  } catch {
    return {};
  }
}

function numberOf(value) {
  return Number.isFinite(value) ? value : null;
}

/**
 * Why a player cannot show typed keys; empty if it can.
 *
 * @param {ReturnType<typeof parseCast>} cast
 * @param {string} input that the recording keeps.
 * @returns {string}
 */
export function withoutKeys({ events }, input) {
  if (events.some(([, code]) => code === "i")) return "";
  return input === "none" ? "input is not recorded" : "none are recorded";
}

/**
 * What a recording lacks at its beginning; empty if it begins with the first output of the console.
 *
 * @param {ReturnType<typeof parseCast>} cast
 * @returns {string}
 */
export function beginOf({ firstOffset }) {
  if (!firstOffset) return "";
  return "The recording begins in the middle of the output: what was on the screen before is not in it, and its first line may be incomplete.";
}

const TYPING_SECONDS = 10; // input after a longer pause gets a marker of its own

/**
 * Positions of a recording while idle time is skipped; its marks are markers, sizes, and where typing begins.
 *
 * @param {[number, string, string][]} events with the seconds since the event before.
 * @param {number} limit seconds; Infinity skips nothing.
 * @param {string} [size] COLSxROWS at the beginning; a size that does not change it gets no mark.
 */
export class Timeline {
  #real = [0];
  #played = [0];
  /** @type {{position: number, at: number, label: string, code: string}[]} */
  marks = [];

  constructor(events, limit, size = "") {
    let real = 0;
    let played = 0;
    let typed = -Infinity;
    for (const [interval, code, data] of events) {
      real += interval;
      played += Math.min(interval, limit);
      this.#real.push(real);
      this.#played.push(played);
      const isTyping = code === "i" && real - typed > TYPING_SECONDS;
      if (code === "i") typed = real;
      const isResized = code === "r" && data !== size;
      if (code === "r") size = data;
      const label = { m: data || "Marker", r: isResized && `Resized to ${data.replace("x", " × ")}`, i: isTyping && "Input" }[code];
      if (label) this.marks.push({ position: played, at: real, label, code });
    }
  }

  /** Seconds in all, with the idle time. */
  get length() {
    return this.#real[this.#real.length - 1];
  }

  /** Seconds that playing takes. */
  get playLength() {
    return this.#played[this.#played.length - 1];
  }

  /**
   * Seconds since the beginning at a position of the player.
   *
   * @param {number} position
   * @returns {number}
   */
  at(position) {
    return between(this.#played, this.#real, position);
  }

  /**
   * The position of the player at a time.
   *
   * @param {number} seconds since the beginning.
   * @returns {number}
   */
  position(seconds) {
    return Math.min(between(this.#real, this.#played, seconds), this.playLength);
  }

  /**
   * A time as text, and the position at which the bar of the player is then, if that is another one.
   *
   * @param {number} seconds since the beginning.
   * @returns {string}
   */
  text(seconds) {
    const text = `${clock(seconds)} of ${clock(this.length)}`;
    if (clock(this.playLength) === clock(this.length)) return text;
    return `${text} (in the bar, without idle time: ${clock(this.position(seconds))} of ${clock(this.playLength)})`;
  }
}

/** Return seconds as `1:30` or `1:00:30`. */
export function clock(seconds) {
  const whole = Math.floor(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  const rest = String(whole % 60).padStart(2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

/**
 * Return the seconds of a position that a user typed, such as `90`, `1:30` or `1:00:30`.
 *
 * @throws {RangeError} with a message for the user.
 */
export function positionOf(text) {
  const match = /^(?:(?:(\d{1,9}):)?(\d{1,9}):)?(\d{1,9}(?:\.\d+)?)$/.exec(text.trim());
  if (!match) throw new RangeError(`"${shortened(text.trim())}" is not a position: write 1:30, or 90 for seconds`);
  const [hours, minutes, seconds] = match.slice(1).map((each) => Number(each ?? 0));
  return hours * 3600 + minutes * 60 + seconds;
}

/** Return what corresponds to a value of one scale in another: the time of skipped pauses runs faster. */
function between(from, to, value) {
  const before = lastNotAfter(from, value);
  const [first, next] = [from[before], from[before + 1]];
  const share = Math.max(0, value - first);
  if (next === undefined) return to[before] + share;
  return to[before] + (share * (to[before + 1] - to[before])) / (next - first);
}

function lastNotAfter(numbers, value) {
  let low = 0;
  let high = numbers.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= value) low = middle;
    else high = middle;
  }
  return low;
}

/**
 * Return sentences about the proof of a recording, and the command that verifies it.
 *
 * @param {any} recording the object.
 * @param {ReturnType<typeof parseCast> | null} cast its content, as far as it was loaded.
 * @param {boolean} isWhole whether all content was loaded.
 * @returns {{state: string, sentences: string[], command: string}}
 */
export function proofOf(recording, cast, isWhole) {
  const sentences = [];
  if (cast === null || cast.heads === 0) sentences.push("The content has no signed head yet.");
  else if (!isWhole) sentences.push("Only the first part is loaded; its end is not known here.");
  else if (cast.isClosed) sentences.push("The last head says that the recording is closed.");
  else sentences.push("The recording is not closed: its end may still be missing.");
  if (cast?.omitted) sentences.push("It is an excerpt: some blocks are left out.");
  if (cast?.notText) sentences.push("Bytes that are not UTF-8 are shown as replacement characters.");
  sentences.push("This page does not verify signatures.");
  const { namespace, name } = recording.metadata;
  return {
    state: cast?.isClosed && isWhole ? "closed, not verified here" : "not verified here",
    sentences,
    command: `twisted-exec recording verify ${name} --namespace ${namespace} --ca CA.crt`,
  };
}
