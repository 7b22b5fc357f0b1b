/** Events of a machine as rows. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { newestFirst, rowOf } from "../../../../twisted_exec/web/page/views/events.js";

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
