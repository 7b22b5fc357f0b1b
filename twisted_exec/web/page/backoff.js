/** Exponential back-off up to a limit, with random parts, in any unit of time.  twisted_exec/control/backoff.py has the same rules. */
export class Backoff {
  #first;
  #longest;
  #random;
  #next;

  constructor(first, longest, random = Math.random) {
    this.#first = this.#next = first;
    this.#longest = longest;
    this.#random = random;
  }

  reset() {
    this.#next = this.#first;
  }

  /** Return how long to wait now. */
  pause(longest = Infinity) {
    const whole = Math.min(this.#next, this.#longest, longest);
    this.#next = 2 * whole;
    return whole * (0.5 + this.#random() / 2);
  }
}
