/** What a search in a terminal has found. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { resultText } from "../../../../twisted_exec/web/page/terminal/finder.js";

test("a search says how far it is", () => {
  assert.deepEqual([resultText(-1, 0), resultText(1, 7), resultText(-1, 500)], ["Not found", "2 of 7", "500 or more"]);
});
