/** Pastes. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { encode, examine } from "../../../../twisted_exec/web/page/terminal/paste.js";

const text = (bytes) => new TextDecoder().decode(bytes);

test("a short line is pasted at once", () => {
  const { text: clean, asks } = examine("ls -l");
  assert.deepEqual([clean, asks], ["ls -l", false]);
});

test("lines, long texts and control characters are shown first", () => {
  assert.ok(examine("reboot\n").asks);
  assert.ok(examine("a\r\nb").asks);
  assert.ok(examine("x".repeat(1001)).asks);
  assert.equal(examine("a\r\nb\rc\n").lines, 3);
  assert.equal(examine("👍👍").characters, 2);
});

test("control characters are removed, and counted", () => {
  const paste = examine("ls\u001b[201~\u0003;\trm\u009b");
  assert.deepEqual([paste.text, paste.removed, paste.asks], ["ls[201~;\trm", 3, true]);
});

test("a text with invisible characters is shown first", () => {
  for (const text of ["rm\u202e -rf", "a\u200bb", "a\u{e0041}b"]) {
    assert.deepEqual([examine(text).text, examine(text).asks], [text, true]);
  }
  assert.equal(examine("a\tb 👩‍💻").asks, false);
});

test("line ends become the Enter key, in brackets if the machine wants them", () => {
  assert.equal(text(encode("a\nb", false)), "a\rb");
  assert.equal(text(encode("a\nb", true)), "\x1b[200~a\rb\x1b[201~");
});
