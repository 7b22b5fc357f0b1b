/** One session at a console, from its request to its end. A console that is opened again gets another one. */

import { KEPT_SESSION } from "../details.js";
import { hasNoScreen, readScreen } from "../screens.js";
import { InputQueue } from "../session/input.js";
import { ConsoleSession } from "../session/session.js";
import { zonedTime } from "../times.js";
import { FirstScreen, stateOutput } from "./first_screen.js";
import { explain } from "./rights.js";
import { amount } from "./texts.js";

const SUBPROTOCOL = "v5.channel.k8s.io";
const REPLAY_BYTES = 256 << 10;

export class Attachment {
  /** @type {ConsoleSession | null} null before the start. */
  session = null;
  #context;
  #place;
  #screen;
  #on;
  #request;
  #token; // of the last attempt to connect
  #first;
  #saved; // session of the page before a reload, or null
  #replayed = 0; // bytes of its output that come again
  #isReturning; // to a session of the page before a reload, or of a lost connection
  #hadSession; // or has one: its end is not only that of an attempt
  #hasOutput = false;
  #isReplaced = false;
  #pastUntil = -1; // end of the output from before the session
  #isPast = false; // the newest position is within that
  #opened; // resolves #whenOpen
  #whenOpen = new Promise((resolve) => (this.#opened = resolve));

  /**
   * @param {object} context of the page
   * @param {{namespace: string, name: string, reason: string, observes?: string | boolean}} place
   * @param {object} options
   * @param {{path: string, query: object}} options.request as rights.js returns it
   * @param {import("./screen.js").Screen} options.screen
   * @param {boolean} options.follows whether it takes the place of a session that has ended
   * @param {object} options.on callbacks as of ConsoleSession, all of them but output() and gap();
   *     shown(): the terminal shows the console as it is, or was at its end, or when the connection was lost; skipped(what): output was left out, such as `2 KiB of output`
   */
  constructor(context, place, { request, screen, on, follows }) {
    this.#context = context;
    this.#place = place;
    this.#screen = screen;
    this.#on = on;
    this.#saved = savedSession(context, place);
    this.#isReturning = this.#saved !== null;
    this.#hadSession = follows || this.#isReturning;
    // Another connection of a session has the path and the query of the first.
    this.#request = this.#saved?.request ?? request;
    this.#first = new FirstScreen({
      read: () => this.#readState(),
      show: (bytes) => {
        this.#hasOutput = true;
        screen.write(bytes, () => this.session?.taken(bytes.length));
      },
      picture: (picture, size) => {
        this.#hasOutput = true;
        screen.show(picture, size);
      },
      whole: () => screen.write("", () => on.shown?.()),
    });
  }

  /** Open the session, or go on with the one that was saved before a reload. */
  start() {
    const { api, store } = this.#context;
    const { path, query } = this.#request;
    const saved = this.#saved;
    this.#replayed = saved?.position ? Math.min(REPLAY_BYTES, saved.position.offset - saved.first.offset) : 0;
    this.#first.ask();
    this.session = new ConsoleSession({
      // An observer does not become the writer, also where the server does not know the session any more.
      url: () => api.webSocketURL(path, this.#place.observes ? { ...query, observe: "true" } : query),
      protocols: () => {
        this.#token = store.get("token");
        return api.webSocketProtocols(SUBPROTOCOL);
      },
      saved,
      keep: (kept) => {
        if (kept === null) forget(this.#context, this.#place);
        else store.set(keyOf(this.#place), { ...kept, request: this.#request });
      },
      replayBytes: REPLAY_BYTES,
      explain: () => this.explain(),
      on: {
        ...this.#on,
        output: (bytes) => this.#first.output(bytes),
        placed: (mark) => {
          this.#take(mark);
          this.#first.placed(mark);
          this.#on.placed(mark);
        },
        gap: (gap) => this.#gap(gap),
        state: (state, detail) => this.#changed(state, detail),
      },
    });
    this.session.resize(...this.#screen.room);
  }

  /** Show the screen as it is now, for another size of the terminal. */
  redraw() {
    this.#first.redraw();
  }

  /** Whether the session can never write. */
  get isReadOnly() {
    return this.#request.query.readOnly === "true";
  }

  /** Whether there is a session, also one whose connection is lost. */
  get isOpen() {
    return this.session !== null && !["connecting", "ended"].includes(this.session.state);
  }

  /** Whether the user has logged in after the last attempt to connect. */
  get hasNewToken() {
    // There is none while the user is being asked for it; the event "authorized" follows.
    return ![null, this.#token].includes(this.#context.store.get("token"));
  }

  /** Whether it was to go on with a session, after a reload or a lost connection, and that one is over. */
  isFormerGone(end) {
    return this.#isReturning && isGone(end);
  }

  /** Ask the server why it refuses the session; null if it does not. */
  explain() {
    return explain(this.#context.api, this.#request.path, this.#request.query);
  }

  /** End the session because another one takes its place, of which the owner need not hear. */
  replace() {
    this.#isReplaced = true;
    this.session?.leave();
    this.#first.cancel();
  }

  #changed(state, detail) {
    if (this.#isReplaced) return;
    if (state === "resumed" && this.#replayed) {
      // The output of the former page comes again, so it was not missed.
      detail = { ...detail, missed: Math.max(0, detail.missed - this.#replayed) };
      this.#replayed = 0;
    }
    if (state === "open" || state === "resumed") this.#opened();
    if (state === "open") {
      this.#hadSession = true;
      this.#separate();
    }
    if (state === "resumed" && detail.anew) this.#mark(newSession());
    if (state === "ended" || (state === "open" && detail.resumable === false)) this.#first.cancel();
    // A user sees the output so far, dimmed, and that the connection is lost: the rest may not come for a long time.
    if ((state === "ended" || state === "reconnecting") && this.#hasOutput) this.#on.shown?.();
    if (state === "ended") detail = { ...detail, hadSession: this.#hadSession };
    if (state !== "ended") this.#isReturning = state === "reconnecting" || (this.#isReturning && state === "connecting");
    this.#on.state(state, detail);
  }

  /** Put what another session has shown into the scrollback: the output of this one repeats some of it. */
  #separate() {
    const { columns, rows, text } = this.#screen;
    const output = `[${newSession()}]\r\n`;
    if (text.trim()) this.#screen.show((filled) => stateOutput({ output, columns }, filled), [columns, rows]);
  }

  #take({ offset, end }) {
    this.#isPast = end === null && offset <= this.#pastUntil;
    if (this.#pastUntil < 0 && this.#saved === null) this.#pastUntil = end ?? 0;
    else if (end !== null) this.#pastUntil = 0; // output that came meanwhile is news
  }

  #gap({ bytes, exact }) {
    const what = bytes === null ? "an unknown amount of output" : `${exact === false ? "about " : ""}${amount(bytes)} of output`;
    this.#mark(`twisted-exec: ${what} skipped`);
    if (!this.#isPast) this.#on.skipped(what);
  }

  /** Show a mark in the output, and then the present screen: the former one is out of date. */
  #mark(text) {
    this.#first.behind(() => this.#screen.write(new TextEncoder().encode(`\r\n\x1b[m[${text}]\r\n`)));
    if (!this.#isPast) this.#first.ask(); // else it is on its way
  }

  async #readState() {
    // Without this the browser's log has an error for each console.
    if (hasNoScreen(this.#context, this.#place)) return null;
    const size = `${this.#screen.columns}x${this.#screen.rows}`;
    const read = () => readScreen(this.#context, this.#place, { query: { as: "state", size, reason: this.#place.reason } });
    try {
      return await read();
    } catch (error) {
      if (error.code !== 403) throw error;
      // With an approval for one session, a user may see the screen once that session is open.
      await this.#whenOpen;
      return read();
    }
  }
}

function newSession() {
  return `twisted-exec: new session at ${zonedTime(Date.now())}`;
}

/** The session of a console that the store keeps for a reload; null if there is none. */
export function savedSession({ store }, place) {
  return store.get(keyOf(place));
}

/** The keys of a console that the server had not confirmed to the page before a reload; `sent`: the machine may have got them. */
export function savedKeys(saved) {
  const { keys, sentKeys } = saved ? InputQueue.restore(saved.input) : new InputQueue();
  return { keys, sent: sentKeys };
}

/** Forget the session of a console that the store keeps for a reload. */
export function forget({ store }, place) {
  store.remove(keyOf(place));
}

function keyOf({ namespace, name }) {
  return `session.${namespace}/${name}`;
}

/**
 * Whether the server has lost a session, or cannot resume it, so that a new one may begin: not if its machine, or the pool of
 * that, is missing.
 *
 * @param {{reason: string, code: number, kind?: string}} end of the session; a proxy answers with a code alone
 */
export function isGone({ reason, code, kind = "" }) {
  const isMissing = reason === "NotFound" || code === 404;
  return reason === "CannotResume" || (isMissing && ["", KEPT_SESSION].includes(kind));
}
