/** One session at a console, over fake WebSockets. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Attachment, isGone } from "../../../../twisted_exec/web/page/terminal/attachment.js";
import { fakeWebSockets, turn } from "../fakes.mjs";

const EPOCH = "9f3c22d10b7a4e55";
const KEY = "k".repeat(43);
const PLACE = { namespace: "team-a", name: "vm-1", reason: "" };
const REQUEST = { path: "/vm-1/exec", query: { stdin: "true" } };
const SAVED = {
  id: "tab-1",
  position: { epoch: EPOCH, offset: 500 },
  first: { epoch: EPOCH, offset: 100 },
  keys: [{ key: KEY, session: "s-1" }],
  input: { acknowledged: 0, items: [] },
  request: { path: "/vm-1/exec", query: { readOnly: "true" } },
};

/** Start an attachment; `told` are its callbacks, `written` the output in the terminal, which has shown `text` before. */
async function attach(t, saved = null, place = PLACE, text = "", follows = false, request = async () => ({})) {
  const { FakeWebSocket, sockets } = fakeWebSockets();
  const before = globalThis.WebSocket;
  globalThis.WebSocket = FakeWebSocket;
  const values = new Map(saved && [["session.team-a/vm-1", saved]]);
  const context = {
    api: { webSocketURL: (path, query) => `wss://server${path}?${new URLSearchParams(query)}`, webSocketProtocols: (name) => [name], request },
    machines: { path: () => "/vm-1" },
    store: {
      get: (key, fallback = null) => values.get(key) ?? fallback,
      set: (key, value) => values.set(key, value),
      remove: (key) => values.delete(key),
    },
  };
  const told = [];
  const tell = (name) => [name, (...news) => told.push([name, ...news])];
  let written = "";
  const write = (bytes, done = () => {}) => {
    written += Buffer.from(bytes).toString();
    done();
  };
  const screen = { columns: 80, rows: 24, room: [80, 24], text: `${text}\n`, write, show: (picture) => write(picture(24)) };
  const on = Object.fromEntries(["placed", "state", "skipped", "notice", "shown"].map(tell));
  const attachment = new Attachment(context, place, { request: REQUEST, screen, on, follows });
  attachment.start();
  await turn();
  t.after(() => {
    attachment.replace();
    globalThis.WebSocket = before;
  });
  return { context, attachment, told, values, sockets, socket: sockets.at(-1), written: () => written };
}

function accept(socket, { at = 100, end = at, ack = 0 } = {}) {
  socket.accept();
  socket.mark({ Session: "s-2", Key: KEY, Seconds: 60 });
  socket.mark({ Ack: ack });
  socket.mark({ At: at, Epoch: EPOCH, End: end });
}

test("output that a reload repeats was not missed", async (t) => {
  const { attachment, told, socket } = await attach(t, SAVED);
  assert.match(socket.resume, /from=100/);
  accept(socket, { at: 100, end: 600 });
  const [, , { missed }] = told.find(([name, state]) => name === "state" && state === "resumed");
  assert.equal(missed, 100);
  assert.ok(!attachment.isFormerGone({ reason: "NotFound", code: 404 }));
});

test("a session goes on with the request that has opened it", async (t) => {
  assert.equal((await attach(t, SAVED)).attachment.isReadOnly, true);
});

test("a new session is opened as it was asked for, and kept for a reload", async (t) => {
  const { attachment, values, socket } = await attach(t);
  assert.deepEqual([attachment.isReadOnly, attachment.isOpen], [false, false]);
  accept(socket);
  assert.equal(attachment.isOpen, true);
  assert.deepEqual(values.get("session.team-a/vm-1").request, REQUEST);
});

test("the request of a user who observes says so, also that of each later connection", async (t) => {
  const place = { ...PLACE, observes: true };
  const { attachment, values, socket, sockets } = await attach(t, null, place);
  assert.match(socket.url, /\?stdin=true&observe=true$/);
  accept(socket);
  place.observes = false;
  socket.lose();
  attachment.session.reconnectNow();
  assert.equal(sockets.length, 2);
  assert.match(sockets.at(-1).url, /\?stdin=true$/);
  assert.deepEqual(values.get("session.team-a/vm-1").request, REQUEST);
});

test("a screen that is refused is asked for once more when the session is open", async (t) => {
  const answers = [Object.assign(new Error("not yet"), { code: 403 }), { epoch: EPOCH, offset: 9_100, columns: 80, rows: 24, output: "the screen" }];
  const asked = [];
  const request = async (path) => {
    asked.push(path);
    const answer = answers.shift();
    if (answer instanceof Error) throw answer;
    return answer;
  };
  const { socket, written } = await attach(t, null, PLACE, "", false, request);
  await turn();
  assert.deepEqual(asked, ["/vm-1/screen"]);
  accept(socket, { at: 9_100 });
  await turn();
  assert.deepEqual(asked, ["/vm-1/screen", "/vm-1/screen"]);
  assert.match(written(), /the screen$/);
});

test("a session whose former one is gone may be followed by another", async (t) => {
  const { attachment } = await attach(t, SAVED);
  assert.ok(attachment.isFormerGone({ reason: "NotFound", code: 404 }));
  assert.ok(!attachment.isFormerGone({ reason: "Forbidden", code: 403 }));
});

test("a session that another one replaces says nothing more", async (t) => {
  const { attachment, told, values, socket } = await attach(t);
  accept(socket);
  told.length = 0;
  attachment.replace();
  assert.deepEqual([told, attachment.isOpen, socket.closedWith, values.size], [[], false, 1000, 0]);
});

test("missing output is marked in the terminal, and told", async (t) => {
  const { told, socket, written } = await attach(t, SAVED);
  accept(socket, { at: 300, end: 300 });
  assert.match(written(), /\[twisted-exec: 200 B of output skipped\]/);
  assert.deepEqual(told.find(([name]) => name === "skipped"), ["skipped", "200 B of output"]);
});

test("what is missing in the output from before a new session is marked there, and not told", async (t) => {
  const { told, socket, written } = await attach(t);
  accept(socket, { at: 9_000, end: 9_110 });
  socket.message(1, "before");
  socket.mark({ At: 9_100, Epoch: EPOCH, Exact: false });
  socket.message(1, "behind the gap");
  await turn();
  assert.match(written(), /before\r\n\x1b\[m\[twisted-exec: an unknown amount of output skipped\]\r\nbehind/);
  assert.ok(!told.some(([name]) => name === "skipped"));
  socket.mark({ At: 9_200, Epoch: EPOCH });
  assert.deepEqual(told.find(([name]) => name === "skipped"), ["skipped", "86 B of output"]);
});

test("a console is shown when its output is whole, or when the session ends or loses its connection before", async (t) => {
  const end = (socket) => socket.status({ code: 0, reason: "SessionDeleted", message: "" });
  const lose = (socket) => socket.lose();
  for (const [isWhole, hasOutput, stop] of [[true, true, end], [false, true, end], [false, false, end], [false, true, lose], [false, false, lose]]) {
    const { told, socket } = await attach(t);
    const isShown = () => told.filter(([name]) => name === "shown").length;
    accept(socket, { at: 0, end: 10 });
    assert.equal(isShown(), 0);
    if (hasOutput) socket.message(1, isWhole ? "all of it." : "a part");
    assert.equal(isShown(), Number(isWhole));
    stop(socket);
    assert.equal(isShown() > 0, hasOutput);
  }
});

test("a new session is marked below what another one has shown, which goes into the scrollback", async (t) => {
  const { socket, written } = await attach(t, null, PLACE, "# echo once");
  assert.equal(written(), "");
  accept(socket);
  assert.match(written(), /(\r\n){24}\x1b\[H\x1b\[2J\[twisted-exec: new session at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\S*\]\r\n$/);
});

test("a session that the server had lost is marked where its output begins", async (t) => {
  const { socket, written } = await attach(t, SAVED, PLACE, "# echo once");
  accept(socket, { at: 500, ack: null });
  assert.match(written(), /^\r\n\x1b\[m\[twisted-exec: new session at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\S*\]\r\n$/);
});

test("neither the first session of a terminal nor a resumed one is marked", async (t) => {
  const first = await attach(t);
  accept(first.socket);
  const resumed = await attach(t, SAVED, PLACE, "# echo once");
  accept(resumed.socket, { at: 100, end: 500 });
  assert.deepEqual([first.written(), resumed.written()], ["", ""]);
});

test("the end of a session is told from that of an attempt to open the first one", async (t) => {
  for (const [saved, follows, isOpened, hadSession] of [
    [null, false, false, false], [null, false, true, true], [null, true, false, true], [SAVED, false, false, true],
  ]) {
    const { context, told, socket } = await attach(t, saved, PLACE, "", follows);
    const refusal = { code: 404, reason: "NotFound", message: "no" };
    context.api.request = async () => {
      throw Object.assign(new Error("no"), { ...refusal, status: {} });
    };
    if (isOpened) {
      accept(socket);
      socket.status(refusal);
    }
    socket.lose();
    await turn();
    const [, , ending] = told.find(([name, state]) => name === "state" && state === "ended");
    assert.equal(ending.hadSession, hadSession);
  }
});

test("a session that the server has lost may be followed by a new one", () => {
  assert.ok(isGone({ reason: "CannotResume", code: 0 }));
  assert.ok(isGone({ reason: "NotFound", code: 404 }));
  assert.ok(isGone({ reason: "Refused", code: 404 }));
  assert.ok(isGone({ reason: "NotFound", code: 404, kind: "exec" }));
  assert.ok(!isGone({ reason: "Forbidden", code: 403 }));
});

test("no session follows one whose machine or pool is missing", async (t) => {
  for (const kind of ["machines", "instances", "machinepools", "fleets"]) {
    const { attachment } = await attach(t, SAVED);
    assert.ok(!attachment.isFormerGone({ reason: "NotFound", code: 404, kind }), kind);
  }
});
