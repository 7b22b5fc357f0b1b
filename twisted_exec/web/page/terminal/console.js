/** One console in the page: its session, its terminal and the bars around it. */

import { acknowledged } from "../acts.js";
import { confirmed, endRecordingConfirmed, powerOffConfirmed, recordedAlready, resetConfirmed } from "../dialogs.js";
import { button, fill, h, printable } from "../dom.js";
import { machineTitle, partLinks } from "../frame.js";
import { qualifiedName } from "../machines.js";
import { itemPath, listPath, may } from "../objects.js";
import { STOPPED } from "../session/session.js";
import { minute } from "../times.js";
import { save } from "../views/parts.js";
import { isEndable, isOf, rowOf } from "../views/recording_model.js";
import { Attachment, forget, savedSession } from "./attachment.js";
import { Clipboard } from "./clipboard.js";
import { NO_RECEIPT, RECEIPT_MILLISECONDS, messageLine } from "./company.js";
import { askForMessage, chooseSysrq } from "./dialogs.js";
import { buildFinder } from "./finder.js";
import { KeyBar } from "./key_bar.js";
import { Lifecycle } from "./lifecycle.js";
import { MachineWatch, stateOf } from "./machine_watch.js";
import { MessageList, keptMessages } from "./message_list.js";
import { Panel } from "./panel.js";
import { reset } from "./reset.js";
import { explain, opening } from "./rights.js";
import { Roles } from "./roles.js";
import { Screen, load } from "./screen.js";
import { StatusLine } from "./status_line.js";
import { NO_POOL, POWERED_OFF, REVOKED, anewText, demands, droppedKeys, endText, endingOf, isServerStopped, largerText, lostText, readOnlyText, recordedFor, recordingNews, recordingRefusal, said, sentence, stopAdvice, viewerCount } from "./texts.js";

const [ROLE_WARNING, ROLE_ERROR] = ["warning about-role", "error about-role"]; // kinds of a message
const MESSAGE_MILLISECONDS = 10_000;
const GAP_PIXELS = 7; // between messages
const SHUTDOWN = "Shutdown"; // the state of a machine that is off
const PENDING = "Pending";

let hasToldKeys = false;

export class Console {
  #on;
  #life = new Lifecycle({
    ask: () => this.#ask(),
    attach: (_rights, changed) => this.#attach(changed),
    state: (name, detail) => this.#stateChanged(name, detail),
    opened: () => this.#opened(),
    lost: () => this.#lost(),
    resumed: () => this.#resumed(),
    ended: (detail) => this.#ended(detail),
    unauthorized: () => this.context.api.dispatchEvent(new Event("unauthorized")),
    reopen: (detail) => this.#follow(detail),
    full: () => this.#tell("The connection is slow: this key was not accepted.", "warning"),
    readOnly: () => this.#tellOnce(readOnlyText({ mayTakeOver: this.mayTakeOver, writer: this.writer })),
  });
  #listeners = { authorized: () => this.#life.authorized(), reached: () => this.#life.wake(), "another user": () => this.#messages.forget() };
  clipboard = new Clipboard(this, {
    type: (bytes) => this.#life.typed(bytes),
    tell: (text, kind) => this.#tell(text, kind),
  });
  // Of the present session.
  /** @type {any} */
  #rights = { drives: true, takesOver: false, mayType: true, switches: false, records: false, endsRecordings: false };
  #roles;
  #larger = { size: "", text: "" }; // of the window of another user, and what the user has read about it
  #hasDriven = false; // it could type until now
  /** @type {any} */
  #former = null; // how and when the session before has ended, until the role in this one is known
  /** @type {object[] | null} */
  #recordings = null; // those that the user knows of
  /** @type {MachineWatch | null} */
  #machine = null;
  /**
   * How the user has switched the machine here the last time; empty if never.
   *
   * @type {"" | "On" | "Off"}
   */
  switched = "";
  /** Whether the user has reset the machine, and its power is not on again. */
  isResetting = false;
  /** Whether the terminal has shown nothing yet. */
  isEmpty = true;
  /** @type {{text: string, kind: string} | null} */
  #held = null; // the newest message behind the panel of an attempt to connect
  #approval = ""; // what the approver has said, before messages of the first seconds
  /** @type {Record<string, string>} what the user was told of the session: its newest text by subject. */
  #facts = {};
  /**
   * The machine as the page knows it; null if unknown.
   *
   * @type {import("./machine_watch.js").MachineWatch["machine"]}
   */
  machine = null;
  // What the user sees.
  /** @type {Screen | null} */
  #screen = null;
  #terminal;
  #finder;
  #found;
  #banner;
  #message;
  #note = h("div", { class: "note" }); // in the message: what passes while a warning stays
  #messageTimer;
  #messages;
  #receiptTimer;
  /** Whether the output that is in sight is old. */
  isAway = false;
  /** In its tab: the same. */
  awayMark = h("span", { class: "badge waiting", hidden: true, title: "No connection" }, h("span", { class: "visually-hidden" }, "No connection "));
  #isOver = false; // the state of the session is its end
  #free = 0; // the part of the terminal below the cursor
  #role;
  #number = h("span", { class: "number dim" });
  #health = h("a", { class: "health badge bad", hidden: true });
  /** In its tab: whether its machine is not healthy. */
  mark = h("span", { class: "badge bad", hidden: true });
  /** In its tab: whether its machine does not run. */
  stoppedMark = h("span", { class: "badge off", hidden: true });
  /** In its tab: whether its session has ended. */
  endedMark = h("span", { class: "badge over", hidden: true, title: "No session" }, h("span", { class: "visually-hidden" }, "No session "));
  #keys;
  #panel;
  #status;
  #newest = button("↓", () => this.#screen?.terminal.scrollToBottom(), { class: "icon newest", hidden: true, "aria-label": "Newest output", title: "Newest output" });

  /**
   * @param {object} context of the page
   * @param {object} place `{namespace, name, mode, reason, size, observes, closed}`; kept over reloads by the owner.
   *     `observes`: the user is an observer who asked for input; `closed`: the facts whose messages the user has closed
   * @param {object} on `key(event)`: false keeps a key from the machine; `menu()`; `close()`: it is to be closed;
   *     `active()`: it has the focus; `isActive()`: the user sees it; `keep()`: the place has changed;
   *     `news()`: whether its output is old, or the number of messages that were not in sight, has changed
   */
  constructor(context, place, on) {
    this.context = context;
    this.place = place;
    this.element = h("section", { class: "console", "aria-label": `Console of ${printable(place.name)}` });
    this.#on = on;
    this.#roles = new Roles(place.mode === "observe" || place.observes, () => context.user);
    this.#messages = new MessageList(keptMessages(context, place), { news: () => on.news(), moved: () => this.#placeMessages(), focus: () => this.focus() });
    for (const [event, listener] of Object.entries(this.#listeners)) context.api.addEventListener(event, listener);
    this.#build();
    this.#start();
  }

  get hasEnded() {
    return this.#life.hasEnded;
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
    if (this.#panel.takesFocus) this.#panel.focus();
    else this.#screen?.focus();
  }

  /** End the session and forget it. */
  close() {
    for (const [event, listener] of Object.entries(this.#listeners)) this.context.api.removeEventListener(event, listener);
    this.#life.close();
    forget(this.context, this.place);
    keptMessages(this.context, this.place).set(null);
    this.#status.stop();
    this.#panel.hide();
    this.#panel.release();
    this.#leaveMachine();
    clearTimeout(this.#messageTimer);
    clearTimeout(this.#receiptTimer);
    this.#screen?.close();
    this.element.remove();
  }

  /** Let the owner close it. */
  leave() {
    this.#on.close();
  }

  /** Say which one of the open consoles it is. */
  number(number, count) {
    this.#number.textContent = count > 1 ? `${number}/${count}` : "";
    this.#number.title = `${number} of ${count} open consoles; Commands leads to the others`;
  }

  #build() {
    const { name, namespace } = this.place;
    this.#role = button("", () => this.changeRole(), { class: "role", hidden: true });
    const head = h(
      "header",
      { class: "console-head" },
      machineTitle("h2", namespace, name),
      this.#health,
      partLinks(this.context, namespace, name, ""),
      h("span", { class: "grow" }),
      this.#number,
      this.#role,
      button("Find", () => this.find(), { class: "find-button", title: "Find text in the terminal" }),
      button(["Commands ", h("kbd", { "aria-hidden": "true" }, "Ctrl ]")], () => this.#on.menu(), {
        title: "Ctrl ] or Ctrl F6 leaves the terminal and shows all commands",
        "aria-keyshortcuts": "Control+] Control+F6",
      }),
    );
    this.#finder = h("form", { class: "finder", role: "search", hidden: true, onsubmit: (event) => event.preventDefault() });
    this.#terminal = h("div", { class: "terminal-box" });
    this.#banner = h("div", { class: "banner", role: "note", "aria-label": "Note of this machine", hidden: true });
    this.#message = h("div", { class: "message", hidden: true });
    this.#panel = new Panel(this);
    this.#keys = new KeyBar({
      type: (text) => this.type(text),
      isApplication: () => this.#screen?.terminal.modes.applicationCursorKeysMode ?? false,
    });
    this.#status = new StatusLine(this.context, this.place, {
      reconnect: () => this.connectNow(),
      powerOn: () => this.switch(),
      waiting: () => this.#life.waiting + (this.#former?.unconfirmed.unsent ?? 0),
      news: (text) => this.#tellCompany(text),
      messages: () => this.#messages.last,
      away: (isAway) => this.#turnAway(isAway),
    });
    fill(
      this.element,
      head,
      this.#banner,
      h(
        "div",
        { class: "terminal-frame" },
        this.#terminal,
        this.#newest,
        // Over the terminal: another size of it would be another size for the machine.
        h("div", { class: "overlays" }, this.#finder, this.#status.outage, this.#message, this.#messages.element, this.#panel.element),
      ),
      h("div", { class: "foot" }, this.#keys.element, this.#status.element),
    );
    new ResizeObserver(() => this.#placeMessages()).observe(this.#panel.element); // its texts change
    this.element.addEventListener("focusin", () => this.#on.active());
    // The terminal keeps the focus, and with it the keyboard of a phone, and the place of what is pressed.
    this.element.addEventListener("mousedown", (event) => {
      this.#on.active();
      if (/** @type {Element} */ (event.target).closest("button, a")) event.preventDefault();
    });
    // Before xterm.js: it would send the text at once.
    this.#terminal.addEventListener("paste", (event) => this.clipboard.pasted(event), { capture: true });
    this.#terminal.addEventListener("drop", (event) => event.preventDefault());
    this.#found = buildFinder(this.#finder, this);
  }

  async #start() {
    this.#stateChanged("connecting", {});
    try {
      const loaded = await load();
      if (this.#life.isClosed) return;
      this.#screen = new Screen(loaded, {
        theme: this.context.theme,
        preferences: this.context.preferences,
        // The size before a reload: a console in a hidden tab must not get another one.
        size: this.place.size ?? [80, 24],
        typed: (bytes) => this.#life.typed(this.#keys.apply(bytes)),
        resized: (isOther) => {
          const screen = /** @type {Screen} */ (this.#screen);
          this.place.size = screen.room;
          this.#on.keep();
          this.#life.session?.resize(...screen.room);
          this.#status.size(screen.columns, screen.rows);
          // The machine's program does not draw for an observer's window.
          if (isOther && this.#roles.isObserver && (screen.isForeign || screen.isFullScreen)) this.#life.redraw();
          this.#compareSizes();
        },
        key: (event) => this.#on.key(event),
        found: (index, count) => this.#found(index, count),
        drawn: (isNewest, free) => {
          this.#newest.hidden = isNewest;
          this.#free = free;
          this.#placeMessages();
          this.#compareSizes();
        },
      });
      this.#screen.open(this.#terminal);
      if (this.isActive) this.#screen.focus();
      await this.#life.open();
    } catch (problem) {
      this.#panel.showMissing(problem);
      this.#status.state("ended", {});
    }
  }

  /** Return what the user may do; or why there can be no session, if the machine is known to be off. */
  async #ask() {
    const { namespace, name, mode } = this.place;
    const rights = await opening(this.context, namespace, name, mode);
    this.#rights = rights;
    if (!rights.machine) return rights;
    const machine = stateOf(rights.machine, this.context.machines.parse(name).kind);
    this.#know(machine);
    // The session of the page before a reload waits for the machine.
    if (savedSession(this.context, this.place)) return rights;
    if (machine.state === SHUTDOWN) return { ending: { reason: POWERED_OFF, message: "This machine is off.", isSeen: true } };
    // No host has it: there is nothing to connect to.
    if (machine.state === PENDING && !machine.hasPool) return { ending: { reason: NO_POOL, message: "This machine does not run yet.", isSeen: true } };
    return rights;
  }

  /** Return the next session, which is not started yet. */
  #attach(changed) {
    const attachment = new Attachment(this.context, this.place, {
      request: this.openingWith(this.place.reason),
      screen: /** @type {Screen} */ (this.#screen),
      follows: this.#former !== null,
      on: {
        shown: () => this.#shown(),
        placed: () => this.#status.position(() => this.#life.session?.save()?.position?.offset ?? null),
        notice: (mark) => this.#notice(mark),
        viewers: (viewers) => this.#viewersChanged(viewers),
        echo: (microseconds) => this.#status.echo(microseconds),
        roundTrip: (milliseconds) => this.#status.roundTrip(milliseconds),
        quiet: (since) => this.#status.quiet(since),
        uncertain: (dropped) => this.#tell(droppedKeys(dropped), "warning"),
        skipped: (what) => this.#tellSkipped(what),
        state: changed,
      },
    });
    this.#roles = new Roles(attachment.isReadOnly || this.place.observes, () => this.context.user);
    this.#recordings = null;
    this.#status.begin(attachment.isReadOnly);
    return attachment;
  }

  // News of the session.

  #stateChanged(name, detail) {
    const { since } = this.#former ?? {};
    if (detail.resumable === false) this.#roles.settle();
    const isStopped = name === "connecting" && isServerStopped(this.#former ?? {});
    this.#status.state(name, { ...detail, ...(isStopped && { since, reason: this.#former.reason, advice: stopAdvice(this.#former, detail) }), drops: this.#dropsKeys }, this.#life.session?.id ?? "");
    this.#showRole();
    this.#isOver = name === "ended";
    this.#markEnded();
    if (this.#isOver) return;
    if (this.isEmpty && detail.resumable !== false) this.#panel.showConnecting(name, detail);
    else this.#shown();
  }

  /** There is output, or there will be none: the terminal takes the place of the panel. */
  #shown() {
    if (!this.isEmpty) return;
    this.isEmpty = false;
    this.#panel.hide();
    if (this.#held) this.#tell(this.#held.text, this.#held.kind);
  }

  #opened() {
    this.#panel.release();
    if (this.#dropsKeys) this.#former.unconfirmed.unsent += this.#life.session?.discard() ?? 0;
    // A user of the keyboard cannot leave a terminal that gets all keys, and is told once how.
    this.#announce(`connected${hasToldKeys ? "" : ". Control and ] leave the terminal and show all commands"}`);
    hasToldKeys = true;
    this.#reached();
    if (this.place.mode === "takeover") {
      this.place.mode = "drive"; // another user may take over, and keeps the floor when this one opens again
      this.#on.keep();
    }
    this.#showRole();
  }

  /** Whether keys that wait for the next session are dropped: its machine may be at another prompt, or lack the keys before. */
  get #dropsKeys() {
    const { reason, unconfirmed } = this.#former ?? {};
    return Boolean(reason) && !(reason === REVOKED && !unconfirmed.sent);
  }

  #lost() {
    this.#announce("connection lost, reconnecting");
    this.#showRole();
  }

  #resumed() {
    this.#announce("reconnected");
    this.#reached();
    this.#showRole();
  }

  /** The server answers; not earlier than the first prompt, which is what the user waits for. */
  #reached() {
    this.#watchMachine();
    this.context.api.dispatchEvent(new Event("reached"));
  }

  /** A new session takes the place of one that has ended. */
  #follow(ending) {
    this.#former = { ...ending, since: Date.now() };
    this.reopen();
    const text = anewText(ending);
    // Over a terminal that has shown something the outage says the same.
    if (isServerStopped(ending) && !this.#panel.isConnecting) {
      if (!this.#isWarned) this.#endMessage(); // such as that the server stops soon
      this.#announce(text);
    } else this.#tell(text, ending.reason === STOPPED ? "warning" : ""); // until its user has started it
  }

  #ended(detail) {
    if (this.#message.matches(".about-role")) this.#message.className = "message"; // the roles have ended with the session
    const lost = this.#leaveFormer();
    this.#announce(`${endingOf(detail, this.context.user).title}. ${sentence(endText(detail))}`.trim());
    this.#endNote();
    if (!this.#isWarned) this.#endMessage(); // the panel says what is true now
    this.#panel.show(detail, this.#rights, this.#status.isReadOnly);
    const news = lost ? { text: lost, kind: "warning" } : this.#held;
    this.#held = null; // it is not news of a session that opens later
    if (news?.kind) this.#tell(news.text, news.kind);
    if (this.#panel.followsMachine) this.#watchMachine();
    else this.#leaveMachine();
    this.#showRole();
  }

  /** No session follows the former one: take back that one would follow, and return what the user reads of lost keys. */
  #leaveFormer() {
    if (!this.#former) return "";
    const { unconfirmed } = this.#former;
    this.#takeBack(anewText(this.#former));
    this.#former = null;
    return droppedKeys(unconfirmed);
  }

  #announce(text) {
    this.context.announce(`${this.place.name}: ${text}`);
  }

  #watchMachine() {
    const watch = (this.#machine ??= new MachineWatch(this.context, this.place, (hasStarted) => {
      this.#know(watch.machine);
      this.#showHealth(watch.machine?.health);
      this.#showMachine(hasStarted);
    }));
    this.#followMachine(watch, false);
  }

  /** Without a session the page learns only by this that the server does not answer. */
  #followMachine({ machine, isGone, outage }, hasStarted) {
    if (this.hasEnded) this.#status.quiet(outage && outage.asOf);
    this.#panel.follow(machine, hasStarted, isGone, outage);
  }

  #showMachine(hasStarted) {
    if (!this.#machine) return;
    this.#markStopped(this.#machine.machine);
    this.#status.machine(this.#machine.machine, this.maySwitch && !this.isResetting);
    this.#followMachine(this.#machine, hasStarted);
  }

  #know(machine) {
    this.machine = machine;
    const text = machine?.banner ?? "";
    this.#banner.hidden = !text;
    const [first, ...others] = text.split("\n").map((line) => h("div", {}, printable(line)));
    // A low window shows one line, and that there are more.
    if (others.length) first.setAttribute("data-more", `+${others.length} ${others.length === 1 ? "line" : "lines"}`);
    fill(this.#banner, first, ...others);
  }

  /** Mark a machine that is not healthy, with the way to the line that says so. */
  #showHealth(health) {
    const isSick = health?.isHealthy === false;
    this.#health.hidden = this.mark.hidden = !isSick;
    if (!isSick) return;
    const reason = printable(health.reason);
    this.#health.textContent = reason;
    this.#health.title = this.mark.title = `${reason}: ${printable(health.message)}`;
    this.#health.setAttribute("href", this.logLink && health.offset !== null ? `${this.logLink}?offset=${health.offset}` : "#/alerts");
    fill(this.mark, h("span", { class: "visually-hidden" }, `${reason} `));
  }

  /** Mark the tab of a machine that does not run. */
  #markStopped(machine) {
    const isStopped = machine !== null && machine.state !== "Running";
    this.stoppedMark.hidden = !isStopped;
    this.#markEnded();
    if (!isStopped) return;
    this.stoppedMark.title = `Machine: ${printable(machine.state)}`;
    fill(this.stoppedMark, h("span", { class: "visually-hidden" }, `${printable(machine.state)} `));
  }

  /** Mark the tab of a session that has ended, unless it has the mark of a machine that does not run. */
  #markEnded() {
    this.endedMark.hidden = !this.#isOver || !this.stoppedMark.hidden;
  }

  #leaveMachine() {
    this.#showHealth(null);
    this.#markStopped(null);
    this.#machine?.stop();
    this.#machine = null;
    this.#status.machine(null);
  }

  #notice(mark) {
    if (mark.Kind === "banner") return; // shown above the terminal
    if (mark.Kind === "interrupted" && this.isResetting) return; // the user knows better why
    if (mark.Kind === "said") {
      this.#messages.add(mark.Notice);
      return this.read();
    }
    if (mark.Kind === "receipt") {
      clearTimeout(this.#receiptTimer);
      this.#takeBack(NO_RECEIPT);
      return this.#messages.addOwn(mark.Notice);
    }
    this.#status.heard(mark.Notice);
    const shown = this.#roles.read(mark);
    if (!this.#roles.isObserver) this.#screen?.drawnForOwn();
    if (!this.#roles.isObserver && this.#message.matches(".about-role")) this.#endMessage(); // its user types again
    const isLoss = this.#hasDriven && this.#roles.isObserver;
    const [text, kind] = isLoss ? [lostText(this.#roles), ROLE_WARNING] : [said(shown), ""];
    const isReminder = this.#hasDriven && !this.#roles.isObserver; // after a reconnection
    if (mark.Kind !== "role") this.#tell(text, kind);
    else if (!isReminder) this.#tellFact("role", text, kind);
    if (!this.#former && (this.#roles.isObserver || mark.Kind === "role")) this.#hasDriven = !this.#roles.isObserver;
    if (!this.#status.isReadOnly) this.place.observes = this.#roles.isObserver;
    this.#on.keep();
    this.#showRole();
  }

  #viewersChanged(viewers) {
    this.#status.viewers(viewers);
    this.#roles.settle(); // the first of these marks follows the first notice about the role
    this.#roles.withheld = viewers.withheld;
    const news = recordingNews(this.#recordings, viewers.recordings);
    this.#recordings = viewers.recordings ?? this.#recordings;
    if (news && !this.#former) this.#tellRecordings(news);
    const told = printable(lostText(this.#roles));
    // A notice names only the writer who takes the console from another one.
    if (this.#roles.isObserver || !viewers.writer) this.#roles.writer = viewers.writer || null;
    // A warning stays: it names the writer of now.
    const loss = printable(lostText(this.#roles));
    const shown = this.#told.replace(printable(this.#approval), "").trim();
    if (loss !== told && shown.includes(told)) this.#tell(shown.replace(told, () => loss), shown === told ? ROLE_WARNING : "warning");
    if (this.#former) this.#tellNew(this.#former, news);
    this.#hasDriven = !this.#roles.isObserver;
    this.#showRole();
    this.#compareSizes();
  }

  /** Tell of recordings; a message that says more about the session stays, with what is true of them now. */
  #tellRecordings(news) {
    const before = printable(this.#facts.recordings ?? "");
    const shown = this.#told.replace(printable(this.#approval), "").trim();
    const isPart = before !== "" && shown !== before && shown.includes(before);
    this.#tellFact("recordings", isPart ? shown.replace(before, () => news) : news, isPart && this.#isWarned ? "warning" : "");
    this.#facts.recordings = news;
  }

  /** Give what a program draws for another user the window that it draws for, and tell if that is the larger one. */
  #compareSizes() {
    if (!this.#screen) return;
    const { size, writer } = this.#status.viewersNow;
    const isForOther = size && this.#roles.isObserver && this.#screen.isDrawn(size[1]);
    this.#screen.drawnFor(isForOther ? size : null);
    const text = isForOther ? largerText(writer, size, this.#screen.room) : "";
    const larger = { size: text && size.join("x"), text };
    const before = this.#larger;
    if (text === before.text) return;
    this.#larger = larger;
    this.#status.larger(larger);
    // A user who makes room has read it, and the line below still has the size.
    if (larger.size !== before.size && text) this.#tell(text, "");
    else this.#takeBack(before.text);
  }

  /** Tell that a session has taken the place of another one, whether its user no longer types, and that it is recorded. */
  #tellNew(former, recorded) {
    this.#former = null;
    const isLoss = this.#hasDriven && this.#roles.isObserver;
    const loss = isLoss ? lostText(this.#roles) : "";
    this.#takeBack(anewText(former));
    if (recorded) this.#facts.recordings = recorded;
    this.#tell(anewText(former, { isOpen: true, loss, recorded }), isLoss || droppedKeys(former.unconfirmed) ? "warning" : "");
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

  /** Take over, after one question if another user types, or become an observer. */
  async changeRole(role = this.#roles.isObserver ? "drive" : "observe") {
    const { writer } = this;
    this.#hasDriven = false; // the user's own act is no loss
    if (role === "drive" && writer) {
      const name = printable(writer);
      const isSure = await confirmed(`Take over ${printable(this.place.name)}?`, `${name} types at this console. If you take it over, ${name} only observes.`, "Take over");
      if (!isSure) return this.focus();
    }
    const isOther = this.#isWarned && !this.#message.matches(".about-role") && !this.#told.includes(printable(lostText(this.#roles)));
    if (!isOther) this.#message.hidden = true; // of the former role
    if (this.#status.isReadOnly && role === "drive") await this.#openToType(writer && this.#rights.takesOver ? "takeover" : "drive");
    else this.#life.session?.role(role);
    this.focus();
  }

  /** A session that was opened to observe only never gets input: another one takes its place, if the server opens that. */
  async #openToType(mode) {
    const { api } = this.context;
    const { namespace, name, reason } = this.place;
    const { session } = this.#life;
    try {
      const { path, query } = await opening(this.context, namespace, name, mode);
      const openingWith = (given) => ({ path, query: { ...query, ...(given && { reason: given }) } });
      const refusal = await explain(api, path, openingWith(reason).query);
      if (this.#life.session !== session || !this.isOpen) return;
      const required = demands(refusal ?? {});
      if (refusal === null) this.reopen({ mode, observes: false });
      else if (required.reason || required.approval) this.#panel.askToType(refusal, { mode, openingWith });
      else this.#tell(`You go on observing: ${refusal.message}`, ROLE_ERROR);
    } catch (problem) {
      this.#tell(`You go on observing: ${problem.message}`, ROLE_ERROR);
    }
  }

  /** Save all output that the terminal still has. */
  saveOutput() {
    if (this.#screen) save(`${this.place.name}.txt`, [this.#screen.text], "text/plain");
    this.focus();
  }

  /** Try to connect at once. */
  connectNow() {
    this.#life.reconnectNow();
  }

  /** Whether the user may power the machine on and off. */
  get maySwitch() {
    return this.#rights.switches && this.machine !== null;
  }

  /** Whether the user may begin a recording. */
  get mayRecord() {
    return this.#hasRecordings && this.#rights.records;
  }

  /** Whether there is a recording, and the user may end recordings. */
  get mayEndRecording() {
    return this.#hasRecordings && this.#rights.endsRecordings && this.isRecorded;
  }

  get #hasRecordings() {
    const { machines } = this.context;
    return machines.has(machines.parse(this.place.name).kind, "recordings");
  }

  /** Whether the user may read a part of the machine, such as `log`. */
  async mayRead(subresource) {
    const { api, machines } = this.context;
    const { kind, name } = machines.parse(this.place.name);
    return api.can("get", kind.plural, subresource, this.place.namespace, name, kind.group).catch(() => false);
  }

  /** @param {"On" | "Off"} power */
  async setPower(power) {
    const { api, machines } = this.context;
    await api.patch(machines.path(this.place.namespace, this.place.name), { spec: { power } });
    this.switched = power;
    if (power === "On") this.#screen?.terminal.scrollToBottom(); // there is what the user waits for now
  }

  /** Return the answer to what the user changes of the machine; a message says that the server is silent. */
  #acknowledged(act, answer) {
    return acknowledged(`${act} of ${this.place.name}`, answer, (text, kind) => this.#tell(text, kind));
  }

  /** Power the machine off after a question, or on. */
  async switch() {
    const name = printable(this.place.name);
    const power = this.machine?.isOff ? "On" : "Off";
    try {
      if (power === "On" || (await powerOffConfirmed(name))) {
        this.#tell(`${name} is being powered ${power === "On" ? "on" : "off"}.`, ""); // until the server says what follows
        await this.#acknowledged(`Power ${power.toLowerCase()}`, this.setPower(power));
      }
    } catch (problem) {
      this.#tell(`The power of ${name} was not changed: ${problem.message}`, "error");
    }
    this.focus();
  }

  /**
   * Begin a recording of the machine after a question; a message says then that it is recorded. If it is recorded already,
   * that can end instead.
   */
  async record() {
    const { api, machines } = this.context;
    const { namespace, name, reason } = this.place;
    const wanted = this.isRecorded ? await recordedAlready(printable(name), printable(recordedFor(this.#recordings))) : "begin";
    if (wanted === "end") return this.endRecording();
    if (wanted === null) return this.focus();
    const { kind, name: machine } = machines.parse(name);
    const consequences = "What the machine prints is kept, and of what is typed only what the machine echoes. The recording goes on until a user ends it.";
    const isSure = await confirmed(`Record ${printable(name)}?`, consequences, "Record");
    this.focus();
    if (!isSure) return;
    const body = {
      apiVersion: "console.twisted-exec.dev/v1alpha1",
      kind: "ConsoleRecording",
      metadata: { generateName: `${machine.slice(0, 200)}-` },
      spec: { machine, machineResource: qualifiedName(kind), input: "masked", ...(reason && { reason }) },
    };
    try {
      await this.#acknowledged("Recording", api.request(listPath("consolerecordings", namespace), { method: "POST", body }));
    } catch (problem) {
      this.#tell(recordingRefusal(problem, namespace), "error");
    }
  }

  /** Whether a recording of the console goes on. */
  get isRecorded() {
    return Boolean(this.#recordings?.length);
  }

  /** End the only recording that the user may end, after a question; leave the choice among others to their list. */
  async endRecording() {
    const { api, link, machines, navigate } = this.context;
    const { namespace, name } = this.place;
    try {
      const { items } = await api.request(listPath("consolerecordings", namespace));
      const mayEnd = await may(api, "patch", "consolerecordings", "", namespace);
      const mayUpdatePolicies = await may(api, "update", "consolepolicies", "", namespace);
      const { kind, name: machine } = machines.parse(name);
      const found = items
        .filter((each) => isOf(each, { name: machine, resource: qualifiedName(kind) }))
        .map((each) => ({ ...rowOf(each), mayEnd, mayUpdatePolicies }))
        .filter(isEndable);
      if (found.length > 1) return navigate(link(namespace, name, "recordings"));
      if (found.length === 0) this.#tell("There is no recording here that you may end.", "warning");
      else if (await endRecordingConfirmed(found[0])) {
        await this.#acknowledged("The end of the recording", api.patch(itemPath("consolerecordings", namespace, found[0].name), { spec: { ended: true } }));
      }
    } catch (problem) {
      this.#tell(`The recording was not ended: ${problem.message}`, "error");
    }
    this.focus();
  }

  /** Power the machine off, and on again when it has stopped, after a question. */
  async reset() {
    const name = printable(this.place.name);
    const isSure = await resetConfirmed(name);
    this.focus();
    if (!isSure) return;
    this.#tell(`${name} is being reset.`, "");
    this.isResetting = true;
    try {
      await reset(this.context, this.place, { acknowledged: (answer) => this.#acknowledged("Reset", answer) });
      this.isResetting = false; // the page learns in a moment that the power is on
    } catch (problem) {
      this.isResetting = false;
      this.#showMachine(false);
      this.#tell(`${name} was not reset: ${problem.message}`, "error");
    }
  }

  /** The user waits for an approval since then, in milliseconds; null: no longer. */
  waitsForApproval(asked) {
    if (!this.isOpen) this.#status.state("ended", asked === null ? {} : { asked });
  }

  /** Whether the user may send messages to the others at the console. */
  get mayWriteMessage() {
    const { isReadOnly, longestMessage } = this.#status;
    return this.isOpen && longestMessage > 0 && this.#rights.mayType && !isReadOnly && !this.#roles.isDenied;
  }

  /** Send a message to all viewers of the console. */
  async writeMessage() {
    const { longestMessage, viewersNow } = this.#status;
    const text = messageLine((await askForMessage(this.place.name, viewerCount(viewersNow), longestMessage)) ?? "");
    if (text && this.#life.session?.say(text)) {
      clearTimeout(this.#receiptTimer);
      this.#receiptTimer = setTimeout(() => this.#tell(NO_RECEIPT, "warning"), RECEIPT_MILLISECONDS);
    } else if (text) this.#tell("Your message was not sent: the connection is lost.", "warning");
    this.focus();
  }

  /** How many messages of other users were not in sight yet. */
  get unread() {
    return this.#messages.unread;
  }

  /** In its tab: the same. */
  get unreadMark() {
    return this.#messages.mark;
  }

  /** The user reads its messages, if it is in sight. */
  read() {
    if (!document.hidden && this.element.checkVisibility()) this.#messages.read();
  }

  /** Whether the user reads who joins and leaves. */
  get tellsCompany() {
    return this.context.preferences.get("company", true);
  }

  toggleCompany() {
    this.context.preferences.set("company", !this.tellsCompany);
    this.#tell(this.tellsCompany ? "You read who joins and leaves." : "You do not read who joins and leaves.", "");
    this.focus();
  }

  /** Tell who has joined or left. */
  #tellCompany(text) {
    if (this.tellsCompany) this.#tell(sentence(text), "");
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

  changeFontSize(steps) {
    this.#screen?.changeFontSize(steps);
    this.focus();
  }

  toggleScreenReader() {
    const on = this.#screen?.toggleScreenReader();
    this.#tell(on ? "Screen reader mode is on: output is read aloud." : "Screen reader mode is off.", "");
    this.focus();
  }

  /** Return the request that opens the console with a reason. */
  openingWith(reason) {
    const { path, query } = this.#rights;
    return { path, query: { ...query, ...(reason && { reason }) } };
  }

  /** Open the session again, with another reason or mode. */
  reopen(changes = {}) {
    Object.assign(this.place, changes);
    this.#on.keep();
    forget(this.context, this.place);
    if (this.#panel.takesFocus) this.#panel.hide(); // the answer of the server may take long
    this.#life.open().catch((problem) => this.#tell(problem.message, "error"));
    this.#stateChanged("connecting", {});
    if (this.isActive) this.#screen?.focus();
  }

  /** Show what the approver has said, before other messages about the session that begins. */
  tellApproval(text) {
    this.#approval = sentence(text);
    setTimeout(() => (this.#approval = ""), MESSAGE_MILLISECONDS);
    this.#tell("", "");
  }

  // Parts that the user sees.

  /** Whether commands for the writer make sense. */
  get drives() {
    return this.isOpen && !this.#roles.isObserver;
  }

  get isObserver() {
    return this.#roles.isObserver;
  }

  /** The name of another user who types, as far as an observer knows; empty if there is none. */
  get writer() {
    const { isObserver, isOwn, writer } = this.#roles;
    return isObserver && !isOwn && writer !== null ? writer || this.#status.writer : "";
  }

  /** The address of the machine's log; empty if the server has none. */
  get logLink() {
    const { machines, link } = this.context;
    const { namespace, name } = this.place;
    return machines.has(machines.parse(name).kind, "logs") ? link(namespace, name, "logs") : "";
  }

  get mayTakeOver() {
    if (!this.isOpen) return false;
    if (this.#status.isReadOnly) return this.#rights.mayType;
    const isFree = (this.#roles.writer === null || this.#roles.isOwn) && this.#rights.drives;
    return this.#rights.takesOver || isFree;
  }

  #showRole() {
    const { isUnknown, isObserver, isDenied, withheld } = this.#roles;
    this.#status.role(this.#roles, this.#rights.mayType);
    this.element.classList.toggle("unheard", isObserver || withheld !== "");
    this.#keys.element.hidden = isObserver || !this.#rights.mayType;
    const { isReadOnly } = this.#status;
    const typeHere = this.writer ? "Take over" : "Type here";
    this.#role.hidden = !this.isOpen || isUnknown || isDenied || (isReadOnly && !this.mayTakeOver);
    this.#role.textContent = isObserver ? typeHere : "Observe only";
    this.#role.classList.toggle("primary", isObserver);
    this.#role.disabled = isObserver && !this.mayTakeOver;
    this.#role.title = isReadOnly ? "This console was opened to observe only: open it to type." : "";
    if (this.#role.disabled) {
      this.#role.title = "To take this console from its writer, ask an administrator for the role console-operator.";
    }
  }

  /**
   * Show a message over the terminal, and let screen readers say it. Warnings stay until they are dismissed, or another one
   * follows; what is no warning is shown below one, and goes alone.
   *
   * The newest one before the first screen waits for that; the panel shows a warning meanwhile.
   *
   * @param {string} text
   * @param {string} kind "warning", "error", ROLE_WARNING, ROLE_ERROR, or empty
   */
  #tell(text, kind) {
    if (this.#panel.isConnecting) {
      if (kind) this.#panel.warn(text);
      if (kind || !this.#held?.kind) this.#held = { text, kind };
      return;
    }
    this.#held = null;
    const shown = printable(`${this.#approval} ${text}`.trim());
    clearTimeout(this.#messageTimer);
    if (!kind && this.#isWarned) {
      this.#note.textContent = shown;
      this.#message.firstElementChild?.append(this.#note);
    } else {
      fill(
        this.#message,
        h("span", {}, h("span", {}, shown)),
        button("×", () => this.#hideMessage(), { class: "quiet icon", "aria-label": "Dismiss this message" }),
      );
      this.#message.className = `message ${kind}`;
      // A message that stays is read later.
      this.#message.setAttribute("data-time", kind ? minute(Date.now(), Date.now()) : "");
      this.#message.hidden = false;
    }
    this.#placeMessages();
    if (!kind) this.#messageTimer = setTimeout(() => (this.#isWarned ? this.#endNote() : this.#endMessage()), MESSAGE_MILLISECONDS);
    this.#announce(text || this.#approval);
  }

  /** Whether a message is shown that stays until it is dismissed. */
  get #isWarned() {
    return !this.#message.hidden && this.#message.matches(".warning, .error");
  }

  /** The message that is shown; empty if there is none. */
  get #told() {
    return (!this.#message.hidden && this.#message.firstElementChild?.firstElementChild?.textContent) || "";
  }

  /** Where there is room below the cursor, messages and the panel cover no output; elsewhere they cover the oldest. */
  #placeMessages() {
    const shown = [this.#status.outage, this.#message, this.#messages.element, this.#panel.element].filter((each) => each.offsetHeight);
    const height = shown.reduce((sum, each) => sum + each.offsetHeight + GAP_PIXELS, 0);
    const free = this.#free * this.#terminal.clientHeight;
    for (const each of shown) each.classList.toggle("below", free > height);
    const { outage } = this.#status;
    outage.style.setProperty("--free", `${free - (outage.offsetHeight ? height - outage.offsetHeight - GAP_PIXELS : 0)}px`);
  }

  /** The output in sight is old, or no longer: dim it, and mark the tab and the window. */
  #turnAway(isAway) {
    this.isAway = isAway;
    this.awayMark.hidden = !isAway;
    this.element.classList.toggle("away", isAway);
    this.#placeMessages();
    this.#on.news();
  }

  /** Tell that output was left out, and where the user may read it; another warning stays: a mark in the terminal says the same. */
  async #tellSkipped(what) {
    const isWarned = this.#isWarned;
    this.#tell(`${what[0].toUpperCase()}${what.slice(1)} was skipped.`, isWarned ? "" : "warning");
    const told = this.#held ? null : isWarned ? this.#note : this.#message.firstElementChild;
    const mayRead = told && this.logLink !== "" && (await this.mayRead("log"));
    if (mayRead) told.append(" ", h("a", { href: this.logLink }, "The log has all that was stored"), ".");
  }

  /** Tell what is in sight already only once: a user may press many keys. */
  #tellOnce(text) {
    if (!this.#isTold(text)) this.#tell(text, "");
  }

  #isTold(text) {
    return [this.#told, this.#note.isConnected && this.#note.textContent].includes(printable(text));
  }

  /** Take a message back that is no longer true. */
  #takeBack(text) {
    if (!text) return;
    if (this.#held?.text === text) this.#held = null;
    if (this.#note.textContent === printable(text)) this.#endNote();
    if (this.#told === printable(text)) this.#endMessage();
  }

  /** Tell a fact, unless the server says to a page that was loaded again what the user has closed. */
  #tellFact(subject, text, kind) {
    const isFirst = !(subject in this.#facts);
    this.#facts[subject] = text;
    if (!isFirst || this.place.closed?.[subject] !== text) this.#tell(text, kind);
  }

  #endNote() {
    this.#note.remove();
    this.#note.textContent = "";
    this.#placeMessages();
    this.#approval = "";
  }

  #endMessage() {
    this.#message.hidden = true;
    this.#endNote();
  }

  #hideMessage() {
    this.#endMessage();
    this.place.closed = { ...this.#facts };
    this.#on.keep();
    this.focus();
  }
}
