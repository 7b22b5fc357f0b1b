/** A clock, WebSockets, locks and events in memory, and a Machine, for the tests of the page. */

import { Api } from "../../../twisted_exec/web/page/api.js";

/** A clock that moves when the test says so. */
export class FakeClock {
  time = 1_000_000;
  #timers = new Map();
  #number = 0;

  now() {
    return this.time;
  }

  setTimeout(callback, milliseconds) {
    this.#timers.set(++this.#number, { at: this.time + milliseconds, callback });
    return this.#number;
  }

  clearTimeout(timer) {
    this.#timers.delete(timer);
  }

  get pending() {
    return this.#timers.size;
  }

  advance(milliseconds) {
    const end = this.time + milliseconds;
    for (;;) {
      const [timer, next] = [...this.#timers].sort((a, b) => a[1].at - b[1].at)[0] ?? [];
      if (next === undefined || next.at > end) break;
      this.#timers.delete(timer);
      this.time = next.at;
      next.callback();
    }
    this.time = end;
  }
}

/** Let promises go on. */
export const turn = () => new Promise((resolve) => setImmediate(resolve));

const encoder = new TextEncoder();

/** Return a class of WebSockets, with all its instances in `sockets`. */
export function fakeWebSockets() {
  const sockets = [];
  class FakeWebSocket {
    readyState = 0;
    sent = [];
    closedWith = null;

    constructor(url, protocols) {
      this.url = url;
      this.protocols = protocols;
      sockets.push(this);
    }

    /** The value of X-Twisted-Exec-Resume. */
    get resume() {
      const prefix = "base64url.resume.console.twisted-exec.";
      const protocol = this.protocols.find((each) => each.startsWith(prefix));
      return Buffer.from(protocol.slice(prefix.length), "base64url").toString();
    }

    send(message) {
      this.sent.push(message);
    }

    close(code) {
      this.readyState = 3;
      this.closedWith = code ?? 1005;
    }

    // Acts of the server and the network.

    accept() {
      this.readyState = 1;
      this.onopen?.({});
    }

    message(channel, payload) {
      const body = typeof payload === "string" ? encoder.encode(payload) : payload;
      this.onmessage?.({ data: new Uint8Array([channel, ...body]).buffer });
    }

    mark(document) {
      this.message(4, `${JSON.stringify(document)}\n`);
    }

    status(document) {
      this.message(3, JSON.stringify({ metadata: {}, status: "Failure", ...document }));
    }

    lose(reason = "", code = 1006) {
      this.readyState = 3;
      this.onclose?.({ code, reason });
    }

    /** The bytes that the page has typed since the last call. */
    typed() {
      const messages = this.#take((message) => message[0] === 0);
      return messages.map((each) => Buffer.from(each.subarray(1)).toString("latin1")).join("");
    }

    /** The objects that the page has sent on channel 4 since the last call. */
    controls() {
      return this.#take((message) => message[0] === 4).map((each) =>
        JSON.parse(Buffer.from(each.subarray(1)).toString()),
      );
    }

    #take(belongs) {
      const taken = this.sent.filter(belongs);
      this.sent = this.sent.filter((message) => !belongs(message));
      return taken;
    }
  }
  return { FakeWebSocket, sockets };
}

/** Locks of one browser. */
export class FakeLocks {
  #holders = new Map();

  async request(name, { signal }, callback) {
    while (this.#holders.has(name)) {
      await Promise.race([
        this.#holders.get(name),
        new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
      ]);
    }
    const held = Promise.resolve(callback()).finally(() => this.#holders.delete(name));
    this.#holders.set(name, held);
    return held;
  }
}

/** A WebSocket of a watch; the newest ones are in `made`. */
export class FakeSocket {
  static made = [];

  constructor(url, protocols) {
    Object.assign(this, { url, protocols });
    FakeSocket.made.push(this);
  }

  close() {
    queueMicrotask(() => this.onclose({ code: 1000 }));
  }
}

/**
 * Return an Api of a server that answers by path, and its calls.
 *
 * @param {(path: string, options: object) => object|string|Error|[number, object|string]} answers
 */
export function fakeApi(answers, token = () => "secret") {
  const calls = [];
  const fetch = async (url, options) => {
    const path = url.replace("https://server.example", "");
    calls.push({ path, ...options });
    const answer = answers(path, options);
    if (answer instanceof Error) throw answer;
    const [code, body] = Array.isArray(answer) ? answer : [200, answer];
    return new Response(typeof body === "string" ? body : JSON.stringify(body), { status: code });
  };
  const api = new Api({ origin: "https://server.example", token, fetch, WebSocket: FakeSocket, clock: new FakeClock() });
  return { api, calls };
}

/** Return a Machine of the pool rack-7, with its last line of output. */
export function machine(name, { state = "Running", ready = "True", message = "", line = "" } = {}) {
  return {
    metadata: { name, namespace: "default", uid: `uid-${name}` },
    spec: { machinePoolRef: { name: "rack-7" } },
    status: {
      state,
      conditions: [
        { type: "Ready", status: ready, message },
        { type: "ConsoleOutput", status: "True", message: line },
      ],
    },
  };
}
