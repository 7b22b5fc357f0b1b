/** Lines of a log as rows of the page. */

import { button, h, printableLines } from "../../dom.js";
import { clockTime, localDay } from "../../times.js";
import { styledText } from "../styles.js";
import { decoded, runsOf } from "./text.js";

const MOST_CHARACTERS = 4000;

/**
 * `wanted` is a text that is marked in all rows.
 *
 * @typedef {{hasColours: boolean, link: (offset: number) => string, wanted?: string}} Options
 */

/**
 * A row of the log; `next` is the line behind it, as far as it is known.
 *
 * @typedef {{line: import("./lines.js").Line, next: import("./lines.js").Line | null, element: HTMLElement, style: any, after: any}} Row
 */

/**
 * @param {import("./lines.js").Line} line
 * @param {any} style at the beginning of the line.
 * @param {Options} options
 * @returns {Row}
 */
export function rowOf(line, style, options) {
  const element = h("div", { class: "line", "data-offset": line.offset });
  const row = { line, next: null, element, style, after: style };
  redraw(row, options);
  return row;
}

/**
 * Draw a row whose line has changed.
 *
 * @param {Row} row
 * @param {Options} options
 */
export function redraw(row, options, most = MOST_CHARACTERS) {
  const { line } = row;
  const { runs, style } = runsOf(decoded(line.bytes), row.style);
  row.after = style;
  let left = most;
  const pieces = [];
  for (const run of runs) {
    if (left <= 0) break;
    const text = printableLines(run.text.slice(0, left));
    left -= run.text.length;
    pieces.push(options.hasColours && Object.keys(run.style).length ? styledText(text, run.style) : text);
  }
  const hidden = runs.reduce((sum, run) => sum + run.text.length, 0) - most;
  const more = hidden > 0 && button(`${hidden} more characters`, () => redraw(row, options, Infinity));
  row.element.replaceChildren(timeOf(row, options), h("span", { class: "line-text" }, pieces, more));
  if (options.wanted) mark(row.element, options.wanted);
}

/** Return the text of a tooltip. */
function timesOf({ line, next }) {
  const place = Number.isNaN(line.offset) ? "" : `, offset ${line.offset}`;
  return `${line.time}${next?.time ? `, the next line ${next.time}` : ""}${place}`;
}

/** Tell a row which line is behind it. */
export function followedBy(row, next) {
  row.next = next;
  /** @type {HTMLElement} */ (row.element.querySelector(".line-time")).title = timesOf(row);
}

function timeOf(row, options) {
  const { line } = row;
  if (!line.time) return h("span", { class: "line-time" }, "");
  const title = timesOf(row);
  const shown = [h("span", { class: "line-day" }, `${localDay(line.time)} `), clockTime(line.time)];
  if (Number.isNaN(line.offset)) return h("time", { class: "line-time", datetime: line.time, title }, shown);
  // Not in the order of the tab key: a page has a thousand of them.
  return h(
    "a",
    { class: "line-time", href: options.link(line.offset), tabindex: -1, title },
    h("time", { datetime: line.time }, shown),
  );
}

/**
 * Mark a text in a row, as often as it is there.
 *
 * @param {HTMLElement} element
 * @param {string} wanted
 */
function mark(element, wanted) {
  const needle = wanted.toLowerCase();
  const walker = document.createTreeWalker(element.querySelector(".line-text") ?? element, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) nodes.push(/** @type {Text} */ (walker.currentNode));
  for (let node of nodes) {
    if (node.parentElement?.closest("button") || node.data.toLowerCase().length !== node.data.length) continue;
    for (let at; (at = node.data.toLowerCase().indexOf(needle)) >= 0; ) {
      const found = node.splitText(at);
      node = found.splitText(needle.length);
      const marked = h("mark");
      found.replaceWith(marked);
      marked.append(found);
    }
  }
}
