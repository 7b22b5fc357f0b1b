/** The numbers beside views, against a fake server. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Machines } from "../../../twisted_exec/web/page/machines.js";
import { Count, REQUESTS, UNHEALTHY } from "../../../twisted_exec/web/page/counts.js";
import { FakeSocket, fakeApi, machine, turn } from "./fakes.mjs";

const KIND = { group: "compute.ironcore.dev", version: "v1alpha1", plural: "machines", subresources: [] };

/** A user who may list all namespaces, or those with some names. */
function counting(mayListAll, answer = () => list(), { what = UNHEALTHY, may = /team/, home = "default" } = {}) {
  FakeSocket.made = [];
  const [numbers, offers] = [[], []];
  const { api, calls } = fakeApi((path, { body }) => {
    if (!path.endsWith("reviews")) return answer(path);
    const { namespace } = JSON.parse(body).spec.resourceAttributes;
    return { status: { allowed: mayListAll || may.test(namespace) } };
  });
  const context = { api, machines: new Machines([KIND]), config: { namespace: home }, store: { get: () => null } };
  const counted = new Count(context, what, (number) => numbers.push(number), (isOffered) => offers.push(isOffered));
  const lists = () => calls.map(({ path }) => path).filter((path) => !path.endsWith("reviews"));
  return { counted, numbers, offers, lists };
}

const list = (...items) => ({ items, metadata: { resourceVersion: "5" } });
const turns = async () => {
  for (let count = 0; count < 5; count += 1) await turn();
};

test("only unhealthy machines are listed, once, and the number follows them", async () => {
  const { counted, numbers, lists } = counting(true, () => list(machine("vm-1")));
  await counted.follow("team-a");
  await turns();
  await counted.follow("");
  await turns();
  assert.equal(lists().length, 1);
  assert.match(lists()[0], /v1alpha1\/machines\?fieldSelector=status.conditions.ConsoleHealthy%3DFalse/);
  const [socket] = FakeSocket.made;
  socket.onopen();
  socket.onmessage({ data: JSON.stringify({ type: "ADDED", object: machine("vm-2") }) });
  socket.onmessage({ data: JSON.stringify({ type: "DELETED", object: machine("vm-1") }) });
  assert.deepEqual(numbers, [null, 1, 2, 1]);
  counted.stop();
  assert.equal(numbers.at(-1), null);
});

test("a user with some namespaces has the number of these, and none while one of them is not known", async () => {
  let isAway = false;
  const { counted, numbers, lists } = counting(false, (path) => (isAway && path.includes("team-b") ? [503, {}] : list(machine("vm-1"))));
  await counted.follow("team-a, team-b");
  await turns();
  assert.deepEqual(lists().map((path) => /namespaces\/([^/]+)/.exec(path)?.[1]), ["team-a", "team-b"]);
  assert.deepEqual(numbers, [null, null, 2]);
  isAway = true;
  counted.stop();
  await counted.follow("team-a, team-b");
  await turns();
  assert.equal(numbers.at(-1), null);
  await counted.follow("team-a");
  await turns();
  assert.equal(numbers.at(-1), 1);
  counted.stop();
});

test("an older server, or one that refuses the list, is asked again only for another list", async () => {
  for (const code of [400, 403]) {
    const { counted, numbers, lists } = counting(false, (path) => (path.includes("team-a") ? [code, {}] : list()));
    await counted.follow("team-a");
    await turns();
    assert.equal(lists().length, 1);
    assert.equal(numbers.at(-1), null);
    await counted.follow("team-b");
    await turns();
    assert.equal(numbers.at(-1), 0);
    counted.stop();
  }
});

test("requests that wait are counted, for a user who may list some; time ends them, too", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "Date"], now: Date.parse("2026-11-20T08:00:00Z") });
  const request = (name, status, creationTimestamp = "2026-11-20T07:00:00Z") => ({ metadata: { name, creationTimestamp }, status });
  const requests = list(request("a"), request("b", { approved: true }), request("c", {}, "2026-11-19T08:00:30Z"));
  const { counted, numbers, offers, lists } = counting(false, () => requests, { what: REQUESTS });
  await counted.follow("other");
  assert.deepEqual([offers, lists(), numbers], [[false], [], []]);
  await counted.follow("other, team-a");
  await turns();
  assert.deepEqual([offers.at(-1), lists().length, numbers.at(-1)], [true, 1, 2]);
  t.mock.timers.tick(60_000);
  assert.equal(numbers.at(-1), 1);
  counted.stop();
});

test("requests are offered to a user who may list those of the own namespace, also while the list shows another one", async () => {
  const { counted, numbers, offers, lists } = counting(false, () => list(), { what: REQUESTS, home: "team-a" });
  await counted.follow("nope");
  assert.deepEqual([offers, lists(), numbers], [[true], [], []]);
});

test("requests stay in the navigation, or out of it, while the server cannot say what the user may", async () => {
  let isAway = false;
  const { api } = fakeApi((path) => {
    if (isAway) throw new TypeError("no network");
    return path.endsWith("reviews") ? { status: { allowed: false } } : list();
  });
  const context = { api, machines: new Machines([KIND]), config: {}, store: { get: () => null } };
  const offers = [];
  const counted = new Count(context, REQUESTS, () => {}, (isOffered) => offers.push(isOffered));
  await counted.follow("team-a");
  isAway = true;
  api.forget();
  await counted.follow("team-b");
  assert.deepEqual(offers, [false]);
  counted.stop();
});
