/**
 * A console session over WebSockets, which goes on behind lost connections and reloads of the page.
 *
 *     const session = new ConsoleSession({
 *       url: () => "wss://HOST/apis/.../machines/NAME/exec?stdin=true&stdout=true&tty=true",
 *       protocols: () => ["v5.channel.k8s.io", "base64url.bearer.authorization.k8s.io.TOKEN"],
 *       saved,                                // what keep() got last, or null
 *       keep: (saved) => store(saved),        // null: the session is over
 *       on: { output(bytes) {...}, state(name, detail) {...} },
 *     });
 *
 * The states and their details:
 *
 *     connecting    {message, code, unauthorized, isSilent}
 *                                           input waits; without a message this is the first attempt; isSilent:
 *                                           the server has not answered in time
 *     open          {resumable}             without resumable a lost connection is the end
 *     reconnecting  {since, restarts, keptSeconds, sent, message, code, unauthorized, isSilent}
 *                                           since: milliseconds of the clock, from the message that the server has
 *                                           not answered, or from the loss if it owed nothing; restarts: which
 *                                           program the server has said to restart; keptSeconds: for so
 *                                           long the server keeps the session, and no key is sent after a longer
 *                                           outage, 0: unknown; sent: keys that the machine may have got;
 *                                           unauthorized: the token is refused, and the next attempt is that of reconnectNow()
 *     resumed       {seconds, missed, anew} open again; missed: bytes of output meanwhile; anew: {sent, unsent}, the input that
 *                                           was dropped, if the server had lost the session, as by a crash of the runtime
 *     ended         {reason, message, code, exitCode, kind, name, causes}: see readStatus in channel.js
 *                   and unconfirmed: {sent, unsent}, input that may not have arrived, in keys
 *
 * The owner calls taken(COUNT) for output that it has shown, else the server stops after 128 KiB.
 */

import { CANNOT_START, has } from "../details.js";
import * as channel from "./channel.js";
import { Claim } from "./claim.js";
import { Connection } from "./connection.js";
import { keysIn } from "./input.js";
import { Liveness, systemClock } from "./liveness.js";
import { Reconnecting } from "./reconnecting.js";
import { SessionProgress } from "./resume.js";

const KEEP_MILLISECONDS = 250;
/** Of a user who types no more, and who has seen what the machine shows now. */
const PAUSE_MILLISECONDS = 1000;
const NORMAL_CLOSURE = 1000;
const GOING_AWAY = 1001;
/** A program on the path restarts, as its reason says; see RESTART_CODE in twisted_exec/wire/resume.py. */
const RESTART = 1012;
/** The session goes on over another connection: a server that was silent may read this Close later. */
const GIVEN_UP = 4001;
/** Reason of an end: the program of the page's own computer was stopped. */
export const STOPPED = "WebConsoleStopped";
/** Kind of the notice that the machine has started again. */
const RESTARTED = "restarted";
/** What else may be in the way where no answer comes. */
const UNREACHABLE = "A proxy in front of it, such as kubectl proxy with a client certificate, may not pass WebSockets on.";
/** The roles on the wire, by the modes of the page. */
const ROLES = { drive: "drive", observe: "watch" };

export class ConsoleSession {
  #options;
  #on;
  #clock;
  #progress;
  #state = ""; // as above, or "resuming": input goes, and the position of the output is still to come
  #id; // of the session in this browser
  #claim = new Claim();
  #reconnecting;
  /** @type {Connection | null} */
  #connection = null;
  /** @type {{Width: number, Height: number} | null} */
  #size = null;
  #restarts = ""; // which program the server of the lost connection has said to restart
  /** @type {number | null} */
  #lostAt = null; // of the present outage; a session without one has nothing to return to
  /** @type {{sent: number, unsent: number} | null} */
  #anew = null; // as of the state resumed
  #liveness;
  #keepTimer = null;
  #typedAt = -Infinity;
  #isBehind = false; // what is typed now may be for the machine as it was before an outage, or before its last start
  #answerTimer = null;
  #stopListening;

  /**
   * @param {object} options
   * @param {string|function(): string} options.url
   * @param {function(): string[]} options.protocols those of each connection, without the one for resuming.
   * @param {any} [options.saved]
   * @param {(saved: object | null) => void} [options.keep] stores a plain object, before it returns.
   * @param {number} [options.replayBytes] output before the saved position that is sent again: the
   *     new page has an empty screen.
   * @param {function(): Promise<{code: number, message: string}|null>} [options.explain] asks the server in
   *     another way why it refuses the handshake: a browser does not say.  null if it is out of reach.
   * @param {any} [options.clock] and events, locks, random, WebSocket: those of the browser, for tests.
   * @param {any} [options.events]
   * @param {any} [options.locks]
   * @param {() => number} [options.random]
   * @param {any} [options.WebSocket]
   * @param {any} options.on callbacks, each optional: output(bytes), placed({epoch, offset, end, exact}),
   *     gap({bytes, exact}), notice(mark), viewers({count, lost, writer, seconds}), echo(microseconds),
   *     uncertain({sent, unsent}), roundTrip(milliseconds), quiet(since): the server has not answered a question of
   *     that time, null: it has now; state(name, detail).
   */
  constructor(options) {
    this.#options = options;
    this.#on = options.on ?? {};
    this.#clock = options.clock ?? systemClock;
    this.#progress = new SessionProgress(null);
    this.#reconnecting = new Reconnecting(this.#clock, {
      attempt: () => this.#connect(),
      timedOut: (message) => this.#unreached(message, true),
      random: options.random ?? Math.random,
    });
    this.#liveness = new Liveness(this.#clock, {
      ask: () => this.#transmit(channel.encodeControl({ Ping: this.#clock.now() })),
      quiet: (since) => this.#on.quiet?.(since),
      silent: (seconds) => this.#lost(`the server was silent for ${seconds} s`),
    });
    this.#stopListening = listen(options.events ?? globalThis, {
      usable: () => this.reconnectNow(),
      hidden: () => this.#keepNow(),
      left: () => this.#leftPage(),
    });
    this.#enter("connecting", {});
    this.#begin(options.saved ?? null);
  }

  // For the owner.

  /** The present state. */
  get state() {
    return this.#state === "resuming" ? "resumed" : this.#state;
  }

  /** The id of the newest connection, for support; empty if the server has named none. */
  get id() {
    return this.#progress.session;
  }

  /** Whether the queue of input is full: the owner should accept no more. */
  get isFull() {
    return this.#progress.input.isFull;
  }

  /** How many keys and requests the server has not confirmed. */
  get waiting() {
    return this.#progress.input.keys;
  }

  /** Type bytes. */
  send(bytes) {
    if (bytes.length) this.#put(bytes);
  }

  /** Drop the input that was not sent yet; return how many keys. */
  discard() {
    return this.#progress.input.drop().unsent;
  }

  /** Send a BREAK. */
  sendBreak(milliseconds = 250) {
    this.#put({ Break: milliseconds });
  }

  /** Send Magic SysRq: BREAK and a letter. */
  sysrq(letter) {
    this.sendBreak();
    this.send(new TextEncoder().encode(letter.slice(0, 1)));
  }

  /** Ask for a role: "drive", also to take over, or "observe". */
  role(name) {
    this.#put({ Role: ROLES[name] });
  }

  /** Send a message to the other users of the console, which is no input; return whether there is a connection for it. */
  say(text) {
    if (this.#isOpen) this.#transmit(channel.encodeControl({ ...(this.#size ?? { Width: 0, Height: 0 }), Message: text }));
    return this.#isOpen;
  }

  /** Tell the size of the terminal. */
  resize(columns, rows) {
    this.#size = { Width: columns, Height: rows };
    if (this.#isOpen) this.#transmit(channel.encodeControl(this.#size));
  }

  /** Tell that so many more bytes of output were shown. */
  taken(count) {
    const number = this.#progress.take(count);
    if (number !== null && this.#isOpen) this.#transmit(channel.encodeControl({ Taken: number }));
  }

  /** End the session. */
  leave() {
    this.#end({ reason: "UserLeft", message: "" });
  }

  /** Try at once; or find out at once whether an open connection still is one. */
  reconnectNow() {
    const isTrying = ["connecting", "reconnecting"].includes(this.#state) && this.#reconnecting.hasBegun;
    if (isTrying) this.#reconnecting.now();
    else if (this.#isOpen && this.#progress.isResumable) this.#liveness.probe();
  }

  /** Another session has reached the server: do not wait for it any more. */
  wake() {
    this.#reconnecting.wake();
  }

  /** Return a plain object from which another page goes on with the session; null if none can. */
  save() {
    const saved = this.#state === "ended" ? null : this.#progress.save(this.#connection !== null && this.#progress.isResumable);
    return saved === null ? null : { ...saved, id: this.#id, lostAt: this.#lostAt };
  }

  // The beginning.

  async #begin(saved) {
    const locks = this.#options.locks ?? globalThis.navigator?.locks;
    const restored = restore(saved, this.#options.replayBytes ?? 0);
    const ours = restored !== null && (await this.#claim.take(saved.id, locks, this.#clock));
    if (ours) {
      this.#id = saved.id;
      for (const item of this.#progress.input.takeAll()) restored.input.put(item);
      this.#progress = restored;
    } else {
      this.#id = crypto.randomUUID();
      await this.#claim.take(this.#id, locks, this.#clock);
    }
    if (this.#state !== "ended") {
      this.#lostAt = ours ? (saved.lostAt ?? this.#clock.now()) : null;
      this.#reconnecting.start();
    }
  }

  // Connections.

  get #isOpen() {
    return ["open", "resuming", "resumed"].includes(this.#state);
  }

  /** For how long the connection has been lost; 0: it is not. */
  get #lostSeconds() {
    return this.#lostAt === null ? 0 : (this.#clock.now() - this.#lostAt) / 1000;
  }

  #connect() {
    this.#drop();
    const { url, protocols, WebSocket = globalThis.WebSocket } = this.#options;
    const resume = channel.resumeProtocol(this.#progress.connect());
    const socket = new WebSocket(typeof url === "function" ? url() : url, [...protocols(), resume]);
    this.#connection = new Connection(socket, {
      heard: () => this.#liveness.heard(),
      unmarked: () => this.#openOrdinary(),
      mark: (mark) => this.#act(this.#progress.receiveMark(mark, this.#lostSeconds)),
      output: (bytes) => {
        this.#progress.receiveOutput(bytes);
        this.#on.output?.(bytes);
      },
      status: (status) => this.#receiveStatus(status),
      broken: ({ message }) => this.#end({ reason: "ProtocolError", message: `the server broke the protocol: ${message}` }),
      closed: (closing) => {
        this.#connection = null;
        this.#closed(closing);
      },
    });
  }

  /** Let go of the present connection. */
  #drop(code = GIVEN_UP) {
    const connection = this.#connection;
    this.#connection = null;
    this.#liveness.stop();
    this.#clock.clearTimeout(this.#answerTimer);
    connection?.close(code);
  }

  async #closed({ code, reason, wasOpened }) {
    if (code === GOING_AWAY && reason) {
      this.#end({ reason: STOPPED, message: reason });
      return;
    }
    if (this.#isOpen) {
      this.#lost(reason, code === RESTART);
    } else if (wasOpened || !this.#options.explain) {
      this.#unreached(reason);
    } else {
      const refusal = await this.#options.explain().catch(() => null);
      if (this.#connection === null && this.#state !== "ended") {
        if (refusal === null) this.#unreached(reason);
        else this.#refused(refusal);
      }
    }
  }

  /** The connection of an open session is lost. */
  #lost(message, isRestart = false) {
    this.#restarts = isRestart ? message : "";
    this.#progress.isExact = isRestart;
    const since = this.#liveness.waitsSince ?? this.#clock.now(); // the user may have read of the silence before
    this.#drop();
    if (!this.#progress.isResumable) {
      this.#end({ reason: "ConnectionLost", message });
      return;
    }
    this.#lostAt ??= since;
    this.#failed({ message, unauthorized: false });
    this.#reconnecting.start();
  }

  /** The browser may keep the page for a return: meanwhile its user is no viewer, and no attempt is made. */
  #leftPage() {
    if (this.#isOpen) this.#lost("the page was left");
    else this.#drop();
    this.#keepNow(); // nothing is sent any more
    this.#reconnecting.stop();
  }

  /** An attempt has failed without an answer, after the time for it if the server is silent. */
  #unreached(message, isSilent = false) {
    this.#drop();
    this.#failed({ message: this.#lostAt === null ? UNREACHABLE : message, code: 0, unauthorized: false, isSilent });
    this.#reconnecting.unreached();
  }

  /**
   * The server has refused an attempt.
   *
   * @param {any} refusal
   */
  #refused({ code, reason = "", message, retryAfterSeconds = 0, kind = "", name = "", causes = [] }) {
    this.#drop();
    if (code === 401) {
      this.#reconnecting.stop();
      this.#failed({ message, code, unauthorized: true });
    } else if (this.#progress.refused(code)) {
      this.#reconnecting.stop();
      this.#reconnecting.now();
    } else if (this.#reconnecting.retries(code, causes) && (this.#lostAt !== null || (code !== 403 && !has(causes, CANNOT_START)))) {
      this.#failed({ message, code, unauthorized: false });
      this.#reconnecting.wait(retryAfterSeconds);
    } else {
      this.#end({ reason: reason || "Refused", message, code, kind, name, causes });
    }
  }

  /** An attempt has failed: of the first connection, or of a later one. */
  #failed(detail) {
    if (this.#lostAt === null) this.#enter("connecting", detail);
    else this.#enter("reconnecting", { since: this.#lostAt, keptSeconds: this.#progress.keptSeconds, sent: this.#progress.input.sentKeys, ...(this.#restarts && { restarts: this.#restarts }), ...detail });
  }

  // What arrives.

  /** The server sends no marks. */
  #openOrdinary() {
    if (this.#progress.resumes) {
      this.#end({ reason: "CannotResume", message: "the server cannot resume this session" });
      return;
    }
    this.#reconnecting.succeeded();
    this.#enter("open", { resumable: false });
    this.#greet();
  }

  #receiveStatus(status) {
    if (!this.#progress.isResumable && !this.#isOpen && status.code) this.#refused(status);
    else if (!(status.reason === "Resumed" && this.#progress.mayResumeAgain)) this.#end(status);
  }

  /** @param {import("./resume.js").Effects} effects */
  #act(effects) {
    if (effects.key) {
      this.#keepNow(); // before the server hears this page, and forgets the key before
    }
    if (effects.ready) {
      this.#anew = this.#progress.isAnew ? (effects.uncertain ?? { sent: 0, unsent: 0 }) : null;
      this.#ready();
    }
    if (effects.placed) this.#placed(effects.placed);
    for (const name of ["uncertain", "gap", "notice", "viewers", "echo"]) {
      if (name in effects) this.#on[name]?.(effects[name]);
    }
    this.#isBehind ||= effects.notice?.Kind === RESTARTED;
    if (effects.ping !== undefined) this.#answer(effects.ping);
    if (effects.pong !== undefined) this.#on.roundTrip?.(Math.max(0, this.#clock.now() - effects.pong));
    this.#flush();
  }

  /**
   * Answer a question, behind all input so far. If the machine has started again, the server discards and counts what arrives
   * before the answer: a user who goes on typing blindly must not type the rest of a line into the new boot.
   */
  #answer(number) {
    const rest = this.#isBehind ? this.#typedAt + PAUSE_MILLISECONDS - this.#clock.now() : 0;
    if (rest > 0) {
      this.#clock.clearTimeout(this.#answerTimer);
      this.#answerTimer = this.#clock.setTimeout(() => this.#answer(number), rest);
      return;
    }
    this.#isBehind = false;
    this.#flush();
    this.#transmit(channel.encodeControl({ Pong: number }));
  }

  #ready() {
    this.#reconnecting.succeeded();
    if (this.#lostAt === null) {
      this.#enter("open", { resumable: true });
    } else {
      this.#state = "resuming"; // the owner learns of it with the position
      this.#isBehind = true;
    }
    this.#greet();
    this.#liveness.start();
  }

  #greet() {
    if (this.#size !== null) this.#transmit(channel.encodeControl(this.#size));
    this.#flush();
  }

  #placed(placed) {
    if (this.#state === "resuming") {
      const seconds = this.#lostSeconds;
      this.#lostAt = null;
      this.#enter("resumed", { seconds, missed: Math.max(0, (placed.end ?? 0) - placed.offset), ...(this.#anew && { anew: this.#anew }) });
    }
    this.#keepNow();
    this.#on.placed?.(placed);
  }

  // What is sent.

  #put(item) {
    if (this.#state === "ended") return;
    if (keysIn([item])) this.#typedAt = this.#clock.now();
    this.#progress.input.put(item);
    this.#flush();
    this.#keepTimer ??= this.#clock.setTimeout(() => this.#keepNow(), KEEP_MILLISECONDS);
  }

  #flush() {
    if (!this.#isOpen) return;
    const items = this.#progress.isResumable ? this.#progress.takeInput() : this.#progress.input.takeAll();
    if (items.length && this.#progress.isResumable) this.#liveness.typed();
    for (const item of items) {
      if (item instanceof Uint8Array) this.#transmit(channel.encode(channel.STDIN, item));
      else this.#transmit(channel.encodeControl({ ...(this.#size ?? { Width: 0, Height: 0 }), ...item }));
    }
  }

  #transmit(message) {
    this.#connection?.send(message);
  }

  #keepNow() {
    this.#clock.clearTimeout(this.#keepTimer);
    this.#keepTimer = null;
    const saved = this.save();
    try {
      if (saved !== null) this.#options.keep?.(saved);
    } catch {
      // The storage of the browser is full: the session goes on, and only a reload would end it.
    }
  }

  // The end.

  #enter(state, detail) {
    this.#state = state;
    this.#on.state?.(state, detail);
  }

  #end({ reason, message, code = 0, exitCode = null, kind = "", name = "", causes = [] }) {
    if (this.#state === "ended") return;
    this.#reconnecting.stop();
    this.#clock.clearTimeout(this.#keepTimer);
    this.#drop(NORMAL_CLOSURE);
    this.#stopListening();
    this.#claim.release();
    this.#state = "ended";
    this.#options.keep?.(null);
    const unconfirmed = this.#progress.input.drop();
    this.#on.state?.("ended", { reason, message, code, exitCode, kind, name, causes, unconfirmed });
  }
}

/** Return the progress of a session of an earlier page; null if there is none, or if it cannot be read. */
function restore(saved, replayBytes) {
  try {
    return saved && new SessionProgress(saved, replayBytes);
  } catch {
    return null; // by another release of the page
  }
}

/**
 * Listen to what happens to the tab and its network.
 *
 * @param {any} target the window.
 * @param {object} on usable(): the network is back, or the page is shown again; hidden(): the page is
 *     hidden, and may be closed without another word; left(): the user went to another page.
 * @returns {function()} ends it.
 */
export function listen(target, { usable, hidden, left }) {
  if (typeof target.addEventListener !== "function") return () => {};
  const { document } = target;
  const changed = () => (document.hidden ? hidden() : usable());
  const events = [
    [target, "online", usable],
    [target, "pagehide", left],
    [target, "pageshow", usable],
    ...(document ? [[document, "visibilitychange", changed]] : []),
  ];
  events.forEach(([place, name, call]) => place.addEventListener(name, call));
  return () => events.forEach(([place, name, call]) => place.removeEventListener(name, call));
}
