/** The claim of one tab on a session, or on an approval of one. */

const WAIT_MILLISECONDS = 2_000;

/**
 * The claim of a page on one session of this browser. A duplicated tab has a copy of the storage of the
 * first, and only one of the two may continue the session.
 */
export class Claim {
  /** @type {((value?: any) => void) | null} */
  #release = null;
  #isOver = false;

  /**
   * Claim a session, or an approval, for this page until {@link release}, or until the page is gone.
   *
   * After a reload the former page may still hold its lock for a moment, so this waits.
   *
   * @param {string} id of it in this browser.
   * @param {object} locks `navigator.locks`; without it every claim succeeds.
   * @returns {Promise<boolean>} false if another page has the session.
   */
  take(id, locks, clock) {
    if (!locks) return Promise.resolve(true);
    return new Promise((resolve) => {
      const abort = new AbortController();
      const timer = clock.setTimeout(() => abort.abort(), WAIT_MILLISECONDS);
      const hold = () => {
        clock.clearTimeout(timer);
        resolve(true);
        return /** @type {Promise<void>} */ (new Promise((release) => {
          this.#release = release;
          if (this.#isOver) release();
        }));
      };
      locks
        .request(`twisted-exec session ${id}`, { signal: abort.signal }, hold)
        .catch(() => resolve(false));
    });
  }

  /** Give the claim up. */
  release() {
    this.#isOver = true;
    this.#release?.();
  }
}
