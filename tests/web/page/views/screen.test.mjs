/** The view of a machine's screen, in a document in memory. */

import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { mock, test } from "node:test";

import { show } from "../../../../twisted_exec/web/page/views/screen.js";
import { install } from "../dom.mjs";
import { turn } from "../fakes.mjs";

install();
globalThis.ResizeObserver = class {
  observe() {}
  disconnect() {}
};

test("a screen that is followed leaves no listener of a read that has ended", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const signals = new Set();
  const add = mock.method(globalThis.AbortSignal.prototype, "addEventListener", function (...all) {
    signals.add(this);
    return EventTarget.prototype.addEventListener.apply(this, all);
  });
  let reads = 0;
  const refused = Object.assign(new Error("the server cannot be reached"), { code: 0, isPassing: true });
  const context = {
    machines: { path: () => "/vm", parse: (name) => ({ kind: {}, name }), has: () => true },
    store: { set: () => {}, remove: () => {}, get: () => false },
    announce: () => {},
    config: { cluster: "garden" },
    link: () => "#",
    api: {
      untilSilent: () => () => {},
      addEventListener: () => {},
      removeEventListener: () => {},
      request: async () => {
        reads += 1;
        throw refused;
      },
      bytes: async () => Promise.reject(refused),
      fetch: async () => Promise.reject(refused),
    },
  };
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
