/** The screen of a machine's console, now or at any time that its journal retains. */

import { causesOf } from "../details.js";
import { button, fill, h, notice, printable } from "../dom.js";
import { readScreen } from "../screens.js";
import { demands, endText } from "../terminal/texts.js";
import { parseTime, TIME_FORMS, zonedTime } from "../times.js";
import { sleep } from "../watch.js";
import { parseFraming } from "./log/frames.js";
import { FORM } from "./log/ranges.js";
import { askFor, copyButton, field, foldable, lacking, menu, save, showWaiting } from "./parts.js";
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
  /** @type {any} */
  #log = null;
  /** @type {any} */
  #screen = null;
  #timer = 0;

  constructor(container, context, { namespace, name, query }) {
    this.context = context;
    this.name = name;
    this.place = { namespace, name };
    this.path = `${context.machines.path(namespace, name)}`;
    this.now = h("input", { type: "checkbox", checked: !query.get("time") && !query.get("offset"), onchange: () => this.#nowChanged() });
    this.time = h("input", { type: "text", size: 20, value: query.get("time") ?? "", "aria-label": "Time", placeholder: "Time, or 1h ago", title: TIME_FORMS, "aria-describedby": "screen-time" });
    this.reason = h("input", { type: "text", maxlength: 256, "aria-label": "Reason", placeholder: "Reason", hidden: true });
    this.slider = h("input", { type: "range", min: 0, max: 0, value: 0, oninput: () => this.#slid(), "aria-label": "Position in the retained output" });
    this.sliderField = h("div", { class: "slider", hidden: true }, h("span", { class: "dim" }, "Oldest"), this.slider, h("span", { class: "dim" }, "Newest"));
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
    this.endWaiting = showWaiting(this.problem, context.config);
    this.#findRange();
    const offset = query.get("offset");
    if (offset) this.#show(offset);
    else this.#showTyped();
  }

  stop() {
    this.endWaiting();
    clearTimeout(this.#timer);
    this.#reading.abort();
    this.#stopped.abort();
  }

  /** The slider needs the offsets of the log, so the permission to read that. */
  async #findRange() {
    try {
      const query = { ...FORM, limitBytes: 1 };
      const { signal } = this.#stopped;
      const answer = await this.context.api.fetch(`${this.path}/log`, { query, signal, headers: { Accept: "*/*" } });
      await answer.body?.cancel();
      this.#log = parseFraming(answer.headers.get("Console-Log"));
    } catch {
      return;
    }
    if (!this.#log?.end) return;
    this.#updateSlider(this.#log.end);
    this.sliderField.hidden = false;
  }

  #updateSlider(offset) {
    if (!this.#log) return;
    this.#log.end = Math.max(this.#log.end, offset);
    this.slider.min = this.#log.start;
    this.slider.max = this.#log.end;
    if (document.activeElement !== this.slider) this.slider.value = offset;
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
      fill(this.problem, notice("error", printable(error.message)));
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
    this.#timer = setTimeout(() => {
      this.now.checked = false;
      this.#show(this.slider.value);
    }, SLIDE_MS);
  }

  /** @param {number} direction -1 or 1 */
  #step(direction) {
    const shown = Date.parse(this.#screen?.time || new Date().toISOString());
    const from = this.at ?? (Number.isNaN(shown) ? Date.now() : shown);
    const at = from + direction * Number(this.stepSize.value) * 1000;
    this.now.checked = at >= Date.now();
    this.#show(this.now.checked ? "" : new Date(at).toISOString(), at);
  }

  /**
   * @param {string} when an offset, a time, or empty for now.
   * @param {number} [at] the time that was asked for, from which the next step counts.
   */
  async #show(when, at) {
    this.at = when && at ? at : undefined;
    this.#reading.abort();
    const reading = (this.#reading = new AbortController());
    let wait = 1;
    do {
      const before = this.#screen?.offset;
      const failed = await this.#read(when, reading.signal);
      if (reading.signal.aborted) return;
      if (failed && !isPassing(failed)) return;
      wait = failed ? 5 : nextWait(wait, before !== this.#screen?.offset);
      if (when === "") await waited(wait, reading.signal);
    } while (when === "" && !reading.signal.aborted);
  }

  async #read(when, signal) {
    try {
      const query = { as: "json", at: when, reason: this.reason.value.trim() };
      const answer = await readScreen(this.context, this.place, { query, signal });
      if (signal.aborted) return null;
      const isFirst = this.#screen === null;
      this.#screen = screenOf(answer);
      fill(this.problem);
      this.#draw(when);
      if (isFirst || when) this.#showNewest();
      if (isFirst || when) this.context.announce(this.facts.textContent);
      return null;
    } catch (error) {
      if (!signal.aborted) this.#refused(error, when);
      return error;
    } finally {
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
    if (error.code === 501 || error.code === 503) {
      const { namespace, name } = this.place;
      more.push(" ", h("a", { href: this.context.link(namespace, name, "logs") }, "The log is still available."));
    }
    if (when === "" && isPassing(error)) {
      const state = this.#screen ? "The screen is not current" : "No screen yet";
      fill(this.problem, notice("warning", `${state}: ${printable(error.message)}. The page tries again by itself.`, more));
    } else {
      fill(this.problem, notice("error", `${printable(error.message)}.`, more));
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
      const lacksRight = error.message.includes(" cannot observe resource ");
      const advice = lacksRight ? askFor("console-observer", namespace) : "If you may open the console, it shows the same.";
      fill(this.problem, lacking("You may not see this screen.", advice, error, lacksRight ? null : toConsole));
      return;
    }
    const [title, advice] = needs.approval
      ? ["This screen needs an approval.", "Ask for it at the console, which shows the same."]
      : ["This screen needs a reason.", "Give it above and show the screen again."];
    fill(this.problem, notice("warning", h("p", {}, title), h("p", {}, printable(endText({ message: error.message, causes }))), h("p", {}, advice), needs.approval && toConsole));
    this.context.announce(`${title} ${advice}`);
  }

  #draw(when) {
    const screen = this.#screen;
    this.#updateSlider(screen.offset);
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
    const printed = screen.time ? `last output ${zonedTime(screen.time)}` : "no output yet";
    this.facts.textContent = `${when === "" ? "Now" : "Then"}: ${screen.columns} by ${screen.rows}, ${printed}`;
    this.facts.title = `At offset ${screen.offset} of the log`;
  }

  /** Scroll to the line that the machine has printed last, if it is not in view. */
  #showNewest() {
    this.picture.children[this.#screen?.cursor.row]?.scrollIntoView({ block: "nearest" });
  }

  #text() {
    return (this.#screen?.lines ?? []).map((line) => String(line.text ?? "").trimEnd()).join("\n").trimEnd() + "\n";
  }

  async #save(form, suffix) {
    try {
      const query = { as: form, at: this.#screen?.offset, reason: this.reason.value.trim() };
      save(`${this.name}.${suffix}`, [await this.context.api.bytes(`${this.path}/screen`, { query })]);
    } catch (error) {
      fill(this.problem, notice("error", printable(error.message)));
    }
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

function isPassing(error) {
  return error.isPassing && error.code !== 501;
}

/** Wait, and longer while the page is not visible. */
async function waited(seconds, signal) {
  await sleep(seconds, signal);
  while (document.hidden && !signal.aborted) await sleep(1, signal);
}
