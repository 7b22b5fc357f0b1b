import assert from "node:assert/strict";
import { test } from "node:test";

import { healthOf, healthTextsOf, matchOf, matchTextsOf, rowOf as alertRow, selectorText, textsOf as alertTexts } from "../../../twisted_exec/web/page/views/alert_model.js";
import { matches } from "../../../twisted_exec/web/page/views/filter.js";
import { Objects, itemPath, listPath } from "../../../twisted_exec/web/page/views/objects.js";
import { parseCast, proofOf, rowOf as recordingRow, stateOf, textsOf as recordingTexts, Timeline } from "../../../twisted_exec/web/page/views/recording_model.js";
import { nextWait, screenOf, segmentsOf } from "../../../twisted_exec/web/page/views/screen_model.js";
import { order, ownSessions, rowOf as sessionRow, textsOf as sessionTexts } from "../../../twisted_exec/web/page/views/session_model.js";

const object = (name, more = {}) => ({ metadata: { namespace: "default", name }, ...more });

const METADATA = { namespace: "team", name: "thing", uid: "7777-uid" };

/** Assert which words of a filter find a row by its texts. */
function assertFinds(texts, found, missed) {
  assert.deepEqual([...found, ...missed].filter((word) => matches(texts, word)), found);
}

test("a filter finds sessions by their columns", () => {
  const spec = { user: "ada", caller: "proxy", machine: "vm-1", mode: "TakeOver", address: "192.0.2.4", session: "7777-id" };
  const session = (status) => sessionTexts(sessionRow({ metadata: METADATA, spec, status: { role: "Writer", ...status } }));
  const found = ["", " ADA ", "team vm-1", "proxy", "take over", "writer", "192.0.2"];
  assertFinds(session({ resumable: true }), [...found, "resumable"], ["bob", "ada bob", "true", "7777", "thing"]);
  assertFinds(session({ resumable: true, awaySince: "2026-11-20T08:10:00Z" }), ["away"], ["resumable", "2026"]);
  assertFinds(session({ resumable: false }), ["connected"], ["false"]);
  const own = { ...sessionRow({ metadata: METADATA, spec, status: {} }), isOwn: true };
  assertFinds(sessionTexts(own), ["this page"], []);
});

test("a filter finds recordings by their columns", () => {
  const spec = { machine: "vm-1", users: ["ada", "bob"], policies: ["audited"], reason: "ticket 4", machineResource: "virtualmachines" };
  const status = { phase: "Failed", message: "no space", startTime: "2026-11-20T08:00:00Z" };
  const texts = recordingTexts(recordingRow({ metadata: METADATA, spec, status }));
  assertFinds(texts, ["thing", "bob ada", "audited", "ticket", "failed", "space", "2026"], ["true", "7777", "virtualmachines"]);
});

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

test("objects follow their watch", () => {
  const objects = new Objects((each) => each.good !== false);
  const names = () => objects.all.map((each) => each.metadata.name);
  objects.apply({ type: "RESET", items: [object("a"), object("b", { good: false })] });
  assert.deepEqual(names(), ["a"]);
  objects.apply({ type: "ADDED", object: object("c") });
  objects.apply({ type: "MODIFIED", object: object("a", { good: false }) });
  assert.deepEqual(names(), ["c"]);
  objects.apply({ type: "DELETED", object: object("c") });
  objects.apply({ type: "DELETED", object: object("never") });
  assert.deepEqual(names(), []);
});

test("names in paths are encoded", () => {
  assert.equal(listPath("consolesessions"), "/apis/console.twisted-exec.dev/v1alpha1/consolesessions");
  assert.equal(
    itemPath("consolerecordings", "a/b", "x?y", "content"),
    "/apis/console.twisted-exec.dev/v1alpha1/namespaces/a%2Fb/consolerecordings/x%3Fy/content",
  );
});

test("a session says who is connected, how, and who is away", () => {
  const row = sessionRow({
    metadata: { namespace: "default", name: "vm-1-x", uid: "u", creationTimestamp: "2026-11-20T08:00:00Z" },
    spec: { user: "ada", caller: "proxy", machine: "vm-1", mode: "TakeOver" },
    status: { role: "Writer", resumable: true, awaySince: "2026-11-20T08:10:00Z" },
  });
  assert.deepEqual([row.mode, row.role, row.caller, row.isResumable], ["take over", "writer", "proxy", true]);
  assert.equal(row.away, "2026-11-20T08:10:00Z");
  const bare = sessionRow(object("y"));
  assert.deepEqual([bare.user, bare.role, bare.away, bare.toMachine], ["", "", "", 0]);
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
  assert.equal(healthOf(machine("True")).isHealthy, true);
  assert.equal(healthOf(machine("Unknown")), null);
  assert.equal(healthOf({}), null);
});

test("a recording has the state that kubectl shows", () => {
  const state = (spec, status, metadata = {}) => stateOf({ spec, status, metadata });
  assert.equal(state({}, undefined), "Pending");
  assert.equal(state({}, { phase: "Recording" }), "Recording");
  assert.equal(state({ ended: true }, { phase: "Recording" }), "Ending");
  assert.equal(state({}, { phase: "Recording" }, { deletionTimestamp: "x" }), "Ending");
  assert.equal(state({ ended: true }, { phase: "Closed" }), "Closed");
  const row = recordingRow(object("r", { spec: { user: "ada", users: ["ada", "bob"] }, status: { firstOffset: 10, endOffset: 30 } }));
  assert.deepEqual([row.users, row.bytes, row.isPlayable], [["ada", "bob"], 20, true]);
  assert.equal(recordingRow(object("r")).isPlayable, false);
});

const CAST = [
  '{"version":3,"term":{"cols":80,"rows":24},"timestamp":1763800000}',
  '# recording {"epoch":"92b268f5cee64f1a","first":2,"format":1,"id":"x","time":1763800000000}',
  "# block 0 aa",
  '# head {"block":0,"closed":false,"offset":2,"time":1763800001000} SIG==',
  '# at {"cols":80,"offset":2,"rows":24,"salt":"s","time":1763800000000}',
  '[1.000, "o", "one"]',
  "# raw //8=",
  '[0.500, "o", "\ufffd\ufffd"]',
  '[100.000, "m", "join ada"]',
  '[2.000, "o", "two"]',
  "# block 1 bb",
  '# head {"block":1,"closed":true,"offset":10,"time":1763800200000} SIG==',
];

test("an asciicast is read as far as its lines are complete", () => {
  const cast = parseCast(CAST.join("\n") + "\n");
  assert.deepEqual(cast.events.map(([, code]) => code), ["o", "o", "m", "o"]);
  assert.deepEqual(
    [cast.begin, cast.firstOffset, cast.endOffset, cast.blocks, cast.heads, cast.isClosed, cast.notText],
    [1763800000000, 2, 10, 2, 2, true, 1],
  );
  const part = parseCast(CAST.slice(0, 7).join("\n") + '\n[0.500, "o", "cut');
  assert.equal(part.events.length, 1);
  assert.equal(part.isClosed, false);
});

test("damaged lines are left out, and another format is refused", () => {
  const damaged = [CAST[0], "[1", '["x","o","y"]', '[-1,"o","y"]', "[1]", "# head nonsense", "# at", "#", '[1,"o","good"]', ""].join("\n");
  assert.deepEqual(parseCast(damaged).events, [[1, "o", "good"]]);
  for (const text of ["", "no newline", "<html>\n", '{"version":2,"term":{"cols":80,"rows":24}}\n', '{"version":3,"term":{"cols":1e9,"rows":24}}\n']) {
    assert.throws(() => parseCast(text), SyntaxError, text);
  }
});

test("positions of the player and times of the recording convert, with idle time skipped", () => {
  const { events } = parseCast(CAST.join("\n") + "\n");
  const timeline = new Timeline(events, 2);
  assert.equal(timeline.length, 103.5);
  assert.equal(timeline.playLength, 5.5);
  assert.deepEqual(timeline.marks, [{ position: 3.5, at: 101.5, label: "join ada", code: "m" }]);
  assert.equal(timeline.position(101.5), 3.5);
  assert.equal(timeline.position(50), 3.5);
  assert.equal(timeline.position(9999), 5.5);
  assert.equal(timeline.at(3.5), 101.5);
  assert.equal(timeline.at(1.25), 1.25);
  assert.equal(timeline.at(4.5), 102.5);
  const whole = new Timeline(events, Infinity);
  assert.equal(whole.position(50), 50);
  assert.equal(new Timeline([], 2).at(3), 3);
});

test("the page never claims that a recording is verified", () => {
  const cast = parseCast(CAST.join("\n") + "\n");
  const closed = proofOf(object("r"), cast, true);
  assert.match(closed.sentences.join(" "), /says that the recording is closed.*does not verify signatures/);
  assert.equal(closed.command, "twisted-exec recording verify r --namespace default --ca CA.crt");
  assert.match(proofOf(object("r"), cast, false).sentences.join(" "), /Only the first part is loaded/);
  assert.match(proofOf(object("r"), parseCast(CAST.slice(0, 6).join("\n") + "\n"), true).sentences[0], /not closed/);
  assert.match(proofOf(object("r"), null, true).sentences[0], /no signed head/);
});

test("the rows of a screen are segments of one style", () => {
  assert.deepEqual(segmentsOf({ text: "plain" }), [{ text: "plain", columns: 5, style: {} }]);
  const red = { column: 2, columns: 3, text: "red", foreground: 1 };
  assert.deepEqual(segmentsOf({ text: "a red b", runs: [red] }).map(({ text, columns }) => [text, columns]), [
    ["a ", 2], ["red", 3], [" b", 2],
  ]);
  const wide = { column: 4, columns: 2, text: "漢", bold: true };
  assert.deepEqual(segmentsOf({ text: "漢字漢.", runs: [wide] }).map(({ text, columns }) => [text, columns]), [
    ["漢字", 4], ["漢", 2], [".", 1],
  ]);
  assert.deepEqual(segmentsOf({ text: "aa", runs: [{ column: 1, columns: 1, text: "a" }] }).map(({ text }) => text), ["a", "a"]);
  assert.deepEqual(segmentsOf({}), []);
});

test("characters that reorder or hide text take one visible column of a screen", () => {
  assert.deepEqual(segmentsOf({ text: "a\u202eb\u200b" })[0], { text: "a\ufffdb\ufffd", columns: 4, style: {} });
});

test("a screen has a bounded size", () => {
  const screen = screenOf({ columns: 1e9, rows: 1e9, lines: Array(1000).fill({ text: "" }), offset: 5 });
  assert.deepEqual([screen.columns, screen.rows, screen.lines.length, screen.offset], [400, 200, 200, 5]);
  assert.equal(screenOf({}).cursor.visible, false);
});

test("a quiet screen is read less often", () => {
  assert.equal(nextWait(15, true), 1);
  assert.equal(nextWait(2, false), 3);
  assert.equal(nextWait(14, false), 15);
});
