/** Tests for page/terminal/hostile.js. */

import assert from "node:assert/strict";
import test from "node:test";

import { fewMarks, onTyped } from "../../../../twisted_exec/web/page/terminal/hostile.js";

const MARK = 0x301;
// As xterm.js has it: a mark of no width joins whatever precedes it.
const WIDTHS = {
  wcwidth: (codepoint) => (codepoint === MARK ? 0 : 1),
  charProperties: (codepoint, preceding) =>
    codepoint === MARK && preceding ? (preceding & 6) | 1 : WIDTHS.wcwidth(codepoint) << 1,
};

/** Return how many marks each cell has, of one character with so many marks. */
function cells(marks) {
  const widths = fewMarks(WIDTHS);
  let preceding = 0;
  const counts = [];
  for (const codepoint of [0x61, ...Array(marks).fill(MARK)]) {
    preceding = widths.charProperties(codepoint, preceding);
    if (preceding & 1) counts[counts.length - 1] += 1;
    else counts.push(0);
  }
  return counts;
}

test("a character keeps its marks", () => {
  assert.deepEqual(cells(3), [3]);
  assert.deepEqual(cells(16), [16]);
});

test("too many marks get cells of their own", () => {
  assert.deepEqual(cells(17), [16, 0]);
  assert.ok(Math.max(...cells(20_000)) <= 16);
});

test("widths are those of the terminal", () => {
  assert.equal(fewMarks(WIDTHS).wcwidth(0x61), 1);
  assert.equal(fewMarks(WIDTHS).charProperties(0x61, 0), 2);
});

/** Return what a page sends when its user types these pieces, and the terminal answers between them. */
function sent(...pieces) {
  const [inputs, data] = [[], []];
  const terminal = {
    _core: { coreService: { onUserInput: (listener) => inputs.push(listener) } },
    onData: (listener) => data.push(listener),
    onBinary: () => {},
  };
  const bytes = [];
  onTyped(terminal, (piece) => bytes.push(...piece));
  for (const piece of pieces) {
    inputs.forEach((listener) => listener());
    data.forEach((listener) => listener(piece));
    data.forEach((listener) => listener("\x1b[1;1R"));
  }
  return new TextDecoder().decode(new Uint8Array(bytes));
}

test("keys are sent, and answers of the terminal are not", () => {
  assert.equal(sent("a", "\r"), "a\r");
});

test("a character beyond U+FFFF that comes as two keys is sent whole", () => {
  assert.equal(sent("\ud83d", "\ude00", "x"), "😀x");
  assert.equal(sent("a😀"), "a😀");
});
