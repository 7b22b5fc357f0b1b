/** The number of unhealthy machines, against a fake server. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Machines } from "../../../twisted_exec/web/page/machines.js";
import { Unhealthy } from "../../../twisted_exec/web/page/unhealthy.js";
import { FakeSocket, fakeApi, machine, turn } from "./fakes.mjs";

const KIND = { group: "compute.ironcore.dev", version: "v1alpha1", plural: "machines", subresources: [] };

/** A user who may list all namespaces, or some. */
function counting(allowed, answer = () => list()) {
  FakeSocket.made = [];
  const numbers = [];
  const { api, calls } = fakeApi((path) => (path.endsWith("reviews") ? { status: { allowed } } : answer(path)));
  const unhealthy = new Unhealthy({ api, machines: new Machines([KIND]) }, (number) => numbers.push(number));
  const lists = () => calls.map(({ path }) => path).filter((path) => !path.endsWith("reviews"));
  return { unhealthy, numbers, lists };
}

const list = (...items) => ({ items, metadata: { resourceVersion: "5" } });
const turns = async () => {
  for (let count = 0; count < 5; count += 1) await turn();
};

test("only unhealthy machines are listed, once, and the number follows them", async () => {
  const { unhealthy, numbers, lists } = counting(true, () => list(machine("vm-1")));
  await unhealthy.follow("team-a");
  await turns();
  await unhealthy.follow("");
  await turns();
  assert.equal(lists().length, 1);
  assert.match(lists()[0], /v1alpha1\/machines\?fieldSelector=status.conditions.ConsoleHealthy%3DFalse/);
  const [socket] = FakeSocket.made;
  socket.onopen();
  socket.onmessage({ data: JSON.stringify({ type: "ADDED", object: machine("vm-2") }) });
  socket.onmessage({ data: JSON.stringify({ type: "DELETED", object: machine("vm-1") }) });
  assert.deepEqual(numbers, [null, 1, 2, 1]);
  unhealthy.stop();
  assert.equal(numbers.at(-1), null);
});

test("a user with some namespaces has the number of these, and none while one of them is not known", async () => {
  let isAway = false;
  const { unhealthy, numbers, lists } = counting(false, (path) => (isAway && path.includes("team-b") ? [503, {}] : list(machine("vm-1"))));
  await unhealthy.follow("team-a, team-b");
  await turns();
  assert.deepEqual(lists().map((path) => /namespaces\/([^/]+)/.exec(path)?.[1]), ["team-a", "team-b"]);
  assert.deepEqual(numbers, [null, null, 2]);
  isAway = true;
  unhealthy.stop();
  await unhealthy.follow("team-a, team-b");
  await turns();
  assert.equal(numbers.at(-1), null);
  await unhealthy.follow("team-a");
  await turns();
  assert.equal(numbers.at(-1), 1);
  unhealthy.stop();
});

test("an older server, or one that refuses the list, is asked again only for another list", async () => {
  for (const code of [400, 403]) {
    const { unhealthy, numbers, lists } = counting(false, (path) => (path.includes("team-a") ? [code, {}] : list()));
    await unhealthy.follow("team-a");
    await turns();
    assert.equal(lists().length, 1);
    assert.equal(numbers.at(-1), null);
    await unhealthy.follow("team-b");
    await turns();
    assert.equal(numbers.at(-1), 0);
    unhealthy.stop();
  }
});
