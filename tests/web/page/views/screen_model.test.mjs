/** Screens as rows of segments. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { nextWait, screenOf, segmentsOf } from "../../../../twisted_exec/web/page/views/screen_model.js";

test("the rows of a screen are segments of one style", () => {
  assert.deepEqual(segmentsOf({ text: "plain" }), [{ text: "plain", columns: 5, style: {} }]);
  const red = { column: 2, columns: 3, text: "red", foreground: 1 };
  assert.deepEqual(segmentsOf({ text: "a red b", runs: [red] }).map(({ text, columns }) => [text, columns]), [
    ["a ", 2], ["red", 3], [" b", 2],
  ]);
  const wide = { column: 4, columns: 2, text: "漢", bold: true };
  assert.deepEqual(segmentsOf({ text: "漢字漢.", runs: [wide] }).map(({ text, columns }) => [text, columns]), [
    ["漢字", 4], ["漢", 2], [".", 1],
  ]);
  assert.deepEqual(segmentsOf({ text: "aa", runs: [{ column: 1, columns: 1, text: "a" }] }).map(({ text }) => text), ["a", "a"]);
  assert.deepEqual(segmentsOf({}), []);
});

test("characters that reorder or hide text take one visible column of a screen", () => {
  assert.deepEqual(segmentsOf({ text: "a\u202eb\u200b" })[0], { text: "a\ufffdb\ufffd", columns: 4, style: {} });
});

test("a screen has a bounded size", () => {
  const screen = screenOf({ columns: 1e9, rows: 1e9, lines: Array(1000).fill({ text: "" }), offset: 5 });
  assert.deepEqual([screen.columns, screen.rows, screen.lines.length, screen.offset], [400, 200, 200, 5]);
  assert.equal(screenOf({}).cursor.visible, false);
});

test("a quiet screen is read less often", () => {
  assert.equal(nextWait(15, true), 1);
  assert.equal(nextWait(2, false), 3);
  assert.equal(nextWait(14, false), 15);
});
