/** Tests for page/terminal/hostile.js. */

import assert from "node:assert/strict";
import test from "node:test";

import { fewMarks } from "../../../../twisted_exec/web/page/terminal/hostile.js";

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
