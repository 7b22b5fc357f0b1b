/**
 * Times and durations as users type and read them.
 */

const UNITS = { s: 1, m: 60, h: 3600, d: 86400 };
const AGO = /^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:\s+ago)?$/;
const CLOCK = /^(\d{1,2}):(\d\d)(?::(\d\d))?$/;
const DAY = /^\d{4}-\d\d-\d\d$/;
const LOCAL = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?$/;
const ZONED = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)$/;

/** The forms that {@link parseTime} reads, for messages. */
export const TIME_FORMS = "2026-11-20 08:38, 2026-11-20, 08:38, 2026-11-20T08:38:20Z, or 1h30m for a time ago";

/**
 * Read a time that a user typed: an RFC 3339 time, a local date, whose midnight is meant, or date and time, a local clock time
 * of the last 24 hours, or a duration ago, such as 1h30m.
 *
 * @param {string} text
 * @param {number} now milliseconds since 1970.
 * @returns {string} RFC 3339 in UTC.
 * @throws {RangeError} with a message for the user.
 */
export function parseTime(text, now) {
  const typed = text.trim();
  if (ZONED.test(typed)) return checked(typed, typed.replace(" ", "T"));
  if (DAY.test(typed)) return checked(typed, `${typed}T00:00`); // a date alone would be in UTC
  if (LOCAL.test(typed)) return checked(typed, typed.replace(" ", "T"));
  const clock = CLOCK.exec(typed);
  if (clock) {
    const [hours, minutes, seconds] = clock.slice(1).map((each) => Number(each ?? 0));
    if (hours > 23 || minutes > 59 || seconds > 59) throw unknown(typed);
    const day = new Date(now);
    day.setHours(hours, minutes, seconds, 0);
    if (day.getTime() > now) day.setDate(day.getDate() - 1);
    return day.toISOString();
  }
  const ago = AGO.exec(typed);
  if (ago && typed) {
    const [days, hours, minutes, seconds] = ago.slice(1).map((each) => Number(each ?? 0));
    const length = days * UNITS.d + hours * UNITS.h + minutes * UNITS.m + seconds;
    return checked(typed, now - length * 1000);
  }
  throw unknown(typed);
}

function checked(typed, value) {
  const time = new Date(value);
  if (Number.isNaN(time.getTime())) throw unknown(typed);
  return time.toISOString();
}

function unknown(typed) {
  return new RangeError(`"${shortened(typed)}" is not a time: write ${TIME_FORMS}`);
}

/** Return what a user typed, for a message. */
export function shortened(typed) {
  return typed.length > 40 ? `${typed.slice(0, 40)}...` : typed;
}

/**
 * The local clock time of a line, with milliseconds.
 *
 * @param {string} time RFC 3339.
 * @returns {string} empty if it is not a time.
 */
export function clockTime(time) {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return "";
  const [hours, minutes, seconds] = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two);
  return `${hours}:${minutes}:${seconds}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/**
 * The local date and time, to the second.
 *
 * @param {string | number} time
 * @returns {string} empty if it is not a time.
 */
export function dateTime(time) {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return "";
  return `${day(date)} ${[date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":")}`;
}

/**
 * The local date and time with the time zone, such as `2026-11-20 08:38:20 UTC+1`.
 *
 * @param {string | number} time
 * @returns {string} empty if it is not a time.
 */
export function zonedTime(time) {
  const shown = dateTime(time);
  return shown && `${shown} ${zone(-new Date(time).getTimezoneOffset())}`;
}

/**
 * The name of a time zone, such as `UTC`, `UTC+1` or `UTC-3:30`.
 *
 * @param {number} minutes ahead of UTC.
 * @returns {string}
 */
export function zone(minutes) {
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  const offset = rest ? `${hours}:${two(rest)}` : `${hours}`;
  return minutes === 0 ? "UTC" : `UTC${minutes < 0 ? "-" : "+"}${offset}`;
}

/**
 * The local time to the minute, with the date unless it is that of `now`.
 *
 * @param {number} time
 * @param {number} now
 * @returns {string}
 */
export function minute(time, now) {
  return dateTime(time).slice(localDay(time) === localDay(now) ? 11 : 0, 16);
}

/**
 * The local date.
 *
 * @param {string | number} time
 * @returns {string} empty if it is not a time.
 */
export function localDay(time) {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? "" : day(date);
}

function day(date) {
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

function two(number) {
  return String(number).padStart(2, "0");
}

/**
 * A length of time as kubectl shows ages: at most two units.
 *
 * @param {number} milliseconds
 * @returns {string}
 */
export function duration(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 120) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return `${minutes}m${seconds % 60 ? `${seconds % 60}s` : ""}`;
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 8) return `${hours}h${minutes % 60 ? `${minutes % 60}m` : ""}`;
  if (hours < 48) return `${hours}h`;
  const days = Math.floor(hours / 24);
  return days < 8 && hours % 24 ? `${days}d${hours % 24}h` : `${days}d`;
}

/**
 * Return how long ago a time was.
 *
 * @param {string | undefined} time
 * @param {number} now
 * @returns {string} empty if there is no time.
 */
export function age(time, now) {
  const moment = time ? new Date(time).getTime() : NaN;
  return Number.isNaN(moment) ? "" : duration(now - moment);
}

/**
 * A number of bytes.
 *
 * @param {number} bytes
 * @returns {string}
 */
export function size(bytes) {
  if (!Number.isFinite(bytes)) return "";
  if (bytes < 1024) return `${bytes} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = "B";
  for (const each of units) {
    if (value < 1024) break;
    value /= 1024;
    unit = each;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}
