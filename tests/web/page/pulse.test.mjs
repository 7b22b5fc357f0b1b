/** Silence of the server behind quiet watches. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Pulse } from "../../../twisted_exec/web/page/pulse.js";
import { FakeClock, turn } from "./fakes.mjs";

/** A page whose server answers as long as `server.answers`. */
function beating() {
  const clock = new FakeClock();
  const page = Object.assign(new EventTarget(), { hidden: false });
  const server = { answers: true, asked: 0 };
  const ask = async () => {
    server.asked += 1;
    return server.answers || new Promise(() => {});
  };
  const pulse = new Pulse(ask, { clock, page });
  const lost = [];
  const follow = (name) => pulse.follow(() => lost.push(name));
  const pass = async (seconds) => {
    for (let second = 0; second < seconds; second += 1) {
      clock.advance(1000);
      await turn();
    }
  };
  const hide = (hidden) => {
    page.hidden = hidden;
    page.dispatchEvent(new Event("visibilitychange"));
  };
  return { clock, server, pulse, lost, follow, pass, hide };
}

test("all that follows a server hears of its silence within 20 s, once", async () => {
  const { server, lost, follow, pass } = beating();
  follow("machines");
  follow("log");
  await pass(65);
  assert.deepEqual([lost, server.asked], [[], 6]);
  server.answers = false;
  await pass(20);
  assert.deepEqual(lost, ["machines", "log"]);
  await pass(60);
  assert.equal(lost.length, 2);
});

test("after a silence the server is asked again as soon as something follows it", async () => {
  const { server, lost, follow, pass } = beating();
  server.answers = false;
  follow("first");
  await pass(20);
  server.answers = true;
  follow("second");
  await pass(60);
  assert.deepEqual(lost, ["first"]);
});

test("what arrives meanwhile is an answer", async () => {
  const { server, pulse, lost, follow, pass } = beating();
  server.answers = false;
  follow("log");
  for (let times = 0; times < 12; times += 1) {
    await pass(5);
    pulse.heard();
  }
  assert.deepEqual(lost, []);
});

test("nothing is asked while nothing follows, or the page is hidden", async () => {
  const { clock, server, lost, follow, pass, hide } = beating();
  const end = follow("machines");
  end();
  await pass(60);
  assert.deepEqual([server.asked, clock.pending], [0, 0]);
  follow("machines");
  hide(true);
  server.answers = false;
  await pass(60);
  assert.deepEqual([server.asked, clock.pending, lost], [0, 0, []]);
  hide(false);
  await pass(20);
  assert.deepEqual(lost, ["machines"]);
});
