/** Lines of a log. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { LineReader, linesOf, trimmed } from "../../../../../twisted_exec/web/page/views/log/lines.js";
import { decoded } from "../../../../../twisted_exec/web/page/views/log/text.js";

const STAMP = "2026-11-20T08:38:20.104595125Z ";
const TIME = STAMP.trimEnd();
const bytes = (text) => new TextEncoder().encode(text);
const texts = (lines) => lines.map((line) => decoded(line.bytes));
const line = (offset, text, isComplete = true) => ({ offset, time: TIME, bytes: bytes(text), isComplete });

test("lines have the offset and the time of their first byte", () => {
  const text = bytes(`${STAMP}one\r\n${STAMP}\n${STAMP}thr`);
  for (let at = 0; at <= text.length; at += 1) {
    const reader = new LineReader(100);
    const { lines } = reader.feed(text.slice(0, at));
    lines.push(...reader.feed(text.slice(at), 109).lines);
    assert.deepEqual(
      lines.map(({ offset, time, isComplete }) => [offset, time, isComplete]),
      [[100, TIME, true], [105, TIME, true], [106, TIME, false]],
    );
    assert.deepEqual(texts(lines), ["one\r", "", "thr"]);
    assert.equal(reader.lineStart, 106);
    assert.equal(reader.offset, 109);
  }
});

test("a line that gets longer is reported, and reading continues at its beginning", () => {
  const reader = new LineReader(0);
  const [line] = reader.feed(bytes(`${STAMP}login: `), 7).lines;
  assert.equal(reader.feed(bytes("root"), 11).changed, line);
  const { lines, changed } = reader.feed(bytes(`\r\n${STAMP}Password: `), 23);
  assert.equal(changed, line);
  assert.equal(decoded(line.bytes), "login: root\r");
  assert.deepEqual(texts(lines), ["Password: "]);
  assert.equal(reader.lineStart, 13);
});

test("a notice of the server does not shift the offsets of the lines behind it", () => {
  const frames = [
    { text: bytes(`${STAMP}[twisted-exec: 900 bytes skipped]\r\n`), offset: 1000 },
    { text: bytes(`${STAMP}on\n`), offset: 1003 },
  ];
  assert.deepEqual(linesOf(frames, 100).map((line) => line.offset), [100, 1000]);
});

test("a line without an end goes on in other rows, in bounded memory", () => {
  const reader = new LineReader(0);
  const piece = bytes("x".repeat(50_000));
  const { lines } = reader.feed(Uint8Array.from([...bytes(STAMP), ...piece]));
  for (let count = 0; count < 8; count += 1) lines.push(...reader.feed(piece).lines);
  assert.deepEqual(lines.map((line) => line.offset), [0, 150_000, 300_000]);
  assert.ok(lines.every((line) => line.bytes.length === 150_000));
});

test("a log without times has its whole text", () => {
  const { lines } = new LineReader(NaN).feed(bytes("this line is longer than any timestamp\nshort"));
  assert.equal(texts(lines)[0], "this line is longer than any timestamp");
});

test("a piece shows whole lines, and the next piece begins where it ends", () => {
  const lines = [line(10, "rest"), line(15, "one"), line(19, "two"), line(23, "thr", false)];
  const range = { start: 10, end: 26 };
  const back = { direction: "back", mayBeginWithin: true, isEnd: false, most: 99 };
  assert.deepEqual(trimmed(lines, range, back), { lines: lines.slice(1, 3), start: 15, end: 23 });
  const end = { ...back, isEnd: true };
  assert.deepEqual(trimmed(lines, range, end), { lines: lines.slice(1), start: 15, end: 26 });
  const few = { ...end, most: 1 };
  assert.deepEqual(trimmed(lines, range, few), { lines: lines.slice(3), start: 23, end: 26 });
  const forward = { direction: "forward", mayBeginWithin: false, isEnd: false, most: 2 };
  assert.deepEqual(trimmed(lines, range, forward), { lines: lines.slice(0, 2), start: 10, end: 19 });
});

test("a line longer than a piece is shown in parts", () => {
  const lines = [line(10, "x".repeat(20), false)];
  const options = { direction: "back", mayBeginWithin: true, isEnd: false, most: 99 };
  assert.deepEqual(trimmed(lines, { start: 10, end: 30 }, options), { lines, start: 10, end: 30 });
});
