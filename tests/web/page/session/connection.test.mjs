/** One WebSocket of a session. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Connection } from "../../../../twisted_exec/web/page/session/connection.js";
import { fakeWebSockets } from "../fakes.mjs";

const NAMES = ["unmarked", "mark", "output", "status", "broken", "closed"];

function connect() {
  const { FakeWebSocket } = fakeWebSockets();
  const socket = new FakeWebSocket("wss://server/exec", []);
  const told = [];
  const tell = (name) => [name, (...values) => told.push([name, ...values])];
  const connection = new Connection(socket, { heard: () => {}, ...Object.fromEntries(NAMES.map(tell)) });
  return { socket, connection, told, names: () => told.map(([name]) => name) };
}

test("output before any mark is that of a server that sends none", () => {
  const { socket, names } = connect();
  socket.accept();
  socket.message(1, "");
  socket.message(1, "hello");
  assert.deepEqual(names(), ["unmarked", "output"]);
});

test("marks and a status are read, wherever they are split", () => {
  const { socket, told } = connect();
  socket.accept();
  socket.message(4, '{"Session"');
  socket.message(4, ':"s-1"}\n{"At":');
  socket.message(3, '{"metadata":{},"status":"Fail');
  socket.message(3, 'ure","reason":"PoweredOff","message":"off"}');
  assert.deepEqual(told[0], ["mark", { Session: "s-1" }]);
  const [name, { reason, message }] = told[1];
  assert.deepEqual([told.length, name, reason, message], [2, "status", "PoweredOff", "off"]);
});

test("a broken protocol is reported, and other failures are not hidden", () => {
  const { socket, told } = connect();
  socket.accept();
  socket.message(4, "no JSON\n");
  assert.deepEqual([told.length, told[0][0], told[0][1].message], [1, "broken", "a mark is not JSON"]);
  const faulty = new Connection(socket, {
    heard: () => {},
    unmarked: () => {
      throw new TypeError("a mistake of the page");
    },
    broken: () => assert.fail("this is no fault of the server"),
  });
  assert.throws(() => socket.message(1, "x"), TypeError);
  faulty.close();
});

test("after it was closed a connection reports nothing, also of a message that is being read", () => {
  const { socket, connection, told, names } = connect();
  socket.accept();
  told.push = (entry) => {
    connection.close(1000);
    return Array.prototype.push.call(told, entry);
  };
  socket.message(4, '{"a":1}\n{"b":2}\n');
  socket.onclose?.({ code: 1006, reason: "" });
  assert.deepEqual(names(), ["mark"]);
  assert.equal(socket.closedWith, 1000);
});

test("the end says whether the handshake had succeeded", () => {
  const refused = connect();
  refused.socket.lose();
  const lost = connect();
  lost.socket.accept();
  lost.socket.lose("gone");
  assert.deepEqual(refused.told, [["closed", { code: 1006, reason: "", wasOpened: false }]]);
  assert.deepEqual(lost.told, [["closed", { code: 1006, reason: "gone", wasOpened: true }]]);
});

test("nothing is sent before the handshake", () => {
  const { socket, connection } = connect();
  connection.send(new Uint8Array([0, 65]));
  socket.accept();
  connection.send(new Uint8Array([0, 66]));
  assert.equal(socket.typed(), "B");
});
