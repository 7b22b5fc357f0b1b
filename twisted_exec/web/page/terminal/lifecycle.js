/**
 * The life of a console in the page, over one session after another, without a DOM.
 *
 *     Opening    the terminal is loaded, and the server is asked what the user may do; keys wait
 *     Attached   there is a session, which connects or is open; keys go to it
 *     Lost       its connection is lost, and the page tries to get it back
 *     Ended      the session is over, and a panel says why
 *     LoggedOut  the same, because its token has ended: the next login opens the console again
 *     Closed     the user has closed the console
 *
 * Any state but Closed becomes Opening when the console is opened again.
 */

import { Backoff } from "../backoff.js";
import { keysIn } from "../session/input.js";
import { STOPPED } from "../session/session.js";
import { sleep } from "../watch.js";
import { REVOKED, demands, isForbidden } from "./texts.js";

const SHORTEST_SESSION_MS = 60_000; // of one that the page has opened again by itself, to do so once more
const MOST_EARLY = 1000; // keys and pastes
const NO_KEYS = Object.freeze({ sent: 0, unsent: 0 });
const WAITS = { first: 0.5, longest: 4 }; // seconds between questions to a server that does not answer

const isLoss = ({ sent, unsent }) => sent + unsent > 0;

/** Without a session keys are dropped, and a login changes nothing. */
class State {
  /** @type {import("./attachment.js").Attachment | null} */
  attachment = null;
  /** @type {Uint8Array[]} */
  early = [];

  /** Return whether what was typed may reach a machine, or the user knows why it does not. */
  typed(bytes) {
    return false;
  }

  authorized() {}

  reconnectNow() {}

  wake() {}
}

class Opening extends State {
  /** @param {Uint8Array[]} early what the user has typed already */
  constructor(early) {
    super();
    this.early = early;
  }

  typed(bytes) {
    const hasRoom = this.early.length < MOST_EARLY;
    if (hasRoom) this.early.push(bytes);
    return hasRoom;
  }

  authorized() {
    this.reconnectNow();
  }

  wake() {
    this.reconnectNow();
  }
}

/** Tell reports of the mouse, which a program has asked for, from keys. */
const isMouse = ([escape, bracket, kind]) => escape === 0x1b && bracket === 0x5b && (kind === 0x4d || kind === 0x3c);

class Attached extends State {
  constructor(attachment, on) {
    super();
    this.attachment = attachment;
    this.on = on;
  }

  typed(bytes) {
    const { session, isReadOnly } = this.attachment;
    // The server would ignore it without a word.
    if (isReadOnly) {
      if (!isMouse(bytes)) this.on.readOnly();
    } else if (session?.isFull) this.on.full();
    else session?.send(bytes);
    return true;
  }

  authorized() {
    this.reconnectNow();
  }

  reconnectNow() {
    this.attachment.session?.reconnectNow();
  }

  wake() {
    this.attachment.session?.wake();
  }
}

class Lost extends Attached {}

class Ended extends State {}

class LoggedOut extends Ended {
  constructor(follow) {
    super();
    this.follow = follow;
  }

  authorized() {
    this.follow();
  }
}

class Closed extends State {}

export class Lifecycle {
  /** @type {State} */
  #state = new Opening([]);
  #openedAgainAt = 0; // by the page itself
  /** @type {import("./texts.js").Loss[]} */
  #losses = [];
  /** @type {import("./texts.js").Loss | null} of these the one that goes on: what is typed where nothing takes it */
  #present = null;
  #isOfFormer = false; // the session behind them is open, and gets what its user types
  #hasOpened = false; // the newest session
  #isOff = false; // the session waits for its machine: the server discards what its user types
  #discarded = 0; // so many keys, until the server counts them behind the next start
  #on;
  #now;
  #pause;

  /**
   * @param {object} on callbacks.
   *     ask(): resolves with what the user may do; or with `{ending}`, why there can be no session now.
   *     attach(rights, changed): returns an Attachment that is not started yet, whose state() is `changed`.
   *     state(name, detail): news of the session, before the following ones.
   *     opened(), lost(detail), resumed(detail), ended(detail): the session is so now.
   *     unauthorized(): the user must log in for the session to go on.
   *     reopen(detail): the session has ended so, of the page before a reload, of a lost connection, of the web
   *     console on this computer, which has stopped, or of a former token: a new one is to take its place.
   *     missed(): {@link losses} have grown.
   *     full(): a key was not accepted.
   *     readOnly(): a key was dropped, because the session only observes.
   * @param {() => number} now milliseconds
   * @param {(seconds: number) => Promise<any>} pause
   */
  constructor(on, now = Date.now, pause = sleep) {
    this.#on = on;
    this.#now = now;
    this.#pause = pause;
  }

  /** The session; null while there is none. */
  get session() {
    return this.#state.attachment?.session ?? null;
  }

  /** Show the screen as it is now, for another size of the terminal. */
  redraw() {
    this.#state.attachment?.redraw();
  }

  get isOpen() {
    return this.#state.attachment?.isOpen ?? false;
  }

  /** How many keys the server has not confirmed. */
  get waiting() {
    return this.session?.waiting ?? keysIn(this.#state.early);
  }

  /** The losses that end with this page, and of which its user may not know. */
  get unkept() {
    const ofPage = { at: this.#now(), sent: 0, unsent: this.session?.save() ? 0 : this.waiting };
    return [...(this.#isOfFormer ? [] : this.losses), ofPage].filter(isLoss);
  }

  /** Go on with {@link unkept} of the page before a reload. */
  restore(losses) {
    this.#losses = [...losses];
  }

  /**
   * The losses since the user has last typed into an open session whose machine ran, the oldest one first.
   *
   * @returns {import("./texts.js").Loss[]}
   */
  get losses() {
    return this.#losses.filter(isLoss);
  }

  /** The losses without that which goes on. */
  get settledLosses() {
    return this.losses.filter((each) => each !== this.#present);
  }

  /** The user knows of them. */
  forgetLost() {
    this.#losses = [];
    if (this.#present) this.#losses.push(Object.assign(this.#present, NO_KEYS)); // a former session refers to it
  }

  #forgetFormer() {
    if (!this.#isOfFormer) return;
    this.#isOfFormer = false;
    this.#losses = [];
    this.#present = null;
  }

  /** Add a loss, which has its own time and cause. */
  #lose(keys) {
    this.#forgetFormer();
    const loss = { ...keys, at: this.#now() };
    this.#losses.push(loss);
    return loss;
  }

  /** Keys were typed where nothing takes them: they belong to the present loss. */
  #loseMore({ sent = 0, unsent }) {
    this.#forgetFormer();
    if (!sent && !unsent) return;
    const present = (this.#present ??= this.#lose(NO_KEYS));
    if (!isLoss(present)) present.at = this.#now();
    present.sent += sent;
    present.unsent += unsent;
  }

  /** The session behind an end is open: it gets nothing of what its user typed before, if keys are to be dropped. */
  beginAnew(drops) {
    if (drops) this.#loseMore({ unsent: this.session?.discard() ?? 0 });
  }

  /** What its user types now is for the session, if that is open: {@link losses} are of what was before. */
  settle() {
    this.#isOfFormer ||= this.isOpen;
  }

  /** Keys were typed where nothing takes them. */
  missed(count) {
    if (!count) return;
    this.#loseMore({ unsent: count });
    this.#on.missed();
  }

  /**
   * Keys were lost in a session that goes on.
   *
   * @param {{sent: number, unsent: number, cause?: string, text?: string}} keys as a Loss has them
   */
  lost(keys) {
    this.#lose(keys);
    this.#present = null;
    if (!this.#isOff) this.#discarded = 0;
  }

  /** The machine has ended, and its session waits for the next start. */
  machineEnded() {
    this.#isOff = true;
    this.#discarded = 0;
    this.#forgetFormer();
    this.#present = null;
  }

  machineStarted() {
    this.#isOff = false;
  }

  /** Whether what the user types is dropped. */
  get hasEnded() {
    return this.#state instanceof Ended;
  }

  get isClosed() {
    return this.#state instanceof Closed;
  }

  /** The user has typed or pasted. */
  typed(bytes) {
    if (!this.#state.typed(bytes)) this.missed(keysIn([bytes]));
    else if (!this.#isOff) this.settle();
    else if (!(this.#state instanceof Lost)) this.#discarded += keysIn([bytes]); // else they wait, and count then
  }

  /** The user has logged in. */
  authorized() {
    this.#state.authorized();
  }

  /** Do not wait for the next attempt to reach the server. */
  reconnectNow() {
    this.#state.reconnectNow();
  }

  /** Another console has reached the server, for which this one may wait. */
  wake() {
    this.#state.wake();
  }

  /** Open a session, or go on with the saved one; a session that is open ends without a word. */
  async open() {
    this.#state.attachment?.replace();
    const opening = this.#enter(new Opening(this.#state.early));
    const rights = await this.#rights(opening);
    if (this.#state !== opening) return; // closed, or opened once more
    if (rights.ending) {
      this.#enter(new Ended());
      this.#loseMore({ unsent: keysIn(opening.early) });
      this.#on.state("ended", rights.ending);
      this.#on.ended(rights.ending);
      return;
    }
    const attachment = this.#on.attach(rights, (name, detail) => this.#changed(attachment, name, detail));
    this.#enter(new Attached(attachment, this.#on));
    this.#hasOpened = false;
    attachment.start();
    for (const bytes of opening.early) this.#state.typed(bytes);
  }

  /** Ask what the user may do, again and again while the server does not answer or the user has to log in. */
  async #rights(opening) {
    const backoff = new Backoff(WAITS.first, WAITS.longest);
    for (;;) {
      try {
        return await this.#on.ask();
      } catch (problem) {
        if (this.#state !== opening) return {};
        if (!problem.isPassing) throw problem;
        this.#on.state("connecting", { message: problem.message, code: problem.code });
      }
      await Promise.race([this.#pause(backoff.pause()), new Promise((resolve) => (opening.reconnectNow = resolve))]);
      if (this.#state !== opening) return {};
    }
  }

  /** End the session. */
  close() {
    this.session?.leave();
    this.#enter(new Closed());
  }

  #enter(state) {
    this.#state = state;
    return state;
  }

  #changed(attachment, name, detail) {
    if (this.#state.attachment !== attachment) return;
    this.#on.state(name, detail);
    if (detail.unauthorized) {
      // The answer may come after the user has logged in again.
      if (attachment.hasNewToken) attachment.session.reconnectNow();
      else this.#on.unauthorized();
    }
    switch (name) {
      case "open":
        this.#hasOpened = true;
        this.#isOff = false;
        this.#discarded = 0;
        this.#enter(new Attached(attachment, this.#on));
        this.#on.opened();
        break;
      case "reconnecting":
        this.#lost(attachment, detail);
        break;
      case "resumed":
        this.#enter(new Attached(attachment, this.#on));
        this.#on.resumed(detail);
        break;
      case "ended":
        this.#ended(attachment, detail);
        break;
    }
  }

  #lost(attachment, detail) {
    const isNew = !(this.#state instanceof Lost);
    this.#enter(new Lost(attachment, this.#on));
    if (isNew) this.#on.lost(detail);
  }

  #ended(attachment, detail) {
    const ended = this.#enter(new Ended());
    const { sent, unsent } = detail.unconfirmed;
    const known = this.#isOff ? this.#discarded : 0; // they are the newest of those that were sent
    const keys = { sent: Math.max(0, sent - known), unsent: unsent + this.#discarded };
    // An attempt that has opened no session ends none.
    if (this.#present && !this.#hasOpened) this.#loseMore(keys);
    else this.#present = this.#lose(keys);
    detail = { ...detail, unconfirmed: this.#present };
    const isWithdrawn = detail.reason === REVOKED;
    const follow = (known = {}) => this.#on.reopen({ ...detail, ...known });
    if (attachment.isFormerGone(detail) || detail.reason === STOPPED || (isWithdrawn && attachment.hasNewToken)) {
      follow();
      return;
    }
    this.#on.ended(detail);
    if (isWithdrawn) this.#withdrawn(ended, attachment, detail, follow);
  }

  /** The server has withdrawn the session: if because of its token, open it again with the next one. */
  async #withdrawn(ended, attachment, detail, follow) {
    // The answer to any request with this token; if it is 401, the page asks for another one.
    const refusal = await attachment.explain();
    if (this.#state !== ended) return;
    if (refusal === null) {
      // The local command renews credentials.
      const since = this.#now() - this.#openedAgainAt;
      this.#openedAgainAt = this.#now();
      if (since > SHORTEST_SESSION_MS) follow();
    } else if (refusal.code === 401) {
      const known = { code: 401 };
      if (attachment.hasNewToken) follow(known);
      else {
        this.#enter(new LoggedOut(() => follow(known)));
        this.#on.ended({ ...detail, ...known }); // what the login does
      }
    } else {
      const { reason, approval } = demands(refusal);
      if (reason || approval) this.#on.ended({ ...refusal, hadSession: detail.hadSession }); // what the user can give now
      else if (isForbidden(refusal)) this.#on.ended({ ...refusal, reason: REVOKED, hadSession: detail.hadSession }); // whom to ask
      else if (refusal.code === 403) this.#on.ended({ ...refusal, hadSession: detail.hadSession }); // why another attempt is none
    }
  }
}
