/** The view of one recording, in a document in memory. */

import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { Machines } from "../../../../twisted_exec/web/page/machines.js";
import { machineLink } from "../../../../twisted_exec/web/page/routes.js";
import { showRecording } from "../../../../twisted_exec/web/page/views/recording.js";
import { install } from "../dom.mjs";
import { fakeApi, turn } from "../fakes.mjs";

install();

const KIND = { group: "compute.ironcore.dev", version: "v1alpha1", plural: "machines", subresources: [] };
const MESSAGE = 'consolerecordings.console.twisted-exec.dev "upgrade" is forbidden: User "eve" cannot get resource "consolerecordings"';
const REMEDY = 'ask an administrator for the role console-session-reader in the namespace "default"';
const RECORDING = { metadata: { namespace: "default", name: "upgrade" }, spec: { machine: "vm-1" }, status: { phase: "Closed" } };
const CAST = `{"version":3,"term":{"cols":80,"rows":24}}\n[1,"o","hello"]\n`;

/** Show a recording of a server that answers so; the user may play it if `isAllowed()`. */
async function shown(answer, { config = {}, isAllowed = () => true } = {}) {
  const { api } = fakeApi((path) => {
    if (path.endsWith("reviews")) return { status: { allowed: isAllowed() } };
    return answer(path) ?? (path.endsWith("/content") ? CAST : RECORDING);
  });
  const container = document.createElement("div");
  const context = { api, config: { vendor: false, ...config }, theme: new EventTarget(), machines: new Machines([KIND]), link: machineLink };
  const view = showRecording(container, context, { namespace: "default", name: "upgrade", at: 0 });
  await turns();
  const notices = () => container.all("div").filter((each) => each.class?.startsWith("notice"));
  const buttonOf = (label) => container.all("button").find((each) => each.text === label);
  return { view, notices, all: (tag) => container.all(tag), said: () => notices().map((each) => each.text).join(), buttonOf };
}

const turns = async () => {
  for (let count = 0; count < 20; count += 1) await turn();
};

test("a user without rights reads at once which role plays a recording, and looks again after it was granted", async () => {
  const cause = { reason: "MissingRight", message: "", remedy: REMEDY };
  const status = { message: `${MESSAGE}: ${REMEDY}`, details: { kind: "consolerecordings", causes: [cause] } };
  let isAllowed = false;
  const { view, notices, said, buttonOf } = await shown(() => (isAllowed ? null : [403, status]));
  const texts = notices()[0].all("p").map((each) => each.text);
  assert.deepEqual(texts, ["You may not play this recording.", "Ask your administrator for the role “console-recording-reader” in the namespace default.", MESSAGE]);
  isAllowed = true;
  buttonOf("Try again").click();
  await turns();
  assert.match(said(), /^The player is not installed/);
  view.stop();
});

test("a user who may not play a recording tries again, and the page asks anew for the right", async () => {
  let isAllowed = false;
  const { view, said, buttonOf } = await shown(() => null, { isAllowed: () => isAllowed });
  assert.match(said(), /^You may see but not play this recording\./);
  isAllowed = true;
  buttonOf("Try again").click();
  await turns();
  assert.match(said(), /^The player is not installed/);
  view.stop();
});

test("a recording appears by itself when the server is back, also if it goes away before the content", async () => {
  mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"] });
  let answers = 0;
  const { view, said } = await shown((path) => {
    if (++answers === 1) throw new TypeError("no network");
    return answers === 3 && path.endsWith("/content") ? [503, { message: "the machine's host is away" }] : null;
  });
  assert.match(said(), /^No recording for 0s: the server cannot be reached\. The page tries again by itself\./);
  mock.timers.tick(1000);
  await turns();
  assert.match(said(), /^No recording for 1s: the machine's host is away\. The page tries again by itself\./);
  mock.timers.tick(2000);
  await turns();
  assert.match(said(), /^The player is not installed/);
  view.stop();
  mock.timers.reset();
});

test("a local page has no link for others", async () => {
  for (const local of [false, true]) {
    const { view, buttonOf } = await shown(() => null, { config: { local } });
    assert.equal(buttonOf("Copy link to this moment") === undefined, local);
    view.stop();
  }
});

test("a recording without content says why, and which output it has only if there is some", async () => {
  const cases = [
    [{ status: { message: "the disk is full" } }, "The recording has not begun yet: the disk is full"],
    [{ status: {} }, "The recording has not begun yet."],
    [{ status: { phase: "Failed", message: "the disk is gone" } }, "The recording has no content: the disk is gone"],
  ];
  for (const [facts, text] of cases) {
    const { view, said, all } = await shown((path) => (path.endsWith("/content") ? [409, { message: "no content" }] : { ...RECORDING, ...facts }));
    assert.equal(said(), text);
    assert.ok(!all("dt").some((each) => each.text === "Output"));
    view.stop();
  }
});
