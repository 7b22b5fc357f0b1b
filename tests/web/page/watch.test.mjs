/** Watches against a fake server. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { FakeSocket, fakeApi } from "./fakes.mjs";

const MACHINES = "/apis/compute.ironcore.dev/v1alpha1/machines";
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
    pause: async (seconds) => put({ pause: Math.floor(seconds) }),
  });
  return { next, calls, ended, stop: () => controller.abort() };
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

test("a watch without news tells that its server has become silent, and that it answers again", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "Date"] });
  let answer = {};
  const looks = [];
  const { api } = fakeApi((path) => {
    if (path.startsWith(MACHINES)) return { items: [], metadata: { resourceVersion: "5" } };
    looks.push(path);
    return answer;
  });
  FakeSocket.made = [];
  const controller = new AbortController();
  const told = [];
  const ended = api.watch(MACHINES, () => {}, { signal: controller.signal, onProblem: (error) => told.push(error?.message ?? null) });
  await settle();
  const look = async () => {
    t.mock.timers.tick(2000);
    await settle();
    await settle();
  };
  await look();
  assert.deepEqual([looks, told], [["/livez"], [null]]);
  answer = new Error("reset");
  await look();
  answer = [502, { message: "the API server refuses connections" }];
  await look();
  answer = [500, "livez check failed"]; // it answers
  await look();
  assert.deepEqual(told, [null, "the server cannot be reached", "the API server refuses connections", null]);
  FakeSocket.made[0].onopen();
  t.mock.timers.tick(1500);
  FakeSocket.made[0].onmessage({ data: JSON.stringify({ type: "BOOKMARK", object: object("", "6") }) });
  looks.length = 0;
  t.mock.timers.tick(500);
  await settle();
  assert.deepEqual(looks, []); // there was news
  controller.abort();
  FakeSocket.made[0].close();
  await ended;
  await look();
  assert.deepEqual(looks, []);
});
