/** A model of the machine's end of sessions that can be resumed, for the tests of the page. */

import assert from "node:assert/strict";

const EPOCH = "9f3c22d10b7a4e55";

/** Return a function that returns random numbers below its argument: the same ones for a seed. */
export function numbers(seed) {
  let state = seed * 2654435761;
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

/** One session at one machine. */
export class ModelServer {
  printed = "";
  received = "";
  #settled = 0;
  #number = 0;
  #keys = new Map(); // key to the id of its connection
  #connection = null;

  constructor(random) {
    this.random = random;
  }

  print(text) {
    this.printed += text;
  }

  /** Accept a request with this value of X-Twisted-Exec-Resume. */
  connect(value) {
    const fields = new Map(value.split("; ").map((part) => part.split("=")));
    let from = 0;
    const former = this.#keys;
    if (fields.has("key")) {
      assert.equal(former.get(fields.get("key")), fields.get("session"), "the key is not valid");
      assert.equal(fields.get("epoch"), EPOCH);
      from = Number(fields.get("from"));
      assert.ok(from <= this.printed.length);
    } else {
      assert.equal(this.#number, 0, "the session began anew");
    }
    const [key, session] = [String(++this.#number).padStart(43, "k"), `s-${this.#number}`];
    this.#keys = new Map([...former, [key, session]]);
    this.#connection?.lose();
    this.#connection = new ModelConnection(this, from, () => {
      this.#keys = new Map([[key, session]]);
    });
    this.#connection.toPage.push({ Session: session, Key: key, Seconds: 60 });
    this.#connection.toPage.push({ Ack: this.#settled }, { At: from, Epoch: EPOCH, End: this.printed.length });
    return this.#connection;
  }

  take(item) {
    for (const byte of item) {
      this.received += String.fromCharCode(byte);
      this.#settled += 1;
    }
    return this.#settled;
  }
}

class ModelConnection {
  toPage = []; // on the way: text is output, an object is a mark
  toServer = [];
  #isLost = false;
  #isHeard = false;

  constructor(server, from, heard) {
    this.server = server;
    this.offset = from;
    this.heard = heard;
  }

  /** Let a few messages arrive, and send a few. */
  pump(limit) {
    if (this.#isLost) return;
    for (const item of this.toServer.splice(0, limit)) {
      if (!this.#isHeard) {
        this.#isHeard = true;
        this.heard();
      }
      if (item instanceof Uint8Array) {
        const cut = this.server.random(item.length + 1);
        this.server.take(item.subarray(0, cut));
        const settled = this.server.take(item.subarray(cut));
        if (this.server.random(2)) this.toPage.push({ Ack: settled });
      }
    }
    for (let count = limit; count > 0 && this.offset < this.server.printed.length; count--) {
      const text = this.server.printed.slice(this.offset, this.offset + 1 + this.server.random(6));
      this.offset += text.length;
      this.toPage.push(text);
    }
  }

  /** Everything on the way is lost. */
  lose() {
    this.#isLost = true;
    this.toPage = [];
    this.toServer = [];
  }
}
