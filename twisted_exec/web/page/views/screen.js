/** The screen of a machine's console, now or at any time that its journal retains. */

import { MISSING_RIGHT, causesOf } from "../details.js";
import { button, fill, h, notice, printable } from "../dom.js";
import { readScreen } from "../screens.js";
import { demands, endText, sentence } from "../terminal/texts.js";
import { dateTime, localDay, minute, parseTime, TIME_FORMS, zonedTime } from "../times.js";
import { rest, sleep } from "../watch.js";
import { LogSource } from "./log/source.js";
import { lacksMachine, noMachine } from "./missing.js";
import { asOfText, askFor, copyButton, field, foldable, lacking, menu, outageNotice, save, showWaiting } from "./parts.js";
import { nextWait, screenOf, segmentsOf } from "./screen_model.js";
import { styledText } from "./styles.js";

const SLIDE_MS = 250;
const STEPS = [["by 1 minute", 60], ["by 10 minutes", 600], ["by 1 hour", 3600]];

/**
 * @param {HTMLElement} container
 * @param {any} context
 * @param {{namespace: string, name: string, query: URLSearchParams}} parameters
 * @returns {{stop(): void}}
 */
export function show(container, context, parameters) {
  const view = new ScreenView(container, context, parameters);
  return { stop: () => view.stop() };
}

class ScreenView {
  #stopped = new AbortController();
  #reading = new AbortController();
  #oldest = NaN; // the time of the oldest output, in milliseconds since 1970
  #at = NaN; // the time that is shown; NaN: it is not known
  /** @type {any} */
  #screen = null;
  #timer = 0;
  #asOf = Date.now(); // when the screen was read last, or the user has begun to wait for it
  #outage = ""; // what the notice says that is in the way of the next one
  #isOfUser = false; // the notice is about what the user has done, and stays until the next act

  constructor(container, context, { namespace, name, query }) {
    this.context = context;
    this.name = name;
    this.place = { namespace, name };
    this.path = `${context.machines.path(namespace, name)}`;
    this.now = h("input", { type: "checkbox", checked: !query.get("time") && !query.get("offset"), onchange: () => this.#nowChanged() });
    this.time = h("input", { type: "text", size: 20, value: query.get("time") ?? "", "aria-label": "Time", placeholder: "Time, or 1h ago", title: TIME_FORMS, "aria-describedby": "screen-time", oninput: () => this.#isOfUser && this.#say() });
    this.reason = h("input", { type: "text", maxlength: 256, "aria-label": "Reason", placeholder: "Reason", hidden: true });
    this.slider = h("input", { type: "range", min: 0, max: 0, value: 0, step: 1000, oninput: () => this.#slid(), "aria-label": "Time" });
    this.oldest = h("span", { class: "dim", title: "The oldest output that is retained" });
    this.sliderField = h("div", { class: "slider", hidden: true }, this.oldest, this.slider, h("span", { class: "dim" }, "Now"));
    this.stepSize = h("select", { "aria-label": "Step" }, STEPS.map(([label, seconds]) => h("option", { value: String(seconds) }, label)));
    this.problem = h("div");
    this.facts = h("p", { class: "dim log-facts", id: "screen-time" });
    this.picture = h("div", { class: "screen", tabindex: 0, role: "group", "aria-label": `Screen of ${printable(name)}` });
    const fullSize = h("input", { type: "checkbox", onchange: () => {
      this.picture.classList.toggle("full-size");
      this.#showNewest();
    } });
    this.controls = h("div", { class: "toolbar controls" },
      h("form", { class: "joined", onsubmit: (event) => this.#submitted(event) },
        this.time, this.reason, h("button", { type: "submit", class: "button" }, "Show")),
      h("div", { class: "joined", role: "group", "aria-label": "Steps in time" }, button("Earlier", () => this.#step(-1)), button("Later", () => this.#step(1))),
      foldable("More", [
        this.stepSize, field("Follow", this.now), field("100 %", fullSize),
        menu("Save", h("div", {},
          copyButton("Copy the text", () => this.#text()), button("Save as text", () => this.#save("text", "txt")), button("Save as SVG", () => this.#save("svg", "svg")))),
        this.sliderField,
      ]));
    this.frame = h("div", { class: "screen-frame", hidden: true }, this.picture);
    fill(container, this.controls, this.problem, this.frame, this.facts);
    const sized = new ResizeObserver(() => this.now.checked && this.#showNewest());
    sized.observe(this.frame);
    this.#stopped.signal.addEventListener("abort", () => sized.disconnect());
    this.endWaiting = showWaiting(this.problem, context);
    this.#findOldest();
    const offset = query.get("offset");
    if (offset) this.#show(offset);
    else this.#showTyped();
  }

  stop() {
    this.endWaiting();
    this.#say();
    clearTimeout(this.#timer);
    this.#reading.abort();
    this.#stopped.abort();
  }

  /** The slider needs the time of the oldest output, so the permission to read the log. */
  async #findOldest() {
    const log = new LogSource(this.context.api, `${this.path}/log`);
    this.#oldest = Date.parse(await log.since(this.#stopped.signal).catch(() => ""));
    this.#updateSlider();
  }

  #updateSlider() {
    const now = Date.now();
    this.sliderField.hidden = !(this.#oldest < now);
    if (this.sliderField.hidden) return;
    this.oldest.textContent = minute(this.#oldest, now);
    this.slider.min = String(this.#oldest);
    this.slider.max = String(now);
    if (document.activeElement !== this.slider) this.slider.value = String(this.now.checked ? now : this.#at);
    this.slider.setAttribute("aria-valuetext", this.now.checked ? "Now" : zonedTime(this.#at));
  }

  #typed() {
    return this.time.value.trim() ? parseTime(this.time.value, Date.now()) : "";
  }

  #submitted(event) {
    event.preventDefault();
    this.#showTyped();
  }

  /** Show the screen at the time in the field; now if that is empty. */
  #showTyped() {
    try {
      const at = this.#typed();
      this.now.checked = at === "";
      this.#show(at);
    } catch (error) {
      this.#refuseUser(error);
      this.time.focus();
    }
  }

  #nowChanged() {
    if (this.now.checked) {
      this.time.value = "";
      this.#show("");
    } else {
      this.#reading.abort();
    }
  }

  #slid() {
    clearTimeout(this.#timer);
    const { value, max } = this.slider;
    const isEnd = Number(value) + Number(this.slider.step) > Number(max);
    this.#timer = setTimeout(() => this.#goTo(isEnd ? Infinity : Number(value)), SLIDE_MS);
  }

  /** @param {number} direction -1 or 1 */
  #step(direction) {
    const from = this.now.checked || Number.isNaN(this.#at) ? Date.now() : this.#at;
    this.#goTo(from + direction * Number(this.stepSize.value) * 1000);
  }

  /** Show the screen at a time, in milliseconds since 1970; now if that is not past. */
  #goTo(at) {
    this.now.checked = at >= Date.now();
    this.time.value = this.now.checked ? "" : dateTime(at);
    this.#show(this.now.checked ? "" : new Date(at).toISOString());
  }

  /** @param {string} when an offset, a time, or empty for now. */
  async #show(when) {
    if (this.#isOfUser) this.#say();
    this.#at = isOffset(when) ? NaN : Date.parse(when);
    this.#reading.abort();
    const reading = (this.#reading = new AbortController());
    let wait = 1;
    do {
      const before = this.#screen?.offset;
      const failed = await this.#read(when, reading.signal);
      if (reading.signal.aborted) return;
      if (failed && !isPassing(failed)) return;
      wait = failed ? 5 : nextWait(wait, before !== this.#screen?.offset);
      if (when === "") await waited(wait, reading.signal, this.context.api);
    } while (when === "" && !reading.signal.aborted);
  }

  async #read(when, signal) {
    const request = new AbortController();
    const endSilence = this.context.api.untilSilent((error) => request.abort(error));
    try {
      const query = { as: "json", at: when, reason: this.reason.value.trim() };
      const answer = await readScreen(this.context, this.place, { query, signal: AbortSignal.any([signal, request.signal]) });
      if (signal.aborted) return null;
      const isFirst = this.#screen === null;
      this.#screen = screenOf(answer);
      this.#asOf = Date.now();
      if (!this.#isOfUser) this.#say();
      this.#draw(when);
      if (isFirst || when) this.#showNewest();
      if (isFirst || when) this.context.announce(this.facts.textContent);
      return null;
    } catch (error) {
      if (!signal.aborted) this.#refused(error, when);
      return error;
    } finally {
      endSilence();
      this.endWaiting();
    }
  }

  #refused(error, when) {
    const more = [];
    if (error.code === 501) this.controls.hidden = this.frame.hidden = true;
    if (error.code === 403) {
      this.#forbidden(error);
      return;
    }
    const { namespace, name } = this.place;
    const log = this.context.link(namespace, name, "logs");
    if (error.code === 501 || error.code === 503) more.push(" ", h("a", { href: log }, "The log is still available."));
    if (lacksMachine(error)) {
      const isKnown = this.#screen !== null;
      this.frame.hidden = !isKnown;
      this.#say(noMachine(this.context, this.place, "screen", isKnown ? h("a", { class: "button", href: log }, "Log") : null));
    } else if (when === "" && isPassing(error)) {
      if (this.#outage === error.message) return; // a button that is drawn again loses the focus
      const isKnown = this.#screen !== null;
      const state = isKnown ? asOfText("screen", this.#asOf) : "No screen";
      this.#say(outageNotice(this.context.api, state, error.message, { since: isKnown ? null : this.#asOf, more }));
      this.#outage = error.message;
    } else {
      this.#say(notice("error", `${printable(sentence(error.message)).replace(/\.$/, "")}.`, more));
    }
  }

  /** Say what is missing, and where the user gets it: a reason here, and an approval at the console. */
  #forbidden(error) {
    const { namespace, name } = this.place;
    const causes = causesOf(error.status);
    const needs = demands({ causes });
    this.reason.hidden = !needs.reason || needs.approval;
    this.frame.hidden = true;
    const toConsole = h("p", {}, h("a", { class: "button", href: this.context.link(namespace, name) }, "Go to the console"));
    if (!needs.reason && !needs.approval) {
      const lacksRight = causes.some(({ reason, verb }) => reason === MISSING_RIGHT && verb === "observe");
      const advice = lacksRight ? askFor("console-observer", namespace) : "If you may open the console, it shows the same.";
      const again = button("Try again", () => this.#showTyped());
      this.#say(lacking("You may not see this screen.", advice, error, lacksRight ? null : toConsole), again);
      return;
    }
    const [title, advice] = needs.approval
      ? ["This screen needs an approval.", "Ask for it at the console, which shows the same."]
      : ["This screen needs a reason.", "Give it above and show the screen again."];
    this.#say(notice("warning", h("p", {}, title), h("p", {}, printable(endText({ message: error.message, causes }))), h("p", {}, advice), needs.approval && toConsole));
    this.context.announce(`${title} ${advice}`);
  }

  #draw(when) {
    const screen = this.#screen;
    const isNow = when === "";
    if (isOffset(when)) this.#at = Date.parse(screen.time);
    else if (isNow) this.#at = Date.now();
    this.#updateSlider();
    this.frame.hidden = false;
    this.picture.style.setProperty("--columns", String(screen.columns));
    this.picture.style.setProperty("--lines", String(screen.rows));
    const rows = screen.lines.map((line) => h("div", { class: "screen-row" }, segmentsOf(line).map(segment)));
    while (rows.length < screen.rows) rows.push(h("div", { class: "screen-row" }));
    if (screen.cursor.visible) {
      const cursor = h("div", { class: "screen-cursor", "aria-hidden": "true" });
      cursor.style.left = `${screen.cursor.column}ch`;
      rows[screen.cursor.row]?.append(cursor);
    }
    fill(this.picture, rows);
    const printed = screen.time ? `last output ${beside(screen.time, this.#at)}` : `no output ${isNow ? "yet" : "before"}`;
    this.facts.textContent = `Screen ${isNow ? "of now" : `at ${zonedTime(this.#at)}`}; ${printed}; ${screen.columns} by ${screen.rows}`;
    this.facts.title = `At offset ${screen.offset} of the log`;
  }

  /** Scroll to the line that the machine has printed last, if it is not in view. */
  #showNewest() {
    const { scrollLeft } = this.picture; // a row may be wider, and begins where it did
    this.picture.children[this.#screen?.cursor.row]?.scrollIntoView({ block: "nearest" });
    this.picture.scrollLeft = scrollLeft;
  }

  #text() {
    return (this.#screen?.lines ?? []).map((line) => String(line.text ?? "").trimEnd()).join("\n").trimEnd() + "\n";
  }

  async #save(form, suffix) {
    try {
      const query = { as: form, at: this.#screen?.offset, reason: this.reason.value.trim() };
      save(`${this.name}.${suffix}`, [await this.context.api.bytes(`${this.path}/screen`, { query })]);
    } catch (error) {
      this.#refuseUser(error);
    }
  }

  /** Show why what the user has done failed; a screen that is followed and read again does not take it away. */
  #refuseUser(error) {
    this.#say(notice("error", printable(sentence(error.message))));
    this.#isOfUser = true;
  }

  /** Show a notice in place of what was said before; without one nothing is wrong. */
  #say(...notices) {
    this.#outage = "";
    this.#isOfUser = false;
    fill(this.problem, ...notices);
  }
}

function segment({ text, columns, style }) {
  const element = styledText(text, style);
  // Wide and unusual characters are not as wide in each font as on the console.
  if (/[^\x20-\x7e]/.test(text)) {
    element.classList.add("screen-cells");
    element.style.width = `${columns}ch`;
  }
  return element;
}

/** Return a time beside another one, without its date if that is the same. */
function beside(time, other) {
  return localDay(time) === localDay(other) ? zonedTime(time).slice(11) : zonedTime(time);
}

/** Whether a place of the log is an offset, not a time. */
function isOffset(when) {
  return /^\d+$/.test(when);
}

function isPassing(error) {
  return error.isPassing && error.code !== 501;
}

/** Wait, and longer while the page is not visible. */
async function waited(seconds, signal, api) {
  await rest(seconds, signal, api);
  while (document.hidden && !signal.aborted) await sleep(1, signal);
}
