/** The filter and the namespaces above a list. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { matches, namespacesOf } from "../../../../twisted_exec/web/page/views/filter.js";
import { rowOf, textsOf } from "../../../../twisted_exec/web/page/views/machine_rows.js";
import { machine } from "../fakes.mjs";

const KIND = { plural: "machines" };

test("each word of a filter must be in one of the columns", () => {
  const row = rowOf(machine("db-1", { line: "Kernel panic" }), KIND);
  assert.ok(matches(textsOf(row), ""));
  assert.ok(matches(textsOf(row), "panic DB"));
  assert.ok(!matches(textsOf(row), "panic web"));
});

test("namespaces are separated by commas or blanks; none are all", () => {
  assert.deepEqual(namespacesOf(" a, b a"), ["a", "b"]);
  assert.deepEqual(namespacesOf(""), [""]);
  assert.deepEqual(namespacesOf("*"), [""]);
});
