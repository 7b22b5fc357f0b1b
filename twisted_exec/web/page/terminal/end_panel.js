/** The panel over a terminal whose session has ended: why, and how to open it again. */

import { button, fill, h, printable } from "../dom.js";
import { requestApproval } from "./approval.js";
import { MACHINE_DELETED, demands, endText, isMachineMissing, isMachineStopped, mayOpenAgain, stoppedText } from "./texts.js";

const NO_SESSION = "No session";

export class EndPanel {
  #owner;
  #waiting;
  /** @type {((machine: any, hasStarted: boolean) => void) | null} */
  #followMachine = null; // if the machine decides what the user can do

  constructor(owner) {
    this.#owner = owner;
    this.element = h("div", { class: "end-panel", hidden: true, role: "group", "aria-label": "End of the session" });
  }

  get isShown() {
    return !this.element.hidden;
  }

  focus() {
    /** @type {HTMLElement | null} */ (this.element.querySelector("input, .button:not([hidden])"))?.focus();
  }

  hide() {
    this.#waiting?.abort();
    this.#followMachine = null;
    const hadFocus = this.element.contains(document.activeElement);
    this.element.hidden = true;
    if (hadFocus) this.#owner.focus();
  }

  /** Whether it is to be told about the machine. */
  get followsMachine() {
    return this.#followMachine !== null;
  }

  /** The machine is as MachineWatch says; `hasStarted`: since the last call. */
  follow(machine, hasStarted) {
    this.#followMachine?.(machine, hasStarted);
  }

  /** @param {object} ending as ConsoleSession says */
  show(ending, rights, isReadOnly) {
    const required = demands(ending);
    const text = endText(ending);
    if (required.reason || required.approval) {
      this.#showForm(text, required);
    } else if (isMachineMissing(ending)) {
      this.#showNoMachine(text, ending.reason === MACHINE_DELETED);
    } else if (isMachineStopped(ending)) {
      this.#showStopped(text);
    } else {
      const again = mayOpenAgain(ending)
        ? button("Open again", () => this.#owner.reopen(), { class: "primary" })
        : null;
      const observe =
        ending.code === 403 && !isReadOnly && !rights.drives
          ? button("Open as observer", () => this.#owner.reopen({ mode: "observe" }))
          : null;
      this.#fill(NO_SESSION, h("p", {}, printable(text)), h("div", { class: "actions" }, again, observe));
    }
    if (this.#owner.isActive) this.focus();
  }

  /** xterm.js is not part of this installation, or cannot be loaded. */
  showMissing(problem) {
    const isMissing = this.#owner.context.config.vendor === false;
    this.#fill(
      NO_SESSION,
      h("p", {}, isMissing ? "This installation has no terminal: xterm.js was not built into it." : `The terminal cannot be loaded: ${printable(problem.message)}.`),
      isMissing
        ? h("p", {}, "On the host that serves this page, install twisted-exec again where pip can reach npm, or run ", h("code", {}, "python -m twisted_exec.web.vendoring"), " in a checkout. Logs and screens work without it.")
        : null,
      h("div", { class: "actions" }, button("Try again", () => location.reload(), { class: "primary" })),
    );
  }

  /** Only the start of the machine helps; the user can read its log and its last screen meanwhile. */
  #showStopped(text) {
    const state = h("p", { class: "dim" });
    const again = button("Open again", () => this.#owner.reopen(), { class: "primary" });
    this.#fill(
      "The machine is not running",
      h("p", {}, printable(text)),
      state,
      h("div", { class: "actions" }, again, this.#link("logs", "Log"), this.#link("screen", "Screen")),
    );
    this.#followMachine = (machine, hasStarted) => {
      const isStopped = machine?.runs === false;
      state.textContent = isStopped ? `${printable(stoppedText(machine))} This console opens as soon as the machine runs.` : "";
      this.#offer(again, !isStopped);
      if (hasStarted) this.#owner.reopen();
    };
  }

  /** A machine that gets the name later is another one: only the user decides to open its console. */
  #showNoMachine(text, isDeleted) {
    const state = h("p", { class: "dim" });
    const again = button("Open again", () => this.#owner.reopen(), { class: "primary", hidden: true });
    this.#fill(
      isDeleted ? "The machine is deleted" : "There is no such machine",
      h("p", {}, printable(text)),
      state,
      h(
        "div",
        { class: "actions" },
        again,
        button("Close this console", () => this.#owner.leave(), { class: "primary" }),
        isDeleted ? this.#link("logs", "Log") : null,
        h("a", { class: "button", href: "#/machines" }, "List of machines"),
      ),
    );
    this.#followMachine = (machine) => {
      state.textContent = machine === null ? "" : "A machine of this name was created meanwhile.";
      this.#offer(again, machine !== null);
    };
  }

  #link(part, label) {
    const { place, context } = this.#owner;
    const { kind } = context.machines.parse(place.name);
    if (!context.machines.has(kind, part)) return null;
    return h("a", { class: "button", href: context.link(place.namespace, place.name, part) }, label);
  }

  #offer(element, isOffered) {
    const hadFocus = document.activeElement === element;
    element.hidden = !isOffered;
    if (hadFocus) this.focus();
  }

  #showForm(text, required) {
    const { place } = this.#owner;
    const input = h("input", {
      type: "text", value: place.reason ?? "", maxlength: "256", required: required.reason,
      autocomplete: "off", placeholder: "such as the number of a ticket",
    });
    const status = h("p", { class: "dim", role: "status" });
    const open = (event) => {
      event?.preventDefault();
      this.#owner.reopen({ reason: input.value.trim() });
    };
    const request = async () => {
      if (!input.reportValidity()) return; // the approval would not be enough
      this.#waiting?.abort();
      this.#waiting = new AbortController();
      const reason = input.value.trim();
      const say = (message) => {
        status.textContent = printable(message);
        this.#owner.context.announce(message);
      };
      try {
        await requestApproval(this.#owner.context, { ...place, reason }, this.#waiting.signal, say);
        this.#owner.reopen({ reason });
      } catch (problem) {
        if (!this.#waiting.signal.aborted) say(problem.message);
      }
    };
    this.#fill(
      NO_SESSION,
      h("p", {}, printable(text)),
      h(
        "form",
        { onsubmit: open, class: "stack" },
        h("label", { class: "field" }, h("span", {}, "Reason"), input),
        h(
          "div",
          { class: "actions" },
          button(required.approval ? "Try again" : "Open with this reason", null, { type: "submit", class: required.approval ? "" : "primary" }),
          required.approval ? button("Ask for approval", request, { class: "primary" }) : null,
        ),
      ),
      status,
    );
  }

  #fill(title, ...children) {
    fill(this.element, h("h3", {}, title), ...children);
    this.element.hidden = false;
  }
}
