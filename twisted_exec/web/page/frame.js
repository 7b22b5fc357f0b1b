/** The frame around all views: navigation, the way between the parts of a machine, announcements. */

import { button, cutInTheMiddle, fill, h, printable } from "./dom.js";

const LINKS = [
  ["machines", "Machines"],
  ["consoles", "Consoles"],
  ["sessions", "Sessions"],
  ["recordings", "Recordings"],
  ["alerts", "Alerts"],
];
const PARTS = [
  ["", "Console"],
  ["logs", "Log"],
  ["screen", "Screen"],
  ["recordings", "Recordings"],
  ["events", "Events"],
];

export class Frame {
  #announcements;
  #links;
  #count = counter();
  #alerts = counter();
  #cluster = h("span", { class: "cluster" });
  #renewal = h("span");
  #user;
  #leave;

  /**
   * @param {object} config of the page
   * @param {import("./theme.js").Theme} theme
   * @param {() => void} logout
   */
  constructor(config, theme, logout) {
    this.#announcements = element("notices");
    this.#links = Object.fromEntries(LINKS.map(([view, label]) => [view, h("a", { href: `#/${view}` }, label)]));
    this.#links.consoles.append(this.#count);
    this.#links.alerts.append(this.#alerts);
    this.#alerts.classList.add("bad");
    this.#user = h("span", { class: "user dim" });
    const appearance = button("", () => theme.toggle(), { class: "quiet icon" });
    const show = () => {
      const label = theme.isDark ? "Use light colours" : "Use dark colours";
      appearance.setAttribute("aria-label", label);
      appearance.title = label;
      appearance.textContent = theme.isDark ? "☀" : "☾";
    };
    theme.addEventListener("change", show);
    show();
    const skip = button("Skip to content", () => element("view").focus(), {
      class: "skip",
    });
    this.#leave = button("Log out", logout, { class: "quiet", hidden: true });
    fill(
      element("bar"),
      skip,
      h("a", { class: "brand", href: "#/machines", title: `twisted-exec ${config.version ?? ""}` }, "twisted-exec"),
      this.#cluster,
      h("nav", { "aria-label": "Views" }, Object.values(this.#links)),
      h("span", { class: "grow" }),
      this.#renewal,
      this.#user,
      appearance,
      config.local ? null : this.#leave,
    );
  }

  /** Mark the view in the navigation. */
  select(view) {
    for (const [name, link] of Object.entries(this.#links)) {
      if (name === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  /** Hide the views of resources that the server does not have. */
  hideMissing(machines) {
    for (const view of ["sessions", "recordings", "alerts"]) {
      this.#links[view].hidden = !machines.serves(`console${view}`);
    }
  }

  /** Show how many consoles are open. */
  count(number) {
    setNumber(this.#count, number, "open");
  }

  /** Show how many consoles are not healthy; nothing if there is none, or if the number is null. */
  alerts(number) {
    setNumber(this.#alerts, number, "not healthy");
  }

  /** Show the name of the cluster. */
  cluster(name) {
    this.#cluster.textContent = this.#cluster.title = printable(name);
  }

  /** Show the name of the user, who has logged in; empty if the server has not said it. */
  user(name) {
    this.#leave.hidden = false;
    this.#user.textContent = this.#user.title = printable(name ?? "");
  }

  /** Say that the user's credentials are refused, with a button that opens the dialog; null: they are not. */
  renewal(open) {
    fill(this.#renewal, open && button("Renew your credentials", open, { class: "danger" }));
  }

  /** Let screen readers say a text. */
  announce(text) {
    // The same text again is a change only if the region was empty before.
    this.#announcements.textContent = "";
    setTimeout(() => {
      this.#announcements.textContent = printable(text);
    }, 50);
  }
}

/** Return the head of a machine's views, which looks as that of its console and is at the same place. */
export function machineHead(context, namespace, name, current) {
  return h(
    "div",
    { class: "machine-head" },
    h(
      "header",
      { class: "console-head" },
      machineTitle("h1", namespace, name),
      partLinks(context, namespace, name, current),
      h("a", { class: "button quiet to-list", href: "#/machines" }, "Machines"),
    ),
  );
}

/** Return a title with the names of a machine and its namespace; `tag`: h1 or h2. */
export function machineTitle(tag, namespace, name) {
  const [where, whole] = [`${printable(namespace)} / `, printable(name)];
  return h(tag, { title: whole, "aria-label": where + whole }, h("span", { class: "dim" }, where), cutInTheMiddle(whole));
}

/** Return links to the console of a machine and to its other parts. */
export function partLinks({ link, machines }, namespace, name, current) {
  const { kind } = machines.parse(name);
  const links = PARTS.filter(([part]) => machines.has(kind, part)).map(([part, label]) =>
    h(
      "a",
      { href: link(namespace, name, part), "aria-current": part === current ? "page" : null },
      label,
    ),
  );
  return h("nav", { class: "parts", "aria-label": `Parts of ${printable(name)}` }, links);
}

/** Return the place of a number beside a link. */
function counter() {
  return h("span", { class: "count", hidden: true });
}

function setNumber(element, number, what) {
  element.hidden = !number;
  if (element.firstChild?.textContent !== String(number)) fill(element, String(number), h("span", { class: "visually-hidden" }, ` ${what}`));
}

/** Return an element of index.html. */
function element(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}
