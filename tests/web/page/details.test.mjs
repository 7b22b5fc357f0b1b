/** Details of refusals, also of servers that send others. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { causesOf, has, kindOf, withoutRemedy } from "../../../twisted_exec/web/page/details.js";

test("causes have a reason, and texts that may be empty", () => {
  const sent = [{ reason: "ApprovalRequired", message: "who?", request: "vm-1-x", field: "x" }, { reason: "Other", request: 7, user: "ada" }];
  const causes = causesOf({ details: { causes: sent } });
  assert.deepEqual(causes, [
    { reason: "ApprovalRequired", message: "who?", request: "vm-1-x", user: "", verb: "", remedy: "" },
    { reason: "Other", message: "", request: "", user: "ada", verb: "", remedy: "" },
  ]);
  assert.deepEqual([has(causes, "Other"), has(causes, "ReasonRequired")], [true, false]);
});

test("the remedy that a cause names is left out of the message, and nothing that only reads like one", () => {
  const message = "no: ask an administrator for the role edit";
  const lacking = (remedy) => causesOf({ details: { causes: [{ reason: "MissingRight", message, remedy }] } });
  assert.equal(withoutRemedy(message, lacking("ask an administrator for the role edit")), "no");
  assert.equal(withoutRemedy(message, lacking("ask")), message);
  assert.equal(withoutRemedy(message, lacking(undefined)), message);
  assert.equal(withoutRemedy(message, []), message);
});

test("a server that sends no details, or strange ones, has no causes", () => {
  for (const status of [null, undefined, {}, { details: null }, { details: { causes: "x" } }, { details: { causes: [null, 7, { reason: {} }] } }]) {
    assert.deepEqual(causesOf(status), []);
    assert.equal(kindOf(status), "");
  }
  assert.equal(kindOf({ details: { kind: "exec" } }), "exec");
  assert.equal(kindOf({ details: { kind: ["exec"] } }), "");
});
