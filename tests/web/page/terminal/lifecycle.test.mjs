/** The life of a console, with sessions in memory. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Lifecycle } from "../../../../twisted_exec/web/page/terminal/lifecycle.js";
import { turn } from "../fakes.mjs";
import { ApiError } from "../../../../twisted_exec/web/page/api.js";

const WITHDRAWN = { reason: "AuthorizationWithdrawn" };
const LEFT = { reason: "UserLeft" };

/** An attachment whose session does what the test says. */
class Session {
  attachment = this;
  session = null;
  isOpen = false;
  hasNewToken = false;
  isFormer = false;
  isFull = false;
  isReadOnly = false;
  refusal = null;
  sent = "";
  acts = [];

  constructor(changed) {
    this.changed = changed;
  }

  start() {
    this.changed("connecting", {});
    this.session = this;
    this.isOpen = true;
  }

  send(bytes) {
    this.sent += bytes;
  }

  reconnectNow() {
    this.acts.push("reconnect");
  }

  wake() {
    this.acts.push("wake");
  }

  leave() {
    this.end(LEFT);
  }

  replace() {
    this.isOpen = false;
    this.acts.push("replaced");
  }

  explain() {
    this.acts.push("explain");
    return Promise.resolve(this.refusal);
  }

  isFormerGone() {
    return this.isFormer;
  }

  end(detail) {
    this.isOpen = false;
    this.changed("ended", { unconfirmed: { sent: 0, unsent: 0 }, ...detail });
  }
}

/** A life, its sessions and its news; `asked` holds what answers the questions about rights. */
function begin(pause = async () => {}) {
  const sessions = [];
  const news = [];
  const asked = [];
  const waits = [];
  let time = 1_000_000;
  const tell = (name) => [name, () => news.push(name)];
  const life = new Lifecycle(
    {
      ask: () => new Promise((answer, fail) => asked.push({ answer, fail })),
      attach: (rights, changed) => {
        sessions.push(new Session(changed));
        return sessions.at(-1);
      },
      state: (name) => news.push(`(${name})`),
      reopen: ({ reason }) => {
        news.push(`reopen ${reason}`);
        life.open();
      },
      ...Object.fromEntries(["opened", "lost", "resumed", "ended", "unauthorized", "missed", "full", "readOnly"].map(tell)),
    },
    () => time,
    (seconds) => {
      waits.push(seconds);
      return pause();
    },
  );
  return {
    life,
    sessions,
    news,
    asked,
    waits,
    answer: async (rights = {}) => {
      asked.splice(0).forEach(({ answer }) => answer(rights));
      await turn();
    },
    fail: async (problem) => {
      asked.splice(0).forEach(({ fail }) => fail(problem));
      await turn();
    },
    pass: (milliseconds) => (time += milliseconds),
    get session() {
      return sessions.at(-1);
    },
    taken: () => news.splice(0),
  };
}

/** Return a life with an open session. */
async function opened() {
  const begun = begin();
  begun.life.open();
  await begun.answer();
  begun.session.changed("open", {});
  begun.taken();
  return begun;
}

/** The keys of each loss that the user is to know of. */
const lostKeys = (life) => life.losses.map(({ sent, unsent }) => ({ sent, unsent }));

test("what is typed before there is a session is sent to it, in order, up to a limit", async () => {
  const begun = begin();
  begun.life.open();
  for (let count = 0; count < 1001; count++) begun.life.typed("x");
  assert.equal(begun.life.isOpen, false);
  await begun.answer();
  begun.life.typed("y");
  assert.equal(begun.session.sent, `${"x".repeat(1000)}y`);
  assert.deepEqual(begun.taken(), ["missed", "(connecting)"]);
  assert.deepEqual(lostKeys(begun.life), [{ sent: 0, unsent: 1 }]);
  assert.equal(begun.life.isOpen, true);
});

test("a key that a full session does not accept is reported", async () => {
  const { life, session, taken } = await opened();
  session.isFull = true;
  life.typed("x");
  assert.deepEqual([taken(), session.sent], [["full"], ""]);
});

test("a loss is reported once, however often the page tries, and so is the return", async () => {
  const { session, taken } = await opened();
  session.changed("reconnecting", {});
  session.changed("reconnecting", {});
  session.changed("resumed", {});
  assert.deepEqual(taken(), ["(reconnecting)", "lost", "(reconnecting)", "(resumed)", "resumed"]);
  session.changed("reconnecting", {});
  assert.deepEqual(taken(), ["(reconnecting)", "lost"]);
});

test("a console that waits for the server learns that another one has reached it", async () => {
  const { life, session } = await opened();
  session.changed("reconnecting", {});
  life.wake();
  assert.deepEqual(session.acts, ["wake"]);
});

test("a session that waits for a login goes on with the new token", async () => {
  const { life, session, taken } = await opened();
  session.changed("reconnecting", { unauthorized: true });
  assert.deepEqual([taken(), session.acts], [["(reconnecting)", "unauthorized", "lost"], []]);
  life.authorized();
  session.hasNewToken = true;
  session.changed("reconnecting", { unauthorized: true });
  assert.deepEqual([taken(), session.acts], [["(reconnecting)"], ["reconnect", "reconnect"]]);
});

test("a first connection whose token is refused asks for a login, or takes that of meanwhile", async () => {
  const { session, taken } = await opened();
  session.changed("connecting", { unauthorized: true });
  session.hasNewToken = true;
  session.changed("connecting", { unauthorized: true });
  assert.deepEqual([taken(), session.acts], [["(connecting)", "unauthorized", "(connecting)"], ["reconnect"]]);
});

test("a session that is over gets no keys, and a login does not open it again", async () => {
  const { life, session, sessions, taken } = await opened();
  session.end({ reason: "Forbidden" });
  assert.deepEqual([taken(), life.isOpen, life.session], [["(ended)", "ended"], false, null]);
  life.typed("x");
  life.authorized();
  await turn();
  assert.deepEqual([session.sent, session.acts, sessions.length], ["", [], 1]);
});

test("keys are counted from the end of a session until the next one is open, whose end counts anew", async () => {
  const begun = await opened();
  begun.session.end({ reason: "SessionDeleted", unconfirmed: { sent: 2, unsent: 1 } });
  begun.life.typed("x"); // into the terminal
  begun.life.missed(3); // into what has the focus then
  assert.deepEqual([lostKeys(begun.life), begun.taken()], [[{ sent: 2, unsent: 5 }], ["(ended)", "ended", "missed", "missed"]]);
  begun.life.open();
  begun.life.typed("y"); // waits
  assert.deepEqual(begun.life.unkept.map(({ sent, unsent }) => [sent, unsent]), [[2, 5], [0, 1]]); // a reload loses this one, too
  await begun.answer();
  begun.session.end({ reason: "Forbidden", unconfirmed: { sent: 0, unsent: 1 } });
  assert.deepEqual(lostKeys(begun.life), [{ sent: 2, unsent: 6 }]);
  begun.life.open();
  begun.life.typed("z");
  await begun.answer({ ending: { reason: "PoweredOff" } });
  assert.deepEqual(lostKeys(begun.life), [{ sent: 2, unsent: 7 }]);
  begun.life.open();
  await begun.answer();
  begun.session.discard = () => 4;
  begun.session.save = () => ({});
  begun.life.beginAnew(true);
  begun.life.missed(1); // its user has not paused yet
  begun.life.settle();
  assert.deepEqual([lostKeys(begun.life), begun.life.unkept], [[{ sent: 2, unsent: 12 }], []]);
  begun.session.end({ reason: "SessionDeleted", unconfirmed: { sent: 1, unsent: 0 } });
  assert.deepEqual(lostKeys(begun.life), [{ sent: 1, unsent: 0 }]);
  begun.life.forgetLost(); // its user has read it
  begun.life.missed(1);
  assert.deepEqual(lostKeys(begun.life), [{ sent: 0, unsent: 1 }]);
});

test("keys that are lost in a session that goes on are of before when its user types, but not while the machine is off", async () => {
  const { life, session } = await opened();
  const lose = (sent, unsent) => life.lost({ sent, unsent });
  lose(1, 2);
  lose(0, 3);
  const both = [{ sent: 1, unsent: 2 }, { sent: 0, unsent: 3 }];
  assert.deepEqual(lostKeys(life), both);
  life.typed("x");
  assert.deepEqual(lostKeys(life), both); // of which the page still tells
  life.machineEnded();
  assert.deepEqual(lostKeys(life), []);
  life.typed("y");
  session.changed("reconnecting", {});
  life.typed("z"); // which the server counts then
  session.changed("resumed", {});
  lose(0, 1);
  life.typed("z");
  session.end({ reason: "PoweredOff", unconfirmed: { sent: 5, unsent: 1 } });
  assert.deepEqual(lostKeys(life), [{ sent: 0, unsent: 1 }, { sent: 3, unsent: 3 }]);
});

test("a loss keeps its time, its cause and its number when another one follows", async () => {
  const { life, session, pass } = await opened();
  life.machineEnded();
  life.lost({ sent: 0, unsent: 4, text: "4 keys typed before." });
  const [first] = life.losses;
  const before = { ...first };
  pass(60_000);
  session.end({ reason: "SessionDeleted", unconfirmed: { sent: 0, unsent: 0 } });
  assert.deepEqual(life.losses, [before]);
  pass(60_000);
  life.missed(2);
  life.missed(1);
  const ofEnd = { at: before.at + 120_000, sent: 0, unsent: 3 };
  assert.deepEqual([life.losses, life.settledLosses], [[before, ofEnd], [before]]);
  assert.deepEqual(life.unkept, [before, ofEnd]);
  life.restore([before]);
  assert.deepEqual(life.losses, [before]);
});

test("keys that are typed behind the next start of the machine are not those before it", async () => {
  for (const isCounted of [true, false]) {
    const { life, session } = await opened();
    life.machineEnded();
    life.typed("y");
    life.machineStarted();
    if (isCounted) life.lost({ sent: 0, unsent: 1 });
    life.typed("z");
    session.end({ reason: "SessionDeleted", unconfirmed: { sent: 1, unsent: 0 } });
    assert.deepEqual(lostKeys(life), isCounted ? [{ sent: 1, unsent: 0 }] : [{ sent: 1, unsent: 1 }]);
  }
});

test("a session that another one replaces ends without a word", async () => {
  const begun = await opened();
  const [first] = begun.sessions;
  begun.life.open();
  assert.deepEqual(first.acts, ["replaced"]);
  first.changed("ended", LEFT);
  await begun.answer();
  assert.deepEqual(begun.taken(), ["(connecting)"]);
});

test("a console that is opened twice at once has one session, which gets all keys", async () => {
  const begun = begin();
  begun.life.open();
  begun.life.typed("a");
  begun.life.open();
  begun.life.typed("b");
  await begun.answer();
  assert.deepEqual([begun.sessions.length, begun.session.sent], [1, "ab"]);
});

test("a new session follows one of the page before a reload that is over", async () => {
  const begun = await opened();
  begun.session.isFormer = true;
  begun.session.end({ reason: "NotFound", code: 404 });
  assert.deepEqual(begun.taken(), ["(ended)", "reopen NotFound"]);
  await begun.answer();
  assert.equal(begun.sessions.length, 2);
});

test("a new session follows one that ended because the web console on this computer was stopped", async () => {
  const begun = await opened();
  begun.session.end({ reason: "WebConsoleStopped" });
  assert.deepEqual(begun.taken(), ["(ended)", "reopen WebConsoleStopped"]);
});

test("a server that does not answer is asked again, and what is typed meanwhile is kept", async (t) => {
  t.mock.method(Math, "random", () => 1);
  const begun = begin();
  begun.life.open();
  begun.life.typed("x");
  for (let count = 0; count < 5; count++) await begun.fail(new ApiError(count ? 503 : 0, "away"));
  assert.deepEqual(begun.waits, [0.5, 1, 2, 4, 4]);
  await begun.answer();
  assert.equal(begun.session.sent, "x");
  const refused = begin();
  const opening = refused.life.open();
  const failing = assert.rejects(opening, /no/);
  await refused.fail(new ApiError(400, "no"));
  await failing;
});

test("a user who waits for a server may have it asked at once, and reads how many keys wait", async () => {
  const begun = begin(() => new Promise(() => {}));
  begun.life.reconnectNow();
  const [first, rest] = ["\u00e9", "z\x1b[A"].map((text) => new TextEncoder().encode(text));
  begun.life.typed(first); // the terminal is not loaded yet
  begun.life.open();
  begun.life.typed(rest);
  assert.equal(begun.life.waiting, 3); // a letter of two bytes, a letter, and an arrow
  for (const again of ["reconnectNow", "authorized", "wake"]) {
    await begun.fail(new ApiError(0, "away"));
    assert.equal(begun.asked.length, 0);
    begun.life[again]();
    await turn();
    assert.equal(begun.asked.length, 1, again);
  }
  await begun.answer();
  assert.equal(begun.session.sent, `${first}${rest}`);
});

test("a console of which the page knows that it has no session asks for none", async () => {
  const begun = begin();
  begun.life.open();
  await begun.answer({ ending: { reason: "PoweredOff" } });
  assert.deepEqual([begun.sessions.length, begun.taken()], [0, ["(ended)", "ended"]]);
});

test("a withdrawn session is opened again with the new token", async () => {
  const begun = await opened();
  begun.session.hasNewToken = true;
  begun.session.end(WITHDRAWN);
  assert.deepEqual(begun.taken(), ["(ended)", "reopen AuthorizationWithdrawn"]);
});

test("a withdrawn session is opened again behind the next login", async () => {
  const begun = await opened();
  begun.session.refusal = { code: 401 };
  begun.session.end(WITHDRAWN);
  await turn();
  assert.deepEqual([begun.taken(), begun.session.acts], [["(ended)", "ended", "ended"], ["explain"]]); // now with what the login does
  begun.life.authorized();
  begun.life.authorized();
  assert.deepEqual(begun.taken(), ["reopen AuthorizationWithdrawn"]);
});

test("a withdrawn session whose user has lost a right stays closed", async () => {
  const begun = await opened();
  begun.session.refusal = { code: 403, message: "use an account of your own" };
  begun.session.end(WITHDRAWN);
  await turn();
  begun.life.authorized();
  assert.deepEqual(begun.taken(), ["(ended)", "ended", "ended"]); // now with why
  const explained = await opened();
  explained.session.refusal = { code: 403, kind: "machines", causes: [{ reason: "MissingRight", message: "" }] };
  explained.session.end(WITHDRAWN);
  await turn();
  assert.deepEqual(explained.taken(), ["(ended)", "ended", "ended"]); // now with whom to ask
});

test("a withdrawn session whose next one needs a reason ends with what its user can give", async () => {
  const begun = await opened();
  begun.session.refusal = { code: 403, causes: [{ reason: "ReasonRequired", message: "" }] };
  begun.session.end(WITHDRAWN);
  await turn();
  assert.deepEqual(begun.taken(), ["(ended)", "ended", "ended"]);
});

test("a withdrawn session that nobody refuses is opened again at most once a minute", async () => {
  const begun = await opened();
  const withdraw = async () => {
    begun.session.end(WITHDRAWN);
    await turn();
    await begun.answer();
  };
  await withdraw();
  assert.equal(begun.sessions.length, 2);
  begun.pass(59_000);
  await withdraw();
  assert.equal(begun.sessions.length, 2);
  begun.life.open();
  await begun.answer();
  begun.pass(61_000);
  await withdraw();
  assert.equal(begun.sessions.length, 4);
});

test("a console that the user opens while the page asks why it was withdrawn is not opened twice", async () => {
  const begun = await opened();
  begun.session.end(WITHDRAWN);
  begun.life.open();
  await turn();
  await begun.answer();
  assert.deepEqual([begun.sessions.length, begun.taken().some((each) => each.startsWith("reopen"))], [2, false]);
});

test("a closed console ends its session, and opens no other", async () => {
  const begun = await opened();
  begun.life.close();
  assert.deepEqual([begun.taken(), begun.life.isClosed], [["(ended)", "ended"], true]);
  const early = begin();
  early.life.open();
  early.life.close();
  await early.answer();
  assert.deepEqual([early.sessions.length, early.life.isOpen], [0, false]);
});

test("a session that only observes gets no keys, also none of before, and the user learns of it", async () => {
  const { life, session, taken } = await opened();
  session.isReadOnly = true;
  life.typed(new TextEncoder().encode("\x1b[<35;1;1M")); // the mouse was moved
  life.typed("a");
  assert.deepEqual([session.sent, taken()], ["", ["readOnly"]]);
});
