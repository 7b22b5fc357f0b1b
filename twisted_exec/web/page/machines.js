/** The kinds of machines that the API server has, and their paths. */

import { ApiError } from "./api.js";
import { servedResources } from "./objects.js";

// docs/reference/dialects.rst: the order is that in which `kubectl console` looks for a machine.
const GROUPS = ["compute.ironcore.dev", "compute.api.onmetal.de", "core.spheric.cloud"];
const DEFAULT = { group: GROUPS[0], version: "v1alpha1", plural: "machines" };

/**
 * Ask the server for its kinds that have a console.
 *
 * @returns {Promise<{group: string, version: string, plural: string, subresources: string[]}[]>}
 */
export async function discover(api) {
  let groups;
  try {
    groups = (await api.request("/apis")).groups ?? [];
  } catch (error) {
    if (!(error instanceof ApiError) || error.code === 0 || error.code === 401) throw error;
    groups = []; // a user may be denied discovery and still have a machine
  }
  const found = [];
  for (const name of GROUPS) {
    const version = groups.find((group) => group.name === name)?.preferredVersion?.version;
    if (!version) continue;
    const { resources = [] } = await api.request(`/apis/${name}/${version}`).catch(() => ({}));
    for (const { name: path } of resources) {
      if (!path.endsWith("/exec")) continue;
      const plural = path.slice(0, -"/exec".length);
      const below = resources.map((each) => each.name).filter((each) => each.startsWith(plural + "/"));
      const subresources = below.map((each) => each.slice(plural.length + 1));
      found.push({ group: name, version, plural, subresources });
    }
  }
  return found.length ? found : [{ ...DEFAULT, subresources: ["console", "exec", "log", "screen"] }];
}

/**
 * Return what {@link discover} and `servedResources` find, also if the user has to log in for it.
 *
 * @param {any} api
 * @param {() => Promise<void>} logInAgain
 * @param {() => () => void} beginWaiting tells that the server has not answered yet, until its result is called.
 * @returns {Promise<[any[], Set<string> | null]>}
 */
export async function whatIsServed(api, logInAgain, beginWaiting) {
  for (;;) {
    try {
      return await Promise.all([discover(api), servedResources(api)]).finally(beginWaiting());
    } catch (error) {
      if (error.code !== 401) throw error;
      await logInAgain(); // the token of a former page
    }
  }
}

/** Views beside the console, and what another project's server may lack for them. */
const PARTS = { logs: "log", screen: "screen" };
const RECORDINGS = "consolerecordings";

/** Return the name of a kind as objects have it in `machineResource`. */
export function qualifiedName({ plural, group }) {
  return `${plural}.${group}`;
}

/** The machines of one API server. The first kind is the default of all routes. */
export class Machines {
  #served;

  /**
   * @param {object[]} kinds as {@link discover} returns them
   * @param {Set<string>|null} served resources of the group of recordings; null if unknown
   */
  constructor(kinds, served = null) {
    this.kinds = kinds;
    this.resource = kinds[0];
    this.#served = served;
  }

  /** Tell whether the server has a view of the machines of a kind: logs, screen or recordings. */
  has(kind, part) {
    if (part === "recordings") return this.serves(RECORDINGS);
    return !(part in PARTS) || kind.subresources.includes(PARTS[part]);
  }

  /** Tell whether the server has a resource such as `consolesessions`. */
  serves(resource) {
    return this.#served?.has(resource) ?? true;
  }

  /** Return the kind and the name in a route: `vm-1`, or `vm-1.instances.core.spheric.cloud`. */
  parse(routeName) {
    const [name, plural, ...rest] = routeName.split(".");
    const group = rest.join(".");
    const kind = this.kinds.find((each) => each.plural === plural && each.group === group);
    return plural && kind ? { kind, name } : { kind: this.resource, name: routeName };
  }

  /** Return the kind with a qualified name such as `machines.compute.ironcore.dev`; the default kind if there is none. */
  kindOf(qualified) {
    return this.kinds.find((kind) => qualifiedName(kind) === qualified) ?? this.resource;
  }

  /** Return the name of a machine in routes. */
  routeName(kind, name) {
    return kind === this.resource ? name : `${name}.${kind.plural}.${kind.group}`;
  }

  /** Return the name in routes of the machine that the local command begins with. */
  routeNameOf({ name, resource, group }) {
    return this.routeName(this.kindOf(qualifiedName({ plural: resource, group })), name);
  }

  /** Return the path of a machine. */
  path(namespace, routeName) {
    const { kind, name } = this.parse(routeName);
    return `${this.list(kind, namespace)}/${encodeURIComponent(name)}`;
  }

  /** Return the path of a list; of all namespaces with an empty namespace. */
  list(kind, namespace) {
    const where = namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "";
    return `/apis/${kind.group}/${kind.version}${where}/${kind.plural}`;
  }
}
