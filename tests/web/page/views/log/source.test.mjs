/** Reading and following a log. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { deletedLog, LogReplaced, LogSource } from "../../../../../twisted_exec/web/page/views/log/source.js";
import { decoded } from "../../../../../twisted_exec/web/page/views/log/text.js";

const EPOCH = "0123456789abcdef";
const STAMP = "2026-11-20T08:38:20.104595125Z ";

/** A server with the log of a machine, in frames with times. */
class Server extends EventTarget {
  constructor(text, { start = 0, boots = [], epoch = EPOCH } = {}) {
    super();
    Object.assign(this, { text, start, boots, epoch, requests: [] });
  }

  get end() {
    return this.start + this.text.length;
  }

  async fetch(path, { query }) {
    this.requests.push(query);
    let [first, last] = [this.start, this.end];
    if (query.boot !== undefined) {
      const boot = this.boots.at(Number(query.boot) - 1);
      if (!boot) throw Object.assign(new Error("not found"), { code: 400 });
      [first, last] = boot;
    }
    if (query.fromOffset !== undefined) [first, last] = [Number(query.fromOffset), Number(query.toOffset)];
    const text = stamped(this.text.slice(first - this.start, last - this.start));
    const body = query.limitBytes ? frame(text.slice(0, query.limitBytes), last) : frame(text, last);
    const header = `frames; epoch=${this.epoch}; start=${first}; end=${last}`;
    return new Response(body, { headers: { "Console-Log": header } });
  }

  source() {
    return new LogSource(this, "/log", async () => {});
  }
}

function stamped(text) {
  return text.replace(/[^\n]*\n|[^\n]+/g, (line) => STAMP + line);
}

function frame(text, offset) {
  const body = new TextEncoder().encode(text);
  const bytes = new Uint8Array(24 + body.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, body.length);
  view.setBigUint64(8, BigInt(offset));
  bytes.set(body, 24);
  return bytes;
}

const signal = new AbortController().signal;
const texts = (piece) => piece.lines.map((line) => decoded(line.bytes));
const numbered = (count) => Array.from({ length: count }, (_, number) => `line ${number}\n`).join("");

test("reading back and forth gives every line once", async () => {
  const server = new Server(numbered(20_000), { start: 77 });
  const source = server.source();
  await source.open(null, signal);
  const back = [];
  let piece = await source.newest(signal);
  assert.equal(piece.end, server.end);
  while (piece) {
    back.unshift(...texts(piece));
    piece = await source.older(piece.start, signal);
  }
  const all = numbered(20_000).trimEnd().split("\n");
  assert.deepEqual(back, all);
  const forth = [];
  for (let at = server.start; (piece = await source.newer(at, signal)); at = piece.end) forth.push(...texts(piece));
  assert.deepEqual(forth, all);
  assert.ok(server.requests.every((query) => !query.toOffset || query.toOffset - query.fromOffset <= 64 << 10));
});

test("a line of megabytes is read in pieces", async () => {
  const server = new Server("x".repeat(300_000) + "\nend\n");
  const source = server.source();
  await source.open(null, signal);
  let bytes = 0;
  let piece = await source.newest(signal);
  for (; piece; piece = await source.older(piece.start, signal)) {
    assert.ok(piece.end - piece.start <= 64 << 10);
    bytes += piece.lines.reduce((sum, line) => sum + line.bytes.length, 0);
  }
  assert.equal(bytes, 300_003);
});

test("a piece around an offset has the line there, with some lines before it", async () => {
  const server = new Server(numbered(20_000));
  const source = server.source();
  await source.open(null, signal);
  const offset = numbered(12_000).length;
  const piece = await source.at(offset, signal);
  assert.ok(piece.lines.some((line) => line.offset === offset && decoded(line.bytes) === "line 12000"));
});

test("a search finds the nearest line in its direction", async () => {
  const text = `first Panic\n${numbered(100)}second panic\n${numbered(100)}`;
  const source = new Server(text).source();
  await source.open(null, signal);
  const second = text.indexOf("second");
  assert.equal((await source.search("PANIC", text.length, "back", signal)).found, second);
  assert.equal((await source.search("panic", second, "back", signal)).found, 0);
  assert.equal((await source.search("panic", -1, "forward", signal)).found, 0);
  assert.equal((await source.search("panic", 0, "forward", signal)).found, second);
  const none = await source.search("no such text", text.length, "back", signal);
  assert.deepEqual([none.found, none.isEnd], [null, true]);
});

test("a search stops after a bounded amount, and says where", async () => {
  const source = new Server("y".repeat(9 << 20)).source();
  await source.open(null, signal);
  const answer = await source.search("panic", 9 << 20, "back", signal);
  assert.deepEqual(answer, { found: null, offset: 1 << 20, isEnd: false });
});

test("all lines with a text are counted, in order, as far back as one search reads", async () => {
  const text = `first Panic\n${numbered(10_000)}second panic\n${numbered(100)}`;
  const source = new Server(text).source();
  await source.open(null, signal);
  assert.deepEqual(await source.count("PANIC", signal), { offsets: [0, text.indexOf("second")], isWhole: true });
  assert.deepEqual(await source.count("no such text", signal), { offsets: [], isWhole: true });
  const long = new Server(`old panic\n${"y".repeat(9 << 20)}\nnew panic\n`).source();
  await long.open(null, signal);
  const { offsets, isWhole } = await long.count("panic", signal);
  assert.deepEqual([offsets, isWhole], [["old panic\n".length + (9 << 20) + 1], false]);
});

test("boots are listed from the newest on", async () => {
  const source = new Server("one\ntwo\nthree\n", { boots: [[0, 4], [4, 8], [8, 14]] }).source();
  const boots = await source.boots(signal);
  assert.deepEqual(boots.map(({ boot, start, end }) => [boot, start, end]), [[0, 8, 14], [-1, 4, 8], [-2, 0, 4]]);
  await source.open(-1, signal);
  assert.deepEqual(texts(await source.newest(signal)), ["two"]);
});

test("the log of a deleted machine is that of the one deleted last", async () => {
  const item = (name, deletionTime) => ({ metadata: { name }, spec: { machine: "vm", deletionTime } });
  const asked = [];
  const api = {
    list: async (path, { query }) => {
      asked.push(path, query.fieldSelector);
      return { items: [item("vm-1", "2026-11-20T08:00:00Z"), item("vm-3", "2026-11-20T09:00:00Z"), item("vm-2", "2026-11-20T08:30:00Z")] };
    },
  };
  const found = await deletedLog(api, "default", "vm", signal);
  assert.equal(found.path, "/apis/console.twisted-exec.dev/v1alpha1/namespaces/default/deletedconsoles/vm-3/log");
  assert.equal(found.time, "2026-11-20T09:00:00Z");
  assert.equal(asked[1], "spec.machine=vm");
  assert.equal(await deletedLog({ list: async () => ({ items: [] }) }, "default", "vm", signal), null);
  const refusing = { list: () => Promise.reject(new Error("forbidden")) };
  assert.equal(await deletedLog(refusing, "default", "vm", signal), null);
});

test("an empty log has no pieces", async () => {
  const source = new Server("").source();
  await source.open(null, signal);
  assert.equal(await source.newest(signal), null);
  assert.equal(await source.at(0, signal), null);
});

test("a journal that was lost is reported, not mixed with the new one", async () => {
  const server = new Server(numbered(10));
  const source = server.source();
  await source.open(null, signal);
  server.epoch = "fedcba9876543210";
  await assert.rejects(source.newest(signal), LogReplaced);
  await assert.rejects(source.refresh(signal), LogReplaced);
});

class Socket {
  static opened = [];

  constructor(url, protocols) {
    Object.assign(this, { url, protocols });
    Socket.opened.push(this);
  }

  close() {}
}

/** Follow the log of a server; returns what happened, and the sockets that were opened. */
async function following(server) {
  Socket.opened = [];
  const seen = { states: [], lines: [], error: null, sockets: Socket.opened };
  Object.assign(server, {
    WebSocket: Socket,
    webSocketURL: (path, query) => `${path}?${new URLSearchParams(query)}`,
    webSocketProtocols: (...protocols) => protocols,
    heard: () => {},
    untilSilent: (silent) => {
      seen.silence = silent;
      return () => {};
    },
  });
  const source = server.source();
  await source.open(null, signal);
  const on = {
    lines: (lines) => seen.lines.push(...lines),
    state: (state, error) => {
      seen.states.push(state);
      seen.error = error;
    },
  };
  seen.ended = source.follow(0, on, signal);
  return seen;
}

async function opened(seen, count) {
  while (seen.sockets.length < count) await new Promise((resolve) => setImmediate(resolve));
  return seen.sockets[count - 1];
}

test("a followed log continues at the line that had no end", async () => {
  const seen = await following(new Server(""));
  const socket = await opened(seen, 1);
  assert.deepEqual(socket.protocols, ["binary.k8s.io"]);
  assert.match(socket.url, /follow=true/);
  socket.onopen();
  socket.onmessage({ data: new ArrayBuffer(0) });
  socket.onmessage({ data: frame(`${STAMP}one\n${STAMP}login: `, 11).buffer });
  assert.deepEqual(seen.lines.map((line) => line.offset), [0, 4]);
  socket.onclose({ code: 1006 });
  const second = await opened(seen, 2);
  assert.match(second.url, /fromOffset=4(&|$)/);
  second.onclose({ code: 1000 });
  await seen.ended;
  assert.deepEqual(seen.states, ["open", "lost", "ended"]);
  assert.equal(seen.error, undefined);
});

test("a followed log is followed again when its server was silent", async () => {
  const seen = await following(new Server("one\n"));
  (await opened(seen, 1)).onopen();
  seen.silence();
  await opened(seen, 2);
  assert.deepEqual(seen.states, ["open", "lost"]);
});

test("a followed log ends with the reason that the server gives for it", async () => {
  const server = new Server("");
  const seen = await following(server);
  server.fetch = async () => {
    throw Object.assign(new Error("forbidden"), { code: 403 });
  };
  (await opened(seen, 1)).onclose({ code: 1011 });
  await seen.ended;
  assert.deepEqual([seen.states, seen.error.message], [["lost", "ended"], "forbidden"]);
});

test("a followed log waits for a server that is away, and for a login", async () => {
  const server = new Server("");
  const seen = await following(server);
  const codes = [0, 401, 503];
  const answer = server.fetch;
  server.fetch = (...options) => {
    if (codes.length) throw Object.assign(new Error("not now"), { code: codes.shift() });
    return answer.call(server, ...options);
  };
  for (let count = 1; count <= 4; count += 1) (await opened(seen, count)).onclose({ code: 1006 });
  (await opened(seen, 5)).onclose({ code: 1000 });
  await seen.ended;
  assert.deepEqual(seen.states, ["lost", "lost", "lost", "lost", "ended"]);
});

test("a followed log whose journal was lost is not mixed with the new one", async () => {
  const server = new Server("");
  const seen = await following(server);
  const socket = await opened(seen, 1);
  socket.onmessage({ data: frame(`${STAMP}one\n`, 4).buffer });
  socket.onmessage({ data: frame(`${STAMP}x\n`, 2).buffer });
  socket.onclose({ code: 1005 });
  await seen.ended;
  assert.ok(seen.error instanceof LogReplaced);
  assert.equal(seen.lines.length, 1);
});
