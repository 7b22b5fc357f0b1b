/** Texts from the clipboard, before a machine gets them. */

import { printable } from "../dom.js";

const ASK_CHARACTERS = 1000;
// A text may hide keys such as Ctrl-C or the end of a bracketed paste; only tabs and line ends are text.
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g;

/**
 * Examine a text that is to be pasted.
 *
 * @param {string} text
 * @returns {{text: string, lines: number, characters: number, removed: number, asks: boolean}} `text`
 *   without control characters, of which there were `removed`; `asks`: the user should see it first
 */
export function examine(text) {
  const plain = text.replace(/\r\n?/g, "\n");
  const clean = plain.replace(CONTROLS, "");
  const removed = plain.length - clean.length;
  const lines = clean.split("\n").length - (clean.endsWith("\n") ? 1 : 0);
  const characters = [...clean].length;
  const line = clean.replaceAll("\t", " ");
  // Characters that hide or reorder text reach the machine, too: the question shows them as escapes.
  const isHarmless = printable(line) === line;
  const asks = clean.includes("\n") || characters > ASK_CHARACTERS || removed > 0 || !isHarmless;
  return { text: clean, lines, characters, removed, asks };
}

/** Return the bytes of a paste as a terminal sends it. */
export function encode(text, isBracketed) {
  const keys = text.replaceAll("\n", "\r");
  return new TextEncoder().encode(isBracketed ? `\x1b[200~${keys}\x1b[201~` : keys);
}
