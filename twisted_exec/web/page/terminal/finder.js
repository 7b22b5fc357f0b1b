/** The field that finds text in a terminal. */

import { button, fill, h } from "../dom.js";

/** Return how far a search is: `2 of 7`, or that nothing was found. */
export function resultText(index, count) {
  if (!count) return "Not found";
  if (index < 0) return `${count} or more`;
  return `${index + 1} of ${count}`;
}

/**
 * Fill a form whose owner has `screen`, `endFind()` and `logLink`; return what shows a result of the screen.
 *
 * @returns {(index: number, count: number) => void}
 */
export function buildFinder(form, owner) {
  const input = h("input", { type: "search", "aria-label": "Text to find", placeholder: "Find", spellcheck: "false", autocomplete: "off" });
  const result = h("span", { class: "dim", role: "status" });
  const find = (options) => {
    if (input.value) owner.screen?.find(input.value, options);
    else result.textContent = "";
  };
  input.addEventListener("input", () => find({ incremental: true, backwards: true }));
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") owner.endFind();
    if (event.key === "Enter" && event.target === input) find({ backwards: !event.shiftKey });
  });
  fill(
    form,
    input,
    step("Previous", "↑", () => find({ backwards: true })),
    step("Next", "↓", () => find({})),
    result,
    owner.logLink && h("a", { class: "button to-log", href: owner.logLink, title: "Earlier output is in the log" }, "Log"),
    button("×", () => owner.endFind(), { class: "quiet icon", "aria-label": "End the search" }),
  );
  return (index, count) => (result.textContent = input.value ? resultText(index, count) : "");
}

/** Return a button with a word, and with a sign where there is no room for that. */
function step(word, sign, onclick) {
  return button([h("span", { class: "word" }, word), h("span", { class: "sign", "aria-hidden": "true" }, sign)], onclick, { "aria-label": word });
}
