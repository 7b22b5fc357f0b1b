/** Routes in `location.hash`. */

const VIEWS = ["machines", "recordings", "sessions", "alerts", "requests", "consoles"];
const PARTS = ["logs", "screen", "recordings", "events"];
const ALIASES = { log: "logs" }; // as the view and the subresource are called

/**
 * Return the view and the parameters of a hash; the machine list for anything unknown, which is then a parameter.
 *
 * `#/machines/NS/NAME` is a console, `#/machines/NS/NAME/logs` (or `log`) a part of a machine; a query may follow.
 *
 * @returns {{view: string, parameters: {namespace?: string, name?: string, part?: string, unknown?: string, query: URLSearchParams}}}
 */
export function parse(hash) {
  const [path, text = ""] = splitOnce(hash.replace(/^#\/?/, ""), "?");
  const query = new URLSearchParams(text);
  const words = path.split("/").filter(Boolean).map(decode);
  const [first, namespace, name, last] = words;
  const part = ALIASES[last] ?? last;
  // In the path of a request they would name something else.
  const isOther = words.some((word) => word === "." || word === "..");
  if (!isOther && first === "machines" && namespace && name) {
    if (!part) return { view: "console", parameters: { namespace, name, query } };
    if (PARTS.includes(part)) return { view: part, parameters: { namespace, name, part, query } };
  }
  // #/recordings/NS/NAME is one recording.
  if (!isOther && VIEWS.includes(first) && first !== "machines") return { view: first, parameters: { namespace, name, query } };
  const isList = words.length === 0 || (words.length === 1 && first === "machines");
  return { view: "machines", parameters: isList ? { query } : { unknown: path, query } };
}

/** Return the hash of a machine's console, or of another part of it. */
export function machineLink(namespace, name, part = "") {
  const path = `#/machines/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  return part ? `${path}/${part}` : path;
}

function splitOnce(text, separator) {
  const at = text.indexOf(separator);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function decode(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}
