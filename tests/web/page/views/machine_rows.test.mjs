/** Rows of the list of machines. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Rows, order, powerChange, rowOf, usersText } from "../../../../twisted_exec/web/page/views/machine_rows.js";
import { machine } from "../fakes.mjs";

const KIND = { plural: "machines", group: "compute.ironcore.dev" };

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

test("a machine whose console is not healthy is bad, and says why", () => {
  const sick = machine("vm-1");
  sick.status.conditions.push({ type: "ConsoleHealthy", status: "False", reason: "RaidDegraded", message: 'at offset 51 the machine printed "x"' });
  const row = rowOf(sick, KIND);
  assert.deepEqual([row.health, row.isSick, row.problem, row.offset], ["bad", true, 'RaidDegraded: "x"', 51]);
  // What it printed is not why it is not ready.
  Object.assign(sick.status.conditions[0], { status: "False", message: "the line is lost" });
  assert.deepEqual([rowOf(sick, KIND).problem, rowOf(sick, KIND).offset], ["the line is lost", null]);
});

test("a machine that its user has switched off has no fault", () => {
  const off = machine("vm-1", { state: "Shutdown", ready: "False", message: "powered off, as spec.power says" });
  const { severity: unasked, problem } = rowOf(off, KIND);
  assert.deepEqual([unasked, problem], ["bad", "powered off, as spec.power says"]);
  off.spec.power = "Off";
  const row = rowOf(off, KIND);
  assert.deepEqual([row.health, row.problem], ["off", ""]);
  off.status.conditions.push({ type: "ConsoleHealthy", status: "False", reason: "Panic", message: 'at offset 5 the machine printed "x"' });
  assert.deepEqual([rowOf(off, KIND).severity, rowOf(off, KIND).problem], ["bad", 'Panic: "x"']);
});

test("why a machine is pending has the colour of its state", () => {
  const row = rowOf(machine("vm-1", { state: "Pending", ready: "False", message: "no room" }), KIND);
  assert.deepEqual([row.health, row.severity, row.problem], ["waiting", "waiting", "no room"]);
});

test("a machine without a status is a row", () => {
  assert.equal(rowOf({ metadata: { name: "a" } }, KIND).state, "Unknown");
});

test("rows are in natural order", () => {
  const rows = ["vm-10", "vm-9", "vm-1"].map((name) => rowOf(machine(name), KIND));
  assert.deepEqual(rows.sort(order("name", false)).map((row) => row.name), ["vm-1", "vm-9", "vm-10"]);
  assert.deepEqual(rows.sort(order("name", true)).map((row) => row.name), ["vm-10", "vm-9", "vm-1"]);
});

/** The rows of machines. */
const rowsOf = (...machines) => machines.map((each) => rowOf(each, KIND));

test("rows are those of all kinds", () => {
  const rows = new Rows(KIND);
  const other = { ...KIND, plural: "instances" };
  rows.set(KIND, rowsOf(machine("vm-1"), machine("vm-2")));
  rows.set(other, [rowOf(machine("vm-3"), other)]);
  const shown = () => rows.select("", order("name", false)).map((row) => `${row.name} ${row.state}`);
  assert.deepEqual(shown(), ["vm-1 Running", "vm-2 Running", "vm-3 Running"]);
  rows.set(KIND, rowsOf(machine("vm-4"), machine("vm-1", { state: "Shutdown" })));
  assert.deepEqual(shown(), ["vm-1 Shutdown", "vm-3 Running", "vm-4 Running"]);
  assert.deepEqual(rows.states("").counts, [["Running", 2], ["Shutdown", 1]]);
  rows.set(other, [rowOf(machine("Shutdown-again"), other)]);
  const found = (filter) => rows.select(filter, order("name", false)).map((row) => row.name);
  assert.deepEqual(found("Shutdown"), ["vm-1"]); // the state, and not a name with this word
  assert.deepEqual(found("vm  Shutdown "), ["vm-1"]);
  assert.deepEqual(rows.states("vm Shutdown"), { states: ["Shutdown"], rest: "vm", counts: [["Running", 1], ["Shutdown", 1]] });
  assert.deepEqual(found("shutdown"), ["Shutdown-again", "vm-1"]);
  assert.equal(found("Running Shutdown").length, 3); // in one of them
  assert.deepEqual(rows.states("Pending Shutdown").counts, [["Pending", 0], ["Running", 2], ["Shutdown", 1]]);
  assert.deepEqual(found("Pending Shutdown"), ["vm-1"]); // also while none is pending
  assert.equal(rows.get(rowOf(machine("vm-1"), KIND).key)?.state, "Shutdown"); // as it is now
  rows.set(KIND, []);
  assert.equal(rows.size, 1);
});

test("machines whose consoles are not healthy are counted beside their states, and the filter finds them", () => {
  const rows = new Rows(KIND);
  const [sick, off] = [machine("vm-1"), machine("vm-2", { state: "Shutdown" })];
  for (const each of [sick, off]) each.status.conditions.push({ type: "ConsoleHealthy", status: "False", reason: "Panic", message: "" });
  rows.set(KIND, rowsOf(sick, off, machine("vm-3"), machine("vm-4", { state: "Pending" })));
  const found = (filter) => rows.select(filter, order("name", false)).map((row) => row.name);
  assert.deepEqual(rows.states("").counts, [["Unhealthy", 2], ["Pending", 1], ["Running", 2], ["Shutdown", 1]]);
  assert.deepEqual(["Unhealthy", "unhealthy", "Pending Unhealthy", "Unhealthy 2"].map(found), [["vm-1", "vm-2"], ["vm-1", "vm-2"], ["vm-1", "vm-2", "vm-4"], ["vm-2"]]);
  rows.set(KIND, rowsOf(machine("vm-1")));
  assert.deepEqual([rows.states("").counts, found("Unhealthy")], [[["Running", 1]], []]);
});

test("rows have the users and the recordings of their machines, and the filter finds them", () => {
  const rows = new Rows(KIND);
  const metadata = { namespace: "default" };
  const byName = order("name", false);
  const session = (name, user, machineResource = "machines.compute.ironcore.dev") => ({ metadata, spec: { machine: name, user, machineResource } });
  rows.setSessions([session("vm-1", "bob"), session("vm-1", "ada"), session("vm-1", "ada"), session("vm-2", "eve", "servers.other.example")]);
  const busy = machine("vm-3");
  busy.status.conditions.push({ type: "ConsoleInUse", status: "True" });
  rows.set(KIND, rowsOf(machine("vm-1"), machine("vm-2"), busy));
  rows.setRecordings([{ metadata, spec: { machine: "vm-2" }, status: { phase: "Recording" } }, { metadata, spec: { machine: "vm-1" }, status: { phase: "Closed" } }]);
  assert.deepEqual(rows.select("", byName).map((row) => [row.users, row.isRecorded]), [["ada (2), bob", false], ["", true], ["In use", false]]);
  assert.deepEqual(rows.select("ada", byName).map((row) => row.name), ["vm-1"]);
  assert.deepEqual(rows.select("recorded", byName).map((row) => row.name), ["vm-2"]);
  const lost = [session("vm-1", "ada"), session("vm-1", "ada"), session("vm-1", "bob")];
  rows.setSessions([session("vm-1", "ada"), ...lost.map((each) => ({ ...each, status: { awaySince: "2026-01-01T00:00:00Z" } }))]);
  assert.equal(rows.select("vm-1", byName)[0].users, "ada, ada (lost, 2), bob (lost)");
  rows.setSessions([session("vm-1", "bob"), session("vm-1", "ada"), session("vm-1", "ada")]);
  assert.equal(rows.longest(({ users }) => users), "ada (2), bob".length);
  rows.setSessions([]);
  assert.deepEqual(rows.select("ada", byName), []);
});

test("a row is looked for among all, whatever the filter is", () => {
  const rows = new Rows(KIND);
  rows.set(KIND, rowsOf(machine("vm-1"), machine("vm-2")));
  assert.deepEqual([rows.some((row) => row.name === "vm-2"), rows.some((row) => row.name === "vm-3")], [true, false]);
});

test("a machine that has not started is not offered to be powered off, and one that is deleted not to be powered on", () => {
  const change = (state, isOff = false) => powerChange({ state, isOff });
  assert.deepEqual(["Running", "Shutdown", "Pending", "Terminating"].map((state) => change(state)), ["Off", "Off", "", ""]);
  assert.deepEqual(["Running", "Shutdown", "Pending", "Terminating"].map((state) => change(state, true)), ["On", "On", "On", ""]);
});

test("the question before a power off has the users of a row, or that there are some", () => {
  assert.deepEqual(["ada, bob (lost)", "In use", ""].map((users) => usersText({ users })), ["At its console: ada, bob (lost).", "Its console is in use.", ""]);
});
