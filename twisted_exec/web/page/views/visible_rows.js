/** Rows of one height, of which only those in sight are in the document: a list of ten thousand scrolls as one of ten. */

import { h, renew } from "../dom.js";

const BEYOND = 12; // rows above and below those in sight, for the Tab key and fast wheels
const PAGE_ROWS = 10;
const MOVES = { ArrowDown: 1, ArrowUp: -1, PageDown: PAGE_ROWS, PageUp: -PAGE_ROWS, Home: -Infinity, End: Infinity };

export class VisibleRows {
  #cells;
  #draw;
  /** @type {any[]} */
  #rows = [];
  /** @type {Map<string, {element: HTMLElement, drawn: string, at: number}>} rows in the document, by key. */
  #drawn = new Map();
  #frame = 0;

  /**
   * @param {(row: any) => any} shown what a row shows; it is drawn again when this differs.
   * @param {(row: any, shown: any) => HTMLElement[]} cells
   * @param {AbortSignal} signal when the view is left.
   */
  constructor(shown, cells, signal) {
    this.#draw = shown;
    this.#cells = cells;
    this.element = h("tbody", { role: "rowgroup", class: "visible-rows" });
    this.element.addEventListener("keydown", (event) => this.#keyPressed(event));
    // On a phone the address bar comes and goes: the window is resized while it scrolls.
    for (const event of ["scroll", "resize"]) addEventListener(event, () => this.#soon(), { signal, passive: true });
    signal.addEventListener("abort", () => cancelAnimationFrame(this.#frame));
  }

  /** @param {{key: string}[]} rows all of them, in order. */
  update(rows) {
    this.#rows = rows;
    this.element.style.setProperty("--count", String(rows.length));
    this.draw();
  }

  /** Draw what is in sight. */
  draw() {
    const focused = this.#focused();
    const [first, end] = this.#sight();
    const places = Array.from({ length: end - first }, (_, at) => first + at);
    // The row with the focus stays in the document wherever the user scrolls, or the keys would go nowhere.
    if (focused >= 0 && focused < first) places.unshift(focused);
    else if (focused >= end) places.push(focused);
    this.#drawRows(places);
  }

  /**
   * Move the focus to a row, which comes into sight.
   *
   * @param {number} at its index, or one beyond the first or the last row.
   */
  focus(at) {
    const place = Math.min(Math.max(at, 0), this.#rows.length - 1);
    if (place < 0) return;
    const row = this.#rows[place];
    if (!this.#drawn.has(row.key)) this.#drawRows([place]);
    const element = this.#drawn.get(row.key)?.element;
    /** @type {HTMLElement | null | undefined} */ (element?.querySelector("a"))?.focus({ preventScroll: true });
    element?.scrollIntoView({ block: "nearest" });
    this.draw();
  }

  #soon() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.draw();
    });
  }

  /** Return the index of the row with the focus; -1 if none has it. */
  #focused() {
    if (!this.element.contains(document.activeElement)) return -1;
    const [key] = [...this.#drawn].find(([, { element }]) => element.contains(document.activeElement)) ?? [];
    return this.#rows.findIndex((row) => row.key === key);
  }

  /** Return the index of the first row in sight, and that behind the last one. */
  #sight() {
    const { top, height } = this.element.getBoundingClientRect();
    if (!height || !this.#rows.length) return [0, Math.min(this.#rows.length, BEYOND)];
    const row = height / this.#rows.length;
    const within = (at) => Math.min(Math.max(at, 0), this.#rows.length);
    return [within(Math.floor(-top / row) - BEYOND), within(Math.ceil((innerHeight - top) / row) + BEYOND)];
  }

  #drawRows(places) {
    const known = this.#drawn;
    this.#drawn = new Map();
    const kept = places.map((at) => this.#entry(at, known.get(this.#rows[at].key)));
    for (const [key, { element }] of known) if (!this.#drawn.has(key)) element.remove();
    let next = this.element.firstChild;
    for (const { element } of kept) {
      if (element === next) next = element.nextSibling;
      else this.element.insertBefore(element, next);
    }
  }

  #entry(at, known) {
    const row = this.#rows[at];
    const shown = this.#draw(row);
    const drawn = JSON.stringify(shown);
    const entry = known ?? { element: h("tr", { role: "row" }), drawn: "", at: -1 };
    if (entry.drawn !== drawn) this.#renew(entry.element, this.#cells(row, shown));
    entry.drawn = drawn;
    if (entry.at !== at) {
      entry.element.style.setProperty("--at", String(at));
      entry.element.setAttribute("aria-rowindex", String(at + 2)); // 1 has the titles
    }
    entry.at = at;
    this.#drawn.set(row.key, entry);
    return entry;
  }

  /** Draw the cells of a row; a control in the place of the one that had the focus gets it. */
  #renew(element, cells) {
    const controls = () => /** @type {HTMLElement[]} */ ([...element.querySelectorAll("a, button")]);
    const at = controls().indexOf(/** @type {HTMLElement} */ (document.activeElement));
    renew(element, cells);
    if (at >= 0 && !element.contains(document.activeElement)) controls()[at]?.focus({ preventScroll: true });
  }

  #keyPressed(event) {
    const move = MOVES[event.key];
    if (move === undefined || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    const at = this.#focused();
    if (at < 0 || (at === 0 && event.key === "ArrowUp")) return; // the view has the key then
    event.preventDefault();
    event.stopPropagation();
    this.focus(at + move);
  }
}
