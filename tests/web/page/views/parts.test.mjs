/** Parts that views share, with a document in memory. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { askFor, countOf, lacking, Table } from "../../../../twisted_exec/web/page/views/parts.js";
import { install } from "../dom.mjs";

install();

const rows = (count) => Array.from({ length: count }, (_, number) => ({ key: `k${number}`, name: `row ${number}` }));

function table(count) {
  const made = new Table("Things", [{ title: "Name", cell: (row) => row.name }]);
  made.update(rows(count), "There are no things.");
  const [body] = made.element.all("tbody");
  const [more] = made.element.all("button");
  return { made, body, more };
}

test("a long list is drawn in steps that the user asks for", () => {
  const { body, more } = table(450);
  assert.deepEqual([body.children.length, more.hidden, more.textContent], [200, false, "Show 200 more of 250"]);
  more.click();
  assert.deepEqual([body.children.length, more.textContent], [400, "Show 50 more of 50"]);
  more.click();
  assert.deepEqual([body.children.length, more.hidden], [450, true]);
  assert.equal(body.lastChild.text, "row 449");
});

test("an update keeps what the user has asked for", () => {
  const { made, body, more } = table(450);
  more.click();
  made.update(rows(451).reverse(), "");
  assert.equal(body.children.length, 400);
  assert.equal(body.firstChild.text, "row 450");
});

test("an update draws only cells that differ, so a click or a selection in others goes on", () => {
  const columns = ["name", "age"].map((title) => ({ title, cell: (row) => row[title] }));
  const made = new Table("Things", columns);
  made.update([{ key: "k", name: "row", age: "5s" }], "");
  const [row] = made.element.all("tbody")[0].children;
  const [name, before] = row.children;
  made.update([{ key: "k", name: "row", age: "10s" }], "");
  assert.deepEqual(row.children.map((each) => each.text), ["row", "10s"]);
  assert.deepEqual([row.children[0] === name, row.children[1] === before], [true, false]);
});

test("a short list has no button", () => {
  const { body, more } = table(200);
  assert.deepEqual([body.children.length, more.hidden], [200, true]);
});

test("the notice of a right that is lacking says what, whom to ask for which role, and the server's words", () => {
  const remedy = 'ask an administrator for the role console-log-reader in the namespace "lab"';
  const status = { details: { causes: [{ reason: "MissingRight", remedy }] } };
  const made = lacking("You may not read this log.", askFor("console-log-reader", "lab"), { message: `User "ada" cannot get: ${remedy}`, status });
  assert.deepEqual(made.children.map((each) => each.text), [
    "You may not read this log.",
    "Ask your administrator for the role “console-log-reader” in the namespace lab.",
    'User "ada" cannot get',
  ]);
});

test("a list says how many of its rows are shown", () => {
  assert.deepEqual([countOf(0, 0, "session"), countOf(1, 1, "session"), countOf(2, 2, "session")], ["0 sessions", "1 session", "2 sessions"]);
  assert.equal(countOf(1, 2, "session"), "1 of 2 sessions");
});
