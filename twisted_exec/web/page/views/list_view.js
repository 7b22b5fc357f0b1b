/** The common part of views that follow lists: filter, namespaces, problems, rights, and ages that go on. */

import { acknowledged } from "../acts.js";
import { button, fill, h, notice, printable } from "../dom.js";
import { Objects, listPath, may } from "../objects.js";
import { minute } from "../times.js";
import { homeOf, matches, namespacesOf } from "./filter.js";
import { lacksMachine, noMachine } from "./missing.js";
import { asOfText, countOf, emptyState, lacking, outageNotice, reachBySlash, reveal, toolbar, tellWaiting } from "./parts.js";

const AGES_MILLISECONDS = 5000;
const TYPED_MILLISECONDS = 400;
const DRAW_MILLISECONDS = 100;
const MOST_KEPT = 16; // lists of views that were left

/** @typedef {{error: any, plural: string, namespace: string, labels?: string}} Refusal of a list; `labels`: the selector in its query */

/** A view implements two methods. */
export class ListView {
  #options;
  #query;
  #unknown; // the path of the address, if there is no such view
  #stopped = new AbortController();
  #watches = new AbortController();
  #isAnywhere; // the user has named no namespaces yet
  #hasFixedNamespace;
  #typing = 0;
  #drawing = 0;
  #addressing = 0;
  /** @type {Set<() => void>} what is to be done before the next drawing. */
  #updates = new Set();
  /** @type {Map<string, Objects>} lists that have not answered yet, by path. */
  #loading = new Map();
  #path = pathOf(location);
  #hash = location.hash;
  #endWaiting = () => {};
  #isSilent = false; // the server has not answered for so long that the page says so
  #waiting = h("p", { class: "dim" });
  #said = h("div");
  #outage = h("div");
  #notices = h("div");
  /** @type {Map<string, {message: string, asOf: number | null}>} lists that the server does not give now, by path. */
  #outages = new Map();
  /** @type {Map<string, Refusal>} by path. */
  #refusals = new Map();
  #saidOutage = "";
  #began = 0; // to list, in milliseconds since 1970
  /** @type {Map<string, Record<string, boolean>>} by namespace. */
  #rights = new Map();
  /** @type {Set<() => void>} each asks again whether the user may list what says more about the rows. */
  #withheld = new Set();
  /** @type {HTMLElement | null} */
  #none = null; // of one machine

  /**
   * @param {any} context
   * @param {{namespace?: string, query: URLSearchParams, unknown?: string}} parameters see routes.js.
   * @param {object} options
   * @param {string} options.plural the resource whose rights decide where the view begins: in all namespaces, or in
   *   that of the user.
   * @param {string} [options.group] of the resource; see Api.can.
   * @param {string} options.role that may list the resource.
   * @param {string} [options.missing] the notice if the server does not have the resource.
   * @param {Record<string, string[]>} [options.rights] verb, subresource and resource, if that is another one, by the
   *   names in {@link rightsIn}.
   * @param {(namespace: string) => HTMLElement} [options.instead] what a user can do who may not list the objects of a
   *   namespace.
   * @param {string | null} [options.namespaces] those that the user has named before; null: none yet.
   */
  constructor(context, { namespace, query, unknown = "" }, options) {
    const { plural, missing, namespaces = null } = options;
    this.#options = options;
    this.#query = query;
    this.#unknown = unknown;
    this.context = context;
    this.plural = plural;
    const named = namespace ?? query.get("namespace") ?? namespaces;
    this.#isAnywhere = named === null;
    this.#hasFixedNamespace = namespace !== undefined;
    const typed = { type: "search", spellcheck: "false", autocomplete: "off" };
    this.filter = h("input", { ...typed, placeholder: "Any text of a row", value: query.get("filter") ?? "", oninput: () => this.filtered(), onchange: () => this.keepAddress() });
    this.namespaces = h("input", { ...typed, value: named ?? "", placeholder: "All", oninput: () => this.typed() });
    /** Above all lists of the view: for whom it waits, what it says, and what is wrong with them. */
    this.problem = h("div", {}, this.#waiting, this.#said, this.#outage, this.#notices);
    this.isServed = !missing || context.machines.serves(plural);
  }

  /** Call `list()` or `watch()`. */
  begin() {}

  draw() {}

  /** What the address says: a link shows another user the same rows. Views may add to it. */
  get address() {
    const namespace = this.#hasFixedNamespace ? "" : this.namespaces.value.trim();
    return { filter: this.filter.value.trim(), namespace };
  }

  /** Aborts when the view is left. */
  get signal() {
    return this.#stopped.signal;
  }

  /** Whether a list has not answered yet. */
  get isLoading() {
    return this.#loading.size > 0;
  }

  /** Whether a list cannot be read. */
  get hasProblem() {
    return this.#refusals.size + this.#outages.size > 0;
  }

  /** The namespace of a user who has named none. */
  get home() {
    return homeOf(this.context);
  }

  async start() {
    const began = Date.now();
    let reason = "";
    if (this.isServed && this.#isAnywhere) {
      this.#endWaiting = tellWaiting(this.#waiting, this.context);
      try {
        const mayListAll = await this.context.api.can("list", this.plural, "", "", "", this.#options.group);
        this.namespaces.value = mayListAll ? "" : this.home;
      } catch (error) {
        // The lists say it, too, but each after a time limit of its own.
        if (error.isPassing && error.code !== 401) reason = `No list yet: ${printable(error.message)}.`;
      }
    }
    if (this.signal.aborted) return;
    reachBySlash(this.filter, this.signal);
    this.#follow({ began, reason });
    const known = Object.keys(this.address);
    const unknown = [...this.#query.keys()].filter((key) => !known.includes(key)).map(printable);
    if (this.#unknown) this.say("warning", `There is no view ${printable(this.#unknown)}. This is the list of machines.`);
    else if (unknown.length) this.say("warning", `The link says ${unknown.join(", ")}, which this list does not know. It knows ${known.join(", ")}.`);
    const timer = setInterval(() => this.draw(), AGES_MILLISECONDS);
    this.signal.addEventListener("abort", () => clearInterval(timer));
  }

  stop() {
    this.#endWaiting();
    fill(this.#outage);
    for (const timer of [this.#typing, this.#drawing, this.#addressing]) clearTimeout(timer);
    this.#watches.abort();
    this.#stopped.abort();
  }

  /**
   * Keep the objects of a list in all namespaces that the user has named. What this view has shown before is there at
   * once, until the list is read.
   *
   * @param {(namespace: string) => string} path
   * @param {object} options
   * @param {(objects: any[] | null) => void} options.onChange is called before `draw()`; null: none of the lists is known any more.
   * @param {(object: any) => boolean} [options.select] others are not kept.
   * @param {(object: any) => any} [options.make] returns what is kept of an object.
   * @param {Record<string, string>} [options.query]
   * @param {string} [options.plural] of the objects.
   */
  list(path, { onChange, select, make, query, plural = this.plural }) {
    const update = () => onChange(lists.some((each) => each.isKnown) ? lists.flatMap((each) => each.all) : null);
    const lists = namespacesOf(this.namespaces.value).map((namespace) => {
      const source = path(namespace);
      const objects = this.#kept(source, { query, select, make });
      this.#loading.set(source, objects);
      this.#watch(source, objects, update, {
        query,
        onProblem: (error) => {
          this.#answered(source);
          const isOutage = error && (error.code === 0 || error.code >= 500);
          this.#tellOutage(source, isOutage ? { message: error.message, asOf: objects.asOf } : null);
          if (isOutage) return; // what the user has typed into a notice stays
          if (error) this.#refusals.set(source, { error, plural, namespace, labels: query?.labelSelector });
          else if (this.#refusals.delete(source)) this.#learnAgain();
          this.#tellRefusals();
        },
      });
      return objects;
    });
    if (lists.every((each) => each.asOf !== null)) update();
  }

  /** Return the objects that a view at the same address had of a list when it was left; none if there was no such view. */
  #kept(source, { query, select, make } = /** @type {any} */ ({})) {
    const { lists } = this.context;
    const key = JSON.stringify([this.#path, source, query]);
    const objects = lists.get(key) ?? new Objects(select, make);
    lists.delete(key);
    lists.set(key, objects);
    if (lists.size > MOST_KEPT) lists.delete(lists.keys().next().value);
    return objects;
  }

  /** Let objects follow their list until the view is left or lists others. */
  #watch(source, objects, update, { query, onProblem = (_) => {} } = /** @type {any} */ ({})) {
    const { signal } = this.#watches;
    signal.addEventListener("abort", () => objects.leave());
    const onEvent = (event) => {
      this.#answered(source);
      objects.apply(event);
      this.changed(update);
    };
    this.context.api.watch(source, onEvent, {
      query,
      signal,
      onProblem: (error) => {
        if (error) objects.leave();
        if (error && isRefusal(error)) {
          objects.forget();
          this.changed(update);
        }
        onProblem(error);
      },
    });
  }

  #answered(source) {
    this.#loading.delete(source);
    if (!this.isLoading) this.#endWaiting();
  }

  /** Draw soon, once for all events of a moment: a change of a thousand machines is a thousand events. */
  changed(update = () => {}) {
    this.#updates.add(update);
    this.#drawing ||= setTimeout(() => {
      this.#drawing = 0;
      const updates = [...this.#updates];
      this.#updates.clear();
      updates.forEach((each) => each());
      this.draw();
    }, DRAW_MILLISECONDS);
  }

  /**
   * Keep the objects of a list that says more about the rows, where the user may list them.
   *
   * @param {string} plural of the group of sessions and recordings.
   * @param {(objects: any[], isWhole: boolean) => void} onChange is called before `draw()`; `isWhole`: all lists were read.
   */
  beside(plural, onChange) {
    const { api, machines } = this.context;
    if (!machines.serves(plural)) return;
    const { signal } = this.#watches;
    const update = () => onChange(lists.flatMap((each) => each.all), lists.every((each) => each.isKnown));
    const lists = namespacesOf(this.namespaces.value).map((namespace) => {
      const source = listPath(plural, namespace);
      const objects = this.#kept(source);
      const ask = async () => {
        const isAllowed = await may(api, "list", plural, "", namespace);
        if (signal.aborted) return;
        if (isAllowed) {
          this.#watch(source, objects, update);
          return;
        }
        this.#withheld.add(ask);
        if (objects.isKnown) {
          objects.forget(); // of a former view
          this.changed(update);
        }
      };
      ask();
      return objects;
    });
    if (lists.every((each) => each.asOf !== null)) update();
  }

  /** Show a message above the list, until the next one. */
  say(kind, text) {
    fill(this.#said, notice(kind, text));
  }

  /** Return the answer to what the user changes; the list says if the server is silent, until it answers. */
  async acknowledged(act, answer) {
    try {
      return await acknowledged(act, answer, (text, kind) => this.say(kind, text));
    } catch (error) {
      fill(this.#said);
      throw error;
    }
  }

  /** The user has changed the filter. */
  filtered() {
    this.draw();
    // Not at each key: Safari refuses more than 100 changes of the address in 30 seconds.
    clearTimeout(this.#addressing);
    this.#addressing = setTimeout(() => this.keepAddress(), TYPED_MILLISECONDS);
  }

  /** Let the address say what is shown, without a step of the Back button. */
  keepAddress() {
    const said = Object.entries(this.address).filter(([, value]) => value);
    const query = new URLSearchParams(said).toString();
    const hash = this.#path + (query && `?${query}`);
    // The user may have gone to another address, also to one of this list, whose view is still loading.
    if (location.hash !== this.#hash || hash === (this.#hash || this.#path)) return;
    history.replaceState(null, "", hash);
    this.#hash = location.hash;
  }

  /** The text or the notice of a list without rows; null while it is not known, empty beside a problem. */
  emptyOf(isKnown, empty) {
    const { asOf } = this;
    if (isKnown) return asOf !== null && typeof empty === "string" ? `${empty} That was at ${minute(asOf, Date.now())}.` : empty;
    return this.hasProblem || !this.isServed ? "" : null;
  }

  /**
   * What is shown instead of rows: what hides them, with a button that shows them, or that there are none.
   *
   * @template {string | HTMLElement} None
   * @param {string} noun
   * @param {number} hidden by the filter.
   * @param {None} none
   * @returns {None | HTMLElement}
   */
  noRows(noun, hidden, none) {
    if (hidden) return emptyState(`The filter hides ${countOf(hidden, hidden, noun)}.`, "Clear the filter", () => this.clear(this.filter));
    const names = namespacesOf(this.namespaces.value).map(printable).join(", ");
    if (!names || this.#hasFixedNamespace) return none;
    const label = this.rightsIn("").mayList ? "Show all namespaces" : "";
    return emptyState(`There are no ${noun}s in ${names}; other namespaces are not shown.`, label, () => this.clear(this.namespaces));
  }

  /**
   * What is shown instead of no rows of one machine: that there are none, or no such machine.
   *
   * @param {HTMLElement} none
   * @param {{namespace: string, name: string}} place
   * @param {string} part the view of the machine.
   */
  noneOf(none, place, part) {
    if (this.#none) return this.#none;
    const shown = (this.#none = h("div", {}, none));
    const { api, machines } = this.context;
    api.request(machines.path(place.namespace, place.name), { signal: this.signal }).catch((error) => {
      if (!this.signal.aborted && lacksMachine(error)) fill(shown, noMachine(this.context, place, part));
    });
    return shown;
  }

  /** Empty a field above the list, as its user would. */
  clear(input) {
    input.value = "";
    input.dispatchEvent(new Event("input"));
    input.focus();
  }

  /** The user is typing which objects are to be listed: follow these soon. */
  typed() {
    clearTimeout(this.#typing);
    this.#typing = setTimeout(() => this.#follow(), TYPED_MILLISECONDS);
  }

  /** Return the rights to the objects of a namespace, or that to list those of all, `mayList`; empty until the server has answered, and then `draw()` follows. */
  rightsIn(namespace) {
    const known = this.#rights.get(namespace);
    if (known) return known;
    this.#rights.set(namespace, {});
    this.#learn(namespace);
    return {};
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
    const inGroup = machines.kinds.find((each) => each.group === group) ?? machines.resource;
    const kind = machineResource ? machines.kindOf(machineResource) : inGroup;
    return link(namespace, machines.routeName(kind, machine), part);
  }

  /** The toolbar of most views. */
  get toolbar() {
    return toolbar(this.filter, [["Namespaces", this.namespaces]]);
  }

  /** List what the user has named; see {@link tellWaiting}. */
  #follow(waiting = {}) {
    this.#began = Date.now();
    this.#saidOutage = "";
    this.#watches.abort();
    this.#watches = new AbortController();
    this.#updates.clear();
    this.#withheld.clear();
    this.#loading.clear();
    for (const place of [this.#said, this.#outage, this.#notices]) fill(place);
    this.#refusals.clear();
    this.#outages.clear();
    if (!this.isServed) this.say("warning", this.#options.missing);
    this.keepAddress();
    const [first] = namespacesOf(this.namespaces.value);
    if (first) this.context.store.set("namespace", first);
    this.#endWaiting();
    this.begin();
    if (!this.isLoading) return;
    const known = [...this.#loading.values()].flatMap(({ asOf }) => asOf ?? []);
    const more = known.length > 0 && [asOfText("list", Math.min(...known)), "."];
    const told = () => {
      this.#isSilent = true;
      this.changed();
    };
    const end = tellWaiting(this.#waiting, this.context, { ...waiting, more, told });
    this.#endWaiting = () => {
      this.#isSilent = false;
      end();
    };
  }

  /** The server refuses lists, or no longer. */
  #tellRefusals() {
    const { role, instead } = this.#options;
    const others = this.#hasFixedNamespace ? null : () => reveal(this.namespaces);
    const shown = [...this.#notices.children];
    // The same notice stays: a screen reader would read it again, and a field in it would be empty.
    const notices = explained([...this.#refusals.values()], { role, instead, others }).map((each) => shown.find((other) => other.isEqualNode(each)) ?? each);
    if (notices.length !== shown.length || notices.some((each, at) => each !== shown[at])) fill(this.#notices, notices);
    this.changed();
  }

  /** The server does not give a list now; null: it does. One notice is about all of them. */
  #tellOutage(path, outage) {
    if (outage) this.#outages.set(path, outage);
    else this.#outages.delete(path);
    const [first] = this.#outages.values();
    const asOf = this.asOf;
    const said = first ? `${asOf} ${first.message}` : "";
    if (said === this.#saidOutage) return; // a button that is drawn again loses the focus
    this.#saidOutage = said;
    const state = asOf === null ? "No list" : asOfText("list", asOf);
    fill(this.#outage, first && outageNotice(this.context.api, state, first.message, { since: asOf === null ? this.#began : null }));
    this.changed();
  }

  /** Since when lists may be old; null: they are current, or not known. */
  get asOf() {
    const silent = this.#isSilent ? [...this.#loading.values()] : [];
    const times = [...this.#outages.values(), ...silent].flatMap(({ asOf }) => asOf ?? []);
    return times.length ? Math.min(...times) : null;
  }

  /** The server gives what it has refused before: the user has other rights by now, also to what is beside the list. */
  #learnAgain() {
    this.context.api.forget();
    this.context.count();
    for (const namespace of this.#rights.keys()) this.#learn(namespace);
    const withheld = [...this.#withheld];
    this.#withheld.clear();
    withheld.forEach((ask) => ask());
  }

  async #learn(namespace) {
    const rights = Object.entries(namespace ? (this.#options.rights ?? {}) : { mayList: ["list", ""] });
    const answers = await Promise.all(
      rights.map(([, [verb, subresource, plural = this.plural]]) => may(this.context.api, verb, plural, subresource, namespace)),
    );
    this.#rights.set(namespace, Object.fromEntries(rights.map(([name], at) => [name, answers[at]])));
    if (!this.signal.aborted) this.draw();
  }
}

/** Whether the server does not give a list to this user, as opposed to not now. */
function isRefusal({ code }) {
  return code === 403 || code === 404;
}

function pathOf({ hash }) {
  return hash.split("?")[0] || "#/machines";
}

/**
 * Return the notices of lists that the server refuses: one about all that the user may not list, and one for each other reason.
 *
 * @param {Refusal[]} refusals
 * @param {{role: string, instead?: (namespace: string) => HTMLElement, others: (() => void) | null}} remedies `others` lets the user type
 *     other namespaces, null if the view has those of its address
 */
function explained(refusals, { role, instead, others }) {
  const forbidden = refusals.filter(({ error }) => error.code === 403);
  const notices = refusals.filter(({ error }) => error.code !== 403).map(({ error, labels }) => {
    if (error.code === 401) return notice("warning", "Waiting for your login.");
    if (error.code === 400 && labels) return lacking("These labels cannot be read.", "Write a label as tier=production, tier!=production or tier, and a comma between two of them.", error);
    return notice("error", printable(error.message));
  });
  const different = notices.filter((each, at) => notices.findIndex((other) => other.isEqualNode(each)) === at);
  if (!forbidden.length) return different;
  const namespaces = [...new Set(forbidden.map(({ namespace }) => namespace))];
  const advice = `${others ? "Type the namespaces in which you may list them, or ask" : "Ask"} your administrator for the role “${role}” ${whereOf(namespaces)}.`;
  // One answer of the server is enough: the others differ in what the sentences name.
  const [{ error }] = forbidden;
  return [lacking(forbiddenText(forbidden), advice, error, [namespaces.map((each) => instead?.(each)), others && button("Choose other namespaces", others)]), ...different];
}

/** Return what the user may not list, as sentences: one for all resources that are refused in the same namespaces. */
function forbiddenText(forbidden) {
  /** @type {Map<string, Set<string>>} */
  const resources = new Map();
  for (const { plural } of forbidden) {
    const where = whereOf(forbidden.filter((each) => each.plural === plural).map((each) => each.namespace));
    resources.set(where, (resources.get(where) ?? new Set()).add(plural.replace(/^console/, ""))); // as in the navigation
  }
  return [...resources].map(([where, names]) => `You may not list ${joined([...names])} ${where}.`).join(" ");
}

/** @param {string[]} namespaces [""] for all. */
function whereOf(namespaces) {
  if (namespaces.includes("")) return "in all namespaces";
  return `in the ${namespaces.length === 1 ? "namespace" : "namespaces"} ${joined(namespaces.map(printable))}`;
}

/** Return names as a part of a sentence: `a, b and c`. */
function joined(names) {
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : names[0];
}
