/** The view of a machine's screen, in a document in memory. */

import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { mock, test } from "node:test";

import { ApiError } from "../../../../twisted_exec/web/page/api.js";
import { show } from "../../../../twisted_exec/web/page/views/screen.js";
import { install } from "../dom.mjs";
import { turn } from "../fakes.mjs";

install();
globalThis.ResizeObserver = class {
  observe() {}
  disconnect() {}
};

/** The context of a page whose server answers so. */
function contextOf(request) {
  return {
    machines: { path: () => "/vm", parse: (name) => ({ kind: {}, name }), has: () => true },
    store: { set: () => {}, remove: () => {}, get: () => false },
    announce: () => {},
    config: { cluster: "garden" },
    link: () => "#",
    api: {
      untilSilent: () => () => {},
      addEventListener: () => {},
      removeEventListener: () => {},
      request,
      bytes: async () => Promise.reject(new Error("the disk is full")),
      fetch: async () => Promise.reject(new Error("no log")),
    },
  };
}

test("what is wrong with a time, or failed for the user, stays while the screen is followed, until the user goes on", async () => {
  mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  let reads = 0;
  const context = contextOf(async () => ({ columns: 80, rows: 1, lines: [], offset: (reads += 1) }));
  const container = document.createElement("div");
  const view = show(container, context, { namespace: "default", name: "vm", query: new URLSearchParams() });
  const goOn = async () => {
    const before = reads;
    for (let count = 0; count < 5; count++) {
      await turn();
      mock.timers.tick(1000);
    }
    await turn();
    assert.ok(reads >= before + 4);
  };
  await goOn();
  const notices = () => container.all("div").filter((each) => each.class?.includes("notice")).map((each) => each.text);
  const time = container.all("input").find((each) => each["aria-label"] === "Time");
  time.value = "nonsense";
  container.all("form")[0].submit();
  await goOn();
  assert.match(notices().join(), /^"nonsense" is not a time/);
  time.send("input");
  assert.deepEqual(notices(), []);
  container.all("button").find((each) => each.text === "Save as text").click();
  await goOn();
  assert.deepEqual(notices(), ["The disk is full."]);
  time.value = "";
  container.all("form")[0].submit();
  await goOn();
  assert.deepEqual(notices(), []);
  view.stop();
  mock.timers.reset();
});

test("a user without the right to a screen tries again after it was granted", async () => {
  mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  let isAllowed = false;
  const causes = [{ reason: "MissingRight", message: "", verb: "observe" }];
  const refused = new ApiError(403, "forbidden", { details: { kind: "machines", causes } });
  const context = contextOf(async () => (isAllowed ? { columns: 80, rows: 1, lines: [], offset: 1 } : Promise.reject(refused)));
  const container = document.createElement("div");
  const view = show(container, context, { namespace: "default", name: "vm", query: new URLSearchParams() });
  for (let count = 0; count < 5; count++) await turn();
  const notices = () => container.all("div").filter((each) => each.class?.includes("notice"));
  assert.match(notices()[0].text, /^You may not see this screen\./);
  isAllowed = true;
  container.all("button").find((each) => each.text === "Try again").click();
  for (let count = 0; count < 5; count++) await turn();
  assert.deepEqual(notices(), []);
  view.stop();
  mock.timers.reset();
});

test("a screen that is followed leaves no listener of a read that has ended", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const signals = new Set();
  const add = mock.method(globalThis.AbortSignal.prototype, "addEventListener", function (...all) {
    signals.add(this);
    return EventTarget.prototype.addEventListener.apply(this, all);
  });
  let reads = 0;
  const refused = Object.assign(new Error("the server cannot be reached"), { code: 0, isPassing: true });
  const context = contextOf(async () => {
    reads += 1;
    throw refused;
  });
  const view = show(document.createElement("div"), context, { namespace: "default", name: "vm", query: new URLSearchParams() });
  for (let count = 0; count < 5; count++) {
    await turn();
    mock.timers.tick(5000);
  }
  await turn();
  const listeners = [...signals].map((each) => getEventListeners(each, "abort").length);
  view.stop();
  add.mock.restore();
  mock.timers.reset();
  assert.ok(reads > 4);
  assert.ok(Math.max(...listeners) <= 1, `${listeners}`);
});
