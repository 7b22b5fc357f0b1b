/** Who joins and leaves, and the text of messages. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Company, MOST_TOLD, isPassedOn, messageLine } from "../../../../twisted_exec/web/page/terminal/company.js";

const ada = { user: "ada", isOwn: true };
const [bob, eve] = ["bob", "eve"].map((user) => ({ user, isOwn: false }));

function company(...people) {
  const made = new Company();
  assert.equal(made.news(people.length, people), "");
  return { made, news: (...now) => made.news(now.length, now) };
}

test("users who join and leave are named, those at the beginning are not", () => {
  const { news } = company(ada);
  assert.equal(news(ada, bob), "bob has joined");
  assert.equal(news(ada, bob), "");
  assert.equal(news(ada, bob, eve), "eve has joined");
  assert.equal(news(ada), "bob and eve have left");
  const crowd = [..."123456"].map((user) => ({ user, isOwn: false }));
  assert.equal(news(ada, ...crowd), "1, 2, 3 and 3 more have joined");
  assert.equal(news(ada, bob), "bob has joined; 1, 2, 3 and 3 more have left");
});

test("who joins a user who was alone is named, also before the first list", () => {
  const made = new Company();
  made.begin(1);
  assert.equal(made.news(2, [ada, bob]), "bob has joined");
  assert.equal(made.news(1, [ada]), "bob has left");
  const unnamed = new Company();
  unnamed.begin(1);
  assert.equal(unnamed.news(2, null), "somebody has joined (2 sessions)");
  const second = new Company();
  second.begin(2);
  assert.equal(second.news(2, [ada, bob]), "");
  made.begin(1); // the session goes on
  assert.equal(made.news(2, [ada, eve]), "eve has joined");
});

test("more sessions of a user are no news, but for the user's own name", () => {
  const { news } = company(ada, bob);
  assert.equal(news(ada, bob, bob), "");
  assert.equal(news(ada, bob, bob, { user: "ada", isOwn: false }), "another session of yours has joined");
});

test("a lost session of a user who was not there has not joined, nor does it leave", () => {
  const lost = { ...eve, away: true };
  const { news } = company(ada);
  assert.equal(news(ada, bob, lost), "bob has joined");
  assert.equal(news(ada, bob), "");
  assert.equal(news(ada, bob, { ...ada, isOwn: false, away: true }), "");
  assert.equal(news(ada, { ...bob, away: true }), "");
  assert.equal(news(ada), "bob has left");
});

test("what a notice has said of a user is not said again", () => {
  for (const notice of [
    "bob has left; this console has no writer (~f or --force takes over)",
    "you are the writer of this console again; bob has left",
  ]) {
    const { made, news } = company(ada, bob);
    made.heard(notice);
    assert.equal(news(ada), "", notice);
  }
});

test("a name is compared as notices show it: at most 64 printable characters", () => {
  const cases = [
    ["\u{1f600}".repeat(64), "\u{1f600}".repeat(64)],
    ["\u{1f600}".repeat(65), `${"\u{1f600}".repeat(63)}\u2026`],
    ["x\x1b]0;t\x07\u00a0 y\ud800", "x?]0;t?? y?"],
    ["", "somebody"],
  ];
  for (const [user, shown] of cases) {
    const { made, news } = company(ada);
    assert.equal(news(ada, { user, isOwn: false }), `${shown} has joined`);
    made.heard(`you are the writer of this console again; ${shown} has left`);
    assert.equal(news(ada), "", shown);
  }
});

test("a user without the right to list sessions reads numbers, and at a crowded console nobody reads anything", () => {
  const made = new Company();
  assert.equal(made.news(1, null), "");
  assert.equal(made.news(2, null), "somebody has joined (2 sessions)");
  assert.equal(made.news(1, null), "somebody has left (1 session)");
  assert.equal(made.news(1, null), "");
  assert.equal(made.news(4, null, 2), "somebody has joined (2 sessions, 2 lost)");
  assert.equal(made.news(3, null, 2), "somebody has left (1 session, 2 lost)");
  assert.equal(made.news(MOST_TOLD + 1, null), "");
  assert.equal(made.news(MOST_TOLD, null), "");
  assert.equal(made.news(MOST_TOLD - 1, null), "somebody has left (19 sessions)");
});

test("a message is one line", () => {
  assert.equal(messageLine("  I\treboot \n it "), "I reboot it");
  assert.equal(messageLine(" \n"), "");
  assert.equal(messageLine("a\ud800"), "a\ufffd");
});

test("a receipt says whether others get a message", () => {
  assert.deepEqual(['your message to 1 viewer: "hi"', 'bob is away and reads your message on return: "hi"'].map(isPassedOn), [true, true]);
  assert.deepEqual(["nobody else is at this console to read your message", "your message was not sent: at most 10 messages a minute; try again in 3 s"].map(isPassedOn), [false, false]);
});
