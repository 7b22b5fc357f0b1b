/**
 * The message over the terminal of one console, in lines that have their own times: a warning, and each loss of keys, stay until
 * their user closes them; what passes is below them.
 *
 * Messages of other users are in `message_list.js`, and the wording is in `texts.js`.
 */

import { button, fill, h, printable } from "../dom.js";
import { minute } from "../times.js";
import { sentence } from "./texts.js";

/** Time for a message that is no warning, and for what an approver has said. */
export const MESSAGE_MILLISECONDS = 10_000;
/** Screen readers say how many keys were lost when the number has not changed for this time. */
export const SETTLED_MILLISECONDS = 1000;

/**
 * A message: what it says, by subject, in this order. Each part is empty, or one or more sentences.
 *
 * @typedef {object} Message
 * @property {string} approval what the approver has said, before messages of the first seconds
 * @property {string} text about all other subjects
 * @property {string} loss that the user no longer types, and who does
 * @property {string} refusal why the user goes on observing
 * @property {string} recorded for whom the console is recorded
 * @property {string} log the address of the log that has the output which was skipped
 * @property {string} kind "warning" or "error", which stay until the user closes them, or empty
 * @property {number} at milliseconds since 1970
 */

/** @type {Message} */
const EMPTY = { approval: "", text: "", loss: "", refusal: "", recorded: "", log: "", kind: "", at: 0 };

export class MessageBox {
  element = h("div", { class: "message", hidden: true });
  /** @type {Message | null} */
  #warning = null;
  /** @type {Message | null} */
  #passing = null;
  /** @type {{at: number, text: string}[]} of keys that may not have reached the machine */
  #losses = [];
  /** @type {string[]} what screen readers have said of these */
  #announced = [];
  /** @type {Message | null} the newest message behind the panel of an attempt to connect */
  #held = null;
  #timer; // of the message that passes
  #settling; // a timer
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
   * @param {object} on `moved()`: its size has changed; `announce(text)`; `closed(hadKeys)`: the user has closed the messages,
   *     of losses, too, and the place has changed
   */
  constructor(place, panel, on) {
    this.#place = place;
    this.#panel = panel;
    this.#on = on;
  }

  /** Whether a message is shown that stays until its user closes it. */
  get isWarned() {
    return this.#warning !== null || this.#losses.length > 0;
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
   * Show a message, and let screen readers say it; return it. A warning stays until its user closes it, or another one follows;
   * what is no warning is shown below, and goes alone.
   *
   * The newest message before the first screen waits for that; the panel shows a warning meanwhile.
   *
   * @param {Partial<Message>} content
   * @returns {Message}
   */
  show(content) {
    const message = { ...EMPTY, approval: this.#approval, ...content, at: Date.now() };
    if (this.#panel.isConnecting) this.#hold(message);
    else this.#show(message);
    return message;
  }

  #hold(message) {
    if (message.kind || !this.#held?.kind) this.#held = message;
    if (message.kind) this.#warnInPanel();
  }

  #warnInPanel() {
    const warning = this.#held?.kind ? newsOf(this.#held) : "";
    this.#panel.warn([warning, ...this.#losses.map(({ text }) => text)].filter(Boolean).join(" "));
  }

  /** The terminal takes the place of the panel: show the message that has waited for that. */
  release() {
    if (this.#held) this.#show(this.#held);
    else this.#draw();
  }

  #show(message) {
    this.#held = null;
    clearTimeout(this.#timer);
    this.#passing = message.kind ? null : message;
    if (message.kind) this.#warning = message;
    else this.#timer = setTimeout(() => this.takeBack(message), MESSAGE_MILLISECONDS);
    this.#draw();
    this.#on.announce(newsOf(message) || message.approval);
  }

  #draw() {
    const losses = this.#losses.map(({ at, text }) => ({ at, content: [printable(text)] }));
    const warnings = this.#warning ? [{ at: this.#warning.at, content: contentOf(this.#warning) }] : [];
    const staying = [...losses, ...warnings].sort((a, b) => a.at - b.at);
    const passing = this.#passing && { at: staying.length ? this.#passing.at : 0, content: contentOf(this.#passing) }; // only what stays is read later
    const lines = [...staying, ...(passing ? [passing] : [])];
    const body = h("span", {}, ...lines.map(({ at, content }) => h("div", { "data-time": at ? minute(at, Date.now()) : "" }, h("span", {}, ...content))));
    fill(this.element, body, button("×", () => this.#close(), { class: "quiet icon", "aria-label": "Dismiss this message" }));
    this.element.className = `message ${this.#warning?.kind ?? (losses.length ? "warning" : "")}`;
    this.element.hidden = !lines.length;
    this.#on.moved();
  }

  /** Tell what is in sight already only once: a user may press many keys. */
  tellOnce(text) {
    if (![this.#warning, this.#passing].some((each) => each && wholeOf(each) === text)) this.tell(text, "");
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
    return this.#warning?.loss === loss;
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
    const before = this.#passing;
    const isPart = before?.recorded && newsOf({ ...before, recorded: "" });
    this.tellFact("recordings", recorded, isPart ? { ...before, recorded } : { recorded });
  }

  /**
   * Tell of keys that may not have reached the machine, instead of what was told of them before; let screen readers say what is new
   * when the user pauses.
   *
   * @param {{at: number, text: string}[]} losses
   */
  tellKeys(losses) {
    this.#losses = losses;
    if (this.#panel.isConnecting) this.#warnInPanel();
    else this.#draw();
    clearTimeout(this.#settling);
    this.#settling = setTimeout(() => this.#announceLosses(), SETTLED_MILLISECONDS);
  }

  #announceLosses() {
    const texts = this.#losses.map(({ text }) => text);
    const news = texts.filter((each) => !this.#announced.includes(each));
    this.#announced = texts;
    if (news.length) this.#on.announce(news.join(" "));
  }

  /** A warning stays: it names the writer of now. */
  renewLoss(loss) {
    const before = this.#warning;
    if (before?.loss && before.loss !== loss) this.show({ ...before, loss });
  }

  /** Add the address of the log to a message about output that was skipped. */
  addLog(message, href) {
    message.log = href;
    if ([this.#warning, this.#passing].includes(message)) this.#draw();
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
    if (this.#warning === message) this.#end({ passing: this.#passing });
    if (this.#passing === message) this.#endPassing();
  }

  #endPassing() {
    this.#end({ warning: this.#warning });
  }

  /** End a warning that is about the role alone, which is another one now. */
  endAboutRole() {
    if (this.#isAboutRole && !this.#warning?.text) this.#end();
  }

  /** The user changes the role: end what is shown, unless it is a warning about another subject alone. */
  leaveRole() {
    if (!this.#warning || this.#isAboutRole) this.#end();
  }

  get #isAboutRole() {
    return Boolean(this.#warning?.loss || this.#warning?.refusal);
  }

  /** The session has ended: only warnings stay, and of these none about its roles alone. */
  endSession() {
    this.endAboutRole();
    this.#endPassing();
    if (!this.#held?.kind) this.#held = null; // it is not news of a session that opens later
  }

  /** The console is closed. */
  stop() {
    for (const each of [this.#timer, this.#approvalTimer, this.#settling]) clearTimeout(each);
  }

  /**
   * End what is shown, but for losses of keys, and what is to stay.
   *
   * @param {{warning?: Message | null, passing?: Message | null}} [kept]
   */
  #end({ warning = null, passing = null } = {}) {
    if (!passing) this.#approval = "";
    this.#warning = warning;
    this.#passing = passing;
    this.#draw();
  }

  #close() {
    const hadKeys = this.#losses.length > 0;
    this.#losses = [];
    this.#end();
    this.#place.closed = { ...this.#facts };
    this.#on.closed(hadKeys);
  }
}

/** @param {Message} message */
function newsOf({ text, loss, refusal, recorded }) {
  return [text, loss, refusal, recorded].filter(Boolean).join(" ");
}

/** @param {Message} message */
function wholeOf(message) {
  return `${message.approval} ${newsOf(message)}`.trim();
}

/** @param {Message} message */
function contentOf(message) {
  return [printable(wholeOf(message)), message.log && [" ", h("a", { href: message.log }, "The log has all that was stored"), "."]];
}
