/**
 * Who may type, by the notices of one session.
 *
 * The texts are those of twisted_exec/console/floor.py. A resumable session gets them beside the output, so
 * nothing that a machine prints changes the role here; and the runtime decides about input in any case.
 */

const OBSERVER = [
  "(~f or --force takes over)",
  "(wait until this console has no writer, or ask your administrator for the verb takeover on machines/console)",
];
const MAY_ONLY_OBSERVE =
  "you may only observe this console (your administrator can grant the verb drive on machines/console)";
const WRITER = ["you have taken over this console", "you are the writer of this console"];
const NAMES_WRITER =
  /^(.+?)(?:, in another session,)? has taken over this console; |\b(?:the writer of this console|its writer) is ([^;]+?)(?:;| \(|$)|\bthis console has no writer\b/;
const NOT_SENT = "what you type is not sent: ";
// Hints at keys and options of `kubectl console`.
const HINT = / ?\(~f or --force takes over\)$/;

export class Roles {
  isObserver = false;
  /** The user may only observe. */
  isDenied = false;
  /** Name of the writer; empty if it is this session or unknown, null if there is none. */
  writer = "";

  /** @param {boolean} isReadOnly the session can never write */
  constructor(isReadOnly = false) {
    this.isObserver = isReadOnly;
  }

  /** Handle a notice; return its text with the names of the page's buttons. */
  read(text) {
    if (WRITER.some((start) => text.startsWith(start))) {
      this.isObserver = this.isDenied = false;
      this.writer = "";
    } else {
      if (text.endsWith(MAY_ONLY_OBSERVE) || OBSERVER.some((end) => text.endsWith(end))) {
        this.isObserver = true;
        this.isDenied = text.endsWith(MAY_ONLY_OBSERVE);
      }
      const match = NAMES_WRITER.exec(text);
      if (match) this.writer = match[1] ?? match[2] ?? null;
    }
    const remedy = text.startsWith(NOT_SENT) ? ` (${this.writer === null ? "Type here" : "Take over"})` : "";
    return text.replace(HINT, remedy);
  }
}
