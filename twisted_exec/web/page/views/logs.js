/** The log of a machine's console: by time, by boot and by offset, back and forth, with search and new output. */

import { button, fill, h, notice, printable } from "../dom.js";
import { sentence } from "../terminal/texts.js";
import { dateTime, parseTime, size, TIME_FORMS, zonedTime } from "../times.js";
import { deletedLog, LogReplaced, LogSource, SEARCH_BYTES } from "./log/source.js";
import { LogWindow } from "./log/window.js";
import { lacksMachine, noMachine } from "./missing.js";
import { asOfText, askFor, copyButton, field, foldable, lacking, menu, outageNotice, reachBySlash, save, showWaiting, skeleton, whenServed } from "./parts.js";

const MOST_DOWNLOAD_BYTES = 256 << 20;
const MOST_PENDING_LINES = 1000;

/**
 * @param {HTMLElement} container
 * @param {any} context
 * @param {{namespace: string, name: string, query: URLSearchParams}} parameters the query: offset, time or boot.
 * @returns {{stop(): void}}
 */
export function show(container, context, parameters) {
  const view = new LogView(container, context, parameters);
  return { stop: () => view.stop() };
}

class LogView {
  #stopped = new AbortController();
  #following = new AbortController();
  #searching = new AbortController();
  /** @type {Promise<void> | null} */
  #running = null;
  #turn = 0;
  #match = NaN;
  #isLost = false; // the connection that brings new output
  #searched = "";
  #counting = new AbortController();
  /** @type {{text: string, offsets: number[], isWhole: boolean} | null} the lines that have the text of the search. */
  #hits = null;
  #pending = nothing();

  constructor(container, context, { namespace, name, query }) {
    this.context = context;
    this.namespace = namespace;
    this.name = name;
    this.query = query;
    /** @type {any} the console of a machine that was deleted. */
    this.deleted = null;
    this.source = new LogSource(context.api, `${context.machines.path(namespace, name)}/log`);
    const base = context.link(namespace, name, "logs");
    this.window = new LogWindow(`Log of ${printable(name)}`, { hasColours: true, link: (offset) => `${base}?offset=${offset}` });
    const { window } = this;
    this.problem = h("div");
    this.facts = h("p", { class: "dim log-facts", title: "The time of a line is that of its end; of its beginning, if it had no end yet when it appeared" });
    this.found = h("span", { class: "found", hidden: true });
    this.following = h("input", { type: "checkbox", disabled: true, onchange: () => this.#act(() => this.#followChanged()) });
    this.colours = h("input", { type: "checkbox", checked: true, onchange: () => this.#coloursChanged() });
    this.time = h("input", { type: "text", size: 20, "aria-label": "Time", placeholder: "Time, or 1h ago", title: TIME_FORMS });
    this.text = h("input", { type: "search", size: 16, "aria-label": "Search the log", placeholder: "Search the log", oninput: () => this.text.value || this.#endSearch() });
    reachBySlash(this.text, this.#stopped.signal);
    this.bootList = h("div");
    this.boots = menu("Boots", this.bootList, () => this.#run(() => this.#listBoots(), true));
    this.boots.title = "The machine's starts: show the output of one of them";
    this.files = menu("Save", h("div", {},
      button("As printed, all bytes", () => this.#download({}, "log")),
      button("As text with times", () => this.#download({ plain: "true", timestamps: "true" }, "txt"))));
    const move = (label, title, action) => button(label, () => this.#act(action), { title });
    this.earlier = move("Earlier", "Show more output before this", () => this.#more("older"));
    this.later = move("Later", "Show more output after this", () => this.#more("newer"));
    const moves = h("div", { class: "joined", role: "group", "aria-label": "Move" },
      move("Begin", "Go to the oldest output that is retained", () => this.#goTo(this.source.range.start)),
      this.earlier, this.later,
      move("End", "Go to the newest output", () => this.#showNewest()));
    const submit = (label, value, title) => h("button", { type: "submit", class: "button", value, title, "aria-label": title }, label);
    this.search = h("form", { class: "joined", role: "search", onsubmit: (event) => this.#searchTyped(event), onkeydown: (event) => this.#searchKey(event) },
      this.text, submit("↑", "back", "Previous match"), submit("↓", "forward", "Next match"));
    this.controls = h("fieldset", { class: "toolbar controls", disabled: true },
      h("form", { class: "joined", onsubmit: (event) => this.#timeTyped(event) }, this.time, submit("Go", "", "Go to this time")),
      this.search,
      foldable("More", [moves, this.boots, this.files, field("Colours", this.colours)]));
    window.element.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    window.element.addEventListener("keydown", (event) => this.#keyPressed(event));
    this.frame = h("div", { class: "log-frame", hidden: true }, window.element);
    fill(container, this.controls, this.problem, this.frame, h("div", { class: "log-foot" }, field("Follow", this.following), this.found, this.facts));
    this.#run(() => this.#start());
  }

  stop() {
    fill(this.problem);
    cancelAnimationFrame(this.#pending.frame);
    for (const each of [this.#following, this.#searching, this.#counting, this.#stopped]) each.abort();
  }

  /** Do what the user asked for last: a search ends, and anything else is finished first. */
  async #act(action) {
    this.#searching.abort();
    const turn = ++this.#turn;
    await this.#running;
    if (turn === this.#turn) await this.#run(action);
  }

  /** Run an action, and show its failure. Without `isBeside` it is left out while another one runs. */
  async #run(action, isBeside = false) {
    if (isBeside) await this.#attempt(action);
    else if (this.#running === null) {
      this.#running = this.#attempt(action);
      await this.#running;
      this.#running = null;
    }
  }

  async #attempt(action) {
    try {
      await action();
    } catch (error) {
      if (!this.#stopped.signal.aborted && error.name !== "AbortError") this.#failed(error);
    }
    if (!this.#stopped.signal.aborted) this.#showFacts();
  }

  #failed(error) {
    if (error.code === 401) {
      fill(this.problem, notice("warning", "Waiting for your login."));
      this.context.api.addEventListener("authorized", () => this.#act(() => this.#start()), { once: true, signal: this.#stopped.signal });
      return;
    }
    const again = button("Try again", () => this.#act(() => this.#start()));
    const isMissing = lacksMachine(error);
    const kind = error instanceof RangeError ? "warning" : "error";
    const advice = askFor(this.deleted ? "admin" : "console-log-reader", this.namespace);
    if (error.code === 403) fill(this.problem, lacking("You may not read this log.", advice, error));
    else if (isMissing) fill(this.problem, noMachine(this.context, this, "logs", this.source.range && again));
    else fill(this.problem, notice(kind, printable(sentence(error.message))));
    if (!this.source.range) this.problem.append(again);
    if (!(error instanceof LogReplaced)) return;
    this.window.clear();
    this.#act(async () => {
      await this.source.open(null, this.#stopped.signal);
      await this.#showNewest();
    });
  }

  async #start() {
    const { signal } = this.#stopped;
    const boot = this.query.get("boot");
    const endWaiting = showWaiting(this.problem, this.context);
    const open = () => this.#open(boot === null ? null : Number(boot), signal);
    const range = await whenServed(this.context, this.problem, "No log", signal, open).finally(endWaiting);
    this.frame.hidden = false;
    if (!range) {
      this.controls.hidden = true;
      fill(this.problem, notice("warning", "A program between this page and the machine belongs to another project and sends no offsets: these are the last lines. ", h("code", {}, "kubectl logs"), " reads the rest."));
      this.window.reset(await this.source.tail(signal));
      this.window.scrollToEnd();
      return;
    }
    this.controls.disabled = false;
    fill(this.problem, this.deleted && notice("warning", `This machine was deleted ${zonedTime(this.deleted.time)}. Its output is retained for some time.`));
    this.#showBoot();
    const offset = Number(this.query.get("offset") ?? NaN);
    if (Number.isFinite(offset)) await this.#goTo(offset, true);
    else if (this.query.get("time")) await this.#goToTime(this.query.get("time"));
    else if (boot !== null) await this.#goTo(range.start);
    else await this.#showNewest();
  }

  /** Open the log of the machine, or if it was deleted, of what is retained of it. */
  async #open(boot, signal) {
    const { api, machines } = this.context;
    try {
      return await this.source.open(boot, signal);
    } catch (error) {
      if (error.code !== 404) throw error;
      this.deleted = await deletedLog(api, this.namespace, machines.parse(this.name).name, signal);
      if (!this.deleted) throw error;
      this.source = new LogSource(api, this.deleted.path);
      return this.source.open(boot, signal);
    }
  }

  #showFacts() {
    const { range } = this.source;
    const { window } = this;
    if (!range) return;
    const { times } = window;
    const shown = times ? `${dateTime(times[0])} to ${zonedTime(times[1])}` : "no output";
    const whole = this.source.boot === null ? "retained" : "in this boot";
    this.facts.textContent = `${shown}; ${size(range.end - range.start)} ${whole}`;
    this.earlier.disabled = window.isEmpty || window.start <= range.start;
    this.later.disabled = this.following.checked || window.isEmpty || window.shownEnd >= range.end;
  }

  // Moving

  async #showNewest() {
    this.#stopFollowing();
    await this.source.refresh(this.#stopped.signal);
    const piece = await this.source.newest(this.#stopped.signal);
    this.#match = NaN;
    this.found.hidden = true;
    if (piece) this.window.reset(piece);
    else this.window.clear();
    this.window.scrollToEnd();
    // Behind a very long line there may be little more than a prompt.
    if (piece && !this.window.isFull) await this.#more("older");
    this.window.scrollToEnd();
    if (!this.following.disabled) this.#follow();
  }

  async #goTo(offset, isMatch = false) {
    const { range } = this.source;
    this.#stopFollowing();
    if (isMatch && (offset < range.start || offset > range.end)) {
      const why = offset < range.start ? "is not retained any more: this is the oldest output" : "is beyond the end of the log";
      fill(this.problem, notice("warning", `Offset ${offset} ${why}.`));
      isMatch = false;
    }
    let row = this.window.find(offset);
    if (!row) {
      const piece = await this.source.at(offset, this.#stopped.signal);
      if (!piece) return this.window.clear();
      this.window.reset(piece);
      row = this.window.find(offset);
    }
    if (row && isMatch) this.#highlight(row, offset);
    if (row) this.window.scrollTo(row, isMatch ? 0.5 : 0);
    return undefined;
  }

  #highlight(row, offset) {
    this.window.element.querySelector(".line.match")?.classList.remove("match");
    this.#match = offset;
    row.classList.add("match");
    row.setAttribute("tabindex", "-1");
    // A finger wants the keyboard of the phone away; other users go on from where they are.
    const isSearching = this.search.contains(document.activeElement) && !matchMedia("(pointer: coarse)").matches;
    if (!isSearching) row.focus({ preventScroll: true });
    this.#showFound();
  }

  /** Say which of the lines that the search finds is marked, and offer a link to it. */
  #showFound() {
    const { link, config } = this.context;
    const { origin, pathname } = location;
    const address = `${origin}${pathname}${link(this.namespace, this.name, "logs")}?offset=${this.#match}`;
    // The address of the local page leads nobody else there.
    const copy = !config.local && copyButton("Copy link", () => address, { class: "small", title: "Copy a link to this line" });
    const place = this.#hits ? placeOf(this.#hits, this.#match) : "";
    const title = place && `Lines with “${printable(this.#hits?.text)}”, from the oldest on`;
    fill(this.found, place && h("span", { title }, place), copy);
    this.found.hidden = false;
    return place;
  }

  /** Learn how many lines have a text; meanwhile the user goes on. */
  async #count(text) {
    this.#forgetHits();
    this.#counting = new AbortController();
    const { signal } = this.#counting;
    const hits = await this.source.count(text, signal).catch(() => null); // without a number the line is as good
    if (signal.aborted || !hits) return;
    this.#hits = { text, ...hits };
    if (Number.isNaN(this.#match) || this.found.hidden) return;
    this.context.announce(this.#showFound());
  }

  async #goToTime(text) {
    const time = parseTime(text, Date.now());
    await this.source.refresh(this.#stopped.signal);
    const offset = await this.source.offsetAt(time, this.#stopped.signal);
    fill(this.problem);
    if (offset === null) {
      fill(this.problem, notice("", `Nothing was printed since ${zonedTime(time)}: this is the newest output.`));
      await this.#showNewest();
    } else {
      await this.#goTo(offset, true);
      this.context.announce(`First output since ${zonedTime(time)}.`);
    }
  }

  async #more(direction) {
    const { window, source } = this;
    const { signal } = this.#stopped;
    if (direction === "older") {
      const piece = await source.older(window.start, signal);
      const { end } = window;
      if (piece) window.prepend(piece);
      if (window.end !== end) this.#stopFollowing(); // the newest output is not shown any more
      return;
    }
    await source.refresh(signal);
    const piece = await source.newer(window.end, signal);
    if (piece) window.append(piece);
    else this.context.announce("This is the newest output.");
  }

  #scrolled() {
    if (this.#running || this.window.isEmpty || !this.source.range) return;
    if (this.window.isAtBegin && this.window.start > this.source.range.start) this.#run(() => this.#more("older"));
    else if (!this.following.checked && this.window.isAtEnd && this.window.end < this.source.range.end) this.#run(() => this.#more("newer"));
  }

  /** At the first line no scrolling tells that the user wants to go further back. At a match are keys that find another. */
  #keyPressed(event) {
    if (event.target.matches(".line.match")) this.#searchKey(event, ["enter", "n"]);
    if (["PageUp", "ArrowUp", "Home"].includes(event.key) && this.window.element.scrollTop === 0) this.#scrolled();
  }

  // Forms

  #timeTyped(event) {
    event.preventDefault();
    this.#act(() => this.#goToTime(this.time.value));
  }

  #searchTyped(event) {
    event.preventDefault();
    this.#find(event.submitter?.value === "forward" ? "forward" : "back");
  }

  #searchKey(event, keys = ["enter"]) {
    const direction = event.target.matches("button") ? "" : stepOf(event, keys);
    if (!direction) return;
    event.preventDefault();
    this.#find(direction);
  }

  /** @param {string} direction */
  #find(direction) {
    if (!this.text.value) return this.#endSearch();
    this.#act(() => {
      this.#searching = new AbortController();
      return this.#search(this.text.value, direction, this.#searching.signal);
    });
  }

  async #search(text, direction, signal) {
    const { source, window, context } = this;
    const shownFrom = direction === "back" ? source.range.end : window.start - 1;
    const goesOn = text === this.#searched && !Number.isNaN(this.#match);
    const from = goesOn ? this.#match : shownFrom;
    this.#searched = text;
    context.announce("Searching.");
    const answer = await source.search(text, from, direction, signal);
    if (answer.found !== null) {
      fill(this.problem);
      await this.#goTo(answer.found, true);
      this.#mark(text);
      if (!this.#hits || this.#hits.text !== text || !isCounted(this.#hits, answer.found)) this.#count(text);
      context.announce(`Found. ${this.#showFound()}`);
      return;
    }
    this.#match = answer.isEnd ? NaN : answer.offset;
    this.found.hidden = true;
    if (this.#hits?.text !== text) this.#forgetHits();
    this.#mark(text);
    const place = direction === "forward" ? "from here on " : goesOn ? "before this place " : "";
    const message = answer.isEnd
      ? `No line ${place}has "${printable(text)}".`
      : `No line in the next ${size(SEARCH_BYTES)} has "${printable(text)}": search again to go on.`;
    fill(this.problem, notice("", message));
    context.announce(""); // it does not search any more, and the notice is read out
  }

  /** The user has emptied the field: nothing is marked, counted or looked for. */
  #endSearch() {
    this.#searching.abort();
    this.#forgetHits();
    this.#searched = "";
    this.#match = NaN;
    this.found.hidden = true;
    this.window.element.querySelector(".line.match")?.classList.remove("match");
    this.#mark("");
  }

  #forgetHits() {
    this.#counting.abort();
    this.#hits = null;
  }

  /** Mark a text in all lines, also in those that are shown later. */
  #mark(text) {
    this.window.options.wanted = text;
    this.window.redraw();
  }

  #coloursChanged() {
    this.window.options.hasColours = this.colours.checked;
    this.window.redraw();
  }

  // Boots

  async #listBoots() {
    fill(this.bootList, skeleton(2));
    const boots = await this.source.boots(this.#stopped.signal);
    fill(
      this.bootList,
      this.source.boot !== null && button("All output", () => this.#chooseBoot(null)),
      boots.map((each) => button(
        `${bootName(each.boot)}, since ${dateTime(each.time) || "unknown"}, ${size(each.end - each.start)}`, () => this.#chooseBoot(each.boot))),
      boots.length === 0 && h("span", { class: "dim" }, "No boot is known."),
    );
  }

  #chooseBoot(boot) {
    this.boots.open = false;
    this.#act(async () => {
      this.#stopFollowing();
      const range = await this.source.open(boot, this.#stopped.signal);
      this.#forgetHits();
      fill(this.problem);
      this.#showBoot();
      this.window.clear();
      if (boot === null) await this.#showNewest();
      else await this.#goTo(range.start);
      this.window.element.focus({ preventScroll: true });
    });
  }

  #showBoot() {
    const { boot } = this.source;
    fill(this.boots.querySelector("summary"), boot === null ? "Boots" : `Boots: ${bootName(boot)}`);
    this.following.disabled = this.deleted !== null || (boot !== null && boot < 0);
  }

  // New output

  async #followChanged() {
    if (this.following.checked) await this.#showNewest();
    else this.#stopFollowing();
  }

  /** Add output as it is printed, behind the newest that is shown. */
  #follow() {
    this.following.checked = true;
    this.#following = new AbortController();
    cancelAnimationFrame(this.#pending.frame);
    this.#pending = nothing();
    const from = this.window.isEmpty ? this.source.range.end : this.window.end;
    const on = { lines: (...news) => this.#printed(...news), state: (...news) => this.#followState(...news) };
    this.source.follow(from, on, this.#following.signal);
  }

  #stopFollowing() {
    this.#following.abort();
    this.following.checked = false;
  }

  /** Rows are added once for each frame of the display, and of a flood only the newest. */
  #printed(lines, changed, end) {
    const pending = this.#pending;
    pending.lines.push(...lines);
    pending.end = end;
    if (changed) pending.changed.add(changed);
    if (pending.lines.length > MOST_PENDING_LINES) {
      pending.skipped += pending.lines.length - MOST_PENDING_LINES;
      pending.lines.splice(0, pending.lines.length - MOST_PENDING_LINES);
    }
    pending.frame ||= requestAnimationFrame(() => this.#flush());
  }

  #flush() {
    const { lines, changed, end, skipped } = this.#pending;
    this.#pending = nothing();
    if (this.#following.signal.aborted) return;
    if (skipped) {
      // The shown lines have no gaps: the rows before are left out as well.
      this.window.clear();
    }
    this.window.grow(lines, changed, end);
    if (this.source.range) this.source.range.end = Math.max(this.source.range.end, end);
    this.#showFacts();
  }

  #followState(state, error) {
    const texts = {
      open: "Following the log.",
      lost: "The connection is lost; the log continues when the server answers.",
      ended: "The log is complete: the machine was deleted.",
    };
    this.context.announce(error ? error.message : texts[state]);
    if (state === "ended") this.#stopFollowing();
    if (error) this.#failed(error);
    else if (state === "ended") fill(this.problem, notice("warning", texts[state]));
    else if (state === "lost" && !this.#isLost) fill(this.problem, outageNotice(this.context.api, asOfText("log", Date.now()), "the connection is lost"));
    else if (state === "open" && this.#isLost) fill(this.problem);
    this.#isLost = state === "lost";
  }

  // Files

  async #download(query, suffix) {
    this.files.open = false;
    const { signal } = this.#stopped;
    try {
      const all = { ...query, ...(this.source.boot !== null && { boot: String(this.source.boot) }) };
      const { blob, isWhole } = await this.context.api.blob(this.source.path, MOST_DOWNLOAD_BYTES, { query: all, signal });
      if (!isWhole) fill(this.problem, notice("warning", `Only the first ${size(blob.size)} are saved; twisted-exec logs has no such limit.`));
      save(`${this.name}.${suffix}`, [blob], "text/plain");
      this.context.announce(`Saved ${size(blob.size)}.`);
    } catch (error) {
      if (!signal.aborted) this.#failed(error);
    }
  }
}

/** Return the direction in which a key searches, as in a terminal; empty if it is none of the keys. */
export function stepOf({ key = "", shiftKey, ctrlKey, altKey, metaKey, isComposing }, keys) {
  if (ctrlKey || altKey || metaKey || isComposing || !keys.includes(key.toLowerCase())) return "";
  return shiftKey ? "forward" : "back";
}

/** What was printed since the last frame of the display. */
function nothing() {
  return { lines: /** @type {any[]} */ ([]), changed: new Set(), end: NaN, skipped: 0, frame: 0 };
}

/** Whether the line at an offset was counted, or is older than those that were. */
function isCounted({ offsets, isWhole }, offset) {
  return offsets.includes(offset) || (!isWhole && offset < (offsets[0] ?? Infinity));
}

/** Return which of the lines that were counted is at an offset, such as `3 of 17`; empty for a line without the text. */
function placeOf({ offsets, isWhole }, offset) {
  const at = offsets.indexOf(offset);
  if (isWhole) return at >= 0 ? `${at + 1} of ${offsets.length}` : "";
  return `${offsets.length} in the newest ${size(SEARCH_BYTES)}`;
}

function bootName(boot) {
  return boot === 0 ? "newest boot" : boot === -1 ? "boot before" : `${-boot} boots before`;
}
