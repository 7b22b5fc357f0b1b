/** Marks of a console, in a document in memory. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { install } from "../dom.mjs";

install();
const { Marks } = await import("../../../../twisted_exec/web/page/terminal/marks.js");

const LOG = "#/machines/default/vm-1/logs";
const SICK = { isHealthy: false, reason: "KernelPanic", message: "not syncing: \u202e", offset: 12 };

/** The marks in the tab that are seen: what a screen reader says, and the title. */
const seen = (marks) => marks.tab.filter((each) => !each.hidden).map((each) => [each.text, each.title]);

test("a machine that is not healthy has a mark that leads to the line in its log", () => {
  const marks = new Marks();
  marks.showHealth(SICK, LOG);
  const title = "KernelPanic: not syncing: \\u202e";
  assert.deepEqual(seen(marks), [["KernelPanic ", title]]);
  const { hidden, text, href } = marks.health;
  assert.deepEqual([hidden, text, href, marks.health.title], [false, "KernelPanic", `${LOG}?offset=12`, title]);
  for (const [health, log] of [[{ ...SICK, offset: null }, LOG], [SICK, ""]]) {
    marks.showHealth(health, log);
    assert.equal(marks.health.href, "#/alerts"); // no line is known, or no log
  }
  for (const health of [{ isHealthy: true }, null, undefined]) {
    marks.showHealth(SICK, LOG);
    marks.showHealth(health, LOG);
    assert.deepEqual([seen(marks), marks.health.hidden], [[], true]);
  }
});

test("a tab has the mark of a machine that does not run, or of a session that has ended, and not both", () => {
  const marks = new Marks();
  marks.showEnd(true);
  assert.deepEqual(seen(marks), [["No session ", "No session"]]);
  marks.showMachine({ state: "Shutdown" });
  assert.deepEqual(seen(marks), [["Shutdown ", "Machine: Shutdown"]]);
  marks.showMachine({ state: "Running" });
  assert.deepEqual(seen(marks), [["No session ", "No session"]]);
  marks.showEnd(false);
  marks.showMachine(null);
  assert.deepEqual(seen(marks), []);
});

test("a tab has the mark of a lost connection beside the others", () => {
  const marks = new Marks();
  marks.showHealth(SICK, LOG);
  marks.showAway(true);
  assert.deepEqual(seen(marks).map(([text]) => text), ["KernelPanic ", "No connection "]);
  marks.showAway(false);
  assert.equal(seen(marks).length, 1);
});

test("the note of a machine has each line for itself, and says how many a low window does not show", () => {
  const marks = new Marks();
  const lines = () => marks.banner.children.map((each) => each.text);
  marks.showBanner("Ask first\nthen type\n\x1b");
  assert.deepEqual([lines(), marks.banner.firstChild["data-more"]], [["Ask first", "then type", "\\x1b"], "+2 lines"]);
  marks.showBanner("Ask first\nthen type");
  assert.equal(marks.banner.firstChild["data-more"], "+1 line");
  marks.showBanner("Ask first");
  assert.deepEqual([lines(), marks.banner.firstChild["data-more"], marks.banner.hidden], [["Ask first"], undefined, false]);
  marks.showBanner("");
  assert.ok(marks.banner.hidden);
});
