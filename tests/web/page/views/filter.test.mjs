/** The filter and the namespaces above a list. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { matches, namespacesOf } from "../../../../twisted_exec/web/page/views/filter.js";
import { rowOf, textsOf } from "../../../../twisted_exec/web/page/views/machine_rows.js";

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
