/** Questions to the user: modal dialogs that resolve with an answer. */

import { button, fill, h, holdStill, printable } from "./dom.js";

let numbers = 0;

/**
 * Open a dialog that the user may leave without an answer; another view, as after the browser's Back, closes it, and so
 * does a click beside it.
 *
 * @param {string} title
 * @param {(close: (answer: any) => void, dialog: HTMLDialogElement) => any} build returns its content
 * @returns {Promise<any>} the argument of `close`; null without an answer
 */
export function ask(title, build) {
  return open(title, build, {});
}

/** As {@link ask}, but it opens by itself: it takes nothing of what its user is typing elsewhere. */
export function interrupt(title, build) {
  return open(title, build, { isSudden: true });
}

/**
 * As {@link ask}, but the user cannot leave it: the page is of no use without the answer.
 *
 * @param {string} title
 * @param {(close: (answer: any) => void, dialog: HTMLDialogElement) => any} build
 * @param {boolean} isSudden it opens by itself, as with {@link interrupt}
 */
export function insist(title, build, isSudden) {
  return open(title, build, { stays: true, isSudden });
}

function open(title, build, { stays = false, isSudden = false }) {
  return new Promise((resolve) => {
    const id = `dialog-${++numbers}`;
    let answer = null;
    let isAnswered = false;
    const dialog = h("dialog", { "aria-labelledby": id });
    const closed = new AbortController();
    const opener = document.activeElement;
    const close = (value) => {
      answer = value;
      isAnswered = true;
      dialog.close();
    };
    const heading = h("h2", { id, autofocus: isSudden }, title);
    if (isSudden) holdStill(heading, opener);
    fill(dialog, heading, build(close, dialog));
    dialog.addEventListener("cancel", (event) => stays && event.preventDefault());
    dialog.addEventListener("close", () => {
      // Chromium closes a dialog at the second Escape in any case.
      if (stays && !isAnswered) {
        dialog.showModal();
        return;
      }
      closed.abort();
      dialog.remove();
      if (opener && !opener.isConnected) focusLike(opener);
      resolve(answer);
    });
    if (!stays) {
      closeBeside(dialog, () => close(null));
      const { signal } = closed;
      addEventListener("hashchange", () => close(null), { signal });
      // Back closes the dialog alone, where the browser lets a page say so.
      const { navigation } = /** @type {any} */ (globalThis);
      navigation?.addEventListener("navigate", (event) => {
        if (event.navigationType !== "traverse" || !event.cancelable) return;
        event.preventDefault();
        close(null);
      }, { signal });
    }
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Give the focus to the control in the place of one that was drawn again; the browser finds one that stays. */
function focusLike({ localName, ariaLabel }) {
  if (!ariaLabel) return;
  const all = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(localName)]);
  all.find((each) => each.ariaLabel === ariaLabel)?.focus({ preventScroll: true });
}

/** Call `close` for a click that begins and ends beside a dialog: a selection of its text may end there. */
function closeBeside(dialog, close) {
  const isBeside = ({ target, clientX, clientY }) => {
    const { left, right, top, bottom } = dialog.getBoundingClientRect();
    return target === dialog && (clientX < left || clientX > right || clientY < top || clientY > bottom);
  };
  let hasBegun = false;
  dialog.addEventListener("pointerdown", (event) => (hasBegun = isBeside(event)));
  dialog.addEventListener("click", (event) => hasBegun && isBeside(event) && close());
}

/**
 * Ask before something that cannot be undone, or that others notice.
 *
 * @param {string} question the title, which names the object
 * @param {any} consequences text, or a list with elements
 * @param {string} action the label of the button that does it
 * @param {"danger" | "primary"} kind of that button
 * @returns {Promise<boolean>}
 */
export async function confirmed(question, consequences, action, kind = "danger") {
  const answer = await ask(question, (close) => [
    h("p", {}, consequences),
    h(
      "div",
      { class: "actions" },
      button("Cancel", () => close(false), { autofocus: true }),
      button(action, () => close(true), { class: kind }),
    ),
  ]);
  return answer === true;
}

/**
 * Ask whether a machine shall be reset.
 *
 * @param {string} name of the machine, printable.
 * @param {string} others who else is at its console, as a printable sentence; empty: nobody, or unknown.
 */
export function resetConfirmed(name, others) {
  return confirmed(`Reset ${name}?`, `${behind(others)}The programs of the machine end. It is powered off, and on again when it has stopped; this console opens again after that.`, "Reset");
}

/**
 * Ask whether a machine shall be powered off.
 *
 * @param {string} name of the machine, printable.
 * @param {string} others who else is at its console, as a printable sentence; empty: nobody, or unknown.
 */
export function powerOffConfirmed(name, others) {
  return confirmed(`Power off ${name}?`, `${behind(others)}The programs of the machine end. Open consoles wait a minute for its next start, then they end.`, "Power off");
}

function behind(sentence) {
  return sentence && `${sentence} `;
}

/**
 * Ask what shall happen to a console that is recorded already.
 *
 * @param {string} name of the machine, printable.
 * @param {string} recordings for whom, printable.
 * @param {{mayEnd: boolean, required: string}} end whether the user may end one; `required`: when those of policies end, printable.
 * @returns {Promise<"end" | "begin" | null>} the recording ends, another one begins, or neither.
 */
export function recordedAlready(name, recordings, { mayEnd, required }) {
  return ask(`${name} is already recorded`, (close) => [
    h("p", {}, `For ${recordings}.`),
    required && h("p", {}, required),
    h(
      "div",
      { class: "actions" },
      button("Cancel", () => close(null), { autofocus: true }),
      button("Begin another recording", () => close("begin")),
      mayEnd && button("End the recording", () => close("end"), { class: "danger" }),
    ),
  ]);
}

/** Ask whether a recording shall end. */
export function endRecordingConfirmed({ name, machine }) {
  return confirmed(`End the recording ${printable(name)} of ${printable(machine)}?`, "A recording that has ended cannot be continued.", "End the recording");
}
