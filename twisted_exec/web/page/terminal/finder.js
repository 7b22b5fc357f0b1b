/** The field that finds text in a terminal. */

import { button, fill, h } from "../dom.js";

/** Fill a form whose owner has `screen` and `endFind()`. */
export function buildFinder(form, owner) {
  const input = h("input", { type: "search", "aria-label": "Text to find", spellcheck: "false", autocomplete: "off" });
  const result = h("span", { class: "dim", role: "status" });
  const find = (options) => {
    const found = !input.value || owner.screen?.find(input.value, options);
    result.textContent = found ? "" : "not found";
  };
  input.addEventListener("input", () => find({ incremental: true, backwards: true }));
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") owner.endFind();
    if (event.key === "Enter" && event.target === input) find({ backwards: !event.shiftKey });
  });
  fill(
    form,
    input,
    button("Previous", () => find({ backwards: true })),
    button("Next", () => find({})),
    result,
    button("×", () => owner.endFind(), { class: "quiet icon", "aria-label": "End the search" }),
  );
}
