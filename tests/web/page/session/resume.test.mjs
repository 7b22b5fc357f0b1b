/** A session that outlives its connections. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { ProtocolError } from "../../../../twisted_exec/web/page/session/channel.js";
import { LIMIT_PIECES, WINDOW_PIECES } from "../../../../twisted_exec/web/page/session/input.js";
import { CREDIT_BYTES, SessionState } from "../../../../twisted_exec/web/page/session/resume.js";
import { ModelServer, numbers } from "../model.mjs";

const EPOCH = "9f3c22d10b7a4e55";
const KEYS = ["a", "b", "c", "d"].map((letter) => letter.repeat(43));
const bytes = (text) => new TextEncoder().encode(text);

/** Take the state through the beginning of a connection. */
function open(state, { key = KEYS[0], session = "s-1", ack = 0, at = 100, epoch = EPOCH, ...more } = {}) {
  const value = state.connect();
  state.receiveMark({ Session: session, Key: key, Seconds: 60 });
  const ready = state.receiveMark({ Ack: ack });
  const placed = state.receiveMark({ At: at, Epoch: epoch, ...more });
  return { value, ready, placed };
}

test("a new session sends its input behind the first Ack", () => {
  const state = new SessionState();
  state.input.put(bytes("early"));
  assert.equal(state.connect(), `marks; credit=${CREDIT_BYTES}`);
  assert.deepEqual(state.receiveMark({ Session: "s-1", Key: KEYS[0], Seconds: 60 }), { key: true });
  assert.deepEqual(state.takeInput(), []);
  assert.deepEqual(state.receiveMark({ Ack: 0 }), { ready: true });
  assert.deepEqual(state.takeInput(), [bytes("early")]);
});

test("a lost connection is resumed at the next byte, with the input that is not settled", () => {
  const state = new SessionState();
  open(state);
  state.receiveOutput(bytes("12345"));
  state.input.put(bytes("pwd\r"));
  state.input.put({ Break: 250 });
  assert.equal(state.takeInput().length, 2);
  state.receiveMark({ Ack: 1 });
  const { value, ready, placed } = open(state, { key: KEYS[1], ack: 2, at: 105 });
  assert.equal(value, `key=${KEYS[0]}; session=s-1; epoch=${EPOCH}; from=105; credit=${CREDIT_BYTES}`);
  assert.deepEqual(ready, { ready: true });
  assert.equal(placed.gap, undefined);
  assert.deepEqual(state.takeInput(), [bytes("d\r"), { Break: 250 }]);
});

test("input is uncertain when the server does not know its number", () => {
  const state = new SessionState();
  open(state);
  state.input.put(bytes("abc"));
  state.takeInput();
  state.input.put(bytes("de"));
  assert.deepEqual(open(state, { key: KEYS[1], ack: null }).ready, { ready: true, uncertain: { sent: 3, unsent: 2 } });
  assert.equal(state.input.sent, 0);
});

test("input that was never sent is not uncertain", () => {
  const state = new SessionState();
  open(state);
  state.connect();
  state.input.put(bytes("typed meanwhile"));
  state.receiveMark({ Session: "s-2", Key: KEYS[1], Seconds: 60 });
  assert.deepEqual(state.receiveMark({ Ack: null }), { ready: true });
  assert.deepEqual(state.takeInput(), [bytes("typed meanwhile")]);
});

test("missing output has an exact size, unless the journal does not know it", () => {
  for (const [mark, gap] of [
    [{ at: 107 }, { bytes: 7, exact: true }],
    [{ at: 107, Exact: false }, { bytes: null, exact: false }],
    [{ at: 0, epoch: "0123456789abcdef" }, { bytes: null, exact: false }],
    [{ at: 100 }, undefined],
  ]) {
    const state = new SessionState();
    open(state);
    assert.deepEqual(open(state, { key: KEYS[1], ...mark }).placed.gap, gap);
  }
});

test("a server that breaks the protocol is not believed", () => {
  const cases = [
    (state) => state.receiveMark({ At: 1, Epoch: EPOCH }),
    (state) => state.receiveOutput(bytes("x")),
    (state) => state.receiveMark({ Ack: "1" }),
    (state) => state.receiveMark({ Session: "s-2", Key: KEYS[1], Seconds: 60 }),
    (state) => state.receiveMark({ Ack: 0 }) && state.receiveMark({ Ack: 1 }),
    (state) => state.receiveMark({ Ack: 0 }) && state.receiveMark({ Ack: null }),
    (state) => state.receiveMark({ Ack: 0 }) && state.receiveMark({ At: -1, Epoch: EPOCH }),
    (state) => state.receiveMark({ Ack: 0 }) && state.receiveMark({ At: 1, Epoch: "x" }),
    (state) => state.receiveMark({ Ack: 0 }) && state.receiveMark({ Viewers: "2" }),
    (state) => state.receiveMark({ Ack: 0 }) && state.receiveMark({ Echo: 0.5 }),
  ];
  for (const handle of cases) {
    const state = new SessionState();
    state.connect();
    state.receiveMark({ Session: "s-1", Key: KEYS[0], Seconds: 60 });
    assert.throws(() => handle(state), ProtocolError, handle.toString());
  }
  const state = new SessionState();
  open(state);
  state.receiveOutput(bytes("12"));
  assert.throws(() => open(state, { key: KEYS[1], at: 101 }), ProtocolError);
  for (const mark of [{ Key: "short" }, { Session: "a b" }, { Seconds: "60" }]) {
    const fresh = new SessionState();
    fresh.connect();
    assert.throws(() => fresh.receiveMark({ Session: "s", Key: KEYS[0], Seconds: 60, ...mark }), ProtocolError);
  }
});

test("marks for people are passed on, and unknown ones are ignored", () => {
  const state = new SessionState();
  open(state);
  assert.deepEqual(state.receiveMark({ Notice: "hello", Kind: "message" }), { notice: { Notice: "hello", Kind: "message" } });
  assert.deepEqual(state.receiveMark({ Viewers: 2, Writer: "ada", Seconds: 4 }), {
    viewers: { count: 2, lost: 0, writer: "ada", seconds: 4, recordings: null, withheld: "", message: 0, size: null },
  });
  const { lost, message } = state.receiveMark({ Viewers: 2, Lost: 1, Message: 200 }).viewers ?? {};
  assert.deepEqual([lost, message], [1, 200]);
  const alone = { count: 1, lost: 0, writer: "", seconds: 0, withheld: "", message: 0, size: null };
  assert.deepEqual(state.receiveMark({ Viewers: 1 }), { viewers: { ...alone, recordings: null } });
  const recordings = [{ Input: "masked", User: "ada" }, { Input: "some", User: "x" }, { Input: "all" }, null];
  assert.deepEqual(state.receiveMark({ Viewers: 1, Recordings: recordings }), {
    viewers: { ...alone, recordings: [{ input: "masked", user: "ada" }] },
  });
  assert.deepEqual(state.receiveMark({ Viewers: 1, Width: 120, Height: 40 }).viewers.size, [120, 40]);
  for (const Height of [0, -1, "40", true, null]) assert.equal(state.receiveMark({ Viewers: 1, Width: 120, Height }).viewers.size, null);
  assert.equal(state.receiveMark({ Viewers: 1, Withheld: "2 are needed" }).viewers.withheld, "2 are needed");
  assert.deepEqual(state.receiveMark({ Echo: 812 }), { echo: 812 });
  assert.deepEqual(state.receiveMark({ Ping: 3 }), { ping: 3 });
  assert.deepEqual(state.receiveMark({ Pong: 4 }), { pong: 4 });
  assert.deepEqual(state.receiveMark({ Later: true }), {});
});

test("the key before the newest is tried once, behind a 404", () => {
  const state = new SessionState();
  open(state);
  assert.equal(state.refused(404), false);
  open(state, { key: KEYS[1], session: "s-2" });
  assert.match(state.connect(), new RegExp(`^key=${KEYS[1]}; session=s-2;`));
  assert.equal(state.refused(404), true);
  assert.match(state.connect(), new RegExp(`^key=${KEYS[0]}; session=s-1;`));
  assert.equal(state.refused(404), false);
});

test("output that was shown is reported in steps, for each connection from 0", () => {
  const state = new SessionState();
  open(state);
  state.receiveOutput(new Uint8Array(50_000));
  assert.equal(state.take(10_000), null);
  assert.equal(state.take(23_000), 33_000);
  open(state, { key: KEYS[1], at: 50_100 });
  state.receiveOutput(new Uint8Array(40_000));
  assert.equal(state.take(17_000), null); // of the connection before
  assert.equal(state.take(40_000), 40_000);
});

test("the window of input without an Ack, and the queue, are bounded", () => {
  const state = new SessionState();
  open(state);
  state.input.put(new Uint8Array(LIMIT_PIECES));
  assert.equal(state.input.isFull, true);
  const sent = state.takeInput().reduce((sum, item) => sum + item.length, 0);
  assert.equal(sent, WINDOW_PIECES);
  state.receiveMark({ Ack: 10 });
  assert.deepEqual(state.takeInput().map((item) => item.length), [10]);
});

test("another page goes on with a session that was saved", () => {
  const state = new SessionState();
  assert.equal(state.save(), null);
  open(state);
  state.receiveOutput(new Uint8Array(1000));
  state.input.put(bytes("typed\xff\x00"));
  state.input.put({ Role: "drive" });
  state.takeInput();
  const saved = JSON.parse(JSON.stringify(state.save()));
  const again = new SessionState(saved);
  assert.equal(again.session, "s-1");
  const { value } = open(again, { key: KEYS[1], ack: 2, at: 1100 });
  assert.match(value, new RegExp(`^key=${KEYS[0]}; session=s-1; epoch=${EPOCH}; from=1100;`));
  assert.deepEqual(again.takeInput(), [bytes("ped\xff\x00"), { Role: "drive" }]);
});

test("a page may have sent more than it had saved", () => {
  const state = new SessionState();
  open(state);
  state.input.put(bytes("ab"));
  const saved = state.save();
  const again = new SessionState(saved);
  again.connect();
  again.input.put(bytes("new"));
  again.receiveMark({ Session: "s-2", Key: KEYS[1], Seconds: 60 });
  again.receiveMark({ Ack: 7 });
  assert.deepEqual(again.takeInput(), [bytes("new")]);
  again.receiveMark({ Ack: 10 });
});

test("another page gets earlier output again, but none before the session", () => {
  const state = new SessionState();
  open(state);
  state.receiveOutput(new Uint8Array(1000));
  assert.match(new SessionState(state.save(), 300).connect(), /from=800;/);
  assert.match(new SessionState(state.save(), 5000).connect(), /from=100;/);
});

test("whatever is lost, and wherever: nothing is missing, and nothing comes twice", () => {
  for (let seed = 1; seed <= 400; seed++) {
    const random = numbers(seed);
    const server = new ModelServer(random);
    let state = new SessionState();
    let saved = null;
    let shown = "";
    let typed = "";
    server.print("boot ");
    for (let connections = 0; connections < 12; connections++) {
      const connection = server.connect(state.connect());
      const deliver = (limit) => {
        for (const message of connection.toPage.splice(0, limit)) {
          if (typeof message === "string") {
            state.receiveOutput(bytes(message));
            shown += message;
            const taken = state.take(message.length);
            if (taken !== null) connection.toServer.push({ Taken: taken });
          } else {
            const { gap, uncertain } = state.receiveMark(message);
            assert.equal(gap, undefined, `seed ${seed}`);
            assert.equal(uncertain, undefined, `seed ${seed}`);
          }
          saved = state.save() ?? saved;
          connection.toServer.push(...state.takeInput());
        }
      };
      for (let step = random(12); step > 0; step--) {
        if (random(3) === 0) {
          const text = `<${typed.length}>`;
          typed += text;
          state.input.put(bytes(text));
          connection.toServer.push(...state.takeInput());
        }
        if (random(3) === 0) server.print(`[${server.printed.length}]`);
        connection.pump(random(4));
        deliver(random(4));
      }
      if (connections === 0) {
        connection.pump(100);
        deliver(100); // a first connection that is lost before its position is a new session
      }
      connection.lose();
      if (state.save() !== null && random(4) === 0) state = new SessionState(JSON.parse(JSON.stringify(state.save())));
    }
    const last = server.connect(state.connect());
    for (let round = 0; round < 50; round++) {
      last.pump(100);
      for (const message of last.toPage.splice(0)) {
        if (typeof message === "string") {
          state.receiveOutput(bytes(message));
          shown += message;
        } else {
          state.receiveMark(message);
        }
        last.toServer.push(...state.takeInput());
      }
    }
    assert.equal(server.received, typed, `input, seed ${seed}`);
    assert.equal(shown, server.printed, `output, seed ${seed}`);
    assert.equal(state.input.unsent, 0, `seed ${seed}`);
  }
});

test("a page that is loaded again before the first position goes on with its session", () => {
  const state = new SessionState();
  state.input.put(bytes("early"));
  state.connect();
  state.receiveMark({ Session: "s-1", Key: KEYS[0], Seconds: 60 });
  state.receiveMark({ Ack: 0 });
  assert.deepEqual(state.takeInput(), [bytes("early")]);
  const restored = new SessionState(JSON.parse(JSON.stringify(state.save())), 1000);
  const { value, placed } = open(restored, { key: KEYS[1], ack: 5, at: 700, End: 900 });
  assert.match(value, /^key=a+; session=s-1; epoch=0{16}; from=0;/);
  assert.deepEqual(placed, { placed: { epoch: EPOCH, offset: 700, exact: true, end: 900 } });
  assert.deepEqual(restored.takeInput(), []);
});
