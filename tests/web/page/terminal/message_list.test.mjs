/** Messages of other users over a terminal, in a document in memory. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { install } from "../dom.mjs";

install();
const { MOST_MESSAGES, MessageList, forgetMessages, keptMessages } = await import("../../../../twisted_exec/web/page/terminal/message_list.js");
const { Store } = await import("../../../../twisted_exec/web/page/store.js");

function messages(kept = { get: () => null, set: () => {} }) {
  const counts = [];
  const made = new MessageList(kept, { news: () => counts.push(made.unread), moved: () => {}, focus: () => {} });
  const texts = () => made.element.children.map((each) => each.children[0].text);
  const say = (...numbers) => numbers.forEach((number) => made.add(`message from bob: "${number}"`));
  return { made, counts, texts, say };
}
const text = (number) => `Message from bob: "${number}"`;
const own = (number) => `Your message to 1 viewer: "${number}"`;
const upTo = (number) => Array.from({ length: number }, (_, at) => at + 1);

test("messages that come out of sight are all there when the user returns", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { made, counts, texts, say } = messages();
  say(...upTo(5));
  assert.deepEqual([made.mark.hidden, made.mark.title], [false, "5 unread messages"]);
  made.read();
  assert.deepEqual(texts(), upTo(5).map(text));
  assert.deepEqual([made.mark.hidden, counts.at(-1)], [true, 0]);
  say(6);
  t.mock.timers.tick(30_000);
  assert.deepEqual(texts(), [text(6)]); // which was not in sight
});

test("a list that is full says how many messages it does not show", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { made, texts, say } = messages();
  say(...upTo(MOST_MESSAGES + 1));
  assert.deepEqual(texts().slice(0, 2), ["1 earlier message is not shown.", text(2)]);
  say(22);
  assert.deepEqual(texts(), ["2 earlier messages are not shown.", ...upTo(22).slice(2).map(text)]);
  assert.equal(made.unread, 22);
  made.read();
  t.mock.timers.tick(30_000);
  assert.deepEqual(texts(), []);
  say(23);
  assert.deepEqual(texts(), [text(23)]);
});

test("the newest message is in sight", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { made, say } = messages();
  say(1, 2);
  made.element.children.forEach((each, at) => (each.offsetTop = 7 + 60 * at));
  made.read();
  assert.equal(made.element.scrollTop, 60);
});

test("the last messages stay after they were dismissed, with the user's own", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { made, texts, say } = messages();
  say(1);
  made.addOwn('your message to 1 viewer: "2"');
  assert.deepEqual(texts(), [text(1), own(2)]);
  assert.equal(made.unread, 1);
  made.element.all("button")[0].click();
  t.mock.timers.tick(10_000);
  assert.deepEqual(texts(), []);
  assert.deepEqual(made.last.map((each) => each.text), [text(1), own(2)]);
  say(...upTo(30));
  assert.equal(made.last.length, MOST_MESSAGES);
});

test("a reload keeps messages, also those that the user has not read, but not for another user", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const session = new Store(storage());
  const context = { store: session, api: new EventTarget() };
  const place = { namespace: "default", name: "vm-1" };
  const before = messages(keptMessages(context, place));
  before.say(1);
  before.made.read();
  t.mock.timers.tick(30_000);
  before.made.addOwn('your message to 1 viewer: "2"');
  before.say(...upTo(MOST_MESSAGES));
  const { made, texts } = messages(keptMessages(context, place));
  assert.deepEqual(texts(), ["1 earlier message is not shown.", ...upTo(MOST_MESSAGES).map(text)]);
  assert.deepEqual([made.unread, made.mark.hidden], [MOST_MESSAGES, false]);
  assert.deepEqual(made.last, before.made.last);
  made.read();
  const seen = messages(keptMessages(context, place));
  assert.equal(seen.made.unread, 0);
  t.mock.timers.tick(30_000);
  assert.deepEqual(seen.texts(), []);
  context.api.addEventListener("another user", () => seen.made.forget());
  forgetMessages(context);
  assert.deepEqual(seen.made.last, []);
  assert.deepEqual(messages(keptMessages(context, place)).made.last, []);
});

/** Return the storage of a browser, whose values are also its properties. */
function storage() {
  return Object.create({
    getItem(key) { return this[key] ?? null; },
    setItem(key, value) { this[key] = value; },
    removeItem(key) { delete this[key]; },
  });
}

test("news of the session count as unread without a message, also over a reload, until the console is in sight", () => {
  let value = null;
  const kept = { get: () => value, set: (text) => (value = text) };
  messages(kept).made.addNews();
  const { made, counts, texts } = messages(kept);
  assert.deepEqual([made.unread, made.mark.title, texts()], [1, "1 unread message", []]);
  made.read();
  assert.deepEqual([made.unread, made.mark.hidden, counts, value], [0, true, [0], null]);
});
