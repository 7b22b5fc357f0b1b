/** Who takes part in a console, and what its user reads of that, with a document in memory. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { install } from "../dom.mjs";

install();
const { Attendance } = await import("../../../../twisted_exec/web/page/terminal/attendance.js");
const { MESSAGE_MILLISECONDS, MessageBox } = await import("../../../../twisted_exec/web/page/terminal/message_box.js");
const { lostText } = await import("../../../../twisted_exec/web/page/terminal/texts.js");

const WRITER = { Kind: "role", Role: "writer", Notice: "you type here" };
const observer = (writer) => ({ Kind: "role", Role: "observer", Writer: writer, Notice: `you only observe: ${writer} types here` });
const ADA = { user: "ada", input: "masked" };
const RECORDED = "This console is recorded for ada (input: masked).";
const ENDING = { reason: "NotFound", message: "", unconfirmed: { sent: 0, unsent: 0 } };
const ANEW = "The session before is over. This is a new session.";
const loss = (writer) => lostText({ isDenied: false, writer, isOwn: false });

/** The attendance at a console of ada, and the texts over its terminal. */
function attendance(t) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const box = new MessageBox({}, { isConnecting: false, warn: () => {} }, { moved: () => {}, announce: () => {}, closed: () => {} });
  const made = new Attendance(box, () => "ada");
  made.begin(false);
  const viewers = (writer, recordings = null) => made.viewersChanged({ writer, recordings, withheld: "" });
  const wait = () => t.mock.timers.tick(MESSAGE_MILLISECONDS);
  const seen = () => (box.element.hidden ? [] : box.element.children[0].children.map((each) => each.text));
  return { made, box, viewers, wait, seen };
}

test("a user who loses the role reads a warning that names the writer of now, until the role is back", (t) => {
  const { made, viewers, wait, seen } = attendance(t);
  made.read(WRITER);
  assert.deepEqual(seen(), ["You type here."]);
  viewers("ada");
  made.read(observer("bob"));
  wait();
  assert.deepEqual(seen(), [loss("bob")]);
  viewers("bob");
  viewers("carol");
  assert.deepEqual(seen(), [loss("carol")]);
  viewers("");
  assert.deepEqual(seen(), [loss(null)]); // nobody types
  made.read(WRITER);
  assert.deepEqual(seen(), ["You type here."]);
});

test("the warning names the writer of now also where a notice has named that user first", (t) => {
  const { made, viewers, seen } = attendance(t);
  made.read(WRITER);
  made.read(observer("bob"));
  viewers("bob");
  made.read(observer("carol"));
  viewers("carol");
  assert.deepEqual(seen(), [loss("carol")]);
});

test("keys that are not sent are told once beside the warning", (t) => {
  const { made, viewers, seen } = attendance(t);
  made.read(WRITER);
  made.read(observer("bob"));
  viewers("bob");
  made.read({ Kind: "discarded", Notice: "what you type is not sent: bob types here" });
  assert.deepEqual(seen(), [loss("bob")]);
});

test("what an observer reads of who types goes when another user does", (t) => {
  const { made, viewers, wait, seen } = attendance(t);
  made.begin(true);
  const free = { Kind: "role", Role: "observer", Notice: "bob has left; nobody types here now" };
  made.read(free);
  viewers("");
  assert.deepEqual(seen(), ["bob has left; nobody types here now."]);
  viewers("carol");
  assert.deepEqual(seen(), []);
  made.read({ ...free, Kind: "discarded", Notice: "what you type is not sent: carol types here", Writer: "carol" });
  viewers("carol");
  const [text] = seen();
  assert.match(text, /carol types here/);
  made.read({ Kind: "message", Notice: "the machine restarts" });
  viewers("");
  assert.deepEqual(seen(), ["The machine restarts."]); // that is true still
  wait();
});

test("a user who gives the role up has lost nothing", (t) => {
  const { made, viewers, wait, seen } = attendance(t);
  made.read(WRITER);
  viewers("ada");
  made.changesRole();
  made.read({ Kind: "role", Role: "observer", Notice: "you only observe now" });
  assert.deepEqual(seen(), ["You only observe now."]);
  wait();
  assert.deepEqual(seen(), []);
});

test("after a reconnection nobody reads that the role is what it was", (t) => {
  const { made, viewers, wait, seen } = attendance(t);
  made.read(WRITER);
  viewers("ada");
  wait();
  made.read(WRITER);
  assert.deepEqual(seen(), []);
  made.read({ Kind: "message", Notice: "the machine restarts" });
  assert.deepEqual(seen(), ["The machine restarts."]);
});

test("recordings are told when they begin and end", (t) => {
  const { made, viewers, seen } = attendance(t);
  viewers("ada", [ADA]);
  assert.deepEqual([seen(), made.recordings], [[RECORDED], [ADA]]);
  viewers("ada"); // the server does not know
  assert.deepEqual(made.recordings, [ADA]);
  viewers("ada", []);
  assert.deepEqual([seen(), made.recordings], [["This console is not recorded any more."], []]);
});

test("a session that follows another one takes its message back, and tells at once what is true of it", (t) => {
  const { made, viewers, seen } = attendance(t);
  made.follow(ENDING);
  made.tellOpening("A new session opens.", "warning");
  assert.deepEqual(seen(), ["A new session opens."]);
  made.begin(false);
  viewers("ada", [ADA]);
  assert.deepEqual([seen(), made.former], [[`${ANEW} ${RECORDED}`], null]);
  viewers("ada", []);
  assert.deepEqual(seen(), [`${ANEW} This console is not recorded any more.`]);
});

test("a user who types no longer in the session that follows reads a warning, and of recordings below it", (t) => {
  const { made, viewers, seen } = attendance(t);
  made.read(WRITER);
  viewers("ada");
  made.follow(ENDING);
  made.begin(false);
  made.read(observer("bob"));
  viewers("bob", [ADA]);
  assert.deepEqual(seen(), [`${ANEW} ${loss("bob")}`, RECORDED]);
  viewers("carol", [ADA]);
  assert.deepEqual(seen(), [`${ANEW} ${loss("carol")}`]);
  made.read(WRITER);
  viewers("");
  assert.deepEqual(seen()[0], `${ANEW} ${loss("carol")}`); // of then
});

test("a session that ends before its role is known leaves no message of the one before", (t) => {
  const { made, viewers, seen } = attendance(t);
  made.follow({ ...ENDING, reason: "WebConsoleStopped" });
  made.tellOpening("Start it again.", "warning");
  made.follow({ ...ENDING, reason: "WebConsoleStopped" });
  viewers("ada");
  assert.equal(seen().includes("Start it again."), false);
});

test("where no session follows, its message is taken back", (t) => {
  const { made, seen } = attendance(t);
  made.leaveFormer();
  made.follow({ ...ENDING, unconfirmed: { sent: 3, unsent: 0 } });
  made.tellOpening("A new session opens.", "");
  made.leaveFormer();
  assert.deepEqual([seen(), made.former], [[], null]);
});
