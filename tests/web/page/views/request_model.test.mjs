/** Console requests as rows. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { demandOf, order, rowOf, stateOf, textsOf } from "../../../../twisted_exec/web/page/views/request_model.js";
import { METADATA, assertFinds } from "./finding.mjs";

const NOW = Date.parse("2026-11-20T08:00:00Z");
const LATER = "2026-11-20T09:00:00Z";
const EARLIER = "2026-11-20T07:00:00Z";

function request(status = {}, metadata = {}) {
  const spec = { user: "ada", caller: "proxy", machine: "vm-1", right: "takeover", seconds: 3600, reason: "OPS-7" };
  return { metadata: { ...METADATA, creationTimestamp: EARLIER, ...metadata }, spec, status };
}

test("the state of a request is that of the server", () => {
  const states = [
    [{}, "Waiting"],
    [{ approved: true, expirationTime: LATER }, "Approved"],
    [{ approved: true, expirationTime: EARLIER }, "Expired"],
    [{ approved: true, expirationTime: EARLIER, session: "s" }, "Used"],
    [{ denied: true }, "Denied"],
    [{ denied: true, expirationTime: LATER, session: "s" }, "Withdrawn"],
  ];
  for (const [status, state] of states) assert.equal(stateOf(request(status), NOW), state, JSON.stringify(status));
  assert.equal(stateOf(request({}, { creationTimestamp: "2026-11-19T08:00:00Z" }), NOW), "Expired");
  assert.equal(stateOf(request({ denied: true }, { deletionTimestamp: LATER }), NOW), "Deleted");
});

test("a row says who decided, until when, and that users cannot approve their own requests", () => {
  const row = (status, reader) => rowOf(request(status), NOW, reader);
  const approved = row({ approved: true, expirationTime: LATER, decidedBy: "bob", message: "go on" }, "bob").decision;
  assert.match(approved, /^until \d\d:00 by bob: go on$/);
  const used = row({ approved: true, expirationTime: LATER, decidedBy: "bob", session: "s" }, "bob").decision;
  assert.match(used, /^approved until \d\d:00 by bob$/);
  for (const session of ["s", ""]) assert.equal(row({ approved: true, expirationTime: EARLIER, decidedBy: "bob", session }, "bob").decision, "approved by bob");
  assert.equal(row({ denied: true, decidedBy: "bob" }, "bob").decision, "by bob");
  for (const reader of ["ada", "proxy"]) assert.match(row({}, reader).decision, /Another user/);
  assert.equal(row({}, "bob").decision, "");
});

test("other users may approve or deny a request that waits, and withdraw an approval until it ends; its user may take it back", () => {
  const actions = (status, reader = "bob") => rowOf(request(status), NOW, reader).actions.join();
  const approval = { approved: true, expirationTime: LATER };
  assert.deepEqual([{}, approval, { ...approval, session: "s" }].map((each) => actions(each)), ["Approve,Deny", "Withdraw", "Withdraw"]);
  for (const status of [{ denied: true }, { ...approval, expirationTime: EARLIER, session: "s" }]) assert.equal(actions(status), "");
  assert.deepEqual([{}, approval, { denied: true }].map((status) => actions(status, "ada")), ["Take back", "", ""]);
  assert.equal(actions({}, ""), "Approve,Deny");
});

test("nothing is left to withdraw of an approval whose session is over", () => {
  const used = request({ approved: true, expirationTime: LATER, session: "s-2", previousSession: "s-1" });
  const actions = (sessions, object = used) => rowOf(object, NOW, "bob", sessions).actions.join();
  assert.deepEqual([null, new Set(["s-1"]), new Set(["s-2"])].map((each) => actions(each)), ["Withdraw", "Withdraw", "Withdraw"]);
  assert.equal(actions(new Set(["s-3"])), "");
  assert.equal(actions(new Set(), request({ approved: true, expirationTime: LATER })), "Withdraw"); // not used yet
});

test("a filter finds requests by their columns", () => {
  const texts = textsOf(rowOf(request({ denied: true, decidedBy: "bob" }), NOW, "bob"));
  assertFinds(texts, ["", "vm-1", "team", "ADA", "proxy", "taking over", "ops-7", "denied", "by bob"], ["waiting", "thing", "7777"]);
});

test("requests that wait come first, then the newest", () => {
  const rows = [["Denied", "1"], ["Waiting", "1"], ["Denied", "3"], ["Waiting", "2"]].map(([state, since]) => ({ state, since }));
  assert.deepEqual(rows.sort(order).map(({ state, since }) => state[0] + since), ["W2", "W1", "D3", "D1"]);
});

test("a policy says what it demands", () => {
  const demand = (spec) => demandOf({ metadata: { name: "p" }, spec });
  assert.equal(demand({ approval: "None", maxSeconds: 60 }), "");
  assert.match(demand({ approval: "Required", reason: "Required" }), /^ConsolePolicy p: an approval is for any number .*; it needs a reason\.$/);
  const once = demand({ approval: "Once", reason: "Required", reasonPattern: "OPS-[0-9]+", maxSeconds: 3600, approvers: "#on-call" });
  assert.match(once, /one session; it needs a reason that matches OPS-\[0-9\]\+; a session lasts 60m at most; approvers: #on-call\.$/);
});
