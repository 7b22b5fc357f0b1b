/** Ranges of a log. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { around, before, from } from "../../../../../twisted_exec/web/page/views/log/ranges.js";

test("pieces of a log are bounded and lie within what is retained", () => {
  const log = { start: 1000, end: 5000 };
  assert.deepEqual(before(5000, log, 1024), { start: 3976, end: 5000 });
  assert.deepEqual(before(1100, log, 1024), { start: 1000, end: 1100 });
  assert.equal(before(1000, log), null);
  assert.equal(before(10, log), null);
  assert.deepEqual(before(9999, log, 1000), { start: 4000, end: 5000 });
  assert.deepEqual(from(0, log, 1024), { start: 1000, end: 2024 });
  assert.deepEqual(from(4999, log, 1024), { start: 4999, end: 5000 });
  assert.equal(from(5000, log), null);
  assert.deepEqual(around(3000, log, 1024), { start: 2744, end: 3768 });
  assert.deepEqual(around(9999, log, 1024), { start: 4744, end: 5000 });
  assert.equal(around(5, { start: 7, end: 7 }), null);
});
