/**
 * Who may type, by the notices of one session.
 *
 * A notice is a mark, beside the output, so nothing that a machine prints changes the role here; and the
 * runtime decides about input in any case. The mark says what it is about; the wording never counts.
 */

export class Roles {
  isObserver = false;
  /** The user may only observe. */
  isDenied = false;
  /** @type {string | null} Name of the writer; empty if it is this session or unknown, null if there is none. */
  writer = "";
  /** Why the machine gets no input of its writers at present; empty if it does. */
  withheld = "";
  #user;

  /**
   * @param {boolean} isReadOnly the session can never write
   * @param {() => string} user the name of the session's own user; empty if it is unknown
   */
  constructor(isReadOnly = false, user = () => "") {
    this.isObserver = isReadOnly;
    this.#user = user;
  }

  /** Whether the writer is another session of the same user, from which this one may take over. */
  get isOwn() {
    return this.isObserver && Boolean(this.writer) && this.writer === this.#user();
  }

  /**
   * Handle a notice; return its text, without the keys and options of other clients.
   *
   * @param {object} mark `{Notice, Kind, Role, Writer, Hint}`
   */
  read(mark) {
    const { Notice: text, Kind: kind, Role: role, Writer: writer, Hint: hint } = mark;
    if (role === "writer") {
      this.isObserver = this.isDenied = false;
      this.writer = "";
    } else if (role === "observer" || role === "denied") {
      this.isObserver = true;
      this.isDenied = role === "denied";
      if (!this.isDenied) this.writer = typeof writer === "string" && writer ? writer : null;
    }
    if (kind === "role" && this.isOwn) return "you only observe: another session of yours types here";
    if (typeof hint !== "string" || !hint || !text.endsWith(hint)) return text;
    // A notice says it after what a user has done with "this console".
    if (kind !== "discarded") return text.slice(0, -hint.length).trimEnd().replace(/; this console has no writer$/, "; nobody types here now");
    if (this.writer === null) return "what you type is not sent: choose Type here first.";
    return `what you type is not sent: ${this.isOwn ? "you type in another session. Choose Type here first" : `${this.writer} types here`}.`;
  }
}
