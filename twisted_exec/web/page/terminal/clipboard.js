/** Copy and paste at one console. */

import { askForPaste, confirmPaste, showText } from "./dialogs.js";
import { encode, examine } from "./paste.js";

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
    let text;
    try {
      text = await navigator.clipboard.readText();
    } catch {
      text = await askForPaste(this.#console.place.name);
    }
    await this.#insert(text);
  }

  /**
   * Copy a text, and say so.
   *
   * @param {string} [text] the selection by default
   * @param {string} [noun] what the user knows it as
   */
  async copy(text = this.#console.screen?.selection ?? "", noun = "Selection") {
    if (!text) {
      const isTouch = matchMedia("(pointer: coarse)").matches;
      const how = isTouch ? "“Text to select” in Commands shows the text for a finger" : "select text with the mouse, or find it";
      this.#tell(`Nothing is selected: ${how}.`, "");
      return;
    }
    try {
      await navigator.clipboard.writeText(text);
      this.#tell(`${noun} copied.`, "");
    } catch {
      await showText(`${noun}: ${this.#console.place.name}`, text);
    }
    this.#console.focus();
  }

  /** Show what is in sight as text that a finger or the keyboard selects. */
  async show() {
    await showText(`Text of ${this.#console.place.name}`, this.#console.screen?.textInSight ?? "");
    this.#console.focus();
  }

  async #insert(text) {
    const paste = examine(text);
    if (!paste.text) return;
    if (this.#console.hasEnded) {
      this.#tell("This console has no session now, so nothing was pasted.", "warning");
      return;
    }
    if (!paste.asks || (await confirmPaste(this.#console.place.name, paste))) {
      this.#type(encode(paste.text, this.#console.screen?.isBracketed ?? false));
    } else {
      this.#tell("Nothing was pasted.", "");
    }
    this.#console.focus();
  }
}
