/** Details of refusals, also of servers that send others. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { causesOf, has, kindOf } from "../../../twisted_exec/web/page/details.js";

test("causes have a reason and a message", () => {
  const causes = causesOf({ details: { causes: [{ reason: "ReasonRequired", message: "why?", field: "x" }, { reason: "Other" }] } });
  assert.deepEqual(causes, [{ reason: "ReasonRequired", message: "why?" }, { reason: "Other", message: "" }]);
  assert.deepEqual([has(causes, "Other"), has(causes, "ApprovalRequired")], [true, false]);
});

test("a server that sends no details, or strange ones, has no causes", () => {
  for (const status of [null, undefined, {}, { details: null }, { details: { causes: "x" } }, { details: { causes: [null, 7, { reason: {} }] } }]) {
    assert.deepEqual(causesOf(status), []);
    assert.equal(kindOf(status), "");
  }
  assert.equal(kindOf({ details: { kind: "exec" } }), "exec");
  assert.equal(kindOf({ details: { kind: ["exec"] } }), "");
});
