/**
 * Who may type, by the notices of one session.
 *
 * A notice is a mark, beside the output, so nothing that a machine prints changes the role here; and the
 * runtime decides about input in any case. The mark says what it is about. A runtime of an earlier release sends
 * the text alone: then the wording counts, which is that of twisted_exec/console/floor.py.
 */

/** Hint at keys and options of `kubectl console`, at the end of a text. */
const HINT = "(~f or --force takes over)";
const WAIT = "(you may not take over)";
const ASK = "(wait until it has no writer, or ask an administrator for the role console-operator)";
const MAY_ONLY_OBSERVE = "you may only observe this console (ask an administrator for the role console-user)";

const HINTS = `(?:(?<Hint>${escaped(HINT)})|${escaped(WAIT)})`;
const STATUS = "(?:the writer of this console is (?<Writer>.+)|this console has no writer)";
const TAKEN = "(?:, in another session,)? has taken over this console; you are an observer";
const FREE = "(?:has left|has released this console|may no longer type); this console has no writer";
const NOT_SENT = "what you type is not sent:";

/** Forms of the texts: those that begin with words of the runtime, and those that begin with the name of a user. */
const WORDINGS = [
  [
    [{ Kind: "role", Role: "writer" }, "you are the writer of this console"],
    [{ Kind: "role", Role: "writer" }, "you have taken over this console from .+"],
    [{ Kind: "role", Role: "writer" }, "you are the writer of this console again; .+ has left"],
    [{ Kind: "role", Role: "observer" }, `${STATUS}; you are an observer ${HINTS}`],
    [{ Kind: "role", Role: "observer" }, `you are an observer; ${STATUS} ${HINTS}`],
    [{ Kind: "role", Role: "observer" }, `you may type at this console again; ${STATUS} ${HINTS}`],
    [{ Kind: "role", Role: "observer" }, `you may not take over this console; its writer is (?<Writer>.+) ${escaped(ASK)}`],
    [{ Kind: "role", Role: "denied" }, `(?:from now on )?${escaped(MAY_ONLY_OBSERVE)}`],
    [{ Kind: "discarded", Role: "denied" }, `${NOT_SENT} ${escaped(MAY_ONLY_OBSERVE)}`],
    [{ Kind: "discarded", Role: "observer" }, `${NOT_SENT} ${STATUS} ${HINTS}`],
    [{ Kind: "discarded" }, `${NOT_SENT} .+`],
  ],
  [
    [
      { Kind: "role", Role: "observer" },
      `(?<Writer>.+)'s connection is lost; the writer of this console is \\k<Writer> ${HINTS}`,
    ],
    [{ Kind: "role", Role: "observer" }, `(?<Writer>.+?)${TAKEN} ${HINTS}`],
    [{ Kind: "role", Role: "observer" }, `.+ ${FREE} ${HINTS}`],
    [{ Kind: "interrupted" }, ".+; this session waits up to .+ s for the machine to start again"],
    [{ Kind: "message" }, ".+ is back"],
  ],
].map((forms) => forms.map(([meaning, form]) => [meaning, new RegExp(`^${form}$`)]));

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
   * @param {object} mark `{Notice, Kind, Role, Writer, Hint}`; an earlier release sends only the first
   */
  read(mark) {
    const { Notice: text, Kind: kind, Role: role, Writer: writer, Hint: hint } = "Kind" in mark ? mark : understood(mark);
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
    if (kind !== "discarded") return text.slice(0, -hint.length).trimEnd();
    if (this.writer === null) return "what you type is not sent: choose Type here first.";
    return `what you type is not sent: ${this.isOwn ? "you type in another session. Choose Type here first" : `${this.writer} types here`}.`;
  }
}

/**
 * Return a notice of an earlier release with its kind, by its wording.
 *
 * The name of a user may read like a sentence. So a text counts only as a whole, and not if it has two meanings.
 */
function understood(mark) {
  const meanings = WORDINGS.map((forms) => meaning(mark.Notice, forms)).filter(Boolean);
  return meanings.length === 1 ? { ...mark, ...meanings[0] } : mark;
}

function meaning(text, forms) {
  for (const [facts, form] of forms) {
    const match = form.exec(text);
    if (match) return { ...facts, ...match.groups };
  }
  return null;
}

function escaped(text) {
  return text.replace(/[()|/]/g, "\\$&");
}
