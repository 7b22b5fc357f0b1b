/**
 * The message over the terminal of one console: a warning stays until its user closes it, and what passes is below it; without
 * a warning a message passes alone.
 *
 * Messages of other users are in `message_list.js`, and the wording is in `texts.js`.
 */

import { button, fill, h, printable } from "../dom.js";
import { minute } from "../times.js";
import { sentence } from "./texts.js";

/** Time for a message that is no warning, and for what an approver has said. */
export const MESSAGE_MILLISECONDS = 10_000;

/**
 * A message: what it says, by subject, in this order. Each part is empty, or one or more sentences.
 *
 * @typedef {object} Message
 * @property {string} approval what the approver has said, before messages of the first seconds
 * @property {string} text about all other subjects
 * @property {string} keys those that may not have reached the machine: other warnings leave this, until the user closes it
 * @property {string} loss that the user no longer types, and who does
 * @property {string} refusal why the user goes on observing
 * @property {string} recorded for whom the console is recorded
 * @property {string} log the address of the log that has the output which was skipped
 * @property {string} kind "warning" or "error", which stay until the user closes them, or empty
 */

/** @type {Message} */
const EMPTY = { approval: "", text: "", keys: "", loss: "", refusal: "", recorded: "", log: "", kind: "" };

export class MessageBox {
  element = h("div", { class: "message", hidden: true });
  /** @type {Message | null} the message that is shown */
  #message = null;
  /** @type {Message | null} a message that passes while a warning stays */
  #below = null;
  /** @type {Message | null} the newest message behind the panel of an attempt to connect */
  #held = null;
  #text = h("span");
  #body = h("span", {}, this.#text);
  #note = h("div", { class: "note" }); // has the text of #below
  #timer; // of the message that passes
  #approval = "";
  #approvalTimer;
  /** @type {Record<string, string>} what the user was told of the session: its newest text by subject */
  #facts = {};
  #place;
  #panel;
  #on;

  /**
   * @param {{closed?: Record<string, string>}} place `closed`: the facts whose messages the user has closed
   * @param {{isConnecting: boolean, warn: (text: string) => void}} panel while the session connects, it shows warnings
   * @param {object} on `moved()`: its size has changed; `announce(text)`; `closed(keys)`: the user has closed a message, which has
   *     said this of keys, and the place has changed
   */
  constructor(place, panel, on) {
    this.#place = place;
    this.#panel = panel;
    this.#on = on;
  }

  /** Whether a message is shown that stays until its user closes it. */
  get isWarned() {
    return Boolean(this.#message?.kind);
  }

  /**
   * Show a message about one subject, and let screen readers say it; see {@link show}.
   *
   * @param {string} text
   * @param {string} kind "warning", "error" or empty
   */
  tell(text, kind) {
    return this.show({ text, kind });
  }

  /**
   * Show a message, and let screen readers say it; return it. A warning stays until its user closes it, or another one follows,
   * which keeps what it says of keys; what is no warning is shown below one, and goes alone.
   *
   * The newest message before the first screen waits for that; the panel shows a warning meanwhile.
   *
   * @param {Partial<Message>} content
   * @returns {Message}
   */
  show(content) {
    const message = { ...EMPTY, approval: this.#approval, ...content };
    if (message.kind) message.keys ||= (this.#held ?? this.#message)?.keys ?? "";
    if (this.#panel.isConnecting) this.#hold(message);
    else this.#show(message);
    return message;
  }

  #hold(message) {
    if (message.kind) this.#panel.warn(newsOf(message));
    if (message.kind || !this.#held?.kind) this.#held = message;
  }

  /** The terminal takes the place of the panel: show the message that has waited for that. */
  release() {
    if (this.#held) this.#show(this.#held);
  }

  #show(message) {
    this.#held = null;
    clearTimeout(this.#timer);
    const isBelow = !message.kind && this.isWarned;
    this.#below = isBelow ? message : null;
    if (!isBelow) this.#drawMessage(message);
    this.#drawBelow();
    if (!message.kind) this.#timer = setTimeout(() => this.takeBack(message), MESSAGE_MILLISECONDS);
    this.#on.announce(newsOf(message) || message.approval);
  }

  #drawMessage(message) {
    this.#message = message;
    fill(this.#text, contentOf(message));
    fill(this.element, this.#body, button("×", () => this.#close(), { class: "quiet icon", "aria-label": "Dismiss this message" }));
    this.element.className = `message ${message.kind}`;
    // A message that stays is read later.
    this.element.setAttribute("data-time", message.kind ? minute(Date.now(), Date.now()) : "");
    this.element.hidden = false;
  }

  #drawBelow() {
    if (this.#below) {
      fill(this.#note, contentOf(this.#below));
      this.#body.append(this.#note);
    } else this.#note.remove();
    this.#on.moved();
  }

  /** Tell what is in sight already only once: a user may press many keys. */
  tellOnce(text) {
    if (![this.#message, this.#below].some((each) => each && wholeOf(each) === text)) this.tell(text, "");
  }

  /**
   * Tell a fact of the session, unless the server says to a page that was loaded again what the user has closed; return the
   * message.
   *
   * @param {string} subject
   * @param {string} text
   * @param {Partial<Message>} content the message, with the text
   */
  tellFact(subject, text, content) {
    const isFirst = !(subject in this.#facts);
    this.remember(subject, text);
    return !isFirst || this.#place.closed?.[subject] !== text ? this.show(content) : null;
  }

  /** Whether the message that is shown says so that the user no longer types. */
  says(loss) {
    return this.#message?.loss === loss;
  }

  /** Let screen readers say what is in sight already. */
  announce(text) {
    this.#on.announce(text);
  }

  /** The user reads a fact of the session in another message. */
  remember(subject, text) {
    this.#facts[subject] = text;
  }

  /** Tell of recordings; a message that says more about the session stays, with what is true of them now. */
  tellRecordings(recorded) {
    const before = this.#message;
    const isPart = before?.recorded && newsOf({ ...before, recorded: "" });
    this.tellFact("recordings", recorded, isPart ? { ...before, recorded } : { recorded });
  }

  /**
   * Tell of keys that may not have reached the machine, beside what else the user is warned of; empty: of none any more.
   *
   * @param {string} keys
   */
  tellKeys(keys) {
    const before = this.#held ?? this.#message;
    if (keys && !before?.keys) this.show({ ...(before?.kind && before), keys, kind: before?.kind || "warning" });
    else if (before && before.keys !== keys) this.#renew({ ...before, keys });
  }

  /** Say more or less in a warning, which is not announced again: its user may be typing. */
  #renew(message) {
    if (this.#held) {
      this.#held = message;
      this.#panel.warn(newsOf(message));
    } else {
      this.#drawMessage(message);
      this.#drawBelow();
    }
    if (!newsOf(message)) this.takeBack(message);
  }

  /** A warning stays: it names the writer of now. */
  renewLoss(loss) {
    const before = this.#message;
    if (before?.loss && before.loss !== loss) this.show({ ...before, loss });
  }

  /** Add the address of the log to a message about output that was skipped. */
  addLog(message, href) {
    message.log = href;
    if (this.#message === message) fill(this.#text, contentOf(message));
    if (this.#below === message) this.#drawBelow();
  }

  /** Show what the approver has said, before other messages about the session that begins. */
  tellApproval(text) {
    this.#approval = sentence(text);
    clearTimeout(this.#approvalTimer);
    this.#approvalTimer = setTimeout(() => (this.#approval = ""), MESSAGE_MILLISECONDS);
    this.show({});
  }

  /**
   * End a message that is no longer true, wherever it is.
   *
   * @param {Message | null | undefined} message
   */
  takeBack(message) {
    if (!message) return;
    if (this.#held === message) this.#held = null;
    if (this.#below === message) this.#endBelow();
    if (this.#message !== message) return;
    const below = this.#below;
    this.#endButKeys();
    if (below && !this.isWarned) this.#drawMessage(below); // it passes alone
    else this.#below = below;
    this.#drawBelow();
  }

  /** End the message that is shown, unless it is a warning. */
  endPassing() {
    if (!this.isWarned) this.#end();
  }

  /** End a warning that is about the role alone, which is another one now. */
  endAboutRole() {
    if (this.isWarned && this.#isAboutRole && !this.#message?.text) this.#endButKeys();
  }

  /** The user changes the role: end what is shown, unless it is a warning about another subject alone. */
  leaveRole() {
    if (!this.isWarned || this.#isAboutRole) this.#endButKeys();
  }

  /** End what is shown but for what it says of keys. */
  #endButKeys() {
    const { keys } = this.#message ?? EMPTY;
    this.#end();
    if (keys) this.#drawMessage({ ...EMPTY, keys, kind: "warning" });
  }

  get #isAboutRole() {
    return Boolean(this.#message?.loss || this.#message?.refusal);
  }

  /** The session has ended: only warnings stay, and of these none about its roles alone. */
  endSession() {
    this.endAboutRole();
    this.#endBelow();
    this.endPassing();
    if (!this.#held?.kind) this.#held = null; // it is not news of a session that opens later
  }

  /** The console is closed. */
  stop() {
    clearTimeout(this.#timer);
    clearTimeout(this.#approvalTimer);
  }

  #end() {
    this.#message = null;
    this.element.hidden = true;
    this.#endBelow();
  }

  #endBelow() {
    this.#below = null;
    this.#approval = "";
    this.#drawBelow();
  }

  #close() {
    const { keys } = this.#message ?? EMPTY;
    this.#end();
    this.#place.closed = { ...this.#facts };
    this.#on.closed(keys);
  }
}

/** @param {Message} message */
function newsOf({ text, keys, loss, refusal, recorded }) {
  return [text, keys, loss, refusal, recorded].filter(Boolean).join(" ");
}

/** @param {Message} message */
function wholeOf(message) {
  return `${message.approval} ${newsOf(message)}`.trim();
}

/** @param {Message} message */
function contentOf(message) {
  return [printable(wholeOf(message)), message.log && [" ", h("a", { href: message.log }, "The log has all that was stored"), "."]];
}
