/**
 * The text of a console's line: without escape sequences, but with the colours that they ask for.
 *
 * Nothing that a machine prints acts on the page: sequences are removed, whatever they are, except that colours and
 * weights (SGR) become names of CSS classes or colours out of a fixed palette. A lone carriage return, by which programs
 * redraw a line, becomes a new line, so that nothing is hidden. Backspaces are carried out as in `--plain` of
 * `twisted-exec logs`: the next text overwrites.
 *
 * Sources: ECMA-48, 5th edition, 5.3 to 5.6; xterm's ctlseqs.
 */

// The content of a control string ends at its end, at ESC, CAN or SUB; lines have no newline.
const SEQUENCE = new RegExp(
  "\\x1b(?:\\[([0-?]*)[ -/]*([@-~])?" +
    "|[\\]PX^_][^\\x07\\x18\\x1a\\x1b\\x9c]*(?:\\x07|\\x1b\\\\|\\x9c)?" +
    "|[ -/]*[0-~]?)" +
    "|[\\x00-\\x07\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f]",
  "g",
);
// EL and ED, by which shells erase what they moved back over.
const ERASE = /^\x1b\[0?[JK]$/;
const BACKSPACE = "\b";
const MOST_PARAMETERS = 32;
const FLAGS = { 1: "bold", 2: "faint", 3: "italic", 4: "underline", 7: "inverse", 9: "strikethrough" };
const OFF = { 22: ["bold", "faint"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 29: ["strikethrough"] };

/**
 * @typedef {object} Style
 * @property {number | string} [foreground] a number of the palette, or #rrggbb.
 * @property {number | string} [background]
 * @property {boolean} [bold] and faint, italic, underline, strikethrough.
 * @property {boolean} [inverse]
 */

/**
 * Decode UTF-8; other bytes become the replacement character.
 *
 * @param {Uint8Array} bytes
 * @returns {string}
 */
export function decoded(bytes) {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

/**
 * Split the text of a line into runs of one style.
 *
 * @param {string} text
 * @param {Style} [style] at the beginning of the line.
 * @returns {{runs: {text: string, style: Style}[], style: Style}} and the style at its end.
 */
export function runsOf(text, style = {}) {
  /** @type {{text: string, style: Style}[]} */
  const runs = [];
  const add = (piece) => {
    if (!piece) return;
    const last = runs[runs.length - 1];
    if (last && last.style === style) last.text += piece;
    else runs.push({ text: piece, style });
  };
  let at = 0;
  for (const match of text.matchAll(SEQUENCE)) {
    add(text.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[2] === "m") style = styled(style, match[1]);
    // A vertical tab of the machine itself is removed like other control characters.
    else if (text[match.index - 1] === BACKSPACE && ERASE.test(match[0])) add("\v");
  }
  add(text.slice(at));
  return { runs: withoutReturns(text.includes(BACKSPACE) ? edited(runs) : runs), style };
}

/**
 * The text alone.
 *
 * @param {string} text
 * @returns {string}
 */
export function plain(text) {
  return runsOf(text)
    .runs.map((run) => run.text)
    .join("");
}

/**
 * Change a style by the parameters of SGR. Unknown parameters are ignored.
 *
 * @param {Style} style
 * @param {string} parameters
 * @returns {Style}
 */
export function styled(style, parameters) {
  if (/[<-?]/.test(parameters)) return style; // private: not SGR
  const codes = parameters
    .split(/[;:]/, MOST_PARAMETERS)
    .map((each) => (each === "" ? 0 : Number(each)));
  /** @type {Record<string, any>} */
  const next = { ...style };
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at];
    if (code === 0) for (const key of Object.keys(next)) delete next[key];
    else if (code in FLAGS) next[FLAGS[code]] = true;
    else if (code in OFF) for (const key of OFF[code]) delete next[key];
    else if (code >= 30 && code <= 37) next.foreground = code - 30;
    else if (code >= 90 && code <= 97) next.foreground = code - 90 + 8;
    else if (code >= 40 && code <= 47) next.background = code - 40;
    else if (code >= 100 && code <= 107) next.background = code - 100 + 8;
    else if (code === 39) delete next.foreground;
    else if (code === 49) delete next.background;
    else if (code === 38 || code === 48) {
      const key = code === 38 ? "foreground" : "background";
      const [colour, used] = extended(codes, at + 1);
      if (colour !== null) next[key] = colour;
      at += used;
    }
  }
  return next;
}

function extended(codes, at) {
  const isByte = (value) => Number.isInteger(value) && value >= 0 && value <= 255;
  if (codes[at] === 5) return [isByte(codes[at + 1]) ? codes[at + 1] : null, 2];
  if (codes[at] === 2) {
    const parts = codes.slice(at + 1, at + 4);
    if (parts.length < 3 || !parts.every(isByte)) return [null, 4];
    return [`#${parts.map((each) => each.toString(16).padStart(2, "0")).join("")}`, 4];
  }
  return [null, 0];
}

/** Carry out backspaces; a vertical tab erases the rest of the line. Blanks written over the end of a line are no part of it. */
function edited(runs) {
  /** @type {{text: string, style: Style}[]} */
  const done = [];
  let line = [];
  let at = 0;
  const endLine = () => {
    const isBlank = line.slice(at).every(({ text }) => text === " ");
    for (const { text, style } of isBlank ? line.slice(0, at) : line) {
      const last = done[done.length - 1];
      if (last && last.style === style) last.text += text;
      else done.push({ text, style });
    }
    [line, at] = [[], 0];
  };
  for (const { text: characters, style } of runs) {
    for (const text of characters) {
      if (text === BACKSPACE) at = Math.max(0, at - 1);
      else if (text === "\v") line.length = at;
      else if (text === "\r") {
        endLine();
        done.push({ text, style });
      } else {
        line[at] = { text, style };
        at += 1;
      }
    }
  }
  endLine();
  return done;
}

/** Drop returns at the end of the line, and let others begin a new line. */
function withoutReturns(runs) {
  while (runs.length) {
    const last = runs[runs.length - 1];
    let end = last.text.length;
    while (end > 0 && last.text[end - 1] === "\r") end -= 1; // /\r+$/ looks behind every return: quadratic
    last.text = last.text.slice(0, end);
    if (last.text) break;
    runs.pop();
  }
  for (const run of runs) if (run.text.includes("\r")) run.text = run.text.replace(/\r+/g, "\n");
  if (runs.length && runs[0].text.startsWith("\n")) runs[0].text = runs[0].text.slice(1);
  return runs.filter((run) => run.text);
}
