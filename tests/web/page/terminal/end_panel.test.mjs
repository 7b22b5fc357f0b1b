/** The panel over a terminal, in a document in memory. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Machines } from "../../../../twisted_exec/web/page/machines.js";
import { machineLink } from "../../../../twisted_exec/web/page/routes.js";
import { EndPanel } from "../../../../twisted_exec/web/page/terminal/end_panel.js";
import { install } from "../dom.mjs";

install();

const KIND = { group: "compute.ironcore.dev", version: "v1alpha1", plural: "machines", subresources: ["log", "screen"] };
const OFF = { state: "Shutdown", problem: "powered off", runs: false };
const RUNNING = { state: "Running", problem: "", runs: true };
const DELETED = { reason: "MachineDeleted", code: 0, message: 'machine "vm" was deleted' };
const MISSING = { reason: "NotFound", code: 404, message: 'machines "vm" not found', kind: "machines" };

function panel(ending) {
  const opened = [];
  const made = new EndPanel({
    context: { machines: new Machines([KIND]), link: machineLink },
    place: { namespace: "default", name: "vm" },
    isActive: true,
    reopen: (changes) => opened.push(changes),
    focus: () => {},
  });
  made.show(ending, { drives: true }, false);
  const labels = () => [...made.element.all("button"), ...made.element.all("a")].filter((each) => !each.hidden).map((each) => each.text);
  return { made, opened, labels };
}

test("a console whose machine is off shows why, leads to its log and screen, and opens when it starts", () => {
  const { made, opened, labels } = panel({ reason: "PoweredOff", code: 0, message: 'machine "vm" was powered off' });
  assert.ok(made.followsMachine);
  assert.match(made.element.text, /not running.*"vm" was powered off/);
  assert.deepEqual(labels(), ["Open again", "Log", "Screen"]);
  made.follow(OFF, false);
  assert.deepEqual(labels(), ["Log", "Screen"]);
  assert.match(made.element.text, /Shutdown: powered off\. .*opens as soon as/);
  made.follow(RUNNING, true);
  assert.equal(opened.length, 1);
  made.hide();
  made.follow(RUNNING, true);
  assert.equal(opened.length, 1);
});

test("a console does not open by itself at a machine that runs already", () => {
  const { made, opened, labels } = panel({ reason: "Conflict", code: 409, message: "" });
  made.follow(RUNNING, false);
  assert.deepEqual([opened.length, labels()[0]], [0, "Open again"]);
});

test("a console opens at another machine of the same name only if the user wants that", () => {
  for (const ending of [DELETED, MISSING]) {
    const { made, opened, labels } = panel(ending);
    assert.ok(made.followsMachine);
    assert.ok(!labels().includes("Open again"));
    assert.equal(labels().includes("Log"), ending === DELETED);
    made.follow(OFF, false);
    made.follow(RUNNING, true);
    assert.equal(opened.length, 0);
    assert.ok(labels().includes("Open again"));
    made.follow(null, false);
    assert.ok(!labels().includes("Open again"));
  }
});

test("other endings have nothing to do with the machine", () => {
  const { made, labels } = panel({ reason: "SessionDeleted", code: 0, message: "ada deleted it" });
  assert.ok(!made.followsMachine);
  assert.deepEqual(labels(), ["Open again"]);
});
