/** Screens that the server renders, and those that it does not. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { ApiError } from "../../../twisted_exec/web/page/api.js";
import { hasNoScreen, readScreen } from "../../../twisted_exec/web/page/screens.js";
import { Store } from "../../../twisted_exec/web/page/store.js";

const PLACE = { namespace: "team", name: "vm-1" };

/** A page whose server gives these answers. */
function page(...answers) {
  const kept = new Map();
  const storage = {
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, value) => kept.set(key, value),
    removeItem: (key) => kept.delete(key),
  };
  const request = async () => {
    const answer = answers.shift();
    if (answer instanceof Error) throw answer;
    return answer;
  };
  const machines = { path: (namespace, name) => `/${namespace}/${name}` };
  return { api: { request }, machines, store: new Store(storage) };
}

test("a server that renders no screen of a machine is remembered until it does", async () => {
  const context = page(new ApiError(501, "no extra"), { offset: 1 });
  await assert.rejects(readScreen(context, PLACE, {}), { code: 501 });
  assert.ok(hasNoScreen(context, PLACE));
  assert.ok(!hasNoScreen(context, { ...PLACE, name: "vm-2" }));
  assert.deepEqual(await readScreen(context, PLACE, {}), { offset: 1 });
  assert.ok(!hasNoScreen(context, PLACE));
});

test("a server that fails in another way is asked again", async () => {
  const context = page(new ApiError(503, "later"));
  await assert.rejects(readScreen(context, PLACE, {}), { code: 503 });
  assert.ok(!hasNoScreen(context, PLACE));
});
