/** Start of the page: configuration, login, discovery; then the view of the route. */

import { Api } from "./api.js";
import { button, fill, h, notice, printable } from "./dom.js";
import { Frame, machineHead } from "./frame.js";
import { login } from "./login.js";
import { Machines, discover } from "./machines.js";
import { machineLink, parse } from "./routes.js";
import { Store } from "./store.js";
import { load as loadTerminal } from "./terminal/screen.js";
import { Theme } from "./theme.js";
import { servedResources } from "./views/objects.js";

// A view is loaded when it is first shown: the terminal and the player are large.
const VIEWS = {
  machines: () => import("./views/machines.js"),
  console: () => import("./terminal/workspace.js"),
  consoles: () => import("./terminal/workspace.js"),
  logs: () => import("./views/logs.js"),
  screen: () => import("./views/screen.js"),
  recordings: () => import("./views/recordings.js"),
  sessions: () => import("./views/sessions.js"),
  alerts: () => import("./views/alerts.js"),
};
const TITLES = {
  machines: "Machines",
  consoles: "Consoles",
  logs: "Log",
  screen: "Screen",
  recordings: "Recordings",
  sessions: "Sessions",
  alerts: "Alerts",
};

const view = document.getElementById("view");
const preferences = new Store(localStorage);
const store = new Store(sessionStorage);
const theme = new Theme(preferences);

let shown = null; // the view in the page
let route = 0; // counts, so that a slow view does not replace a newer one

async function main() {
  const config = await read();
  const api = new Api({ origin: location.origin, token: () => store.get("token") });
  const frame = new Frame(config, theme, () => {
    store.clear();
    location.reload();
  });
  const context = {
    api,
    config,
    frame,
    preferences,
    store,
    theme,
    machines: null,
    announce: (text) => frame.announce(text),
    link: machineLink,
    navigate: (hash) => {
      location.hash = hash;
    },
  };
  // The terminal is large: its files arrive while the page logs in.
  if (parse(location.hash).view === "console") loadTerminal().catch(() => {});
  const again = await authenticate(context);
  const [found, served] = await Promise.all([kinds(api, again), servedResources(api)]);
  context.machines = new Machines(found, served);
  frame.hideMissing(context.machines);
  api.group = context.machines.resource.group;
  whoami(context);
  addEventListener("hashchange", () => show(context));
  // Consoles that were open before a reload go on, whatever view is shown.
  if (store.get("consoles")?.places.length) (await VIEWS.consoles()).restore(context);
  await show(context);
}

async function read() {
  const response = await fetch("config.json", { cache: "no-store" });
  if (!response.ok) throw new Error(`config.json: the server answered ${response.status}`);
  return response.json();
}

/** Log in if necessary, and again whenever the server refuses the token; return what logs in again. */
async function authenticate(context) {
  const { api, config } = context;
  await login(config, context, { reason: "" });
  let current = null;
  const ask = async () => {
    await login(config, context, { reason: "Your login has expired or was withdrawn. Open consoles stay." });
    current = null;
    api.forget();
    api.dispatchEvent(new Event("authorized"));
  };
  const again = () => (current ??= ask());
  api.addEventListener("unauthorized", again);
  return again;
}

async function kinds(api, again) {
  for (;;) {
    try {
      return await discover(api);
    } catch (error) {
      if (error.code !== 401) throw error;
      await again(); // the token of a former page
    }
  }
}

async function whoami({ api, frame }) {
  const path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
  const body = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
  try {
    const review = await api.request(path, { method: "POST", body });
    frame.user(review.status?.userInfo?.username ?? "");
  } catch {
    // An older server does not know; the page works without a name.
  }
}

async function show(context) {
  const { view: name, parameters } = parse(location.hash);
  const number = ++route;
  context.frame.select(name === "console" ? "consoles" : parameters.part ? "machines" : name);
  let module;
  try {
    module = await VIEWS[name]();
  } catch (problem) {
    module = { show: (container) => failed(container, problem) };
  }
  if (number !== route) return;
  shown?.stop?.();
  const machine = parameters.name ?? "";
  document.title = [printable(machine), TITLES[name]].filter(Boolean).join(" · ") || "Consoles";
  const container = h("div", { class: `view view-${name}` });
  const head = parameters.part
    ? machineHead(context, parameters.namespace, machine, parameters.part)
    : null;
  fill(view, head, container);
  shown = module.show(container, context, parameters) ?? null;
  // The link or the terminal that had the focus may be gone: the next Tab begins at the view.
  if (number > 1 && document.activeElement === document.body) view.focus({ preventScroll: true });
}

function failed(container, problem) {
  fill(container, notice("error", "This view cannot be loaded: ", printable(problem.message), "."));
  return null;
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
