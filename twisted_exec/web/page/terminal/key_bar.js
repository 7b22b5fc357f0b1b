/** Keys that the keyboards of phones lack: shown where the main pointer is a finger. */

import { button, h } from "../dom.js";

const KEYS = [ // those that are used most are in sight
  // [label, name, what it sends: of an arrow key its letter]
  ["Esc", "Escape", "\x1b"],
  ["Tab", "Tab", "\t"],
  ["^C", "Control C", "\x03"],
  ["↑", "Up", "A"],
  ["↓", "Down", "B"],
  ["←", "Left", "D"],
  ["→", "Right", "C"],
  ["^D", "Control D", "\x04"],
];
/** Those of firmware and its menus, in the place of the others behind Fn. */
const FUNCTION_KEYS = [
  ["Pg Up", "Page up", "\x1b[5~"],
  ["Pg Dn", "Page down", "\x1b[6~"],
  ["Del", "Delete", "\x1b[3~"],
  ["F1", "F1", "\x1bOP"],
  ["F2", "F2", "\x1bOQ"],
  ["F9", "F9", "\x1b[20~"],
  ["F10", "F10", "\x1b[21~"],
  ["F11", "F11", "\x1b[23~"],
  ["F12", "F12", "\x1b[24~"],
];

/** Return what an arrow key sends. */
export function arrow(letter, isApplication) {
  return `\x1b${isApplication ? "O" : "["}${letter}`;
}

/** Return the character that Ctrl makes of a typed one; others stay as they are. */
export function withControl(text) {
  const code = text.toUpperCase().codePointAt(0);
  const isLetter = text.length === 1 && code >= 0x40 && code <= 0x5f;
  return isLetter ? String.fromCharCode(code & 0x1f) : text;
}

export class KeyBar {
  #control;

  /** Whether the next typed character is a control character. */
  isControl = false;

  /** @param {object} on `type(text)`; `isApplication()`: the machine wants other sequences of arrow keys */
  constructor({ type, isApplication }) {
    this.#control = button("Ctrl", () => this.#set(!this.isControl), { "aria-pressed": "false" });
    const buttons = (keys, hidden) =>
      keys.map(([label, name, text]) => {
        const send = () => type(/^[A-D]$/.test(text) ? arrow(text, isApplication()) : text);
        return button(label, send, { "aria-label": name, hidden });
      });
    const [ordinary, others] = [[this.#control, ...buttons(KEYS, false)], buttons(FUNCTION_KEYS, true)];
    const fn = button(
      "Fn",
      () => {
        const isFn = others[0].hidden;
        fn.setAttribute("aria-pressed", String(isFn));
        ordinary.forEach((each) => (each.hidden = isFn));
        others.forEach((each) => (each.hidden = !isFn));
      },
      { "aria-pressed": "false", "aria-label": "Function keys" },
    );
    this.element = h("div", { class: "key-bar", role: "group", "aria-label": "Keys" }, fn, ordinary, others);
  }

  /** Return what is typed, with Ctrl if its button was pressed before. */
  apply(bytes) {
    if (!this.isControl) return bytes;
    this.#set(false);
    return new TextEncoder().encode(withControl(new TextDecoder().decode(bytes)));
  }

  #set(isControl) {
    this.isControl = isControl;
    this.#control.setAttribute("aria-pressed", String(isControl));
  }
}
