/** The machine of a console, against a fake server. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Machines } from "../../../../twisted_exec/web/page/machines.js";
import { MachineWatch } from "../../../../twisted_exec/web/page/terminal/machine_watch.js";
import { FakeSocket, fakeApi, machine, turn } from "../fakes.mjs";

const KIND = { group: "compute.ironcore.dev", version: "v1alpha1", plural: "machines", subresources: [] };

function watching(answer) {
  FakeSocket.made = [];
  const { api, calls } = fakeApi(answer);
  const seen = [];
  const place = { namespace: "default", name: "vm-1" };
  const watch = new MachineWatch({ api, machines: new Machines([KIND]) }, place, (isStarted) => seen.push(isStarted));
  return { watch, calls, seen, api };
}

const list = (...items) => ({ items, metadata: { resourceVersion: "5" } });
const change = (object) => FakeSocket.made[0].onmessage({ data: JSON.stringify({ type: "MODIFIED", object }) });

test("only this machine is watched, and its start is noticed", async () => {
  const off = machine("vm-1", { state: "Shutdown", ready: "False", message: "powered off" });
  const { watch, calls, seen } = watching(() => list(off));
  assert.equal(watch.machine, null);
  await turn();
  assert.match(calls[0].path, /namespaces\/default\/machines\?fieldSelector=metadata.name%3Dvm-1/);
  assert.deepEqual(watch.machine, { state: "Shutdown", problem: "powered off", runs: false, isOff: false, hasPool: true, banner: "", health: null });
  FakeSocket.made[0].onopen();
  change(machine("vm-1", { state: "Pending", ready: "False", message: "starting" }));
  assert.equal(watch.machine.state, "Pending");
  change(machine("vm-1"));
  assert.deepEqual(watch.machine, { state: "Running", problem: "", runs: true, isOff: false, hasPool: true, banner: "", health: null });
  change(machine("vm-1", { line: "login:" }));
  assert.deepEqual(seen, [false, false, true, false]);
  watch.stop();
});

test("a machine that runs at first has not started, and one that is to be off does not run", async () => {
  const { watch, seen } = watching(() => list(machine("vm-1")));
  await turn();
  assert.equal(watch.machine.runs, true);
  FakeSocket.made[0].onopen();
  const leaving = machine("vm-1");
  leaving.spec.power = "Off";
  change(leaving);
  assert.deepEqual(watch.machine, { state: "Running", problem: "", runs: false, isOff: true, hasPool: true, banner: "", health: null });
  change(machine("vm-1"));
  assert.deepEqual(seen, [false, false, true]);
  watch.stop();
});

test("the banner of a machine is that of its annotation, as it is now", async () => {
  const noted = machine("vm-1");
  noted.metadata.annotations = { "console.twisted-exec.dev/banner": "ask\u0007 ops\n" };
  const { watch } = watching(() => list(noted));
  await turn();
  assert.equal(watch.machine.banner, "ask ops");
  FakeSocket.made[0].onopen();
  change(machine("vm-1"));
  assert.equal(watch.machine.banner, "");
  watch.stop();
});

test("a machine that is gone is not known any more", async () => {
  const { watch, seen } = watching(() => list(machine("vm-1")));
  assert.ok(!watch.isGone);
  await turn();
  assert.ok(!watch.isGone);
  FakeSocket.made[0].onopen();
  FakeSocket.made[0].onmessage({ data: JSON.stringify({ type: "DELETED", object: machine("vm-1") }) });
  assert.deepEqual([watch.machine, watch.isGone], [null, true]);
  assert.deepEqual(seen, [false, false]);
  watch.stop();
});

test("another machine of the same name has not started", async () => {
  const { watch, seen } = watching(() => list(machine("vm-1", { state: "Shutdown" })));
  await turn();
  FakeSocket.made[0].onopen();
  const other = machine("vm-1");
  other.metadata.uid = "uid-of-another";
  change(other);
  assert.deepEqual([watch.machine.runs, seen], [true, [false, false]]);
  watch.stop();
});

test("a server that does not answer is noticed, and the last known state stays", async () => {
  const answers = [list(machine("vm-1", { state: "Pending" })), [503, { message: "away" }], [503, { message: "away" }], list(machine("vm-1"))];
  const { watch, seen, api } = watching(() => answers.shift());
  await turn();
  assert.equal(watch.outage, null);
  FakeSocket.made[0].onclose({ code: 1006 });
  const retry = async () => {
    await turn();
    api.dispatchEvent(new Event("retry"));
    await turn();
  };
  await retry();
  const { outage } = watch;
  assert.equal(outage.message, "away");
  await retry();
  assert.equal(watch.outage, outage); // a notice that is drawn again would be read again
  assert.deepEqual([watch.machine.state, seen], ["Pending", [false, false]]);
  await retry();
  assert.equal(watch.outage, null);
  assert.deepEqual([watch.machine.state, seen.length], ["Running", 4]);
  watch.stop();
});

test("a machine of which its user may learn nothing is not asked for again and again", async () => {
  const { watch, calls, seen } = watching(() => [403, { message: "forbidden" }]);
  await watch.ended;
  assert.deepEqual([calls.length, seen], [2, [false]]);
  assert.deepEqual([watch.machine, watch.isBlind], [null, true]);
});

test("a machine that is only read is unknown after a change until it is read again, at once; one that is watched is not", async (t) => {
  const runs = machine("vm-1");
  const answers = [[403, { message: "forbidden" }], runs, [404, { message: "not found" }], runs];
  const { watch, calls, seen } = watching(() => answers.shift());
  watch.renew(); // nothing is known yet
  await turn();
  assert.equal(watch.machine.state, "Running");
  watch.renew();
  assert.deepEqual([watch.machine, watch.isGone], [null, false]);
  await turn();
  assert.deepEqual([watch.machine, watch.isGone, calls.length], [null, true, 3]);
  watch.renew();
  await turn();
  assert.deepEqual([watch.machine?.state, calls.length, seen], ["Running", 4, [false, false, false]]);
  watch.stop();
  const other = watching(() => list(runs));
  await turn();
  other.watch.renew();
  assert.equal(other.watch.machine.state, "Running");
  other.watch.stop();
});

test("a machine that its user may read, but not watch, is read again and again", async () => {
  const off = machine("vm-1", { state: "Shutdown" });
  const answers = [[403, { message: "forbidden" }], off, [503, { message: "away" }], machine("vm-1"), [404, { message: "not found" }]];
  const { watch, calls, seen, api } = watching(() => answers.shift());
  const retry = async () => {
    api.dispatchEvent(new Event("retry"));
    await turn();
  };
  await turn();
  assert.deepEqual([watch.machine.state, watch.isBlind], ["Shutdown", false]);
  assert.match(calls[1].path, /namespaces\/default\/machines\/vm-1$/);
  await retry();
  assert.deepEqual([watch.machine.state, watch.outage.message], ["Shutdown", "away"]);
  await retry();
  assert.deepEqual([watch.machine.state, watch.outage], ["Running", null]);
  await retry();
  assert.deepEqual([watch.machine, watch.isGone], [null, true]);
  assert.deepEqual(seen, [false, false, false, true, false]);
  watch.stop();
});

test("a machine whose session was told of its deletion is gone, whatever a late event says, and its successor is another", async () => {
  const of = (uid, more = {}) => {
    const made = machine("vm-1", more);
    made.metadata.uid = uid;
    return made;
  };
  const { watch, seen } = watching(() => list(of("u-1")));
  await turn();
  FakeSocket.made[0].onopen();
  watch.deleted();
  assert.deepEqual([watch.machine, watch.isGone], [null, true]);
  change(of("u-1", { state: "Terminating" }));
  assert.deepEqual([watch.machine, watch.isGone], [null, true]);
  change(of("u-2"));
  assert.deepEqual([watch.machine?.runs, watch.isGone], [true, false]);
  assert.deepEqual(seen, [false, false, false]);
  change(of("u-3"));
  watch.deleted(); // u-2, by a session that hears of it late
  assert.deepEqual([watch.machine?.runs, watch.isGone], [true, false]);
  watch.stop();
});
