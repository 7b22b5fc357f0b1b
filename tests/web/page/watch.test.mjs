/** Watches against a fake server. */

import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";

import { attemptUntil, rest } from "../../../twisted_exec/web/page/watch.js";
import { FakeSocket, fakeApi } from "./fakes.mjs";

const MACHINES = "/apis/compute.ironcore.dev/v1alpha1/machines";
Math.random = () => 1; // no pause is shortened
const object = (name, version) => ({ metadata: { name, resourceVersion: version } });

/** Start a watch; `next()` resolves with the next event, problem or pause. */
function watching(answers) {
  FakeSocket.made = [];
  const { api: client, calls } = fakeApi(answers);
  const controller = new AbortController();
  const seen = [];
  let wake = () => {};
  const put = (entry) => {
    seen.push(entry);
    wake();
  };
  const next = async () => {
    while (!seen.length) await new Promise((resolve) => (wake = resolve));
    return seen.shift();
  };
  const ended = client.watch(MACHINES, put, {
    query: { labelSelector: "a=b" },
    signal: controller.signal,
    onProblem: (error) => error && put({ problem: error.message }),
    pause: async (seconds) => put({ pause: seconds }),
  });
  return { next, client, calls, ended, stop: () => controller.abort() };
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

test("a watch follows its list over a WebSocket, and ends with the signal", async () => {
  const { next, ended, stop } = watching(() => ({ items: [object("a", "3")], metadata: { resourceVersion: "5" } }));
  assert.deepEqual((await next()).type, "RESET");
  await settle();
  const [socket] = FakeSocket.made;
  assert.match(socket.url, /^wss:.*labelSelector=a%3Db&resourceVersion=5&watch=true/);
  socket.onopen();
  socket.onmessage({ data: JSON.stringify({ type: "ADDED", object: object("b", "6") }) });
  assert.deepEqual(await next(), { type: "ADDED", object: object("b", "6") });
  stop();
  await ended;
});

test("a watch lists again after an expired version, and waits longer each time", async () => {
  const { next, ended, stop } = watching(() => ({ items: [], metadata: { resourceVersion: "5" } }));
  for (const seconds of [1, 2, 4]) {
    assert.equal((await next()).type, "RESET");
    await settle();
    const socket = FakeSocket.made.at(-1);
    socket.onopen();
    socket.onmessage({ data: JSON.stringify({ type: "ERROR", object: { code: 410 } }) });
    assert.deepEqual(await next(), { pause: seconds });
  }
  stop();
  await settle();
  FakeSocket.made.at(-1).close();
  await ended;
});

test("a watch ends after a minute and goes on: a server asks for the right to it only where it begins", async (t) => {
  t.mock.timers.enable({ apis: ["Date"] });
  let refused = false;
  const { next, ended, stop } = watching(() =>
    refused ? [403, { message: "forbidden" }] : { items: [], metadata: { resourceVersion: "5" } },
  );
  assert.equal((await next()).type, "RESET");
  await settle();
  const [first] = FakeSocket.made;
  assert.match(first.url, /timeoutSeconds=(?:[345]\d|60)\b/);
  first.onopen();
  t.mock.timers.tick(60_000);
  first.onclose({ code: 1000 });
  await settle();
  assert.equal(FakeSocket.made.length, 2);
  refused = true;
  FakeSocket.made[1].onclose({ code: 1006 });
  assert.deepEqual(await next(), { pause: 1 });
  assert.deepEqual(await next(), { problem: "forbidden" });
  stop();
  await ended;
});

test("a WebSocket that cannot be opened is explained by the list", async () => {
  let refused = false;
  const { next, ended, stop } = watching(() =>
    refused ? [403, { message: "forbidden" }] : { items: [], metadata: { resourceVersion: "5" } },
  );
  assert.equal((await next()).type, "RESET");
  await settle();
  refused = true;
  FakeSocket.made[0].onclose({ code: 1006 });
  assert.deepEqual(await next(), { pause: 1 });
  assert.deepEqual(await next(), { problem: "forbidden" });
  stop();
  await ended;
});

/** A watch without news; `silences` has what to call when its server is silent. */
async function quiet() {
  const silences = [];
  const made = watching(() => ({ items: [], metadata: { resourceVersion: "5" } }));
  made.client.untilSilent = (silent) => {
    silences.push(silent);
    return () => {};
  };
  assert.equal((await made.next()).type, "RESET");
  await settle();
  return { ...made, silences };
}

test("a quiet watch of a silent server is a problem, and the list is read again", async () => {
  const { next, ended, stop, silences } = await quiet();
  silences[0](new Error("silent"));
  assert.deepEqual(await next(), { problem: "silent" });
  assert.deepEqual(await next(), { pause: 1 });
  assert.equal((await next()).type, "RESET");
  stop();
  await settle();
  FakeSocket.made.at(-1).close();
  await ended;
});

for (const event of ["retry", "authorized"]) {
  test(`${event}: the user makes a watch try at once, also one whose list has no answer`, async () => {
    const answers = [[503, { message: "busy" }], new Promise(() => {})];
    FakeSocket.made = [];
    const { api: client } = fakeApi(() => ({ items: [], metadata: { resourceVersion: "5" } }));
    const list = client.list.bind(client);
    client.list = (path, { signal, ...options }) => {
      const stopped = new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      const answer = answers.shift() ?? list(path, options);
      return Promise.race([stopped, Array.isArray(answer) ? Promise.reject(new Error(answer[1].message)) : answer]);
    };
    const controller = new AbortController();
    const seen = [];
    const onProblem = (error) => error && seen.push(error.message);
    const ended = client.watch(MACHINES, ({ type }) => seen.push(type), { signal: controller.signal, onProblem });
    await settle();
    client.dispatchEvent(new Event(event));
    await settle();
    assert.equal(answers.length, 0);
    client.dispatchEvent(new Event(event));
    await settle();
    assert.deepEqual(seen, ["busy", "RESET"]);
    controller.abort();
    FakeSocket.made.forEach((each) => each.close());
    await ended;
  });
}

test("a console that reaches the server ends the pause of a watch, and not an attempt", async () => {
  const { api: client } = fakeApi(() => ({}));
  const { signal } = new AbortController();
  const attempt = attemptUntil(signal, client);
  const pause = (_seconds, ended) => new Promise((resolve) => ended.addEventListener("abort", resolve));
  const rested = rest(15, signal, client, pause);
  client.dispatchEvent(new Event("reached"));
  await rested;
  assert.equal(attempt.signal.aborted, false);
  attempt.end();
});

test("a watch that works reports the next silence after the user wanted another attempt, and leaves no listener", async () => {
  const { next, client, ended, stop, silences } = await quiet();
  client.dispatchEvent(new Event("retry"));
  silences[0](new Error("silent"));
  assert.deepEqual(await next(), { problem: "silent" });
  assert.deepEqual(await next(), { pause: 1 });
  assert.equal((await next()).type, "RESET");
  stop();
  await settle();
  FakeSocket.made.at(-1).close();
  await ended;
  for (const event of ["retry", "authorized", "reached"]) assert.equal(getEventListeners(client, event).length, 0);
});
