/**
 * ConsoleAlerts, and the Events of their matches (docs/howto/alerts.rst).
 */

const MESSAGE =
  /^(Info|Warning|Critical): pattern (\S+) of alert (\S+) at offset (\d{1,16})(?: \((\d+) more since the last Event\))?: "(.*)"?$/s;
const STATES = ["Unsupported", "Degraded", "Watching"];

/**
 * Read the Event of a match.
 *
 * @param {any} event of v1.
 * @returns {null | {key: string, namespace: string, machine: string, group: string, severity: string, pattern: string, alert: string,
 *   offset: number, suppressed: number, line: string, reason: string, count: number, time: string}} null for other
 *   Events.
 */
export function matchOf(event) {
  const match = MESSAGE.exec(event.message ?? "");
  if (!match) return null;
  const [, severity, pattern, alert, offset, suppressed, line] = match;
  return {
    key: `${event.metadata.namespace}/${event.metadata.name}`,
    namespace: event.involvedObject?.namespace ?? event.metadata.namespace,
    machine: event.involvedObject?.name ?? "",
    group: (event.involvedObject?.apiVersion ?? "").split("/")[0],
    severity,
    pattern,
    alert,
    offset: Number(offset),
    suppressed: Number(suppressed ?? 0),
    line: line.replace(/"$/, ""),
    reason: event.reason ?? "",
    count: event.count ?? event.series?.count ?? 1,
    time: event.lastTimestamp ?? event.eventTime ?? event.metadata.creationTimestamp ?? "",
  };
}

/** The texts of a match in which the filter looks. */
export function matchTextsOf({ namespace, machine, severity, pattern, alert, line }) {
  return [namespace, machine, severity, pattern, alert, line];
}

/**
 * One alert as a row.
 *
 * @param {any} alert
 */
export function rowOf(alert) {
  const { spec = {}, status = {}, metadata } = alert;
  const pools = status.pools ?? [];
  const sum = (name) => pools.reduce((total, pool) => total + (pool[name] ?? 0), 0);
  return {
    key: `${metadata.namespace}/${metadata.name}`,
    namespace: metadata.namespace,
    name: metadata.name,
    presets: spec.presets ?? [],
    patterns: (spec.patterns ?? []).map((pattern) => ({
      name: pattern.name,
      text: pattern.literal ?? pattern.regex ?? "",
      isRegex: pattern.regex !== undefined,
      severity: pattern.severity ?? "Warning",
      condition: pattern.condition ?? "",
    })),
    selector: selectorText(spec.selector),
    state: STATES.find((state) => pools.some((pool) => pool.state === state)) ?? "None",
    messages: pools.filter((pool) => pool.message).map((pool) => `${pool.pool ?? pool.name ?? ""}: ${pool.message}`),
    machines: sum("machines"),
    matches: sum("matches"),
    last: pools.map((pool) => pool.lastMatchTime ?? "").sort().pop() ?? "",
  };
}

/** The state of an alert's row for the user. */
export function stateText({ state }) {
  return state === "None" ? "selects no machine" : state;
}

/** The texts of an alert's row in which the filter looks. */
export function textsOf(row) {
  const { namespace, name, messages, selector, presets } = row;
  const patterns = row.patterns.flatMap((pattern) => [pattern.name, pattern.text]);
  return [namespace, name, stateText(row), ...messages, selector, ...presets, ...patterns];
}

/**
 * A label selector in the form that kubectl takes.
 *
 * @param {any} selector
 * @returns {string} empty if it selects everything.
 */
export function selectorText(selector) {
  const labels = Object.entries(selector?.matchLabels ?? {}).map(([key, value]) => `${key}=${value}`);
  const expressions = (selector?.matchExpressions ?? []).map(({ key, operator, values = [] }) => {
    if (operator === "Exists") return key;
    if (operator === "DoesNotExist") return `!${key}`;
    return `${key} ${operator === "NotIn" ? "notin" : "in"} (${values.join(", ")})`;
  });
  return [...labels, ...expressions].join(",");
}

/** The texts of an unhealthy machine's row in which the filter looks. */
export function healthTextsOf({ namespace, name, reason, message }) {
  return [namespace, name, reason, message];
}

/**
 * Whether a console is healthy, by the condition of its machine; the offset is where its log has the line.
 *
 * @param {any} machine
 * @returns {null | {isHealthy: boolean, reason: string, message: string, offset: number | null, since: string}} null if no alert says so.
 */
export function healthOf(machine) {
  const condition = (machine.status?.conditions ?? []).find((each) => each.type === "ConsoleHealthy");
  if (!condition || condition.status === "Unknown") return null;
  const [, offset, text] = /^(?:at offset (\d{1,16}) )?(.*)$/s.exec(condition.message ?? "") ?? [];
  return {
    isHealthy: condition.status === "True",
    reason: condition.reason ?? "",
    message: text.charAt(0).toUpperCase() + text.slice(1),
    offset: offset === undefined ? null : Number(offset),
    since: condition.lastTransitionTime ?? "",
  };
}

/**
 * Return since when a machine is unhealthy: since the match that says so, if its Event is still there. A pool that was
 * silent for some time gives the condition a new time.
 *
 * @param {{offset: number | null, since: string}} health
 * @param {{namespace: string, name: string, group: string}} machine
 * @param {any[]} matches
 */
export function sickSince({ offset, since }, { namespace, name, group }, matches) {
  const match = matches.find((each) => each.offset === offset && each.machine === name && each.namespace === namespace && each.group === group);
  return match?.time && match.time < since ? match.time : since;
}
