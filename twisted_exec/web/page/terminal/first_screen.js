/**
 * The console's screen as it is, before the output behind it.
 *
 * The server sends the last output of a console, and says the offset of each byte. Meanwhile the page reads
 * the state of the console's terminal (`machines/NAME/screen?as=state`), which is that at some offset. The
 * output before that offset fills the scrollback; then the state replaces the screen, and the output behind
 * it follows. So the two requests need no common moment. docs/reference/resume.rst describes it.
 *
 * Without a state in time all output is shown as it was printed. A state that comes later replaces that screen if the
 * console has printed nothing since.
 */

const WAIT_MILLISECONDS = 1000;
/** All output of a console is shown as it was printed if it is shorter. */
const SHORT_BYTES = 8 << 10;

// End any sequence, leave the other screen, and set all modes as in a new terminal; `reset()` of xterm.js
// would also empty the scrollback.
const NEW_TERMINAL =
  "\x18\x1b[?1049l\x1b[?9;1000;1002;1003;1004;1005;1006;1015;1016l\x1b[?1;5;6;45;66;2004;2026l\x1b[4;20l" +
  "\x1b[?7;25h\x1b>\x1b[r\x1b[m\x1b(B\x1b)B\x0f\x1b[!p\x1b[3g";

/**
 * Return what makes a terminal of any state that of the console.
 *
 * @param {object} state
 * @param {number} kept how many of the terminal's rows go into the scrollback, from the first one
 */
export function stateOutput({ output, columns }, kept) {
  const stops = Array.from({ length: Math.ceil(columns / 8) - 1 }, (_, index) => `\x1b[${8 * index + 9}G\x1bH`);
  return new TextEncoder().encode(
    `${NEW_TERMINAL}${stops.join("")}\x1b[999;1H${"\r\n".repeat(kept)}\x1b[H\x1b[2J${output}`,
  );
}

const SEQUENCE = /\x1b(?:\[[0-?]*[ -/]*[@-~]|[ -/]*[0-~])/g;
const ALTERNATE = /\x1b\[\?(?:47|1047|1049)h/;

/** Return how many rows a state fills, about; 0 if it is that of the alternate screen. */
function filledRows({ output, columns }) {
  if (ALTERNATE.test(output)) return 0;
  const text = output.replace(SEQUENCE, "").trimEnd();
  const rows = text.split("\r\n").map((row) => Math.max(1, Math.ceil(row.trimEnd().length / columns)));
  return text ? rows.reduce((sum, count) => sum + count, 0) : 0;
}

export class FirstScreen {
  #read;
  #show;
  #picture;
  #whole;
  #clock;
  #isFirst = true; // no output is missing before the state
  #isRedrawn = false; // the terminal shows the screen already
  /** @type {object | null} */
  #reading = null; // identifies the newest request
  /** @type {any} */
  #state = null; // until it is shown
  #timer = null; // while the output waits
  #isLate = false; // the output has not waited for the state any longer
  /** @type {(() => void)[]} */
  #held = []; // what follows the output that waits, and that output
  #epoch = "";
  #offset = 0; // of the next output
  #end = 0; // of the output that the console had when the session began, or went on

  /**
   * @param {object} options
   * @param {() => Promise<object|null>} options.read the state for the terminal's present size
   * @param {(bytes: Uint8Array) => void} options.show output of the session
   * @param {(picture: (filled: number) => Uint8Array, size: number[]) => void} options.picture what replaces a screen of so many
   *     filled rows, in a terminal of so many columns and rows
   * @param {() => void} [options.whole] called once: the terminal has got all output that the console had, and its state
   * @param {any} [options.clock]
   */
  constructor({ read, show, picture, whole = () => {}, clock = globalThis }) {
    this.#read = read;
    this.#show = show;
    this.#picture = picture;
    this.#whole = whole;
    this.#clock = clock;
  }

  /** Read the state, at the beginning and where output is missing. */
  ask() {
    const reading = (this.#reading = {});
    this.#state = null;
    this.#isFirst = this.#epoch === "";
    this.#isRedrawn = this.#isLate = false;
    this.#read()
      .catch(() => null) // whatever the problem is, the user gets the output
      .then((state) => {
        if (this.#reading !== reading) return;
        this.#reading = null;
        this.#state = state;
        this.#release();
      });
  }

  /** Show the screen as it is now, for another size of the terminal: the output waits for its state. */
  redraw() {
    if (this.#epoch === "" || this.#timer !== null) return;
    this.ask();
    this.#isRedrawn = true;
    this.#wait();
  }

  /** Wait for no state, and show none. */
  cancel() {
    this.#reading = this.#state = null;
    this.#release();
  }

  #wait() {
    this.#timer ??= this.#clock.setTimeout(() => {
      this.#isLate = true;
      this.#release();
    }, WAIT_MILLISECONDS);
  }

  /** The next output begins at this position. */
  placed(mark) {
    this.behind(() => this.#place(mark));
  }

  #place({ epoch, offset, end }) {
    const isFirst = this.#epoch === "";
    const isSame = epoch === this.#epoch;
    if (!isFirst && this.#state !== null && !(isSame && this.#state.offset > offset)) this.#apply();
    this.#epoch = epoch;
    this.#offset = offset;
    this.#end = end ?? Math.max(offset, isSame ? this.#end : 0);
    if (isFirst && !offset && end !== null && end < SHORT_BYTES) this.cancel();
    else if (this.#reading !== null && !this.#isLate) this.#wait();
    else this.#release();
  }

  /** Show output, or hold it back. */
  output(bytes) {
    this.behind(() => this.#feed(bytes));
    this.#tellWhole();
  }

  /** Call a function behind all output so far, which may wait for the state. */
  behind(act) {
    if (this.#timer !== null) this.#held.push(act);
    else act();
  }

  #tellWhole() {
    if (this.#epoch === "" || this.#timer !== null || this.#state !== null || this.#offset < this.#end) return;
    this.#whole();
    this.#whole = () => {};
  }

  #release() {
    this.#clock.clearTimeout(this.#timer);
    this.#timer = null;
    const state = this.#state;
    if (state !== null && (state.epoch !== this.#epoch || state.offset < this.#offset)) {
      // It is not that of this output; before the first position, nobody knows yet.
      if (this.#epoch !== "") this.#state = null;
    }
    const held = this.#held;
    this.#held = [];
    if (this.#state?.offset === this.#offset) this.#apply();
    for (const act of held) this.behind(act);
    this.#tellWhole();
  }

  #feed(bytes) {
    const before = this.#state === null ? bytes.length : this.#state.offset - this.#offset;
    this.#offset += bytes.length;
    if (before > bytes.length) {
      this.#show(bytes);
      return;
    }
    if (before > 0) this.#show(bytes.subarray(0, before));
    if (this.#state !== null) this.#apply();
    if (before < bytes.length) this.#show(bytes.subarray(before));
  }

  #apply() {
    const state = this.#state;
    this.#state = null;
    if (state === null) return;
    // The output before the state ends with the rows that the state shows.
    const repeated = this.#isFirst ? filledRows(state) : 0;
    const isRedrawn = this.#isRedrawn;
    this.#picture((filled) => stateOutput(state, isRedrawn ? 0 : Math.max(0, filled - repeated)), [state.columns, state.rows]);
  }
}
