/** Copy and paste at one console. */

import { confirmPaste } from "./dialogs.js";
import { encode, examine } from "./paste.js";
import { amount } from "./texts.js";

export class Clipboard {
  #console;
  #type;
  #tell;

  /**
   * @param {import("./console.js").Console} console
   * @param {object} on `type(bytes)` sends them to the machine; `tell(text, kind)` shows a message
   */
  constructor(console, { type, tell }) {
    this.#console = console;
    this.#type = type;
    this.#tell = tell;
  }

  /** Handle an event of the browser. */
  pasted(event) {
    event.preventDefault();
    event.stopPropagation();
    this.#insert(event.clipboardData?.getData("text/plain") ?? "");
  }

  async paste() {
    try {
      await this.#insert(await navigator.clipboard.readText());
    } catch {
      this.#tell("The browser does not give the page the clipboard: press Ctrl Shift V instead.", "warning");
    }
  }

  /** Copy the selection, or all output that the terminal has. */
  async copy(text = this.#console.screen?.selection ?? "") {
    if (!text) {
      this.#tell("Nothing is selected: select text with the mouse, or find it.", "");
      return;
    }
    try {
      await navigator.clipboard.writeText(text);
      this.#tell(`${amount(new TextEncoder().encode(text).length)} copied.`, "");
    } catch {
      this.#tell("The browser refuses to copy: use its menu instead.", "warning");
    }
    this.#console.focus();
  }

  async #insert(text) {
    const paste = examine(text);
    if (!paste.text) return;
    if (!paste.asks || (await confirmPaste(this.#console.place.name, paste))) {
      this.#type(encode(paste.text, this.#console.screen?.isBracketed ?? false));
    }
    this.#console.focus();
  }
}
