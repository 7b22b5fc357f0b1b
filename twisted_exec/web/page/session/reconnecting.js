/**
 * The waits between attempts to connect.
 *
 * The waits double from 0.1 s to 0.4 s, after three seconds to 1 s, and after two minutes to 10 s; each is shortened at
 * random by up to half, so that the clients of a server that was restarted do not return at once.
 * twisted_exec/control/retries.py has the same rules.
 */

import { Backoff } from "../backoff.js";

const FIRST_WAIT = 100;
const RESTART_WAIT = 400;
/** Within this time a program that restarts is usually ready. */
const RESTART = 3_000;
const EAGER_WAIT = 1_000;
const EAGER = 120_000;
const LATE_WAIT = 10_000;
const LONGEST_RETRY_AFTER = 30_000;
const ATTEMPT = 10_000;
/** Time limit of an attempt after one that was too slow: a server may have many clients to serve. */
const LATER_ATTEMPT = 20_000;
/** A kube-apiserver that is starting forbids everything for some seconds; the 403 of our servers has causes. */
const STARTING = 10_000;
const YOUNG = 1_000;
const RETRIED = new Set([408, 429, 500, 502, 503, 504]);

/** All times are in milliseconds. */
export class Reconnecting {
  #clock;
  #backoff;
  #attempt;
  #timedOut;
  #timer = null;
  #isTrying = false;
  #isAway = false; // it waits because the server was not reached, and has not said for how long to wait
  #startedAt = 0;
  #triedAt = -Infinity;
  #passingAt = -Infinity;
  #limit = ATTEMPT;

  /**
   * @param {object} clock now(), setTimeout(), clearTimeout().
   * @param {object} callbacks attempt() opens a connection; timedOut(message): it took too long.
   */
  constructor(clock, { attempt, timedOut, random }) {
    this.#clock = clock;
    this.#attempt = attempt;
    this.#timedOut = timedOut;
    this.#backoff = new Backoff(FIRST_WAIT, LATE_WAIT, random);
  }

  /** Begin: the first attempt of a page at once, the others after a short wait. */
  start() {
    const isFirst = !this.hasBegun;
    this.#startedAt = this.#passingAt = this.#clock.now();
    this.#backoff.reset();
    this.#limit = ATTEMPT;
    if (isFirst) this.#try();
    else this.wait(0);
  }

  /** Whether there was an attempt. */
  get hasBegun() {
    return this.#triedAt !== -Infinity;
  }

  /** Make no further attempt. */
  stop() {
    this.#clock.clearTimeout(this.#timer);
    this.#timer = null;
    this.#isTrying = this.#isAway = false;
  }

  /** The attempt has succeeded. */
  succeeded() {
    this.stop();
  }

  /** Make an attempt at once, unless one has just begun; the waits are short again. */
  now() {
    this.#backoff.reset();
    this.#limit = ATTEMPT;
    if (!this.#isTrying || this.#clock.now() - this.#triedAt >= YOUNG) this.#try();
  }

  /** Wait for the next attempt, as long as the server asks for. */
  wait(retryAfterSeconds) {
    const passed = this.#clock.now() - this.#startedAt;
    const wait = this.#backoff.pause(passed < RESTART ? RESTART_WAIT : passed < EAGER ? EAGER_WAIT : LATE_WAIT);
    const obeyed = Math.min(retryAfterSeconds * 1000, LONGEST_RETRY_AFTER);
    this.#arm(Math.max(wait, obeyed), () => this.#try());
  }

  /** The server was not reached: wait for the next attempt. */
  unreached() {
    this.#passingAt = this.#clock.now();
    this.wait(0);
    this.#isAway = true;
  }

  /** The server can be reached again: make the next attempt now, unless one goes on. */
  wake() {
    if (this.#isAway) this.#try();
  }

  /** Return whether another attempt may succeed behind a refusal with these causes. */
  retries(code, causes) {
    if (RETRIED.has(code)) this.#passingAt = this.#clock.now();
    const isRecent = this.#clock.now() - this.#passingAt < STARTING;
    return RETRIED.has(code) || (code === 403 && isRecent && causes.length === 0);
  }

  #try() {
    this.#triedAt = this.#clock.now();
    const limit = this.#limit;
    this.#arm(limit, () => {
      this.#limit = LATER_ATTEMPT;
      this.#timedOut(`no answer within ${limit / 1000} s`);
    });
    this.#isTrying = true;
    this.#attempt();
  }

  #arm(milliseconds, callback) {
    this.stop();
    this.#timer = this.#clock.setTimeout(callback, milliseconds);
  }
}
