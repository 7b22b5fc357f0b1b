/** One WebSocket of a session: reads its messages, puts its status together, and reports its end once. */

import * as channel from "./channel.js";
import { ProtocolError } from "./channel.js";

const OPEN = 1;

export class Connection {
  #socket;
  #on;
  #marks = new channel.MarkDecoder();
  #status = new Uint8Array();
  #wasOpened = false;
  #hasMessage = false;

  /**
   * @param {WebSocket} socket that has just been made.
   * @param {object} on callbacks, none of them after {@link close}: heard() for any message;
   *     unmarked(): the first message is output, so this server sends no marks; mark(object);
   *     output(bytes): at least 1 byte; status(status) as channel.readStatus returns it;
   *     broken(problem): the ProtocolError of this module or of a callback; closed({code, reason, wasOpened}).
   */
  constructor(socket, on) {
    this.#socket = socket;
    this.#on = on;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this.#wasOpened = true;
    };
    socket.onmessage = (event) => this.#guard(() => this.#receive(event.data));
    socket.onclose = ({ code, reason }) => {
      this.#on = null;
      on.closed({ code, reason, wasOpened: this.#wasOpened });
    };
    socket.onerror = () => {}; // onclose follows
  }

  /** Send a message; none is sent before the handshake or after the end. */
  send(message) {
    if (this.#socket.readyState === OPEN) this.#socket.send(message);
  }

  /** Let go of the WebSocket. */
  close(code) {
    const socket = this.#socket;
    this.#on = null;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close(code);
  }

  #guard(handle) {
    const { broken } = this.#on;
    try {
      handle();
    } catch (problem) {
      if (!(problem instanceof ProtocolError)) throw problem;
      broken(problem);
    }
  }

  #receive(data) {
    this.#on.heard();
    const message = typeof data === "string" ? null : channel.decode(data);
    if (message === null) return;
    const isFirst = !this.#hasMessage;
    this.#hasMessage = true;
    if (isFirst && message.channel !== channel.CONTROL && message.channel !== channel.ERROR) this.#on.unmarked();
    if (message.payload.length === 0) return;
    if (message.channel === channel.CONTROL) {
      for (const mark of this.#marks.feed(message.payload)) this.#on?.mark(mark);
    } else if (message.channel === channel.ERROR) {
      this.#receiveStatus(message.payload);
    } else {
      this.#on?.output(message.payload);
    }
  }

  #receiveStatus(payload) {
    this.#status = joined(this.#status, payload);
    let status;
    try {
      status = channel.readStatus(this.#status);
    } catch (problem) {
      if (this.#status.length > payload.length) throw problem;
      return; // the rest may follow
    }
    this.#on.status(status);
  }
}

function joined(first, second) {
  const bytes = new Uint8Array(first.length + second.length);
  bytes.set(first);
  bytes.set(second, first.length);
  return bytes;
}
