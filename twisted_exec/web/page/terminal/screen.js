/** One xterm.js terminal: appearance, size, search, and what a program draws for the window of another user. */

import { loadStyles, loadVendored } from "../dom.js";
import { DrawnRows } from "./drawn_rows.js";
import { guard, onTyped } from "./hostile.js";

export const MOST_FOUND = 500; // places that a search counts and marks
const SCROLLBACK_ROWS = 10_000;
const FONT = 'ui-monospace, SFMono-Regular, "DejaVu Sans Mono", Menlo, Consolas, monospace';
const SIZES = { least: 8, usual: 14, most: 32, step: 2 };
const LARGEST = { columns: 400, rows: 150 }; // the server renders no larger screen
const RESIZE_MILLISECONDS = 120;
const TOUCH_SCROLLBAR_PIXELS = 5;

const DARK = {
  background: "#0e1013",
  foreground: "#dfe3e8",
  cursor: "#dfe3e8",
  cursorAccent: "#0e1013",
  overviewRulerBorder: "#0e101300",
  selectionBackground: "#2f4d6b",
  black: "#22272e",
  red: "#f47067",
  green: "#57ab5a",
  yellow: "#c69026",
  blue: "#539bf5",
  magenta: "#b083f0",
  cyan: "#39c5cf",
  white: "#c5cdd6",
  brightBlack: "#7d8794",
  brightRed: "#ff938a",
  brightGreen: "#6bc46d",
  brightYellow: "#daaa3f",
  brightBlue: "#6cb6ff",
  brightMagenta: "#dcbdfb",
  brightCyan: "#56d4dd",
  brightWhite: "#ffffff",
};
/** The first eight, but white, are as dark as text on white needs it, and as light as black on them does. */
const LIGHT = {
  background: "#ffffff",
  foreground: "#1b1f24",
  cursor: "#1b1f24",
  cursorAccent: "#ffffff",
  overviewRulerBorder: "#ffffff00",
  selectionBackground: "#b6d7f7",
  black: "#000000",
  red: "#df2f24",
  green: "#1c873b",
  yellow: "#a16a00",
  blue: "#0e73e4",
  magenta: "#8a55ec",
  cyan: "#1d8289",
  white: "#6e7781",
  brightBlack: "#57606a",
  brightRed: "#d1382d",
  brightGreen: "#2a9147",
  brightYellow: "#9a6700",
  brightBlue: "#218bff",
  brightMagenta: "#a475f9",
  brightCyan: "#3192aa",
  brightWhite: "#3d444d",
};

/** Return the colours of a theme: background, foreground and more, and the sixteen of the terminal, in their order, last. */
export function coloursOf({ isDark }) {
  return isDark ? DARK : LIGHT;
}

let modules = null;

/** Load xterm.js; @throws {Error} this installation has none. */
export function load() {
  modules ??= Promise.all([
    loadVendored("xterm.js"),
    loadVendored("addon-fit.js"),
    loadVendored("addon-search.js"),
    loadStyles("vendor/xterm.css"),
  ]).catch((problem) => {
    modules = null;
    throw problem;
  });
  return modules;
}

export class Screen {
  #theme;
  #preferences;
  #resized;
  #fit;
  #search;
  #recolour;
  #resize;
  #element;
  #observer;
  #sight;
  #isInSight = true;
  #timer;
  #room; // columns and rows that the element has room for
  /** @type {number[] | null} */
  #drawn = null; // columns and rows of another window, for which a program draws
  #drawnRows;
  #isFollowing = true; // the box over what is drawn scrolls to the cursor
  #followed = ""; // the place to which it was scrolled so
  /** @type {(() => void)[] | null} */
  #later = null; // what follows a picture that waits for the output before it
  /** @type {(() => void) | null} */
  #restore = null; // brings back what was in sight before another size

  /**
   * @param {Array} loaded what {@link load} resolved with
   * @param {object} options `theme`, `preferences`; `size`: [columns, rows] until the terminal is shown;
   *     `typed(bytes)`, `resized(isOther)`: it was fitted into its element, and whether it has other columns or rows;
   *     `key(event)`: false keeps a key from the machine;
   *     `found(index, count)`: what a search has found, -1 for one of more than it counts; `drawn(isNewest, free)`: whether
   *     the newest output is in sight, and how much of the element's height is free below the cursor, from 0 to 1
   */
  constructor([{ Terminal }, { FitAddon }, { SearchAddon }], { theme, preferences, size, typed, resized, key, found, drawn }) {
    this.#theme = theme;
    this.#preferences = preferences;
    this.#resized = resized;
    this.#room = size;
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.terminal = new Terminal({
      allowProposedApi: true, // the search addon marks matches
      cols: size[0],
      rows: size[1],
      cursorBlink: !calm,
      fontFamily: FONT,
      fontSize: this.#size(),
      lineHeight: 1.15, // else some fonts lose their underscore
      linkHandler: { activate: () => {}, allowNonHttpProtocols: false },
      minimumContrastRatio: 4.5,
      // The width of the scrollbar, which else is 14. A finger drags the text instead.
      overviewRuler: matchMedia("(pointer: coarse)").matches ? { width: TOUCH_SCROLLBAR_PIXELS } : {},
      screenReaderMode: preferences.get("screenReader", false),
      scrollback: SCROLLBACK_ROWS,
      theme: coloursOf(theme),
      macOptionClickForcesSelection: true,
      logLevel: "off", // what a machine prints belongs into no log
    });
    guard(this.terminal);
    this.#drawnRows = new DrawnRows(this.terminal);
    onTyped(this.terminal, typed);
    this.terminal.attachCustomKeyEventHandler(key);
    this.terminal.onRender(() => {
      const { viewportY, baseY, cursorY } = this.terminal.buffer.active;
      const isNewest = viewportY >= baseY;
      // xterm.js goes on to hold the place of a user who has scrolled where a resize, or a program, has removed the rows below.
      if (isNewest) this.terminal._core._bufferService.isUserScrolling = false;
      this.#follow();
      drawn(isNewest, isNewest ? Math.max(0, 1 - (cursorY + 1) / this.#room[1]) : 0);
    });
    this.#fit = new FitAddon();
    this.#search = new SearchAddon({ highlightLimit: MOST_FOUND });
    this.#search.onDidChangeResults(({ resultIndex, resultCount }) => found(resultIndex, resultCount));
    this.terminal.loadAddon(this.#fit);
    this.terminal.loadAddon(this.#search);
    this.#recolour = () => {
      this.terminal.options.theme = coloursOf(theme);
      if (this.#element) this.#contrastReversed(); // before, xterm.js has no cache
    };
    this.#resize = () => this.setFontSize(this.#size());
    theme.addEventListener("change", this.#recolour);
    addEventListener("twisted-exec-font", this.#resize);
  }

  /** Show the terminal in an element, from now on in its size. */
  open(element) {
    this.#element = element;
    this.terminal.open(element);
    this.#contrastReversed();
    this.terminal.textarea?.setAttribute("aria-description", "Ctrl ] or Ctrl F6 opens the commands, and leaves the terminal.");
    this.#scrollByTouch(element);
    // The box of a larger screen scrolls; xterm.js would send the turns of the wheel to the program.
    element.addEventListener("wheel", (event) => this.#drawn && event.stopPropagation(), { capture: true, passive: true });
    element.addEventListener("scroll", () => {
      if (!this.#drawn) this.#showAll();
      else if (this.#place !== this.#followed) this.#isFollowing = this.#isCursorInSight;
    });
    // It also notices when the terminal is shown again.  Not at once: xterm.js does not draw a hidden terminal, and
    // would keep the height that it had before.
    this.#observer = new ResizeObserver(() => this.#fitSoon());
    this.#observer.observe(element);
    // The same holds for one that is scrolled out of sight in the split view: xterm.js would take the height before for
    // the present one, move the output to where that ends, and no longer follow the newest.
    this.#sight = new IntersectionObserver((entries) => {
      this.#isInSight = entries.at(-1)?.isIntersecting ?? true;
      this.#fitSoon();
    });
    this.#sight.observe(/** @type {Element} */ (element.querySelector(".xterm-screen")));
    this.fit();
  }

  /**
   * Give reversed text the whole contrast of the theme.
   *
   * Its colour is that of the background. But xterm.js takes it for the foreground, which is on itself then, and makes that only
   * as different as it must be. The colour that it has found once for two colours is in its cache.
   */
  #contrastReversed() {
    const { foreground, background, contrastCache } = this.terminal._core._themeService.colors;
    contrastCache.setColor(foreground.rgba, foreground.rgba, background);
  }

  #fitSoon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.fit(), RESIZE_MILLISECONDS);
  }

  /** Let one finger move the output, as xterm.js does not. */
  #scrollByTouch(element) {
    let from = 0; // a height in the window
    element.addEventListener("touchstart", ({ touches }) => (from = touches[0].clientY), { passive: true });
    element.addEventListener(
      "touchmove",
      ({ touches }) => {
        if (touches.length > 1 || this.#drawn) return; // they zoom, or the box scrolls
        const row = element.clientHeight / this.rows;
        const rows = Math.trunc((from - touches[0].clientY) / row);
        from -= rows * row;
        this.terminal.scrollLines(rows);
      },
      { passive: true },
    );
  }

  /**
   * Adapt columns and rows to the element, or have those that a program draws for: the element then scrolls, and its size
   * does not matter.
   */
  fit() {
    if (!this.#element.offsetParent || !this.#isInSight) return; // hidden
    if (this.#later) {
      this.#later.push(() => this.fit());
      return;
    }
    this.#element.classList.toggle("foreign", this.#drawn !== null);
    const size = this.#fit.proposeDimensions();
    if (!size?.cols || !size.rows) return;
    this.#room = [Math.max(2, Math.min(size.cols, LARGEST.columns)), Math.max(1, Math.min(size.rows, LARGEST.rows))];
    const [columns, rows] = this.#drawn ?? this.#room;
    const isOther = columns !== this.terminal.cols || rows !== this.terminal.rows;
    if (isOther) this.#resizeInPlace(columns, rows);
    if (this.#drawn) {
      this.#showWholeRows();
      this.#follow();
    } else this.#showAll();
    this.#resized(isOther);
  }

  /** Let the box of a larger screen be as high as some of its rows, with what else is in it: a border, and perhaps a scroll bar. */
  #showWholeRows() {
    const { style, offsetHeight, clientHeight } = this.#element;
    style.setProperty("--row", `${this.#cursor.bottom - this.#cursor.top}px`);
    style.setProperty("--spare", `${offsetHeight - clientHeight}px`);
  }

  /** Scroll the box back, which has room for the screen; a larger screen, or the focus, has scrolled it. */
  #showAll() {
    if (this.#place !== "0 0") this.#element.scrollTo(0, 0);
  }

  /** Scroll the box of a larger screen to the cursor, unless the user has scrolled away from it, or a program hides it. */
  #follow() {
    if (!this.#drawn) return;
    this.#isFollowing ||= this.#isCursorInSight;
    if (!this.#isFollowing || this.#isCursorInSight || this.#drawnRows.isCursorHidden) return;
    const { left, top, right, bottom } = this.#cursor;
    const { clientWidth, clientHeight } = this.#element;
    this.#element.scrollTo(
      right <= clientWidth ? 0 : Math.max(right - clientWidth, Math.min(this.#element.scrollLeft, left)),
      bottom <= clientHeight ? 0 : Math.max(bottom - clientHeight, Math.min(this.#element.scrollTop, top)),
    );
    this.#followed = this.#place;
  }

  get #place() {
    return `${this.#element.scrollLeft} ${this.#element.scrollTop}`;
  }

  /** The edges of the cursor in the box, as if that were not scrolled. */
  get #cursor() {
    const screen = /** @type {HTMLElement} */ (this.#element.querySelector(".xterm-screen"));
    const [width, height] = [screen.offsetWidth / this.columns, screen.offsetHeight / this.rows];
    const { cursorX, cursorY } = this.terminal.buffer.active;
    const [left, top] = [Math.min(cursorX, this.columns - 1) * width, cursorY * height];
    return { left, top, right: left + width, bottom: top + height };
  }

  /** How much of an element is above and below the row of the cursor, in pixels; null if the output in sight is not the newest. */
  roomAround(element) {
    const { viewportY, baseY } = this.terminal.buffer.active;
    if (viewportY < baseY) return null;
    const { top, bottom } = this.#cursor;
    const from = /** @type {HTMLElement} */ (this.#element.querySelector(".xterm-screen")).getBoundingClientRect().top;
    const box = element.getBoundingClientRect();
    return { above: from + top - box.top, below: box.bottom - from - bottom };
  }

  get #isCursorInSight() {
    const { left, top, right, bottom } = this.#cursor;
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.#element;
    const isWithin = (begin, end, from, length) => begin > from - 1 && end < from + length + 1;
    return isWithin(left, right, scrollLeft, clientWidth) && isWithin(top, bottom, scrollTop, clientHeight);
  }

  /**
   * Show what a program draws for the window of another user.
   *
   * @param {number[] | null} size its columns and rows; null: it draws for this one, or draws lines.
   */
  drawnFor(size) {
    const drawn = size && [Math.max(2, Math.min(size[0], LARGEST.columns)), Math.max(1, Math.min(size[1], LARGEST.rows))];
    if (String(drawn) === String(this.#drawn)) return;
    this.#drawn = drawn;
    this.#isFollowing = true;
    // A full-screen program draws for this size from now on. On the usual screen it may only have placed the cursor once.
    if (drawn && this.isFullScreen) this.fit();
    else this.#fitSoon();
  }

  /** Have the size of this window at once: the program draws for it now, and what it draws is on the way. */
  drawnForOwn() {
    if (!this.#drawn) return;
    clearTimeout(this.#timer);
    this.#drawn = null;
    this.fit();
  }

  /** Whether it shows what a program draws for the window of another user. */
  get isForeign() {
    return this.#drawn !== null;
  }

  /** Columns and rows that the element has room for. */
  get room() {
    return this.#room;
  }

  /** Let the same text stay in sight, which xterm.js forgets when lines are broken elsewhere. */
  #resizeInPlace(columns, rows) {
    const isUnderWay = this.#restore !== null;
    this.#restore ??= placeOf(this.terminal);
    this.terminal.resize(columns, rows);
    if (isUnderWay || !this.#restore) return;
    // Behind the frame in which xterm.js learns the new height of its output.
    requestAnimationFrame(() => {
      this.#restore?.();
      this.#restore = null;
    });
  }

  get columns() {
    return this.terminal.cols;
  }

  get rows() {
    return this.terminal.rows;
  }

  /** Whether a program of the machine draws the whole screen. */
  get isFullScreen() {
    return this.terminal.buffer.active.type === "alternate";
  }

  /** Whether a program draws on a screen of so many rows, also on the usual one. */
  isDrawn(rows) {
    return this.isFullScreen || this.#drawnRows.isOn(rows);
  }

  get isBracketed() {
    return this.terminal.modes.bracketedPasteMode;
  }

  write(bytes, done) {
    if (this.#later) this.#later.push(() => this.write(bytes, done));
    else this.terminal.write(bytes, done);
  }

  /**
   * Show the picture of a screen, which is no output of a program.
   *
   * The element may have got another size since the picture was asked for: the terminal has that of the picture until it is
   * drawn, and then that of the element. So xterm.js breaks its lines anew, and the cursor stays at its line.
   *
   * @param {(filled: number) => Uint8Array} picture returns it for the number of rows down to the last text before it
   * @param {number[]} size columns and rows for which it is drawn
   */
  show(picture, [columns, rows]) {
    if (this.#later) {
      this.#later.push(() => this.show(picture, [columns, rows]));
      return;
    }
    this.#later = [];
    this.terminal.write("", () => {
      const isOther = columns !== this.columns || rows !== this.rows;
      if (isOther) this.terminal.resize(columns, rows);
      this.#drawnRows.pass(picture(this.#filledRows));
      this.terminal.write("", () => {
        const later = this.#later ?? [];
        this.#later = null;
        if (isOther) this.fit();
        later.forEach((act) => act());
      });
    });
  }

  get #filledRows() {
    const { normal } = this.terminal.buffer;
    let filled = this.rows;
    while (filled && !normal.getLine(normal.baseY + filled - 1)?.translateToString(true).trim()) filled--;
    return filled;
  }

  focus() {
    this.terminal.focus();
  }

  /** Find a text; @returns {boolean} whether there is one. */
  find(text, { backwards = false, incremental = false } = {}) {
    const decorations = {
      matchBackground: this.#theme.isDark ? "#5c4a12" : "#ffe79a",
      matchOverviewRuler: "#c69026",
      activeMatchBackground: this.#theme.isDark ? "#9a6700" : "#ffb84d",
      activeMatchColorOverviewRuler: "#f47067",
    };
    const options = { decorations, incremental };
    return backwards ? this.#search.findPrevious(text, options) : this.#search.findNext(text, options);
  }

  /** All output that the terminal still has, as text. */
  get text() {
    return this.#textOf(0, this.terminal.buffer.active.length);
  }

  /** The output that is in sight, as text. */
  get textInSight() {
    const { viewportY } = this.terminal.buffer.active;
    return this.#textOf(viewportY, viewportY + this.rows);
  }

  #textOf(begin, end) {
    const { active } = this.terminal.buffer;
    let text = "";
    for (let at = begin; at < end; at++) {
      const line = active.getLine(at);
      if (at > begin && !line?.isWrapped) text += "\n";
      text += line?.translateToString(!active.getLine(at + 1)?.isWrapped) ?? "";
    }
    return `${text.trimEnd()}\n`;
  }

  endFind() {
    this.#search.clearDecorations();
    this.terminal.clearSelection();
  }

  get selection() {
    return this.terminal.getSelection();
  }

  /** Change the size of the font in all terminals: 0 is the usual one. */
  changeFontSize(steps) {
    this.#preferences.set("fontSize", this.#sizeAfter(steps));
    dispatchEvent(new Event("twisted-exec-font"));
  }

  /** Whether the font would have another size. */
  hasFontSize(steps) {
    return this.#sizeAfter(steps) !== this.#size();
  }

  #sizeAfter(steps) {
    const size = steps ? this.#size() + steps * SIZES.step : SIZES.usual;
    return Math.max(SIZES.least, Math.min(size, SIZES.most));
  }

  setFontSize(size) {
    this.terminal.options.fontSize = size;
    this.fit();
  }

  toggleScreenReader() {
    const on = !this.terminal.options.screenReaderMode;
    this.#preferences.set("screenReader", on);
    this.terminal.options.screenReaderMode = on;
    return on;
  }

  close() {
    this.#theme.removeEventListener("change", this.#recolour);
    removeEventListener("twisted-exec-font", this.#resize);
    this.#observer?.disconnect();
    this.#sight?.disconnect();
    clearTimeout(this.#timer);
    this.#restore = null;
    this.terminal.dispose();
  }

  #size() {
    const size = this.#preferences.get("fontSize", SIZES.usual);
    return Number.isInteger(size) ? size : SIZES.usual;
  }
}

/**
 * Return a function that brings what is in sight of a terminal back after its size has changed: the selection, such as
 * a text that was found, or else the first row. Null if only the newest output is in sight, which stays by itself.
 */
function placeOf(terminal) {
  const { active } = terminal.buffer;
  const { viewportY, baseY, cursorY } = active;
  const isInSight = (row) => row >= active.viewportY && row < active.viewportY + terminal.rows;
  const found = terminal.getSelectionPosition()?.start.y ?? -1;
  const isFound = isInSight(found);
  if (!isFound && viewportY >= baseY) return null;
  const row = isFound ? found : viewportY;
  let first = row; // of its line: the others may be gone later
  while (first > 0 && active.getLine(first)?.isWrapped) first--;
  const marker = terminal.registerMarker(first - baseY - cursorY);
  const cells = (row - first) * terminal.cols;
  const part = (row - viewportY) / Math.max(1, terminal.rows - 1);
  return () => {
    const now = marker.line + Math.floor(cells / terminal.cols);
    const isGone = marker.line < 0;
    marker.dispose();
    if (isGone || (isFound && isInSight(now))) return;
    // The first call also tells the scrollbar of xterm.js its own place, from which the second one counts.
    for (let times = 0; times < 2; times++) terminal.scrollToLine(now - Math.round(part * (terminal.rows - 1)));
  };
}
