/** Messages over a terminal, in a document in memory. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { install } from "../dom.mjs";

install();
const { MESSAGE_MILLISECONDS, MessageBox, SETTLED_MILLISECONDS } = await import("../../../../twisted_exec/web/page/terminal/message_box.js");
const { anewMessages, lostText } = await import("../../../../twisted_exec/web/page/terminal/texts.js");

const RECORDED = "This console is recorded for ada (input: masked).";
const NOT_RECORDED = "This console is not recorded any more.";
const ENDING = { reason: "NotFound", unconfirmed: { sent: 0, unsent: 0 } };
const LOST_KEYS = { ...ENDING, unconfirmed: { sent: 4, unsent: 0 } };
const ANEW = "The session before is over. This is a new session.";
const loss = (writer) => lostText({ isDenied: false, writer, isOwn: false });

/** A box whose timers the test turns. */
function messageBox(t, { place = {}, panel = { isConnecting: false, warn: () => {} } } = {}) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const announced = [];
  const closed = [];
  const box = new MessageBox(place, panel, { moved: () => {}, announce: (text) => announced.push(text), closed: () => closed.push(place.closed) });
  const wait = (milliseconds = MESSAGE_MILLISECONDS) => t.mock.timers.tick(milliseconds);
  const close = () => box.element.all("button")[0].click();
  /** The texts that the user sees: of the message, and of what passes below it. */
  const lines = () => (box.element.hidden ? [] : box.element.children[0].children);
  const seen = () => lines().map((each) => each.text);
  const times = () => lines().map((each) => each["data-time"]);
  return { box, announced, closed, wait, close, seen, times };
}

test("a message passes, and a warning stays until its user closes it", (t) => {
  const { box, announced, wait, close, seen, times } = messageBox(t);
  box.tell("BREAK sent.", "");
  assert.deepEqual([seen(), box.isWarned, times()], [["BREAK sent."], false, [""]]);
  wait();
  assert.deepEqual(seen(), []);
  box.tell("One key was lost.", "warning");
  assert.deepEqual([box.isWarned, box.element.className], [true, "message warning"]);
  assert.match(times()[0], /\d\d:\d\d/);
  wait();
  assert.deepEqual(seen(), ["One key was lost."]);
  close();
  assert.deepEqual([seen(), box.isWarned], [[], false]);
  assert.deepEqual(announced, ["BREAK sent.", "One key was lost."]);
});

test("each message has its own time, below a warning, too", (t) => {
  const { box, wait, seen } = messageBox(t);
  box.tell("first", "");
  wait(MESSAGE_MILLISECONDS - 1);
  box.tell("second", "");
  wait(1);
  assert.deepEqual(seen(), ["second"]);
  box.tell("a warning", "warning");
  wait();
  box.tell("third", "");
  wait(MESSAGE_MILLISECONDS - 1);
  box.tell("fourth", "");
  wait(1);
  assert.deepEqual(seen(), ["a warning", "fourth"]);
  wait();
  assert.deepEqual(seen(), ["a warning"]);
  box.tell("another warning", "error");
  assert.deepEqual(seen(), ["another warning"]);
});

test("no control character of a message is shown", (t) => {
  const { box, seen } = messageBox(t);
  box.tell("\u202e", "");
  assert.deepEqual(seen(), ["\\u202e"]);
});

test("the newest message before the first screen waits for it, and the panel has warnings meanwhile", (t) => {
  const warnings = [];
  const panel = { isConnecting: true, warn: (text) => warnings.push(text) };
  const { box, announced, seen } = messageBox(t, { panel });
  box.tell("passes", "");
  box.tell("a warning", "warning");
  box.tell("passes, too", "");
  assert.deepEqual([seen(), announced, warnings], [[], [], ["a warning"]]);
  panel.isConnecting = false;
  box.release();
  assert.deepEqual(seen(), ["a warning"]);
  box.release();
  assert.deepEqual(announced, ["a warning"]);
});

test("a message that is no longer true is taken back where it is, and no other", (t) => {
  const panel = { isConnecting: false, warn: () => {} };
  const { box, seen, wait } = messageBox(t, { panel });
  const first = box.tell("the same", "warning");
  box.tell("the same", "warning");
  box.takeBack(first);
  assert.deepEqual(seen(), ["the same"]);
  const below = box.tell("below", "");
  box.takeBack(below);
  assert.deepEqual(seen(), ["the same"]);
  panel.isConnecting = true;
  const held = box.tell("held", "warning");
  box.takeBack(held);
  panel.isConnecting = false;
  box.release();
  box.takeBack(null);
  assert.deepEqual(seen(), ["the same"]);
  const warning = box.tell("a warning", "warning");
  box.tell("below", "");
  box.takeBack(warning);
  assert.deepEqual([seen(), box.isWarned], [["below"], false]);
  wait();
  assert.deepEqual(seen(), []);
});

test("what is in sight is told only once", (t) => {
  const { box, announced } = messageBox(t);
  box.tellOnce("not sent");
  box.tellOnce("not sent");
  box.tell("a warning", "warning");
  box.tellOnce("not sent");
  box.tellOnce("not sent");
  assert.deepEqual(announced, ["not sent", "a warning", "not sent"]);
});

test("the warning of a lost role names the writer of now, and goes when its user types again", (t) => {
  const { box, announced, seen } = messageBox(t);
  box.show({ loss: loss("bob"), kind: "warning" });
  box.renewLoss(loss("bob"));
  assert.equal(announced.length, 1);
  box.renewLoss(loss("$& carol"));
  assert.deepEqual(seen(), [loss("$& carol")]);
  box.endAboutRole();
  assert.deepEqual(seen(), []);
  box.renewLoss(loss("dora"));
  assert.deepEqual(seen(), []); // closed is closed
});

test("a warning that says more than the role stays with the writer of now", (t) => {
  const { box, seen } = messageBox(t);
  for (const each of anewMessages(ENDING, { loss: loss("bob"), recorded: RECORDED })) box.show(each);
  assert.deepEqual(seen(), [`${ANEW} ${loss("bob")}`, RECORDED]);
  box.renewLoss(loss("carol"));
  box.endAboutRole();
  assert.deepEqual(seen(), [`${ANEW} ${loss("carol")}`]);
  box.leaveRole();
  assert.deepEqual(seen(), []);
});

test("lost keys stay in other warnings, also when these are no longer true, until the user closes the message", (t) => {
  const { box, close, seen } = messageBox(t);
  const keys = "3 keys may not have reached the machine.";
  box.tellKeys([{ at: 1, text: keys }]);
  box.show({ loss: loss("bob"), kind: "warning" });
  assert.deepEqual(seen(), [keys, loss("bob")]);
  box.endAboutRole();
  assert.deepEqual([seen(), box.isWarned], [[keys], true]);
  const warning = box.tell("a warning", "warning");
  box.tell("below", "");
  box.takeBack(warning);
  assert.deepEqual(seen(), [keys, "below"]);
  box.show({ refusal: "You go on observing: no", kind: "error" });
  box.leaveRole();
  box.endSession();
  assert.deepEqual(seen(), [keys]);
  close();
  box.tell("a warning", "warning");
  assert.deepEqual(seen(), ["a warning"]);
});

test("a user who changes the role keeps a warning about another subject", (t) => {
  const { box, seen } = messageBox(t);
  box.tell("passes", "");
  box.leaveRole();
  assert.deepEqual(seen(), []);
  box.show({ refusal: "You go on observing: no", kind: "error" });
  box.renewLoss(loss("bob"));
  assert.deepEqual(seen(), ["You go on observing: no"]);
  box.leaveRole();
  assert.deepEqual(seen(), []);
  box.tell("4 keys were lost.", "warning");
  box.leaveRole();
  box.endAboutRole();
  assert.deepEqual(seen(), ["4 keys were lost."]);
});

test("after the end of a session only warnings stay, without those about its roles", (t) => {
  const panel = { isConnecting: false, warn: () => {} };
  const { box, seen } = messageBox(t, { panel });
  box.show({ loss: loss("bob"), kind: "warning" });
  box.tell("below", "");
  box.endSession();
  assert.deepEqual(seen(), []);
  box.tell("passes", "");
  box.endSession();
  assert.deepEqual(seen(), []);
  box.tell("a warning", "warning");
  box.tell("below", "");
  panel.isConnecting = true;
  box.tell("held", "");
  box.endSession();
  panel.isConnecting = false;
  box.release();
  assert.deepEqual(seen(), ["a warning"]);
});

test("a message about a new session stays with what is true of recordings now", (t) => {
  const { box, seen } = messageBox(t);
  const [content] = anewMessages(ENDING, { loss: "", recorded: RECORDED });
  box.remember("recordings", RECORDED);
  box.show(content);
  assert.deepEqual(seen(), [`${ANEW} ${RECORDED}`]);
  box.tellRecordings(NOT_RECORDED);
  assert.deepEqual(seen(), [`${ANEW} ${NOT_RECORDED}`]);
  box.tell("other", "");
  box.tellRecordings(RECORDED);
  box.tellRecordings(NOT_RECORDED);
  assert.deepEqual(seen(), [NOT_RECORDED]);
});

test("a warning about a new session keeps its text when a recording ends", (t) => {
  const { box, seen } = messageBox(t);
  for (const each of anewMessages(LOST_KEYS, { loss: loss("bob"), recorded: RECORDED })) box.show(each);
  box.tellRecordings(NOT_RECORDED);
  assert.deepEqual(seen(), [loss("bob"), NOT_RECORDED]);
});

test("what the user has closed does not come again after a reload; what is new does", (t) => {
  const place = {};
  const before = messageBox(t, { place });
  before.box.tellRecordings(RECORDED);
  before.close();
  assert.deepEqual(before.closed, [{ recordings: RECORDED }]);
  t.mock.timers.reset();
  const { box, seen } = messageBox(t, { place });
  box.tellFact("role", "you only observe", { text: "you only observe" });
  assert.deepEqual(seen(), ["you only observe"]);
  box.tellRecordings(RECORDED);
  assert.deepEqual(seen(), ["you only observe"]);
  box.tellRecordings(NOT_RECORDED);
  assert.deepEqual(seen(), [NOT_RECORDED]);
  box.tellRecordings(RECORDED);
  assert.deepEqual(seen(), [RECORDED]); // again, and not only still
});

test("what an approver has said precedes messages of the first seconds", (t) => {
  const { box, announced, wait, seen } = messageBox(t);
  box.tellApproval("bob has approved it");
  assert.deepEqual([seen(), announced], [["bob has approved it."], ["bob has approved it."]]);
  box.tellFact("role", "You observe.", { text: "You observe." });
  assert.deepEqual([seen(), announced.at(-1)], [["bob has approved it. You observe."], "You observe."]);
  box.show({ loss: loss("bob"), kind: "warning" });
  box.renewLoss(loss("carol"));
  assert.deepEqual(seen(), [`bob has approved it. ${loss("carol")}`]);
  wait();
  box.tell("later", "");
  assert.deepEqual(seen().at(-1), "later");
});

test("an approval that follows another one has its own time", (t) => {
  const { box, wait, seen } = messageBox(t);
  box.tellApproval("bob has approved it");
  wait(MESSAGE_MILLISECONDS - 1);
  box.tellApproval("carol has approved it");
  wait(1);
  box.tell("You observe.", "");
  assert.deepEqual(seen(), ["carol has approved it. You observe."]);
});

test("an approval before the first screen is seen with it, however late that comes", (t) => {
  const panel = { isConnecting: true, warn: () => {} };
  const { box, wait, seen } = messageBox(t, { panel });
  box.tellApproval("bob has approved it");
  wait();
  panel.isConnecting = false;
  box.release();
  assert.deepEqual(seen(), ["bob has approved it."]);
});

test("the log is named only in the message about output that was skipped", (t) => {
  const { box, seen } = messageBox(t);
  const LOG = "The log has all that was stored.";
  const message = box.tell("2 KiB of output was skipped.", "warning");
  const below = box.tell("1 KiB of output was skipped.", "");
  box.addLog(message, "#/log");
  box.addLog(below, "#/log");
  assert.deepEqual(seen(), [`2 KiB of output was skipped. ${LOG}`, `1 KiB of output was skipped. ${LOG}`]);
  assert.deepEqual(box.element.all("a").map(({ href }) => href), ["#/log", "#/log"]);
  const late = box.tell("3 KiB of output was skipped.", "");
  box.tell("BREAK sent.", "");
  box.addLog(late, "#/log");
  assert.deepEqual(seen().at(-1), "BREAK sent.");
  const lateWarning = box.tell("4 KiB of output was skipped.", "warning");
  box.tell("a warning", "warning");
  box.addLog(lateWarning, "#/log");
  assert.deepEqual(seen(), ["a warning"]);
});

test("a console that is closed has no timers", (t) => {
  const { box, wait, seen } = messageBox(t);
  box.tellApproval("bob has approved it");
  box.stop();
  wait();
  assert.deepEqual(seen(), ["bob has approved it."]);
});

test("each line has its own time, which no later event changes", (t) => {
  const { box, seen, times } = messageBox(t);
  t.mock.timers.reset();
  const at = (minute) => new Date(2026, 1, 2, 20, minute).getTime();
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: at(13) });
  const first = { at: at(13), text: "4 keys typed before the machine started again were discarded." };
  box.tellKeys([first]);
  t.mock.timers.setTime(at(14));
  box.show({ loss: loss("bob"), kind: "warning" });
  t.mock.timers.setTime(at(15));
  box.tellKeys([first, { at: at(15), text: "2 keys typed meanwhile were discarded." }]);
  t.mock.timers.setTime(at(16));
  box.tellRecordings(RECORDED);
  assert.deepEqual(seen(), [first.text, loss("bob"), "2 keys typed meanwhile were discarded.", RECORDED]);
  assert.deepEqual(times(), ["20:13", "20:14", "20:15", "20:16"]);
});

test("screen readers say how many keys were lost when their user pauses, and each loss once", (t) => {
  const { box, announced, wait, seen } = messageBox(t);
  const first = { at: 1, text: "1 key." };
  box.tellKeys([first]);
  wait(SETTLED_MILLISECONDS - 1);
  box.tellKeys([{ at: 1, text: "2 keys." }]);
  box.tellKeys([{ at: 1, text: "3 keys." }]);
  assert.deepEqual([seen(), announced], [["3 keys."], []]);
  wait(SETTLED_MILLISECONDS);
  box.tellKeys([{ at: 1, text: "3 keys." }, { at: 2, text: "other keys." }]);
  wait(SETTLED_MILLISECONDS);
  assert.deepEqual(announced, ["3 keys.", "other keys."]);
});

test("losses of keys stay beside other messages until they are none, or the user closes them", (t) => {
  const { box, close, closed, seen } = messageBox(t);
  box.tellKeys([]);
  assert.deepEqual(seen(), []);
  box.tell("passes", "");
  box.tellKeys([{ at: 1, text: "3 keys." }]);
  assert.deepEqual([seen(), box.isWarned], [["3 keys.", "passes"], true]);
  box.tellKeys([]);
  assert.deepEqual([seen(), box.isWarned], [["passes"], false]);
  box.tell("a warning", "warning");
  box.tellKeys([{ at: 1, text: "4 keys." }]);
  assert.deepEqual(seen(), ["4 keys.", "a warning"]);
  close();
  assert.deepEqual([seen(), closed.length], [[], 1]);
});

test("the panel has lost keys while the session connects", (t) => {
  const warnings = [];
  const panel = { isConnecting: true, warn: (text) => warnings.push(text) };
  const { box, seen } = messageBox(t, { panel });
  box.tell("a warning", "warning");
  box.tellKeys([{ at: 1, text: "3 keys." }]);
  assert.deepEqual([seen(), warnings], [[], ["a warning", "a warning 3 keys."]]);
  panel.isConnecting = false;
  box.release();
  assert.deepEqual(seen(), ["3 keys.", "a warning"]);
});
