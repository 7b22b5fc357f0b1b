/** Rows, filters, routes, texts and storage of the page. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { printable } from "../../../twisted_exec/web/page/dom.js";
import { machineLink, parse } from "../../../twisted_exec/web/page/routes.js";
import { Store } from "../../../twisted_exec/web/page/store.js";
import { matches, namespacesOf } from "../../../twisted_exec/web/page/views/filter.js";
import { Rows, order, rowOf, textsOf } from "../../../twisted_exec/web/page/views/machine_rows.js";

const KIND = { plural: "machines" };

function machine(name, { state = "Running", ready = "True", message = "", line = "" } = {}) {
  return {
    metadata: { name, namespace: "default", uid: `uid-${name}` },
    spec: { machinePoolRef: { name: "rack-7" } },
    status: {
      state,
      conditions: [
        { type: "Ready", status: ready, message },
        { type: "ConsoleOutput", status: "True", message: line },
      ],
    },
  };
}

test("a row has the state, the pool and the last line", () => {
  const row = rowOf(machine("vm-1", { line: "login:" }), KIND);
  assert.deepEqual(
    [row.name, row.state, row.health, row.pool, row.line, row.problem],
    ["vm-1", "Running", "good", "rack-7", "login:", ""],
  );
});

test("a machine that runs but is not ready says why", () => {
  const row = rowOf(machine("vm-1", { ready: "False", message: "the line is lost" }), KIND);
  assert.deepEqual([row.health, row.problem], ["bad", "the line is lost"]);
});

test("a machine without a status is a row", () => {
  assert.equal(rowOf({ metadata: { name: "a" } }, KIND).state, "Unknown");
});

test("each word of a filter must be in one of the columns", () => {
  const row = rowOf(machine("db-1", { line: "Kernel panic" }), KIND);
  assert.ok(matches(textsOf(row), ""));
  assert.ok(matches(textsOf(row), "panic DB"));
  assert.ok(!matches(textsOf(row), "panic web"));
});

test("rows are in natural order", () => {
  const rows = ["vm-10", "vm-9", "vm-1"].map((name) => rowOf(machine(name), KIND));
  assert.deepEqual(rows.sort(order("name", false)).map((row) => row.name), ["vm-1", "vm-9", "vm-10"]);
  assert.deepEqual(rows.sort(order("name", true)).map((row) => row.name), ["vm-10", "vm-9", "vm-1"]);
});

test("rows follow the events of their watches", () => {
  const rows = new Rows();
  rows.apply("a", KIND, { type: "RESET", items: [machine("vm-1"), machine("vm-2")] });
  rows.apply("b", KIND, { type: "RESET", items: [machine("vm-3")] });
  rows.apply("a", KIND, { type: "MODIFIED", object: machine("vm-1", { state: "Shutdown" }) });
  rows.apply("a", KIND, { type: "DELETED", object: machine("vm-2") });
  rows.apply("a", KIND, { type: "ADDED", object: machine("vm-4") });
  const shown = rows.select("", order("name", false)).map((row) => `${row.name} ${row.state}`);
  assert.deepEqual(shown, ["vm-1 Shutdown", "vm-3 Running", "vm-4 Running"]);
  rows.apply("a", KIND, { type: "RESET", items: [] });
  assert.equal(rows.size, 1);
});

test("namespaces are separated by commas or blanks; none are all", () => {
  assert.deepEqual(namespacesOf(" a, b a"), ["a", "b"]);
  assert.deepEqual(namespacesOf(""), [""]);
  assert.deepEqual(namespacesOf("*"), [""]);
});

test("routes name a view, a machine and its part", () => {
  assert.equal(parse("").view, "machines");
  assert.equal(parse("#/sessions").view, "sessions");
  assert.equal(parse("#/../../etc").view, "machines");
  for (const hash of ["#/machines/../vm", "#/machines/a/%2e%2e/logs", "#/recordings/./x"]) {
    assert.deepEqual(Object.keys(parse(hash).parameters), ["query"], hash);
  }
  const { view, parameters } = parse("#/machines/team%2Fa/vm-1/logs?boot=-1");
  assert.deepEqual([view, parameters.namespace, parameters.name], ["logs", "team/a", "vm-1"]);
  assert.equal(parameters.query.get("boot"), "-1");
  assert.equal(parse(machineLink("a b", "vm-1")).parameters.namespace, "a b");
  assert.equal(parse("#/machines/a/%E0%A4%A").view, "console");
});

test("a text with controls, bidi marks or invisible characters is shown with escapes", () => {
  assert.equal(printable("a\u001b[31m\u202eb"), "a\\x1b[31m\\u202eb");
  assert.equal(printable("a\u200b\u{e0041}\n"), "a\\u200b\\u{e0041}\\x0a");
  assert.equal(printable("Zürich 日本 👍🏽"), "Zürich 日本 👍🏽");
  assert.equal(printable("<b>\ud800"), "<b>\\ud800");
});

test("a storage that is full or broken costs only the memory", () => {
  const items = new Map();
  const storage = {
    getItem: (key) => items.get(key) ?? null,
    setItem: (key, value) => items.set(key, value),
    removeItem: (key) => items.delete(key),
  };
  const store = new Store(storage);
  store.set("a", { b: 1 });
  assert.deepEqual(store.get("a"), { b: 1 });
  assert.equal(store.get("none", 7), 7);
  items.set("twisted-exec.a", "{");
  assert.equal(store.get("a"), null);
  const full = new Store({ setItem: () => { throw new Error("QuotaExceeded"); } });
  assert.equal(full.set("a", 1), false);
  assert.equal(full.get("a", "b"), "b");
});
