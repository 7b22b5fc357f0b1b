/**
 * Notices that a server is silent: a network that drops packets closes no connection.
 *
 * A browser hides the pings of WebSockets from its pages, so the page asks with messages of its own.
 * Runtimes of older releases do not answer them; silence means nothing then.  A question without an answer is news
 * before it is a loss: what its user types is not confirmed.
 */

const PING = 5_000;
/** Silence behind a question that is a loss: with the time between questions 20 s. */
const SILENCE = 15_000;
/** The same after the page was hidden, or the network has changed. */
const PROBE = 3_000;

/** All times are in milliseconds. */
export class Liveness {
  /** Whether the server is known to answer. */
  answers;
  #clock;
  #ask;
  #quiet;
  #isQuiet = false;
  #silent;
  #timer = null;
  #askedAt = null; // the oldest question behind which nothing has arrived
  #wasAnswered = false; // on this connection

  /**
   * @param {object} clock
   * @param {object} callbacks ask() sends a question; quiet(since): there was no answer until the next question, null:
   *     there is one now; silent(seconds): the connection is lost.
   * @param {boolean} answers what an earlier page has found out about the server.
   */
  constructor(clock, { ask, quiet, silent }, answers = false) {
    this.#clock = clock;
    this.#ask = ask;
    this.#quiet = quiet;
    this.#silent = silent;
    this.answers = answers;
  }

  /** Begin with another connection. */
  start() {
    this.#wasAnswered = false;
    this.#askNow();
    this.#wait(PING, SILENCE);
  }

  /** Ask nothing more. */
  stop() {
    this.#clock.clearTimeout(this.#timer);
    this.heard();
  }

  /** Something has arrived. */
  heard() {
    this.#askedAt = null;
    if (this.#isQuiet) this.#quiet(null);
    this.#isQuiet = false;
  }

  /** A question was answered. */
  answered() {
    this.answers = this.#wasAnswered = true;
  }

  /** Find out soon whether the connection is still one. */
  probe() {
    this.#askNow();
    this.#wait(PROBE, PROBE);
  }

  #askNow() {
    this.#askedAt ??= this.#clock.now();
    this.#ask();
  }

  #wait(milliseconds, limit) {
    this.#clock.clearTimeout(this.#timer);
    this.#timer = this.#clock.setTimeout(() => this.#check(limit), milliseconds);
  }

  #check(limit) {
    const silent = this.#askedAt === null ? 0 : this.#clock.now() - this.#askedAt;
    if (this.answers && silent >= limit) {
      this.answers = this.#wasAnswered; // another server may have taken the place of one that answers
      this.#silent(Math.round(silent / 1000));
      return;
    }
    if (this.answers && silent >= PING && !this.#isQuiet) {
      this.#isQuiet = true;
      this.#quiet(this.#askedAt);
    }
    this.#askNow();
    this.#wait(PING, SILENCE);
  }
}
