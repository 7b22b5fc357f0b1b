/**
 * The marks of one console: the note of its machine, and beside its name and in its tab, whether the machine runs and is healthy, and
 * whether the session has ended or its connection is lost.
 */

import { fill, h, printable } from "../dom.js";

const RUNNING = "Running";

export class Marks {
  /** Above the terminal: the note of the machine. */
  banner = h("div", { class: "banner", role: "note", "aria-label": "Note of this machine", hidden: true });
  /** Beside the name: why the machine is not healthy, with the way to the line that says so. */
  health = h("a", { class: "health badge bad", hidden: true });
  #sick = h("span", { class: "badge bad", hidden: true });
  #stopped = h("span", { class: "badge off", hidden: true });
  #ended = h("span", { class: "badge over", hidden: true, title: "No session" }, hidden("No session"));
  #away = h("span", { class: "badge waiting", hidden: true, title: "No connection" }, hidden("No connection"));
  /** The marks in the tab. */
  tab = [this.#sick, this.#stopped, this.#ended, this.#away];
  #isOver = false;

  /** @param {string} text of the note; empty if the machine has none */
  showBanner(text) {
    this.banner.hidden = !text;
    const [first, ...others] = text.split("\n").map((line) => h("div", {}, printable(line)));
    // A low window shows one line, and that there are more.
    if (others.length) first.setAttribute("data-more", `+${others.length} ${others.length === 1 ? "line" : "lines"}`);
    fill(this.banner, first, ...others);
  }

  /**
   * Mark a machine that is not healthy.
   *
   * @param {any} health as healthOf() returns it; null if unknown
   * @param {string} log address of the machine's log; empty if the server has none
   */
  showHealth(health, log) {
    const isSick = health?.isHealthy === false;
    this.health.hidden = this.#sick.hidden = !isSick;
    if (!isSick) return;
    const reason = printable(health.reason);
    this.health.textContent = reason;
    this.health.title = this.#sick.title = `${reason}: ${printable(health.message)}`;
    this.health.setAttribute("href", log && health.offset !== null ? `${log}?offset=${health.offset}` : "#/alerts");
    fill(this.#sick, hidden(reason));
  }

  /**
   * Mark a machine that does not run.
   *
   * @param {{state: string} | null} machine null if unknown
   */
  showMachine(machine) {
    const isStopped = machine !== null && machine.state !== RUNNING;
    this.#stopped.hidden = !isStopped;
    this.#drawEnded();
    if (!isStopped) return;
    this.#stopped.title = `Machine: ${printable(machine.state)}`;
    fill(this.#stopped, hidden(printable(machine.state)));
  }

  /** Mark a session that has ended, unless the mark of a machine that does not run says enough. */
  showEnd(isOver) {
    this.#isOver = isOver;
    this.#drawEnded();
  }

  #drawEnded() {
    this.#ended.hidden = !this.#isOver || !this.#stopped.hidden;
  }

  /** Mark a console whose output is old. */
  showAway(isAway) {
    this.#away.hidden = !isAway;
  }
}

/** Return what a screen reader says of a mark. */
function hidden(text) {
  return h("span", { class: "visually-hidden" }, `${text} `);
}
