/** A session that outlives its connections. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { ProtocolError } from "../../../../twisted_exec/web/page/session/channel.js";
import { LIMIT_PIECES, WINDOW_PIECES, keysIn } from "../../../../twisted_exec/web/page/session/input.js";
import { CREDIT_BYTES, SessionProgress } from "../../../../twisted_exec/web/page/session/resume.js";
import { ModelServer, numbers } from "../model.mjs";

const EPOCH = "9f3c22d10b7a4e55";
const KEYS = ["a", "b", "c", "d"].map((letter) => letter.repeat(43));
const bytes = (text) => new TextEncoder().encode(text);

/** Take the progress through the beginning of a connection. */
function open(progress, { key = KEYS[0], session = "s-1", ack = 0, at = 100, epoch = EPOCH, ...more } = {}) {
  const value = progress.connect();
  progress.receiveMark({ Session: session, Key: key, Seconds: 60 });
  const ready = progress.receiveMark({ Ack: ack });
  const placed = progress.receiveMark({ At: at, Epoch: epoch, ...more });
  return { value, ready, placed };
}

test("a new session sends its input behind the first Ack", () => {
  const progress = new SessionProgress();
  progress.input.put(bytes("early"));
  assert.equal(progress.connect(), `marks; credit=${CREDIT_BYTES}`);
  assert.deepEqual(progress.receiveMark({ Session: "s-1", Key: KEYS[0], Seconds: 60 }), { key: true });
  assert.deepEqual(progress.takeInput(), []);
  assert.deepEqual(progress.receiveMark({ Ack: 0 }), { ready: true });
  assert.deepEqual(progress.takeInput(), [bytes("early")]);
});

test("a lost connection is resumed at the next byte, with the input that is not settled", () => {
  const progress = new SessionProgress();
  open(progress);
  progress.receiveOutput(bytes("12345"));
  progress.input.put(bytes("pwd\r"));
  progress.input.put({ Break: 250 });
  assert.equal(progress.takeInput().length, 2);
  progress.receiveMark({ Ack: 1 });
  const { value, ready, placed } = open(progress, { key: KEYS[1], ack: 2, at: 105 });
  assert.equal(value, `key=${KEYS[0]}; session=s-1; epoch=${EPOCH}; from=105; credit=${CREDIT_BYTES}`);
  assert.deepEqual(ready, { ready: true });
  assert.equal(placed.gap, undefined);
  assert.deepEqual(progress.takeInput(), [bytes("d\r"), { Break: 250 }]);
});

test("input is uncertain when the server does not know its number", () => {
  const progress = new SessionProgress();
  open(progress);
  progress.input.put(bytes("abc"));
  progress.takeInput();
  progress.input.put(bytes("de"));
  assert.deepEqual(open(progress, { key: KEYS[1], ack: null }).ready, { ready: true, uncertain: { sent: 3, unsent: 2 } });
  assert.equal(progress.input.sent, 0);
});

test("input that was never sent is not uncertain", () => {
  const progress = new SessionProgress();
  open(progress);
  progress.connect();
  progress.input.put(bytes("typed meanwhile"));
  progress.receiveMark({ Session: "s-2", Key: KEYS[1], Seconds: 60 });
  assert.deepEqual(progress.receiveMark({ Ack: null }), { ready: true });
  assert.deepEqual(progress.takeInput(), [bytes("typed meanwhile")]);
});

test("missing output has an exact size, unless the journal does not know it", () => {
  for (const [mark, gap] of [
    [{ at: 107 }, { bytes: 7, exact: true }],
    [{ at: 107, Exact: false }, { bytes: null, exact: false }],
    [{ at: 0, epoch: "0123456789abcdef" }, { bytes: null, exact: false }],
    [{ at: 100 }, undefined],
  ]) {
    const progress = new SessionProgress();
    open(progress);
    assert.deepEqual(open(progress, { key: KEYS[1], ...mark }).placed.gap, gap);
  }
});

test("a server that breaks the protocol is not believed", () => {
  const cases = [
    (progress) => progress.receiveMark({ At: 1, Epoch: EPOCH }),
    (progress) => progress.receiveOutput(bytes("x")),
    (progress) => progress.receiveMark({ Ack: "1" }),
    (progress) => progress.receiveMark({ Session: "s-2", Key: KEYS[1], Seconds: 60 }),
    (progress) => progress.receiveMark({ Ack: 0 }) && progress.receiveMark({ Ack: 1 }),
    (progress) => progress.receiveMark({ Ack: 0 }) && progress.receiveMark({ Ack: null }),
    (progress) => progress.receiveMark({ Ack: 0 }) && progress.receiveMark({ At: -1, Epoch: EPOCH }),
    (progress) => progress.receiveMark({ Ack: 0 }) && progress.receiveMark({ At: 1, Epoch: "x" }),
    (progress) => progress.receiveMark({ Ack: 0 }) && progress.receiveMark({ Viewers: "2" }),
    (progress) => progress.receiveMark({ Ack: 0 }) && progress.receiveMark({ Echo: 0.5 }),
  ];
  for (const handle of cases) {
    const progress = new SessionProgress();
    progress.connect();
    progress.receiveMark({ Session: "s-1", Key: KEYS[0], Seconds: 60 });
    assert.throws(() => handle(progress), ProtocolError, handle.toString());
  }
  const progress = new SessionProgress();
  open(progress);
  progress.receiveOutput(bytes("12"));
  assert.throws(() => open(progress, { key: KEYS[1], at: 101 }), ProtocolError);
  for (const mark of [{ Key: "short" }, { Session: "a b" }, { Seconds: "60" }]) {
    const fresh = new SessionProgress();
    fresh.connect();
    assert.throws(() => fresh.receiveMark({ Session: "s", Key: KEYS[0], Seconds: 60, ...mark }), ProtocolError);
  }
});

test("marks for people are passed on, and unknown ones are ignored", () => {
  const progress = new SessionProgress();
  open(progress);
  assert.deepEqual(progress.receiveMark({ Notice: "hello", Kind: "message" }), { notice: { Notice: "hello", Kind: "message" } });
  assert.deepEqual(progress.receiveMark({ Viewers: 2, Writer: "ada", Seconds: 4 }), {
    viewers: { count: 2, lost: 0, writer: "ada", seconds: 4, hasBreak: true, recordings: null, withheld: "", message: 0, size: null },
  });
  const { lost, message } = progress.receiveMark({ Viewers: 2, Lost: 1, Message: 200 }).viewers ?? {};
  assert.deepEqual([lost, message], [1, 200]);
  const alone = { count: 1, lost: 0, writer: "", seconds: 0, hasBreak: true, withheld: "", message: 0, size: null };
  assert.deepEqual(progress.receiveMark({ Viewers: 1 }), { viewers: { ...alone, recordings: null } });
  const recordings = [{ Input: "masked", User: "ada" }, { Input: "all", User: "bob", Policies: ["lab/a", 7, ""] }, { Input: "some", User: "x" }, { Input: "all" }, null];
  assert.deepEqual(progress.receiveMark({ Viewers: 1, Recordings: recordings }), {
    viewers: { ...alone, recordings: [{ input: "masked", user: "ada", policies: [] }, { input: "all", user: "bob", policies: ["lab/a"] }] },
  });
  assert.deepEqual(progress.receiveMark({ Viewers: 1, Width: 120, Height: 40 }).viewers.size, [120, 40]);
  for (const Height of [0, -1, "40", true, null]) assert.equal(progress.receiveMark({ Viewers: 1, Width: 120, Height }).viewers.size, null);
  assert.equal(progress.receiveMark({ Viewers: 1, Withheld: "2 are needed" }).viewers.withheld, "2 are needed");
  assert.deepEqual(progress.receiveMark({ Echo: 812 }), { echo: 812 });
  assert.deepEqual(progress.receiveMark({ Ping: 3 }), { ping: 3 });
  assert.deepEqual(progress.receiveMark({ Pong: 4 }), { pong: 4 });
  assert.deepEqual(progress.receiveMark({ Later: true }), {});
});

test("the key before the newest is tried once, behind a 404", () => {
  const progress = new SessionProgress();
  open(progress);
  assert.equal(progress.refused(404), false);
  open(progress, { key: KEYS[1], session: "s-2" });
  assert.match(progress.connect(), new RegExp(`^key=${KEYS[1]}; session=s-2;`));
  assert.equal(progress.refused(404), true);
  assert.match(progress.connect(), new RegExp(`^key=${KEYS[0]}; session=s-1;`));
  assert.equal(progress.refused(404), false);
});

test("output that was shown is reported in steps, for each connection from 0", () => {
  const progress = new SessionProgress();
  open(progress);
  progress.receiveOutput(new Uint8Array(50_000));
  assert.equal(progress.take(10_000), null);
  assert.equal(progress.take(23_000), 33_000);
  open(progress, { key: KEYS[1], at: 50_100 });
  progress.receiveOutput(new Uint8Array(40_000));
  assert.equal(progress.take(17_000), null); // of the connection before
  assert.equal(progress.take(40_000), 40_000);
});

test("the window of input without an Ack, and the queue, are bounded", () => {
  const progress = new SessionProgress();
  open(progress);
  progress.input.put(new Uint8Array(LIMIT_PIECES));
  assert.equal(progress.input.isFull, true);
  const sent = progress.takeInput().reduce((sum, item) => sum + item.length, 0);
  assert.equal(sent, WINDOW_PIECES);
  progress.receiveMark({ Ack: 10 });
  assert.deepEqual(progress.takeInput().map((item) => item.length), [10]);
});

test("another page goes on with a session that was saved", () => {
  const progress = new SessionProgress();
  assert.equal(progress.save(true), null);
  open(progress);
  progress.receiveOutput(new Uint8Array(1000));
  progress.input.put(bytes("typed\xff\x00"));
  progress.input.put({ Role: "drive" });
  progress.takeInput();
  const saved = JSON.parse(JSON.stringify(progress.save(true)));
  const again = new SessionProgress(saved);
  assert.equal(again.session, "s-1");
  const { value } = open(again, { key: KEYS[1], ack: 2, at: 1100 });
  assert.match(value, new RegExp(`^key=${KEYS[0]}; session=s-1; epoch=${EPOCH}; from=1100;`));
  assert.deepEqual(again.takeInput(), [bytes("ped\xff\x00"), { Role: "drive" }]);
});

test("a page may have sent more than it had saved", () => {
  const progress = new SessionProgress();
  open(progress);
  progress.input.put(bytes("ab"));
  const saved = progress.save(true);
  const again = new SessionProgress(saved);
  again.connect();
  again.input.put(bytes("new"));
  again.receiveMark({ Session: "s-2", Key: KEYS[1], Seconds: 60 });
  again.receiveMark({ Ack: 7 });
  assert.deepEqual(again.takeInput(), [bytes("new")]);
  again.receiveMark({ Ack: 10 });
});

test("another page knows which keys the page before has sent, where that sends no more", () => {
  const progress = new SessionProgress();
  open(progress);
  progress.input.put(bytes("ab"));
  progress.takeInput();
  progress.input.put(bytes("cde"));
  const saved = () => new SessionProgress(JSON.parse(JSON.stringify(progress.save(false))));
  assert.equal(saved().keptSeconds, 60);
  assert.deepEqual(saved().input.drop(), { sent: 2, unsent: 3 });
  assert.deepEqual(new SessionProgress(progress.save(true)).input.drop(), { sent: 5, unsent: 0 });
  for (const [ack, rest] of [[0, "abcde"], [1, "bcde"], [2, "cde"], [4, "e"], [5, ""], [9, ""]]) {
    const again = saved(); // 4 and more: its page has sent more, and the storage was full
    again.input.put(bytes("+"));
    again.connect();
    again.receiveMark({ Session: "s-2", Key: KEYS[1], Seconds: 60 });
    again.receiveMark({ Ack: ack });
    const sent = again.takeInput().map((each) => Buffer.from(each).toString()).join("");
    assert.equal(sent, `${rest}+`, `${ack}`);
  }
});

test("arrows are one key each; reports of the mouse and of the focus, and what surrounds a paste, are none", () => {
  for (const [typed, count] of [["", 0], ["ls\r", 3], ["\x1b[A\x1bOB\x1b[1;5C", 3], ["\x1b[I\x1b[<0;3;4mx\x1b[M\n\n\n\x1b[O", 1], ["\x1b[200~ls\x1b[201~", 2]]) {
    assert.equal(keysIn([bytes(typed)]), count, JSON.stringify(typed));
  }
});

test("another page gets earlier output again, but none before the session", () => {
  const progress = new SessionProgress();
  open(progress);
  progress.receiveOutput(new Uint8Array(1000));
  assert.match(new SessionProgress(progress.save(true), 300).connect(), /from=800;/);
  assert.match(new SessionProgress(progress.save(true), 5000).connect(), /from=100;/);
});

test("whatever is lost, and wherever: nothing is missing, and nothing comes twice", () => {
  for (let seed = 1; seed <= 400; seed++) {
    const random = numbers(seed);
    const server = new ModelServer(random);
    let progress = new SessionProgress();
    let saved = null;
    let shown = "";
    let typed = "";
    server.print("boot ");
    for (let connections = 0; connections < 12; connections++) {
      const connection = server.connect(progress.connect());
      const deliver = (limit) => {
        for (const message of connection.toPage.splice(0, limit)) {
          if (typeof message === "string") {
            progress.receiveOutput(bytes(message));
            shown += message;
            const taken = progress.take(message.length);
            if (taken !== null) connection.toServer.push({ Taken: taken });
          } else {
            const { gap, uncertain } = progress.receiveMark(message);
            assert.equal(gap, undefined, `seed ${seed}`);
            assert.equal(uncertain, undefined, `seed ${seed}`);
          }
          saved = progress.save(true) ?? saved;
          connection.toServer.push(...progress.takeInput());
        }
      };
      for (let step = random(12); step > 0; step--) {
        if (random(3) === 0) {
          const text = `<${typed.length}>`;
          typed += text;
          progress.input.put(bytes(text));
          connection.toServer.push(...progress.takeInput());
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
      if (progress.save(true) !== null && random(4) === 0) progress = new SessionProgress(JSON.parse(JSON.stringify(progress.save(random(2) === 0))));
    }
    const last = server.connect(progress.connect());
    for (let round = 0; round < 50; round++) {
      last.pump(100);
      for (const message of last.toPage.splice(0)) {
        if (typeof message === "string") {
          progress.receiveOutput(bytes(message));
          shown += message;
        } else {
          progress.receiveMark(message);
        }
        last.toServer.push(...progress.takeInput());
      }
    }
    assert.equal(server.received, typed, `input, seed ${seed}`);
    assert.equal(shown, server.printed, `output, seed ${seed}`);
    assert.equal(progress.input.unsent, 0, `seed ${seed}`);
  }
});

test("a page that is loaded again before the first position goes on with its session", () => {
  const progress = new SessionProgress();
  progress.input.put(bytes("early"));
  progress.connect();
  progress.receiveMark({ Session: "s-1", Key: KEYS[0], Seconds: 60 });
  progress.receiveMark({ Ack: 0 });
  assert.deepEqual(progress.takeInput(), [bytes("early")]);
  const restored = new SessionProgress(JSON.parse(JSON.stringify(progress.save(true))), 1000);
  const { value, placed } = open(restored, { key: KEYS[1], ack: 5, at: 700, End: 900 });
  assert.match(value, /^key=a+; session=s-1; epoch=0{16}; from=0;/);
  assert.deepEqual(placed, { placed: { epoch: EPOCH, offset: 700, exact: true, end: 900 } });
  assert.deepEqual(restored.takeInput(), []);
});
