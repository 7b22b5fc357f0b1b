/** The machine of one console: whether it runs, by a watch of its object, or by reading it now and then. */

import { Backoff } from "../backoff.js";
import { healthOf } from "../views/alert_model.js";
import { rowOf } from "../views/machine_rows.js";
import { rest } from "../watch.js";
import { bannerText } from "./texts.js";

const BANNER = "console.twisted-exec.dev/banner";
const LOOK_SECONDS = { first: 1, longest: 10 }; // between reads of a machine that the user may not watch, and may have changed

export class MachineWatch {
  /** @type {{state: string, problem: string, runs: boolean, isOff: boolean, hasPool: boolean, banner: string, health: any} | null} null if unknown. */
  machine = null;
  /** Whether the server has said that there is none. */
  isGone = false;
  /** Whether the user may neither watch nor read it. */
  isBlind = false;
  /**
   * While the server does not answer: since when, in milliseconds since 1970, and what is in the way.
   *
   * @type {{asOf: number, message: string} | null}
   */
  outage = null;
  #leaving = new AbortController();
  /** @type {AbortController | null} of one read and the pause behind it; null while the machine is watched */
  #reading = null;
  #pauses = new Backoff(LOOK_SECONDS.first, LOOK_SECONDS.longest);
  #changed;
  #uid = ""; // another machine may get the name
  #firstUid = ""; // of the machine of the session
  #deletedUid = ""; // of one that is gone, though events and answers on their way may still have it

  /**
   * @param {object} context of the page
   * @param {{namespace: string, name: string}} place
   * @param {(hasStarted: boolean) => void} changed called with each event, and when an outage begins or ends; true: it did not run before, and runs now
   */
  constructor({ api, machines }, { namespace, name: routeName }, changed) {
    this.#changed = changed;
    const { kind, name } = machines.parse(routeName);
    const forbidden = new AbortController();
    const watched = api.watch(machines.list(kind, namespace), (event) => this.#follow(event, kind), {
      query: { fieldSelector: `metadata.name=${name}` },
      signal: AbortSignal.any([this.#leaving.signal, forbidden.signal]),
      // A user of a console need not be able to list machines.
      onProblem: (error) => (error?.code === 403 ? forbidden.abort() : this.#tellOutage(error)),
    });
    /** Resolves when nothing about the machine follows any more. */
    this.ended = watched.then(() => this.#look(api, machines.path(namespace, routeName), kind));
  }

  stop() {
    this.#leaving.abort();
  }

  /** The machine has changed: what was read of it is old, and is read again at once. A watch says by itself what is new. */
  renew() {
    if (!this.#reading) return;
    this.machine = null;
    this.#pauses.reset();
    this.#reading.abort();
  }

  /** The session has ended because this machine was deleted: the next one with its name is another. */
  deleted() {
    this.#deletedUid = this.#firstUid;
    this.#firstUid = "";
    if (this.#uid !== this.#deletedUid) return; // the next one is there already
    this.machine = null;
    this.isGone = true;
  }

  /** Read the machine again and again; a user who may not do that either does without. */
  async #look(api, path, kind) {
    const { signal: leaving } = this.#leaving;
    while (!leaving.aborted && !this.isBlind) {
      this.#reading = new AbortController();
      const signal = AbortSignal.any([leaving, this.#reading.signal]);
      try {
        const machine = await api.request(path, { signal });
        this.#tellOutage(null);
        this.#follow({ type: "RESET", items: [machine] }, kind);
      } catch (error) {
        if (signal.aborted) continue;
        this.#tellOutage(error);
        if (error.code === 404) this.#follow({ type: "RESET", items: [] }, kind);
        this.isBlind = error.code === 403;
        if (this.isBlind) this.#changed(false);
      }
      if (!this.isBlind) await rest(this.#pauses.pause(), signal, api);
    }
  }

  #tellOutage(error) {
    const isOutage = error && (error.code === 0 || error.code >= 500);
    if (Boolean(isOutage) === (this.outage !== null)) return;
    this.outage = isOutage ? { asOf: Date.now(), message: error.message } : null;
    this.#changed(false);
  }

  /** @param {{type: string, items?: any[], object?: any}} event */
  #follow({ type, items = [], object }, kind) {
    const named = type === "RESET" ? items[0] : type === "DELETED" ? undefined : object;
    const found = named?.metadata.uid && named.metadata.uid === this.#deletedUid ? undefined : named;
    const [before, uid] = [this.machine, this.#uid];
    this.machine = found ? stateOf(found, kind) : null;
    this.isGone = !found;
    this.#uid = found?.metadata.uid ?? "";
    this.#firstUid ||= this.#uid;
    this.#changed(before?.runs === false && this.machine?.runs === true && this.#uid === uid);
  }
}

/** The state of a machine: `{state, problem, runs, isOff, hasPool, banner, health}`; isOff: its user has switched it off; health: see healthOf(). */
export function stateOf(machine, kind) {
  const { state, pool, ...row } = rowOf(machine, kind);
  const problem = row.problem === state ? "" : row.problem; // a reason without a message
  const isOff = machine.spec?.power === "Off";
  // Some runtimes report nothing new about a machine that is switched off.
  const banner = bannerText(machine.metadata?.annotations?.[BANNER]);
  return { state, problem, runs: state === "Running" && !isOff, isOff, hasPool: Boolean(pool), banner, health: healthOf(machine) };
}
