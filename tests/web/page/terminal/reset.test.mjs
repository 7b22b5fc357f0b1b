/** A machine that is powered off, and on again. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { reset } from "../../../../twisted_exec/web/page/terminal/reset.js";

const PLACE = { namespace: "default", name: "vm" };

/** Reset a machine that stops after some looks; return the powers that it got, and the problem. */
async function resetAfter(looks) {
  const powers = [];
  let seconds = 0;
  const api = {
    patch: async (path, { spec }) => powers.push(`${path} ${spec.power} at ${seconds}`),
    request: async () => ({ status: { state: seconds < looks ? "Running" : "Shutdown" } }),
  };
  const machines = { path: (namespace, name) => `/${namespace}/${name}` };
  const pause = async (more) => {
    seconds += more;
  };
  const problem = await reset({ api, machines }, PLACE, { now: () => seconds * 1000, pause }).then(() => "", (error) => error.message);
  return { powers, problem };
}

test("a machine is powered on when it has stopped, and not before", async () => {
  assert.deepEqual(await resetAfter(3), { powers: ["/default/vm Off at 0", "/default/vm On at 3"], problem: "" });
});

test("a machine that does not stop is powered on after a while, and its user learns that there was no reset", async () => {
  const { powers, problem } = await resetAfter(1000);
  assert.deepEqual(powers, ["/default/vm Off at 0", "/default/vm On at 90"]);
  assert.match(problem, /still running 90 s/);
});
