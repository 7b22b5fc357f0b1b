import assert from "node:assert/strict";
import { test } from "node:test";

import { FrameDecoder, parseFraming } from "../../../twisted_exec/web/page/views/log/frames.js";
import { LineReader, linesOf, trimmed } from "../../../twisted_exec/web/page/views/log/lines.js";
import { around, before, from } from "../../../twisted_exec/web/page/views/log/ranges.js";
import { cssColour, decoded, plain, runsOf, styled } from "../../../twisted_exec/web/page/views/log/text.js";

const STAMP = "2026-11-20T08:38:20.104595125Z ";
const TIME = STAMP.trimEnd();
const bytes = (text) => new TextEncoder().encode(text);
const texts = (lines) => lines.map((line) => decoded(line.bytes));

function frame(text, offset, state = 0) {
  const body = bytes(text);
  const head = new DataView(new ArrayBuffer(24));
  head.setUint32(0, body.length);
  head.setUint32(4, state);
  head.setBigUint64(8, BigInt(offset));
  head.setBigUint64(16, 1_700_000_000_500_000_000n);
  return Uint8Array.from([...new Uint8Array(head.buffer), ...body]);
}

test("the header of a framed log has epoch and offsets", () => {
  const epoch = "0123456789abcdef";
  assert.deepEqual(parseFraming(`frames; epoch=${epoch}; start=10; end=20`), { epoch, start: 10, end: 20 });
  assert.deepEqual(parseFraming(`frames; epoch=${epoch}; start=0`), { epoch, start: 0, end: undefined });
  for (const header of [null, "", "frames", "frames; epoch=x; start=1", `frames; epoch=${epoch}; start=-1`]) {
    assert.equal(parseFraming(header), null);
  }
});

test("frames may be split anywhere", () => {
  const whole = Uint8Array.from([...frame("one", 3), ...frame("", 9, 1), ...frame("four", 13)]);
  for (let at = 0; at <= whole.length; at += 1) {
    const decoder = new FrameDecoder();
    const frames = [...decoder.feed(whole.slice(0, at)), ...decoder.feed(whole.slice(at))];
    assert.deepEqual(frames.map(({ text, offset, state }) => [decoded(text), offset, state]), [
      ["one", 3, 0],
      ["", 9, 1],
      ["four", 13, 0],
    ]);
    assert.equal(frames[0].seconds, 1_700_000_000.5);
  }
});

test("a body that is not of frames is refused before it fills the memory", () => {
  assert.throws(() => new FrameDecoder().feed(bytes("plain text that is no frame")), /a frame of the log has \d+ bytes/);
});

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

test("a line that gets longer is reported, and reading continues at its begin", () => {
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

test("pieces of a log are bounded and lie within what is retained", () => {
  const log = { start: 1000, end: 5000 };
  assert.deepEqual(before(5000, log, 1024), { start: 3976, end: 5000 });
  assert.deepEqual(before(1100, log, 1024), { start: 1000, end: 1100 });
  assert.equal(before(1000, log), null);
  assert.equal(before(10, log), null);
  assert.deepEqual(before(9999, log, 1000), { start: 4000, end: 5000 });
  assert.deepEqual(from(0, log, 1024), { start: 1000, end: 2024 });
  assert.deepEqual(from(4999, log, 1024), { start: 4999, end: 5000 });
  assert.equal(from(5000, log), null);
  assert.deepEqual(around(3000, log, 1024), { start: 2744, end: 3768 });
  assert.deepEqual(around(9999, log, 1024), { start: 4744, end: 5000 });
  assert.equal(around(5, { start: 7, end: 7 }), null);
});

const line = (offset, text, isComplete = true) => ({ offset, time: TIME, bytes: bytes(text), isComplete });

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

test("escape sequences are removed, whatever they ask for", () => {
  const cases = [
    ["\x1b[31mred\x1b[0m", "red"],
    ["\x1b]0;title\x07text", "text"],
    ["\x1b]8;;http://evil.example/\x1b\\link\x1b]8;;\x1b\\", "link"],
    ["\x1b]52;c;ZXZpbA==\x07x", "x"],
    ["\x1b]52;c;no end", ""],
    ["\x1bP+q544e\x1b\\x\x1b[c\x1b[6n\x1b[>0q", "x"],
    ["\x1b[2J\x1b[H\x1b(Bhome", "home"],
    ["\x1b[?1049h\x1b[>4;2mfull", "full"],
    ["a\x00\x07\x08b\x7f\x9b31mc", "ab31mc"],
    ["cut \x1b[3", "cut "],
    ["cut \x1b", "cut "],
    ["tab\there", "tab\there"],
    ["line\r", "line"],
    ["10%\r20%\r\r100%\r", "10%\n20%\n100%"],
    ["\rfirst", "first"],
  ];
  for (const [text, shown] of cases) assert.equal(plain(text), shown, JSON.stringify(text));
});

test("colours become styles and continue on the next line", () => {
  const { runs, style } = runsOf("a\x1b[1;31mb\x1b[38;5;196mc\x1b[48;2;1;2;300md\x1b[22;39me");
  assert.deepEqual(runs, [
    { text: "a", style: {} },
    { text: "b", style: { bold: true, foreground: 1 } },
    { text: "c", style: { bold: true, foreground: 196 } },
    { text: "d", style: { bold: true, foreground: 196 } },
    { text: "e", style: {} },
  ]);
  assert.deepEqual(style, {});
  assert.deepEqual(runsOf("x", { foreground: 2 }).runs[0].style, { foreground: 2 });
  assert.deepEqual(styled({ bold: true }, ""), {});
  assert.deepEqual(styled({}, "38;2;1;2;3;97;4"), { foreground: 15, underline: true });
  assert.deepEqual(styled({}, ">4;2"), {});
  assert.deepEqual(styled({}, "38;5"), {});
  assert.deepEqual(styled({}, "1;".repeat(10_000)), { bold: true });
});

test("only colours of the palette reach CSS", () => {
  assert.equal(cssColour(1), "#cd0000");
  assert.equal(cssColour(196), "rgb(255, 0, 0)");
  assert.equal(cssColour(255), "rgb(238, 238, 238)");
  assert.equal(cssColour("#01fe02"), "#01fe02");
  for (const wrong of [256, -1, 1.5, "red", "#12345", "url(x)", "#000000;x", null, undefined, {}]) {
    assert.equal(cssColour(wrong), null);
  }
});

test("bytes that are not UTF-8 become the replacement character", () => {
  assert.equal(decoded(Uint8Array.from([0x61, 0xff, 0xc3, 0x62])), "a\ufffd\ufffdb");
});
