/**
 * A list that follows its watch.
 *
 * Each list is the event `{type: "RESET", items}`; then come the events of the watch, which is a WebSocket.
 * A browser does not say why it could not open a WebSocket; so the list is read again: its answer says it.
 */

import { Backoff } from "./backoff.js";

const SUBPROTOCOL = "watch.console.twisted-exec";
const FIRST_SECONDS = 1;
const LONGEST_SECONDS = 30;
const WATCH_SECONDS = 60; // at most: a server asks for the right to a watch only where it begins
const SHORT_MILLISECONDS = 5000; // a watch that ends sooner did not work
const AT_ONCE = ["retry", "authorized"]; // events that end an attempt, and the pause before the next one
const REACHED = "reached"; // by a console: the server answers, so the pause ends; an attempt goes on

/**
 * Follow a list until the signal aborts; resolves then.
 *
 * @param {import("./api.js").Api} api
 * @param {string} path of the list
 * @param {(event: object) => void} onEvent
 * @param {object} options `query`; `signal`; `onProblem(error | null)`: null when the list is read again;
 *   `pause(seconds, signal)`, for tests
 */
export async function watch(api, path, onEvent, options = {}) {
  const { query = {}, signal, onProblem = () => {}, pause = sleep } = options;
  const backoff = new Backoff(FIRST_SECONDS, LONGEST_SECONDS);
  while (!signal?.aborted) {
    const attempt = attemptUntil(signal, api);
    try {
      const { items, resourceVersion } = await api.list(path, { query, signal: attempt.signal });
      attempt.end(); // a watch that works goes on when the user wants another attempt
      if (signal?.aborted) return;
      onEvent({ type: "RESET", items });
      onProblem(null);
      let version = resourceVersion;
      // A watch that worked is continued; only one that did not needs a new list.
      for (;;) {
        const mayContinue = await watchOnce(api, path, { ...query, resourceVersion: version }, signal, (event) => {
          version = event.object.metadata?.resourceVersion ?? version;
          backoff.reset();
          if (event.type !== "BOOKMARK") onEvent(event);
        });
        if (signal?.aborted) return;
        if (!mayContinue) break;
      }
    } catch (error) {
      if (signal?.aborted) return;
      if (attempt.signal.aborted) continue;
      onProblem(error);
    } finally {
      attempt.end();
    }
    await rest(backoff.pause(), signal, api, pause);
  }
}

/**
 * Return a signal that aborts with another one and, until `end()` is called, with an event: usually when the user wants an
 * attempt at once, or has logged in again.
 */
export function attemptUntil(signal, api, events = AT_ONCE) {
  const again = new AbortController();
  const retry = () => again.abort();
  for (const event of events) api.addEventListener(event, retry);
  const end = () => events.forEach((event) => api.removeEventListener(event, retry));
  return { signal: signal ? AbortSignal.any([signal, again.signal]) : again.signal, end };
}

/**
 * Resolve after some seconds, or when the user wants an attempt at once or has logged in again, when a console has reached the
 * server, or the signal aborts.
 */
export async function rest(seconds, signal, api, pause = sleep) {
  const attempt = attemptUntil(signal, api, [...AT_ONCE, REACHED]);
  await pause(seconds, attempt.signal).finally(attempt.end);
}

/** Resolve when one watch has ended; true if another one may continue it at the last version. Reject if the server is silent. */
function watchOnce(api, path, query, signal, onEvent) {
  return new Promise((resolve, reject) => {
    // Those of many pages that began at once, as behind a restart of the server, end apart.
    const all = { ...query, watch: "true", allowWatchBookmarks: "true", timeoutSeconds: Math.round(WATCH_SECONDS * (0.5 + Math.random() / 2)) };
    const socket = new api.WebSocket(api.webSocketURL(path, all), api.webSocketProtocols(SUBPROTOCOL));
    const start = Date.now();
    let open = false;
    let failed = false;
    const leave = () => socket.close();
    const endSilence = api.untilSilent((error) => {
      failed = true;
      socket.close(); // which a silent server does not answer for long
      reject(error);
    });
    signal?.addEventListener("abort", leave, { once: true });
    socket.onopen = () => {
      open = true;
    };
    socket.onmessage = ({ data }) => {
      api.heard();
      if (failed || signal?.aborted) return;
      let event = null;
      try {
        event = JSON.parse(data);
      } catch {
        // Kubernetes sends nothing else.
      }
      if (!event?.object || event.type === "ERROR") {
        failed = true; // 410 in most cases
        socket.close();
      } else {
        onEvent(event);
      }
    };
    socket.onclose = ({ code }) => {
      endSilence();
      signal?.removeEventListener("abort", leave);
      // 1000: the watch reached its time. Anything else may be a server that is going away.
      resolve(open && !failed && code === 1000 && Date.now() - start > SHORT_MILLISECONDS);
    };
  });
}

/**
 * Resolve after some seconds, or when the signal aborts.
 *
 * @param {number} seconds
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function sleep(seconds, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, seconds * 1000);
    if (signal?.aborted) done();
    else signal?.addEventListener("abort", done, { once: true });
  });
}
