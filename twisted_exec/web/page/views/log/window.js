/** The part of a log that is shown: a few pieces, one after the other. */

import { h } from "../../dom.js";
import { MOST_PIECES, PIECE_LINES } from "./ranges.js";
import { followedBy, redraw, rowOf } from "./rows.js";

const NEAR = 60;

export class LogWindow {
  /** @type {{element: HTMLElement, rows: import("./rows.js").Row[], start: number, end: number}[]} */
  #pieces = [];

  /**
   * @param {string} label
   * @param {{hasColours: boolean, link: (offset: number) => string}} options
   */
  constructor(label, options) {
    this.options = options;
    this.element = h("div", { class: "log", tabindex: 0, role: "group", "aria-label": label });
    let wasAtEnd = false;
    this.element.addEventListener("scroll", () => (wasAtEnd = this.isAtEnd), { passive: true });
    new ResizeObserver(() => wasAtEnd && this.scrollToEnd()).observe(this.element); // a phone's keyboard, or a message
  }

  get isEmpty() {
    return this.#pieces.length === 0;
  }

  /** Offset of the first byte that is shown. */
  get start() {
    return this.#pieces[0]?.start ?? NaN;
  }

  /** The offset at which reading continues: a last line without its end is read again. */
  get end() {
    const last = this.#pieces[this.#pieces.length - 1];
    const line = last?.rows[last.rows.length - 1]?.line;
    return line && !line.isComplete ? line.offset : (last?.end ?? NaN);
  }

  /** Offset behind the last byte that is shown. */
  get shownEnd() {
    return this.#pieces[this.#pieces.length - 1]?.end ?? NaN;
  }

  /** Time of the first and the last line. */
  get times() {
    const rows = this.#pieces.flatMap((piece) => piece.rows).filter((row) => row.line.time);
    return rows.length ? [rows[0].line.time, rows[rows.length - 1].line.time] : null;
  }

  clear() {
    this.#pieces = [];
    this.element.replaceChildren();
  }

  /** @param {{lines: any[], start: number, end: number}} piece */
  reset(piece) {
    this.clear();
    this.append(piece);
  }

  /** @param {{lines: any[], start: number, end: number}} piece before all others. */
  prepend(piece) {
    this.#keepPlace(() => {
      const made = this.#make(piece, {});
      this.#pieces.unshift(made);
      this.element.prepend(made.element);
      while (this.#pieces.length > MOST_PIECES) this.#pieces.pop()?.element.remove();
    });
  }

  /** @param {{lines: any[], start: number, end: number}} piece behind all others. */
  append(piece) {
    const isAtEnd = this.isAtEnd;
    const add = () => {
      this.#dropOpenLine(piece.start);
      const made = this.#make(piece, this.#style());
      this.#pieces.push(made);
      this.element.append(made.element);
      while (this.#pieces.length > MOST_PIECES) this.#pieces.shift()?.element.remove();
    };
    if (isAtEnd) add();
    else this.#keepPlace(add);
  }

  /**
   * Add lines that were printed now.
   *
   * @param {any[]} lines
   * @param {Set<any>} changed lines that are shown and got longer.
   * @param {number} end
   */
  grow(lines, changed, end) {
    const isAtEnd = this.isAtEnd;
    const last = this.#pieces[this.#pieces.length - 1];
    const open = last?.rows[last.rows.length - 1];
    if (open && changed.has(open.line)) redraw(open, this.options);
    for (let at = 0; at < lines.length; at += PIECE_LINES) {
      const some = lines.slice(at, at + PIECE_LINES);
      const newest = this.#pieces[this.#pieces.length - 1];
      if (newest) newest.end = some[0].offset;
      if (!newest || newest.rows.length >= PIECE_LINES) {
        this.append({ lines: some, start: some[0].offset, end });
      } else {
        this.#dropOpenLine(some[0].offset);
        this.#add(newest, some, this.#style());
      }
    }
    const newest = this.#pieces[this.#pieces.length - 1];
    if (newest) newest.end = end;
    if (isAtEnd) this.scrollToEnd();
  }

  /** @returns {HTMLElement | null} the row that has an offset. */
  find(offset) {
    const rows = this.#pieces.flatMap((piece) => piece.rows);
    const last = rows.findLastIndex((row) => row.line.offset <= offset);
    if (last < 0 || offset >= Math.max(this.#pieces[this.#pieces.length - 1].end, rows[last].line.offset + 1)) return null;
    return rows[last].element;
  }

  /** Draw all rows again, after a change of the options. */
  redraw() {
    for (const row of this.#pieces.flatMap((piece) => piece.rows)) redraw(row, this.options);
  }

  /** Whether the lines need the whole height. */
  get isFull() {
    return this.element.scrollHeight > this.element.clientHeight;
  }

  get isAtEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.element;
    return scrollTop + clientHeight >= scrollHeight - NEAR;
  }

  get isAtBegin() {
    return this.element.scrollTop < NEAR;
  }

  /**
   * Scroll to a row, and the page around not at all.
   *
   * @param {HTMLElement} row
   * @param {number} part of the height above it: 0 for the top, 0.5 for the middle.
   */
  scrollTo(row, part) {
    const { element } = this;
    const distance = row.getBoundingClientRect().top - element.getBoundingClientRect().top;
    element.scrollTop += distance - part * (element.clientHeight - row.clientHeight);
  }

  scrollToEnd() {
    this.element.scrollTop = this.element.scrollHeight;
  }

  #make(piece, style) {
    const made = { element: h("div", { class: "log-piece" }), rows: [], start: piece.start, end: piece.end };
    this.#add(made, piece.lines, style);
    return made;
  }

  #add(piece, lines, style) {
    let current = style;
    for (const line of lines) {
      const row = rowOf(line, current, this.options);
      const before = piece.rows.at(-1);
      if (before?.line.time) followedBy(before, line);
      current = row.after;
      piece.rows.push(row);
      piece.element.append(row.element);
    }
  }

  #style() {
    const last = this.#pieces[this.#pieces.length - 1];
    return last?.rows[last.rows.length - 1]?.after ?? {};
  }

  /** Remove a last line without an end, which is read again from its beginning. */
  #dropOpenLine(offset) {
    const last = this.#pieces[this.#pieces.length - 1];
    const row = last?.rows[last.rows.length - 1];
    if (!row || row.line.isComplete || row.line.offset !== offset) return;
    row.element.remove();
    last.rows.pop();
    last.end = offset;
  }

  #keepPlace(change) {
    const anchor = this.#firstVisible();
    const before = anchor?.getBoundingClientRect().top ?? 0;
    change();
    if (anchor?.isConnected) this.element.scrollTop += anchor.getBoundingClientRect().top - before;
  }

  #firstVisible() {
    const { top } = this.element.getBoundingClientRect();
    for (const piece of this.#pieces) {
      if (piece.element.getBoundingClientRect().bottom <= top) continue;
      for (const { element } of piece.rows) if (element.getBoundingClientRect().bottom > top) return element;
    }
    return null;
  }
}
