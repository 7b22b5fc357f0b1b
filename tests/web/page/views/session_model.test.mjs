/** Console sessions as rows. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { connectionOf, counted, endOf, order, ownSessions, rowOf as sessionRow, textsOf as sessionTexts } from "../../../../twisted_exec/web/page/views/session_model.js";
import { METADATA, assertFinds } from "./finding.mjs";

const object = (name, more = {}) => ({ metadata: { namespace: "default", name }, ...more });

test("a user with several sessions is named once", () => {
  assert.deepEqual(counted(["ada", "bob", "ada"]), ["ada (2)", "bob"]);
  assert.deepEqual(counted([]), []);
});

test("a filter finds sessions by their columns", () => {
  const spec = { user: "ada", caller: "proxy", machine: "vm-1", mode: "TakeOver", address: "192.0.2.4", session: "7777-id" };
  const session = (status) => sessionTexts(sessionRow({ metadata: METADATA, spec, status: { role: "Writer", ...status } }));
  const found = ["", " ADA ", "team vm-1", "proxy", "take over", "writer", "192.0.2"];
  assertFinds(session({ resumable: true }), [...found, "connected", "can resume"], ["bob", "ada bob", "true", "7777", "thing"]);
  assertFinds(session({ resumable: true, awaySince: "2026-11-20T08:10:00Z" }), ["lost", "can resume"], ["connected", "2026"]);
  assertFinds(session({ resumable: false, role: "Observer" }), ["connected", "observer"], ["false", "writer", "resume"]);
  const own = { ...sessionRow({ metadata: METADATA, spec, status: {} }), isOwn: true };
  assertFinds(sessionTexts(own), ["this page"], []);
});

test("a session says who is connected, how, and who is away", () => {
  const row = sessionRow({
    metadata: { namespace: "default", name: "vm-1-x", uid: "u", creationTimestamp: "2026-11-20T08:00:00Z" },
    spec: { user: "ada", caller: "proxy", machine: "vm-1", mode: "TakeOver" },
    status: { role: "Writer", resumable: true, awaySince: "2026-11-20T08:10:00Z" },
  });
  assert.deepEqual([row.mode, row.role, row.caller], ["take over", "Writer", "proxy"]);
  assert.equal(connectionOf({ ...row, awayFor: "12s" }), "Lost 12s ago, can resume");
  const bare = sessionRow(object("y"));
  assert.deepEqual([bare.user, bare.role, bare.away, bare.toMachine], ["", "", "", 0]);
  assert.equal(connectionOf(bare), "Connected");
});

test("the page knows its own sessions by what it keeps for a reload", () => {
  const values = {
    consoles: { places: [{ namespace: "default", name: "a" }, { namespace: "default", name: "b" }] },
    "session.default/a": { keys: [{ key: "k2", session: "s2" }, { key: "k1", session: "s1" }] },
    "session.default/c": { keys: [{ key: "k3", session: "closed" }] },
  };
  const store = { get: (key) => values[key] ?? null };
  assert.deepEqual([...ownSessions(store)], ["s2", "s1"]);
  assert.deepEqual([...ownSessions({ get: () => null })], []);
});

test("sessions are in the order of machines, the newest first", () => {
  const rows = [["b", "1"], ["a", "1"], ["a", "2"]].map(([machine, since]) => ({ namespace: "n", machine, since, name: "x" }));
  assert.deepEqual(rows.sort(order).map((row) => row.machine + row.since), ["a2", "a1", "b1"]);
});

test("who ends a session knows who reads of it", () => {
  const row = sessionRow(object("x", { spec: { user: "ada" } }));
  assert.match(endOf(row, "bob"), /^The user reads that you ended it\. .*the user may open/);
  assert.match(endOf(row, "ada"), /^Its console says that you ended it\. .*you may open/);
});
