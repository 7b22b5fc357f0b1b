/** Messages of other users at one console: over its terminal until the user has seen them, and the last ones for Details. */

import { button, fill, h, printable } from "../dom.js";
import { unreadText } from "../frame.js";
import { minute } from "../times.js";
import { sentence } from "./texts.js";

/** The number of messages that are kept: older ones give way. */
export const MOST_MESSAGES = 20;
const SEEN_MILLISECONDS = 30_000; // longer than a notice of the page: a message needs an answer

export class Messages {
  // Not in the terminal, where a machine could print the same, nor in place of what the server says.
  element = h("div", { class: "said-list", role: "log", "aria-label": "Messages of other users" });
  /** How many were not in sight yet. */
  unread = 0;
  /** In the tab of the console: the same. */
  mark = h("span", { class: "badge news", hidden: true });
  /** @type {{text: string, at: number}[]} The last messages, with those of the user, the oldest first. */
  last = [];
  #shown = []; // elements, the oldest first
  #earlier = 0; // messages that gave way unseen, or while they were in sight
  #earlierText = h("span");
  #earlierElement = h("div", { class: "message said", "data-time": "" }, this.#earlierText, this.#dismiss(() => this.#earlierElement));
  #on;

  /** @param {object} on `news()`: the number of unread messages has changed; `moved()`: the list has; `focus()`: it had the focus */
  constructor(on) {
    this.#on = on;
  }

  /** Keep a message for Details alone. */
  keep(text) {
    this.last = [...this.last, { text: sentence(text), at: Date.now() }].slice(-MOST_MESSAGES);
  }

  /** Show a message of another user until it was in sight for some time, is dismissed, or many others follow. */
  add(text) {
    this.keep(text);
    const time = minute(Date.now(), Date.now());
    const shown = h("div", { class: "message said", "data-time": time }, h("span", {}, printable(sentence(text))), this.#dismiss(() => shown));
    this.#shown.push(shown);
    this.element.append(shown);
    if (this.#shown.length > MOST_MESSAGES) this.#giveWay();
    this.#reveal();
    this.#count(this.unread + 1);
  }

  /** The user has them in sight. */
  read() {
    if (!this.unread) return;
    this.#reveal(); // an element out of sight has not scrolled
    this.#count(0);
    const seen = [...this.element.children];
    setTimeout(() => this.#remove(seen), SEEN_MILLISECONDS);
  }

  #giveWay() {
    this.#shown.shift().remove();
    this.#earlier += 1;
    this.#earlierText.textContent = `${this.#earlier} earlier ${this.#earlier === 1 ? "message is" : "messages are"} not shown.`;
    this.element.insertBefore(this.#earlierElement, this.#shown[0]);
  }

  #dismiss(find) {
    return button("×", () => this.#remove([find()]), { class: "quiet icon", "aria-label": "Dismiss this message" });
  }

  /** The newest message is in sight where there is no room for all; of a long one, its begin. */
  #reveal() {
    this.#on.moved();
    const [first] = this.element.children;
    this.element.scrollTop = this.#shown.at(-1).offsetTop - /** @type {HTMLElement} */ (first).offsetTop;
  }

  /** @param {Element[]} messages */
  #remove(messages) {
    const hadFocus = messages.some((each) => each.contains(document.activeElement));
    messages.forEach((each) => each.remove());
    this.#shown = this.#shown.filter((each) => !messages.includes(each));
    if (messages.includes(this.#earlierElement)) this.#earlier = 0;
    this.#on.moved();
    if (hadFocus) this.#on.focus();
  }

  #count(number) {
    this.unread = number;
    const text = unreadText(number);
    fill(this.mark, h("span", { class: "visually-hidden" }, `${text} `));
    this.mark.title = text;
    this.mark.hidden = !number;
    this.#on.news();
  }
}
