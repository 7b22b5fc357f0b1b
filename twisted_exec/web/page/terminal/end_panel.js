/** The panel over a terminal whose session has ended: why, and how to open it again. */

import { button, fill, h, printable } from "../dom.js";
import { requestApproval } from "./approval.js";
import { demands, endText, isMachineMissing, mayOpenAgain } from "./texts.js";

const NO_SESSION = "No session";

export class EndPanel {
  constructor(owner) {
    this._owner = owner;
    this.element = h("div", { class: "end-panel", hidden: true, role: "group", "aria-label": "End of the session" });
  }

  get isShown() {
    return !this.element.hidden;
  }

  focus() {
    (this.element.querySelector("input") ?? this.element.querySelector("button"))?.focus();
  }

  hide() {
    this._waiting?.abort();
    const hadFocus = this.element.contains(document.activeElement);
    this.element.hidden = true;
    if (hadFocus) this._owner.focus();
  }

  /** @param {object} ending as ConsoleSession says */
  show(ending, rights, isReadOnly) {
    const required = demands(ending);
    const text = endText(ending);
    if (required.reason || required.approval) {
      this._showForm(text, required);
    } else if (isMachineMissing(ending)) {
      const close = button("Close this console", () => this._owner.leave(), { class: "primary" });
      const machines = h("a", { class: "button", href: "#/machines" }, "List of machines");
      this._fill("There is no such machine", h("p", {}, printable(text)), h("div", { class: "actions" }, close, machines));
    } else {
      const again = mayOpenAgain(ending)
        ? button("Open again", () => this._owner.reopen(), { class: "primary" })
        : null;
      const observe =
        ending.code === 403 && !isReadOnly && !rights.drives
          ? button("Open as observer", () => this._owner.reopen({ mode: "observe" }))
          : null;
      this._fill(NO_SESSION, h("p", {}, printable(text)), h("div", { class: "actions" }, again, observe));
    }
    if (this._owner.isActive) this.focus();
  }

  /** xterm.js is not part of this installation, or cannot be loaded. */
  showMissing(problem) {
    const isMissing = this._owner.context.config.vendor === false;
    this._fill(
      NO_SESSION,
      h("p", {}, isMissing ? "This installation has no terminal: xterm.js was not built into it." : `The terminal cannot be loaded: ${printable(problem.message)}.`),
      isMissing
        ? h("p", {}, "On the server, install twisted-exec again where pip can reach npm, or run ", h("code", {}, "python -m twisted_exec.web.vendoring"), " in a checkout. Logs and screens work without it.")
        : null,
      h("div", { class: "actions" }, button("Try again", () => location.reload(), { class: "primary" })),
    );
  }

  _showForm(text, required) {
    const { place } = this._owner;
    const input = h("input", {
      type: "text", value: place.reason ?? "", maxlength: "256", required: required.reason,
      autocomplete: "off", placeholder: "such as the number of a ticket",
    });
    const status = h("p", { class: "dim", role: "status" });
    const open = (event) => {
      event?.preventDefault();
      this._owner.reopen({ reason: input.value.trim() });
    };
    const request = async () => {
      if (!input.reportValidity()) return; // the approval would not be enough
      this._waiting?.abort();
      this._waiting = new AbortController();
      const reason = input.value.trim();
      const say = (message) => {
        status.textContent = printable(message);
        this._owner.context.announce(message);
      };
      try {
        await requestApproval(this._owner.context, { ...place, reason }, this._waiting.signal, say);
        this._owner.reopen({ reason });
      } catch (problem) {
        if (!this._waiting.signal.aborted) say(problem.message);
      }
    };
    this._fill(
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

  _fill(title, ...children) {
    fill(this.element, h("h3", {}, title), ...children);
    this.element.hidden = false;
  }
}
