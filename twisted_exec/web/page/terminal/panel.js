/** The panel over a terminal without a session: how far it is, why it has ended, the state of the machine; and how to open it again. */

import { acknowledged } from "../acts.js";
import { causesOf, withoutRemedy } from "../details.js";
import { button, fill, h, holdStill, printable } from "../dom.js";
import { may } from "../objects.js";
import { Claim } from "../session/claim.js";
import { duration } from "../times.js";
import { asOfText, askFor, copyButton, isSilence, outageNotice, silenceText } from "../views/parts.js";
import { TAKE_BACK } from "../views/request_model.js";
import { Denied, EndedRequest, NOT_NEEDED, actOf, answered, approved, createRequest, isNeeded, rightOf, takeBack, takingBackConfirmed, waitingRequest } from "./approval.js";
import { suggested } from "./suggestion.js";
import { MACHINE_DELETED, MACHINE_IS_OFF, NOT_RUNNING, OPENS, REVOKED, SHUTDOWN, attemptText, behindTitle, demandAlone, demandTexts, demands, endText, endingOf, explained, isForbidden, isMachineMissing, isMachineStopped, isNotStarted, missingTexts, requestOf, startText, stoppedText } from "./texts.js";

const TERMINATING = "Terminating"; // the state of a machine that is being deleted
const TURN_MILLISECONDS = 1500; // for the user who has powered the machine on: the first session is the writer
const STARTING = "The machine is starting";
const RUNNING = "The machine is running";
const RESETTING = "The machine is being reset";
const MAY_OPEN = "You may open this console now";
const OUTPUT_COMES_BACK = "The output before the reload comes back with the connection: the browser keeps none.";
const SERVER_IS_BACK = "The server answers again.";
const TICK_MILLISECONDS = 1000;
const PATIENCE_MILLISECONDS = 5000; // before the words of the server are shown

export class Panel {
  #owner;
  #waiting;
  #looking = new AbortController(); // for a right that the user lacks
  /** @type {Claim | null} */
  #claim = null; // on the approval of a request, among the windows of the user that wait for it
  /** @type {((machine: any, hasStarted: boolean, isGone: boolean, isOutage: boolean) => void) | null} */
  #followMachine = null; // if the machine decides what the user can do
  /** @type {{name: string, detail: any, warning: string, begin: number, timer: any, draw: () => void} | null} */
  #attempt = null; // while the session connects
  #outage = null; // as MachineWatch says, while its notice is in the panel
  #notice = h("div"); // of the outage
  #comesBack = () => {}; // what the user who opens the console in the list does then

  constructor(owner) {
    this.#owner = owner;
    this.element = h("div", { class: "panel", hidden: true, role: "group", "aria-label": "State of the session" });
    holdStill(this.element);
  }

  /** Whether the user has something to decide in it: while the session connects, the terminal takes keys. */
  get takesFocus() {
    return !this.element.hidden && this.#attempt === null;
  }

  get isConnecting() {
    return this.#attempt !== null;
  }

  /** Take the keys of a user who may be typing: none of them presses a button, or is part of a reason, which others read. */
  focus() {
    if (!this.element.contains(document.activeElement)) this.element.focus();
  }

  /**
   * @param {boolean} [isSudden] it goes by itself: its user may be typing
   */
  hide(isSudden = false) {
    this.#waiting?.abort();
    this.#looking.abort();
    this.#followMachine = null;
    this.#leaveAttempt();
    const hadFocus = this.element.contains(document.activeElement);
    this.element.hidden = true;
    if (hadFocus && isSudden) this.#owner.holdStill();
    else if (hadFocus) this.#owner.focus();
  }

  /** The session is open, or there will be none: other windows may use the approval, if it is not for one session. */
  release() {
    this.#claim?.release();
    this.#claim = null;
  }

  /** The user comes back to it: that is another attempt where the page learns nothing about the machine, and after a refusal. */
  comeBack() {
    if (this.element.hidden) return;
    if (this.#owner.isBlind) /** @type {HTMLElement | null} */ (this.element.querySelector(".again"))?.click();
    else this.#comesBack();
  }

  /** Whether it is to be told about the machine. */
  get followsMachine() {
    return this.#followMachine !== null;
  }

  /**
   * The machine is, or was before an outage, as MachineWatch says; `hasStarted`: since the last call; `isGone`: it is not
   * only unknown.
   */
  follow(machine, hasStarted, isGone = false, outage = null) {
    if (!this.followsMachine) return;
    this.#tellOutage(outage);
    this.#followMachine?.(machine, hasStarted, isGone, outage !== null);
  }

  #tellOutage(outage) {
    if (outage === this.#outage) return;
    this.#outage = outage;
    const hadFocus = this.#notice.contains(document.activeElement);
    fill(this.#notice, outage && outageNotice(this.#owner.context.api, asOfText("state", outage.asOf), outage.message));
    if (hadFocus) this.focus();
  }

  /**
   * The session connects: show for how long, and what is in the way.
   *
   * @param {string} name of the state: connecting, reconnecting, or open while the first output is on its way
   * @param {object} detail as ConsoleSession says
   */
  showConnecting(name, detail) {
    if (this.#attempt) {
      Object.assign(this.#attempt, { name, detail });
      this.#attempt.draw();
      return;
    }
    const title = h("h3", {}, `Connecting to ${printable(this.#owner.place.name)}`);
    const [warning, state, text, more, output] = [h("p"), h("p", { class: "dim" }), h("p"), h("p", { class: "dim" }), h("p", { class: "dim" })];
    const again = button("Try now", () => this.#tryNow(), { class: "primary", hidden: true });
    const draw = () => {
      if (!this.#attempt) return;
      const { name, detail, begin } = this.#attempt;
      const { runs, state: machine } = this.#owner.machine ?? {};
      const waited = Date.now() - begin;
      const attempt = attemptText(name, detail, this.#owner.context.api.unreachable);
      warning.textContent = printable(this.#attempt.warning);
      const machineText = machine ? `The machine is ${runs ? "running" : `in the state ${printable(machine)}`}. ` : "";
      const server = printable(this.#owner.context.config.cluster || location.host);
      const waiting = detail.code ? "The page has tried" : `Waiting for the server (${server})`; // which has answered then
      const step = name === "open" ? "The session is open; its output is on its way" : waiting;
      state.textContent = `${machineText}${step} for ${duration(waited)}.`;
      const silence = attempt.text || name === "open" ? 0 : waited;
      text.textContent = printable(attempt.text) || silenceText(silence);
      more.textContent = waited < PATIENCE_MILLISECONDS ? "" : printable(attempt.detail);
      output.textContent = this.#owner.isRestored && (attempt.text || waited >= PATIENCE_MILLISECONDS) ? OUTPUT_COMES_BACK : "";
      again.hidden = !attempt.text && !isSilence(silence);
      [warning, text, more, output].forEach((each) => (each.hidden = !each.textContent));
    };
    this.#fill("", title, warning, state, text, more, output, h("div", { class: "actions" }, again, this.#link("logs", "Log"), this.#link("screen", "Screen")));
    this.element.classList.add("connecting");
    this.#attempt = { name, detail, warning: "", begin: Date.now(), timer: setInterval(draw, TICK_MILLISECONDS), draw };
    draw();
  }

  /** Connect at once, also where the first questions to the server have no answer yet. */
  #tryNow() {
    this.#owner.context.api.dispatchEvent(new Event("retry"));
    this.#owner.connectNow();
  }

  /** Show a warning in the panel while the session connects. */
  warn(text) {
    if (!this.#attempt) return;
    this.#attempt.warning = text;
    this.#attempt.draw();
  }

  #leaveAttempt() {
    clearInterval(this.#attempt?.timer);
    this.#attempt = null;
  }

  /** @param {object} ending as ConsoleSession says; `hadSession`: it is the end of a session, and not only of an attempt */
  show(ending, rights, isReadOnly) {
    this.#waiting?.abort();
    this.release();
    this.#followMachine = null;
    const required = demands(ending);
    const { text, detail } = explained(endText(ending));
    const observe =
      ending.code === 403 && !isReadOnly && !rights.drives
        ? button("Open as observer", () => this.#owner.reopen({ mode: "observe" }), { class: "primary" })
        : null;
    if (required.reason || required.approval) {
      // An approval is for what the session was, or was to be.
      this.#showForm(ending, required, { ...(isReadOnly && { mode: "observe" }), openingWith: (reason) => this.#owner.openingWith(reason) });
    } else if (isMachineMissing(ending)) {
      const isDeleted = ending.reason === MACHINE_DELETED || ending.hadSession;
      const known = missingTexts(isDeleted, this.#owner.place);
      // A proxy that does not name the kind may miss something else.
      this.#showNoMachine(printable(known.title), isDeleted || ending.kind ? known.text : text, isDeleted);
    } else if (isMachineStopped(ending)) {
      // A machine that has never run has printed nothing.
      const links = isNotStarted(ending) ? [this.#link("events", "Events")] : [this.#logLink(), this.#screenLink()];
      this.#showStopped(text, ending, links);
    } else if (isForbidden(ending)) {
      this.#showForbidden(ending, observe);
    } else {
      const again = button("Open again", () => this.#owner.reopen(), { class: ending.code === 403 ? "" : "primary" });
      const { title, advice } = endingOf(ending, this.#owner.context.user, Boolean(this.#owner.context.config.local));
      this.#fill(
        printable(title),
        text && h("p", {}, printable(text)),
        advice && h("p", {}, advice),
        detail && h("p", { class: "dim" }, printable(detail)),
        h("div", { class: "actions" }, observe, again, this.#logLink(), this.#screenLink()),
      );
    }
    if (this.#owner.mayTakeFocus) this.focus();
  }

  /**
   * Ask for what the server demands of a user who observes and wants to type. The session goes on meanwhile.
   *
   * @param {any} refusal
   * @param {{mode: string, openingWith: (reason: string) => {path: string, query: object}}} wanted
   */
  askToType(refusal, { mode, openingWith }) {
    this.#waiting?.abort();
    this.release();
    this.#followMachine = null;
    this.#showForm(refusal, demands(refusal), { mode, observes: false, openingWith });
    this.element.querySelector("input")?.focus();
  }

  /** Nothing that the user does here helps, but another right does: another attempt is no remedy. */
  #showForbidden(ending, observe) {
    const { text } = explained(withoutRemedy(ending.message, ending.causes ?? []));
    this.#fill(
      ending.reason === REVOKED ? endingOf(ending).title : "You may not open this console",
      h("p", {}, "Ask your administrator for the role “console-observer”, to watch, or “console-user”, to type, in the namespace ", h("strong", {}, printable(this.#owner.place.namespace)), "."),
      h("p", { class: "dim" }, printable(text)),
      h(
        "div",
        { class: "actions" },
        observe,
        this.#logLink(),
        this.#screenLink(),
        h("a", { class: "button", href: "#/machines" }, "List of machines"),
        button("Try again", () => this.#owner.reopen()),
      ),
    );
    this.#look(() => this.#owner.reopen());
  }

  /**
   * Offer the console as soon as the user may open it: only the user decides to take the floor.
   *
   * @param {() => void} open
   * @param {() => boolean} [isIdle] whether the user does nothing else about it
   */
  async #look(open, isIdle = () => true) {
    const { signal } = (this.#looking = new AbortController());
    const { context, place } = this.#owner;
    this.#comesBack = () => isIdle() && open();
    await this.#owner.untilOpenable(() => isIdle() && this.element.checkVisibility(), signal);
    if (signal.aborted) return;
    this.#waiting?.abort();
    this.#fill(MAY_OPEN, h("div", { class: "actions" }, button("Open", open, { class: "primary again" }), this.#logLink(), this.#screenLink()));
    this.#comesBack = open;
    context.announce(`${place.name}: ${MAY_OPEN}.`);
  }

  /** xterm.js is not part of this installation, or cannot be loaded. */
  showMissing(problem) {
    const isMissing = this.#owner.context.config.vendor === false;
    this.#fill(
      "There is no terminal",
      h("p", {}, isMissing ? "This installation has no terminal: xterm.js was not built into it." : `The terminal cannot be loaded: ${printable(problem.message)}.`),
      isMissing
        ? h("p", {}, "On the host that serves this page, install twisted-exec again where pip can reach npm, or run ", h("code", {}, "python -m twisted_exec.web.vendoring"), " in a checkout. Logs and screens work without it.")
        : null,
      h("div", { class: "actions" }, button("Try again", () => location.reload(), { class: "primary" })),
    );
  }

  /**
   * Only the start of the machine helps; the user can read meanwhile what is known of it.
   *
   * @param {string} text
   * @param {any} ending `isSeen`: the page has seen that it does not run, so its next start may have been missed
   * @param {any[]} links to views that say more
   */
  #showStopped(text, ending, links) {
    const { isSeen } = ending;
    const lacksPool = ending.code === 404; // also before the machine says so
    const [heading, state] = [h("span", {}, NOT_RUNNING), h("p", { class: "dim" })];
    const say = (title, text) => {
      fill(heading, title);
      state.textContent = printable(text);
    };
    const again = button("Open again", () => this.#owner.reopen(), { class: "primary again" });
    const power = button("Power on", () => this.#powerOn(power, say), { class: "primary" });
    const remedy = h("p", { class: "dim remedy", hidden: true }, "To learn what to change: ", h("code", {}, printable(this.#doctor)));
    const copy = copyButton("Copy the command", () => this.#doctor, { title: printable(this.#doctor) }); // a low panel may cut it
    copy.hidden = true;
    const mayPowerOn = (machine) => machine?.isOff === true && machine.state !== TERMINATING && this.#owner.acts.maySwitch && !this.#owner.acts.isResetting;
    power.hidden = !mayPowerOn(this.#owner.machine);
    const reason = h("p", {}, printable(text));
    this.#fill(
      heading,
      reason,
      state,
      remedy,
      h("div", { class: "actions" }, power, again, links, copy),
    );
    let before = null;
    let isStarting = false; // it was powered on, and its state is still that from before
    let isOpening = false;
    const open = () => {
      if (this.#followMachine !== follow) return;
      const { acts, place } = this.#owner;
      // Who has powered it on types, also one from whom another user had taken the console that has ended.
      const types = acts.switched === "On" && place.observes !== "chosen";
      this.#owner.reopen(types ? { observes: false } : {}, true);
    };
    const follow = (machine, hasStarted, isGone, isOutage) => {
      if (isGone) return this.#showGone();
      const isStopped = machine?.runs === false;
      const isAsBefore = before?.state === machine?.state && (before?.isOff || (isStarting && before.problem === machine.problem));
      isStarting = isStopped && !machine.isOff && isAsBefore;
      const isResetting = isStopped && this.#owner.acts.isResetting;
      before = machine;
      reason.hidden = isStarting || isResetting || (isSeen && machine !== null) || (isStopped && (machine.isOff || machine.problem !== "")); // its state says the same
      const texts = isStopped && !isResetting && [stoppedText({ ...machine, isOwn: this.#owner.acts.switched === "Off" }), OPENS, startText(machine, this.#owner.acts.maySwitch)];
      say(isResetting ? RESETTING : isStarting ? STARTING : machine?.runs ? RUNNING : NOT_RUNNING, isStarting || isResetting ? OPENS : texts ? texts.filter(Boolean).join(" ") : "");
      remedy.hidden = copy.hidden = isStarting || isResetting || !(isStopped && (machine.problem || lacksPool) && !machine.isOff);
      const opensItself = isOpening || hasStarted || (isSeen && machine?.runs === true);
      this.#offerAgain(again, machine?.runs === true && !opensItself);
      if (machine) this.#offer(power, mayPowerOn(machine) && !isOutage);
      if (isOpening || !opensItself) return;
      isOpening = true;
      if (this.#owner.acts.switched === "On") open();
      else setTimeout(open, TURN_MILLISECONDS);
    };
    this.#followMachine = follow;
    this.#offer(again, !isSeen);
  }

  /** The command that knows the reasons of a fault, also those that users of the machine need not see. */
  get #doctor() {
    const { context, place } = this.#owner;
    const { kind, name } = context.machines.parse(place.name);
    const machine = kind === context.machines.resource ? name : `${kind.plural}/${name}`;
    return `twisted-exec doctor ${machine} -n ${place.namespace}`;
  }

  async #powerOn(power, say) {
    power.disabled = true;
    say(STARTING, OPENS);
    try {
      await acknowledged(`Power on of ${this.#owner.place.name}`, this.#owner.acts.setPower("On"), (text, kind) => say(kind ? NOT_RUNNING : STARTING, kind ? text : OPENS));
    } catch (problem) {
      power.disabled = false;
      say(NOT_RUNNING, `The machine could not be powered on: ${problem.message}`);
    }
  }

  /** The machine was deleted while the panel waited for it, or for an approval. */
  #showGone() {
    const { context, place } = this.#owner;
    this.show({ reason: MACHINE_DELETED }, {}, false);
    context.announce(`${place.name}: the machine was deleted.`);
  }

  /** A machine that gets the name later is another one: only the user decides to open its console. */
  #showNoMachine(title, text, isDeleted) {
    const { place, context } = this.#owner;
    const name = printable(place.name);
    const again = button("Open again", () => this.#owner.reopen(), { class: "primary again", hidden: true });
    const close = button("Close this console", () => this.#owner.leave(), { class: "primary" });
    const reason = text && h("p", {}, printable(text));
    const log = isDeleted ? this.#logLink(true) : null;
    if (log) this.#owner.mayRead("log", true).then((may) => may || fill(reason, `${text} You may not read it. ${askFor("admin", place.namespace)}`));
    const hint = isDeleted ? h("p") : suggested(context, place, "", (text) => context.announce(`${place.name}: ${title}. ${text}`));
    const created = h("p", { hidden: true }, `A machine with the name ${name} was created. “Open again” opens its console.`);
    const heading = h("span", {}, title);
    this.#fill(
      heading,
      reason,
      hint,
      created,
      h(
        "div",
        { class: "actions" },
        again,
        close,
        log,
        h("a", { class: "button", href: "#/machines" }, "List of machines"),
      ),
    );
    this.#followMachine = (machine) => {
      const exists = machine !== null && machine.state !== TERMINATING; // that is the deleted machine itself
      if (exists && created.hidden) context.announce(`${place.name}: a machine with this name was created.`);
      fill(heading, !exists ? title : isDeleted ? "There is a new machine" : "The machine exists now");
      if (reason) reason.hidden = exists;
      hint.hidden = exists;
      created.hidden = !exists;
      close.classList.toggle("primary", !exists && !this.#owner.isBlind);
      this.#offerAgain(again, exists);
    };
  }

  /** Return a link to a part of the machine; null if the server has none. */
  #link(part, label) {
    const { place, context } = this.#owner;
    const { kind } = context.machines.parse(place.name);
    if (!context.machines.has(kind, part)) return null;
    return h("a", { class: "button", href: context.link(place.namespace, place.name, part) }, label);
  }

  #logLink(isDeleted = false) {
    return this.#readable("log", this.#link("logs", "Log"), isDeleted);
  }

  #screenLink() {
    return this.#readable("screen", this.#link("screen", "Screen"));
  }

  /** Return a link that goes if the user may not read the subresource to which it leads. */
  #readable(subresource, link, isDeleted = false) {
    if (link) this.#owner.mayRead(subresource, isDeleted).then((may) => this.#offer(link, may));
    return link;
  }

  /** Offer to open the console again; always where the page learns nothing about the machine. */
  #offerAgain(again, isOffered) {
    const { isBlind } = this.#owner;
    fill(again, isBlind ? "Try again" : "Open again");
    this.#offer(again, isBlind || isOffered);
  }

  #offer(element, isOffered) {
    const hadFocus = document.activeElement === element;
    element.hidden = !isOffered;
    if (hadFocus) this.element.focus();
  }

  /**
   * @param {any} ending
   * @param {{reason: boolean, approval: boolean}} required
   * @param {{openingWith: (reason: string) => {path: string, query: object}, mode?: string, observes?: boolean}} wanted
   *     the request that opens the session, and what changes of the place by it; `observes` is false if the present session
   *     only observes, and goes on until this one opens
   */
  #showForm(ending, required, { openingWith, ...changes }) {
    const { place, context } = this.#owner;
    const wanted = { ...place, ...changes };
    const isObserving = changes.observes === false;
    const hasEnded = ending.hadSession;
    const former = requestOf(ending); // the user's last one
    const refused = demandTexts(ending.causes, Boolean(place.reason));
    const error = h("p", { class: "problem", id: `reason-of-${place.namespace}/${place.name}`, role: "alert" });
    /** @type {any} */
    let request = null; // that the user has stopped waiting for
    let demand = refused.others;
    let hasAskedToType = false; // also an observer, who opens it as the writer then, unless there is one
    let mayTakeBack = false;
    if (required.approval) {
      may(context.api, "delete", "consolerequests", "", place.namespace).then((isAllowed) => {
        mayTakeBack = isAllowed;
        back.hidden = copy.hidden || !isAllowed;
      });
    }
    let isFormer = true; // the reason: what the user types replaces it
    const input = h("input", {
      oninput: () => (isFormer = false), onfocus: () => isFormer && input.select(),
      type: "text", value: place.reason ?? "", maxlength: "256", required: required.reason,
      autocomplete: "off", placeholder: "such as the number of a ticket", "aria-describedby": error.id,
    });
    const refuse = (text) => {
      error.textContent = printable(text);
      error.hidden = !text;
      input.setAttribute("aria-invalid", String(text !== ""));
    };
    const needs = `this console needs ${required.approval ? `an approval to ${actOf(wanted)}` : "a reason"}`;
    const title = hasEnded ? `The session has ended: ${needs}` : `T${needs.slice(1)}`;
    const denied = ({ user, isWithdrawn }) => {
      if (!isWithdrawn) return `${user} has denied your request`;
      return `${user} has withdrawn the approval${hasEnded ? "; the session has ended" : ""}`;
    };
    const heading = h("span", {}, title);
    const status = h("p", { role: "status" });
    const command = () => `twisted-exec request approve -n ${place.namespace} ${request?.metadata.name}`;
    const open = (isSudden) =>
      this.#owner.reopen({ ...(isObserving && changes), ...(hasAskedToType && { observes: false }), reason: input.value.trim() }, isSudden);
    const say = (message) => {
      status.textContent = printable(message);
      context.announce(message);
    };
    const draw = (waits, state = title) => {
      fill(heading, printable(state));
      fill(refusal, printable(state === title ? behindTitle(demand) : demand));
      ask.disabled = input.readOnly = waits;
      again.hidden = waits;
      stop.hidden = back.hidden = copy.hidden = true; // until the request is there
      if (waits) refuse("");
      else this.#owner.waitsForApproval(null);
    };
    let seenText = "";
    const seen = (found, approval, isOurs) => {
      request = found;
      const { name, creationTimestamp } = found.metadata;
      const waits = `Request "${printable(name)}" to ${actOf({ mode: found.spec.right })} waits for the approval of another user`;
      const how = isOurs ? ", in Requests of this page, or with " : ". Another window of yours waits, too, and opens the console. The approval is given in Requests, or with ";
      const text = approval ? `${printable(approval)}. The console opens in another window of yours.` : waits + how;
      if (text === seenText && !stop.hidden) return;
      seenText = text;
      input.value = found.spec.reason || input.value; // which the approval is for
      fill(status, text, !approval && [h("code", {}, printable(command())), "."]);
      context.announce(approval ? text : `${text}${command()}.`);
      stop.hidden = false;
      copy.hidden = Boolean(approval);
      back.hidden = copy.hidden || !mayTakeBack;
      this.#owner.waitsForApproval(Date.parse(creationTimestamp));
    };
    const needed = (signal) => isNeeded(context, openingWith(input.value.trim()), signal);
    const wait = async (find) => {
      this.#waiting?.abort();
      const { signal } = (this.#waiting = new AbortController());
      this.release();
      const claim = (this.#claim = new Claim());
      // The field takes no more keys, and a disabled button has no focus.
      if (document.activeElement === ask || document.activeElement === input) this.element.focus();
      draw(true);
      try {
        const found = await find(signal);
        signal.throwIfAborted();
        hasAskedToType = actOf(wanted) !== "observe";
        input.value = found?.spec.reason || input.value; // which an approval is for, also before it is seen
        const take = () => claim.take(`request ${found.metadata.uid}`, navigator.locks, globalThis);
        const message = found ? await approved(context, found.metadata, signal, seen, take, () => needed(signal)) : NOT_NEEDED;
        signal.throwIfAborted();
        if (found && message === NOT_NEEDED && mayTakeBack) takeBack(context, found.metadata).catch(() => {}); // nobody need decide it
        if (!this.#owner.isInSight) {
          this.#owner.decided();
          context.announce(`${place.name}: ${message}. The console opens when you go to it.`);
          await this.#owner.inSight(); // the approval may be for one session, whose time runs
          signal.throwIfAborted();
        }
        this.#owner.tellApproval(message);
        open(true);
      } catch (problem) {
        claim.release();
        if (signal.aborted) return;
        // An old denial is not why this session has ended, or is not open.
        const isNews = problem instanceof Denied && (request !== null || (hasEnded && problem.isWithdrawn));
        if (request !== null && problem instanceof EndedRequest) this.#owner.decided();
        request = null;
        if (problem instanceof EndedRequest) demand = demandAlone(ending.causes, Boolean(place.reason)); // it says more of the request
        draw(false, isNews ? denied(problem) : title);
        const { reason, others } = demandTexts(causesOf(problem.status), true);
        refuse(reason);
        say(reason || others ? others : explained(problem.message).text);
        if (problem.code === 0) answered(context, signal).then(() => say(SERVER_IS_BACK)).catch(() => {}); // the user has gone on
      }
    };
    const submit = (event) => {
      event.preventDefault();
      if (!required.approval) return open(false);
      if (ask.disabled) return;
      const reason = input.value.trim();
      const fits = request && (request.spec.reason ?? "") === reason && request.spec.right === rightOf(wanted);
      wait(async (signal) => {
        if (!(await needed(signal))) return null; // since the console was refused, its policy has changed
        return fits ? request : createRequest(context, { ...wanted, reason }, signal);
      });
    };
    const ask = button(required.approval ? `Ask to ${actOf(wanted)}` : "Open with this reason", null, { type: "submit", class: "primary" });
    const again = isObserving ? button("Go on observing", () => this.hide()) : button("Try again", () => open(false));
    const stop = button("Stop waiting", () => {
      this.#waiting?.abort();
      draw(false);
      say(`Request "${request.metadata.name}" stays: after its approval, “${isObserving ? actOf(wanted) === "type" ? "Type here" : "Take over" : "Try again"}” opens the console.`);
      ask.focus();
    });
    const back = button(TAKE_BACK, async () => {
      const { signal } = this.#waiting;
      const { metadata } = request;
      if (!(await takingBackConfirmed(place.name)) || signal.aborted) return;
      try {
        await acknowledged("Taking back your request", takeBack(context, metadata), say);
      } catch (problem) {
        if (!signal.aborted && problem.code !== 404) say(`Your request is as it was: ${problem.message}`);
        return;
      }
      if (signal.aborted) return; // the console opens
      this.#waiting.abort();
      request = null;
      draw(false);
      say("Your request is taken back.");
      ask.focus();
    });
    const copy = copyButton("Copy the command", command);
    const refusal = h("p", { hidden: !demand }, printable(behindTitle(demand)));
    this.#fill(
      heading,
      refusal,
      status,
      isObserving && h("p", { class: "dim" }, "You go on observing meanwhile. Then a session in which you can type takes the place of this one."),
      error, // in a low window all parts of the form are on one line
      h(
        "form",
        { onsubmit: submit, class: "stack" },
        h("label", { class: "field" }, h("span", {}, required.reason ? "Reason" : "Reason (optional)"), input),
        h("div", { class: "actions" }, ask, again, required.approval && [stop, back, copy]),
      ),
    );
    stop.hidden = back.hidden = copy.hidden = true;
    refuse(refused.reason);
    this.#followMachine = (machine, _hasStarted, isGone) => {
      const isOff = machine?.state === SHUTDOWN && isFormer && !isObserving && !ask.disabled; // what the user types is not lost
      if (!isGone && !isOff) return;
      this.#owner.waitsForApproval(null);
      if (isGone) return this.#showGone();
      this.show(MACHINE_IS_OFF, {}, false);
      context.announce(`${place.name}: the machine is off.`);
    };
    if (!isObserving) this.#look(() => open(false), () => !ask.disabled);
    // Of the page before a reload, of another tab, or of the command line.
    if (former) wait((signal) => waitingRequest(context, wanted, former, signal));
  }

  #fill(title, ...children) {
    this.#leaveAttempt();
    this.#looking.abort();
    this.element.classList.toggle("connecting", false);
    this.element.classList.toggle("middle", this.#owner.isEmpty);
    this.#outage = null;
    this.#comesBack = () => {};
    const hadFocus = this.element.contains(document.activeElement);
    fill(this.element, title && h("h3", {}, title), fill(this.#notice), ...children);
    this.element.hidden = false;
    if (hadFocus) this.element.focus();
  }
}
