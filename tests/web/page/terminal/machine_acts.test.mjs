/** What the user of a console changes of its machine, with a document in memory. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Machines } from "../../../../twisted_exec/web/page/machines.js";
import { machineLink } from "../../../../twisted_exec/web/page/routes.js";
import { MachineActs } from "../../../../twisted_exec/web/page/terminal/machine_acts.js";
import { install } from "../dom.mjs";
import { FakeSocket, fakeApi, turn } from "../fakes.mjs";

install();

const KIND = { group: "compute.ironcore.dev", version: "v1alpha1", plural: "machines", subresources: [] };
const RESOURCE = "machines.compute.ironcore.dev";
const MACHINE = "/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines/vm-1";
const RECORDINGS = "/apis/console.twisted-exec.dev/v1alpha1/namespaces/default/consolerecordings";
const RIGHTS = { switches: true, records: true, endsRecordings: true };
const RUNNING = { isOff: false };
const ADA = { user: "ada", input: "masked" };
const POLICY = { user: "ada", input: "all", policies: ["default/rec4"] };

/** A server that refuses changes with a code, or has some recordings; and the acts at a console. */
function acts({ plays = true, machine = RUNNING, recordings = null, rights = RIGHTS, served = null, refusal = 0, items = [], reason = "", others = "" } = {}) {
  const changes = [];
  const resetting = []; // at each change
  const { api } = fakeApi((path, { method, body }) => {
    if (path.includes("selfsubjectaccessreviews")) return { status: { allowed: !body.includes("consolepolicies") && (plays || !body.includes("content")) } };
    if (method === undefined || method === "GET") return path === MACHINE ? { status: { state: "Shutdown" } } : { items };
    changes.push([method, path, JSON.parse(body).spec]);
    resetting.push(made.isResetting);
    return refusal ? [refusal, { message: "no", code: refusal }] : { metadata: { namespace: "default", name: "vm-1-x7" } };
  });
  const told = [];
  const went = [];
  const context = { api, machines: new Machines([KIND], served), link: machineLink, navigate: (hash) => went.push(hash) };
  const made = new MachineActs(context, { namespace: "default", name: "vm-1", reason }, {
    known: () => ({ machine, recordings, rights, others }),
    tell: (text, kind) => told.push([text, kind]),
    takeBack: (message) => message && went.push(`took ${message} back`),
    focus: () => went.push("focus"),
    poweredOn: () => went.push("powered on"),
    notReset: () => went.push("not reset"),
  });
  return { made, api, changes, resetting, told, went };
}

/** Answer the question that is asked, with the label of a button; return its title. */
async function answer(label) {
  while (!document.body.lastChild) await turn();
  const dialog = document.body.lastChild;
  dialog.all("button").find((each) => each.text === label).click();
  return dialog.all("h2")[0].text;
}

const recording = (name, spec = {}) => ({ metadata: { name, namespace: "default" }, spec: { machine: "vm-1", machineResource: RESOURCE, ...spec } });

test("a machine is powered off after a question, and on without", async () => {
  const { made, changes, told, went } = acts();
  const off = made.switch();
  assert.equal(await answer("Power off"), "Power off vm-1?");
  await off;
  assert.deepEqual(changes, [["PATCH", MACHINE, { power: "Off" }]]);
  assert.deepEqual([told, went, made.switched], [[["vm-1 is being powered off.", ""]], ["focus"], "Off"]);
  const other = acts({ machine: { isOff: true } });
  await other.made.switch();
  assert.deepEqual(other.changes, [["PATCH", MACHINE, { power: "On" }]]);
  assert.deepEqual([other.told, other.went, other.made.switched], [[["vm-1 is being powered on.", ""]], ["powered on", "focus"], "On"]);
});

test("what the user did to the power counts until somebody else changes it, or the machine is gone", async () => {
  const [ON, OFF] = [{ isOff: false }, { isOff: true }];
  const switched = async (power, ...seen) => {
    const { made } = acts();
    made.follow(power === "Off" ? ON : OFF);
    await made.setPower(power);
    for (const machine of seen) made.follow(machine, machine === null);
    return made.switched;
  };
  assert.equal(await switched("Off", ON, OFF, OFF), "Off"); // the first is from before
  assert.equal(await switched("Off", OFF, ON, OFF), "");
  assert.equal(await switched("Off", OFF, null, OFF), ""); // another machine of this name
  assert.equal(await switched("On", OFF, ON, ON), "On");
  assert.equal(await switched("On", ON, OFF, ON), "");
  const { made } = acts();
  made.follow(ON);
  await made.setPower("Off");
  made.follow(null); // unknown, as in an outage
  made.follow(OFF);
  assert.equal(made.switched, "Off");
});

test("a user who does not want that changes nothing", async () => {
  for (const act of ["switch", "reset", "record"]) {
    const { made, changes, told, went } = acts();
    const done = made[act]();
    await answer("Cancel");
    await done;
    assert.deepEqual([changes, told, went], [[], [], ["focus"]], act);
  }
});

test("the questions of the power say who else is at the console", async () => {
  for (const [others, pattern] of [["bob is at this console.", /\?bob is at this console\. The programs of the machine end\./], ["", /\?The programs of the machine end\./]]) {
    for (const act of ["switch", "reset"]) {
      const { made } = acts({ others });
      const done = made[act]();
      assert.match(document.body.lastChild.text, pattern);
      await answer("Cancel");
      await done;
    }
  }
});

test("a power that the server does not change is as it was", async () => {
  const { made, told } = acts({ machine: { isOff: true }, refusal: 403 });
  await made.switch();
  assert.deepEqual([told.at(-1), made.switched], [["The power of vm-1 was not changed: no", "error"], ""]);
});

test("that a change waits for a silent server is not said any more once it is accepted", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { made, api, told, went } = acts({ machine: { isOff: true } });
  let answers;
  api.patch = () => new Promise((resolve) => (answers = resolve));
  const on = made.switch();
  t.mock.timers.tick(5000);
  assert.deepEqual(told.at(-1), ["Power on of vm-1 waits for the server.", "warning"]);
  answers({});
  await on;
  assert.deepEqual([told.at(-1)[0], went[1]], ["Power on of vm-1: the server has accepted it.", "took 2 back"]);
});

test("a machine is being reset until its power is on", async () => {
  const { made, changes, resetting, told, went } = acts();
  const done = made.reset();
  assert.equal(await answer("Reset"), "Reset vm-1?");
  await done;
  assert.deepEqual(resetting, [true, true]);
  assert.deepEqual(changes.map(([, , spec]) => spec.power), ["Off", "On"]);
  assert.deepEqual([told, went, made.isResetting], [[["vm-1 is being reset.", ""]], ["focus"], false]);
});

test("a machine that was not reset is shown as it is", async () => {
  const { made, told, went } = acts({ refusal: 403 });
  const done = made.reset();
  await answer("Reset");
  await done;
  assert.deepEqual([told.at(-1), went, made.isResetting], [["vm-1 was not reset: no", "error"], ["focus", "not reset"], false]);
});

test("a recording has the machine, and the reason of the session", async () => {
  const { made, changes, told } = acts({ reason: "OPS-1" });
  const done = made.record();
  assert.match(document.body.lastChild.all("button")[1].class, /primary/); // nothing is destroyed
  assert.equal(await answer("Record"), "Record vm-1?");
  await done;
  assert.deepEqual(changes, [["POST", RECORDINGS, { machine: "vm-1", machineResource: RESOURCE, input: "masked", reason: "OPS-1" }]]);
  assert.deepEqual(told, []); // the server says that the console is recorded
  const refused = acts({ refusal: 500 });
  const end = refused.made.record();
  await answer("Record");
  await end;
  assert.deepEqual(refused.told, [["The recording was not begun: no", "error"]]);
});

test("a user who may not play recordings reads it before one begins", async () => {
  for (const plays of [true, false]) {
    const { made } = acts({ plays });
    const done = made.record();
    const dialog = document.body.lastChild;
    for (let each = 0; each < 5; each += 1) await turn();
    const limit = "You may not play it: users with the role “console-recording-reader” in the namespace default may.";
    assert.equal(dialog.text.includes(`until a user ends it. ${limit}`), !plays);
    await answer("Cancel");
    await done;
  }
});

test("a recording that does not begin says why until it does, or is to end; one that has failed, once", async () => {
  const waits = (message, spec) => ({ ...recording("vm-1-x7", spec), status: { reason: "NotStarted", message } });
  const { made, told, went } = acts({ items: [recording("vm-1-x7")] });
  const change = (object, type = "MODIFIED") => FakeSocket.made[0].onmessage({ data: JSON.stringify({ type, object }) });
  const begin = async (acts) => {
    FakeSocket.made = [];
    const done = acts.record();
    await answer("Record");
    await done;
    await turn();
  };
  await begin(made);
  assert.match(FakeSocket.made[0].url, /consolerecordings\?fieldSelector=metadata.name%3Dvm-1-x7/);
  assert.deepEqual(told, []);
  for (let each = 0; each < 2; each += 1) change(waits("the disk is full"));
  assert.deepEqual(told, [["The recording vm-1-x7 has not begun: the disk is full. It begins by itself as soon as that is possible; “Recordings” can end it.", "warning"]]);
  change({ ...recording("vm-1-x7"), status: { phase: "Recording", reason: "Incomplete", message: "it began late" } });
  assert.deepEqual([told.length, went], [1, ["focus", "took 1 back"]]);
  for (const [object, type] of [[waits("the disk is full", { ended: true })], [waits(""), "DELETED"]]) {
    await begin(made);
    change(waits("the disk is full"));
    change(object, type);
    assert.match(went.at(-1), /^took \d back$/);
  }
  await begin(made);
  change({ ...recording("vm-1-x7"), status: { phase: "Failed", message: "the runtime makes no recordings" } });
  assert.deepEqual(told.at(-1), ["The recording vm-1-x7 has failed: the runtime makes no recordings.", "warning"]);
  await begin(made);
  made.stop();
  await turn();
  assert.equal(FakeSocket.made.length, 1); // the watch has ended
});

test("beside a recording, another one begins, or the recording ends", async () => {
  const { made, changes } = acts({ recordings: [ADA], items: [recording("rec-1")] });
  const ended = made.record();
  assert.equal(await answer("End the recording"), "vm-1 is already recorded");
  assert.equal(await answer("End the recording"), "End the recording rec-1 of vm-1?");
  await ended;
  const begun = made.record();
  await answer("Begin another recording");
  await answer("Record");
  await begun;
  const left = made.record();
  await answer("Cancel");
  await left;
  assert.deepEqual(changes.map(([method, path]) => [method, path]), [["PATCH", `${RECORDINGS}/rec-1`], ["POST", RECORDINGS]]);
  assert.deepEqual(changes[0][2], { ended: true });
});

test("the choice among recordings is left to their list, without those of other machines", async () => {
  const other = recording("other", { machine: "vm-2" });
  const { made, changes, went } = acts({ recordings: [ADA], items: [recording("rec-1"), recording("rec-2"), other] });
  await made.endRecording();
  assert.deepEqual([went, changes], [["#/machines/default/vm-1/recordings"], []]);
});

test("a user without a recording to end reads why", async () => {
  const { made, told, went } = acts({ items: [recording("other", { machine: "vm-2" })] });
  await made.endRecording();
  assert.deepEqual([told, went], [[["There is no recording here that you may end.", "warning"]], ["focus"]]);
  const required = acts({ recordings: [POLICY], items: [recording("required", { policies: ["default/rec4"] })] });
  await required.made.endRecording();
  assert.match(required.told[0][0], /^The recording for ConsolePolicy default\/rec4 ends after the last session/);
});

test("what a user may do depends on rights, on the server, and on what is known", () => {
  const allowed = (options) => {
    const { made } = acts(options);
    return [made.maySwitch, made.mayRecord, made.mayEndRecording];
  };
  assert.deepEqual(allowed({ recordings: [ADA, POLICY] }), [true, true, true]);
  assert.deepEqual(allowed({ recordings: [POLICY], machine: null }), [false, true, false]); // users of a policy cannot end it
  assert.deepEqual(allowed(), [true, true, false]); // nothing is known to end
  assert.deepEqual(allowed({ recordings: [ADA], served: new Set() }), [true, false, false]);
  const rights = { switches: false, records: false, endsRecordings: false };
  assert.deepEqual(allowed({ recordings: [ADA], rights }), [false, false, false]);
});
