/** Text of a log, with its styles. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { decoded, plain, runsOf, styled } from "../../../../../twisted_exec/web/page/views/log/text.js";

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
    ["a\x00\x07\x0bb\x7f\x9b31mc", "ab31mc"],
    ["cut \x1b[3", "cut "],
    ["cut \x1b", "cut "],
    ["tab\there", "tab\there"],
    ["line\r", "line"],
    ["10%\r20%\r\r100%\r", "10%\n20%\n100%"],
    ["\rfirst", "first"],
  ];
  for (const [text, shown] of cases) assert.equal(plain(text), shown, JSON.stringify(text));
});

test("backspaces are carried out as in plain logs", () => {
  const cases = [
    ["# passwrod\b \b\b \b\b \bord x\r", "# password x"],
    ["=> hv\b \b\b \b", "=> "],
    ["ls x\b\x1b[K\b\x1b[K\r", "ls"],
    ["$ ls x\b\x1b[J\b\x1b[0J\r", "$ ls"],
    ["the same direct \bory:", "the same directory:"],
    ["ab\b\bXab\b\b", "Xab"],
    ["\b\b\btwo\rx\b\bthree", "two\nthree"],
    ["caf\u00e9\b \b\u{1f600}", "caf\u{1f600}"],
    ["ab\b\x1b[m\x1b[Kc\x1b[K\x0b", "ac"],
    ["ab\b\x1b[0", "ab"],
  ];
  for (const [text, shown] of cases) assert.equal(plain(text), shown, JSON.stringify(text));
  assert.deepEqual(runsOf("\x1b[1mab\b\x1b[31mc\x1b[m d").runs, [
    { text: "a", style: { bold: true } },
    { text: "c", style: { bold: true, foreground: 1 } },
    { text: " d", style: {} },
  ]);
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

test("bytes that are not UTF-8 become the replacement character", () => {
  assert.equal(decoded(Uint8Array.from([0x61, 0xff, 0xc3, 0x62])), "a\ufffd\ufffdb");
});

test("no line takes more than linear time", () => {
  const units = ["\r", "\rx", " \r", "x", "\u0301", "\x1b", "\x1b[", "\x1b]", "\x1b[1;", "\x1b[31m", "\x1b[31m\r", "\x1b[38;2;1;"];
  for (const unit of units) {
    const line = (size) => `${unit.repeat(size)}`.slice(0, size) + "x";
    const cost = (text) => {
      const before = process.cpuUsage().user;
      for (let round = 0; round < 10; round += 1) runsOf(text);
      return process.cpuUsage().user - before;
    };
    const [small, large] = [line(8 << 10), line(32 << 10)];
    let [first, second] = [Infinity, Infinity];
    cost(small);
    // Four times the size. A busy machine or the compiler can slow down any round: the best of up to twelve count;
    // less than 20 ms for ten lines is too little to compare.
    const isLinear = () => second < 20_000 || second < 8 * first;
    for (let round = 0; round < 12 && (round < 3 || !isLinear()); round += 1) {
      first = Math.min(first, cost(small));
      second = Math.min(second, cost(large));
    }
    assert.ok(isLinear(), `${JSON.stringify(unit)}: ${first} us, ${second} us`);
  }
});
