/**
 * Lines of a log that was requested with frames and timestamps.
 *
 * The server writes a time before each line, so the offset of a line is known when these are taken
 * away again.
 */

import { joined } from "./frames.js";

const NEWLINE = 10;
const STAMP = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{9})Z $/;
const STAMP_BYTES = "2026-11-20T08:38:20.104595125Z ".length;
const EMPTY = new Uint8Array(0);
// More than a piece that is read at once, so only a line that is followed is split here.
const MOST_LINE_BYTES = 128 << 10;

/**
 * @typedef {object} Line
 * @property {number} offset of its first byte; NaN if the server sends no offsets.
 * @property {string} time RFC 3339 with nine digits; empty if unknown, and for the rest of a very long line.
 * @property {Uint8Array} bytes without the newline.
 * @property {boolean} isComplete it ends with a newline.
 */

/** Assembles lines from pieces of text. */
export class LineReader {
  #offset;
  /** @type {Line | null} */
  #open = null;
  /** @type {Uint8Array} */
  #head = EMPTY;

  /** @param {number} offset of the first byte. */
  constructor(offset) {
    this.#offset = offset;
  }

  /** The offset behind all bytes so far. */
  get offset() {
    return this.#offset;
  }

  /** The offset from which another reader continues: of the line that has no end yet, or behind all lines. */
  get lineStart() {
    return this.#open ? this.#open.offset : this.#offset;
  }

  /**
   * @param {Uint8Array} text
   * @param {number} [offset] behind the text.
   * @returns {{lines: Line[], changed: Line | null}} lines that began; and the line before them if it got longer or was
   *   completed.
   */
  feed(text, offset) {
    const lines = [];
    let changed = null;
    let at = 0;
    let begin = this.#offset;
    while (at < text.length) {
      if (this.#open === null) {
        const wanted = STAMP_BYTES - this.#head.length;
        this.#head = joined(this.#head, text.slice(at, at + wanted));
        at += wanted;
        if (this.#head.length < STAMP_BYTES) break;
        const { time, rest } = split(this.#head);
        this.#head = EMPTY;
        this.#open = { offset: begin, time, bytes: EMPTY, isComplete: false };
        lines.push(this.#open);
        // A server without timestamps: all bytes belong to the line, and may have newlines.
        if (rest.length) {
          text = joined(rest, text.slice(at));
          at = 0;
        }
        if (at >= text.length) break;
      } else if (!lines.length) {
        changed = this.#open;
      }
      if (this.#open.bytes.length >= MOST_LINE_BYTES) {
        // A line without an end costs bounded memory and time: it goes on in another row.
        this.#open = { offset: begin, time: "", bytes: EMPTY, isComplete: false };
        lines.push(this.#open);
      }
      const end = text.indexOf(NEWLINE, at);
      const piece = text.slice(at, end < 0 ? text.length : end);
      this.#open.bytes = joined(this.#open.bytes, piece);
      begin += piece.length;
      at += piece.length;
      if (end >= 0) {
        this.#open.isComplete = true;
        this.#open = null;
        begin += 1;
        at += 1;
      }
    }
    // A notice of the server, such as "bytes skipped", is no output: trust the frame.
    this.#offset = offset ?? begin;
    return { lines, changed };
  }
}

function split(head) {
  const match = STAMP.exec(String.fromCharCode(...head));
  if (!match) return { time: "", rest: head };
  return { time: `${match[1]}.${match[2]}Z`, rest: EMPTY };
}

/**
 * Lines of one response.
 *
 * @param {{text: Uint8Array, offset: number}[]} frames
 * @param {number} start offset of the first byte.
 * @returns {Line[]}
 */
export function linesOf(frames, start) {
  const reader = new LineReader(start);
  return frames.flatMap((frame) => reader.feed(frame.text, frame.offset).lines);
}

/**
 * Take the rows that are shown from a range that was read.
 *
 * A range that was read backwards begins anywhere: its first, partial line belongs to the range before. One that was
 * read forwards ends anywhere: its last, partial line belongs to the next range. A line longer than the range stays in
 * parts.
 *
 * @param {Line[]} lines
 * @param {{start: number, end: number}} range that was read.
 * @param {{direction: "back" | "forward", mayBeginWithin: boolean, isEnd: boolean, most: number}} options most: rows at
 *   most; isEnd: the log ends with the range.
 * @returns {{lines: Line[], start: number, end: number}}
 */
export function trimmed(lines, range, options) {
  let { start, end } = range;
  let rows = lines;
  if (options.mayBeginWithin && rows.length > 1) {
    rows = rows.slice(1);
    start = rows[0].offset;
  }
  if (!options.isEnd && rows.length > 1 && !rows[rows.length - 1].isComplete) {
    end = rows[rows.length - 1].offset;
    rows = rows.slice(0, -1);
  }
  if (rows.length > options.most) {
    if (options.direction === "back") {
      rows = rows.slice(-options.most);
      start = rows[0].offset;
    } else {
      end = rows[options.most].offset;
      rows = rows.slice(0, options.most);
    }
  }
  return { lines: rows, start, end };
}
