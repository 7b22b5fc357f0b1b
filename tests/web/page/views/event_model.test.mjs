/** Events of a machine as rows. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { newestFirst, poweredOffBy, rowOf } from "../../../../twisted_exec/web/page/views/event_model.js";

test("an event of an old or a new client has its last time, its count and its source", () => {
  const metadata = { name: "vm-1.1", uid: "u" };
  const old = rowOf({ metadata, type: "Warning", reason: "Failed", message: "no", count: 3, lastTimestamp: "T1", source: { component: "host" } });
  assert.deepEqual([old.time, old.count, old.source], ["T1", 3, "host"]);
  const series = { count: 7, lastObservedTime: "T2" };
  const recent = rowOf({ metadata, series, eventTime: "T1", reportingComponent: "scheduler" });
  assert.deepEqual([recent.time, recent.count, recent.source], ["T2", 7, "scheduler"]);
});

test("the newest event is the first one, also of those of one second", () => {
  const event = (reason, lastTimestamp, resourceVersion) => rowOf({ metadata: { name: reason, resourceVersion }, reason, lastTimestamp });
  const rows = [event("Created", "2026-11-28T05:21:03Z", "99"), event("Old", "2026-11-28T05:21:02Z", "101"), event("Started", "2026-11-28T05:21:03Z", "100")];
  assert.deepEqual(rows.sort(newestFirst).map(({ reason }) => reason), ["Started", "Created", "Old"]);
});

test("who has powered a machine off is the user of the newest change of its power", () => {
  const change = (user, power, lastTimestamp) => ({ metadata: { name: lastTimestamp }, message: `${user} has asked to power the machine ${power}`, lastTimestamp });
  const [off, on, again] = [change("bob", "off", "2026-11-28T05:21:01Z"), change("bob", "on", "2026-11-28T05:21:02Z"), change("team has asked", "off", "2026-11-28T05:21:03Z")];
  assert.deepEqual([[], [off], [off, on], [again, off, on], [{ metadata: {} }]].map(poweredOffBy), ["", "bob", "", "team has asked", ""]);
});
