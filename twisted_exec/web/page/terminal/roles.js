/**
 * Who may type, by the notices of one session.
 *
 * A notice is a mark, beside the output, so nothing that a machine prints changes the role here; and the
 * runtime decides about input in any case. The mark says what it is about; the wording never counts.
 */

const WAIT = "(you may not take over)"; // in place of a hint; the buttons of the page say the same
const IDLE = /^(this session ends in [0-9a-z ]+?) unless you type: /; // twisted_exec/streaming/sessions/time_limits.py

export class Roles {
  /** @type {"unknown" | "writer" | "observer" | "denied"} "denied": the user may only observe. */
  #role;
  /** @type {string | null} Name of the writer; empty if it is this session or unknown, null if there is none. */
  writer = "";
  /** Why the machine gets no input of its writers at present; empty if it does. */
  withheld = "";
  #isReadOnly;
  #user;

  /**
   * @param {boolean} isReadOnly the session can never write
   * @param {() => string} user the name of the session's own user; empty if it is unknown
   */
  constructor(isReadOnly = false, user = () => "") {
    this.#isReadOnly = isReadOnly;
    this.#role = isReadOnly ? "observer" : "unknown";
    this.#user = user;
  }

  /** Whether the server has not said yet who types. */
  get isUnknown() {
    return this.#role === "unknown";
  }

  get isObserver() {
    return this.#role === "observer" || this.isDenied;
  }

  get isDenied() {
    return this.#role === "denied";
  }

  /** The server tells an observer so first: a session of which it has said more, or can say no more, may type. */
  settle() {
    if (this.isUnknown) this.#role = "writer";
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
    if (["writer", "observer", "denied"].includes(role)) this.#role = role;
    if (role === "writer") this.writer = "";
    else if (role === "observer") {
      this.writer = typeof writer === "string" && writer ? writer : null;
    }
    // Keys of an observer reach the server, which counts them as use and drops them; those of a session that can never write stay here.
    if (this.isObserver && IDLE.test(text)) return text.replace(IDLE, this.#isReadOnly ? "$1: " : "$1 unless you press a key: ");
    if (kind === "role" && this.isOwn) return "you only observe: another session of yours types here";
    if (typeof hint !== "string" || !hint || !text.endsWith(hint)) return inWordsOfPage(text, writer);
    if (kind !== "discarded") return inWordsOfPage(text.slice(0, -hint.length).trimEnd(), writer);
    if (this.writer === null) return "what you type is not sent: choose Type here first.";
    return `what you type is not sent: ${this.isOwn ? "you type in another session. Choose Type here first" : `${this.writer} types here`}.`;
  }
}

/** Say who types as the page says it elsewhere; a name may read like any of these words. */
function inWordsOfPage(notice, writer) {
  const text = notice.endsWith(` ${WAIT}`) ? notice.slice(0, -WAIT.length - 1) : notice;
  const words = [[`the writer of this console is ${writer}`, `${writer} types here now`], ["this console has no writer", "nobody types here now"]];
  if (text === `${writer}'s connection is lost; ${words[0][0]}`) return `${writer}, who types here, has lost the connection`;
  for (const [said, page] of words) {
    if (text === `${said}; you are an observer`) return `${page}; you only observe`;
    if (text === `you are an observer; ${said}`) return `you only observe; ${page}`;
    if (text.endsWith(said)) return text.slice(0, -said.length) + page;
  }
  return text;
}
