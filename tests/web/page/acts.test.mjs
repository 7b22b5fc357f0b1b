/** What a user reads of a change at a silent server. */

import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { acknowledged } from "../../../twisted_exec/web/page/acts.js";

/** Return what is said of a change that the server answers so after some milliseconds. */
async function saidOf(milliseconds, error = null) {
  mock.timers.enable({ apis: ["setTimeout"] });
  const said = [];
  const answer = new Promise((resolve, reject) => setTimeout(() => (error ? reject(error) : resolve("answer")), milliseconds));
  const end = acknowledged("Power off of vm-1", answer, (text, kind) => said.push([kind, text])).catch(({ message }) => message);
  mock.timers.tick(milliseconds);
  said.push(await end);
  mock.timers.tick(10_000);
  mock.timers.reset();
  return said;
}

const WAITS = ["warning", "Power off of vm-1 waits for the server."];

test("a change that is answered at once says nothing of the server", async () => {
  assert.deepEqual(await saidOf(1000), ["answer"]);
});

test("a change at a silent server waits, and is accepted or refused later", async () => {
  assert.deepEqual(await saidOf(9000), [WAITS, ["", "Power off of vm-1: the server has accepted it."], "answer"]);
  assert.deepEqual(await saidOf(9000, new Error("no")), [WAITS, "no"]);
});
