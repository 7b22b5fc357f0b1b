/** The filter of lists. */

/**
 * Whether each word of a filter is in one of the texts.
 *
 * @param {string[]} texts of a row: those that the user sees, or a row would stay for no visible reason.
 * @param {string} filter
 * @returns {boolean}
 */
export function matches(texts, filter) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const whole = texts.join("\n").toLowerCase();
  return words.every((word) => whole.includes(word));
}
