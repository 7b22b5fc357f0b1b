/**
 * The list of messages from user to user at one console: over its terminal until they are seen, and the last ones for Details.
 *
 * `dialogs.js` asks for the text of a new one; `company.js` has the receipt that it was sent.
 */

import { button, fill, h, printable } from "../dom.js";
import { unreadText } from "../frame.js";
import { minute } from "../times.js";
import { sentence } from "./texts.js";

/** The number of messages that are kept: older ones give way. */
export const MOST_MESSAGES = 20;
const SEEN_MILLISECONDS = 30_000; // longer than a notice of the page: a message needs an answer
const OWN_MILLISECONDS = 10_000;
const KEPT = "messages."; // keys in the store

/** What the browser keeps of the messages at a console over a reload. */
export function keptMessages({ store }, { namespace, name }) {
  const key = `${KEPT}${namespace}/${name}`;
  return { get: () => store.get(key), set: (value) => (value === null ? store.remove(key) : store.set(key, value)) };
}

/** Forget the messages of all consoles, also of those that are not restored yet. */
export function forgetMessages({ api, store }) {
  store.clear(KEPT);
  api.dispatchEvent(new Event("another user"));
}

export class MessageList {
  // Not in the terminal, where a machine could print the same, nor in place of what the server says.
  element = h("div", { class: "said-list", role: "log", "aria-label": "Messages of users" });
  /** How many were not in sight yet, with the news of the session that the console shows elsewhere. */
  unread = 0;
  /** In the tab of the console: the same. */
  mark = h("span", { class: "badge news", hidden: true });
  /** @type {{text: string, at: number, isOwn: boolean}[]} The last messages, the oldest first. */
  last = [];
  /** @type {Map<object, HTMLElement>} the messages of `last` that are shown, with their elements, the oldest first */
  #shown = new Map();
  #earlier = 0; // messages that gave way unseen, or while they were in sight
  #earlierText = h("span");
  #earlierElement = h("div", { class: "message said", "data-time": "" }, this.#earlierText, this.#dismiss(() => this.#earlierElement));
  #kept;
  #on;

  /**
   * @param {{get: () => any, set: (value: any) => void}} kept what the browser keeps of them over a reload; null: nothing
   * @param {object} on `news()`: the number of unread messages has changed; `moved()`: the list has; `focus()`: it had the focus
   */
  constructor(kept, on) {
    this.#kept = kept;
    this.#on = on;
    const { last, unread, earlier } = kept.get() ?? { last: [], unread: 0, earlier: 0 };
    for (const { isShown, ...message } of last) {
      this.last.push(message);
      if (isShown) this.#show(message);
    }
    if (earlier) this.#tellEarlier(earlier);
    this.#mark(unread);
    if (!unread) this.#removeSeen();
  }

  /** Show a message of another user until it was in sight for some time, is dismissed, or many others follow. */
  add(text) {
    this.#add(text, false);
    this.#count(this.unread + 1);
  }

  /** Show a message of the user, who need not read it. */
  addOwn(text) {
    const shown = this.#add(text, true);
    this.#keep();
    setTimeout(() => this.#remove([shown]), OWN_MILLISECONDS);
  }

  /** The user has to look at the console, which says itself why. */
  addNews() {
    this.#count(this.unread + 1);
  }

  /** Another user has logged in. */
  forget() {
    this.last = [];
    this.#remove([...this.element.children]);
    this.#count(0);
  }

  #add(text, isOwn) {
    const message = { text: sentence(text), at: Date.now(), isOwn };
    this.last = [...this.last, message].slice(-MOST_MESSAGES);
    const shown = this.#show(message);
    if (this.#shown.size > MOST_MESSAGES) this.#giveWay();
    this.#reveal();
    return shown;
  }

  #show(message) {
    const { text, at, isOwn } = message;
    const shown = h("div", { class: `message said${isOwn ? " own" : ""}`, "data-time": minute(at, Date.now()) }, h("span", {}, printable(text)), this.#dismiss(() => shown));
    this.#shown.set(message, shown);
    this.element.append(shown);
    return shown;
  }

  #keep() {
    const last = this.last.map((each) => ({ ...each, isShown: this.#shown.has(each) }));
    this.#kept.set(last.length || this.unread ? { last, unread: this.unread, earlier: this.#earlier } : null);
  }

  /** The user has them in sight. */
  read() {
    if (!this.unread) return;
    this.#reveal(); // an element out of sight has not scrolled
    this.#count(0);
    this.#removeSeen();
  }

  #removeSeen() {
    const seen = [...this.element.children];
    if (seen.length) setTimeout(() => this.#remove(seen), SEEN_MILLISECONDS);
  }

  #giveWay() {
    const [[message, shown]] = this.#shown;
    shown.remove();
    this.#shown.delete(message);
    this.#tellEarlier(this.#earlier + 1);
  }

  #tellEarlier(number) {
    this.#earlier = number;
    this.#earlierText.textContent = `${this.#earlier} earlier ${this.#earlier === 1 ? "message is" : "messages are"} not shown.`;
    const [first = null] = this.#shown.values();
    this.element.insertBefore(this.#earlierElement, first);
  }

  #dismiss(find) {
    return button("×", () => this.#remove([find()]), { class: "quiet icon", "aria-label": "Dismiss this message" });
  }

  /** The newest message is in sight where there is no room for all; of a long one, its begin. */
  #reveal() {
    this.#on.moved();
    const [first] = this.element.children;
    if (!first) return;
    this.element.scrollTop = /** @type {HTMLElement} */ (this.element.lastChild).offsetTop - /** @type {HTMLElement} */ (first).offsetTop;
  }

  /** @param {Element[]} messages elements */
  #remove(messages) {
    const hadFocus = messages.some((each) => each.contains(document.activeElement));
    messages.forEach((each) => each.remove());
    for (const [message, shown] of this.#shown) if (messages.includes(shown)) this.#shown.delete(message);
    if (messages.includes(this.#earlierElement)) this.#earlier = 0;
    this.#keep();
    this.#on.moved();
    if (hadFocus) this.#on.focus();
  }

  #count(number) {
    this.#mark(number);
    this.#keep();
    this.#on.news();
  }

  #mark(number) {
    this.unread = number;
    const text = unreadText(number);
    fill(this.mark, h("span", { class: "visually-hidden" }, `${text} `));
    this.mark.title = text;
    this.mark.hidden = !number;
  }
}
