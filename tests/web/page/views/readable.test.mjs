/** Colours of recorded text. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { withReadableText } from "../../../../twisted_exec/web/page/views/readable.js";
import { readableColours } from "../../../../twisted_exec/web/page/views/styles.js";

const play = (texts, isDark = true) => withReadableText(texts.map((text, at) => [at, "o", text]), isDark).map(([, , text]) => text);
const readable = (style, isDark = true) => readableColours(style, isDark).readable.join(";");

test("text that cannot be read on its background gets another colour, until one of the two changes", () => {
  const white = { foreground: 7, background: 7 };
  assert.deepEqual(play(["a\x1b[37;47mb\x1b[49mc\x1b[0md"]), [`a\x1b[37;47m\x1b[38;2;${readable(white)}mb\x1b[49m\x1b[38;5;7mc\x1b[0md`]);
  assert.deepEqual(play(["\x1b[47mb\x1b[0mc"], false), [`\x1b[47m\x1b[38;2;${readable({ background: 7 }, false)}mb\x1b[0m\x1b[39mc`]);
});

test("of inverse text the background is what is read", () => {
  const style = { foreground: 4, background: 4, inverse: true };
  assert.deepEqual(play(["\x1b[34;44;7ma\x1b[27mb"]), [
    `\x1b[34;44;7m\x1b[48;2;${readable(style)}ma\x1b[27m\x1b[48;5;4;38;2;${readable({ foreground: 4, background: 4 })}mb`,
  ]);
});

test("text that can be read, other sequences and other events stay as they are", () => {
  const text = "\x1b[1;32mok\x1b[0m\x1b[2J\x1b[?25l\x1b]0;title\x07\x1b[>4;1m x \x1b";
  assert.deepEqual(play([text, "[m"]), [text.slice(0, -1), "\x1b[m"]);
  const events = [[0, "r", "80x24"], [1, "i", "\x1b[37;47m"], [2, "m", ""]];
  assert.deepEqual(withReadableText(events, true), events);
});

test("a sequence may be in two events, and be saved and restored with the cursor", () => {
  const changed = `\x1b[37;47m\x1b[38;2;${readable({ foreground: 7, background: 7 })}m`;
  const [first, second] = play(["a\x1b[37;4", "7mb\x1b7\x1b[0m\x1b8\x1b[49mc\x1bc\x1b[1m"]);
  assert.equal(first, "a");
  assert.equal(second, `${changed}b\x1b7\x1b[0m\x1b[39m\x1b8\x1b[49m\x1b[38;5;7mc\x1bc\x1b[1m`);
});
