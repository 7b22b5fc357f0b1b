/**
 * The input of a session until the server has settled it.
 *
 * The server counts input in pieces, and so does this queue: a byte is one piece; a BREAK or a role
 * request is one piece.  An item is a Uint8Array, {Break: MILLISECONDS} or {Role: NAME}.
 */

import { PAYLOAD_BYTES, ProtocolError } from "./channel.js";

/** From here on the queue is full; it still accepts more, because its user may be about to pause. */
export const LIMIT_PIECES = 256 * 1024;

/** Pieces that are sent without an Ack: less than a server buffers for a machine that reads nothing. */
export const WINDOW_PIECES = 128 * 1024;

const MERGED_BYTES = 1024;

/** Return how many pieces an item is. */
export function pieces(item) {
  return item instanceof Uint8Array ? item.length : 1;
}

/** Return how many pieces some items are. */
function count(items) {
  return items.reduce((sum, item) => sum + pieces(item), 0);
}

/** Reports of the focus and of the mouse, and what surrounds a paste. */
const NO_KEYS = /\x1b\[(?:[IO]|<[0-9;]*[Mm]|M[^]{3}|20[01]~)/g;

/** The bytes of a key, as characters: a sequence such as that of an arrow, or a character in UTF-8. */
const KEY = /\x1b[[O][0-?]*[ -/]*[@-~]|[\x00-\x7f\xc0-\xff][\x80-\xbf]*|[\x80-\xbf]+/g;

/** Return how many keys, or requests, some items are. */
export function keysIn(items) {
  return items.reduce((sum, item) => sum + (item instanceof Uint8Array ? (binary(item).replace(NO_KEYS, "").match(KEY)?.length ?? 0) : 1), 0);
}

/** Items in order: first the sent ones, which are uncertain, then those that are still to be sent. */
export class InputQueue {
  acknowledged = 0;
  uncertain = 0;
  unsent = 0;
  #sent = [];
  #waiting = [];
  #restored = 0; // pieces that an earlier page had not sent when it saved them

  get isFull() {
    return this.uncertain + this.unsent >= LIMIT_PIECES;
  }

  /** The number of pieces that were sent since counting began. */
  get sent() {
    return this.acknowledged + this.uncertain;
  }

  /** Add an item. */
  put(item) {
    append(this.#waiting, item);
    this.unsent += pieces(item);
  }

  /** Return the items that may be sent now, which count as sent. */
  take() {
    const taken = [];
    while (this.#waiting.length && this.uncertain < WINDOW_PIECES) {
      let item = this.#waiting.shift();
      if (item instanceof Uint8Array) {
        const most = Math.min(WINDOW_PIECES - this.uncertain, PAYLOAD_BYTES);
        if (item.length > most) {
          this.#waiting.unshift(item.subarray(most));
          item = item.subarray(0, most);
        }
      }
      append(this.#sent, item);
      this.unsent -= pieces(item);
      this.uncertain += pieces(item);
      taken.push(item);
    }
    return taken;
  }

  /** Remove and return all items: for a server that settles none. */
  takeAll() {
    const items = [...this.#sent, ...this.#waiting];
    this.drop();
    return items;
  }

  /**
   * Forget what the server has settled.
   *
   * @param {number} count pieces since counting began.
   * @throws {ProtocolError} fewer than before, or more than were sent.
   */
  settle(count) {
    const settled = count - this.acknowledged;
    if (settled < 0 || settled > this.uncertain) {
      throw new ProtocolError(`${count} pieces of input are settled, of ${this.acknowledged} to ${this.sent}`);
    }
    this.acknowledged = count;
    this.uncertain -= settled;
    removePieces(this.#sent, settled);
  }

  /** Send what is not settled again, over another connection. */
  sendAgain() {
    this.#waiting = [...this.#sent, ...this.#waiting];
    this.#sent = [];
    this.unsent += this.uncertain;
    this.uncertain = 0;
  }

  /**
   * Count from 0, because the number of settled pieces is unknown.
   *
   * If any piece is uncertain, all input is dropped, also what was not sent: behind a hole it may mean
   * something else to the machine.
   *
   * @param {boolean} isExact nothing is uncertain: the machine has got none of the input that is not settled
   * @returns {object|null} as {@link drop}; null if nothing is dropped.
   */
  beginAnew(isExact) {
    this.acknowledged = 0;
    if (this.uncertain && !isExact) return this.drop();
    this.sendAgain();
    return null;
  }

  /** The number of keys and requests that the server has not settled. */
  get keys() {
    return this.sentKeys + keysIn(this.#waiting);
  }

  /** How many of these were sent: the machine may have got them. */
  get sentKeys() {
    return keysIn(this.#sent);
  }

  /** Drop all input; return the numbers of keys and requests: {sent, unsent}. */
  drop() {
    const dropped = { sent: keysIn(this.#sent), unsent: keysIn(this.#waiting) };
    this.#sent = [];
    this.#waiting = [];
    this.uncertain = this.unsent = 0;
    return dropped;
  }

  /**
   * Return the queue as a plain object for JSON.
   *
   * @param {boolean} mayBeSent before the page saves the queue again, so that all of it is uncertain.
   */
  save(mayBeSent) {
    const [sent, waiting] = [this.#sent, this.#waiting].map((items) => items.map(saveItem));
    const items = mayBeSent ? [...sent, ...waiting] : sent;
    return { acknowledged: this.acknowledged, items, waiting: mayBeSent ? [] : waiting };
  }

  /** Continue the queue of an earlier page; {@link settleRestored} takes the first Ack. */
  static restore({ acknowledged, items, waiting = [] }) {
    const queue = new InputQueue();
    queue.acknowledged = acknowledged;
    queue.#sent = items.map(restoreItem);
    queue.#waiting = waiting.map(restoreItem);
    queue.uncertain = count(queue.#sent);
    queue.unsent = queue.#restored = count(queue.#waiting);
    return queue;
  }

  /** As {@link settle}, for a number that may be larger than was saved, where the storage was full. */
  settleRestored(count) {
    if (count > this.sent) {
      const more = Math.min(count - this.sent, this.#restored);
      removePieces(this.#waiting, more);
      this.unsent -= more;
      this.#sent = [];
      this.uncertain = 0;
      this.acknowledged = count;
    }
    this.settle(count);
  }
}

/** Remove the first pieces of some items. */
function removePieces(items, count) {
  while (count > 0) {
    const item = items.shift();
    if (item instanceof Uint8Array && item.length > count) {
      items.unshift(item.subarray(count));
      return;
    }
    count -= pieces(item);
  }
}

function append(items, item) {
  const last = items.at(-1);
  if (item instanceof Uint8Array && last instanceof Uint8Array && last.length < MERGED_BYTES) {
    const merged = new Uint8Array(last.length + item.length);
    merged.set(last);
    merged.set(item, last.length);
    items[items.length - 1] = merged;
  } else {
    items.push(item);
  }
}

function saveItem(item) {
  return item instanceof Uint8Array ? btoa(binary(item)) : item;
}

/** Return bytes as a string with a character for each. */
function binary(bytes) {
  let text = "";
  for (let start = 0; start < bytes.length; start += 4096) {
    text += String.fromCharCode(...bytes.subarray(start, start + 4096));
  }
  return text;
}

function restoreItem(item) {
  return typeof item === "string" ? Uint8Array.from(atob(item), (char) => char.charCodeAt(0)) : item;
}
