/** All open consoles: tabs, the split view, and the keys that belong to the page. */

import { button, cutInTheMiddle, fill, h, nameLink, printable } from "../dom.js";
import { powerChange } from "../views/machine_rows.js";
import { Console } from "./console.js";
import { chooseCommand } from "./dialogs.js";

/** Modes that a link may ask for: taking over and declaring a reason are the user's own acts. */
const MODES = ["drive", "observe"];
/** A window with room for the split view. A smaller one shows one console at a time: of two, none could be used. */
const ROOM = matchMedia("(min-width: 701px) and (min-height: 32.01rem)");

let workspace = null; // lives as long as the page, also while another view is shown

/** Show the console of a route; `#/consoles` shows the last one. */
export function show(container, context, { namespace, name, query }) {
  const { element } = restore(context);
  container.classList.add("workspace-view");
  container.append(element);
  element.prepend(workspace.strip(null));
  if (name) {
    const mode = MODES.includes(query.get("mode")) ? query.get("mode") : "drive";
    workspace.open({ namespace, name, mode, reason: "" });
    // A reload, or the way back, is no other wish.
    if (query.has("mode")) history.replaceState(null, "", context.link(namespace, name));
  } else {
    workspace.select(workspace.active);
  }
  return { stop: () => element.remove() };
}

/** Return the workspace, with the consoles that were open before a reload. */
export function restore(context) {
  workspace ??= new Workspace(context);
  return workspace;
}

class Workspace {
  #context;
  #consoles;
  #isSplit = false;
  /** @type {{namespace: string, name: string} | null} the machine of which another view is shown */
  #other = null;
  #strip;
  #tabs;
  #split;
  #leave = button("Leave full screen", () => this.#turnFullScreen(), { class: "quiet", hidden: true });
  #panes;
  #empty;

  constructor(context) {
    this.#context = context;
    this.#consoles = []; // in the order of their tabs
    this.active = null;
    const kept = context.store.get("consoles", { places: [], active: 0, isSplit: false });
    this.#isSplit = kept.isSplit;
    this.#tabs = h("ul", { class: "tabs" });
    this.#split = button("Split view", () => this.toggleSplit(), { class: "quiet split-button" });
    this.#panes = h("div", { class: "panes" });
    this.#empty = h(
      "div",
      { class: "notice empty" },
      h("p", {}, "No console is open."),
      h("p", {}, h("a", { class: "button", href: "#/machines" }, "Choose a machine")),
    );
    this.#strip = h(
      "div",
      { class: "tab-bar" },
      h("nav", { "aria-label": "Open consoles" }, this.#tabs),
      h("a", { class: "button quiet icon", href: "#/machines", "aria-label": "Open another console", title: "Open another console" }, "+"),
      h("span", { class: "grow" }),
      this.#split,
      this.#leave,
    );
    this.element = h("div", { class: "workspace" }, h("h1", { class: "visually-hidden" }, "Consoles"), this.#panes, this.#empty);
    // Also beside the terminals, which handle these keys themselves, and in the other views of a machine.
    document.addEventListener("keydown", (event) => {
      if (opensMenu(event) && this.#strip.isConnected && !document.querySelector("dialog[open]")) this.#key(event);
    });
    ROOM.addEventListener("change", () => {
      this.#draw();
      this.#reveal();
    });
    document.addEventListener("visibilitychange", () => this.#read());
    document.addEventListener("fullscreenchange", () => {
      this.#leave.hidden = !document.fullscreenElement;
    });
    // In another layout it is elsewhere.
    new ResizeObserver(() => this.#reveal()).observe(this.#panes);
    // A strip that was hidden begins at its first tab again, and a mark in a tab moves those behind it.
    const moved = new ResizeObserver(() => this.#revealTab());
    moved.observe(/** @type {Element} */ (this.#tabs.parentElement));
    moved.observe(this.#tabs);
    for (const place of kept.places) this.#add(place);
    this.active = this.#consoles[kept.active] ?? this.#consoles[0] ?? null;
    this.#draw();
  }

  /**
   * Return the tabs of the open consoles, for the consoles themselves or above another view of a machine.
   *
   * @param {{namespace: string, name: string} | null} other the machine whose other view is shown
   */
  strip(other) {
    this.#other = other;
    this.#draw();
    requestAnimationFrame(() => this.#revealTab()); // where it comes to it begins at its first tab again
    return this.#strip;
  }

  /** Open a console, or select it if it is open; one that is to observe gives the floor up. */
  open(place) {
    const found = this.#find(place);
    this.select(found ?? this.#add(place));
    if (place.mode === "observe") found?.observe();
    else found?.comeBack();
  }

  #find(wanted) {
    return this.#consoles.find(({ place }) => place.namespace === wanted.namespace && place.name === wanted.name);
  }

  select(console) {
    this.active = console;
    this.#context.machine = console?.place ?? null;
    this.#draw();
    this.#reveal();
    console?.focus();
  }

  /** Bring the active console into sight: the split view of many is higher than the window. */
  #reveal() {
    this.active?.element.scrollIntoView({ block: "nearest" });
  }

  #revealTab() {
    this.#tabs.querySelector(".selected")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  close(console) {
    const at = this.#consoles.indexOf(console);
    if (at < 0) return;
    this.#consoles.splice(at, 1);
    console.close();
    this.#countNews();
    const next = this.#consoles[Math.min(at, this.#consoles.length - 1)] ?? null;
    if (this.active === console) this.active = next;
    this.#draw();
    if (this.#other) return; // its view stays
    if (!next) this.#context.navigate("#/consoles");
    else this.#go(this.active);
  }

  #countNews() {
    const unread = this.#consoles.reduce((sum, each) => sum + each.unread, 0);
    this.#context.frame.consoles(this.#consoles.some(({ isAway }) => isAway), unread);
  }

  #read() {
    this.#consoles.forEach((each) => each.read());
  }

  /** End all sessions, before the user logs out. */
  leaveAll() {
    for (const each of [...this.#consoles]) each.close();
  }

  toggleSplit() {
    this.#isSplit = !this.#isSplit;
    this.select(this.active);
  }

  #add(place) {
    const added = new Console(this.#context, place, {
      key: (event) => this.#key(event),
      menu: () => this.#menu(),
      close: () => this.close(added),
      active: () => this.#activate(added),
      isActive: () =>
        this.active === added && this.element.isConnected && !document.querySelector("dialog[open]"),
      keep: () => this.#keep(),
      news: () => this.#countNews(),
    });
    this.#consoles.push(added);
    this.#panes.append(added.element);
    this.#countNews(); // a reload leaves messages unread
    return added;
  }

  /** The user has moved the focus into a console of the split view. */
  #activate(console) {
    if (this.active === console) return;
    this.active = console;
    this.#context.machine = console.place;
    this.#draw();
    const { namespace, name } = console.place;
    history.replaceState(null, "", this.#context.link(namespace, name));
  }

  #go(console) {
    const hash = this.#context.link(console.place.namespace, console.place.name);
    if (location.hash === hash) this.select(console);
    else this.#context.navigate(hash);
  }

  #step(by) {
    const count = this.#consoles.length;
    const at = this.#consoles.indexOf(this.active);
    if (count) this.#go(this.#consoles[(at + by + count) % count]);
  }

  /** Return false for keys of the page. All others belong to the machine, also Tab and Ctrl-C. */
  #key(event) {
    if (event.type !== "keydown") return true;
    const { key, ctrlKey, shiftKey, altKey, metaKey } = event;
    let action = null;
    if (opensMenu(event)) {
      const { namespace, name } = this.#other ?? {};
      action = () => (name ? this.#context.navigate(this.#context.link(namespace, name)) : this.#menu());
    } else if (ctrlKey && !altKey && !metaKey) {
      if (shiftKey && key === "C") action = () => this.active?.clipboard.copy();
      else if (!shiftKey && key === "Insert") action = () => this.active?.clipboard.copy();
      else if (shiftKey && key === "V") return false; // the browser pastes
    } else if (shiftKey && !altKey && !metaKey && key === "Insert") {
      return false;
    }
    if (!action) return true;
    event.preventDefault();
    event.stopPropagation();
    action();
    return false;
  }

  async #menu() {
    const console = this.active;
    if (!console) return;
    const { place, isObserver, acts, machine } = console;
    const { machines } = this.#context;
    const { kind } = machines.parse(place.name);
    const part = (key, label, name) => ({
      key,
      label,
      action: () => this.#context.navigate(this.#context.link(place.namespace, place.name, name)),
      disabled: !machines.has(kind, name) && "This server has none of this machine.",
    });
    const alone = this.#consoles.length < 2 && "No other console is open.";
    const closed = !console.isOpen && "The console is not open.";
    const sized = (steps, size) => !console.screen?.hasFontSize(steps) && `The text has its ${size} size.`;
    const mute = closed || (isObserver && "You only observe."); // nothing can be typed
    const withoutBreak = mute || (!console.hasBreak && "This console has no BREAK.");
    const change = acts.maySwitch ? powerChange(machine) : "";
    /** @type {Parameters<typeof chooseCommand>[1]} */
    const groups = [
      ["Text", [
        { key: "i", label: "Paste", shortcut: "Ctrl Shift V", action: () => console.clipboard.paste(), disabled: mute },
        { key: "f", label: "Find", action: () => console.find() },
        { key: "c", label: "Copy selection", shortcut: "Ctrl Shift C", action: () => console.clipboard.copy() },
        { key: "x", label: "Text to select", action: () => console.clipboard.show() },
        { key: "y", label: "Copy all output", action: () => console.clipboard.copy(console.screen?.text, "All output") },
        { key: "o", label: "Save all output", action: () => console.saveOutput() },
        { key: "+", label: "Larger", action: () => console.changeFontSize(1), disabled: sized(1, "largest") },
        { key: "-", label: "Smaller", action: () => console.changeFontSize(-1), disabled: sized(-1, "smallest") },
        { key: "0", label: "Usual size", action: () => console.changeFontSize(0), disabled: sized(0, "usual") },
        { key: "a", label: "Screen reader mode", action: () => console.toggleScreenReader() },
      ]],
      ["Machine", [
        { key: "t", label: console.writer ? "Take over" : "Type here", action: () => console.changeRole("drive"), disabled: closed || (isObserver ? !console.mayTakeOver && "You may not type here." : "You type here.") },
        { key: "r", label: "Observe only", action: () => console.changeRole("observe"), disabled: mute },
        ...(change ? [{ key: "P", label: `Power ${change.toLowerCase()}`, action: () => acts.switch() }] : []),
        ...(change === "Off" ? [{ key: "X", label: "Reset", action: () => acts.reset() }] : []),
        ...(acts.mayRecord ? [{ key: "k", label: "Record", action: () => acts.record() }] : []),
        ...(acts.mayEndRecording ? [{ key: "K", label: "End recording", action: () => acts.endRecording() }] : []),
        { key: "e", label: "Details", action: () => console.showDetails() },
        { key: "j", label: console.tellsCompany ? "Do not tell who joins" : "Tell who joins", action: () => console.toggleCompany() },
        part("g", "Log", "logs"),
        part("d", "Screen", "screen"),
        part("R", "Recordings", "recordings"),
        part("E", "Events", "events"),
      ]],
      ["Send", [
        { key: "b", label: "BREAK", action: () => console.sendBreak(), disabled: withoutBreak },
        { key: "M", label: "Message to viewers …", action: () => console.writeMessage(), disabled: closed || (!console.mayWriteMessage && "You may not write to viewers here.") },
        { key: "s", label: "SysRq …", action: () => console.sysrq(), disabled: withoutBreak },
        { key: "]", label: "Ctrl ]", action: () => console.type("\x1d"), disabled: mute },
        { key: "z", label: "Terminal size (stty)", action: () => console.typeSize(), disabled: mute },
      ]],
      ["Consoles", [
        { key: "l", label: "List of machines", action: () => this.#context.navigate("#/machines") },
        { key: "n", label: "Next console", action: () => this.#step(1), disabled: alone },
        { key: "p", label: "Previous console", action: () => this.#step(-1), disabled: alone },
        { key: "v", label: this.#isSplit ? "One at a time" : "Split view", action: () => this.toggleSplit(), disabled: alone || (!ROOM.matches && "The window is too small.") },
        { key: "F", label: document.fullscreenElement ? "Leave full screen" : "Full screen", action: () => this.#turnFullScreen(), disabled: !document.fullscreenEnabled && "The browser does not let this page fill the screen." },
        // The address of the local page leads nobody else there.
        ...(this.#context.config.local ? [] : [{ key: "u", label: "Copy link", action: () => console.clipboard.copy(this.#addressOf(console), "Link") }]),
        { key: "w", label: "Close this console", action: () => this.close(console) },
      ]],
    ];
    // Last, because there may be many of them.
    if (!alone) groups.push(["Open consoles", this.#consoles.map((each, at) => this.#command(each, at))]);
    const chosen = await chooseCommand(`Commands for ${printable(place.name)}`, groups);
    if (chosen) chosen.action();
    else console.focus();
  }

  /** The command that leads to an open console, the one at this place. */
  #command(each, at) {
    const name = printable(this.#label(each));
    return { key: at < 9 ? String(at + 1) : "", label: cutInTheMiddle(name), title: name, action: () => this.#go(each), disabled: each === this.active && "This console is shown." };
  }

  #addressOf({ place }) {
    return new URL(this.#context.link(place.namespace, place.name), location.href).href;
  }

  /** Let the consoles have all of the screen, or no longer. Escape belongs to the machine where the browser lets a page say so. */
  async #turnFullScreen() {
    if (document.fullscreenElement) await document.exitFullscreen();
    else {
      const { keyboard } = /** @type {any} */ (navigator);
      await this.element.requestFullscreen().then(() => keyboard?.lock?.(["Escape"])).catch(() => {});
    }
    this.active?.focus();
  }

  #draw() {
    const count = this.#consoles.length;
    const isSplit = this.#isSplit && count > 1 && ROOM.matches;
    fill(this.#tabs, this.#consoles.map((each) => this.#tab(each)));
    this.#panes.classList.toggle("split", isSplit);
    for (const [at, each] of this.#consoles.entries()) {
      each.number(at + 1, count);
      each.element.hidden = !isSplit && each !== this.active;
      each.element.classList.toggle("active", each === this.active);
      each.element.classList.toggle("namesake", this.#hasNamesake(each.place));
    }
    this.#split.setAttribute("aria-pressed", String(this.#isSplit));
    this.#split.hidden = count < 2 || this.#other !== null || !ROOM.matches;
    this.#strip.hidden = count === 0 && this.#other !== null;
    this.#strip.classList.toggle("single", this.#consoles.every((each) => this.#isSelected(each)));
    this.#empty.hidden = count > 0;
    this.#panes.hidden = !count;
    this.#context.frame.count("consoles", count);
    this.#read();
    this.#revealTab();
    this.#keep();
  }

  /** Whether the view is one of this console's machine. */
  #isSelected(console) {
    return console === (this.#other ? this.#find(this.#other) : this.active);
  }

  /** The name of a console's machine, with the namespace where another open console has the same name. */
  #label({ place }) {
    return this.#hasNamesake(place) ? `${place.namespace} / ${place.name}` : place.name;
  }

  #hasNamesake({ namespace, name }) {
    return this.#consoles.some(({ place }) => place.name === name && place.namespace !== namespace);
  }

  #tab(each) {
    const { namespace, name } = each.place;
    const label = this.#label(each);
    const isSelected = this.#isSelected(each);
    const href = this.#context.link(namespace, name);
    // An address that stays opens nothing.
    const onclick = () => location.hash === href && each.focus();
    return h(
      "li",
      { class: isSelected ? "selected" : "" },
      each.marks.tab,
      each.unreadMark,
      nameLink(href, label, { onclick, "aria-current": isSelected ? "page" : null, title: printable(`${namespace} / ${name}`) }),
      button("×", () => this.close(each), { class: "quiet icon", "aria-label": `Close the console of ${printable(label)}` }),
    );
  }

  #keep() {
    this.#context.store.set("consoles", {
      places: this.#consoles.map((each) => each.place),
      active: Math.max(0, this.#consoles.indexOf(this.active)),
      isSplit: this.#isSplit,
    });
  }
}

function opensMenu({ key, ctrlKey, altKey, metaKey }) {
  return ctrlKey && !altKey && !metaKey && (key === "]" || key === "F6");
}
