/**
 * A session that outlives its connections: the position of its output, and the input that the server has settled.
 *
 * No sockets and no timers: the caller passes on what arrives, and sends what the methods return.
 * docs/explanation/resume.rst describes the protocol, and why no byte is lost and none comes twice.
 */

import { ProtocolError, isCount } from "./channel.js";
import { InputQueue } from "./input.js";

/** Bytes of output that the server may send before the page has shown those before. */
export const CREDIT_BYTES = 128 * 1024;

/** Marks that have arrived on a connection, in the order in which they do: none, Session, Ack, At. */
const [UNMARKED, KEPT, READY, PLACED] = [0, 1, 2, 3];

/** Of a page that was loaded again before the first At: no journal has this epoch, so the server begins as for a new user. */
const UNKNOWN = { epoch: "0000000000000000", offset: 0 };

const EPOCH = /^[0-9a-f]{16}$/;
const KEY = /^[A-Za-z0-9_-]{43,128}$/;
const INPUTS = ["none", "masked", "all"];
const SESSION = /^[A-Za-z0-9._-]{1,64}$/;

/** @typedef {{epoch: string, offset: number}} Position */

/**
 * @typedef {object} Effects
 *     What the caller does about a mark.  Members that do not apply are absent.
 * @property {boolean} [key] the session has another key: store {@link SessionProgress.save} now.
 * @property {boolean} [ready] input may be sent from now on: sizes first, then {@link SessionProgress.takeInput}.
 * @property {object} [uncertain] keys that were dropped: {sent, unsent}; the fate of those that were sent is
 *     unknown.
 * @property {object} [placed] the next output begins here: {epoch, offset, end, exact}; end may be null.
 * @property {object} [gap] output is missing: {bytes, exact}; bytes is null if the amount is unknown.
 * @property {object} [notice] a message for people: the mark, with its kind.
 * @property {object} [viewers] {count, lost, writer, seconds, hasBreak, recordings, withheld, message}; count includes the sessions whose
 *     connections are lost, the writer is empty if there is none, recordings are [{input, user, policies}], or null if the
 *     server does not know them, message is the longest message to all viewers, 0 for none.
 * @property {number} [echo] microseconds.
 * @property {number} [ping] to be answered behind all input that waits.
 * @property {number} [pong] the answer to the page's own question.
 */

export class SessionProgress {
  /**
   * The position of the next byte of output; null before the first At.
   *
   * @type {Position | null}
   */
  position = null;
  input = new InputQueue();
  /** The id of the newest connection, for support; empty before the first. */
  session = "";
  /** For how long the server keeps the session after the loss of a connection; 0: unknown. */
  keptSeconds = 0;
  /** Whether the server of this connection knows nothing of the session before, as after a crash of the runtime. */
  isAnew = false;
  /** Whether the last Ack of the lost connection counts all input that the machine has got, because its server has said that it restarts. */
  isExact = false;
  #keptBefore = 0; // the same, as the server of the connection before has said
  hops = "";
  #keys = []; // of the newest connection, and of the one before
  #usesEarlier = false;
  /** @type {Position | null} */
  #first = null; // the position of the session's first output
  #isRestored = false;
  #phase = UNMARKED; // of this connection
  #received = 0; // bytes of output of this connection
  #total = 0; // bytes of output of all connections, at the beginning of this one
  #taken = 0; // bytes of output of all connections that the page has shown
  #reported = 0;

  /**
   * @param {object|null} saved as {@link save} has returned it to an earlier page.
   * @param {number} replayBytes output before the saved position that the new page shows again.
   */
  constructor(saved = null, replayBytes = 0) {
    if (saved !== null) {
      if (saved.position !== null) {
        const { epoch, offset } = saved.position;
        const first = saved.first.epoch === epoch ? saved.first.offset : 0;
        this.position = { epoch, offset: Math.min(offset, Math.max(first, offset - replayBytes)) };
      }
      this.#first = saved.first;
      this.#keys = saved.keys;
      this.keptSeconds = saved.seconds ?? 0;
      this.session = saved.keys[0].session;
      this.input = InputQueue.restore(saved.input);
      this.#isRestored = true;
    }
  }

  /**
   * Return a plain object for JSON, from which another page goes on; null if none can.
   *
   * @param {boolean} mayBeSent of the input that waits, before the next call
   */
  save(mayBeSent) {
    if (this.#keys.length === 0) return null;
    return {
      position: this.position,
      first: this.#first,
      keys: this.#keys,
      seconds: this.keptSeconds,
      input: this.input.save(mayBeSent),
    };
  }

  /** Whether the server of this connection keeps the session after a loss. */
  get isResumable() {
    return this.#phase >= KEPT;
  }

  /** Whether the next connection goes on with a session that exists. */
  get resumes() {
    return this.#keys.length > 0 && (this.position !== null || this.#isRestored);
  }

  /** Whether input may be sent. */
  get isReady() {
    return this.#phase >= READY;
  }

  /** Begin another connection; return the value of X-Twisted-Exec-Resume for its request. */
  connect() {
    this.#phase = UNMARKED;
    this.#total += this.#received;
    this.#received = this.#reported = 0;
    const credit = `; credit=${CREDIT_BYTES}`;
    if (!this.resumes) {
      this.#keys = [];
      return `marks${credit}`;
    }
    const { key, session } = this.#keys[this.#usesEarlier ? 1 : 0];
    const { epoch, offset } = this.position ?? UNKNOWN;
    return `key=${key}; session=${session}; epoch=${epoch}; from=${offset}${credit}`;
  }

  /**
   * Return whether another request can succeed at once, behind a refusal.
   *
   * The key before is valid until the server has heard this page on the newest connection.
   */
  refused(code) {
    if (code === 404 && this.#keys.length > 1 && !this.#usesEarlier) {
      this.#usesEarlier = true;
      return true;
    }
    return false;
  }

  /** Return whether a status Resumed is the late arrival of an attempt of this page. */
  get mayResumeAgain() {
    return this.isReady && this.#keys.length > 1;
  }

  /** Count output.  Throws ProtocolError if its position is unknown. */
  receiveOutput(bytes) {
    if (bytes.length === 0) return;
    if (this.isResumable) {
      if (this.#phase !== PLACED || !this.position) throw new ProtocolError("output without a position");
      this.position = { ...this.position, offset: this.position.offset + bytes.length };
    }
    this.#received += bytes.length;
  }

  /**
   * Take note of output that the page has shown, on any connection.
   *
   * @returns {number|null} the number for {"Taken":N}; null if the server need not know yet.
   */
  take(count) {
    this.#taken += count;
    const taken = Math.max(0, this.#taken - this.#total);
    if (!this.isResumable || taken - this.#reported < CREDIT_BYTES / 4) return null;
    this.#reported = taken;
    return taken;
  }

  /** Return the input that is to be sent now. */
  takeInput() {
    return this.isReady ? this.input.take() : [];
  }

  /**
   * Handle a mark.
   *
   * @param {any} mark
   * @param {number} lostSeconds for how long the session has had no connection until now: after {@link keptSeconds} its
   *     user counts on no key to be sent, because a server that noticed the loss has given the session up.
   * @returns {Effects}
   * @throws {ProtocolError}
   */
  receiveMark(mark, lostSeconds = 0) {
    if ("Session" in mark) return this.#adopt(mark);
    if (!this.isResumable) return {};
    if ("Ack" in mark) return this.#settle(mark.Ack, lostSeconds);
    if (!this.isReady) throw new ProtocolError("the first mark is not Ack");
    if ("At" in mark) return this.#place(mark);
    if ("Viewers" in mark) {
      const [count, seconds, writer] = [mark.Viewers, mark.Seconds ?? 0, mark.Writer ?? ""];
      if (!isCount(count) || !isCount(seconds) || typeof writer !== "string") {
        throw new ProtocolError("a mark Viewers has no valid number or name");
      }
      const [lost, message] = [mark.Lost, mark.Message].map((each) => (isCount(each) ? each : 0)); // an earlier release does not say
      const withheld = typeof mark.Withheld === "string" ? mark.Withheld : "";
      const [columns, rows] = [mark.Width, mark.Height];
      const size = isCount(columns) && isCount(rows) && columns && rows ? [columns, rows] : null;
      return { viewers: { count, lost, writer, seconds, hasBreak: mark.Break !== false, recordings: recordings(mark.Recordings), withheld, message, size } };
    }
    for (const [member, name] of [["Echo", "echo"], ["Ping", "ping"], ["Pong", "pong"]]) {
      if (member in mark) {
        if (!isCount(mark[member])) throw new ProtocolError(`a mark ${member} has no valid number`);
        return { [name]: mark[member] };
      }
    }
    return typeof mark.Notice === "string" ? { notice: mark } : {};
  }

  #adopt(mark) {
    const { Session: session, Key: key, Seconds: seconds } = mark;
    const isValid = typeof key === "string" && KEY.test(key) && typeof session === "string";
    if (!isValid || !SESSION.test(session) || !isCount(seconds) || this.isResumable) {
      throw new ProtocolError("a mark Session is not valid");
    }
    const before = this.#keys[this.#usesEarlier ? 1 : 0];
    this.#keys = before === undefined ? [{ key, session }] : [{ key, session }, before];
    this.#usesEarlier = false;
    this.session = session;
    this.#keptBefore = this.keptSeconds;
    this.keptSeconds = seconds;
    this.hops = typeof mark.Hops === "string" ? mark.Hops : "";
    this.#phase = KEPT;
    return { key: true };
  }

  #settle(count, lostSeconds) {
    if (count !== null && !isCount(count)) throw new ProtocolError("a mark Ack has no valid number");
    if (this.isReady) {
      if (count === null) throw new ProtocolError("an Ack without a number is not at the beginning");
      this.input.settle(count);
      return {};
    }
    const isLate = this.#keptBefore > 0 && lostSeconds > this.#keptBefore;
    let uncertain = null;
    this.isAnew = count === null && !this.isExact;
    // The server knows nothing of the input before this connection.
    const isNew = count === null || (this.position === null && !this.#isRestored);
    if (!isNew) {
      if (this.#isRestored) this.input.settleRestored(count);
      else this.input.settle(count);
    }
    if (isLate) uncertain = this.input.drop();
    else if (isNew) uncertain = this.input.beginAnew(this.isExact);
    else this.input.sendAgain();
    if (isNew) this.input.acknowledged = count ?? 0;
    this.#isRestored = false;
    this.#phase = READY;
    return uncertain?.sent || uncertain?.unsent ? { ready: true, uncertain } : { ready: true };
  }

  #place(mark) {
    const { At: offset, Epoch: epoch } = mark;
    if (!isCount(offset) || typeof epoch !== "string" || !EPOCH.test(epoch)) {
      throw new ProtocolError("a mark At has no valid position");
    }
    const before = this.position;
    const exact = mark.Exact !== false;
    this.#phase = PLACED;
    this.position = { epoch, offset };
    this.#first ??= this.position;
    const placed = { epoch, offset, exact, end: isCount(mark.End) ? mark.End : null };
    if (before === null || (before.epoch === epoch && before.offset === offset)) return { placed };
    if (before.epoch !== epoch) {
      this.#first = this.position;
      return { placed, gap: { bytes: null, exact: false } };
    }
    if (offset < before.offset) throw new ProtocolError("the output goes back to an earlier position");
    return { placed, gap: { bytes: exact ? offset - before.offset : null, exact } };
  }
}

/** @param {unknown} listed */
function names(listed) {
  return Array.isArray(listed) ? listed.filter((each) => each && typeof each === "string") : [];
}

/** Return the recordings of a mark; null if it has none that can be read, for they only inform. */
function recordings(marked) {
  if (!Array.isArray(marked)) return null;
  return marked
    .filter((each) => INPUTS.includes(each?.Input) && typeof each.User === "string")
    .map(({ Input: input, User: user, Policies: policies }) => ({ input, user, policies: names(policies) }));
}
