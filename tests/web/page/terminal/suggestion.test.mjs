/** Machines that a user may have meant. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Machines } from "../../../../twisted_exec/web/page/machines.js";
import { likeness, suggestion } from "../../../../twisted_exec/web/page/terminal/suggestion.js";
import { fakeApi } from "../fakes.mjs";

const KIND = { group: "compute.ironcore.dev", version: "v1alpha1", plural: "machines", subresources: [] };

test("names are as alike as the characters that they have in common", () => {
  assert.equal(likeness("vm-1", "vm-1"), 1);
  assert.equal(likeness("vm-1", "vm-2"), 0.75);
  assert.ok(likeness("demo-vm", "dmeo") >= 0.5);
  assert.ok(likeness("database", "vm-1") < 0.5);
});

test("a user who may not list machines gets no suggestion, and another one at most one page of a list", async () => {
  const place = { namespace: "default", name: "vm" };
  const machines = new Machines([KIND]);
  const denied = fakeApi(() => [403, { message: "forbidden" }]);
  assert.equal(await suggestion({ api: denied.api, machines }, place), null);
  const { api, calls } = fakeApi((path) => ({ items: path.includes("/namespaces/") ? [{ metadata: { namespace: "default", name: "vm-1" } }] : [] }));
  assert.deepEqual(await suggestion({ api, machines }, place), { namespace: "default", name: "vm-1" });
  assert.match(calls[0].path, /fieldSelector=metadata\.name%3Dvm&limit=1$/);
  assert.match(calls[1].path, /limit=500$/);
});

test("a machine is no suggestion for itself, whatever its user may list, also by an address with the name of its kind", async () => {
  const machines = new Machines([KIND]);
  const own = { metadata: { namespace: "default", name: "vm-1" } };
  const near = { metadata: { namespace: "default", name: "vm-2" } };
  for (const isDenied of [false, true]) {
    const { api } = fakeApi((path) => (isDenied && !path.includes("/namespaces/") ? [403, { message: "forbidden" }] : { items: [own, near] }));
    for (const name of ["vm-1", "vm-1.machines.compute.ironcore.dev"]) {
      assert.equal(await suggestion({ api, machines }, { namespace: "default", name }), null);
    }
  }
});
