/** Frames of a log. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { FrameDecoder, parseFraming } from "../../../../../twisted_exec/web/page/views/log/frames.js";
import { decoded } from "../../../../../twisted_exec/web/page/views/log/text.js";

const bytes = (text) => new TextEncoder().encode(text);

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
