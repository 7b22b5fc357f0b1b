/** Numbers for the whole page, by watches of what they count alone: unhealthy machines, and requests that wait. */

import { Objects, listPath, may } from "./objects.js";
import { homeOf, namespacesOf } from "./views/filter.js";
import { stateOf, WAITING } from "./views/request_model.js";

const TELL_MILLISECONDS = 60_000; // a request also ends by the time
const REFUSALS = [400, 403, 404]; // 400: a server that does not know the selector

/** What is counted: the resource that the server needs for it, the lists, their query, and which of their objects count. */
export const UNHEALTHY = {
  resource: "consolealerts",
  kinds: ({ machines }) => machines.kinds.map((kind) => ({ ...kind, path: (namespace) => machines.list(kind, namespace) })),
  query: { fieldSelector: "status.conditions.ConsoleHealthy=False" },
  make: () => true,
  counts: () => true,
};
export const REQUESTS = {
  resource: "consolerequests",
  kinds: () => [{ plural: "consolerequests", group: undefined, path: (namespace) => listPath("consolerequests", namespace) }],
  query: {},
  make: (request) => request,
  counts: (request) => stateOf(request, Date.now()) === WAITING,
};

/**
 * Return how many requests the user may decide: those of other users, where the user has the right.
 *
 * @param {any} context of the page
 * @param {any[]} requests
 */
export async function decidable({ api, user }, requests) {
  const others = requests.filter(({ spec = {} }) => !user || ![spec.user, spec.caller].includes(user));
  const answers = others.map(({ metadata }) => may(api, "patch", "consolerequests", "approval", metadata.namespace));
  return (await Promise.all(answers)).filter(Boolean).length;
}

export class Count {
  #context;
  #what;
  #changed;
  #offered;
  #leaving = new AbortController();
  #paths = ""; // of the lists that are followed
  #asked = 0; // counts, so that a slow answer does not replace a newer one

  /**
   * @param {object} context of the page
   * @param {any} what such as {@link UNHEALTHY}
   * @param {(number: number | null, objects: any[]) => void} changed is called with each change, and with what is counted;
   *     null: it is not known
   * @param {(isOffered: boolean) => void} [offered] is told whether the user may list some of it, there or in the namespace
   *     in which its view begins
   */
  constructor(context, what, changed, offered = () => {}) {
    this.#context = context;
    this.#what = what;
    this.#changed = changed;
    this.#offered = offered;
  }

  /**
   * Follow the objects of all namespaces, or of those in a text if the user may not list all.
   *
   * @param {string} namespaces as {@link namespacesOf} reads them
   */
  async follow(namespaces) {
    if (!this.#context.machines.serves(this.#what.resource)) {
      this.#offered(false);
      return;
    }
    const asked = ++this.#asked;
    const kinds = this.#what.kinds(this.#context);
    let isAway = false; // the server cannot say now what the user may
    const mayListIn = async ({ plural, group }, namespace) => {
      try {
        return await this.#context.api.can("list", plural, "", namespace, "", group);
      } catch (error) {
        isAway ||= error.isPassing;
        return true; // the server refuses lists itself
      }
    };
    const lists = kinds.map(async (kind) => {
      const { path } = kind;
      const mayList = (namespace) => mayListIn(kind, namespace);
      if (await mayList("")) return [path("")];
      const named = namespacesOf(namespaces);
      const answers = await Promise.all(named.map(mayList));
      return named.filter((_, at) => answers[at]).map(path);
    });
    const paths = (await Promise.all(lists)).flat();
    const home = homeOf(this.#context);
    const isOffered = paths.length > 0 || (await Promise.all(kinds.map((kind) => mayListIn(kind, home)))).some(Boolean);
    if (asked !== this.#asked) return;
    if (!isAway) this.#offered(isOffered);
    if (paths.join() === this.#paths) return;
    this.stop();
    this.#paths = paths.join();
    if (paths.length) this.#watch(paths);
  }

  stop() {
    this.#leaving.abort();
    this.#leaving = new AbortController();
    this.#paths = "";
    this.#changed(null, []);
  }

  #watch(paths) {
    const { signal } = this.#leaving;
    const { query, make, counts } = this.#what;
    const known = new Map(); // lists that are known now
    const tell = () => {
      const counted = [...known.values()].flatMap((objects) => objects.all).filter(counts);
      this.#changed(known.size === paths.length ? counted.length : null, counted);
    };
    const timer = setInterval(tell, TELL_MILLISECONDS);
    signal.addEventListener("abort", () => clearInterval(timer));
    for (const path of paths) {
      const objects = new Objects(undefined, make);
      const onEvent = (event) => {
        objects.apply(event);
        known.set(path, objects);
        tell();
      };
      const onProblem = (error) => {
        if (!error) return;
        known.delete(path);
        if (REFUSALS.includes(error.code)) this.stop();
        else tell();
      };
      this.#context.api.watch(path, onEvent, { query, signal, onProblem });
    }
  }
}
