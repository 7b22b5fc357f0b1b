/** What a view says of a machine that does not exist, as its console does. */

import { kindOf } from "../details.js";
import { h, notice, printable } from "../dom.js";
import { suggested } from "../terminal/suggestion.js";
import { isMachineMissing, missingTexts } from "../terminal/texts.js";

/** Whether a request has failed because its machine does not exist. */
export function lacksMachine({ code, reason, status }) {
  const kind = kindOf(status); // which a proxy does not name
  return kind !== "" && isMachineMissing({ code, reason, kind });
}

/**
 * Return the notice of a machine that does not exist.
 *
 * @param {any} context of the page
 * @param {{namespace: string, name: string}} place
 * @param {string} part the view of the machine.
 * @param {HTMLElement | null} [way] what is left of a machine that was there before; null: it was not.
 */
export function noMachine(context, place, part, way = null) {
  const { title, text } = missingTexts(way !== null, place);
  const said = h("p", {}, printable(`${title}. ${text}`.trim()));
  if (way) return notice("warning", said, way);
  return notice("error", said, suggested(context, place, part), h("p", {}, h("a", { class: "button", href: "#/machines" }, "List of machines")));
}
