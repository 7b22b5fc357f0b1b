/** The frame around all views: navigation, the way between the parts of a machine, announcements. */

import { button, cutInTheMiddle, fill, h, printable } from "./dom.js";

const LINKS = [
  ["machines", "Machines"],
  ["consoles", "Consoles"],
  ["sessions", "Sessions"],
  ["recordings", "Recordings"],
  ["alerts", "Alerts"],
  ["requests", "Requests"],
];
const ANNOUNCED_MILLISECONDS = 10_000;

/** The numbers beside views. */
const COUNTED = { consoles: "open", alerts: "not healthy", requests: "waiting" };
const PARTS = [
  ["", "Console"],
  ["logs", "Log"],
  ["screen", "Screen"],
  ["recordings", "Recordings"],
  ["events", "Events"],
];

export class Frame {
  #announcements;
  #announced; // the timer that empties them
  #links;
  #counts;
  #cluster = h("span", { class: "cluster" });
  #renewal = h("span");
  #title = document.title;
  #waiting = 0;
  #isAway = false;
  #unread = 0;
  #news = h("span", { class: "count news", hidden: true });
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
    this.#counts = Object.fromEntries(Object.keys(COUNTED).map((view) => [view, h("span", { class: "count", hidden: true })]));
    for (const [view, count] of Object.entries(this.#counts)) this.#links[view].append(count);
    this.#links.consoles.append(this.#news);
    this.#counts.alerts.classList.add("bad");
    this.#user = h("span", { class: "user dim" });
    // Whoever types goes on: what has the focus keeps it.
    const appearance = button("", () => theme.toggle(), { class: "quiet icon", onmousedown: (event) => event.preventDefault() });
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
      this.offer(view, machines.serves(`console${view}`));
    }
  }

  /** Show or hide a view in the navigation. */
  offer(view, isOffered) {
    this.#links[view].hidden = !isOffered;
  }

  /** Name what the window shows. */
  title(text) {
    this.#title = text;
    this.#drawTitle();
  }

  /** A user in another tab sees how many requests and messages wait, and whether a console has no connection. */
  #drawTitle() {
    const news = this.#waiting + this.#unread;
    document.title = `${this.#isAway ? "No connection · " : ""}${news ? `(${news}) ` : ""}${this.#title}`;
  }

  /** Whether a console has no connection, and how many messages at consoles the user has not seen. */
  consoles(isAway, unread) {
    this.#isAway = isAway;
    this.#unread = unread;
    this.#news.hidden = !unread;
    this.#news.title = unreadText(unread);
    fill(this.#news, `${unread} new`, h("span", { class: "visually-hidden" }, ` ${unread === 1 ? "message" : "messages"}`));
    this.#drawTitle();
  }

  /** So many requests wait for the user. */
  waiting(number) {
    this.#waiting = number;
    this.#drawTitle();
  }

  /** Show a number beside a view; nothing if it is 0, or null. */
  count(view, number) {
    const element = this.#counts[view];
    element.hidden = !number;
    element.title = `${number} ${COUNTED[view]}`;
    if (element.firstChild?.textContent !== String(number)) fill(element, String(number), h("span", { class: "visually-hidden" }, ` ${COUNTED[view]}`));
  }

  /** Show the name of the cluster. */
  cluster(name) {
    this.#cluster.textContent = this.#cluster.title = printable(name);
  }

  /** Show the name of the user, who has logged in; empty if the server has not said it. */
  user(name) {
    this.#leave.hidden = false;
    this.#user.textContent = this.#user.title = printable(name ?? "");
    this.#leave.title = name ? `Log out ${printable(name)}` : "";
  }

  /** Say that the user's credentials are refused, with a button that opens the dialog; null: they are not. */
  renewal(open) {
    fill(this.#renewal, open && button("Renew your credentials", open, { class: "danger" }));
  }

  /** Let screen readers say a text; a user who reads the page later does not find it any more. */
  announce(text) {
    // The same text again is a change only if the region was empty before.
    this.#announcements.textContent = "";
    clearTimeout(this.#announced);
    setTimeout(() => {
      this.#announcements.textContent = printable(text);
    }, 50);
    this.#announced = setTimeout(() => (this.#announcements.textContent = ""), ANNOUNCED_MILLISECONDS);
  }
}

/** Return the number of messages that the user has not seen. */
export function unreadText(number) {
  return `${number} unread ${number === 1 ? "message" : "messages"}`;
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

/** Return an element of index.html. */
function element(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}
