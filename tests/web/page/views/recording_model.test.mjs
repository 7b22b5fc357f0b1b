/** Recordings, and the content of asciicasts. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { beginOf, inputText, isEndable, parseCast, positionOf, proofOf, rowOf as recordingRow, stateOf, textsOf as recordingTexts, Timeline, withoutKeys } from "../../../../twisted_exec/web/page/views/recording_model.js";
import { METADATA, assertFinds } from "./finding.mjs";

const object = (name, more = {}) => ({ metadata: { namespace: "default", name }, ...more });
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

test("a filter finds recordings by their columns", () => {
  const spec = { machine: "vm-1", users: ["ada", "bob"], policies: ["audited"], reason: "ticket 4", machineResource: "virtualmachines" };
  const status = { phase: "Failed", message: "no space", startTime: "2026-11-20T08:00:00Z" };
  const texts = recordingTexts(recordingRow({ metadata: METADATA, spec, status }));
  assertFinds(texts, ["thing", "bob ada", "audited", "ticket", "failed", "space", "2026"], ["true", "7777", "virtualmachines"]);
});

test("what of the input is recorded reads as a phrase, also for the filter", () => {
  assert.deepEqual(["none", "masked", "all", ""].map(inputText), ["no input", "masked input", "all input", ""]);
  assertFinds(recordingTexts(recordingRow({ metadata: METADATA, spec: { input: "none" } })), ["no input"], ["none"]);
});

test("a recording that a policy requires is ended only by users who may update policies", () => {
  const row = (policies, rights) => ({ ...recordingRow(object("r", { spec: { policies }, status: { phase: "Recording" } })), ...rights });
  assert.equal(isEndable(row([], {})), false); // the rights are not known yet
  assert.equal(isEndable(row([], { mayEnd: true, mayUpdatePolicies: false })), true);
  for (const mayUpdatePolicies of [true, false]) assert.equal(isEndable(row(["p"], { mayEnd: true, mayUpdatePolicies })), mayUpdatePolicies);
  assert.equal(isEndable({ ...row([], { mayEnd: true }), isOpen: false }), false);
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

test("a problem of a recording that goes on is a warning", () => {
  const row = (phase, message) => recordingRow(object("r", { spec: {}, status: { phase, message } }));
  const kinds = ({ kind, message, severity }) => [kind, message && severity];
  assert.deepEqual(kinds(row("Recording")), ["recorded", ""]);
  assert.deepEqual(kinds(row("Recording", "not on disk: No space left on device")), ["waiting", "waiting"]);
  assert.deepEqual(kinds(row(undefined, "the console cannot be recorded: no certificate")), ["waiting", "waiting"]);
  assert.deepEqual(kinds(row("Closed", "it is not stored yet")), ["", "waiting"]);
  assert.deepEqual(kinds(row("Failed", "no space")), ["bad", "bad"]);
});

test("an open recording says until when it goes on, and its size as the content has it", () => {
  const status = { phase: "Recording", firstOffset: 2, endOffset: 2 };
  const row = (spec, more = status) => recordingRow(object("r", { spec, status: more }), null);
  assert.match(row({ endsWithSessions: true }).until, /after the last session/);
  assert.match(row({}).until, /until a user ends it/);
  const closed = row({ endsWithSessions: true }, { ...status, phase: "Closed" });
  assert.deepEqual([closed.until, closed.bytes], ["", 0]);
  assert.equal(row({}).bytes, NaN);
  const loaded = recordingRow(object("r", { status }), parseCast(CAST.join("\n") + "\n"));
  assert.deepEqual([loaded.bytes, loaded.last], [8, 10]);
});

test("an asciicast is read as far as its lines are complete", () => {
  const cast = parseCast(CAST.join("\n") + "\n");
  assert.deepEqual(cast.events.map(([, code]) => code), ["o", "o", "m", "o", "o"]);
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
  assert.equal(timeline.length, 200); // with the silence at the end
  assert.equal(timeline.playLength, 7.5);
  assert.deepEqual(timeline.marks, [{ position: 3.5, at: 101.5, label: "join ada", code: "m" }]);
  assert.equal(timeline.position(101.5), 3.5);
  assert.equal(timeline.at(2.5), 51.5); // in the middle of a pause of 100 s that plays for 2 s
  assert.equal(timeline.position(51.5), 2.5);
  assert.equal(timeline.position(9999), 7.5);
  assert.equal(timeline.at(3.5), 101.5);
  assert.equal(timeline.at(1.25), 1.25);
  assert.equal(timeline.at(4.5), 102.5);
  assert.equal(timeline.text(101.5), "1:41 of 3:20 (in the bar, without idle time: 0:03 of 0:07)");
  const whole = new Timeline(events, Infinity);
  assert.equal(whole.text(101.5), "1:41 of 3:20");
  assert.equal(whole.position(50), 50);
  assert.equal(new Timeline([], 2).at(3), 3);
});

test("markers say where a size changes and where typing begins", () => {
  const events = [[1, "r", "120x40"], [1, "i", "l"], [1, "i", "s"], [20, "i", "x"], [1, "m", ""], [1, "r", "120x40"], [1, "o", "out"]];
  const marks = new Timeline([[0, "r", "80x24"], ...events], 2, "80x24").marks.map(({ at, label }) => [at, label]);
  assert.deepEqual(marks, [[1, "Resized to 120 × 40"], [2, "Input"], [23, "Input"], [24, "Marker"]]);
});

test("the user reads why no keys are shown, and what a recording lacks at its beginning", () => {
  const cast = parseCast(CAST.join("\n") + "\n");
  assert.equal(withoutKeys(cast, "none"), "input is not recorded");
  assert.equal(withoutKeys(cast, "all"), "none are recorded");
  assert.equal(withoutKeys({ ...cast, events: [[1, "i", "a"]] }, "all"), "");
  assert.match(beginOf(cast), /begins in the middle of the output/);
  for (const firstOffset of [0, null]) assert.equal(beginOf({ ...cast, firstOffset }), "");
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

test("a position is typed as seconds or with minutes and hours, and anything else is refused with examples", () => {
  for (const [typed, seconds] of /** @type {[string, number][]} */ ([["90", 90], [" 1:30 ", 90], ["1:00:30", 3630], ["1.5", 1.5]])) {
    assert.equal(positionOf(typed), seconds, typed);
  }
  for (const typed of ["abc", "-5", "", "1:", "9".repeat(400)]) {
    assert.throws(() => positionOf(typed), /^RangeError: ".*" is not a position: write 1:30, or 90 for seconds$/, typed);
  }
});
