/** Ask another user for the approval that a ConsolePolicy demands, and wait for it. */

import { qualifiedName } from "../machines.js";
import { itemPath, listPath } from "../objects.js";
import { sleep } from "../watch.js";

const LOOK_SECONDS = 2;
const RIGHTS = { observe: "observe", takeover: "takeover" };

/**
 * Create a ConsoleRequest; resolve when it is approved.
 *
 * The request stays when the user stops waiting: after its approval the console opens without another one.
 *
 * @param {object} place `{namespace, name, mode, reason}`
 * @param {(message: string) => void} say
 * @throws {Error} it was refused, denied or deleted
 */
export async function requestApproval({ api, machines }, place, signal, say, pause = sleep) {
  const { kind, name: machine } = machines.parse(place.name);
  const list = listPath("consolerequests", place.namespace);
  const spec = {
    machine,
    machineResource: qualifiedName(kind),
    right: RIGHTS[place.mode] ?? "drive",
    ...(place.reason && { reason: place.reason }),
  };
  const body = {
    apiVersion: "console.twisted-exec.dev/v1alpha1",
    kind: "ConsoleRequest",
    metadata: { generateName: `${machine.slice(0, 200)}-` },
    spec,
  };
  const { metadata } = await api.request(list, { method: "POST", body, signal });
  const path = itemPath("consolerequests", place.namespace, metadata.name);
  say(
    `Request "${metadata.name}" waits for the approval of another user, ` +
      `in Requests of this page, or with twisted-exec request approve -n ${place.namespace} ${metadata.name}`,
  );
  for (;;) {
    await pause(LOOK_SECONDS, signal);
    signal?.throwIfAborted();
    let request;
    try {
      request = await api.request(path, { signal });
    } catch (error) {
      if (error.code === 404) throw new Error(`request "${metadata.name}" was deleted`);
      if ([401, 403].includes(error.code)) throw error;
      continue; // the server is back soon
    }
    const { approved, denied, decidedBy = "another user", message } = request.status ?? {};
    const because = message ? `: ${message}` : "";
    if (denied) throw new Error(`${decidedBy} denied request "${metadata.name}"${because}`);
    if (approved) return say(`${decidedBy} approved request "${metadata.name}"${because}`);
  }
}
