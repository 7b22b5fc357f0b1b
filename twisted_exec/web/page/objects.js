/** Sessions, recordings, alerts and requests: their paths, their lists, and the server's support for them. */

/** Path of the group with sessions, recordings and alerts. */
const GROUP_PATH = "/apis/console.twisted-exec.dev/v1alpha1";

/**
 * @param {string} plural
 * @param {string} [namespace] empty for all namespaces.
 * @returns {string}
 */
export function listPath(plural, namespace = "") {
  const where = namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "";
  return `${GROUP_PATH}${where}/${plural}`;
}

/**
 * @param {string} plural
 * @param {string} namespace
 * @param {string} name
 * @param {string} [subresource]
 * @returns {string}
 */
export function itemPath(plural, namespace, name, subresource = "") {
  const path = `${listPath(plural, namespace)}/${encodeURIComponent(name)}`;
  return subresource ? `${path}/${subresource}` : path;
}

/** The objects of a list, by the events of its watch. */
export class Objects {
  /** @type {number | null} when they were current, in milliseconds since 1970; null before the list was read. */
  asOf = null;
  #isCurrent = false;
  #objects = new Map();
  #select;
  #make;

  /**
   * @param {(object: any) => boolean} [select] others are not kept.
   * @param {(object: any) => any} [make] returns what is kept of an object.
   */
  constructor(select = () => true, make = (object) => object) {
    this.#select = select;
    this.#make = make;
  }

  /** @param {{type: string, items?: any[], object?: any}} event */
  apply(event) {
    this.#isCurrent = true;
    if (event.type === "RESET") {
      this.#objects = new Map((event.items ?? []).filter(this.#select).map((each) => [keyOf(each), this.#make(each)]));
    } else if (event.type === "DELETED" || !this.#select(event.object)) {
      this.#objects.delete(keyOf(event.object));
    } else {
      this.#objects.set(keyOf(event.object), this.#make(event.object));
    }
  }

  /** The watch has ended, or is lost: the objects are as of now until the next event. */
  leave() {
    if (this.#isCurrent) this.asOf = Date.now();
    this.#isCurrent = false;
  }

  /** The server does not give the objects any more: none is known. */
  forget() {
    this.#isCurrent = false;
    this.asOf = null;
    this.#objects.clear();
  }

  /** Whether the list was read. */
  get isKnown() {
    return this.#isCurrent || this.asOf !== null;
  }

  /** @returns {any[]} */
  get all() {
    return [...this.#objects.values()];
  }
}

function keyOf(object) {
  return `${object.metadata.namespace ?? ""}/${object.metadata.name}`;
}

/** @type {WeakMap<object, Promise<Set<string> | null>>} */
const served = new WeakMap();

/**
 * The resources and subresources that the server has in the group of sessions, recordings and alerts.
 *
 * @param {any} api
 * @returns {Promise<Set<string> | null>} such as "consolerecordings/content"; null if it cannot be found out.
 */
export function servedResources(api) {
  const known = served.get(api);
  if (known) return known;
  const names = api.request(GROUP_PATH).then(
    (answer) => new Set((answer.resources ?? []).map((each) => each.name)),
    (error) => {
      if (error.code === 404) return new Set();
      served.delete(api);
      return null;
    },
  );
  served.set(api, names);
  return names;
}

/**
 * Whether the user may do something; true if the server does not say, because it refuses requests itself.
 *
 * @param {any} api
 * @param {...(string | undefined)} wanted see Api.can.
 * @returns {Promise<boolean>}
 */
export async function may(api, ...wanted) {
  try {
    return await api.can(...wanted);
  } catch {
    return true;
  }
}
