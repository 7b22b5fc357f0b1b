/** Details of refusals, also of servers that send others. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { causesOf, has, kindOf } from "../../../twisted_exec/web/page/details.js";

test("causes have a reason, a message and the name of a request", () => {
  const sent = [{ reason: "ApprovalRequired", message: "who?", request: "vm-1-x", field: "x" }, { reason: "Other", request: 7 }];
  const causes = causesOf({ details: { causes: sent } });
  assert.deepEqual(causes, [
    { reason: "ApprovalRequired", message: "who?", request: "vm-1-x" },
    { reason: "Other", message: "", request: "" },
  ]);
  assert.deepEqual([has(causes, "Other"), has(causes, "ReasonRequired")], [true, false]);
});

test("a server that sends no details, or strange ones, has no causes", () => {
  for (const status of [null, undefined, {}, { details: null }, { details: { causes: "x" } }, { details: { causes: [null, 7, { reason: {} }] } }]) {
    assert.deepEqual(causesOf(status), []);
    assert.equal(kindOf(status), "");
  }
  assert.equal(kindOf({ details: { kind: "exec" } }), "exec");
  assert.equal(kindOf({ details: { kind: ["exec"] } }), "");
});
