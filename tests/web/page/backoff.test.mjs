/** Waits between attempts. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Backoff } from "../../../twisted_exec/web/page/backoff.js";

test("pauses double up to a limit", () => {
  const backoff = new Backoff(1, 8, () => 1);
  assert.deepEqual([1, 2, 3, 4, 5].map(() => backoff.pause()), [1, 2, 4, 8, 8]);
  backoff.reset();
  assert.equal(backoff.pause(), 1);
});

test("each is shortened at random by up to half", () => {
  const backoff = new Backoff(1, 8, () => 0);
  assert.deepEqual([1, 2].map(() => backoff.pause()), [0.5, 1]);
  const pause = new Backoff(1, 8).pause();
  assert.ok(pause >= 0.5 && pause <= 1, pause);
});

test("a pause may have a limit of its own, from which the next one doubles", () => {
  const backoff = new Backoff(1, 8, () => 1);
  assert.deepEqual([1, 1.5, 1.5, undefined].map((longest) => backoff.pause(longest)), [1, 1.5, 1.5, 3]);
});
