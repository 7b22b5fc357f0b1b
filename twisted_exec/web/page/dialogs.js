/** Questions to the user: modal dialogs that resolve with an answer. */

import { button, fill, h } from "./dom.js";

let numbers = 0;

/** Open a dialog; `build(close)` returns its content. Resolves with the argument of `close`, or with null. */
export function ask(title, build) {
  return new Promise((resolve) => {
    const id = `dialog-${++numbers}`;
    let answer = null;
    const dialog = h("dialog", { "aria-labelledby": id });
    const close = (value) => {
      answer = value;
      dialog.close();
    };
    fill(dialog, h("h2", { id }, title), build(close, dialog));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/**
 * Ask before something that cannot be undone.
 *
 * @param {string} question
 * @param {string} action the title, and the label of the button that does it
 * @returns {Promise<boolean>}
 */
export async function confirmed(question, action) {
  const answer = await ask(action, (close) => [
    h("p", {}, question),
    h(
      "div",
      { class: "actions" },
      button("Cancel", () => close(false), { autofocus: true }),
      button(action, () => close(true), { class: "danger" }),
    ),
  ]);
  return answer === true;
}
