/** Keys of the bar. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { arrow, withControl } from "../../../../twisted_exec/web/page/terminal/key_bar.js";

test("Ctrl makes control characters of letters, and of nothing else", () => {
  assert.deepEqual(["c", "C", "[", "@", "1", "ü", "\x1b[A"].map(withControl), ["\x03", "\x03", "\x1b", "\0", "1", "ü", "\x1b[A"]);
});

test("arrow keys follow the mode that the machine has set", () => {
  assert.deepEqual([arrow("A", false), arrow("A", true)], ["\x1b[A", "\x1bOA"]);
});
