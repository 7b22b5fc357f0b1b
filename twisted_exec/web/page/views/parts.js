/** Parts that the views share: tables that keep the focus, menus, downloads. */

import { Backoff } from "../backoff.js";
import { causesOf, withoutRemedy } from "../details.js";
import { button, fill, h, notice, printable, renew } from "../dom.js";
import { duration, minute } from "../times.js";
import { rest } from "../watch.js";

const TICK_MILLISECONDS = 1000;
const PATIENCE_MILLISECONDS = 2000; // before the page says that it waits
const LONG_MILLISECONDS = 10_000; // before it says what may be in the way
const SILENT_MILLISECONDS = 20_000; // before it says that the server does not answer, and lets the user try at once
const SILENT = "It may be busy or stopped, or the network may be down.";
const STEP = 200; // rows that are drawn at once; more follow when the user asks for them
const SKELETON_ROWS = 6;
const LONGEST_WAIT_SECONDS = 15; // between two attempts to read what is not watched

/**
 * Return the notice of a right that the user lacks.
 *
 * @param {string} text what the user may not do.
 * @param {string} advice
 * @param {{message: string, status?: any}} error the server's words.
 * @param {any} [instead] what the user may do.
 */
export function lacking(text, advice, error, instead) {
  return notice("warning", h("p", {}, text), h("p", {}, advice), instead, h("p", { class: "dim mono" }, printable(withoutRemedy(error.message, causesOf(error.status)))));
}

/** Return the advice to ask for a role in a namespace. */
export function askFor(role, namespace) {
  return `Ask your administrator for the role “${role}” in the namespace ${printable(namespace)}.`;
}

/**
 * Return the notice of what the server does not give now, with a button that does not wait for the next attempt.
 *
 * @param {EventTarget} api
 * @param {any} state what the user has instead, such as `This list is as of 14:05`; behind `since` such as `No log`.
 * @param {string} message what is in the way.
 * @param {object} [options]
 * @param {number | null} [options.since] when the user has begun to wait, in milliseconds since 1970; null: the state says it.
 * @param {any} [options.more] text or an element behind it.
 */
export function outageNotice(api, state, message, { since = null, more = null } = {}) {
  const waited = h("span", { "aria-hidden": "true" }); // screen readers would read each second
  const retry = button("Try now", () => api.dispatchEvent(new Event("retry")));
  const text = h("span", {}, state, waited, `: ${printable(message).replace(/\.$/, "")}. The page tries again by itself. `, more);
  const made = notice("warning", h("div", { class: "retry" }, text, " ", retry));
  if (since === null) return made;
  const tell = () => {
    waited.textContent = ` for ${duration(Date.now() - since)}`;
  };
  const timer = setInterval(() => (made.isConnected ? tell() : clearInterval(timer)), TICK_MILLISECONDS);
  tell();
  return made;
}

/**
 * Return what an attempt reads. While the server cannot be reached, or the user has to log in, a notice says it, and the page
 * tries again, as lists and consoles do.
 *
 * @template Result
 * @param {any} context of the page
 * @param {HTMLElement} place of the notice
 * @param {string} state such as `No log`
 * @param {AbortSignal} signal
 * @param {() => Promise<Result>} attempt
 * @returns {Promise<Result>}
 */
export async function whenServed({ api }, place, state, signal, attempt) {
  const since = Date.now();
  const backoff = new Backoff(1, LONGEST_WAIT_SECONDS);
  let said = "";
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (signal.aborted || !error.isPassing || error.code === 501) throw error;
      const text = error.code === 401 ? "Waiting for your login." : error.message;
      // A button that is drawn again loses the focus.
      if (said !== text) fill(place, error.code === 401 ? notice("warning", text) : outageNotice(api, state, text, { since }));
      said = text;
    }
    await rest(backoff.pause(), signal, api);
  }
}

/** Return what is said of rows or a screen that may be old, which are grey then. */
export function asOfText(noun, time) {
  return h("span", { class: "as-of" }, `This ${noun} is as of ${minute(time, Date.now())}`);
}

/**
 * A table whose rows are kept by key, so that an update does not take the focus or the selection away.
 */
export class Table {
  #all = [];
  #limit = STEP;
  #more = button("", () => this.#showMore(), { hidden: true });
  #rows = new Map();
  #body = h("tbody");
  #scroll;
  #empty = h("div", { hidden: true });
  #skeleton = skeleton();
  #columns;

  /**
   * @param {string} caption for screen readers.
   * @param {{title: string, cell: (row: any) => any, class?: string}[]} columns a cell is a node, a list, or text,
   *   which is shown printable.
   */
  constructor(caption, columns) {
    this.#columns = columns;
    const heads = columns.map(({ title, class: name }) => h("th", { scope: "col", class: name ?? null }, title || h("span", { class: "visually-hidden" }, "Actions")));
    this.#scroll = h(
      "div",
      { class: "scroll facing", hidden: true },
      h("table", { class: "list" }, h("caption", { class: "visually-hidden" }, caption), h("thead", {}, h("tr", {}, heads)), this.#body),
    );
    this.element = h("div", {}, this.#scroll, this.#more, this.#empty, this.#skeleton);
  }

  /**
   * @param {{key: string}[]} rows a row is drawn again when it differs.
   * @param {string | HTMLElement | false | null} empty instead of no rows; false or null while they are not known.
   */
  update(rows, empty) {
    this.#all = rows;
    this.#drawRows();
    this.#scroll.hidden = rows.length === 0;
    this.#skeleton.hidden = rows.length > 0 || (empty !== null && empty !== false);
    this.#empty.hidden = rows.length > 0 || !empty;
    const shown = typeof empty === "string" ? emptyState(empty) : empty || null;
    if (this.#empty.textContent !== (shown?.textContent ?? "")) fill(this.#empty, shown);
  }

  #drawRows() {
    const known = this.#rows;
    this.#rows = new Map();
    let place = this.#body.firstChild;
    for (const row of this.#all.slice(0, this.#limit)) {
      const drawn = JSON.stringify(row);
      let entry = known.get(row.key);
      known.delete(row.key);
      if (!entry) entry = { element: h("tr"), drawn: "" };
      if (entry.drawn !== drawn) this.#draw(entry, row, drawn);
      this.#rows.set(row.key, entry);
      if (entry.element === place) place = entry.element.nextSibling;
      else this.#body.insertBefore(entry.element, place);
    }
    for (const { element } of known.values()) element.remove();
    const hidden = this.#all.length - this.#rows.size;
    this.#more.hidden = hidden <= 0;
    this.#more.textContent = `Show ${Math.min(STEP, hidden)} more of ${hidden}`;
  }

  #showMore() {
    const last = this.#body.lastElementChild;
    this.#limit += STEP;
    this.#drawRows();
    /** @type {HTMLElement | null} */ (last?.nextElementSibling?.querySelector("a, button, summary"))?.focus();
  }

  #draw(entry, row, drawn) {
    const focused = /** @type {HTMLElement | null} */ (
      entry.element.contains(document.activeElement) ? document.activeElement : null
    );
    const opened = entry.element.querySelector("details[open]") !== null;
    const cells = this.#columns.map(({ title, cell, class: name }) => {
      const content = cell(row);
      // On a phone a title is beside its value, which is one element then.
      const isValue = Array.isArray(content) && title && name !== "name";
      const value = isValue ? h("div", {}, content) : typeof content === "string" ? printable(content) : content;
      return h("td", { class: name ?? null, "data-title": title }, isValue && !value.firstChild ? null : value);
    });
    if (opened) cells.forEach((each) => each.querySelector("details")?.setAttribute("open", ""));
    renew(entry.element, cells);
    if (focused && !focused.isConnected) entry.element.querySelector(`[data-action="${focused.dataset.action}"]`)?.focus();
    entry.drawn = drawn;
  }
}

/**
 * The number of rows that are shown: `2 sessions`, or `1 of 2 sessions`.
 *
 * @param {number} count
 * @param {number} total
 * @param {string} noun
 * @returns {string}
 */
export function countOf(count, total, noun) {
  const nouns = total === 1 ? noun : `${noun}s`;
  return count === total ? `${total} ${nouns}` : `${count} of ${total} ${nouns}`;
}

/** Bars in the place of rows that have not arrived yet, so that loading does not look like an empty list. */
export function skeleton(rows = SKELETON_ROWS) {
  const bars = Array.from({ length: rows }, () => h("div", { "aria-hidden": "true" }, h("span"), h("span"), h("span")));
  return h("div", { class: "skeleton" }, h("p", { class: "visually-hidden" }, "Loading"), bars);
}

/** Return what may be in the way of an answer for which the page has waited so long; empty if it is early to say. */
export function silenceText(milliseconds) {
  if (milliseconds < LONG_MILLISECONDS) return "";
  return isSilence(milliseconds) ? `It does not answer. ${SILENT}` : SILENT;
}

/** Whether the page has waited so long that the user may want to try at once. */
export function isSilence(milliseconds) {
  return milliseconds >= SILENT_MILLISECONDS;
}

/**
 * Say for whom the page waits and for how long, unless the answer comes at once, and what may be in the way.
 *
 * @param {HTMLElement} element
 * @param {{config: {cluster?: string}, api: EventTarget}} context of the page
 * @param {object} [options]
 * @param {any} [options.more] text or an element behind it.
 * @param {string} [options.reason] what is in the way, if that is known.
 * @param {number} [options.began] when the page has begun to wait, in milliseconds since 1970.
 * @param {() => void} [options.told] called when it says so.
 * @returns {() => void} to be called when there is an answer.
 */
export function tellWaiting(element, { config: { cluster }, api }, { more = null, reason = "", began = Date.now(), told = () => {} } = {}) {
  const text = h("span");
  const retry = button("Try now", () => api.dispatchEvent(new Event("retry")));
  const tell = () => {
    const waited = Date.now() - began;
    const isSilent = isSilence(waited);
    const why = reason || silenceText(waited);
    if (waited < PATIENCE_MILLISECONDS) return;
    fill(text, `Waiting for the server (${printable(cluster || location.host)}), for ${duration(waited)} so far. `, why && `${why} `, more, isSilent && " ");
    const parts = isSilent ? [text, retry] : [text];
    if (!element.firstChild) told();
    if (element.children.length !== parts.length) fill(element, parts); // a button that is drawn again loses the focus
  };
  const timer = setInterval(tell, TICK_MILLISECONDS);
  tell();
  return () => {
    clearInterval(timer);
    fill(element);
  };
}

/**
 * What is shown instead of no rows: a sentence, and what the user can do.
 *
 * @param {string | (string | Node)[]} sentence
 * @param {string | false} [label] of the action.
 * @param {string | (() => void)} [action] an address or what the button does.
 * @returns {HTMLElement}
 */
export function emptyState(sentence, label = "", action = "") {
  const act = typeof action === "string" ? h("a", { class: "button", href: action }, label) : button(label, action);
  return h("div", { class: "notice empty", role: "status" }, h("p", {}, sentence), label && h("p", {}, act));
}

/**
 * The fields above a list. Where the page is narrow, all but the filter are behind a button.
 *
 * @param {HTMLInputElement} filter
 * @param {[string, HTMLInputElement | HTMLSelectElement][]} others with their labels.
 * @returns {HTMLElement}
 */
export function toolbar(filter, others) {
  const [show, more] = foldable("Filters", others.map(([label, input]) => field(label, input)));
  // Below a filter that is typed are its rows, also above the keyboard of a phone.
  filter.addEventListener("input", () => show.getAttribute("aria-expanded") === "true" && show.click());
  return h("div", { class: "toolbar list-toolbar", role: "search" }, field("Filter", filter), others.length > 0 && [show, more]);
}

/** The head of a list: its title, with what is counted, and its fields. */
export function listHead(toolbar, title, ...counts) {
  return h("div", { class: "list-head" }, h("div", { class: "page-head" }, h("h1", {}, title), counts), toolbar);
}

/**
 * Controls that are behind a button where the page is narrow.
 *
 * @param {string} label of the button.
 * @param {any[]} controls
 * @returns {HTMLElement[]} the button and the controls.
 */
export function foldable(label, controls) {
  const more = h("div", { class: "more-fields" }, controls);
  const show = button(label, () => {
    const isOpen = more.classList.toggle("open");
    show.setAttribute("aria-expanded", String(isOpen));
  }, { class: "filters-button", "aria-expanded": "false" });
  return [show, more];
}

/** Give a field the focus, also if it is behind a button of {@link foldable}. */
export function reveal(input) {
  const more = input.closest(".more-fields");
  if (more && !more.checkVisibility()) more.previousElementSibling.click();
  input.focus();
}

/** Let `/` move to a field until the signal aborts, as on many pages. */
export function reachBySlash(input, signal) {
  const pressed = (event) => {
    const { key, target, ctrlKey, altKey, metaKey } = event;
    if (key !== "/" || ctrlKey || altKey || metaKey || target.closest?.("input, textarea, select, dialog")) return;
    event.preventDefault();
    input.focus();
    input.select();
  };
  addEventListener("keydown", pressed, { signal });
}

/** Show bars in an element, and for how long the page waits; return what is to be called when there is an answer. */
export function showWaiting(element, context) {
  const text = h("p", { class: "dim" });
  fill(element, text, skeleton());
  return tellWaiting(text, context);
}

/**
 * A field with its label.
 *
 * @param {string} label
 * @param {HTMLInputElement | HTMLSelectElement} input
 * @returns {HTMLElement}
 */
export function field(label, input) {
  if (input.type === "checkbox") return h("label", { class: "check" }, input, h("span", {}, label));
  return h("label", { class: "field" }, h("span", {}, label), input);
}

/**
 * A button that shows more buttons; Escape and a click elsewhere hide them.
 *
 * @param {string} label
 * @param {HTMLElement} items
 * @param {() => void} [opened]
 * @returns {HTMLDetailsElement}
 */
export function menu(label, items, opened = () => {}) {
  const summary = h("summary", { class: "button" }, label);
  items.classList.add("menu-items");
  const leave = (event) => {
    if (!details.contains(event.target)) details.open = false;
  };
  const details = h("details", { class: "menu" }, summary, items);
  details.addEventListener("toggle", () => {
    if (details.open) {
      document.addEventListener("pointerdown", leave);
      opened();
    } else {
      document.removeEventListener("pointerdown", leave);
    }
  });
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !details.open) return;
    event.stopPropagation();
    details.open = false;
    summary.focus();
  });
  return details;
}

/**
 * A button that copies a text. Its label then says so.
 *
 * @param {string} label
 * @param {() => string} text
 * @param {Record<string, any>} [attributes]
 * @returns {HTMLElement}
 */
export function copyButton(label, text, attributes = {}) {
  const made = button(label, async () => {
    try {
      await navigator.clipboard.writeText(text());
      made.textContent = "Copied";
    } catch {
      made.textContent = "The browser does not let this page copy: select the text and copy it";
    }
  }, { "aria-live": "polite", ...attributes });
  return made;
}

/**
 * Let the browser save bytes as a file.
 *
 * @param {string} name
 * @param {BlobPart[]} parts
 * @param {string} [type]
 */
export function save(name, parts, type = "application/octet-stream") {
  const address = URL.createObjectURL(new Blob(parts, { type }));
  const link = h("a", { href: address, download: name.replace(/[^\w.+-]/g, "_") });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/**
 * A state as a small label.
 *
 * @param {string} text
 * @param {string} [kind] "good", "waiting" or "bad".
 * @returns {HTMLElement}
 */
export function badge(text, kind = "") {
  return h("span", { class: `badge ${kind}`.trim() }, printable(text));
}
