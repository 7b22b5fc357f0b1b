/** The machine of one console: whether it runs, by a watch of its object. */

import { healthOf } from "../views/alert_model.js";
import { rowOf } from "../views/machine_rows.js";
import { bannerText } from "./texts.js";

const BANNER = "console.twisted-exec.dev/banner";

export class MachineWatch {
  /** @type {{state: string, problem: string, runs: boolean, isOff: boolean, hasPool: boolean, banner: string, health: any} | null} null if unknown. */
  machine = null;
  /** Whether the server has said that there is none. */
  isGone = false;
  /**
   * While the server does not answer: since when, in milliseconds since 1970, and what is in the way.
   *
   * @type {{asOf: number, message: string} | null}
   */
  outage = null;
  #leaving = new AbortController();
  #changed;
  #uid = ""; // another machine may get the name

  /**
   * @param {object} context of the page
   * @param {{namespace: string, name: string}} place
   * @param {(hasStarted: boolean) => void} changed called with each event, and when an outage begins or ends; true: it did not run before, and runs now
   */
  constructor({ api, machines }, { namespace, name: routeName }, changed) {
    this.#changed = changed;
    const { kind, name } = machines.parse(routeName);
    /** Resolves when the watch has ended. */
    this.ended = api.watch(machines.list(kind, namespace), (event) => this.#follow(event, kind), {
      query: { fieldSelector: `metadata.name=${name}` },
      signal: this.#leaving.signal,
      onProblem: (error) => {
        // A user of a console need not be able to list machines, and does without.
        if (error?.code === 403) return this.stop();
        const isOutage = error && (error.code === 0 || error.code >= 500);
        if (Boolean(isOutage) === (this.outage !== null)) return;
        this.outage = isOutage ? { asOf: Date.now(), message: error.message } : null;
        changed(false);
      },
    });
  }

  stop() {
    this.#leaving.abort();
  }

  #follow({ type, items, object }, kind) {
    const found = type === "RESET" ? items[0] : type === "DELETED" ? undefined : object;
    const [before, uid] = [this.machine, this.#uid];
    this.machine = found ? stateOf(found, kind) : null;
    this.isGone = !found;
    this.#uid = found?.metadata.uid ?? "";
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
