/**
 * The session of the web console's page as a process: standard input is typed, output is printed.
 *
 * `node page_client.mjs wss://... DIRECTORY`: the directory has ca.crt, user.crt and user.key.
 * `node page_client.mjs ws://... TOKEN`: for `twisted-exec web`.
 *
 * SIGUSR2 reloads the page: it stores its session, its browser closes the WebSocket with 1001, and another
 * page goes on.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { randomBytes } from "node:crypto";
import net from "node:net";
import tls from "node:tls";

import { ConsoleSession } from "../../twisted_exec/web/page/session/session.js";

const [url, identity] = process.argv.slice(2);
const isEncrypted = url.startsWith("wss:");
const read = (name) => readFileSync(join(identity, name));
const certificates = isEncrypted && { ca: read("ca.crt"), cert: read("user.crt"), key: read("user.key") };
const token = `base64url.bearer.authorization.k8s.io.${Buffer.from(identity).toString("base64url")}`;
const protocols = ["v5.channel.k8s.io", ...(isEncrypted ? [] : [token])];
const GOING_AWAY = 1001;

/** As much of a browser's WebSocket as the session uses. */
class PageWebSocket {
  static open = new Set();
  readyState = 0;
  #connection;
  #received = Buffer.alloc(0);
  #close = { code: 1006, reason: "" };

  constructor(address, offered) {
    const { hostname, port, host, origin, pathname, search } = new URL(address.replace("ws", "http"));
    const head = [
      `GET ${pathname}${search} HTTP/1.1`,
      `Host: ${host}`,
      "Connection: Upgrade",
      "Upgrade: websocket",
      "Sec-WebSocket-Version: 13",
      `Sec-WebSocket-Key: ${randomBytes(16).toString("base64")}`,
      `Sec-WebSocket-Protocol: ${offered.join(", ")}`,
      `Origin: ${origin}`,
      "",
      "",
    ].join("\r\n");
    PageWebSocket.open.add(this);
    const place = { host: hostname, port: Number(port) };
    const connected = () => this.#connection.write(head);
    this.#connection = isEncrypted ? tls.connect({ ...place, ...certificates }, connected) : net.connect(place, connected);
    this.#connection.on("data", (data) => this.#take(data));
    this.#connection.on("error", () => {});
    this.#connection.on("close", () => this.#closed());
  }

  send(message) {
    this.#frame(2, message);
  }

  close(code = 1005) {
    this.readyState = 2;
    this.#frame(8, code === 1005 ? Buffer.alloc(0) : Buffer.from([code >> 8, code & 255]));
    this.#connection.end();
    setTimeout(() => this.#connection.destroy(), 3_000).unref();
    PageWebSocket.open.delete(this);
  }

  #take(data) {
    this.#received = Buffer.concat([this.#received, data]);
    if (this.readyState === 0) {
      const end = this.#received.indexOf("\r\n\r\n");
      if (end < 0) return;
      if (!this.#received.subarray(0, end).includes(" 101 ")) {
        process.stderr.write(`refused: ${this.#received.subarray(0, end)}\n`);
        this.#connection.destroy();
        return;
      }
      this.readyState = 1;
      this.#received = this.#received.subarray(end + 4);
      this.onopen?.({});
    }
    for (let frame = this.#next(); frame !== null; frame = this.#next()) {
      const [code, payload] = frame;
      if (code === 8) {
        const status = payload.length < 2 ? 1005 : payload.readUInt16BE();
        this.#close = { code: status, reason: payload.subarray(2).toString() };
        this.close();
      } else if (code === 9) this.#frame(10, payload);
      else if (code === 2) this.onmessage?.({ data: new Uint8Array(payload).buffer });
    }
  }

  #next() {
    const data = this.#received;
    if (data.length < 2) return null;
    const short = data[1];
    const start = short === 127 ? 10 : short === 126 ? 4 : 2;
    if (data.length < start) return null;
    const size = short === 127 ? Number(data.readBigUInt64BE(2)) : short === 126 ? data.readUInt16BE(2) : short;
    if (data.length < start + size) return null;
    this.#received = data.subarray(start + size);
    return [data[0] & 15, data.subarray(start, start + size)];
  }

  #frame(code, payload) {
    if (this.readyState === 0 || this.#connection.destroyed) return;
    const size = payload.length;
    const head = size < 126 ? [128 | code, 128 | size] : [128 | code, 254, size >> 8, size & 255];
    this.#connection.write(Buffer.concat([Buffer.from([...head, 0, 0, 0, 0]), payload]));
  }

  #closed() {
    PageWebSocket.open.delete(this);
    this.readyState = 3;
    this.onclose?.(this.#close);
  }
}

/** One page, until it is loaded again. */
class Page {
  #events = new EventTarget();
  #isGone = false;
  saved = null;

  constructor(saved) {
    const clock = {
      now: () => Date.now(),
      setTimeout: (callback, milliseconds) => setTimeout(() => this.#isGone || callback(), milliseconds),
      clearTimeout,
    };
    this.session = new ConsoleSession({
      url,
      protocols: () => protocols,
      saved,
      keep: (kept) => {
        this.saved = JSON.parse(JSON.stringify(kept));
      },
      clock,
      events: this.#events,
      WebSocket: PageWebSocket,
      on: {
        output: (bytes) => process.stdout.write(bytes, () => this.#isGone || this.session.taken(bytes.length)),
        gap: (gap) => process.stderr.write(`gap ${JSON.stringify(gap)}\n`),
        placed: () => process.stderr.write("placed\n"),
        uncertain: (count) => process.stderr.write(`uncertain ${count}\n`),
        state: (name, detail) => {
          process.stderr.write(`${name} ${JSON.stringify(detail)}\n`);
          if (name === "ended") process.exitCode = 1;
        },
      },
    });
    this.session.resize(80, 24);
  }

  /** Be loaded again; return the new page. */
  reload() {
    this.#events.dispatchEvent(new Event("pagehide"));
    this.#isGone = true;
    for (const socket of [...PageWebSocket.open]) {
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close(GOING_AWAY);
    }
    process.stderr.write("reload\n");
    return new Page(this.saved);
  }
}

let page = new Page(null);
process.on("SIGUSR2", () => {
  page = page.reload();
});
process.stdin.on("data", (data) => {
  page.session.send(new Uint8Array(data));
  if (page.session.isFull) {
    process.stdin.pause();
    const wait = setInterval(() => {
      if (!page.session.isFull) {
        clearInterval(wait);
        process.stdin.resume();
      }
    }, 50);
  }
});
process.stdin.on("end", () => page.session.leave());
