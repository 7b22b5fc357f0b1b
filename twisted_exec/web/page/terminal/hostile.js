/**
 * Limits for the output of a machine in the user's terminal.
 *
 * A machine prints what an attacker may have written. Sequences that set titles, links, colours of the page
 * or the clipboard are dropped, and a terminal's answers to queries never become input of the machine.
 */

// 0, 1, 2: titles; 4, 5, 10-19, 104-119: colours, which can be queried and can hide text; 7: directory; 8: links;
// 9, 777, 1337: notifications and files of other terminals; 52: clipboard; 133, 633: marks of shells
const OSC = [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 22, 50, 52, 99, 104, 105].concat(
  [110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 133, 633, 777, 1337],
);
// Device attributes, status and position, modes, size of the window, version, keyboard protocol
const CSI = [
  { final: "c" },
  { prefix: ">", final: "c" },
  { prefix: "=", final: "c" },
  { final: "n" },
  { prefix: "?", final: "n" },
  { intermediates: "$", final: "p" },
  { prefix: "?", intermediates: "$", final: "p" },
  { final: "t" },
  { prefix: ">", final: "q" },
  { prefix: "?", final: "u" },
  { final: "x" },
];
// Requests for settings and terminfo
const DCS = [
  { intermediates: "$", final: "q" },
  { intermediates: "+", final: "q" },
];
// Inserted and deleted lines, scrolling, tabs, repeated characters: xterm.js does these one by one, and a
// count of billions would stop the page for minutes. No screen is so large.
const REPEATED = ["L", "M", "S", "T", "I", "Z", "b"];
const MOST_REPEATED = 1000;
const MOST_MARKS = 16;
const OWN_CELL = 1 << 1; // width 1, joins nothing

/** Drop these sequences of a terminal's output. */
export function guard(terminal) {
  const drop = () => true;
  for (const number of OSC) terminal.parser.registerOscHandler(number, drop);
  for (const id of CSI) terminal.parser.registerCsiHandler(id, drop);
  for (const final of REPEATED) terminal.parser.registerCsiHandler({ final }, ([count]) => count > MOST_REPEATED);
  for (const id of DCS) terminal.parser.registerDcsHandler(id, drop);
  // The public API registers widths, but gives nobody those of xterm.js.
  const provider = fewMarks(terminal._core.unicodeService._activeProvider);
  terminal.unicode.register(provider);
  terminal.unicode.activeVersion = provider.version;
}

/**
 * Return a provider of character widths that lets only a few combining marks join a character.
 *
 * To draw 20,000 marks on one character takes a browser a minute. Further marks get a cell of their own.
 *
 * @param {{wcwidth: Function, charProperties: Function}} widths of xterm.js, whose properties are numbers: bit 0
 *     says that a character joins the one before, bits 1 and 2 are its width, and the bits above them are free
 */
export function fewMarks(widths) {
  return {
    version: "few marks",
    wcwidth: (codepoint) => widths.wcwidth(codepoint),
    charProperties: (codepoint, preceding) => {
      const properties = widths.charProperties(codepoint, preceding);
      if (!(properties & 1)) return properties;
      const marks = (preceding >> 3) + 1;
      return marks > MOST_MARKS ? OWN_CELL : properties | (marks << 3);
    },
  };
}

/**
 * Call back with what the user types, and never with what the terminal answers.
 *
 * xterm.js reports both as data, and tells them apart only inside: it announces a user's input before the
 * data. Without that (another release) nothing would be sent at all, which a test would notice.
 */
export function onTyped(terminal, callback) {
  let isTyped = false;
  terminal._core.coreService.onUserInput(() => {
    isTyped = true;
  });
  let half = ""; // of a character beyond U+FFFF, which Firefox reports as two keys
  terminal.onData((data) => {
    if (isTyped) {
      const text = half + data;
      half = /[\ud800-\udbff]$/.test(text) ? text.slice(-1) : "";
      const whole = text.slice(0, text.length - half.length);
      if (whole) callback(new TextEncoder().encode(whole));
    }
    isTyped = false;
  });
  // Positions of the mouse in the oldest protocol: bytes, not characters.
  terminal.onBinary((data) => callback(Uint8Array.from(data, (character) => character.charCodeAt(0))));
}
