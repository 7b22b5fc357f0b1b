/** Output for a player that does not look at contrast: text on colours gets a colour in which it can be read. */

import { styled } from "./log/text.js";
import { readableColours } from "./styles.js";

// What sets colours, saves and restores them with the cursor, or resets all.
const SEQUENCE = new RegExp("\\x1b(?:\\[([0-9;:]*)m|(7|\\[s|\\[\\?1049h)|(8|\\[u|\\[\\?1049l)|c|\\[!p)", "g");
const OPEN_SEQUENCE = new RegExp("\\x1b(?:\\[[?!]?[0-9;:]{0,200})?$");
/** @type {["foreground", "background"]} */
const PARTS = ["foreground", "background"];
const FIRST = { foreground: 38, background: 48 };

/**
 * Return the events of an asciicast with other colours where text could not be read.
 *
 * @param {[number, string, string][]} events
 * @param {boolean} isDark the theme.
 * @returns {[number, string, string][]}
 */
export function withReadableText(events, isDark) {
  const output = new ReadableOutput(isDark);
  return events.map(([time, code, data]) => [time, code, code === "o" ? output.feed(data) : data]);
}

class ReadableOutput {
  #isDark;
  /** @type {{style: import("./log/text.js").Style, changed: "" | "foreground" | "background"}} `changed`: the colour that is another one. */
  #pen = { style: {}, changed: "" };
  #saved = this.#pen;
  #rest = ""; // the beginning of a sequence
  /** @type {Map<string, number[] | null>} */
  #known = new Map();

  constructor(isDark) {
    this.#isDark = isDark;
  }

  feed(data) {
    const text = this.#rest + data;
    this.#rest = OPEN_SEQUENCE.exec(text.slice(-220))?.[0] ?? "";
    return text.slice(0, text.length - this.#rest.length).replace(SEQUENCE, (sequence, parameters, saves, restores) => {
      if (parameters !== undefined) return sequence + this.#styled(parameters);
      if (saves) this.#saved = this.#pen;
      else this.#pen = restores ? this.#saved : { style: {}, changed: "" };
      return sequence;
    });
  }

  /** Return the sequence that follows one with parameters of SGR. */
  #styled(parameters) {
    const style = styled(this.#pen.style, parameters);
    const colour = this.#colourOf(style);
    const changed = colour && PARTS[style.inverse ? 1 : 0];
    const codes = [];
    if (this.#pen.changed && this.#pen.changed !== changed) codes.push(codeOf(this.#pen.changed, style[this.#pen.changed]));
    if (changed) codes.push(`${FIRST[changed]};2;${colour.join(";")}`);
    this.#pen = { style, changed: changed || "" };
    return codes.length ? `\x1b[${codes.join(";")}m` : "";
  }

  /** The colour in which text can be read, if its own is another one; else null. */
  #colourOf(style) {
    const { foreground, background, inverse } = style;
    const key = `${foreground} ${background} ${inverse}`;
    let colour = this.#known.get(key);
    if (colour === undefined) {
      const { text, readable } = readableColours(style, this.#isDark);
      colour = readable === text ? null : readable;
      if (this.#known.size < 1000) this.#known.set(key, colour);
    }
    return colour;
  }
}

function codeOf(part, colour) {
  if (colour === undefined) return String(FIRST[part] + 1);
  if (typeof colour === "number") return `${FIRST[part]};5;${colour}`;
  return `${FIRST[part]};2;${[1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)).join(";")}`;
}
