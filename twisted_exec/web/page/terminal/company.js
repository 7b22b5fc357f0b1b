/** Who joins and leaves a console, and messages between its users, without a DOM. The wording is that of kubectl console. */

/** At consoles with more sessions nobody reads who joins and leaves: each change costs a list per page. */
export const MOST_TOLD = 20;
/** Time for the machine runtime to say who gets a message. */
export const RECEIPT_MILLISECONDS = 5000;
export const NO_RECEIPT = "Your message may not have been sent: the server has not confirmed it.";

const MOST_IN_LINE = 3;
const MOST_REMEMBERED = 8;
const LONGEST_NAME = 64;
const NOT_PRINTABLE = /(?! )[\p{C}\p{Z}]/gu;

/**
 * @typedef {object} Person one session at the console
 * @property {string} user
 * @property {boolean} isOwn it is the session of this page
 * @property {boolean} [away] its connection is lost
 */

/** What a user knows of the others at a console. */
export class Company {
  /** @type {number | null} */
  #count = null;
  /** @type {Person[] | null} */
  #people = null;
  #isAlone = false; // those of the last call are not listed, but known: nobody else was there
  /** @type {string[]} */
  #heard = [];

  /** The session begins with so many at the console: a user who comes before the first list was read has joined. */
  begin(count) {
    if (this.#count !== null || count !== 1) return;
    this.#count = count;
    this.#isAlone = true;
  }

  /** Take note of a notice, which may say already that a user has left. */
  heard(text) {
    this.#heard = [...this.#heard, text].slice(-MOST_REMEMBERED);
  }

  /**
   * Return a line about who has joined and left since the last call; empty if nobody has.
   *
   * @param {number} count of all sessions
   * @param {Person[] | null} people null without the right to list them
   * @param {number} [lost] number of the sessions whose connections are lost
   */
  news(count, people, lost = 0) {
    const own = this.#isAlone ? (people?.filter(({ isOwn }) => isOwn) ?? []) : [];
    const [before, known] = [this.#count, own.length ? own : this.#people];
    this.#isAlone = false;
    this.#count = count;
    const shown = people && known ? withoutStrangers(people, known) : people;
    this.#people = shown;
    if (before === null || Math.max(before, count) > MOST_TOLD) return "";
    if (shown && known) return this.#names(known, shown, people?.length === count);
    if (before === count) return "";
    const present = Math.max(0, count - lost);
    const sessions = `${present} ${present === 1 ? "session" : "sessions"}${lost ? `, ${lost} lost` : ""}`;
    return `somebody has ${count > before ? "joined" : "left"} (${sessions})`;
  }

  #names(before, people, isComplete) {
    const of = (some) => some.map(({ user }) => user);
    const count = (some, user) => of(some).filter((each) => each === user).length;
    const others = (some, known) => [...new Set(of(some))].filter((user) => !of(known).includes(user));
    const joined = others(people, before).map(displayName);
    const left = others(before, people).map(displayName).filter((name) => !this.#hasReadOf(name));
    const own = people.find(({ isOwn }) => isOwn)?.user;
    const connected = people.filter(({ away }) => !away);
    const isTwice = own !== undefined && isComplete && count(before, own) > 0 && count(connected, own) > count(before, own);
    if (isTwice) joined.unshift("another session of yours");
    return [clause(joined, "joined"), clause(left, "left")].filter(Boolean).join("; ");
  }

  #hasReadOf(name) {
    return this.#heard.some((each) => each.split("; ").includes(`${name} has left`));
  }
}

/**
 * Return the people without the lost sessions of users who were not there before: such a session has not joined. It has left, and the
 * server lists it until it can no longer come back.
 */
function withoutStrangers(people, before) {
  const known = new Set(before.map(({ user }) => user));
  return people.filter(({ user, away }) => !away || known.has(user));
}

/** Return the name of a user as notices of the machine runtime show it: `display_name` of `twisted_exec/api/display.py`. */
function displayName(user) {
  if (!user) return "somebody";
  const characters = [...user];
  const shown = characters.length > LONGEST_NAME ? [...characters.slice(0, LONGEST_NAME - 1), "\u2026"] : characters;
  return shown.join("").replace(NOT_PRINTABLE, "?");
}

function clause(names, act) {
  const more = names.length - MOST_IN_LINE;
  const shown = more > 0 ? [...names.slice(0, MOST_IN_LINE), `${more} more`] : names;
  if (!shown.length) return "";
  if (shown.length === 1) return `${shown[0]} has ${act}`;
  return `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)} have ${act}`;
}

/** Whether the receipt for a message says that others get it: it quotes the message then. */
export function isPassedOn(receipt) {
  return receipt.endsWith('"');
}

/**
 * Return the text of a message as it is sent: one line.
 *
 * @param {string} text
 */
export function messageLine(text) {
  return text.trim().split(/\s+/u).join(" ").replace(/[\ud800-\udfff]/gu, "\ufffd"); // what is no character alone
}
