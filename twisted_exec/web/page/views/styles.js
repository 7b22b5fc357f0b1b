/** Styles of console text, as attributes of elements. */

import { h } from "../dom.js";
import { cssColour } from "./log/text.js";

const CLASSES = ["bold", "faint", "italic", "underline", "strikethrough"];

/**
 * An element with a style of SGR.
 *
 * @param {string} text
 * @param {import("./log/text.js").Style} style
 * @returns {HTMLElement}
 */
export function styledText(text, style) {
  const names = CLASSES.filter((name) => style[name]).map((name) => `sgr-${name}`);
  const element = h("span", { class: names.join(" ") || null }, text);
  let foreground = cssColour(style.foreground);
  let background = cssColour(style.background);
  if (style.inverse) {
    [foreground, background] = [background ?? "var(--console-background)", foreground ?? "var(--console-foreground)"];
  }
  if (foreground) element.style.color = foreground;
  if (background) element.style.backgroundColor = background;
  return element;
}
