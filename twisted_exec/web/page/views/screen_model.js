/**
 * A machine's screen as rows of segments (docs/reference/screens.rst, as=json).
 */

import { printable } from "../dom.js";

const MOST_COLUMNS = 400;
const MOST_ROWS = 200;
// The usual double-width ranges: CJK, Hangul, full-width forms and emoji.
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97c\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|[\u{1f300}-\u{1f64f}]|[\u{1f680}-\u{1f6ff}]|[\u{1f900}-\u{1f9ff}]|[\u{20000}-\u{3fffd}]/u;

/**
 * Split a row of a screen into segments of one style.
 *
 * The server names only the styled parts, by column. The text between is found by the width of its characters; where
 * that is mistaken, the text of the next styled part says so.
 *
 * @param {{text?: string, runs?: any[]}} line
 * @returns {{text: string, columns: number, style: any}[]}
 */
export function segmentsOf(line) {
  const characters = [...String(line.text ?? "")];
  const segments = [];
  let at = 0;
  let column = 0;
  for (const run of line.runs ?? []) {
    const begin = at;
    while (at < characters.length && column < run.column) column += width(characters[at++]);
    const parts = [...String(run.text ?? "")];
    for (let more = 0; more < 4 && !startsWith(characters, parts, at); more += 1) at += 1;
    if (!startsWith(characters, parts, at)) at = begin;
    push(segments, characters.slice(begin, at).join(""), {});
    push(segments, parts.join(""), run, run.columns);
    at += parts.length;
    column = run.column + run.columns;
  }
  push(segments, characters.slice(at).join(""), {});
  return segments;
}

function startsWith(characters, parts, at) {
  return parts.every((each, index) => characters[at + index] === each);
}

function push(segments, text, style, columns = undefined) {
  if (text) segments.push({ text: harmless(text), columns: columns ?? textWidth(text), style });
}

/** @param {string} character */
function width(character) {
  return WIDE.test(character) ? 2 : 1;
}

/** @param {string} text */
export function textWidth(text) {
  return [...text].reduce((sum, character) => sum + width(character), 0);
}

/** Invisible characters and those that change the direction become visible, in one column each. */
function harmless(text) {
  return [...text].map((character) => (printable(character) === character ? character : "\ufffd")).join("");
}

/**
 * Check the answer of the server.
 *
 * @param {any} answer
 * @returns {{columns: number, rows: number, lines: any[], cursor: {row: number, column: number, visible: boolean},
 *   offset: number, epoch: string, time: string}}
 */
export function screenOf(answer) {
  const columns = Math.min(Number(answer.columns) || 80, MOST_COLUMNS);
  const rows = Math.min(Number(answer.rows) || 24, MOST_ROWS);
  return {
    columns,
    rows,
    lines: (answer.lines ?? []).slice(0, rows),
    cursor: { row: 0, column: 0, visible: false, ...answer.cursor },
    offset: Number(answer.offset ?? 0),
    epoch: String(answer.epoch ?? ""),
    time: String(answer.time ?? ""),
  };
}

/**
 * Return the seconds until the screen is read again. Each reading is on record, so they grow while nothing changes.
 *
 * @param {number} seconds of the wait before.
 * @param {boolean} isChanged
 * @returns {number}
 */
export function nextWait(seconds, isChanged) {
  return isChanged ? 1 : Math.min(seconds * 1.5, 15);
}
