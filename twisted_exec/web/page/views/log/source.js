/**
 * Reads a machine's log in pieces, and follows it.
 */

import { Backoff } from "../../backoff.js";
import { itemPath, listPath } from "../../objects.js";
import { rest, sleep } from "../../watch.js";
import { FrameDecoder, parseFraming } from "./frames.js";
import { LineReader, linesOf, trimmed } from "./lines.js";
import { around, before, FORM, from, PIECE_LINES, queryOf } from "./ranges.js";
import { decoded, plain } from "./text.js";

const SEARCH_PIECE_BYTES = 512 << 10;
/** Bytes that one search reads. */
export const SEARCH_BYTES = 8 << 20;
const STAMP_BYTES = 40; // a timestamp and one byte
const MOST_BOOTS = 12;
const TAIL_LINES = 1000;
const TAIL_BYTES = 1 << 20;
const LONGEST_WAIT_SECONDS = 15; // between two attempts to follow
const ANY = { Accept: "*/*" };
/** Answers that another attempt does not change; with 401 the page asks its user to log in. */
const FINAL = new Set([400, 403, 404, 410, 422, 501]);

/**
 * @typedef {object} Piece
 * @property {import("./lines.js").Line[]} lines
 * @property {number} start
 * @property {number} end
 */

/** The journal was lost, so the offsets that the page knows mean nothing any more. */
export class LogReplaced extends Error {
  constructor() {
    super("The log began anew: what was printed before is missing.");
    this.name = "LogReplaced";
  }
}

/**
 * The DeletedConsole of a machine; of several with that name, the one deleted last.
 *
 * @param {any} api
 * @param {string} namespace
 * @param {string} machine
 * @param {AbortSignal} signal
 * @returns {Promise<{path: string, time: string} | null>} the path of its log, and when the machine was deleted.
 */
export async function deletedLog(api, namespace, machine, signal) {
  let items;
  try {
    ({ items } = await api.list(listPath("deletedconsoles", namespace), { query: { fieldSelector: `spec.machine=${machine}` }, signal }));
  } catch {
    return null; // the user may not list them, or the server has none
  }
  const time = (console) => console.spec?.deletionTime ?? "";
  const [last] = items.sort((first, second) => (time(first) < time(second) ? 1 : -1));
  return last ? { path: itemPath("deletedconsoles", namespace, last.metadata.name, "log"), time: time(last) } : null;
}

/** The log of one machine, or one boot of it. */
export class LogSource {
  /** @type {any} range of the retained output, or of the chosen boot: offsets and epoch. Null if the server sends no offsets. */
  range = null;
  /** @type {number | null} The chosen boot: 0 is the newest, -1 the one before it; null for all output. */
  boot = null;
  #oldest = NaN;

  /**
   * @param {any} api
   * @param {string} path of the subresource.
   * @param {typeof sleep} [pause] before a lost log is followed again.
   */
  constructor(api, path, pause = sleep) {
    this.api = api;
    this.path = path;
    this.pause = pause;
  }

  /**
   * Learn the range of the log.
   *
   * @param {number | null} boot
   * @param {AbortSignal} signal
   */
  async open(boot, signal) {
    const framing = await this.#framing(boot === null ? {} : { boot: String(boot) }, signal);
    this.boot = boot;
    this.range = framing && { ...framing, end: framing.end ?? framing.start };
    if (boot === null && framing) this.#oldest = framing.start;
    return this.range;
  }

  /** Return the time of the oldest line that is retained; empty if there is none, or the server sends no offsets. */
  async since(signal) {
    const { framing, frames } = await this.#read({ ...FORM, limitBytes: STAMP_BYTES }, signal);
    return (framing && linesOf(frames, framing.start)[0]?.time) || "";
  }

  /** Learn the present end of the log. */
  async refresh(signal) {
    const epoch = this.range?.epoch;
    await this.open(this.boot, signal);
    if (epoch !== undefined && this.range?.epoch !== epoch) throw new LogReplaced();
  }

  /**
   * The offset of the first line with output since a time, or null if there is none.
   *
   * @param {string} time RFC 3339.
   * @param {AbortSignal} signal
   */
  async offsetAt(time, signal) {
    const framing = await this.#framing({ sinceTime: time }, signal);
    if (!framing || framing.end === undefined || framing.start >= framing.end) return null;
    return framing.start;
  }

  /**
   * The retained boots, from the newest on.
   *
   * @param {AbortSignal} signal
   * @returns {Promise<{boot: number, start: number, end: number, time: string}[]>}
   */
  async boots(signal) {
    const boots = [];
    for (let boot = 0; boot > -MOST_BOOTS; boot -= 1) {
      let found;
      try {
        found = await this.#read({ ...FORM, boot: String(boot), limitBytes: STAMP_BYTES }, signal);
      } catch (error) {
        if (error.code === 400) break;
        throw error;
      }
      if (!found.framing) break;
      const { start, end = start } = found.framing;
      boots.push({ boot, start, end, time: linesOf(found.frames, start)[0]?.time ?? "" });
      if (start <= this.#oldest) break;
    }
    return boots;
  }

  /** @param {AbortSignal} signal */
  newest(signal) {
    return this.#piece(before(this.range.end, this.range), "back", signal);
  }

  /** @param {number} offset @param {AbortSignal} signal */
  older(offset, signal) {
    return this.#piece(before(offset, this.range), "back", signal);
  }

  /** @param {number} offset @param {AbortSignal} signal */
  newer(offset, signal) {
    return this.#piece(from(offset, this.range), "forward", signal, { mayBeginWithin: false });
  }

  /** @param {number} offset @param {AbortSignal} signal */
  async at(offset, signal) {
    const range = around(offset, this.range);
    const piece = await this.#piece(range, "forward", signal);
    // Of very short lines there may be too many before the offset.
    return range && piece && piece.end <= offset && piece.end < range.end ? this.newer(offset, signal) : piece;
  }

  /**
   * The last lines of a log without offsets.
   *
   * @param {AbortSignal} signal
   * @returns {Promise<Piece>}
   */
  async tail(signal) {
    const query = { timestamps: "true", tailLines: TAIL_LINES, limitBytes: TAIL_BYTES };
    const bytes = await this.api.bytes(this.path, { query, signal });
    const { lines } = new LineReader(NaN).feed(bytes);
    return { lines, start: NaN, end: NaN };
  }

  /**
   * Search for a text, without regard to case.
   *
   * @param {string} text
   * @param {number} offset of the line from which to search, which itself is not searched.
   * @param {"back" | "forward"} direction
   * @param {AbortSignal} signal
   * @returns {Promise<{found: number | null, offset: number, isEnd: boolean}>} the offset of the line; or where the
   *   search stopped, and whether there is no more.
   */
  async search(text, offset, direction, signal) {
    const isMatch = matcher(text);
    let at = offset;
    for await (const piece of this.#pieces(offset, direction, signal)) {
      const lines = direction === "back" ? [...piece.lines].reverse() : piece.lines;
      const line = lines.find(isMatch);
      if (line) return { found: line.offset, offset: line.offset, isEnd: false };
      at = direction === "back" ? piece.start : piece.end;
    }
    const isEnd = direction === "back" ? at <= this.range.start : at >= this.range.end;
    return { found: null, offset: at, isEnd };
  }

  /**
   * Find all lines with a text, from the end of the log on as far back as one search reads.
   *
   * @param {string} text
   * @param {AbortSignal} signal
   * @returns {Promise<{offsets: number[], isWhole: boolean}>} the offsets of the lines in order; and whether there are no more.
   */
  async count(text, signal) {
    const isMatch = matcher(text);
    const offsets = new Set();
    let at = this.range.end;
    for await (const piece of this.#pieces(at, "back", signal)) {
      for (const line of piece.lines.filter(isMatch)) offsets.add(line.offset);
      at = piece.start;
    }
    return { offsets: [...offsets].sort((one, other) => one - other), isWhole: at <= this.range.start };
  }

  /** Read the log from the line at an offset on, piece by piece, but no more than SEARCH_BYTES. */
  async *#pieces(offset, direction, signal) {
    let at = offset;
    for (let bytes = 0; bytes < SEARCH_BYTES; ) {
      const range =
        direction === "back" ? before(at, this.range, SEARCH_PIECE_BYTES) : from(at, this.range, SEARCH_PIECE_BYTES);
      if (!range) return;
      const mayBeginWithin = direction === "back" ? range.start > this.range.start : at === offset && at >= this.range.start;
      const piece = /** @type {Piece} */ (
        await this.#piece(range, direction, signal, { mayBeginWithin, most: Infinity })
      );
      yield piece;
      bytes += range.end - range.start;
      at = direction === "back" ? piece.start : piece.end;
    }
  }

  /**
   * Follow the log until the signal aborts, over a WebSocket: a browser has few connections for other requests.
   *
   * @param {number} offset
   * @param {object} on
   * @param {(lines: import("./lines.js").Line[], changed: import("./lines.js").Line | null, end: number) => void} on.lines
   * @param {(state: "open" | "lost" | "ended", error?: Error) => void} on.state lost: it is followed again as soon as
   *   possible; ended: with the error, or because the log is complete.
   * @param {AbortSignal} signal
   */
  async follow(offset, on, signal) {
    let at = offset;
    const backoff = new Backoff(0.5, LONGEST_WAIT_SECONDS);
    while (!signal.aborted) {
      const reader = new LineReader(at);
      const decoder = new FrameDecoder();
      let isReplaced = false;
      const received = (data) => {
        backoff.reset();
        for (const { text, offset: behind } of decoder.feed(data)) {
          if (behind < at) isReplaced = true;
          if (isReplaced) return false;
          const { lines, changed } = reader.feed(text, behind);
          at = reader.lineStart;
          on.lines(lines, changed, behind);
        }
        return true;
      };
      const query = { ...FORM, follow: "true", fromOffset: String(at), epoch: this.range.epoch };
      const code = await this.#stream(query, received, () => on.state("open"), signal);
      if (signal.aborted) return;
      if (isReplaced || code === 1000) {
        on.state("ended", isReplaced ? new LogReplaced() : undefined);
        return;
      }
      on.state("lost");
      await rest(backoff.pause(), signal, this.api, this.pause);
      const refusal = await this.#refusal(signal);
      if (refusal && !signal.aborted) {
        on.state("ended", refusal);
        return;
      }
    }
  }

  /** Ask why a log ended: a browser does not tell the answer to a WebSocket. */
  async #refusal(signal) {
    try {
      const framing = await this.#framing({}, signal);
      return framing?.epoch === this.range.epoch ? null : new LogReplaced();
    } catch (error) {
      return FINAL.has(error.code) ? error : null;
    }
  }

  #stream(query, received, opened, signal) {
    return new Promise((resolve) => {
      const { api } = this;
      const socket = new api.WebSocket(api.webSocketURL(this.path, query), api.webSocketProtocols("binary.k8s.io"));
      let isGood = true;
      socket.binaryType = "arraybuffer";
      const leave = () => socket.close();
      const endSilence = api.untilSilent(() => {
        isGood = false;
        socket.close(); // which a silent server does not answer for long
        ended(1006);
      });
      const ended = (code) => {
        endSilence();
        signal.removeEventListener("abort", leave);
        resolve(isGood ? code : 1006);
      };
      signal.addEventListener("abort", leave, { once: true });
      socket.onopen = opened;
      socket.onmessage = ({ data }) => {
        api.heard();
        if (signal.aborted || !isGood) return;
        try {
          isGood = received(new Uint8Array(data));
        } catch {
          isGood = false; // not frames: a hop of another project
        }
        if (!isGood) socket.close();
      };
      socket.onclose = ({ code }) => ended(code);
    });
  }

  async #piece(range, direction, signal, more = {}) {
    if (!range) return null;
    const { frames, framing } = await this.#read(queryOf(range, this.range.epoch), signal);
    if (framing && framing.epoch !== this.range.epoch) throw new LogReplaced();
    const start = framing?.start ?? range.start;
    const options = {
      direction,
      mayBeginWithin: range.start > this.range.start,
      isEnd: range.end >= this.range.end,
      most: PIECE_LINES,
      ...more,
    };
    return trimmed(linesOf(frames, start), { start, end: range.end }, options);
  }

  async #framing(query, signal) {
    return (await this.#read({ ...FORM, ...query, limitBytes: 1 }, signal)).framing;
  }

  async #read(query, signal) {
    const response = await this.api.fetch(this.path, { query, signal, headers: ANY });
    const framing = parseFraming(response.headers.get("Console-Log"));
    if (!framing) {
      await response.body?.cancel();
      return { framing, frames: [] };
    }
    return { framing, frames: new FrameDecoder().feed(new Uint8Array(await response.arrayBuffer())) };
  }
}

/** Return a test of lines for a text, without regard to case. */
function matcher(text) {
  const wanted = text.toLowerCase();
  return (line) => plain(decoded(line.bytes)).toLowerCase().includes(wanted);
}
