/** One console in the page: its session, its terminal and the bars around it. */

import { button, fill, h, printable } from "../dom.js";
import { Attachment, forget } from "./attachment.js";
import { Clipboard } from "./clipboard.js";
import { chooseSysrq } from "./dialogs.js";
import { EndPanel } from "./end_panel.js";
import { buildFinder } from "./finder.js";
import { KeyBar } from "./key_bar.js";
import { Lifecycle } from "./lifecycle.js";
import { MachineWatch } from "./machine_watch.js";
import { opening } from "./rights.js";
import { Roles } from "./roles.js";
import { Screen, load } from "./screen.js";
import { StatusLine } from "./status_line.js";
import { droppedKeys, endText, recordingNews } from "./texts.js";

const MESSAGE_MILLISECONDS = 10_000;

let hasToldKeys = false;

export class Console {
  #on;
  #life = new Lifecycle({
    ask: () => opening(this.context, this.place.namespace, this.place.name, this.place.mode),
    attach: (rights, changed) => this.#attach(rights, changed),
    attached: () => this.#showRole(),
    state: (name, detail) => this.#status.state(name, detail, this.#life.session?.id ?? ""),
    opened: () => this.#opened(),
    lost: () => this.#lost(),
    resumed: () => this.#resumed(),
    ended: (detail) => this.#ended(detail),
    unauthorized: () => this.context.api.dispatchEvent(new Event("unauthorized")),
    formerGone: () => this.#tell("The session before the reload is over; this is a new one.", ""),
    reopen: () => this.reopen(),
    full: () => this.#tell("The connection is slow: this key was not accepted.", "warning"),
  });
  #login = () => this.#life.authorized();
  clipboard = new Clipboard(this, {
    type: (bytes) => this.#life.typed(bytes),
    tell: (text, kind) => this.#tell(text, kind),
  });
  // Of the present session.
  #rights = { drives: true, takesOver: false, mayType: true };
  #roles = new Roles();
  /** @type {object[] | null} */
  #recordings = null; // those that the user knows of
  /** @type {MachineWatch | null} */
  #machine = null;
  // What the user sees.
  /** @type {Screen | null} */
  #screen = null;
  #terminal;
  #finder;
  #message;
  #messageTimer;
  #role;
  #keys;
  #end;
  #status;

  /**
   * @param {object} context of the page
   * @param {object} place `{namespace, name, mode, reason, size}`; kept over reloads by the owner
   * @param {object} on `key(event)`: false keeps a key from the machine; `menu()`; `close()`: it is to be closed;
   *     `active()`: it has the focus; `isActive()`: the user sees it; `keep()`: the place has changed
   */
  constructor(context, place, on) {
    this.context = context;
    this.place = place;
    this.element = h("section", { class: "console", "aria-label": `Console of ${printable(place.name)}` });
    this.#on = on;
    context.api.addEventListener("authorized", this.#login);
    this.#build();
    this.#start();
  }

  get isOpen() {
    return this.#life.isOpen;
  }

  /** The terminal; null until xterm.js is loaded. */
  get screen() {
    return this.#screen;
  }

  /** Whether the user sees it and no other one has the focus. */
  get isActive() {
    return this.#on.isActive();
  }

  focus() {
    if (this.#end.isShown) this.#end.focus();
    else this.#screen?.focus();
  }

  /** End the session and forget it. */
  close() {
    this.context.api.removeEventListener("authorized", this.#login);
    this.#life.close();
    forget(this.context, this.place);
    this.#status.stop();
    this.#leaveMachine();
    clearTimeout(this.#messageTimer);
    this.#screen?.close();
    this.element.remove();
  }

  /** Let the owner close it. */
  leave() {
    this.#on.close();
  }

  #build() {
    const { name, namespace } = this.place;
    this.#role = button("", () => this.changeRole(), { class: "role", hidden: true });
    const head = h(
      "header",
      { class: "console-head" },
      h("h2", {}, h("span", { class: "dim" }, `${printable(namespace)} / `), printable(name)),
      h("span", { class: "grow" }),
      this.#role,
      button("Find", () => this.find(), { class: "quiet find-button", title: "Find text in the terminal" }),
      button(["Commands ", h("kbd", { "aria-hidden": "true" }, "Ctrl ]")], () => this.#on.menu(), {
        class: "quiet",
        title: "Ctrl ] or Ctrl F6 leaves the terminal and shows all commands",
        "aria-keyshortcuts": "Control+] Control+F6",
      }),
    );
    this.#finder = h("form", { class: "finder", role: "search", hidden: true, onsubmit: (event) => event.preventDefault() });
    this.#terminal = h("div", { class: "terminal-box" });
    this.#message = h("div", { class: "message", hidden: true });
    this.#end = new EndPanel(this);
    this.#keys = new KeyBar({
      type: (text) => this.type(text),
      isApplication: () => this.#screen?.terminal.modes.applicationCursorKeysMode ?? false,
    });
    this.#status = new StatusLine(this.context, this.place, {
      reconnect: () => this.#life.session?.reconnectNow(),
    });
    fill(
      this.element,
      head,
      h(
        "div",
        { class: "terminal-frame" },
        this.#terminal,
        // Over the terminal: another size of it would be another size for the machine.
        h("div", { class: "overlays" }, this.#finder, this.#message),
        this.#end.element,
      ),
      this.#keys.element,
      this.#status.element,
    );
    this.element.addEventListener("focusin", () => this.#on.active());
    // Before xterm.js: it would send the text at once.
    this.#terminal.addEventListener("paste", (event) => this.clipboard.pasted(event), { capture: true });
    this.#terminal.addEventListener("drop", (event) => event.preventDefault());
    buildFinder(this.#finder, this);
  }

  async #start() {
    this.#status.state("connecting", {});
    try {
      const loaded = await load();
      if (this.#life.isClosed) return;
      this.#screen = new Screen(loaded, {
        theme: this.context.theme,
        preferences: this.context.preferences,
        // The size before a reload: a console in a hidden tab must not get another one.
        size: this.place.size ?? [80, 24],
        typed: (bytes) => this.#life.typed(this.#keys.apply(bytes)),
        resized: (columns, rows) => {
          this.place.size = [columns, rows];
          this.#on.keep();
          this.#life.session?.resize(columns, rows);
          this.#status.size(columns, rows);
        },
        key: (event) => this.#on.key(event),
      });
      this.#screen.open(this.#terminal);
      if (this.isActive) this.#screen.focus();
      await this.#life.open();
    } catch (problem) {
      this.#end.showMissing(problem);
      this.#status.state("ended", {});
    }
  }

  /** Return the next session, which is not started yet. */
  #attach(rights, changed) {
    this.#end.hide();
    const { path, query } = rights;
    const { reason } = this.place;
    const attachment = new Attachment(this.context, this.place, {
      request: { path, query: { ...query, ...(reason && { reason }) } },
      screen: /** @type {Screen} */ (this.#screen),
      on: {
        placed: () => this.#status.position(() => this.#life.session?.save()?.position?.offset ?? null),
        notice: (mark) => this.#notice(mark),
        viewers: (viewers) => this.#viewersChanged(viewers),
        echo: (microseconds) => this.#status.echo(microseconds),
        roundTrip: (milliseconds) => this.#status.roundTrip(milliseconds),
        uncertain: (dropped) => this.#tell(droppedKeys(dropped), "warning"),
        tell: (text, kind) => this.#tell(text, kind),
        state: changed,
      },
    });
    this.#rights = rights;
    this.#roles = new Roles(attachment.isReadOnly);
    this.#recordings = null;
    this.#status.begin(attachment.isReadOnly);
    return attachment;
  }

  // News of the session.

  #opened() {
    // A user of the keyboard cannot leave a terminal that gets all keys, and is told once how.
    this.#announce(`connected${hasToldKeys ? "" : ". Control and ] leave the terminal and show all commands"}`);
    hasToldKeys = true;
    // Not earlier: the first prompt is what the user waits for.
    this.#watchMachine();
    if (this.place.mode === "takeover") {
      this.place.mode = "drive"; // another user may take over, and keeps the floor when this one opens again
      this.#on.keep();
    }
    this.#showRole();
  }

  #lost() {
    this.#announce("connection lost, reconnecting");
    this.#showRole();
  }

  #resumed() {
    this.#announce("reconnected");
    this.#watchMachine();
    this.#showRole();
  }

  #ended(detail) {
    this.#announce(`session ended. ${endText(detail)}`);
    this.#end.show(detail, this.#rights, this.#status.isReadOnly);
    if (this.#end.followsMachine) this.#watchMachine();
    else this.#leaveMachine();
    this.#showRole();
  }

  #announce(text) {
    this.context.announce(`${this.place.name}: ${text}`);
  }

  #watchMachine() {
    const watch = (this.#machine ??= new MachineWatch(this.context, this.place, (hasStarted) => {
      const { machine } = watch;
      this.#status.machine(machine);
      this.#end.follow(machine, hasStarted);
    }));
    this.#end.follow(watch.machine, false);
  }

  #leaveMachine() {
    this.#machine?.stop();
    this.#machine = null;
    this.#status.machine(null);
  }

  #notice(mark) {
    const shown = this.#roles.read(mark);
    this.#tell(shown, "");
    this.#showRole();
  }

  #viewersChanged(viewers) {
    this.#status.viewers(viewers);
    const news = recordingNews(this.#recordings, viewers.recordings);
    this.#recordings = viewers.recordings ?? this.#recordings;
    if (news) this.#tell(news, "");
    if (!viewers.writer) this.#roles.writer = null;
    this.#showRole();
  }

  // Acts of the user.

  /** Show who is connected, and how fast the session is. */
  async showDetails() {
    await this.#status.showDetails();
    this.focus();
  }

  find() {
    this.#finder.hidden = false;
    const input = this.#finder.querySelector("input");
    input.value = this.#screen?.selection.split("\n")[0] || input.value;
    input.focus();
    input.select();
  }

  endFind() {
    this.#finder.hidden = true;
    this.#screen?.endFind();
    this.focus();
  }

  /** Take over, or become an observer. */
  changeRole(role = this.#roles.isObserver ? "drive" : "observe") {
    // A session that was opened to observe only never gets input: another one takes its place.
    if (this.#status.isReadOnly && role === "drive") {
      this.#message.hidden = true; // of the session that ends here
      this.reopen({ mode: "drive" });
    } else {this.#life.session?.role(role);}
    this.focus();
  }

  sendBreak() {
    this.#life.session?.sendBreak();
    this.#tell("BREAK sent.", "");
    this.focus();
  }

  async sysrq() {
    const letter = await chooseSysrq(this.place.name);
    if (letter) {
      this.#life.session?.sysrq(letter);
      this.#tell(`SysRq ${letter} sent.`, "");
    }
    this.focus();
  }

  type(text) {
    this.#life.typed(new TextEncoder().encode(text));
    this.focus();
  }

  /** Type the command that tells a machine with a serial line the size of this terminal. */
  typeSize() {
    this.type(`stty cols ${this.#screen?.columns} rows ${this.#screen?.rows}\r`);
  }

  changeFontSize(step) {
    this.#screen?.changeFontSize(step);
    this.focus();
  }

  toggleScreenReader() {
    const on = this.#screen?.toggleScreenReader();
    this.#tell(on ? "Screen reader mode is on: output is read aloud." : "Screen reader mode is off.", "");
    this.focus();
  }

  /** Open the session again, with another reason or mode. */
  reopen(changes = {}) {
    Object.assign(this.place, changes);
    this.#on.keep();
    forget(this.context, this.place);
    this.#life.open().catch((problem) => this.#tell(problem.message, "error"));
    if (this.isActive) this.#screen?.focus();
  }

  // Parts that the user sees.

  /** Whether commands for the writer make sense. */
  get drives() {
    return this.isOpen && !this.#roles.isObserver;
  }

  get isObserver() {
    return this.#roles.isObserver;
  }

  get mayTakeOver() {
    if (!this.isOpen) return false;
    if (this.#status.isReadOnly) return this.#rights.mayType;
    const isFree = this.#roles.writer === null && this.#rights.drives;
    return this.#rights.takesOver || isFree;
  }

  #showRole() {
    const { isObserver, isDenied, writer } = this.#roles;
    this.#status.role(this.#roles, this.#rights.mayType);
    const { isReadOnly } = this.#status;
    const typeHere = isReadOnly || writer === null ? "Type here" : "Take over";
    this.#role.hidden = !this.isOpen || isDenied || (isReadOnly && !this.mayTakeOver);
    this.#role.textContent = isObserver ? typeHere : "Observe only";
    this.#role.classList.toggle("primary", isObserver);
    this.#role.disabled = isObserver && !this.mayTakeOver;
    this.#role.title = isReadOnly ? "This console was opened to observe only: open it to type." : "";
    if (this.#role.disabled) {
      this.#role.title = "You need the verb takeover on machines/console to take this console from its writer.";
    }
  }

  /** Show a message over the terminal, and let screen readers say it; warnings stay until dismissed. */
  #tell(text, kind) {
    fill(
      this.#message,
      h("span", {}, printable(text)),
      button("×", () => this.#hideMessage(), { class: "quiet icon", "aria-label": "Dismiss this message" }),
    );
    this.#message.className = `message ${kind}`;
    this.#message.hidden = false;
    clearTimeout(this.#messageTimer);
    if (!kind) this.#messageTimer = setTimeout(() => (this.#message.hidden = true), MESSAGE_MILLISECONDS);
    this.#announce(text);
  }

  #hideMessage() {
    this.#message.hidden = true;
    this.focus();
  }
}
