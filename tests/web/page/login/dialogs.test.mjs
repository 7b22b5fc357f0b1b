/** The dialog of a page whose credentials are refused, with a document in memory. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { renewal } from "../../../../twisted_exec/web/page/login/dialogs.js";
import { install } from "../dom.mjs";
import { turn } from "../fakes.mjs";

install();
const views = new EventTarget();
globalThis.addEventListener = views.addEventListener.bind(views);

/** Begin a renewal; `answer` is the server's next one, `offered` what the button in the bar does. */
function begin(t, message) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const server = { status: 401, headers: new globalThis.Headers(), message };
  t.mock.method(globalThis, "fetch", async () => ({ ...server, json: async () => ({ message: server.message }) }));
  const offered = [];
  const frame = { renewal: (open) => offered.push(open) };
  const ended = renewal({ config: { cluster: "lab" }, frame, store: { get: () => "token" } }, "It has expired.", message);
  const pass = async () => {
    t.mock.timers.tick(10_000);
    await turn();
  };
  return { server, offered, ended, pass };
}

test("the dialog closes by itself when the credentials are good again", async (t) => {
  const { server, offered, ended, pass } = begin(t, "expired");
  const dialog = document.body.lastChild;
  await pass();
  server.status = 503;
  await pass();
  assert.match(dialog.text, /It has expired\. The API server of lab answers: expired\./);
  server.status = 201;
  await pass();
  await ended;
  assert.deepEqual([dialog.open, document.body.children, offered.at(-1)], [false, [], null]);
});

test("the user may leave the dialog, and come back to what it says", async (t) => {
  const { server, offered, ended, pass } = begin(t, "expired");
  const [later, again] = document.body.lastChild.all("button");
  server.message = "still expired";
  again.click();
  await turn();
  later.click();
  assert.deepEqual([later.text, document.body.children], ["Not now", []]);
  offered[0]();
  assert.match(document.body.lastChild.text, /Tried again\. The API server of lab answers: still expired\./);
  document.body.lastChild.close(); // as the Escape key does
  server.status = 201;
  await pass();
  await ended;
  assert.deepEqual([document.body.children, offered.length, offered[1]], [[], 2, null]);
});

test("the dialog ends when the local command refuses the page, which then asks for a new URL", async (t) => {
  const { server, ended, pass } = begin(t, "expired");
  server.headers.set("WWW-Authenticate", "Bearer");
  await pass();
  await ended;
  assert.deepEqual(document.body.children, []);
});
