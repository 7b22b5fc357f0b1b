/** Events of core/v1: their paths, their order, and what some of them say. */

const POWERED_OFF = /^(.+) has asked to power the machine off$/s;

/** The path of the Events of a namespace; of all namespaces with an empty one. */
export function eventsPath(namespace) {
  return namespace ? `/api/v1/namespaces/${encodeURIComponent(namespace)}/events` : "/api/v1/events";
}

/**
 * One event as a row.
 *
 * @param {any} event of core/v1
 */
export function rowOf({ metadata, type = "", reason = "", message = "", count, series, lastTimestamp, eventTime, source, reportingComponent }) {
  return {
    key: metadata.uid ?? metadata.name,
    type,
    reason,
    message,
    count: series?.count ?? count ?? 1,
    time: series?.lastObservedTime ?? lastTimestamp ?? eventTime ?? metadata.creationTimestamp ?? "",
    version: Number(metadata.resourceVersion ?? 0),
    source: reportingComponent || source?.component || "",
  };
}

/** Compare rows: of one second, which is all that most events say, the newest one was written last. */
export function newestFirst(one, other) {
  return Date.parse(other.time) - Date.parse(one.time) || other.version - one.version;
}

/** The selector of the Events that say who has changed the power of a machine. */
export function powerSelector(uid) {
  return `involvedObject.uid=${uid},reason=PowerChanged`;
}

/** Return the user who has powered a machine off, by all its Events about that; empty if the newest one does not say. */
export function poweredOffBy(events) {
  const [newest] = events.map(rowOf).sort(newestFirst);
  return POWERED_OFF.exec(newest?.message ?? "")?.[1] ?? "";
}
