/** Alerts, their matches, and the health of consoles. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { healthOf, healthTextsOf, matchOf, matchTextsOf, rowOf as alertRow, selectorText, sickSince, textsOf as alertTexts } from "../../../../twisted_exec/web/page/views/alert_model.js";
import { METADATA, assertFinds } from "./finding.mjs";


test("a filter finds alerts, matches and unhealthy machines by their columns", () => {
  const patterns = [{ name: "full", literal: "No space", condition: "DiskFull" }];
  const alert = { metadata: METADATA, spec: { presets: ["linux"], patterns, selector: { matchLabels: { a: "b" } } } };
  assertFinds(alertTexts(alertRow(alert)), ["thing", "linux", "full", "no space", "a=b", "no machine"], ["object", "diskfull", "none"]);
  const message = 'Critical: pattern panic of alert linux at offset 7777: "not syncing"';
  const event = { metadata: METADATA, message, involvedObject: { name: "vm-1", apiVersion: "group/v1" } };
  assertFinds(matchTextsOf(matchOf(event)), ["vm-1", "team", "critical", "panic", "linux", "syncing"], ["thing", "7777", "group"]);
  const health = { namespace: "team", name: "vm-1", isHealthy: false, reason: "KernelPanic", message: "syncing", log: "#/logs" };
  assertFinds(healthTextsOf(health), ["team vm-1", "panic", "syncing"], ["false", "#/logs"]);
});

test("the Event of a match has the offset in the log", () => {
  const event = (message) => ({
    metadata: { namespace: "default", name: "e" }, message, reason: "KernelPanic",
    involvedObject: { namespace: "default", name: "demo-shell" }, lastTimestamp: "2026-11-20T08:00:00Z", count: 3,
  });
  const match = matchOf(event('Critical: pattern kernel-panic of alert linux at offset 315 (4 more since the last Event): "a "b" at offset 9"'));
  assert.deepEqual(
    [match.severity, match.pattern, match.alert, match.offset, match.suppressed, match.line],
    ["Critical", "kernel-panic", "linux", 315, 4, 'a "b" at offset 9'],
  );
  assert.equal(matchOf(event('Warning: pattern p of alert a at offset 0: "cut off')).line, "cut off");
  assert.equal(matchOf(event("Started the machine")), null);
  assert.equal(matchOf({ metadata: {} }), null);
});

test("an alert shows its worst pool, and the sums of all", () => {
  const row = alertRow({
    metadata: { namespace: "n", name: "linux" },
    spec: { presets: ["linux"], patterns: [{ name: "full", literal: "No space" }], selector: { matchLabels: { a: "b" } } },
    status: {
      pools: [
        { name: "p1", state: "Watching", machines: 2, matches: 1, lastMatchTime: "2026-11-20T08:00:00Z" },
        { name: "p2", state: "Degraded", machines: 1, matches: 2, message: "install google-re2" },
      ],
    },
  });
  assert.deepEqual([row.state, row.machines, row.matches, row.last], ["Degraded", 3, 3, "2026-11-20T08:00:00Z"]);
  assert.deepEqual(row.messages, ["p2: install google-re2"]);
  assert.equal(row.patterns[0].severity, "Warning");
  assert.equal(alertRow({ metadata: { name: "x" } }).state, "None");
});

test("selectors are written as kubectl takes them", () => {
  const expressions = [
    { key: "x", operator: "In", values: ["1", "2"] },
    { key: "y", operator: "NotIn", values: ["3"] },
    { key: "z", operator: "DoesNotExist" },
    { key: "w", operator: "Exists" },
  ];
  const text = selectorText({ matchLabels: { a: "b" }, matchExpressions: expressions });
  assert.equal(text, "a=b,x in (1, 2),y notin (3),!z,w");
  assert.equal(selectorText({}), "");
});

test("the health of a console is its condition, if there is one", () => {
  const machine = (status) => ({ status: { conditions: [{ type: "Ready", status: "True" }, { type: "ConsoleHealthy", status, reason: "KernelPanic", message: 'at offset 964 the machine printed "x"' }] } });
  assert.equal(healthOf(machine("False")).isHealthy, false);
  assert.equal(healthOf(machine("False")).offset, 964);
  assert.equal(healthOf(machine("False")).message, 'The machine printed "x"');
  assert.equal(healthOf(machine("True")).isHealthy, true);
  assert.equal(healthOf(machine("Unknown")), null);
  assert.equal(healthOf({}), null);
});

test("a machine is unhealthy since the match, also if its pool was silent after that", () => {
  const machine = { namespace: "team", name: "vm-1", group: "g" };
  const match = { namespace: "team", machine: "vm-1", group: "g", offset: 964, time: "2026-11-20T08:00:00Z" };
  const health = { offset: 964, since: "2026-11-20T08:07:00Z" };
  assert.equal(sickSince(health, machine, [{ ...match, machine: "vm-2" }, match]), match.time);
  assert.equal(sickSince(health, machine, [{ ...match, time: "2026-11-20T08:09:00Z" }]), health.since);
  for (const other of [{ offset: 1 }, { namespace: "a" }, { group: "h" }]) assert.equal(sickSince(health, machine, [{ ...match, ...other }]), health.since);
  assert.equal(sickSince(health, machine, []), health.since);
});
