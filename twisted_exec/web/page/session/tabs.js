/** What a session needs to know of its tab, and of the others. */

const WAIT_MILLISECONDS = 2_000;

/**
 * The claim of a page on one session of this browser: a duplicated tab has a copy of the storage of its
 * tab, and only one of them goes on.
 */
export class Claim {
  #release = null;
  #isOver = false;

  /**
   * Claim a session for this page until {@link release}, or until the page is gone.
   *
   * A page that is loaded again may come before the lock of its predecessor has gone, so this waits.
   *
   * @param {string} id of the session in this browser.
   * @param {object} locks `navigator.locks`; without it every claim succeeds.
   * @returns {Promise<boolean>} false if another page has the session.
   */
  take(id, locks, clock) {
    if (!locks) {
      return Promise.resolve(true);
    }
    return new Promise((resolve) => {
      const abort = new AbortController();
      const timer = clock.setTimeout(() => abort.abort(), WAIT_MILLISECONDS);
      const hold = () => {
        clock.clearTimeout(timer);
        resolve(true);
        return new Promise((release) => {
          this.#release = release;
          this.#isOver && release();
        });
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

/**
 * Listen to what happens to the tab and its network.
 *
 * @param {EventTarget} target the window.
 * @param {object} on usable(): the network is back, or the page is shown again; hidden(): the page is
 *     hidden, and may be closed without another word.
 * @returns {function()} ends it.
 */
export function listen(target, { usable, hidden }) {
  if (typeof target.addEventListener !== "function") {
    return () => {};
  }
  const { document } = target;
  const changed = () => (document.hidden ? hidden() : usable());
  const events = [
    [target, "online", usable],
    [target, "pagehide", hidden],
    ...(document ? [[document, "visibilitychange", changed]] : []),
  ];
  events.forEach(([place, name, call]) => place.addEventListener(name, call));
  return () => events.forEach(([place, name, call]) => place.removeEventListener(name, call));
}
