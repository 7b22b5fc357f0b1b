/** The storage of the browser. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Store } from "../../../twisted_exec/web/page/store.js";

test("a storage that is full or broken costs only the memory", () => {
  const items = new Map();
  const storage = {
    getItem: (key) => items.get(key) ?? null,
    setItem: (key, value) => items.set(key, value),
    removeItem: (key) => items.delete(key),
  };
  const store = new Store(storage);
  store.set("a", { b: 1 });
  assert.deepEqual(store.get("a"), { b: 1 });
  assert.equal(store.get("none", 7), 7);
  items.set("twisted-exec.a", "{");
  assert.equal(store.get("a"), null);
  const full = new Store({ setItem: () => { throw new Error("QuotaExceeded"); } });
  assert.equal(full.set("a", 1), false);
  assert.equal(full.get("a", "b"), "b");
});
