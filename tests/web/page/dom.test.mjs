/** Elements, style sheets and texts of the page, with a document in memory. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { h, holdStill, loadStyles, nameLink, printable, printableLines } from "../../../twisted_exec/web/page/dom.js";
import { install } from "./dom.mjs";

install();

test("style sheets apply when they are loaded", async () => {
  const loading = loadStyles("vendor/x.css");
  const link = document.head.lastChild;
  assert.deepEqual([link.rel, link.href], ["stylesheet", "vendor/x.css"]);
  link.send("load");
  await loading;
  assert.equal(document.head.lastChild, link);
});

test("a style sheet that is missing is named, and may be loaded again", async () => {
  const before = document.head.children.length;
  const loading = loadStyles("vendor/y.css");
  document.head.lastChild.send("error");
  await assert.rejects(loading, /vendor\/y.css cannot be loaded/);
  assert.equal(document.head.children.length, before);
});

test("a text with controls, bidi marks or invisible characters is shown with escapes", () => {
  assert.equal(printable("a\u001b[31m\u202eb"), "a\\x1b[31m\\u202eb");
  assert.equal(printable("a\u200b\u{e0041}\n"), "a\\u200b\\u{e0041}\\x0a");
  assert.equal(printable("Zürich 日本 👍🏽"), "Zürich 日本 👍🏽");
  assert.equal(printable("<b>\ud800"), "<b>\\ud800");
  assert.equal(printableLines("a\tb\n\\x0a\u001bc\r\n"), "a\tb\n\\x0a\\x1bc\\x0d\n");
});

test("a link shows a long name in two parts, of which the first may be cut, and says it whole", () => {
  const link = nameLink("#/x", "edge-datacenter-a-node00004a");
  assert.deepEqual(link.children[0].children.map((each) => each.text), ["edge-datacenter-a-", "node00004a"]);
  assert.equal(link["aria-label"], "edge-datacenter-a-node00004a");
  assert.equal(nameLink("#/x", "vm-\u202e1").text, "vm-\\u202e1");
});

test("an element that holds still says when its user has paused there", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const element = h("div");
  let pauses = 0;
  holdStill(element, { dispatchEvent: () => {} }, () => pauses++);
  element.send("focus", { timeStamp: 0 });
  t.mock.timers.tick(900);
  element.send("keydown", { key: "a", timeStamp: 900 });
  t.mock.timers.tick(900);
  assert.equal(pauses, 0);
  t.mock.timers.tick(100);
  assert.equal(pauses, 1);
  element.send("focus", { timeStamp: 3000 });
  element.send("blur", {});
  t.mock.timers.tick(1000);
  assert.equal(pauses, 1); // its user has gone elsewhere
});

test("an element that holds still counts keys, and lets Tab go on only behind a pause", () => {
  const [element, missed] = [h("h2"), []];
  holdStill(element, { dispatchEvent: ({ type, bubbles }) => missed.push([type, bubbles]) });
  assert.equal(element.tabindex, "-1");
  const press = (key, timeStamp, more = {}) => {
    let isKept = true;
    element.send("keydown", { key, timeStamp, metaKey: false, preventDefault: () => (isKept = false), ...more });
    return [isKept, missed.splice(0).length];
  };
  element.send("focus", { timeStamp: 5000 });
  assert.deepEqual(press("Tab", 5500), [false, 1]);
  assert.deepEqual(press("a", 5990), [true, 1]);
  for (const time of [6900, 6980]) assert.deepEqual(press("Tab", time), [false, 1]);
  for (const key of ["a", "é", "Enter", "Backspace"]) assert.deepEqual(press(key, 7000), [true, 1]);
  for (const key of ["Shift", "Escape", "ArrowUp"]) assert.deepEqual(press(key, 7500), [true, 0]);
  assert.deepEqual(press("c", 7500, { metaKey: true }), [true, 0]);
  assert.deepEqual(press("a", 7500, { target: h("button") }), [true, 0]);
  assert.deepEqual(press("Tab", 7600), [true, 0]); // its user goes to what is below, also soon behind a key
  element.send("focus", { timeStamp: 9000 });
  assert.deepEqual(press("Tab", 9500), [false, 1]);
});
