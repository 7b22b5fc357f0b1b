/** The line below a terminal, in a document in memory. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { StatusLine } from "../../../../twisted_exec/web/page/terminal/status_line.js";
import { install } from "../dom.mjs";

install();

const WRITER = { isObserver: false, isDenied: false, writer: "" };

function line(waiting) {
  const made = new StatusLine({}, { namespace: "default", name: "vm" }, { reconnect: () => {}, waiting: () => waiting });
  made.role(WRITER, true);
  made.state("open", { resumable: true });
  made.viewers({ count: 1, writer: "ada", seconds: 0, recordings: [{ user: "ada", input: "none" }] });
  made.stop();
  const shown = () => made.element.children.filter((each) => !each.hidden).map((each) => each.text).filter(Boolean);
  return { made, shown };
}

test("an outage is no time to type or to count viewers: the line says what becomes of keys", () => {
  const { made, shown } = line(3);
  assert.deepEqual(shown(), ["Connected", "You can type", "Recordedfor ada (input: none)", "1 viewer", "Details"]);
  made.state("reconnecting", { since: Date.now() });
  assert.deepEqual(shown(), ["Connection lost for 0s", "Reconnect now", "3 keys wait to be sent after the reconnection", "Details"]);
  made.state("connecting", { since: Date.now(), drops: true });
  assert.deepEqual(shown(), ["Server stopped for 0s", "Reconnect now", "3 keys will not be sent", "Details"]);
  made.state("resumed", { seconds: 1, missed: 0 });
  assert.deepEqual(shown().slice(1, 2), ["You can type"]);
  made.state("ended", { reason: "Forbidden", code: 403 });
  assert.deepEqual(shown(), ["No session", "Details"]);
});

test("a session that is not open yet takes no keys: the line says how many wait for it, but not to an observer", () => {
  const { made, shown } = line(2);
  made.state("connecting", {});
  assert.deepEqual(shown(), ["Connecting", "2 keys wait for the connection", "Details"]);
  made.role({ ...WRITER, isObserver: true }, true);
  assert.deepEqual(shown(), ["Connecting", "Details"]);
});

test("a server that is silent is not connected, until it answers", () => {
  const { made, shown } = line(1);
  made.quiet(Date.now() - 6000);
  assert.deepEqual(shown().filter((each) => each !== "Recordedfor ada (input: none)"), ["No answer for 6s", "1 key waits for the answer", "Details"]);
  made.quiet(null);
  assert.deepEqual(shown().slice(0, 2), ["Connected", "You can type"]);
});
