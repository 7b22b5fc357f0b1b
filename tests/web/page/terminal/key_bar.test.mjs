/** Keys of the bar. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { KeyBar, arrow, withControl } from "../../../../twisted_exec/web/page/terminal/key_bar.js";
import { install } from "../dom.mjs";

install();

test("Ctrl makes control characters of letters, and of nothing else", () => {
  assert.deepEqual(["c", "C", "[", "@", "1", "ü", "\x1b[A"].map(withControl), ["\x03", "\x03", "\x1b", "\0", "1", "ü", "\x1b[A"]);
});

test("arrow keys follow the mode that the machine has set", () => {
  assert.deepEqual([arrow("A", false), arrow("A", true)], ["\x1b[A", "\x1bOA"]);
});

test("Fn puts the keys of firmware in the place of the others, until it is pressed again", () => {
  const typed = [];
  const { element } = new KeyBar({ type: (text) => typed.push(text), isApplication: () => false });
  const shown = () => element.children.filter((each) => !each.hidden);
  const press = (label) => shown().find(({ text }) => text === label).click();
  const before = shown().map(({ text }) => text);
  press("Fn");
  assert.equal(shown().length, before.length);
  ["Pg Up", "Del", "F2", "F12"].forEach(press);
  press("Fn");
  assert.deepEqual(shown().map(({ text }) => text), before);
  press("↑");
  assert.deepEqual(typed, ["\x1b[5~", "\x1b[3~", "\x1bOQ", "\x1b[24~", "\x1b[A"]);
});
