/** The filter and the namespaces that a user types above a list. */

/**
 * Whether each word of a filter is in one of the texts.
 *
 * @param {string[]} texts of a row: those that the user sees, or a row would stay for no visible reason.
 * @param {string} filter
 * @returns {boolean}
 */
export function matches(texts, filter) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return true;
  const whole = texts.join("\n").toLowerCase();
  return words.every((word) => whole.includes(word));
}

/** Return the namespace of a user who has named none. */
export function homeOf({ config, store }) {
  return store.get("namespace") ?? (config.namespace || config.machine?.namespace || "default");
}

/** Return the namespaces of a text such as `team-a, team-b`; [""] for all. */
export function namespacesOf(text) {
  const names = text.split(/[\s,]+/).filter(Boolean);
  return names.length && !names.includes("*") ? [...new Set(names)] : [""];
}
