/** The common part of views that follow lists: filter, namespaces, problems, and ages that go on. */

import { fill, h, notice, printable } from "../dom.js";
import { matches } from "./filter.js";
import { namespacesOf } from "./machine_rows.js";
import { follow, servedResources } from "./objects.js";
import { field } from "./parts.js";

const AGE_MS = 5000;
const TYPED_MS = 400;

/** A view implements `begin()`, which calls `list()`, and `draw()`. */
export class ListView {
  #stopped = new AbortController();
  #following = new AbortController();
  #timer = 0;

  /**
   * @param {any} context
   * @param {{namespace?: string, query: URLSearchParams}} parameters
   * @param {{plural: string, missing: string}} options missing: the notice if the server does not have the resource.
   */
  constructor(context, { namespace, query }, { plural, missing }) {
    Object.assign(this, { context, plural, missing });
    this.filter = h("input", { type: "search", value: query.get("filter") ?? "", oninput: () => this.draw() });
    this.namespaces = h("input", {
      type: "text", value: namespace ?? query.get("namespace") ?? "", placeholder: "all", oninput: () => this.#typed(),
    });
    this.problem = h("div");
    this.isServed = true;
  }

  /** Aborts when the view is left. */
  get signal() {
    return this.#stopped.signal;
  }

  async start() {
    const { api, config, store } = this.context;
    const resources = await servedResources(api);
    this.isServed = !resources || resources.has(this.plural);
    if (this.isServed && !this.namespaces.value) {
      const mayListAll = await api.can("list", this.plural).catch(() => true);
      const home = store.get("namespace") ?? (config.namespace || config.machine?.namespace || "default");
      this.namespaces.value = mayListAll ? "" : home;
    }
    if (this.signal.aborted) return;
    if (!this.isServed) fill(this.problem, notice("warning", this.missing));
    this.#follow();
    const timer = setInterval(() => this.draw(), AGE_MS);
    this.signal.addEventListener("abort", () => clearInterval(timer));
  }

  stop() {
    clearTimeout(this.#timer);
    this.#following.abort();
    this.#stopped.abort();
  }

  /**
   * Follow a list in all namespaces that the user has named.
   *
   * @param {(namespace: string) => string} path
   * @param {object} options
   * @param {(objects: any[]) => void} options.onChange is called before `draw()`.
   * @param {(object: any) => boolean} [options.select]
   * @param {HTMLElement} [options.problem] where problems are shown.
   */
  list(path, { onChange, select, problem = this.problem }) {
    const found = new Map();
    const problems = new Map();
    for (const namespace of namespacesOf(this.namespaces.value)) {
      follow(this.context.api, path(namespace), {
        signal: this.#following.signal,
        select,
        onChange: (objects) => {
          found.set(namespace, objects);
          onChange([...found.values()].flat());
          this.draw();
        },
        onProblem: (error) => {
          if (error) problems.set(namespace, error);
          else problems.delete(namespace);
          fill(problem, [...problems.values()].map(explained));
        },
      });
    }
  }

  /** The rows that match the filter by their texts. */
  matching(rows, textsOf) {
    return rows.filter((row) => matches(textsOf(row), this.filter.value));
  }

  /**
   * The address of a machine's console, or of another part of it.
   *
   * @param {{namespace: string, machine: string, machineResource?: string, group?: string}} row
   * @param {string} [part]
   */
  machineLink({ namespace, machine, machineResource, group }, part = "") {
    const { machines, link } = this.context;
    const isIts = (each) => (machineResource ? `${each.plural}.${each.group}` === machineResource : each.group === group);
    const kind = machines.kinds.find(isIts) ?? machines.resource;
    return link(namespace, machines.routeName(kind, machine), part);
  }

  /** The toolbar of most views. */
  get toolbar() {
    return h("div", { class: "toolbar" }, field("Filter", this.filter), field("Namespaces", this.namespaces));
  }

  #typed() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#follow(), TYPED_MS);
  }

  #follow() {
    this.#following.abort();
    this.#following = new AbortController();
    if (this.isServed) fill(this.problem);
    const [first] = namespacesOf(this.namespaces.value);
    if (first) this.context.store.set("namespace", first);
    this.begin();
  }
}

function explained(error) {
  if (error.code === 401) return notice("warning", "Waiting for your login.");
  if (error.code === 403) {
    return notice("error", h("p", {}, printable(error.message)), h("p", {}, "Name the namespaces above in which you may list these objects; the roles edit and admin include this."));
  }
  if (error.code === 0 || error.code >= 500) {
    return notice("warning", `The list is not current: ${printable(error.message)}. The page tries again by itself.`);
  }
  return notice("error", printable(error.message));
}
