/** Routes in the address of the page. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { machineLink, parse } from "../../../twisted_exec/web/page/routes.js";

test("routes name a view, a machine and its part", () => {
  assert.equal(parse("").view, "machines");
  assert.equal(parse("#/sessions").view, "sessions");
  assert.equal(parse("#/../../etc").view, "machines");
  for (const hash of ["#/machines/../vm", "#/machines/a/%2e%2e/logs", "#/recordings/./x"]) {
    assert.deepEqual(Object.keys(parse(hash).parameters), ["unknown", "query"], hash);
  }
  for (const path of ["nonsense/x", "machines/default", "machines/default/vm-1/nonsense"]) {
    const { view, parameters } = parse(`#/${path}?filter=a`);
    assert.deepEqual([view, parameters.unknown], ["machines", path]);
  }
  for (const hash of ["", "#", "#/", "#/machines", "#/machines/?sort=name"]) assert.equal(parse(hash).parameters.unknown, undefined);
  const { view, parameters } = parse("#/machines/team%2Fa/vm-1/logs?boot=-1");
  assert.deepEqual([view, parameters.namespace, parameters.name], ["logs", "team/a", "vm-1"]);
  assert.equal(parameters.query.get("boot"), "-1");
  assert.deepEqual(parse("#/machines/default/vm-1/log?at=1"), parse("#/machines/default/vm-1/logs?at=1"));
  assert.equal(parse(machineLink("a b", "vm-1")).parameters.namespace, "a b");
  assert.equal(parse("#/machines/a/%E0%A4%A").view, "console");
});
