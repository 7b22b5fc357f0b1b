/** Start of the page: configuration, login, discovery; then the view of the route. */

import { Api } from "./api.js";
import { Backoff } from "./backoff.js";
import { Count, REQUESTS, UNHEALTHY, decidable } from "./counts.js";
import { button, fill, h, notice, printable } from "./dom.js";
import { Frame, machineHead } from "./frame.js";
import { secretOf } from "./login/dialogs.js";
import { login } from "./login/login.js";
import { userOf } from "./login/requests.js";
import { Machines, whatIsServed } from "./machines.js";
import { machineLink, parse } from "./routes.js";
import { Store } from "./store.js";
import { forgetMessages } from "./terminal/message_list.js";
import { load as loadTerminal } from "./terminal/screen.js";
import { Theme } from "./theme.js";
import { homeOf } from "./views/filter.js";
import { skeleton, tellWaiting } from "./views/parts.js";
import { rest, sleep } from "./watch.js";

const NAME_SECONDS = 2;
const WAITS = { first: 0.5, longest: 4 }; // seconds between questions to a server that is away

// A view is loaded when it is first shown, or behind the first one.
const VIEWS = {
  machines: () => import("./views/machines.js"),
  console: () => import("./terminal/workspace.js"),
  consoles: () => import("./terminal/workspace.js"),
  logs: () => import("./views/logs.js"),
  screen: () => import("./views/screen.js"),
  recordings: () => import("./views/recordings.js"),
  events: () => import("./views/events.js"),
  sessions: () => import("./views/sessions.js"),
  alerts: () => import("./views/alerts.js"),
  requests: () => import("./views/requests.js"),
};
const TITLES = {
  machines: "Machines",
  consoles: "Consoles",
  logs: "Log",
  screen: "Screen",
  recordings: "Recordings",
  events: "Events",
  sessions: "Sessions",
  alerts: "Alerts",
  requests: "Requests",
};

const view = /** @type {HTMLElement} */ (document.getElementById("view"));
const preferences = new Store(localStorage);
const store = new Store(sessionStorage);
const theme = new Theme(preferences);

let current = null; // the view in the page
let routes = 0; // counts, so that a slow view does not replace a newer one
/** @type {Count[]} the numbers beside views, when the server has said what it has. */
const counts = [];

async function main() {
  const config = await configuration();
  // A new URL of the local command that is opened in this tab changes the fragment alone.
  if (config.local) addEventListener("hashchange", () => secretOf(location.hash) && location.reload());
  const api = new Api({ origin: location.origin, token: () => store.get("token"), config });
  const frame = new Frame(config, theme, () => logout(context));
  frame.offer("requests", preferences.get("requests") ?? true); // as the user last had it, until the server says it
  const context = {
    api,
    config,
    frame,
    user: "", // until the server has said it
    preferences,
    store,
    theme,
    machines: /** @type {any} */ (null),
    lists: new Map(), // those of the views that were left
    /** @type {{namespace: string, name: string} | null} of the console or the view before: the list of machines begins there, once */
    machine: null,
    // A user who may not list all namespaces has the numbers of those of the list of machines.
    count: (namespaces = store.get("namespaces") || homeOf(context)) => counts.forEach((each) => each.follow(namespaces)),
    announce: (text) => frame.announce(text),
    link: machineLink,
    navigate: (hash) => {
      location.hash = hash;
    },
  };
  // The terminal is large: its files arrive while the page logs in.
  if (parse(location.hash).view === "console") loadTerminal().catch(() => {});
  const logInAgain = await authenticate(context);
  nameUser(context);
  api.addEventListener("authorized", () => {
    context.lists.clear(); // another user may have logged in
    nameUser(context);
    counts.forEach((each) => each.stop());
    context.count();
  });
  const [machineKinds, served] = await whatIsServed(api, logInAgain, prepareWaiting(context));
  context.machines = new Machines(machineKinds, served);
  begin(context);
  frame.hideMissing(context.machines);
  const { group, version } = context.machines.resource;
  api.group = group;
  api.small = `/apis/${group}/${version}`;
  const offerRequests = (isOffered) => {
    preferences.set("requests", isOffered);
    frame.offer("requests", isOffered);
  };
  let changes = 0; // so that a slow answer does not replace a newer one
  const requestsWait = async (number, requests) => {
    const change = ++changes;
    frame.count("requests", number);
    const decisions = await decidable(context, requests);
    if (change === changes) frame.waiting(decisions);
  };
  counts.push(
    new Count(context, UNHEALTHY, (number) => frame.count("alerts", number)),
    new Count(context, REQUESTS, requestsWait, offerRequests),
  );
  context.count();
  addEventListener("hashchange", () => show(context));
  // Consoles that were open before a reload go on, whatever view is shown.
  if (store.get("consoles")?.places.length) (await VIEWS.consoles()).restore(context);
  await show(context);
  // The other views are small, and are there at once, also while the server is away.
  for (const load of Object.values(VIEWS)) load().catch(() => {});
  // Keys that are typed into a console before it has a terminal go nowhere.
  if (config.vendor !== false) loadTerminal().catch(() => {});
}

/** Show bars, and return what begins to say for how long the page waits, which returns what ends that. */
function prepareWaiting(context) {
  const waiting = h("p", { class: "dim" });
  fill(view, h("div", { class: "view" }, waiting, skeleton()));
  return () => tellWaiting(waiting, context, { more: comesBack() });
}

/** Say which consoles come back when the server answers; empty if none was open before a reload. */
function comesBack() {
  const names = (store.get("consoles")?.places ?? []).map(({ name }) => printable(name));
  if (!names.length) return "";
  return `${names.length === 1 ? "The console" : "The consoles"} of ${names.join(", ")} ${names.length === 1 ? "comes" : "come"} back with the answer; what you type until then is not kept.`;
}

/** Begin with the machine of the local command, whose kind is known only behind the login. */
function begin({ config: { machine }, machines }) {
  if (!machine || location.hash) return;
  const hash = machineLink(machine.namespace, machines.routeNameOf(machine));
  history.replaceState(null, "", location.pathname + location.search + hash);
}

/** Forget the user; their sessions would otherwise wait at the servers for a page that resumes them. */
async function logout(context) {
  if (store.get("consoles")?.places.length) (await VIEWS.consoles()).restore(context).leaveAll();
  store.clear();
  location.reload();
}

/** Read the configuration of the page, again and again while the server is away. */
async function configuration() {
  const waiting = { config: {}, api: new EventTarget() };
  const backoff = new Backoff(WAITS.first, WAITS.longest);
  /** @type {(() => void) | null} */
  let endWaiting = null;
  for (;;) {
    const response = await fetch("config.json", { cache: "no-store" }).catch(() => null);
    if (response?.ok) {
      endWaiting?.();
      return response.json();
    }
    if (response && response.status < 500) throw new Error(`config.json: the server answered ${response.status}`);
    endWaiting ??= prepareWaiting(waiting)();
    await rest(backoff.pause(), undefined, waiting.api);
  }
}

/** Log in if necessary, and again whenever the server refuses the token; return a function that logs in again. */
async function authenticate(context) {
  const { api, config } = context;
  await login(config, context, { reason: "" });
  let asking = null;
  const ask = async () => {
    const whose = context.user ? `Your login as ${context.user}` : "Your login";
    await login(config, context, { reason: `${whose} has expired or was withdrawn.` });
    asking = null;
    api.forget();
    api.dispatchEvent(new Event("authorized"));
  };
  const logInAgain = () => (asking ??= ask());
  api.addEventListener("unauthorized", logInAgain);
  return logInAgain;
}

/** Show the names of the cluster and of the user, which a server that is away says when it is back. */
async function nameUser(context) {
  const { config, frame, store } = context;
  frame.cluster(config.cluster ?? "");
  frame.user(context.user);
  for (;;) {
    try {
      const name = await userOf(store.get("token"));
      if (name === null) return; // another request asks for a login
      if ((store.get("user") ?? name) !== name) forgetMessages(context);
      store.set("user", name);
      frame.user((context.user = name));
      return;
    } catch {
      await sleep(NAME_SECONDS);
    }
  }
}

async function show(context) {
  const { view: name, parameters } = parse(location.hash);
  const number = ++routes;
  context.frame.select(name === "console" || parameters.part ? "consoles" : name);
  let module, consoles;
  try {
    [module, consoles] = await Promise.all([VIEWS[name](), parameters.part ? VIEWS.consoles() : null]);
  } catch (problem) {
    module = unavailable(problem);
  }
  if (number !== routes) return;
  current?.stop?.();
  const machine = parameters.name ?? "";
  if (parameters.part) context.machine = { namespace: parameters.namespace, name: machine };
  context.frame.title([printable(machine), TITLES[name]].filter(Boolean).join(" · ") || "Consoles");
  const container = h("div", { class: `view view-${name}` });
  const head = parameters.part
    ? [consoles?.restore(context).strip(parameters), machineHead(context, parameters.namespace, machine, parameters.part)]
    : null;
  fill(view, head, container);
  current = null;
  try {
    current = module.show(container, context, parameters) ?? null;
  } catch (problem) {
    unavailable(problem).show(container);
  }
  // The link or the terminal that had the focus may be gone: the next Tab begins at the view.
  if (number > 1 && document.activeElement === document.body) view.focus({ preventScroll: true });
}

/** Return a view that says why another one cannot be shown. */
function unavailable(problem) {
  return {
    show(container) {
      fill(container, notice("error", "This view cannot be shown: ", printable(problem.message), "."));
    },
  };
}

main().catch((problem) => {
  fill(
    view,
    notice(
      "error",
      h("p", {}, "The page cannot start: ", printable(problem.message), "."),
      button("Try again", () => location.reload(), { class: "primary" }),
    ),
  );
});
