/** Machines that a user may have meant. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Machines } from "../../../../twisted_exec/web/page/machines.js";
import { machineLink } from "../../../../twisted_exec/web/page/routes.js";
import { likeness, suggested, suggestions } from "../../../../twisted_exec/web/page/terminal/suggestion.js";
import { install } from "../dom.mjs";
import { fakeApi, turn } from "../fakes.mjs";

install();

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
  assert.deepEqual(await suggestions({ api: denied.api, machines }, place), []);
  const { api, calls } = fakeApi((path) => ({ items: path.includes("/namespaces/") ? [{ metadata: { namespace: "default", name: "vm-1" } }] : [] }));
  assert.deepEqual(await suggestions({ api, machines }, place), [{ namespace: "default", name: "vm-1" }]);
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
      assert.deepEqual(await suggestions({ api, machines }, { namespace: "default", name }), []);
    }
  }
});

test("machines that are equally near are all named, unless there are many", async () => {
  const machines = new Machines([KIND]);
  const cases = [
    [["web-1"], "Did you mean web-1?"],
    [["web-1", "web-2", "wet"], "Did you mean web-1 or web-2?"],
    [["web-1", "web-2", "web-3"], "Did you mean web-1, web-2 or web-3?"],
    [["web-1", "web-2", "web-3", "web-4"], ""],
    [["web-1", "web-2", "web-3", "web-4", "web-99"], "Did you mean web-99?"],
    [["database"], ""],
    [[], ""],
  ];
  for (const [names, said] of cases) {
    const { api } = fakeApi((path) => ({ items: path.includes("/namespaces/") ? names.map((name) => ({ metadata: { namespace: "default", name } })) : [] }));
    const hint = suggested({ api, machines, link: machineLink }, { namespace: "default", name: "web-9" });
    for (let each = 0; each < 8; each += 1) await turn();
    assert.equal(hint.text, said);
  }
});
