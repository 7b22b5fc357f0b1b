/** The part of a log that is shown: a few pieces, one after the other. */

import { h } from "../../dom.js";
import { MOST_PIECES, PIECE_LINES } from "./ranges.js";
import { followedBy, redraw, rowOf } from "./rows.js";

const NEAR = 60;

export class LogWindow {
  /** @type {{element: HTMLElement, rows: import("./rows.js").Row[], start: number, end: number}[]} */
  #pieces = [];
  /** @type {{row: HTMLElement, part: number, ofRow: number} | null} */
  #place = null; // what stays in sight when the element gets another size
  #wasAtEnd = false;
  #width = 0;
  #height = 0;
  #scrollTop = 0;

  /**
   * @param {string} label
   * @param {import("./rows.js").Options} options
   */
  constructor(label, options) {
    this.options = options;
    this.element = h("div", { class: "log", tabindex: 0, role: "group", "aria-label": label });
    this.element.addEventListener("scroll", () => this.#remember(), { passive: true });
    // A phone is turned, its keyboard opens, or a message appears.
    new ResizeObserver(() => {
      this.#restore();
      this.#width = this.element.clientWidth;
      this.#height = this.element.clientHeight;
      this.#remember();
    }).observe(this.element);
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
    this.#place = null;
    this.#wasAtEnd = false;
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
   * @param {number} ofRow the part of the row that is at this place.
   */
  scrollTo(row, part, ofRow = part) {
    const { element } = this;
    // The element may have another size already, and then #remember() does nothing.
    this.#place = { row, part, ofRow };
    this.#wasAtEnd = false;
    element.scrollTop += this.#distance(row) + ofRow * row.clientHeight - part * element.clientHeight;
    this.#remember();
  }

  scrollToEnd() {
    this.#place = null;
    this.#wasAtEnd = true;
    this.element.scrollTop = this.element.scrollHeight;
    this.#remember();
  }

  /** The upper edge of the text in the window. */
  get #top() {
    return this.element.getBoundingClientRect().top + this.element.clientTop;
  }

  /** Return how far a row is below the upper edge. */
  #distance(row) {
    return row.getBoundingClientRect().top - this.#top;
  }

  /** Remember what is in sight: a match, or else the end or the first row. */
  #remember() {
    const { clientWidth, clientHeight, scrollTop } = this.element;
    // Other breaks of lines have moved the text already: #restore() follows.
    if (clientWidth !== this.#width) return;
    // So it does when the height alone has changed, unless the user has scrolled in the same moment.
    if (clientHeight !== this.#height && scrollTop === this.#scrollTop) return;
    this.#scrollTop = scrollTop;
    this.#place = this.#matchInSight();
    this.#wasAtEnd = !this.#place && this.isAtEnd;
    if (this.#place || this.#wasAtEnd) return;
    const row = this.#firstVisible();
    this.#place = row && { row, part: 0, ofRow: -this.#distance(row) / row.clientHeight };
  }

  #matchInSight() {
    const row = /** @type {HTMLElement | null} */ (this.element.querySelector(".line.match"));
    const part = row ? this.#distance(row) / (this.element.clientHeight - row.clientHeight) : NaN;
    return row && part >= 0 && part <= 1 ? { row, part, ofRow: part } : null;
  }

  #restore() {
    if (this.#wasAtEnd) this.scrollToEnd();
    else if (this.#place?.row.isConnected) this.scrollTo(this.#place.row, this.#place.part, this.#place.ofRow);
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
    const top = this.#top;
    for (const piece of this.#pieces) {
      if (piece.element.getBoundingClientRect().bottom <= top) continue;
      for (const { element } of piece.rows) if (element.getBoundingClientRect().bottom > top) return element;
    }
    return null;
  }
}
