/** Tests for page/terminal/drawn_rows.js, with the terminal of the page. */

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import test from "node:test";

import { DrawnRows } from "../../../../twisted_exec/web/page/terminal/drawn_rows.js";

const { Terminal } = createRequire(import.meta.url)("../../../../twisted_exec/web/page/vendor/xterm.js");
const ROWS = 10;
const FRAME = `\x1b[Htop\x1b[K${"\r\nrow\x1b[K".repeat(ROWS - 1)}`;
const TOP = `\x1b[?25l\x1b[H\x1b[J${FRAME}`;
const MENU = "\x1b[2J\x1b[01;01HSetup\x1b[04;03HBoot\x1b[05;03HExit";

/** Return whether a program draws, after each of some outputs; one in an array is the picture of a screen. */
async function drawn(...outputs) {
  const terminal = new Terminal({ allowProposedApi: true, cols: 40, rows: 5 });
  const rows = new DrawnRows(terminal);
  const results = [];
  for (const output of outputs) {
    if (Array.isArray(output)) rows.pass(output[0]);
    else terminal.write(output);
    await new Promise((resolve) => terminal.write("", () => resolve(null)));
    results.push(rows.isOn(ROWS));
  }
  terminal.dispose();
  return results;
}

test("a program that hides the cursor draws until it shows the cursor on another line", async () => {
  assert.deepEqual(await drawn("$ top\r\n", TOP, FRAME, `\x1b[${ROWS};1H`, "\r\n\x1b[?25h\x1b[K$ "), [false, true, true, true, false]);
});

test("a program that was killed draws no longer when lines fill the screen", async () => {
  assert.deepEqual(await drawn(TOP, "\r\n$ ".repeat(ROWS)), [true, false]);
});

test("the menu of a firmware is drawn until a line follows", async () => {
  assert.deepEqual(await drawn(MENU, "\x1b[5d>", "\r\nLoading\r\n"), [true, true, false]);
  assert.deepEqual(await drawn(MENU, "\x1bc$ "), [true, false]);
});

test("a shell draws nothing, also if it clears the screen or measures it", async () => {
  const shell = ["\x1b[H\x1b[2J\x1b[3J$ ", "\x1b[2J\x1b[1;1H$ ", "\x1b7\x1b[r\x1b[999;999H\x1b[6n\x1b8$ ", "\x1b[s\x1b[9;9H\x1b[u$ ", "\x1b[2K\x1b[3G$ "];
  for (const output of shell) assert.deepEqual(await drawn(output), [false], JSON.stringify(output));
});

test("a program that ends its own screen has drawn nothing behind that", async () => {
  assert.deepEqual(await drawn("$ vi\r\n\x1b[?1049h\x1b[5;5Htext", "\x1b[?1049l$ "), [true, false]);
});

test("the picture of a screen changes nothing", async () => {
  assert.deepEqual(await drawn("$ ", ["\x1b[?1049l\x1b[H\x1b[2J$ \x1b[3;3H"], TOP, ["\x1b[H\x1b[2J\x1b[?25ltop\x1b[3;3H"], FRAME), [false, false, true, true, true]);
});

test("a picture that comes behind the end of a program does not begin it again", async () => {
  assert.deepEqual(await drawn(MENU, "\r\n$ ", ["\x1b[H\x1b[2JSetup\x1b[7;3H\r\n$ "]), [true, false, false]);
  assert.deepEqual(await drawn(TOP, "\r\n\x1b[?25h$ ", ["\x1b7\x1b[H\x1b[2Jtop\x1b8\x1b[3;3H"], "\x1b8"), [true, false, false, false]);
});

test("a picture has no lines that end a program", async () => {
  assert.deepEqual(await drawn(MENU, ["\x1b[H\x1b[2JSetup\r\nBoot\r\n"]), [true, true]);
});
