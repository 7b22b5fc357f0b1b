/**
 * JSON values in the browser's storage, under the prefix of this page.
 *
 * The session's storage (one tab, survives a reload) holds the token and open consoles; the local storage
 * holds preferences, and never a secret.
 */

const PREFIX = "twisted-exec.";

export class Store {
  #storage;

  /** @param {Storage} storage of the browser, or an object with the same three methods */
  constructor(storage) {
    this.#storage = storage;
  }

  /** Return a value; `fallback` if there is none or if it cannot be read. */
  get(key, fallback = null) {
    try {
      const text = this.#storage.getItem(PREFIX + key);
      return text === null ? fallback : JSON.parse(text);
    } catch {
      return fallback;
    }
  }

  /** Keep a value. A full or forbidden storage costs only the memory of it. */
  set(key, value) {
    try {
      this.#storage.setItem(PREFIX + key, JSON.stringify(value));
      return true;
    } catch {
      return false;
    }
  }

  remove(key) {
    try {
      this.#storage.removeItem(PREFIX + key);
    } catch {
      // A storage that is forbidden holds nothing.
    }
  }

  /** Forget the values of this page whose keys begin so. */
  clear(beginning = "") {
    for (const key of Object.keys(this.#storage)) {
      if (key.startsWith(PREFIX + beginning)) this.remove(key.slice(PREFIX.length));
    }
  }
}
