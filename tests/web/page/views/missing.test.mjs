/** What views say of a machine that does not exist. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { ApiError } from "../../../../twisted_exec/web/page/api.js";
import { Machines } from "../../../../twisted_exec/web/page/machines.js";
import { machineLink } from "../../../../twisted_exec/web/page/routes.js";
import { lacksMachine, noMachine } from "../../../../twisted_exec/web/page/views/missing.js";
import { install } from "../dom.mjs";
import { fakeApi, turn } from "../fakes.mjs";

install();

const KIND = { group: "compute.ironcore.dev", version: "v1alpha1", plural: "machines", subresources: [] };
const PLACE = { namespace: "lab", name: "vm" };

test("only a server that names the machine says that it is missing", () => {
  const refusal = (code, kind) => new ApiError(code, "not found", { reason: "NotFound", details: { kind } });
  assert.ok(lacksMachine(refusal(404, "machines")));
  for (const other of [refusal(404, undefined), refusal(404, "machinepools"), refusal(403, "machines"), new RangeError("no time")]) {
    assert.ok(!lacksMachine(other));
  }
});

test("a user reads which machine is missing where, and which may be meant; of one that was there, what is left", async () => {
  const { api } = fakeApi(() => ({ items: [{ metadata: { namespace: "default", name: "vm" } }] }));
  const context = { api, machines: new Machines([KIND]), link: machineLink };
  const missing = noMachine(context, PLACE, "logs");
  for (let each = 0; each < 5; each += 1) await turn();
  assert.equal(missing.text, "The namespace lab has no machine vm.Did you mean default / vm?List of machines");
  assert.equal(missing.all("a")[0].href, "#/machines/default/vm/logs");
  const deleted = noMachine(context, PLACE, "screen", document.createElement("a"));
  assert.equal(deleted.text, "The machine is deleted. Its output stays in the log for some time.");
});
