/** One recording: its facts, its content in a player, and what is known about its proof. */

import { kindOf } from "../details.js";
import { button, fill, h, notice, printable } from "../dom.js";
import { itemPath, may } from "../objects.js";
import { size, zonedTime } from "../times.js";
import { sentence } from "../terminal/texts.js";
import { askFor, badge, field, foldable, save, showWaiting } from "./parts.js";
import { openPlayer } from "./player.js";
import { beginOf, clock, inputText, MOST_CONTENT_BYTES, parseCast, proofOf, rowOf, STATE_KINDS, Timeline, withoutKeys } from "./recording_model.js";

const IDLE_SECONDS = 2;
const MOST_MARKS = 500;
const CLOCK_MS = 500;
const SPEEDS = [0.5, 1, 2, 4, 8, 16];

/**
 * @param {HTMLElement} container
 * @param {any} context
 * @param {{namespace: string, name: string, at: number}} place `at`: seconds since the beginning
 * @returns {{stop(): void}}
 */
export function showRecording(container, context, place) {
  const view = new RecordingView(container, context, place);
  return { stop: () => view.stop() };
}

class RecordingView {
  #stopped = new AbortController();
  /** @type {any} */
  #player = null;
  /** @type {any} */
  #cast = null;
  /** @type {any} */
  #bytes = null;
  #isWhole = false;
  /** @type {any} */
  #timeline = null;

  constructor(container, context, { namespace, name, at }) {
    this.context = context;
    this.namespace = namespace;
    this.name = name;
    this.at = at;
    this.problem = h("div");
    this.facts = h("dl", { class: "facts pairs" });
    this.stage = h("div", { class: "player" });
    this.clock = h("span", { class: "mono" });
    this.about = h("span");
    this.begin = h("p", { class: "begin dim", hidden: true });
    this.marks = h("ol", { class: "marks" });
    this.marksFrame = h("section", { class: "marks-frame", hidden: true }, h("h2", {}, "Markers"), h("p", { class: "dim" }, "Each is a dot in the timeline of the player."), this.marks);
    this.proof = h("section", { hidden: true });
    this.idle = h("input", { type: "checkbox", checked: true, onchange: () => this.#play(this.#now()) });
    this.keys = h("input", { type: "checkbox", onchange: () => this.#play(this.#now()) });
    this.noKeys = h("span", { class: "dim" });
    const keys = field("Show typed keys", this.keys);
    keys.append(this.noKeys);
    const fullSize = h("input", { type: "checkbox", onchange: () => this.stage.classList.toggle("full-size") });
    this.speed = h("select", { onchange: () => this.#play(this.#now()) },
      SPEEDS.map((each) => h("option", { value: String(each) }, `${each}×`)));
    this.speed.value = "1";
    this.toggle = button("Play", () => (this.#player?.isPlaying ? this.#player.pause() : this.#player?.play()), { class: "primary" });
    this.file = button("Save", () => save(`${this.name}.cast`, [this.#bytes], "application/x-asciicast"));
    this.seek = h("input", { type: "text", size: 12, placeholder: "1:30 or 90" });
    this.controls = h(
      "form",
      { class: "toolbar player-controls", hidden: true, onsubmit: (event) => this.#seekTyped(event) },
      this.toggle,
      foldable("More", [
        field("Skip idle time", this.idle), keys, field("100 %", fullSize), field("Speed", this.speed),
        h("span", { class: "joined" }, field("Go to", this.seek), h("button", { type: "submit", class: "button" }, "Go")),
        button("Copy link to this moment", () => this.#copyLink()), this.file,
      ]),
    );
    fill(
      container,
      // As high as the window, with what is needed while it plays.
      h(
        "div",
        { class: "playing" },
        h("div", { class: "page-head" }, h("h1", {}, `Recording ${printable(name)}`), h("a", { href: "#/recordings" }, "All recordings")),
        this.problem, this.controls, this.begin, this.stage, h("p", { class: "dim clock" }, this.clock, this.about),
      ),
      this.facts, this.marksFrame, this.proof,
    );
    const timer = setInterval(() => this.#showClock(), CLOCK_MS);
    this.#stopped.signal.addEventListener("abort", () => clearInterval(timer));
    context.theme.addEventListener("change", () => this.#play(this.#now()), { signal: this.#stopped.signal });
    this.#start();
  }

  stop() {
    this.#stopped.abort();
    this.#player?.dispose();
  }

  async #start() {
    const { api } = this.context;
    const { signal } = this.#stopped;
    const endWaiting = showWaiting(this.problem, this.context);
    try {
      this.recording = await api.request(itemPath("consolerecordings", this.namespace, this.name), { signal });
      this.#showFacts(rowOf(this.recording));
      if (!(await may(api, "get", "consolerecordings", "content", this.namespace, this.name))) {
        fill(this.problem, notice("warning", "You may see but not play this recording. ", askFor("console-recording-reader", this.namespace)));
        return;
      }
      await this.#load(signal);
      if (signal.aborted) return;
      fill(this.problem);
      this.#showFacts(rowOf(this.recording, this.#cast));
      this.#showProof();
      this.#showLacks();
      await this.#play(this.at);
    } catch (error) {
      if (!signal.aborted) fill(this.problem, notice("error", printable(this.#isMissing(error) ? `The namespace ${this.namespace} has no recording ${this.name}.` : sentence(error.message))));
    } finally {
      endWaiting();
    }
  }

  #isMissing({ code, status }) {
    return code === 404 && kindOf(status) === "consolerecordings";
  }

  /** Load the content, at most a bounded part of it. */
  async #load(signal) {
    const path = itemPath("consolerecordings", this.namespace, this.name, "content");
    const { blob, isWhole } = await this.context.api.blob(path, MOST_CONTENT_BYTES, { signal });
    this.#bytes = blob;
    this.#isWhole = isWhole;
    this.#cast = parseCast(await blob.text());
  }

  #showFacts(row) {
    const { link, machines } = this.context;
    const machine = machines.routeName(machines.kindOf(row.machineResource), row.machine);
    const machineLink = () => h("a", { href: link(row.namespace, machine) }, `${printable(row.namespace)}/${printable(row.machine)}`);
    // The facts are below the player.
    const users = printable(row.users.join(", "));
    fill(this.about, " Machine ", machineLink(), users && `, recorded for ${users}`, row.input && `, ${printable(inputText(row.input))}`, row.begin && `, since ${zonedTime(row.begin)}`);
    const facts = [
      ["Machine", machineLink()],
      ["State", [badge(row.state, STATE_KINDS[row.state]), row.message && ` ${printable(row.message)}`]],
      ["Begin", zonedTime(row.begin)],
      ["End", zonedTime(row.end) || row.until],
      ["Output", [size(row.bytes) && `${size(row.bytes)}${row.isOpen ? " so far" : ""}, `, h("a", { href: this.#logLink(row) }, `offset ${row.first ?? "?"} to ${row.last ?? "?"} of the log`)]],
      ["Input", row.input],
      ["Users", printable(row.users.join(", "))],
      ["Policies", printable(row.policies.join(", "))],
      ["Reason", printable(row.reason)],
    ];
    fill(this.facts, facts.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }

  #showProof() {
    const { sentences, command } = proofOf(this.recording, this.#cast, this.#isWhole);
    this.file.hidden = !this.#isWhole; // half a recording proves nothing
    if (!this.#isWhole) {
      fill(this.problem, notice("warning", `Only the first ${size(MOST_CONTENT_BYTES)} are loaded. For all of it: `, h("code", {}, `twisted-exec recording play ${printable(this.name)}`)));
    }
    fill(this.proof, h("h2", {}, "Proof"), h("p", {}, sentences.join(" "), " To verify it: "), h("pre", { class: "mono scroll", tabindex: 0 }, command));
    this.proof.hidden = false;
  }

  /** Say what the player cannot show, and why. */
  #showLacks() {
    const reason = withoutKeys(this.#cast, this.recording.spec?.input);
    this.keys.disabled = reason !== "";
    this.noKeys.textContent = reason && `(${reason})`;
    const begin = beginOf(this.#cast);
    this.begin.hidden = !begin;
    fill(this.begin, begin, " ", h("a", { href: this.#logLink(rowOf(this.recording, this.#cast)) }, "Its place in the log"));
  }

  /** The address of the line in the log with which the recording begins. */
  #logLink({ namespace, machine, machineResource, first }) {
    const { link, machines } = this.context;
    return `${link(namespace, machines.routeName(machines.kindOf(machineResource), machine), "logs")}?offset=${first ?? 0}`;
  }

  async #play(seconds) {
    const cast = this.#cast;
    if (!cast) return;
    const wasPlaying = this.#player?.isPlaying ?? false;
    this.#player?.dispose();
    const limit = this.idle.checked ? IDLE_SECONDS : Infinity;
    const { cols, rows } = cast.header.term;
    this.#timeline = new Timeline(cast.events, limit, `${cols}x${rows}`);
    const player = await openPlayer(this.stage, cast, {
      limit, marks: this.#timeline.marks, poster: this.#timeline.playLength, position: this.#timeline.position(seconds), theme: this.context.theme, speed: Number(this.speed.value), showsKeys: this.keys.checked,
      changed: (isPlaying) => (this.toggle.textContent = isPlaying ? "Pause" : "Play"),
      ended: () => this.context.announce("The recording ends here."),
    });
    if (this.#stopped.signal.aborted) {
      player?.dispose();
      return;
    }
    this.#player = player;
    this.toggle.textContent = "Play";
    this.toggle.disabled = player === null;
    if (!player) {
      fill(this.problem, notice("warning", "The player is not installed with this server: it was built without npm. To play the recording: ", h("code", {}, `twisted-exec recording play ${printable(this.name)}`)));
    } else if (wasPlaying) {
      player.play();
    }
    this.controls.hidden = false;
    this.#showMarks();
    this.#showClock();
  }

  #now() {
    return this.#player && this.#timeline ? this.#timeline.at(this.#player.position()) : 0;
  }

  #goTo(seconds) {
    this.#player?.seek(this.#timeline.position(seconds));
    this.#showClock();
  }

  #seekTyped(event) {
    event.preventDefault();
    const match = /^(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d+)?)$/.exec(this.seek.value.trim());
    if (!match) {
      this.context.announce("Write a position as 1:30, or as seconds.");
      return;
    }
    const [hours, minutes, seconds] = match.slice(1).map((each) => Number(each ?? 0));
    const at = hours * 3600 + minutes * 60 + seconds;
    this.#goTo(at);
    this.context.announce(`At ${clock(at)}.`);
  }

  async #copyLink() {
    const { origin, pathname } = location;
    const at = Math.floor(this.#now());
    const { announce } = this.context;
    try {
      await navigator.clipboard.writeText(`${origin}${pathname}${recordingLink(this)}?at=${at}`);
      fill(this.problem, notice("", `The link to ${clock(at)} is copied.`));
      announce(`The link to ${clock(at)} is copied.`);
    } catch {
      fill(this.problem, notice("warning", `The browser refuses to copy. The link is ${printable(`${origin}${pathname}${recordingLink(this)}?at=${at}`)}`));
    }
  }

  #showClock() {
    if (!this.#timeline) return;
    const { length } = this.#timeline;
    const isLast = this.#player?.showsPoster ?? false;
    const at = isLast ? length : this.#now();
    const begin = this.#cast.begin;
    const time = begin === null ? "" : `, ${zonedTime(begin + at * 1000)}`;
    this.clock.textContent = `${isLast ? `Last screen: ${clock(length)}` : this.#timeline.text(at)}${time}.`;
  }

  #showMarks() {
    const { marks } = this.#timeline;
    const begin = this.#cast.begin;
    const shown = marks.slice(0, MOST_MARKS);
    fill(
      this.marks,
      shown.map((mark) =>
        h("li", {}, button(clock(mark.at), () => this.#goTo(mark.at), { title: begin === null ? null : zonedTime(begin + mark.at * 1000) }), " ", printable(mark.label)),
      ),
    );
    this.marksFrame.hidden = marks.length === 0;
    if (marks.length > shown.length) this.marks.append(h("li", {}, `and ${marks.length - shown.length} more`));
  }
}

/**
 * The address of a recording in the page.
 *
 * @param {{namespace: string, name: string}} place
 * @returns {string}
 */
export function recordingLink({ namespace, name }) {
  return `#/recordings/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
}
