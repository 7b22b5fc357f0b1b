/**
 * Notices that a server is silent: a network that drops packets closes no connection.
 *
 * A browser hides the pings of WebSockets from its pages, so the page asks with messages of its own. A question or a
 * key without an answer is news before it is a loss: what its user types is not confirmed.
 */

/** Between questions. A question without an answer until the next one is news. */
const PING = 4_000;
/** Silence that is a loss: with the time before the question 20 s. */
const SILENCE = 16_000;
/** A key that is not confirmed for so long brings the next question forward. */
const KEY = 1_000;
/** Silence that is a loss after the page was hidden, or the network has changed. */
const PROBE = 3_000;

export const systemClock = {
  now: () => Date.now(),
  setTimeout: (callback, milliseconds) => setTimeout(callback, milliseconds),
  clearTimeout: (timer) => clearTimeout(timer),
};

/** All times are in milliseconds. */
export class Liveness {
  #clock;
  #ping;
  #silence;
  #ask;
  #quiet;
  #isQuiet = false;
  #silent;
  #timer = null;
  #waitsSince = null; // the oldest question or key behind which nothing has arrived

  /**
   * @param {object} clock
   * @param {object} callbacks ask() sends a question; quiet(since): there was no answer for 4 s, null: there is one
   *     now; silent(seconds): the connection is lost.
   * @param {object} [limits]
   * @param {number} [limits.ping]
   * @param {number} [limits.silence]
   */
  constructor(clock, { ask, quiet, silent }, { ping = PING, silence = SILENCE } = {}) {
    this.#clock = clock;
    this.#ping = ping;
    this.#silence = silence;
    this.#ask = ask;
    this.#quiet = quiet;
    this.#silent = silent;
  }

  /** Since when something is sent behind which nothing has arrived; null: nothing is. */
  get waitsSince() {
    return this.#waitsSince;
  }

  /** Begin with another connection. */
  start() {
    this.#askNow(this.#ping, this.#silence);
  }

  /** Begin with a connection that has answered: the first question comes later. */
  watch() {
    this.#wait(this.#ping, this.#silence);
  }

  /** Ask nothing more. */
  stop() {
    this.#clock.clearTimeout(this.#timer);
    this.heard();
  }

  /** Something has arrived. */
  heard() {
    this.#waitsSince = null;
    if (this.#isQuiet) this.#quiet(null);
    this.#isQuiet = false;
  }

  /** A key was sent. */
  typed() {
    if (this.#waitsSince !== null) return;
    this.#waitsSince = this.#clock.now();
    this.#wait(KEY, this.#silence);
  }

  /** Find out soon whether the connection is still one. */
  probe() {
    this.#askNow(PROBE, PROBE);
  }

  #askNow(milliseconds, limit) {
    this.#waitsSince ??= this.#clock.now();
    this.#ask();
    this.#wait(milliseconds, limit);
  }

  #wait(milliseconds, limit) {
    this.#clock.clearTimeout(this.#timer);
    this.#timer = this.#clock.setTimeout(() => this.#check(limit), milliseconds);
  }

  #check(limit) {
    const silent = this.#waitsSince === null ? 0 : this.#clock.now() - this.#waitsSince;
    if (silent >= limit) {
      this.#silent(Math.round(silent / 1000));
      return;
    }
    if (silent >= this.#ping && !this.#isQuiet) {
      this.#isQuiet = true;
      this.#quiet(this.#waitsSince);
    }
    this.#askNow(silent < this.#ping ? this.#ping - silent : this.#ping, this.#silence);
  }
}
