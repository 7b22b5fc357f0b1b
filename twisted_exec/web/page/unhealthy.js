/** How many machines are not healthy, for the whole page: by a watch of these alone. */

import { Objects, may } from "./objects.js";
import { namespacesOf } from "./views/filter.js";

const QUERY = { fieldSelector: "status.conditions.ConsoleHealthy=False" };
const REFUSALS = [400, 403, 404]; // 400: a server of an older release

export class Unhealthy {
  #context;
  #changed;
  #leaving = new AbortController();
  #paths = ""; // of the lists that are followed
  #asked = 0; // counts, so that a slow answer does not replace a newer one

  /**
   * @param {object} context of the page
   * @param {(number: number | null) => void} changed is called with each change; null: it is not known
   */
  constructor(context, changed) {
    this.#context = context;
    this.#changed = changed;
  }

  /**
   * Follow the machines of all namespaces, or of those in a text if the user may not list all.
   *
   * @param {string} namespaces as {@link namespacesOf} reads them
   */
  async follow(namespaces) {
    const { api, machines } = this.#context;
    const asked = ++this.#asked;
    const lists = machines.kinds.map(async (kind) => {
      const mayListAll = await may(api, "list", kind.plural, "", "", "", kind.group);
      return (mayListAll ? [""] : namespacesOf(namespaces)).map((namespace) => machines.list(kind, namespace));
    });
    const paths = (await Promise.all(lists)).flat();
    if (asked !== this.#asked || paths.join() === this.#paths) return;
    this.stop();
    this.#paths = paths.join();
    this.#watch(paths);
  }

  stop() {
    this.#leaving.abort();
    this.#leaving = new AbortController();
    this.#paths = "";
    this.#changed(null);
  }

  #watch(paths) {
    const { signal } = this.#leaving;
    const numbers = new Map(); // of the lists that are known now
    const tell = () => {
      const sum = [...numbers.values()].reduce((one, other) => one + other, 0);
      this.#changed(numbers.size === paths.length ? sum : null);
    };
    for (const path of paths) {
      const objects = new Objects(undefined, () => true);
      const onEvent = (event) => {
        objects.apply(event);
        numbers.set(path, objects.all.length);
        tell();
      };
      const onProblem = (error) => {
        if (!error) return;
        numbers.delete(path);
        if (REFUSALS.includes(error.code)) this.stop();
        else tell();
      };
      this.#context.api.watch(path, onEvent, { query: QUERY, signal, onProblem });
    }
  }
}
