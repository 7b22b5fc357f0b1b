/**
 * The Kubernetes API of the page's own origin.
 *
 * Lists and other answers come by `fetch`; watches come over WebSockets, because a browser opens at most
 * six HTTP/1.1 connections to a server, and all its tabs share these.
 */

import { base64url } from "./base64url.js";
import { Pulse } from "./pulse.js";
import { attemptUntil, watch } from "./watch.js";

const BEARER = "base64url.bearer.authorization.k8s.io.";
const PAGE_ITEMS = 500;
const REVIEW_SECONDS = 60;
const REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"; // which change nothing
const CONSOLE_GROUP = "console.twisted-exec.dev";

/** What is in the way if nothing answers, and nothing refuses a connection. */
export const NO_ANSWER = "the server does not answer";

/** Return the command that serves this page on the user's computer again, at the same address. */
export function startCommand() {
  return `twisted-exec web --port=${location.port || 80}`;
}

/** Return what is in the way if nothing answers: the page of `twisted-exec web` has no other server than that command. */
export function unreachable({ local = false }) {
  if (!local) return "the server cannot be reached";
  return `the web console on this computer cannot be reached; if it was stopped, start it again: ${startCommand()}`;
}

/** A refusal by the API server, or `code` 0 if the server cannot be reached. */
export class ApiError extends Error {
  constructor(code, message, status = {}) {
    super(message);
    this.name = "ApiError";
    this.code = code;
    this.status = status;
  }

  get reason() {
    return this.status.reason ?? "";
  }

  /** Whether the same request may succeed later, or with another token. */
  get isPassing() {
    return [0, 401, 408, 429].includes(this.code) || this.code >= 500;
  }
}

/**
 * Requests as the page's user.  The event `unauthorized` says that the server has refused the token, `authorized` that
 * there is another one, `reached` that a console has reached the server, and `retry` that the user wants what was
 * not answered to be read again at once.
 *
 * @param {object} options `origin` of the server; `token()`, null without one; `fetch` and `WebSocket`; `config` of the page
 */
export class Api extends EventTarget {
  #token;
  #fetch;
  #reviews;
  #pulse;

  constructor({ origin, token = () => null, fetch = globalThis.fetch, WebSocket = globalThis.WebSocket, clock = undefined, config = {} }) {
    super();
    this.origin = origin;
    /** What is in the way if nothing answers. */
    this.unreachable = unreachable(config);
    this.WebSocket = WebSocket;
    this.group = ""; // of machines; set by discovery
    this.small = "/apis"; // what is asked for to learn whether the server of the machines answers; set by discovery
    this.#token = token;
    this.#fetch = fetch;
    this.#reviews = new Map();
    this.#pulse = new Pulse((signal) => this.#answers(signal), { clock });
  }

  /**
   * Return the response.
   *
   * @param {string} path
   * @param {{method?: string, body?: any, headers?: Record<string, string>, query?: any, signal?: AbortSignal}} options
   * @throws {ApiError} for a status of 400 or more, and without a server.
   */
  async fetch(path, { method = "GET", body, headers = {}, query, signal } = {}) {
    const token = this.#token();
    /** @type {Record<string, string>} */
    const all = { Accept: "application/json", ...headers };
    if (token) all.Authorization = `Bearer ${token}`;
    if (body !== undefined) all["Content-Type"] ??= "application/json";
    const options = { method, headers: all, body: body === undefined ? undefined : JSON.stringify(body), credentials: "same-origin", cache: "no-store", redirect: "error" };
    let response;
    try {
      response = await this.#answer(this.origin + withQuery(path, query), options, signal);
    } catch (problem) {
      if (signal?.aborted) throw problem;
      throw new ApiError(0, this.unreachable);
    }
    if (response.ok) return response;
    if (response.status === 401) this.#unauthorized(token);
    throw await refusal(response);
  }

  /** Fetch; what is only read is read over another connection when the user wants that before there is an answer. */
  async #answer(url, options, signal) {
    if (options.method !== "GET" && !url.endsWith(REVIEWS)) return this.#fetch.call(globalThis, url, { ...options, signal });
    for (;;) {
      const attempt = attemptUntil(signal, this);
      try {
        return await this.#fetch.call(globalThis, url, { ...options, signal: attempt.signal });
      } catch (problem) {
        if (!attempt.signal.aborted || signal?.aborted) throw problem;
      } finally {
        attempt.end();
      }
    }
  }

  /** Return the JSON of an answer. */
  async request(path, options = {}) {
    return (await this.fetch(path, options)).json();
  }

  /** Change an object by a merge patch. */
  async patch(path, body) {
    const headers = { "Content-Type": "application/merge-patch+json" };
    return this.request(path, { method: "PATCH", headers, body });
  }

  /** Return an answer as text. */
  async text(path, options = {}) {
    const headers = { Accept: "text/plain, */*", ...options.headers };
    return (await this.fetch(path, { ...options, headers })).text();
  }

  /** Return an answer as Uint8Array. */
  async bytes(path, options = {}) {
    const headers = { Accept: "*/*", ...options.headers };
    return new Uint8Array(await (await this.fetch(path, { ...options, headers })).arrayBuffer());
  }

  /** Return `{blob, isWhole}` of an answer that may be large: no more is read than about `mostBytes`. */
  async blob(path, mostBytes, options = {}) {
    const { body } = /** @type {any} */ (await this.fetch(path, { ...options, headers: { Accept: "*/*", ...options.headers } }));
    const reader = body.getReader();
    const pieces = [];
    let bytes = 0;
    let isWhole = false;
    while (!isWhole && bytes < mostBytes) {
      const { done, value } = await reader.read().catch((problem) => {
        throw options.signal?.aborted ? problem : new ApiError(0, this.unreachable);
      });
      if (done) isWhole = true;
      else {
        pieces.push(value);
        bytes += value.length;
      }
    }
    if (!isWhole) await reader.cancel();
    return { blob: new Blob(pieces), isWhole };
  }

  /**
   * Return `{items, resourceVersion}` of all pages of a list.
   *
   * @param {string} path
   * @param {{query?: any, signal?: AbortSignal}} options
   */
  async list(path, { query = {}, signal } = {}) {
    const items = [];
    let next = "";
    for (;;) {
      const page = { ...query, limit: PAGE_ITEMS, ...(next && { continue: next }) };
      const answer = await this.request(path, { query: page, signal });
      items.push(...(answer.items ?? []));
      next = answer.metadata?.continue;
      if (!next) return { items, resourceVersion: answer.metadata?.resourceVersion ?? "" };
    }
  }

  /** List and watch until `signal` aborts: see watch.js. */
  watch(path, onEvent, options = {}) {
    return watch(this, path, onEvent, options);
  }

  /** Call `silent(error)` when the server is silent; return what ends that. */
  untilSilent(silent) {
    return this.#pulse.follow(() => silent(new ApiError(0, NO_ANSWER)));
  }

  /** Something has arrived from the server over a WebSocket. */
  heard() {
    this.#pulse.heard();
  }

  async #answers(signal) {
    try {
      await this.text(this.small, { signal });
    } catch (error) {
      return error instanceof ApiError && (error.code === 401 || !error.isPassing);
    }
    return true;
  }

  webSocketURL(path, query) {
    return this.origin.replace(/^http/, "ws") + withQuery(path, query);
  }

  /** Return the subprotocols of a WebSocket: those given, and the user's token. */
  webSocketProtocols(...protocols) {
    const token = this.#token();
    return token ? [BEARER + base64url(token), ...protocols] : protocols;
  }

  /** Tell whether the user may do something. Answers are kept for a minute. */
  async can(verb, resource, subresource = "", namespace = "", name = "", group = undefined) {
    const isOurs = resource.startsWith("console") || resource === "deletedconsoles";
    const attributes = {
      group: group ?? (isOurs ? CONSOLE_GROUP : this.group),
      resource,
      subresource,
      verb,
      namespace,
      name,
    };
    const key = JSON.stringify([this.#token(), attributes]);
    const cached = this.#reviews.get(key);
    if (cached && cached.until > Date.now()) return cached.answer;
    const body = {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SelfSubjectAccessReview",
      spec: { resourceAttributes: attributes },
    };
    const answer = this.request(REVIEWS, { method: "POST", body }).then(
      (review) => Boolean(review.status?.allowed),
    );
    this.#reviews.set(key, { answer, until: Date.now() + REVIEW_SECONDS * 1000 });
    answer.catch(() => this.#reviews.delete(key));
    return answer;
  }

  /** Forget answers about rights, for example after a login. */
  forget() {
    this.#reviews.clear();
  }

  #unauthorized(token) {
    // A request with the former token may be answered after a new login.
    if (token === this.#token()) this.dispatchEvent(new Event("unauthorized"));
  }
}

async function refusal(response) {
  let status = {};
  const text = await response.text().catch(() => "");
  try {
    status = JSON.parse(text);
  } catch {
    // Proxies answer with HTML or nothing.
  }
  const message = (status?.message || `the server answered ${response.status} ${response.statusText}`).trim();
  const isBare = message === "Unauthorized"; // all that a kube-apiserver says
  return new ApiError(response.status, isBare ? "the server does not accept your login any more" : message, status ?? {});
}

function withQuery(path, query) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null && value !== "") parameters.set(name, value);
  }
  const text = parameters.toString();
  return text ? path + (path.includes("?") ? "&" : "?") + text : path;
}
