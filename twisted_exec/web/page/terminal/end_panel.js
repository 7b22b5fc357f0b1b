/** The panel over a terminal whose session has ended: why, and how to open it again. */

import { button, fill, h, printable } from "../dom.js";
import { requestApproval } from "./approval.js";
import { demands, endText, isMachineMissing, isMachineStopped, mayOpenAgain, stoppedText } from "./texts.js";

const NO_SESSION = "No session";

export class EndPanel {
  #owner;
  #waiting;
  #showMachine = null; // of a console that waits for its machine

  constructor(owner) {
    this.#owner = owner;
    this.element = h("div", { class: "end-panel", hidden: true, role: "group", "aria-label": "End of the session" });
  }

  get isShown() {
    return !this.element.hidden;
  }

  focus() {
    this.element.querySelector("input, .button:not([hidden])")?.focus();
  }

  hide() {
    this.#waiting?.abort();
    this.#showMachine = null;
    const hadFocus = this.element.contains(document.activeElement);
    this.element.hidden = true;
    if (hadFocus) this.#owner.focus();
  }

  /** Whether the console is to be opened again when its machine runs. */
  get waitsForMachine() {
    return this.#showMachine !== null;
  }

  /** The machine of the console has changed. */
  follow(machine) {
    this.#showMachine?.(machine);
  }

  /** @param {object} ending as ConsoleSession says */
  show(ending, rights, isReadOnly) {
    const required = demands(ending);
    const text = endText(ending);
    if (required.reason || required.approval) {
      this.#showForm(text, required);
    } else if (isMachineMissing(ending)) {
      const close = button("Close this console", () => this.#owner.leave(), { class: "primary" });
      const machines = h("a", { class: "button", href: "#/machines" }, "List of machines");
      this.#fill("There is no such machine", h("p", {}, printable(text)), h("div", { class: "actions" }, close, machines));
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
    const { place, context } = this.#owner;
    const { kind } = context.machines.parse(place.name);
    const state = h("p", { class: "dim" });
    const again = button("Open again", () => this.#owner.reopen(), { class: "primary" });
    const view = (part, label) =>
      context.machines.has(kind, part)
        ? h("a", { class: "button", href: context.link(place.namespace, place.name, part) }, label)
        : null;
    const actions = h("div", { class: "actions" }, again, view("logs", "Log"), view("screen", "Screen"));
    this.#showMachine = (machine) => {
      const hadFocus = document.activeElement === again;
      again.hidden = machine?.runs === false;
      state.textContent = again.hidden ? `${printable(stoppedText(machine))} This console opens as soon as the machine runs.` : "";
      if (hadFocus) this.focus();
    };
    this.#fill("The machine is not running", h("p", {}, printable(text)), state, actions);
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
