/** Output before and behind the state of the console's terminal. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { FirstScreen, stateOutput } from "../../../../twisted_exec/web/page/terminal/first_screen.js";

const bytes = (text) => new TextEncoder().encode(text);
const settle = () => new Promise((resolve) => setImmediate(resolve));

/** A screen whose state arrives when the test says so. */
function screen(filled = 5) {
  const shown = [];
  const kept = [];
  let counted = 0;
  let answer;
  let timer = null;
  let wholes = 0;
  const first = new FirstScreen({
    read: () => new Promise((resolve, reject) => (answer = { resolve, reject })),
    show: (data) => {
      shown.push(new TextDecoder().decode(data));
      counted += data.length;
    },
    whole: () => wholes++,
    picture: (picture) => {
      const text = new TextDecoder().decode(picture(filled));
      shown.push(`[${text.slice(text.indexOf("\x1b[2J") + 4)}]`);
      kept.push(text.split("\x1b[999;1H")[1].split("\x1b[H\x1b[2J")[0].length / 2);
    },
    clock: { setTimeout: (callback) => ((timer = callback), 1), clearTimeout: () => (timer = null) },
  });
  first.ask();
  return {
    first,
    shown,
    kept,
    counted: () => counted,
    wholes: () => wholes,
    arrive: async (state) => {
      answer.resolve({ epoch: "e", columns: 80, rows: 2, output: "state", ...state });
      await settle();
    },
    fail: async () => {
      answer.reject(new Error("501"));
      await settle();
    },
    wait: () => timer(),
    isWaiting: () => timer !== null,
  };
}

const at = (offset, end = 100_000, epoch = "e") => ({ epoch, offset, end });

test("a screen that is drawn again for another size puts nothing into the scrollback, also without output behind it", async () => {
  const { first, shown, kept, arrive, isWaiting } = screen();
  first.redraw(); // too early
  assert.equal(isWaiting(), false);
  first.placed(at(50_000));
  await arrive({ offset: 50_000 });
  first.output(bytes("more"));
  first.redraw();
  first.output(bytes("late"));
  await arrive({ offset: 50_006, output: "redrawn" });
  assert.deepEqual(shown, ["[state]", "more", "la", "[redrawn]", "te"]);
  first.redraw();
  await arrive({ offset: 50_008, output: "again" });
  assert.deepEqual([shown.at(-1), kept.slice(1), isWaiting()], ["[again]", [0, 0], false]);
});

test("output before the state fills the scrollback, and output behind it follows the state", async () => {
  const { first, shown, counted, arrive } = screen();
  first.placed(at(50_000));
  first.output(bytes("old1"));
  first.output(bytes("old2new"));
  assert.deepEqual(shown, []);
  await arrive({ offset: 50_008 });
  assert.deepEqual(shown, ["old1", "old2", "[state]", "new"]);
  first.output(bytes("more"));
  assert.equal(counted(), 15);
});

test("a screen is whole once the output that the console had, and its state, are shown", async () => {
  const { first, wholes, arrive } = screen();
  first.placed(at(50_000, 50_008));
  first.output(bytes("old1old2"));
  assert.equal(wholes(), 0); // its state is on the way
  await arrive({ offset: 50_010 });
  assert.equal(wholes(), 0); // and is newer
  first.output(bytes("ne"));
  assert.equal(wholes(), 1);
  first.output(bytes("more"));
  assert.equal(wholes(), 1);
  const { first: long, wholes: ends, fail } = screen();
  long.placed(at(50_000, 50_008));
  await fail();
  long.output(bytes("old1"));
  assert.equal(ends(), 0);
  long.output(bytes("old2"));
  assert.equal(ends(), 1);
});

test("rows that the state repeats do not go into the scrollback", async () => {
  const rows = "one\r\n\x1b[1mtwo\x1b[m\r\nthree, which is wider than ten\r\n\r\n\x1b[3;4H";
  const states = [["", 5], ["one", 4], [rows, 1], ["a\r\nb\r\n\x1b[?1049ha", 5]];
  for (const [output, count] of states) {
    const { first, kept, arrive } = screen();
    first.placed(at(50_000));
    first.output(bytes("abc"));
    await arrive({ offset: 50_003, columns: 20, output });
    assert.deepEqual(kept, [count], output);
  }
});

test("output that does not fill the terminal, as behind clear, puts none of its rows into the scrollback", async () => {
  const { first, kept, arrive } = screen(2);
  first.placed(at(50_000));
  first.output(bytes("abc"));
  await arrive({ offset: 50_003, output: "a\r\nb" });
  assert.deepEqual(kept, [0]);
});

test("rows before a gap stay", async () => {
  const { first, kept, arrive } = screen();
  first.placed(at(50_000));
  await arrive({ offset: 50_000 });
  first.output(bytes("abc"));
  first.ask();
  first.placed(at(90_000));
  await arrive({ offset: 90_000, output: "a\r\nb" });
  assert.deepEqual(kept, [4, 5]);
});

test("output on both sides of a gap waits for the state", async () => {
  const { first, shown, arrive, wholes } = screen();
  first.placed(at(50_000, 60_003));
  first.output(bytes("before"));
  first.placed(at(60_000, null));
  first.behind(() => shown.push("[gap]"));
  first.output(bytes("abc"));
  assert.deepEqual([shown, wholes()], [[], 0]);
  await arrive({ offset: 60_002 });
  assert.deepEqual([shown, wholes()], [["before", "[gap]", "ab", "[state]", "c"], 1]);
});

test("a state that is older than the output does not replace it", async () => {
  const { first, shown, arrive } = screen();
  first.placed(at(50_000));
  await arrive({ offset: 50_000 });
  first.ask();
  first.output(bytes("abc"));
  await arrive({ offset: 50_001 });
  first.output(bytes("def"));
  assert.deepEqual(shown, ["[state]", "abc", "def"]);
});

test("the state may arrive before the session is open, and be ahead of the output", async () => {
  const { first, shown, arrive } = screen();
  await arrive({ offset: 50_002 });
  first.placed(at(50_000));
  first.output(bytes("abc"));
  assert.deepEqual(shown, ["ab", "[state]", "c"]);
});

test("a state at the first offset comes before all output", async () => {
  const { first, shown, arrive } = screen();
  first.placed(at(50_000));
  await arrive({ offset: 50_000 });
  first.output(bytes("abc"));
  assert.deepEqual(shown, ["[state]", "abc"]);
});

test("without a state in time, or at all, the output is shown as it was printed", async () => {
  for (const [happen, later] of [["wait", 50_002], ["fail", 50_003]]) {
    const each = screen();
    each.first.placed(at(50_000));
    each.first.output(bytes("abc"));
    await each[happen]();
    assert.deepEqual(each.shown, ["abc"]);
    await each.arrive({ offset: later }); // of an earlier moment, or for nobody
    each.first.output(bytes("d"));
    assert.deepEqual(each.shown, ["abc", "d"]);
  }
});

test("a state that comes late replaces the screen if the console has printed nothing since", async () => {
  const { first, shown, arrive, wait } = screen();
  first.placed(at(50_000));
  await arrive({ offset: 50_000 });
  first.output(bytes("abc"));
  first.redraw();
  await wait();
  await arrive({ offset: 50_003, output: "redrawn" });
  first.output(bytes("d"));
  assert.deepEqual(shown, ["[state]", "abc", "[redrawn]", "d"]);
});

test("a console that has printed little is shown from its beginning", () => {
  const { first, shown, isWaiting } = screen();
  first.placed(at(0, 100));
  first.output(bytes("abc"));
  assert.deepEqual(shown, ["abc"]);
  assert.ok(!isWaiting());
});

test("the state of another journal, and one behind the output, are not shown", async () => {
  for (const state of [{ epoch: "other", offset: 50_001 }, { offset: 49_999 }]) {
    const { first, shown, arrive } = screen();
    first.placed(at(50_000));
    await arrive(state);
    first.output(bytes("abc"));
    assert.deepEqual(shown, ["abc"]);
  }
});

test("a session that cannot be resumed shows its output at once", () => {
  const { first, shown } = screen();
  first.cancel();
  first.output(bytes("abc"));
  assert.deepEqual(shown, ["abc"]);
});

test("behind missing output the screen is read again", async () => {
  const { first, shown, arrive } = screen();
  first.placed(at(50_000));
  await arrive({ offset: 50_000 });
  first.output(bytes("abc"));
  first.ask();
  first.placed(at(90_000));
  first.output(bytes("xyz"));
  await arrive({ offset: 90_001, output: "again" });
  assert.deepEqual(shown, ["[state]", "abc", "x", "[again]", "yz"]);
});

test("the state begins with a terminal whose modes are new, below the former rows", () => {
  const text = new TextDecoder().decode(stateOutput({ columns: 24, output: "x" }, 3));
  assert.ok(text.startsWith("\x18\x1b[?1049l"));
  assert.match(text, /;1000;[0-9;]*l/);
  assert.ok(text.endsWith("\x1b[3g\x1b[9G\x1bH\x1b[17G\x1bH\x1b[999;1H\r\n\r\n\r\n\x1b[H\x1b[2Jx"));
});
