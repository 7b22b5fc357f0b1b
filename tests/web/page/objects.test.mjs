/** Objects that follow their watch. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Objects, itemPath, listPath } from "../../../twisted_exec/web/page/objects.js";

const object = (name, more = {}) => ({ metadata: { namespace: "default", name }, ...more });

test("objects follow their watch", () => {
  const objects = new Objects((each) => each.good !== false);
  const names = () => objects.all.map((each) => each.metadata.name);
  objects.apply({ type: "RESET", items: [object("a"), object("b", { good: false })] });
  assert.deepEqual(names(), ["a"]);
  objects.apply({ type: "ADDED", object: object("c") });
  objects.apply({ type: "MODIFIED", object: object("a", { good: false }) });
  assert.deepEqual(names(), ["c"]);
  objects.apply({ type: "DELETED", object: object("c") });
  objects.apply({ type: "DELETED", object: object("never") });
  assert.deepEqual(names(), []);
});

test("objects are as of the moment when their watch was lost, and keep what is made of them", (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 5000 });
  const objects = new Objects(() => true, (each) => each.metadata.name);
  objects.leave();
  assert.equal(objects.asOf, null); // never read
  objects.apply({ type: "RESET", items: [object("a")] });
  objects.apply({ type: "ADDED", object: object("b") });
  objects.leave();
  t.mock.timers.tick(1000);
  objects.leave();
  assert.deepEqual([objects.asOf, objects.all], [5000, ["a", "b"]]);
});

test("names in paths are encoded", () => {
  assert.equal(listPath("consolesessions"), "/apis/console.twisted-exec.dev/v1alpha1/consolesessions");
  assert.equal(
    itemPath("consolerecordings", "a/b", "x?y", "content"),
    "/apis/console.twisted-exec.dev/v1alpha1/namespaces/a%2Fb/consolerecordings/x%3Fy/content",
  );
});
