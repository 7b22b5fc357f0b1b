/**
 * Notices for all that follows the server that it is silent: a quiet watch looks like one of a lost network.
 *
 * A browser hides the pings of WebSockets from its pages, and a watch has no messages of the page. So the page asks for
 * something small, while anything follows the server and the page is visible. Any message that arrives is an answer.
 */

import { Liveness, systemClock } from "./session/liveness.js";

/** Between questions. */
const PING = 10_000;
/** A question without an answer for so long is a loss: with the time before the question 20 s. */
const SILENCE = 10_000;

export class Pulse {
  #ask;
  #page;
  #liveness;
  /** @type {Set<() => void>} */
  #followers = new Set();
  #asking = new AbortController();

  /**
   * @param {(signal: AbortSignal) => Promise<boolean>} ask whether the server answers.
   * @param {object} [options] for tests
   * @param {any} [options.clock]
   * @param {any} [options.page] the document
   */
  constructor(ask, { clock = systemClock, page = globalThis.document } = {}) {
    this.#ask = ask;
    this.#page = page;
    const on = { ask: () => this.#askNow(), quiet: () => {}, silent: () => this.#lost() };
    this.#liveness = new Liveness(clock, on, { ping: PING, silence: SILENCE });
    page?.addEventListener?.("visibilitychange", () => this.#turned());
  }

  /** Call `silent()` when the server is silent; return what ends that. */
  follow(silent) {
    const follower = () => silent();
    this.#followers.add(follower);
    if (this.#followers.size === 1 && !this.#page?.hidden) this.#liveness.watch();
    return () => {
      if (this.#followers.delete(follower) && this.#followers.size === 0) this.#stop();
    };
  }

  /** Something has arrived from the server. */
  heard() {
    this.#liveness.heard();
  }

  /** The page is hidden, or shown again. */
  #turned() {
    if (this.#followers.size && !this.#page?.hidden) this.#liveness.start();
    else this.#stop();
  }

  #stop() {
    this.#asking.abort();
    this.#liveness.stop();
  }

  async #askNow() {
    this.#asking.abort();
    const { signal } = (this.#asking = new AbortController());
    if ((await this.#ask(signal)) && !signal.aborted) this.heard();
  }

  #lost() {
    const followers = [...this.#followers];
    this.#followers.clear();
    this.#stop();
    followers.forEach((each) => each());
  }
}
