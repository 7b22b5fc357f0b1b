/** Whether a program draws rows on the usual screen, as `top` or the menu of a firmware does. */

export class DrawnRows {
  #terminal;
  #isPlaced = false; // by a program, which has not put the cursor back
  #lineFeeds = 0; // since then
  #saved = false; // what #isPlaced was when the cursor was saved

  /** @param {any} terminal of xterm.js */
  constructor(terminal) {
    this.#terminal = terminal;
    // Each returns that xterm.js handles the sequence, too.
    const on = (id, act) => terminal.parser.registerCsiHandler(id, ([first, second]) => act(first || 1, second || 1) ?? false);
    for (const final of ["H", "f"]) on({ final }, (row, column) => this.#place(row, column));
    on({ final: "d" }, (row) => this.#place(row, 2));
    const save = () => void (this.#saved = this.#isPlaced);
    const restore = () => void (this.#isPlaced = this.#saved);
    on({ final: "s" }, save);
    on({ final: "u" }, restore);
    terminal.parser.registerEscHandler({ final: "7" }, () => save() ?? false);
    terminal.parser.registerEscHandler({ final: "8" }, () => restore() ?? false);
    terminal.parser.registerEscHandler({ final: "c" }, () => this.#leave() ?? false);
    terminal.onLineFeed(() => this.#lineFeeds++);
    terminal.buffer.onBufferChange(() => this.#leave());
  }

  /**
   * Return whether a program draws on the screen of so many rows: it has placed the cursor, and printed no line feed since,
   * or, while it hides the cursor, fewer than the screen has rows.
   */
  isOn(rows) {
    return this.#isPlaced && this.#lineFeeds < (this.isCursorHidden ? rows : 1);
  }

  /** Write the picture of a screen, which places the cursor and ends lines as no program does. */
  pass(picture) {
    let before = { isPlaced: false, lineFeeds: 0, saved: false };
    this.#terminal.write("", () => (before = { isPlaced: this.#isPlaced, lineFeeds: this.#lineFeeds, saved: this.#saved }));
    this.#terminal.write(picture, () => {
      this.#isPlaced = before.isPlaced;
      this.#lineFeeds = before.lineFeeds;
      this.#saved = before.saved;
    });
  }

  get isCursorHidden() {
    return this.#terminal._core.coreService.isCursorHidden;
  }

  #place(row, column) {
    if (row === 1 && column > 1) return;
    // A shell that clears its screen places the cursor at the first row, but shows it.
    this.#isPlaced = row > 1 || this.isCursorHidden;
    this.#lineFeeds = 0;
  }

  #leave() {
    this.#isPlaced = this.#saved = false;
  }
}
