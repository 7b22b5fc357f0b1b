/** The keys of a search in the log. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { stepOf } from "../../../../twisted_exec/web/page/views/logs.js";

test("Enter searches back and Shift+Enter forward, and so do n and N at a match", () => {
  const step = (key, more, keys = ["enter", "n"]) => stepOf({ key, ...more }, keys);
  assert.deepEqual([step("Enter"), step("n"), step("N")], ["back", "back", "back"]);
  for (const key of ["Enter", "N", "n"]) assert.equal(step(key, { shiftKey: true }), "forward");
  for (const held of ["ctrlKey", "altKey", "metaKey", "isComposing"]) assert.equal(step("Enter", { [held]: true }), "");
  assert.deepEqual([step("n", {}, ["enter"]), step("m")], ["", ""]);
});
