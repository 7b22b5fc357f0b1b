/** One recording: its facts, its content in a player, and what is known about its proof. */

import { ApiError } from "../api.js";
import { causesOf, kindOf } from "../details.js";
import { button, fill, h, notice, printable } from "../dom.js";
import { itemPath, may } from "../objects.js";
import { size, zonedTime } from "../times.js";
import { isForbidden, sentence } from "../terminal/texts.js";
import { askFor, badge, field, foldable, lacking, save, showWaiting, whenServed } from "./parts.js";
import { load as loadPlayer, openPlayer } from "./player.js";
import { beginOf, clock, inputText, MOST_CONTENT_BYTES, PLAYS, parseCast, positionOf, proofOf, rowOf, Timeline, withoutKeys } from "./recording_model.js";

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
  #sought = h("div"); // what is to say of the position that the user has typed
  /** @type {any} of the player; null: it is not installed. */
  #library = null;

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
        // The address of the local page leads nobody else there.
        context.config.local ? null : button("Copy link to this moment", () => this.#copyLink()), this.file,
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
    const { signal } = this.#stopped;
    const endWaiting = showWaiting(this.problem, this.context);
    try {
      const isPlayable = await whenServed(this.context, this.problem, "No recording", signal, () => this.#read(signal));
      if (signal.aborted) return;
      if (!isPlayable) {
        this.#refuse(notice("warning", "You may see but not play this recording. ", askFor(PLAYS, this.namespace)));
        return;
      }
      fill(this.problem);
      this.#showFacts(rowOf(this.recording, this.#cast));
      this.#showProof();
      this.#showLacks();
      this.#play(this.at);
    } catch (error) {
      if (!signal.aborted) this.#refuse(this.#explained(error));
    } finally {
      endWaiting();
    }
  }

  /** Read the recording and, if the user may play it, its content; return whether. */
  async #read(signal) {
    const { api, config } = this.context;
    this.recording = await api.request(itemPath("consolerecordings", this.namespace, this.name), { signal });
    this.#showFacts(rowOf(this.recording));
    if (!(await may(api, "get", "consolerecordings", "content", this.namespace, this.name))) return false;
    const path = itemPath("consolerecordings", this.namespace, this.name, "content");
    const { blob, isWhole } = await api.blob(path, MOST_CONTENT_BYTES, { signal }); // a bounded part of it
    const unloaded = () => {
      throw new ApiError(0, api.unreachable);
    };
    this.#library = config.vendor === false ? null : await loadPlayer().catch(unloaded);
    this.#bytes = blob;
    this.#isWhole = isWhole;
    this.#cast = parseCast(await blob.text());
    return true;
  }

  /** Show why the recording is not played, until the user wants another attempt. */
  #refuse(reason) {
    const again = () => {
      this.context.api.forget();
      this.#start();
    };
    fill(this.problem, reason, button("Try again", again));
  }

  /** Return the notice of why the recording is not shown. */
  #explained(error) {
    const { code, message, status } = error;
    const kind = kindOf(status);
    if (isForbidden({ code, kind, causes: causesOf(status) })) return lacking("You may not play this recording.", askFor(PLAYS, this.namespace), error);
    if (code === 409) {
      const { state, message: why } = rowOf(this.recording);
      const text = state === "Failed" ? "The recording has no content" : "The recording has not begun yet";
      return notice("warning", printable(why ? `${text}: ${why}` : `${text}.`));
    }
    const isMissing = code === 404 && kind === "consolerecordings";
    return notice("error", printable(isMissing ? `The namespace ${this.namespace} has no recording ${this.name}.` : sentence(message)));
  }

  #showFacts(row) {
    const { link, machines } = this.context;
    const machine = machines.routeName(machines.kindOf(row.machineResource), row.machine);
    const machineLink = () => h("a", { href: link(row.namespace, machine) }, `${printable(row.namespace)}/${printable(row.machine)}`);
    // The facts are below the player.
    const users = printable(row.users.join(", "));
    fill(this.about, " Machine ", machineLink(), users && `, recorded for ${users}`, row.input && `, ${printable(inputText(row.input))}`, row.begin && `, ${row.isOpen ? "since" : "from"} ${zonedTime(row.begin)}`);
    const facts = [
      ["Machine", machineLink()],
      ["State", [badge(row.state, row.kind), row.message && h("div", { class: `problem ${row.severity}` }, printable(row.message))]],
      ["Begin", zonedTime(row.begin)],
      ["End", zonedTime(row.end) || row.until],
      ["Output", row.isPlayable && [size(row.bytes) && `${size(row.bytes)}${row.isOpen ? " so far" : ""}, `, h("a", { href: this.#logLink(row) }, `offset ${row.first} to ${row.last} of the log`)]],
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

  #play(seconds) {
    const cast = this.#cast;
    if (!cast) return;
    const wasPlaying = this.#player?.isPlaying ?? false;
    this.#player?.dispose();
    const limit = this.idle.checked ? IDLE_SECONDS : Infinity;
    const { cols, rows } = cast.header.term;
    this.#timeline = new Timeline(cast.events, limit, `${cols}x${rows}`);
    this.#player = this.#library && openPlayer(this.#library, this.stage, cast, {
      limit, marks: this.#timeline.marks, poster: this.#timeline.playLength, position: this.#timeline.position(seconds), theme: this.context.theme, speed: Number(this.speed.value), showsKeys: this.keys.checked,
      changed: (isPlaying) => (this.toggle.textContent = isPlaying ? "Pause" : "Play"),
      ended: () => this.context.announce("The recording ends here."),
    });
    this.toggle.textContent = "Play";
    this.toggle.disabled = this.#player === null;
    if (!this.#player) {
      fill(this.problem, notice("warning", "The player is not installed with this server: it was built without npm. To play the recording: ", h("code", {}, `twisted-exec recording play ${printable(this.name)}`)));
    } else if (wasPlaying) {
      this.#player.play();
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
    this.#sought.remove();
    try {
      const { length } = this.#timeline;
      const at = positionOf(this.seek.value);
      this.#goTo(at);
      if (at <= length) this.context.announce(`At ${clock(at)}.`);
      else this.#sought = notice("", `The recording ends at ${clock(length)}: this is its last screen.`);
    } catch (error) {
      this.#sought = notice("warning", printable(sentence(error.message)));
    }
    this.problem.append(this.#sought);
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
