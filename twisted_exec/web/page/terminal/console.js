/** One console in the page: its session, its terminal and the bars around it. */

import { confirmed } from "../dialogs.js";
import { button, fill, h, holdStill, printable } from "../dom.js";
import { machineTitle, partLinks } from "../frame.js";
import { may } from "../objects.js";
import { isCount } from "../session/channel.js";
import { STOPPED } from "../session/session.js";
import { save } from "../views/parts.js";
import { Attachment, forget, savedKeys, savedSession } from "./attachment.js";
import { Attendance } from "./attendance.js";
import { Clipboard } from "./clipboard.js";
import { NO_RECEIPT, RECEIPT_MILLISECONDS, isPassedOn, messageLine } from "./company.js";
import { askForMessage, chooseSysrq } from "./dialogs.js";
import { buildFinder } from "./finder.js";
import { KeyBar } from "./key_bar.js";
import { Lifecycle } from "./lifecycle.js";
import { MachineActs } from "./machine_acts.js";
import { MachineWatch, stateOf } from "./machine_watch.js";
import { Marks } from "./marks.js";
import { MessageBox } from "./message_box.js";
import { MessageList, keptMessages } from "./message_list.js";
import { Panel } from "./panel.js";
import { explain, opening, untilOpenable } from "./rights.js";
import { Screen, load } from "./screen.js";
import { StatusLine } from "./status_line.js";
import { MACHINE_DELETED, MACHINE_IS_OFF, NOT_STARTED, REVOKED, SESSION_IS_NEW, SHUTDOWN, anewText, announcedEnd, demands, isMachineMissing, isMachineStopped, largerText, lossLine, readOnlyText, sentence, stopAdvice, viewerCount } from "./texts.js";

const GAP_PIXELS = 7; // between messages
const PENDING = "Pending";
const ASK_FOR_TAKEOVER = "To take this console from its writer, ask an administrator for the role console-operator.";

let hasToldKeys = false;

export class Console {
  #on;
  #started; // resolves when the first session begins to connect, or cannot
  #life = new Lifecycle({
    ask: () => this.#ask(),
    attach: (_rights, changed) => this.#attach(changed),
    state: (name, detail) => this.#stateChanged(name, detail),
    opened: () => this.#opened(),
    lost: (detail) => this.#lost(detail),
    resumed: (detail) => this.#resumed(detail),
    ended: (detail) => this.#ended(detail),
    unauthorized: () => this.context.api.dispatchEvent(new Event("unauthorized")),
    reopen: (detail) => this.#follow(detail),
    missed: () => this.#tellLost(),
    full: () => this.#messageBox.tell("The connection is slow: this key was not accepted.", "warning"),
    readOnly: () => this.#messageBox.tellOnce(readOnlyText({ mayTakeOver: this.mayTakeOver, writer: this.writer })),
  });
  #listeners = { authorized: () => this.#life.authorized(), reached: () => this.#life.wake(), "another user": () => this.#forgetMessages() };
  /** The page that follows a reload tells of the keys that end with this one. */
  #left = () => {
    this.place.lost = this.#life.unkept;
    this.#on.keep();
  };
  acts;
  clipboard = new Clipboard(this, {
    type: (bytes) => this.#life.typed(bytes),
    tell: (text, kind) => this.#messageBox.tell(text, kind),
  });
  // Of the present session.
  /** @type {any} */
  #rights = { drives: true, takesOver: false, opens: true, mayType: true, switches: false, records: false, endsRecordings: false };
  /** @type {{size: string, text: string, message?: import("./message_box.js").Message}} */
  #larger = { size: "", text: "" }; // of the window of another user, and what the user has read about it
  /** @type {number | undefined} when the user or the page has opened a session in the used terminal */
  #openedAgain;
  /** @type {MachineWatch | null} */
  #machine = null;
  /** Whether the page was loaded again while it was open. */
  isRestored;
  /** Whether the terminal has shown nothing yet. */
  isEmpty = true;
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
  #overlays = h("div", { class: "overlays" });
  #finder;
  #found;
  #messageBox;
  #attendance;
  #messages;
  #receiptTimer;
  /** @type {import("./message_box.js").Message | null} */
  #noReceipt = null; // the warning that a message of the user may not have been sent
  #cameIntoSight = () => {};
  #draft = ""; // of a message, until the server has passed it on
  #drawQuestion = () => {}; // while the user is asked for it
  /** Whether the output that is in sight is old. */
  isAway = false;
  #free = 0; // the part of the terminal below the cursor
  #role;
  #number = h("span", { class: "number dim" });
  marks = new Marks();
  #keys;
  #panel;
  #status;
  #newest = button("↓", () => this.#screen?.terminal.scrollToBottom(), { class: "icon newest", hidden: true, "aria-label": "Newest output", title: "Newest output" });

  /**
   * @param {object} context of the page
   * @param {object} place `{namespace, name, mode, reason, size, observes, closed, lost}`; kept over reloads by the owner.
   *     `observes`: "chosen" by a user who asked for input, "told" by the server, or false; `closed`: the facts whose messages the user has closed; `lost`:
   *     the losses that have ended with the page before a reload
   * @param {object} on `key(event)`: false keeps a key from the machine; `menu()`; `close()`: it is to be closed;
   *     `active()`: it has the focus; `isActive()`: the user sees it; `keep()`: the place has changed;
   *     `news()`: whether its output is old, or the number of messages that were not in sight, has changed
   */
  constructor(context, place, on) {
    this.context = context;
    this.place = place;
    this.element = h("section", { class: "console", "aria-label": `Console of ${printable(place.name)}` });
    this.#on = on;
    this.isRestored = savedSession(context, place) !== null;
    this.#messages = new MessageList(keptMessages(context, place), { news: () => on.news(), moved: () => this.#placeMessages(), focus: () => this.focus() });
    this.acts = new MachineActs(context, place, {
      known: () => ({ machine: this.machine, recordings: this.#attendance.recordings, rights: this.#rights, others: printable(this.#others) }),
      tell: (text, kind) => this.#messageBox.tell(text, kind),
      takeBack: (message) => this.#messageBox.takeBack(message),
      focus: () => this.focus(),
      poweredOn: () => this.#screen?.terminal.scrollToBottom(), // there is what the user waits for now
      notReset: () => this.#showMachine(false),
    });
    for (const [event, listener] of Object.entries(this.#listeners)) context.api.addEventListener(event, listener);
    addEventListener("pagehide", this.#left);
    this.#build();
    this.#started = this.#start();
    this.#life.restore(place.lost ?? []);
    delete place.lost;
    this.#tellLost();
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

  /** Whether what happens by itself may take the focus: not out of a field, or from a button, that the user has chosen. */
  get mayTakeFocus() {
    const { activeElement: chosen } = document;
    const isElsewhere = chosen !== null && chosen !== document.body && !this.#terminal.contains(chosen) && !this.#panel.element.contains(chosen);
    return this.isActive && !(isElsewhere && chosen.checkVisibility());
  }

  /** Have the focus until a pause of its user, who may be typing: then the terminal has it. */
  holdStill() {
    this.#terminal.focus();
  }

  get #holdsStill() {
    return document.activeElement === this.#terminal;
  }

  focus() {
    if (this.#panel.takesFocus) this.#panel.focus();
    else this.#screen?.focus();
  }

  /** End the session and forget it. */
  close() {
    for (const [event, listener] of Object.entries(this.#listeners)) this.context.api.removeEventListener(event, listener);
    removeEventListener("pagehide", this.#left);
    this.#life.close();
    this.acts.stop();
    forget(this.context, this.place);
    keptMessages(this.context, this.place).set(null);
    this.#status.stop();
    this.#panel.hide();
    this.#panel.release();
    this.#leaveMachine();
    this.#messageBox.stop();
    clearTimeout(this.#receiptTimer);
    this.#screen?.close();
    this.element.remove();
  }

  /** Whether the page can learn nothing about the machine. */
  get isBlind() {
    return this.#machine?.isBlind === true;
  }

  /** The user has opened it by its name once more. */
  comeBack() {
    this.#panel.comeBack();
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
      this.marks.health,
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
    this.#panel = new Panel(this);
    this.#messageBox = new MessageBox(this.place, this.#panel, {
      moved: () => this.#placeMessages(),
      announce: (text) => this.#announce(text),
      closed: (hadKeys) => {
        if (hadKeys) this.#life.forgetLost();
        this.#on.keep();
        this.focus();
      },
    });
    this.#attendance = new Attendance(this.#messageBox, () => this.context.user);
    this.#attendance.begin(this.place.mode === "observe" || this.place.observes);
    this.#keys = new KeyBar({
      type: (text) => this.type(text),
      isApplication: () => this.#screen?.terminal.modes.applicationCursorKeysMode ?? false,
    });
    this.#status = new StatusLine(this.context, this.place, {
      reconnect: () => this.connectNow(),
      powerOn: () => this.acts.switch(),
      waiting: () => this.#life.waiting + (this.#dropsKeys ? this.#former.unconfirmed.unsent : 0) + this.#savedKeys,
      news: (text) => this.#tellCompany(text),
      messages: () => this.#messages.last,
      away: (isAway) => this.#turnAway(isAway),
    });
    fill(
      this.element,
      head,
      this.marks.banner,
      h(
        "div",
        { class: "terminal-frame" },
        this.#terminal,
        this.#newest,
        // Over the terminal: another size of it would be another size for the machine.
        fill(this.#overlays, this.#finder, this.#status.outage, this.#messageBox.element, this.#messages.element, this.#panel.element),
      ),
      h("div", { class: "foot" }, this.#keys.element, this.#status.element),
    );
    new ResizeObserver(() => this.#placeMessages()).observe(this.#panel.element); // its texts change
    this.element.addEventListener("focusin", () => this.#on.active());
    this.element.addEventListener("missed", () => this.#life.missed(1));
    // The terminal keeps the focus, and with it the keyboard of a phone, and the place of what is pressed.
    this.element.addEventListener("mousedown", (event) => {
      this.#on.active();
      if (/** @type {Element} */ (event.target).closest("button, a")) event.preventDefault();
    });
    holdStill(this.#terminal, this.#terminal, () => this.focus());
    this.#terminal.addEventListener("blur", () => this.#life.settle());
    // Before xterm.js: it would send the text at once.
    this.#terminal.addEventListener("paste", (event) => this.#holdsStill || this.clipboard.pasted(event), { capture: true });
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
      if (this.isActive && (this.mayTakeFocus || !this.element.contains(document.activeElement))) this.#screen.focus();
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
    // The session of the page before a reload waits for the machine; the start of the machine gives nobody a right.
    if (!rights.opens || savedSession(this.context, this.place)) return rights;
    if (machine.state === SHUTDOWN) return { ending: MACHINE_IS_OFF };
    // No host has it, or its host says what is in the way: there is nothing to connect to.
    if (machine.state === PENDING && (!machine.hasPool || machine.problem)) return { ending: { reason: NOT_STARTED, message: "This machine does not run yet.", isSeen: true } };
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
        uncertain: (dropped) => this.#tellDropped(dropped),
        skipped: (what) => this.#tellSkipped(what),
        state: changed,
      },
    });
    this.#attendance.begin(attachment.isReadOnly || this.place.observes);
    this.#status.begin(attachment.isReadOnly);
    return attachment;
  }

  // News of the session.

  get #former() {
    return this.#attendance.former;
  }

  #stateChanged(name, detail) {
    if (detail.resumable === false) this.#roles.settle();
    const isStopped = name === "connecting" && this.#former?.reason === STOPPED;
    const kept = name === "connecting" && savedSession(this.context, this.place);
    const saved = kept && { ...kept, sent: savedKeys(kept).sent };
    this.#status.state(name, { ...detail, ...(name === "connecting" && { since: this.#openedAgain }), ...(isStopped && { reason: STOPPED, advice: stopAdvice(this.#former, detail) }), drops: this.#dropsKeys, saved }, this.#life.session?.id ?? "");
    this.#showRole();
    this.#drawQuestion();
    this.marks.showEnd(name === "ended");
    if (name === "ended") return;
    if (this.isEmpty && detail.resumable !== false) this.#panel.showConnecting(name, detail);
    else this.#shown();
  }

  /** There is output, or there will be none: the terminal takes the place of the panel. */
  #shown() {
    if (!this.isEmpty) return;
    this.isEmpty = false;
    this.#panel.hide(true);
    this.#messageBox.release();
  }

  #opened() {
    this.#panel.release();
    this.#life.beginAnew(this.#dropsKeys);
    if (!this.#holdsStill) this.#life.settle();
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

  /** How many keys wait in the session of the page before a reload, until this page goes on with it. */
  get #savedKeys() {
    return this.#life.session ? 0 : savedKeys(savedSession(this.context, this.place)).keys;
  }

  /** Whether keys that wait for the next session are dropped: its machine may be at another prompt, or lack the keys before. */
  get #dropsKeys() {
    const { reason, unconfirmed: { sent, unsent } = { sent: 0, unsent: 0 } } = this.#former ?? {};
    return Boolean(reason) && (reason !== REVOKED || sent + unsent > 0);
  }

  #lost({ restarts = "" }) {
    this.#announce(`${printable(restarts) || "connection lost"}, reconnecting`);
    this.#showRole();
  }

  #resumed({ anew }) {
    this.#announce("reconnected");
    if (anew) this.#tellAnew(anew);
    this.#reached();
    this.#showRole();
  }

  /** The server had lost the session, without a word. */
  #tellAnew(keys) {
    if (keys.sent + keys.unsent) this.#tellDropped({ ...keys, cause: SESSION_IS_NEW });
    else this.#messageBox.tell(SESSION_IS_NEW, "");
  }

  /** The server answers; not earlier than the first prompt, which is what the user waits for. */
  #reached() {
    this.#watchMachine();
    this.context.api.dispatchEvent(new Event("reached"));
  }

  /** A new session takes the place of one that has ended. */
  #follow(ending) {
    this.#attendance.follow(ending);
    this.#tellLost();
    this.reopen({}, true);
    const text = anewText(ending);
    // Over a terminal that has shown something the outage says the same.
    if (ending.reason === STOPPED && !this.#panel.isConnecting) this.#announce(text);
    else this.#attendance.tellOpening(text, ending.reason === STOPPED ? "warning" : ""); // until its user has started it
  }

  #ended(detail) {
    this.#attendance.leaveFormer();
    if (detail.reason === MACHINE_DELETED) this.#machine?.deleted();
    this.#machine?.renew();
    this.#announce(announcedEnd(detail, { place: this.place, machine: this.machine, user: this.context.user }));
    this.#messageBox.endSession(); // the panel says what is true now
    this.#panel.show(detail, this.#rights, this.#status.isReadOnly);
    if (detail.hadSession && !isMachineStopped(detail) && !isMachineMissing(detail)) this.decided(); // the list of machines says those
    this.#tellLost();
    this.#messageBox.release();
    if (this.#panel.followsMachine) this.#watchMachine();
    else this.#leaveMachine();
    // The watch may not have answered yet, and may never in an outage.
    if (isMachineMissing(detail) && !this.#machine?.machine) this.#machine?.deleted();
    this.#showRole();
  }

  /** Say which keys the machine may not have; of an end behind which a new session opens, when that has opened. */
  #tellLost() {
    const { losses, settledLosses } = this.#life;
    this.#messageBox.tellKeys((this.#former || this.isObserver ? settledLosses : losses).map(lossLine));
  }

  /** Say which keys were dropped in a session that goes on. */
  #tellDropped(keys) {
    this.#life.lost(keys);
    this.#tellLost();
  }

  #announce(text) {
    this.context.announce(`${this.place.name}: ${text}`);
  }

  #watchMachine() {
    const watch = (this.#machine ??= new MachineWatch(this.context, this.place, (hasStarted) => {
      this.#know(watch.machine, watch.isGone);
      this.marks.showHealth(watch.machine?.health, this.logLink);
      this.#showMachine(hasStarted);
    }));
    this.#followMachine(watch, false);
  }

  /** Without a session the page learns only by this that the server does not answer; a machine that is gone waits for nothing. */
  #followMachine({ machine, isGone, outage }, hasStarted) {
    if (this.hasEnded) this.#status.quiet(outage && !isGone ? outage.asOf : null);
    this.#panel.follow(machine, hasStarted, isGone, outage);
  }

  #showMachine(hasStarted) {
    if (!this.#machine) return;
    this.marks.showMachine(this.#machine.machine);
    this.#status.machine(this.#machine.machine, this.acts.maySwitch && !this.acts.isResetting);
    this.#followMachine(this.#machine, hasStarted);
  }

  #know(machine, isGone = false) {
    this.machine = machine;
    this.acts.follow(machine, isGone);
    this.marks.showBanner(machine?.banner ?? "");
  }

  #leaveMachine() {
    this.marks.showHealth(null, "");
    this.marks.showMachine(null);
    this.#machine?.stop();
    this.#machine = null;
    this.#status.machine(null);
  }

  #notice(mark) {
    if (mark.Kind === "banner") return; // shown above the terminal
    if (mark.Kind === "interrupted") {
      this.#machine?.renew();
      this.#life.machineEnded();
      this.#tellLost(); // not of those that its user knew of while the machine ran
      if (this.acts.isResetting) return; // the user knows better why
    }
    if (mark.Kind === "restarted") {
      this.#machine?.renew();
      this.#life.machineStarted();
    }
    if (isCount(mark.Keys) && mark.Keys) return this.#tellDropped({ sent: 0, unsent: mark.Keys, text: sentence(mark.Notice) });
    if (mark.Kind === "said") {
      this.#messages.add(mark.Notice);
      return this.read();
    }
    if (mark.Kind === "receipt") {
      clearTimeout(this.#receiptTimer);
      this.#messageBox.takeBack(this.#noReceipt);
      if (isPassedOn(mark.Notice)) this.#draft = "";
      return this.#messages.addOwn(mark.Notice);
    }
    this.#status.heard(mark.Notice);
    this.#attendance.read(mark);
    if (!this.#roles.isObserver) this.#screen?.drawnForOwn();
    if (mark.Role && !this.#status.isReadOnly) this.place.observes = this.#roles.isObserver && (this.place.observes || "told");
    this.#on.keep();
    this.#showRole();
  }

  #viewersChanged(viewers) {
    this.#status.viewers(viewers);
    this.#drawQuestion();
    const isNew = this.#former !== null;
    this.#attendance.viewersChanged(viewers);
    if (isNew) this.#tellLost();
    this.#showRole();
    this.#compareSizes();
  }

  /** Give what a program draws for another user the window that it draws for, and tell if that is the larger one. */
  #compareSizes() {
    if (!this.#screen) return;
    const { size, writer } = this.#status.viewersNow;
    const isForOther = size && this.#roles.isObserver && this.#screen.isDrawn(size[1]);
    this.#screen.drawnFor(isForOther ? size : null);
    const text = isForOther ? largerText(writer, size, this.#screen.room) : "";
    const before = this.#larger;
    if (text === before.text) return;
    this.#larger = { size: text && size.join("x"), text };
    this.#status.larger(this.#larger);
    // A user who makes room has read it, and the line below still has the size.
    if (text && this.#larger.size !== before.size) this.#larger.message = this.#messageBox.tell(text, "");
    else this.#messageBox.takeBack(before.message);
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
    this.#placeMessages();
  }

  endFind() {
    this.#finder.hidden = true;
    this.#placeMessages();
    this.#screen?.endFind();
    this.focus();
  }

  /** Take over, after one question if another user types, or become an observer. */
  async changeRole(role = this.#roles.isObserver ? "drive" : "observe") {
    const { writer } = this;
    this.#attendance.changesRole();
    if (role === "drive" && writer) {
      const name = printable(writer);
      const isSure = await confirmed(`Take over ${printable(this.place.name)}?`, `${name} types at this console. If you take it over, ${name} only observes.`, "Take over");
      if (!isSure) return this.focus();
    }
    this.#messageBox.leaveRole();
    if (this.#status.isReadOnly && role === "drive") await this.#openToType(writer && this.#rights.takesOver ? "takeover" : "drive");
    else {
      if (role === "observe") this.place.observes = "chosen";
      this.#life.session?.role(role);
    }
    this.focus();
  }

  /** Become an observer, as a link asks for; a console without a session opens as one. */
  async observe() {
    await this.#started; // before that there is no session to ask
    if (!this.#screen || this.#life.isClosed) return;
    if (!this.#life.session) this.reopen({ mode: "observe" });
    else if (!this.isObserver) this.changeRole("observe");
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
      else this.#messageBox.show({ refusal: `You go on observing: ${refusal.message}`, kind: "error" });
    } catch (problem) {
      this.#messageBox.show({ refusal: `You go on observing: ${problem.message}`, kind: "error" });
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

  /** Whether the user may read a part of the machine, such as `log`; of a machine that is deleted, its log. */
  async mayRead(subresource, isDeleted = false) {
    const { api, machines } = this.context;
    const { namespace } = this.place;
    if (isDeleted) {
      const answers = [may(api, "list", "deletedconsoles", "", namespace), may(api, "get", "deletedconsoles", "log", namespace)];
      return (await Promise.all(answers)).every(Boolean);
    }
    const { kind, name } = machines.parse(this.place.name);
    return may(api, "get", kind.plural, subresource, namespace, name, kind.group);
  }

  /** The user waits for an approval since then, in milliseconds; null: no longer. */
  waitsForApproval(asked) {
    if (!this.isOpen) this.#status.state("ended", asked === null ? {} : { asked });
  }

  /** Whether the user may send messages to the others at the console, also from a session that only observes. */
  get mayWriteMessage() {
    const { longestMessage } = this.#status;
    return this.isOpen && longestMessage > 0 && this.#rights.mayType && !this.#roles.isDenied;
  }

  /** Who else is at the console, as a sentence; empty if nobody is, or if it is unknown. */
  get #others() {
    return this.isOpen ? this.#status.others : "";
  }

  /** Whether the line to the machine carries a BREAK; true while that is unknown. */
  get hasBreak() {
    return this.#status.viewersNow.hasBreak !== false;
  }

  /** Send a message to all viewers of the console. */
  async writeMessage() {
    const { answer, draw } = askForMessage(this.place.name, this.#draft, () => this.#audience);
    this.#drawQuestion = draw;
    const { text, isSent } = await answer;
    this.#drawQuestion = () => {};
    this.#draft = text;
    if (isSent && this.#life.session?.say(messageLine(text))) {
      clearTimeout(this.#receiptTimer);
      this.#receiptTimer = setTimeout(() => (this.#noReceipt = this.#messageBox.tell(NO_RECEIPT, "warning")), RECEIPT_MILLISECONDS);
    } else if (isSent) this.#messageBox.tell("Your message was not sent: the connection is lost.", "warning");
    this.focus();
  }

  /** Whom a message reaches, as {@link askForMessage} needs it. */
  get #audience() {
    const { longestMessage, viewersNow } = this.#status;
    const isConnected = ["open", "resumed"].includes(this.#life.session?.state ?? "");
    const lacks = isConnected ? viewersNow.count <= 1 && "Nobody else is at this console now" : "The connection is lost";
    return { viewers: viewerCount(viewersNow), longest: longestMessage, hindrance: lacks ? `${lacks}: the message can be sent later.` : "" };
  }

  #forgetMessages() {
    this.#messages.forget();
    this.#draft = "";
  }

  /** How many messages and news of the session were not in sight yet. */
  get unread() {
    return this.#messages.unread;
  }

  /** In its tab: the same. */
  get unreadMark() {
    return this.#messages.mark;
  }

  /** The user reads its messages, if it is in sight. */
  read() {
    if (!this.isInSight) return;
    this.#messages.read();
    this.#cameIntoSight();
  }

  get isInSight() {
    return !document.hidden && this.element.checkVisibility();
  }

  /** Resolve when the user sees it. */
  inSight() {
    return this.isInSight ? Promise.resolve() : new Promise((resolve) => (this.#cameIntoSight = () => resolve(undefined)));
  }

  /** Something was decided about the session: a user who does not see the console has to look. */
  decided() {
    if (!this.isInSight) this.#messages.addNews();
  }

  /** Whether the user reads who joins and leaves. */
  get tellsCompany() {
    return this.context.preferences.get("company", true);
  }

  toggleCompany() {
    this.context.preferences.set("company", !this.tellsCompany);
    this.#messageBox.tell(this.tellsCompany ? "You are told who joins and leaves." : "You are no longer told who joins and leaves.", "");
    this.focus();
  }

  /** Tell who has joined or left. */
  #tellCompany(text) {
    if (this.tellsCompany) this.#messageBox.tell(sentence(text), "");
  }

  sendBreak() {
    this.#life.session?.sendBreak();
    this.#messageBox.tell("BREAK sent.", "");
    this.focus();
  }

  async sysrq() {
    const letter = await chooseSysrq(this.place.name);
    if (letter) {
      this.#life.session?.sysrq(letter);
      this.#messageBox.tell(`SysRq ${letter} sent.`, "");
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
    this.#messageBox.tell(on ? "Screen reader mode is on: output is read aloud." : "Screen reader mode is off.", "");
    this.focus();
  }

  /** Return the request that opens the console with a reason. */
  openingWith(reason) {
    const { path, query } = this.#rights;
    return { path, query: { ...query, ...(reason && { reason }) } };
  }

  /** Resolve when the user may open the console, which was refused; nobody asks for it while the page is hidden. */
  untilOpenable(isWanted, signal) {
    return untilOpenable(this.context.api, () => this.openingWith(this.place.reason), () => !document.hidden && isWanted(), signal);
  }

  /**
   * Open the session again, with another reason or mode.
   *
   * @param {object} changes of the place
   * @param {boolean} [isSudden] it opens by itself: its user may be typing
   */
  reopen(changes = {}, isSudden = false) {
    Object.assign(this.place, changes);
    this.#on.keep();
    forget(this.context, this.place);
    this.#openedAgain = !this.isEmpty || this.#former?.reason === STOPPED ? Date.now() : undefined;
    if (this.#panel.takesFocus) this.#panel.hide(isSudden); // the answer of the server may take long
    this.#life.open().catch((problem) => this.#messageBox.tell(problem.message, "error"));
    this.#stateChanged("connecting", {});
    if (!isSudden && this.isActive) this.#screen?.focus();
    if (isSudden && this.mayTakeFocus && !this.#terminal.contains(document.activeElement)) this.holdStill();
  }

  /** Show what the approver has said, before other messages about the session that begins. */
  tellApproval(text) {
    this.#messageBox.tellApproval(text);
  }

  // Parts that the user sees.

  get #roles() {
    return this.#attendance.roles;
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
    const isRefused = this.isOpen && isObserver && !isDenied && !this.mayTakeOver;
    this.#status.role(this.#roles, this.#rights.mayType, isRefused ? ASK_FOR_TAKEOVER : "");
    this.element.classList.toggle("unheard", isObserver || withheld !== "");
    this.#keys.element.hidden = isObserver || !this.#rights.mayType;
    const { isReadOnly } = this.#status;
    const typeHere = this.writer ? "Take over" : "Type here";
    this.#role.hidden = !this.isOpen || isUnknown || isDenied || (isReadOnly && !this.mayTakeOver);
    this.#role.textContent = isObserver ? typeHere : "Observe only";
    this.#role.classList.toggle("primary", isObserver);
    this.#role.disabled = isObserver && !this.mayTakeOver;
    this.#role.title = isReadOnly ? "This console was opened to observe only: open it to type." : "";
    if (this.#role.disabled) this.#role.title = ASK_FOR_TAKEOVER;
  }

  /** Where there is room below the cursor, messages, the panel and the search cover no output; elsewhere they cover the oldest. */
  #placeMessages() {
    const { outage } = this.#status;
    const messages = [outage, this.#messages.element, this.#messageBox.element];
    const scrolled = messages.map((each) => each.scrollTop);
    this.#confine(messages, 0);
    const shown = [...messages, this.#panel.element].filter((each) => each.offsetHeight);
    const height = shown.reduce((sum, each) => sum + each.offsetHeight + GAP_PIXELS, 0);
    const free = this.#free * this.#terminal.clientHeight;
    for (const each of shown) each.classList.toggle("below", free > height);
    // A search that leads to earlier output leaves its buttons where they are.
    if (this.#newest.hidden) this.#finder.classList.toggle("below", free > height + this.#finder.offsetHeight + GAP_PIXELS);
    outage.style.setProperty("--spare", `${Math.max(0, free - height)}px`);
    const isForPrompt = height > 0 && free <= height && this.#panel.element.hidden && this.#finder.hidden;
    const room = isForPrompt ? this.#screen?.roomAround(this.#overlays) : null;
    if (room && room.above < height) this.#confine(messages, Math.max(room.above, room.below), room.above < room.below);
    messages.forEach((each, at) => (each.scrollTop = scrolled[at]));
  }

  /**
   * Keep messages from the row of the cursor: the first one has the room above or below it, and the others wait behind it.
   *
   * @param {HTMLElement[]} messages
   * @param {number} height in pixels; 0: no more than all of the terminal
   */
  #confine(messages, height, isBelow = false) {
    const { style, classList } = this.#overlays;
    classList.toggle("confined", height > 0);
    style.height = height ? `${height}px` : "";
    style.top = isBelow ? "auto" : "";
    const [first, ...others] = height ? messages.filter((each) => each.offsetHeight) : [];
    for (const each of messages) {
      each.classList.toggle("behind", others.includes(each));
      each.dataset.more = each === first && others.length ? `${others.length} more` : "";
    }
  }

  /** The output in sight is old, or no longer: dim it, and mark the tab and the window. */
  #turnAway(isAway) {
    this.isAway = isAway;
    this.marks.showAway(isAway);
    this.element.classList.toggle("away", isAway);
    this.#placeMessages();
    this.#on.news();
  }

  /** Tell that output was left out, and where the user may read it; another warning stays: a mark in the terminal says the same. */
  async #tellSkipped(what) {
    const text = `${what[0].toUpperCase()}${what.slice(1)} was skipped.`;
    const message = this.#messageBox.tell(text, this.#messageBox.isWarned ? "" : "warning");
    if (this.logLink !== "" && (await this.mayRead("log"))) this.#messageBox.addLog(message, this.logLink);
  }
}
