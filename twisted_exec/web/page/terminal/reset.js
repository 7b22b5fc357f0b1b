/** A machine is powered off, and on again when it has stopped, as `~P` of `kubectl console` does. */

import { sleep } from "../watch.js";

const LOOK_SECONDS = 1;
const OFF_MILLISECONDS = 90_000; // time limit for it to go off
const RUNNING = "Running";

/**
 * Reset a machine; resolves when its power is on again.
 *
 * @param {any} context of the page
 * @param {{namespace: string, name: string}} place
 * @param {{now?: () => number, pause?: typeof sleep, acknowledged?: (answer: Promise<any>) => Promise<any>}} [options]
 *     `acknowledged`: waits for the answer to a change
 * @throws {Error} the server refuses a request, or the machine did not stop
 */
export async function reset({ api, machines }, { namespace, name }, { now = Date.now, pause = sleep, acknowledged = (answer) => answer } = {}) {
  const path = machines.path(namespace, name);
  const power = (value) => acknowledged(api.patch(path, { spec: { power: value } }));
  const runs = async () => (await api.request(path)).status?.state === RUNNING;
  await power("Off");
  const begin = now();
  let isRunning = await runs();
  while (isRunning && now() - begin < OFF_MILLISECONDS) {
    await pause(LOOK_SECONDS);
    isRunning = await runs();
  }
  await power("On");
  if (isRunning) throw new Error("it was still running 90 s after it was powered off; its power is On again");
}
