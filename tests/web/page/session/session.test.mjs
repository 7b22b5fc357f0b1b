/** A session over fake WebSockets. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { ConsoleSession } from "../../../../twisted_exec/web/page/session/session.js";
import { FakeClock, FakeLocks, fakeWebSockets, turn } from "../fakes.mjs";

const NOTHING = { sent: 0, unsent: 0 };
const EPOCH = "9f3c22d10b7a4e55";
const bytes = (text) => new TextEncoder().encode(text);
const key = (number) => String(number).padStart(43, "k");

/** A session, and what it has told. */
class Page {
  clock;
  told = [];
  states = [];
  saved = null;
  keeps = [];

  static async open(options = {}) {
    const page = new Page();
    page.clock = options.clock ?? new FakeClock();
    const { FakeWebSocket, sockets } = fakeWebSockets();
    page.sockets = sockets;
    page.events = new EventTarget();
    page.events.document = new EventTarget();
    const tell = (name) => (...values) => page.told.push([name, ...values]);
    page.session = new ConsoleSession({
      url: () => "wss://server/exec",
      protocols: () => ["v5.channel.k8s.io", "base64url.bearer.authorization.k8s.io.eA"],
      keep: (saved) => {
        page.saved = saved && JSON.parse(JSON.stringify(saved));
        page.keeps.push([page.saved, page.socket?.sent.length]);
      },
      clock: page.clock,
      WebSocket: FakeWebSocket,
      events: page.events,
      random: () => 1,
      locks: null,
      ...options,
      on: {
        ...Object.fromEntries(
          ["gap", "notice", "viewers", "echo", "uncertain", "placed", "roundTrip", "quiet"].map((name) => [name, tell(name)]),
        ),
        output: (data) => page.told.push(["output", Buffer.from(data).toString()]),
        state: (name, detail) => page.states.push([name, detail]),
        ...options.on,
      },
    });
    await turn();
    return page;
  }

  get socket() {
    return this.sockets.at(-1);
  }

  /** The server accepts the present connection. */
  accept({ number = this.sockets.length, ack = 0, at = 100, ...more } = {}) {
    this.socket.accept();
    this.socket.mark({ Session: `s-${number}`, Key: key(number), Seconds: 60 });
    this.socket.mark({ Ack: ack });
    this.socket.mark({ At: at, Epoch: EPOCH, ...more });
    return this.socket;
  }

  get state() {
    return this.states.at(-1);
  }

  take(name) {
    const found = this.told.filter((each) => each[0] === name).map((each) => each[1]);
    this.told = this.told.filter((each) => each[0] !== name);
    return found;
  }
}

test("a session opens, types and shows", async () => {
  const page = await Page.open();
  page.session.resize(80, 24);
  page.session.send(bytes("early"));
  assert.deepEqual(page.states, [["connecting", {}]]);
  assert.deepEqual(page.socket.protocols.slice(0, 2), ["v5.channel.k8s.io", "base64url.bearer.authorization.k8s.io.eA"]);
  assert.equal(page.socket.resume, "marks; credit=131072");
  const socket = page.accept({ End: 120 });
  assert.deepEqual(page.state, ["open", { resumable: true }]);
  assert.deepEqual(socket.controls()[0], { Width: 80, Height: 24 });
  assert.equal(socket.typed(), "early");
  socket.message(1, "login: ");
  socket.mark({ Notice: "hello" });
  socket.mark({ Viewers: 1, Writer: "ada", Seconds: 0 });
  socket.mark({ Echo: 700 });
  assert.deepEqual(page.take("placed"), [{ epoch: EPOCH, offset: 100, exact: true, end: 120 }]);
  assert.deepEqual(page.told, [
    ["output", "login: "],
    ["notice", { Notice: "hello" }],
    ["viewers", { count: 1, lost: 0, writer: "ada", seconds: 0, hasBreak: true, recordings: null, withheld: "", message: 0, size: null }],
    ["echo", 700],
  ]);
  page.session.sysrq("b");
  page.session.role("drive");
  page.session.role("observe");
  page.session.send(new Uint8Array());
  assert.deepEqual(socket.controls(), [
    { Width: 80, Height: 24, Break: 250 },
    { Width: 80, Height: 24, Role: "drive" },
    { Width: 80, Height: 24, Role: "watch" },
  ]);
  assert.equal(socket.typed(), "b");
  page.session.leave();
  assert.equal(socket.closedWith, 1000);
  assert.deepEqual(page.state, ["ended", { reason: "UserLeft", message: "", code: 0, exitCode: null, kind: "", name: "", causes: [], unconfirmed: { sent: 9, unsent: 0 } }]);
  assert.equal(page.clock.pending, 0);
  page.session.send(bytes("late"));
  page.session.leave();
  assert.equal(page.saved, null);
});

test("a message to other users is no input, and is not sent during an outage nor behind it", async () => {
  const page = await Page.open();
  page.session.resize(80, 24);
  const first = page.accept();
  assert.equal(page.session.say("h\u00e9 \u{1f600}"), true);
  assert.deepEqual(first.controls().at(-1), { Width: 80, Height: 24, Message: "h\u00e9 \u{1f600}" });
  assert.equal(page.session.waiting, 0);
  first.lose("gone");
  assert.equal(page.session.say("lost"), false);
  page.clock.advance(100);
  page.accept({ ack: 0, at: 100 });
  assert.ok(page.socket.controls().every((each) => !("Message" in each)));
});

test("a lost connection is resumed, first after a tenth of a second", async () => {
  const page = await Page.open();
  page.session.resize(80, 24);
  const first = page.accept();
  first.message(1, "12345");
  page.session.send(bytes("ls\r"));
  first.lose("gone");
  assert.deepEqual(page.state, ["reconnecting", { since: page.clock.now(), keptSeconds: 60, sent: 3, message: "gone", unauthorized: false }]);
  page.session.resize(100, 40);
  page.session.send(bytes("x"));
  page.clock.advance(99);
  assert.equal(page.sockets.length, 1);
  page.clock.advance(1);
  assert.match(page.socket.resume, new RegExp(`^key=${key(1)}; session=s-1; epoch=${EPOCH}; from=105; credit=`));
  page.accept({ ack: 2, at: 105, End: 125 });
  assert.deepEqual(page.state, ["resumed", { seconds: 0.1, missed: 20 }]);
  assert.deepEqual(page.socket.controls()[0], { Width: 100, Height: 40 });
  assert.equal(page.socket.typed(), "\rx");
  assert.deepEqual(page.take("gap"), []);
});

test("attempts come less and less often, and at once when the network is back", async () => {
  const page = await Page.open();
  page.accept().lose();
  const times = [];
  for (let count = 0; count < 11; count++) {
    const [before, since] = [page.sockets.length, page.clock.now()];
    while (page.sockets.length === before) page.clock.advance(10);
    times.push(page.clock.now() - since);
    page.socket.lose();
  }
  assert.deepEqual(times, [100, 200, ...Array(7).fill(400), 800, 1000]);
  page.clock.advance(150_000);
  const before = page.sockets.length;
  page.clock.advance(9_000);
  assert.ok(page.sockets.length <= before + 1);
  const now = page.sockets.length;
  page.socket.lose();
  page.events.dispatchEvent(new Event("online"));
  assert.equal(page.sockets.length, now + 1);
  page.events.dispatchEvent(new Event("online")); // this attempt is young
  assert.equal(page.sockets.length, now + 1);
});

test("an attempt without an answer is given up", async () => {
  const page = await Page.open();
  page.accept().lose();
  page.clock.advance(100);
  const silent = page.socket;
  page.clock.advance(10_000);
  assert.equal(silent.closedWith, 4001); // a Close without it would end the session
  assert.deepEqual([page.state[1].message, page.state[1].isSilent], ["no answer within 10 s", true]);
  page.clock.advance(200);
  page.accept({ number: 2 });
  silent.onmessage?.({ data: new Uint8Array([1, 65]).buffer });
  assert.equal(page.state[0], "resumed");
  assert.deepEqual(page.take("output"), []);
});

test("a new key is stored before the server hears the page", async () => {
  const page = await Page.open();
  page.session.resize(80, 24);
  page.accept().lose();
  page.clock.advance(100);
  page.keeps = [];
  page.accept({ number: 2 });
  const [saved, sent] = page.keeps[0];
  assert.equal(saved.keys[0].key, key(2));
  assert.equal(sent, 0);
});

test("a reload goes on with the session and its input; output can be repeated for the empty screen", async () => {
  const page = await Page.open();
  const socket = page.accept();
  socket.message(1, "x".repeat(1000));
  page.session.send(bytes("typed"));
  page.clock.advance(250);
  const again = await Page.open({ saved: page.saved, replayBytes: 300, clock: page.clock });
  again.session.send(bytes("!"));
  assert.deepEqual(again.states, [["connecting", {}]]);
  assert.match(again.socket.resume, /^key=k+1; session=s-1; .*from=800;/);
  again.accept({ number: 2, ack: 3, at: 800, End: 1100 });
  assert.deepEqual(again.state, ["resumed", { seconds: 0, missed: 300 }]);
  assert.equal(again.socket.typed(), "ed!");
});

test("a reload while the server is away keeps trying", async () => {
  const page = await Page.open();
  page.accept();
  const again = await Page.open({ saved: page.saved });
  again.socket.lose();
  assert.equal(again.state[0], "reconnecting");
  again.clock.advance(1000);
  assert.equal(again.sockets.length, 2);
});

test("a reload in an outage knows since when", async () => {
  const page = await Page.open();
  page.accept().lose("gone");
  const [, { since }] = page.state;
  page.clock.advance(90_000);
  page.events.document.hidden = true;
  page.events.document.dispatchEvent(new Event("visibilitychange"));
  const reloaded = await Page.open({ saved: page.saved, clock: page.clock });
  reloaded.socket.lose("unreachable");
  const [name, detail] = reloaded.state;
  assert.deepEqual([name, detail.since], ["reconnecting", since]);
  page.clock.advance(1000);
  reloaded.accept({ ack: 0, at: 100 });
  assert.equal(Math.floor(reloaded.state[1].seconds), 91);
});

test("keys are sent if the connection is back within the seconds for which the server keeps a session, and later dropped", async () => {
  for (const [milliseconds, typed, uncertain] of [
    [60_000, "bcde", []],
    [60_001, "", [{ sent: 2, unsent: 2 }]],
  ]) {
    const page = await Page.open();
    page.accept();
    page.session.send(bytes("abc"));
    page.socket.lose();
    page.session.send(bytes("de"));
    page.clock.advance(milliseconds);
    page.accept({ number: 2, ack: 1 });
    assert.equal(page.state[0], "resumed");
    assert.deepEqual([page.socket.typed(), page.take("uncertain"), page.session.waiting], [typed, uncertain, typed.length]);
    page.session.send(bytes("f"));
    assert.equal(page.socket.typed(), "f");
    page.socket.lose();
    page.clock.advance(100);
    page.accept({ number: 3, ack: 1 + typed.length });
    assert.deepEqual([page.socket.typed(), page.take("uncertain")], ["f", []]);
  }
});

test("keys of a long outage are dropped behind the crash of a runtime and a reload of the page, too", async () => {
  for (const ack of [null, 0]) {
    const page = await Page.open();
    page.accept().lose();
    page.session.send(bytes("ls\r"));
    page.clock.advance(50_000);
    page.events.dispatchEvent(new Event("pagehide"));
    const reloaded = await Page.open({ saved: page.saved, clock: page.clock });
    page.clock.advance(5_000);
    reloaded.session.send(bytes("x"));
    page.clock.advance(6_000);
    reloaded.socket.accept();
    reloaded.socket.mark({ Session: "s-2", Key: key(2), Seconds: 0 }); // by now it keeps none
    reloaded.socket.mark({ Ack: ack });
    reloaded.socket.mark({ At: 100, Epoch: EPOCH });
    assert.deepEqual([reloaded.socket.typed(), reloaded.take("uncertain")], ["", [{ sent: 0, unsent: 4 }]]);
    assert.equal(reloaded.saved.input.items.length + reloaded.saved.input.waiting.length, 0);
  }
});

test("a long outage without keys tells nothing of keys", async () => {
  const page = await Page.open();
  page.accept().lose();
  page.session.send(bytes("\x1b[I")); // the terminal has the focus
  page.clock.advance(70_000);
  page.accept({ number: 2 });
  assert.deepEqual([page.socket.typed(), page.take("uncertain")], ["", []]);
});

test("the page stores the session when it is hidden", async () => {
  const page = await Page.open();
  page.accept().message(1, "12345");
  page.events.document.hidden = true;
  page.events.document.dispatchEvent(new Event("visibilitychange"));
  assert.equal(page.saved.position.offset, 105);
  assert.equal(page.socket.closedWith, null);
});

test("who leaves the page is no viewer any more, and goes on with the session on return", async () => {
  const page = await Page.open();
  const socket = page.accept();
  socket.message(1, "12345");
  page.events.dispatchEvent(new Event("pagehide"));
  assert.equal(page.saved.position.offset, 105);
  assert.equal(socket.closedWith, 4001);
  page.clock.advance(50_000);
  assert.equal(page.sockets.length, 1);
  page.session.send(bytes("x"));
  page.events.dispatchEvent(new Event("pageshow"));
  assert.equal(page.sockets.length, 2);
  assert.match(page.socket.resume, new RegExp(`^key=${key(1)}; session=s-1; epoch=${EPOCH}; from=105;`));
  page.accept({ at: 105, End: 125 });
  assert.deepEqual(page.state, ["resumed", { seconds: 50, missed: 20 }]);
  assert.equal(page.socket.typed(), "x");
});

test("a page that is left while it connects tries again on return", async () => {
  const page = await Page.open();
  page.events.dispatchEvent(new Event("pagehide"));
  assert.equal(page.socket.closedWith, 4001);
  page.clock.advance(3_600_000);
  assert.equal(page.sockets.length, 1);
  page.events.dispatchEvent(new Event("pageshow"));
  page.accept();
  assert.deepEqual(page.state, ["open", { resumable: true }]);
  page.events.dispatchEvent(new Event("pageshow"));
  assert.equal(page.sockets.length, 2);
});

test("a full storage does not disturb the session", async () => {
  const keep = () => {
    throw new Error("QuotaExceededError");
  };
  const page = await Page.open({ keep });
  page.accept();
  page.events.document.hidden = true;
  page.events.document.dispatchEvent(new Event("visibilitychange"));
  assert.equal(page.state[0], "open");
});

test("what another release has stored is no reason to fail", async () => {
  const page = await Page.open({ saved: { id: "x", version: 2 } });
  page.accept();
  assert.deepEqual(page.state, ["open", { resumable: true }]);
});

test("of two tabs with one saved session, one goes on, and the other opens a session", async () => {
  const locks = new FakeLocks();
  const page = await Page.open({ locks });
  page.accept();
  const copy = await Page.open({ saved: page.saved, locks });
  copy.session.send(bytes("x"));
  assert.equal(copy.sockets.length, 0);
  copy.clock.advance(2000);
  await turn();
  await turn();
  assert.equal(copy.socket.resume, "marks; credit=131072");
  assert.notEqual(copy.session.save()?.id, page.saved.id);
  const saved = page.saved;
  page.session.leave();
  await turn();
  const reloaded = await Page.open({ saved, locks });
  await turn();
  assert.match(reloaded.socket.resume, /^key=/);
});

test("an older server has ordinary sessions, whose loss is the end", async () => {
  const page = await Page.open();
  page.session.send(bytes("early"));
  page.socket.accept();
  page.socket.message(1, "");
  assert.deepEqual(page.state, ["open", { resumable: false }]);
  assert.equal(page.socket.typed(), "early");
  page.socket.message(1, "hello");
  page.session.taken(100_000);
  page.session.send(bytes("x"));
  assert.equal(page.socket.typed(), "x");
  assert.deepEqual(page.socket.controls(), []);
  assert.deepEqual(page.take("output"), ["hello"]);
  page.socket.lose("gone");
  assert.equal(page.state[1].reason, "ConnectionLost");
});

test("a server of an older release that takes the place of another cannot resume", async () => {
  const page = await Page.open();
  page.accept().lose();
  page.clock.advance(100);
  page.socket.accept();
  page.socket.message(1, "");
  assert.equal(page.state[1].reason, "CannotResume");
});

test("a status is the end, with its reason", async () => {
  const page = await Page.open();
  const socket = page.accept();
  const message = "the machine was deleted";
  socket.status({ message, reason: "MachineDeleted", details: { causes: [] } });
  assert.deepEqual(page.state, ["ended", { reason: "MachineDeleted", message, code: 0, exitCode: null, kind: "", name: "", causes: [], unconfirmed: NOTHING }]);
  assert.equal(page.saved, null);
});

test("a program that stops, and says so, is the end", async () => {
  const page = await Page.open();
  const socket = page.accept();
  socket.onclose({ code: 1001, reason: "the web console on this computer was stopped" });
  assert.equal(page.state[1].message, "the web console on this computer was stopped");
  const other = await Page.open();
  other.accept().onclose({ code: 1001, reason: "" });
  assert.equal(other.state[0], "reconnecting");
});

test("a status may come in parts, and none of its beginning counts", async () => {
  const page = await Page.open();
  const socket = page.accept();
  socket.message(3, '{"metadata":{},"sta');
  assert.equal(page.state[0], "open");
  socket.message(3, 'tus":"Success"}');
  assert.equal(page.state[1].reason, "Completed");
});

test("a refusal keeps its details", async () => {
  const page = await Page.open();
  page.socket.accept();
  const causes = [{ reason: "ReasonRequired", message: "a reason", request: "", user: "", verb: "", remedy: "" }];
  page.socket.status({ message: "no", reason: "Forbidden", code: 403, details: { kind: "machines", name: "vm", causes } });
  assert.deepEqual([page.state[1].kind, page.state[1].name, page.state[1].causes], ["machines", "vm", causes]);
});

test("a refusal is the end, and one of an overloaded server may pass", async () => {
  const page = await Page.open();
  page.socket.accept();
  page.socket.status({ message: "not found", reason: "NotFound", code: 404 });
  assert.deepEqual(page.state, ["ended", { reason: "NotFound", message: "not found", code: 404, exitCode: null, kind: "", name: "", causes: [], unconfirmed: NOTHING }]);

  const other = await Page.open();
  other.accept().lose();
  other.clock.advance(100);
  other.socket.accept();
  other.socket.status({ message: "busy", reason: "Busy", code: 503, details: { retryAfterSeconds: 7 } });
  assert.equal(other.state[1].message, "busy");
  other.clock.advance(6_999);
  assert.equal(other.sockets.length, 2);
  other.clock.advance(1);
  other.accept({ number: 2 });
  assert.equal(other.state[0], "resumed");
});

test("a machine that cannot start is the end of the first attempt, and no end of a session whose connection is lost", async () => {
  const refused = { message: "not running yet: no such class", reason: "ServiceUnavailable", code: 503, details: { causes: [{ reason: "CannotStart", message: "" }] } };
  const page = await Page.open();
  page.socket.accept();
  page.socket.status(refused);
  assert.deepEqual([page.state[0], page.state[1].message], ["ended", refused.message]);
  const other = await Page.open();
  other.accept().lose();
  other.clock.advance(100);
  other.socket.accept();
  other.socket.status(refused);
  assert.equal(other.state[0], "reconnecting");
});

test("a 403 without causes may come from an API server that is starting, and is asked again", async () => {
  const refused = { message: "forbidden", reason: "Forbidden", code: 403, details: { kind: "machines" } };
  const page = await Page.open();
  page.accept().lose();
  for (let seconds = 0; seconds < 9; seconds++) {
    page.clock.advance(1_000);
    page.socket.accept();
    page.socket.status(refused);
    assert.equal(page.state[0], "reconnecting");
  }
  page.clock.advance(1_000);
  page.socket.accept();
  page.socket.status(refused);
  assert.equal(page.state[1].code, 403);
  const decided = await Page.open();
  decided.accept().lose();
  decided.clock.advance(100);
  decided.socket.accept();
  const causes = [{ reason: "Decided", message: "" }];
  decided.socket.status({ ...refused, details: { kind: "machines", causes } });
  assert.equal(decided.state[1].code, 403);
});

test("a 404 is answered with the key before", async () => {
  const page = await Page.open();
  page.accept().lose();
  page.clock.advance(100);
  page.accept({ number: 2 }).lose();
  page.clock.advance(100);
  page.socket.accept();
  page.socket.status({ message: "no session", reason: "NotFound", code: 404 });
  assert.match(page.socket.resume, new RegExp(`^key=${key(1)}; session=s-1;`));
  page.socket.accept();
  page.socket.status({ message: "no session", reason: "NotFound", code: 404 });
  assert.equal(page.state[1].code, 404);
});

test("a token that is refused is asked for, and the session stays", async () => {
  const page = await Page.open();
  page.accept().lose();
  page.clock.advance(100);
  page.socket.accept();
  page.socket.status({ message: "Unauthorized", reason: "Unauthorized", code: 401 });
  assert.equal(page.state[1].unauthorized, true);
  page.clock.advance(100_000);
  assert.equal(page.sockets.length, 2);
  page.session.reconnectNow();
  page.accept({ number: 3 });
  assert.equal(page.state[0], "resumed");
});

test("a first connection whose token was refused is tried again behind the login, and is no return", async () => {
  const page = await Page.open();
  page.socket.accept();
  page.socket.status({ message: "Unauthorized", reason: "Unauthorized", code: 401 });
  assert.deepEqual([page.state[0], page.state[1].unauthorized], ["connecting", true]);
  page.clock.advance(100_000);
  assert.equal(page.sockets.length, 1);
  page.session.reconnectNow();
  page.socket.lose();
  assert.deepEqual([page.state[0], page.state[1].unauthorized], ["connecting", false]);
  page.session.reconnectNow();
  page.accept();
  assert.equal(page.state[0], "open");
});

test("a handshake that fails is explained in another way, if there is one", async () => {
  let answer = { code: 403, message: "forbidden" };
  const page = await Page.open({ explain: async () => answer });
  page.socket.lose();
  await turn();
  assert.deepEqual([page.state[1].code, page.state[1].message], [403, "forbidden"]);
  answer = null;
  const other = await Page.open({ explain: async () => answer });
  other.socket.lose();
  await turn();
  assert.equal(other.state[0], "connecting");
  assert.match(other.state[1].message, /^A proxy in front of it, .* may not pass WebSockets on/); // the page says itself that it cannot be reached
});

test("a first connection is tried again while the server is out of reach or overloaded", async () => {
  const page = await Page.open();
  page.socket.lose();
  assert.deepEqual([page.state[0], page.state[1].code, page.state[1].isSilent], ["connecting", 0, false]);
  page.clock.advance(200);
  page.socket.accept();
  page.socket.status({ message: "the host is away", reason: "ServiceUnavailable", code: 503 });
  assert.deepEqual(page.state, ["connecting", { message: "the host is away", code: 503, unauthorized: false }]);
  page.session.reconnectNow();
  page.accept();
  assert.equal(page.state[0], "open");
});

test("a session that waits for a server that it did not reach need not wait, but for one that asks it to", async () => {
  const page = await Page.open();
  const attempts = () => page.sockets.length;
  page.session.wake();
  assert.equal(attempts(), 1); // an attempt goes on
  page.socket.lose();
  page.session.wake();
  assert.equal(attempts(), 2);
  page.socket.accept();
  page.socket.status({ message: "busy", reason: "ServiceUnavailable", code: 503, details: { retryAfterSeconds: 5 } });
  page.session.wake();
  assert.equal(attempts(), 2);
  page.session.reconnectNow();
  page.accept();
  page.session.wake();
  assert.deepEqual([attempts(), page.state[0]], [3, "open"]);
});

test("a black hole is noticed within 20 seconds, also before the first answer", async () => {
  for (const isFirst of [false, true]) {
    const page = await Page.open();
    const socket = page.accept();
    const [{ Ping }] = socket.controls().filter((each) => "Ping" in each);
    if (!isFirst) {
      socket.mark({ Pong: Ping });
      assert.deepEqual(page.take("roundTrip"), [0]);
      page.clock.advance(4_000);
      socket.message(1, "any message is a sign of life");
    }
    page.clock.advance(7_999);
    assert.deepEqual(page.take("quiet"), []);
    page.clock.advance(1);
    assert.equal(page.take("quiet").length, 1);
    page.clock.advance(11_999);
    assert.equal(page.state[0], "open");
    page.clock.advance(1);
    assert.equal(page.state[0], "reconnecting");
    assert.match(page.state[1].message, /silent for 16 s/);
    assert.equal(page.clock.now() - page.state[1].since, 16_000); // the user has read of the silence
  }
});

test("a key without an answer is news after 4 seconds, and so is the answer; keys are counted until they are confirmed", async () => {
  const page = await Page.open();
  const socket = page.accept();
  socket.mark({ Pong: page.clock.now() });
  page.clock.advance(500);
  socket.controls();
  const typed = page.clock.now();
  page.session.send(bytes("a"));
  page.clock.advance(900);
  assert.deepEqual(socket.controls(), []);
  page.session.send(bytes("b"));
  page.clock.advance(3_099);
  assert.deepEqual([page.take("quiet"), socket.controls().length], [[], 1]);
  page.clock.advance(1);
  assert.deepEqual([page.take("quiet"), page.session.waiting], [[typed], 2]);
  socket.mark({ Ack: 2 });
  assert.deepEqual([page.take("quiet"), page.session.waiting], [[null], 0]);
});

test("the time of a loss goes on from that of the silence before it", async () => {
  const page = await Page.open();
  const socket = page.accept();
  page.clock.advance(10_000);
  const [since] = page.take("quiet");
  socket.lose();
  assert.deepEqual([page.state[0], page.state[1].since], ["reconnecting", since]);
  page.clock.advance(100);
  page.accept({ at: 100 });
  assert.deepEqual([page.state[0], page.state[1].seconds], ["resumed", (page.clock.now() - since) / 1000]);
  page.socket.mark({ Pong: page.clock.now() });
  page.clock.advance(1_000);
  page.socket.lose();
  assert.equal(page.state[1].since, page.clock.now()); // nothing was owed
});

test("a server that answers each key is asked no more often than without keys", async () => {
  const page = await Page.open();
  const socket = page.accept();
  for (let count = 1; count <= 40; count++) {
    page.session.send(bytes("x"));
    page.clock.advance(100);
    socket.mark({ Ack: count });
    page.clock.advance(200);
  }
  const asked = socket.controls().filter((each) => "Ping" in each);
  assert.ok(asked.length <= 4, `${asked.length} questions in 12 s`);
});

test("the end of a session says how much input may not have arrived", async () => {
  const page = await Page.open();
  const socket = page.accept();
  page.session.send(bytes("ab"));
  socket.mark({ Ack: 1 });
  socket.lose();
  page.session.send(bytes("cde"));
  page.session.leave();
  assert.deepEqual(page.state[1].unconfirmed, { sent: 1, unsent: 3 });
});

test("input that was typed before a session opens can be discarded", async () => {
  const page = await Page.open({ on: { state: (name) => name === "open" && assert.equal(page.session.discard(), 3) } });
  page.session.send(bytes("abc"));
  assert.equal(page.accept().typed(), "");
  page.session.send(bytes("d"));
  assert.equal(page.socket.typed(), "d");
});

test("a page that is shown again finds out soon whether its connection is one", async () => {
  const page = await Page.open();
  const socket = page.accept();
  socket.mark({ Pong: page.clock.now() });
  page.events.document.dispatchEvent(new Event("visibilitychange"));
  page.clock.advance(2_999);
  assert.equal(page.state[0], "open");
  page.clock.advance(1);
  assert.equal(page.state[0], "reconnecting");
});

test("a question is answered behind the input that waits", async () => {
  const page = await Page.open();
  page.session.send(bytes("typed before"));
  const socket = page.accept();
  socket.mark({ Ping: 7 });
  const last = socket.sent.map((message) => Buffer.from(message.subarray(1)).toString());
  assert.ok(last.indexOf("typed before") < last.indexOf('{"Pong":7}\n'));
});

test("a question behind a start of the machine, or an outage, is answered when its user types no more", async () => {
  const page = await Page.open();
  let socket = page.accept();
  const answers = () => socket.controls().filter((each) => "Pong" in each);
  const restarted = { Notice: "the machine has started again", Kind: "restarted" };
  page.session.send(bytes("a"));
  socket.mark({ Ping: 1 });
  assert.deepEqual(answers(), [{ Pong: 1 }]);
  socket.mark(restarted);
  socket.mark({ Ping: 2 });
  page.clock.advance(600);
  page.session.send(bytes("b"));
  page.clock.advance(600);
  page.session.send(bytes("\x1b[<0;1;1M")); // the mouse types nothing
  page.clock.advance(399);
  assert.deepEqual(answers(), []);
  assert.match(socket.typed(), /^ab/); // the server discards and counts it
  page.clock.advance(1);
  assert.deepEqual(answers(), [{ Pong: 2 }]);
  page.session.send(bytes("c"));
  socket.mark({ Ping: 3 });
  assert.deepEqual(answers(), [{ Pong: 3 }]);
  socket.mark(restarted);
  socket.mark({ Ping: 4 });
  socket.lose();
  page.session.send(bytes("d"));
  page.clock.advance(100);
  socket = page.accept({ number: 2, ack: 12 });
  socket.mark({ Ping: 1 });
  page.clock.advance(899);
  assert.deepEqual(answers(), []);
  page.clock.advance(1);
  assert.deepEqual(answers(), [{ Pong: 1 }]);
  page.clock.advance(1000);
  socket.mark(restarted);
  socket.mark({ Ping: 2 });
  assert.deepEqual(answers(), [{ Pong: 2 }]); // its user has typed nothing for a second
  socket.lose();
  page.clock.advance(100);
  socket = page.accept({ number: 3, ack: 13 });
  page.session.send(bytes("e"));
  socket.mark({ Ping: 1 });
  page.session.leave();
  assert.equal(page.clock.pending, 0);
});

test("the server learns what the page has shown", async () => {
  const page = await Page.open();
  const socket = page.accept();
  socket.message(1, "x".repeat(40_000));
  socket.controls();
  page.session.taken(10_000);
  assert.deepEqual(socket.controls(), []);
  page.session.taken(30_000);
  assert.deepEqual(socket.controls(), [{ Taken: 40_000 }]);
});

test("gaps and uncertain input are reported", async () => {
  const page = await Page.open();
  page.accept();
  page.session.send(bytes("abc"));
  page.socket.lose();
  page.clock.advance(100);
  page.accept({ number: 2, ack: null, at: 107 });
  assert.deepEqual(page.take("uncertain"), [{ sent: 3, unsent: 0 }]);
  assert.deepEqual(page.take("gap"), [{ bytes: 7, exact: true }]);
  assert.equal(page.socket.typed(), "");
  assert.deepEqual(page.state, ["resumed", { seconds: 0.1, missed: 0, anew: { sent: 3, unsent: 0 } }]);
  page.socket.lose();
  page.clock.advance(100);
  page.accept({ number: 3, ack: null, at: 107 });
  assert.deepEqual(page.state[1].anew, { sent: 0, unsent: 0 });
  page.socket.lose();
  page.clock.advance(100);
  page.accept({ number: 4, at: 107 });
  assert.ok(!("anew" in page.state[1]));
});

test("a server that says that it restarts has told which input its machine got", async () => {
  const page = await Page.open();
  page.accept();
  page.session.send(bytes("abc"));
  page.socket.mark({ Ack: 1 });
  page.socket.lose("exec-runtime is restarting", 1012);
  assert.equal(page.state[1].restarts, "exec-runtime is restarting");
  page.session.send(bytes("d"));
  page.clock.advance(100);
  page.accept({ number: 2, ack: null });
  assert.deepEqual([page.socket.typed(), page.take("uncertain")], ["bcd", []]);
  assert.ok(!("anew" in page.state[1]));
  page.socket.lose(); // and that without a word
  assert.ok(!("restarts" in page.state[1]));
  page.clock.advance(100);
  page.accept({ number: 3, ack: null });
  assert.deepEqual(page.take("uncertain"), [{ sent: 3, unsent: 0 }]);
});

test("Resumed on the newest connection is a late attempt of this page", async () => {
  const page = await Page.open();
  page.accept().lose();
  page.clock.advance(100);
  const second = page.accept({ number: 2 });
  second.status({ message: "resumed", reason: "Resumed" });
  second.lose();
  assert.equal(page.state[0], "reconnecting");
  const other = await Page.open();
  other.accept().status({ message: "resumed", reason: "Resumed" });
  assert.equal(other.state[1].reason, "Resumed");
});

test("a server that breaks the protocol is left", async () => {
  for (const breaks of [
    (socket) => socket.mark([]),
    (socket) => socket.mark({ Ack: 5 }),
    (socket) => socket.message(3, "{") || socket.message(3, "}}"),
  ]) {
    const page = await Page.open();
    breaks(page.accept());
    assert.equal(page.state[1].reason, "ProtocolError");
    assert.equal(page.clock.pending, 0);
  }
});

test("text messages and empty ones are ignored", async () => {
  const page = await Page.open();
  const socket = page.accept();
  socket.onmessage({ data: "text" });
  socket.onmessage({ data: new ArrayBuffer(0) });
  assert.equal(page.state[0], "open");
});

// The steps that the tests of the Python client take, too.
const VECTORS = new URL("../../../streaming/remotecommand/resume_vectors.json", import.meta.url);

/** A page that takes the steps of a vector. */
class Steps {
  #refusal = null;

  static async open() {
    const steps = new Steps();
    steps.page = await Page.open({ explain: async () => steps.#refusal });
    return steps;
  }

  async take(step) {
    const [[name, value]] = Object.entries(step);
    await this[name](value);
  }

  async requests(requests) {
    const { page } = this;
    if (page.socket.readyState !== 0) page.clock.advance(1000);
    for (const { text, refused, answer } of requests) {
      const number = page.sockets.filter((each) => each.isAccepted).length + 1;
      assert.equal(page.socket.resume, `${text}; credit=131072`);
      if (refused) {
        this.#refusal = { code: refused, message: "" };
        page.socket.lose();
        await turn();
        continue;
      }
      page.socket.isAccepted = true;
      page.socket.accept();
      page.socket.mark({ Session: `s-${number}`, Key: String(number).padStart(43, "0"), Seconds: 60 });
      this.marks(answer);
    }
  }

  lose() {
    this.page.socket.lose();
  }

  type(text) {
    this.page.session.send(bytes(text));
  }

  break(milliseconds) {
    this.page.session.sendBreak(milliseconds);
  }

  role(name) {
    this.page.session.role(name);
  }

  marks(marks) {
    for (const mark of marks) {
      this.page.socket.message(4, typeof mark === "string" ? mark : `${JSON.stringify(mark)}\n`);
    }
  }

  output(text) {
    this.page.socket.message(1, text);
  }

  /** Compare what has happened since the last time; nothing else may have happened. */
  expect(expected) {
    const { page } = this;
    const { broken, ...happened } = expected;
    const found = {
      sent: this.#sent(),
      output: page.take("output").join(""),
      skipped: page.take("gap").map((gap) => gap.bytes),
      uncertain: page.take("uncertain")[0] ?? null,
    };
    const [name, end] = page.state;
    if (broken === undefined) {
      assert.deepEqual(found, { sent: [], output: "", skipped: [], uncertain: null, ...happened });
    } else {
      assert.equal(end.message, `the server broke the protocol: ${broken}`);
      page.states.pop();
    }
    assert.equal(name === "ended", broken !== undefined);
  }

  /** The input that the page has sent: texts, and requests without the size and without questions of the page. */
  #sent() {
    const sent = [];
    for (const message of this.page.sockets.flatMap((socket) => socket.sent.splice(0))) {
      const text = Buffer.from(message.subarray(1)).toString();
      if (message[0] === 0) {
        if (typeof sent.at(-1) === "string") sent.push(sent.pop() + text);
        else sent.push(text);
        continue;
      }
      const { Break, Role } = JSON.parse(text);
      if (Break) sent.push({ Break });
      if (Role) sent.push({ Role });
    }
    return sent;
  }
}

test("each vector has the result that the file says", async () => {
  for (const { name, steps, opening, cases } of JSON.parse(await readFile(VECTORS))) {
    const runs = cases?.map(({ marks, broken }) => [...opening, { marks }, { expect: { broken } }]) ?? [steps];
    for (const run of runs) {
      const taken = await Steps.open();
      try {
        for (const step of run) await taken.take(step);
        if (steps) taken.expect({});
      } catch (problem) {
        problem.message = `${name}: ${problem.message}: ${JSON.stringify(run.at(-2))}`;
        throw problem;
      }
    }
  }
});
