/**
 * Who takes part in a console, by the marks of the server, and what its user reads of that: who types, who records, and that a session
 * has taken the place of another one.
 */

import { Roles } from "./roles.js";
import { anewMessages, anewText, lostText, recordingNews, said } from "./texts.js";

export class Attendance {
  /** @type {Roles} of the present session */
  roles = new Roles();
  /** @type {any[] | null} the recordings that the user knows of */
  recordings = null;
  /**
   * How and when the session before has ended, and `opening`, the message that this one opens; null unless this one follows it,
   * and once its role is known.
   *
   * @type {any}
   */
  former = null;
  #hasDriven = false; // the user could type until now
  /** @type {{message: import("./message_box.js").Message | null, writer: string | null}} the newest message to an observer, and who typed then */
  #observing = { message: null, writer: null };
  #messageBox;
  #user;

  /**
   * @param {import("./message_box.js").MessageBox} messageBox
   * @param {() => string} user the name of the session's own user; empty if it is unknown
   */
  constructor(messageBox, user) {
    this.#messageBox = messageBox;
    this.#user = user;
  }

  /** A session begins. */
  begin(isReadOnly) {
    this.roles = new Roles(isReadOnly, this.#user);
    this.recordings = null;
  }

  /** Handle a notice, and tell it. */
  read(mark) {
    const shown = this.roles.read(mark);
    const { isObserver } = this.roles;
    if (!isObserver) this.#messageBox.endAboutRole(); // its user types again
    const text = this.#isLoss ? lostText(this.roles) : said(shown);
    const content = this.#isLoss ? { loss: text, kind: "warning" } : { text };
    const isReminder = this.#hasDriven && !isObserver; // after a reconnection
    const isSaid = mark.Kind === "discarded" && this.roles.writer && this.#messageBox.says(lostText(this.roles));
    let message = null;
    if (isSaid) this.#messageBox.announce(text);
    else if (mark.Kind !== "role") message = this.#messageBox.show(content);
    else if (!isReminder) message = this.#messageBox.tellFact("role", text, content);
    if (mark.Role === "observer" && !content.kind) this.#observing = { message, writer: this.roles.writer };
    if (!this.former && (isObserver || mark.Kind === "role")) this.#hasDriven = !isObserver;
  }

  /** Handle a mark about the viewers of the console. */
  viewersChanged(viewers) {
    this.roles.settle(); // the first of these marks follows the first notice about the role
    this.roles.withheld = viewers.withheld;
    const news = recordingNews(this.recordings, viewers.recordings);
    this.recordings = viewers.recordings ?? this.recordings;
    if (news && !this.former) this.#messageBox.tellRecordings(news);
    // A notice names only the writer who takes the console from another one.
    if (this.roles.isObserver || !viewers.writer) this.roles.writer = viewers.writer || null;
    if (this.roles.isObserver) this.#messageBox.renewLoss(lostText(this.roles));
    if (this.roles.isObserver && this.#observing.writer !== this.roles.writer) this.#messageBox.takeBack(this.#observing.message);
    if (this.former) this.#tellNew(news);
    this.#hasDriven = !this.roles.isObserver;
  }

  get #isLoss() {
    return this.#hasDriven && this.roles.isObserver;
  }

  /** The user changes the role, which is no loss. */
  changesRole() {
    this.#hasDriven = false;
  }

  /** A new session takes the place of one that has ended. */
  follow(ending) {
    this.former = { ...ending, since: Date.now(), opening: this.former?.opening };
  }

  /** Tell that the new session opens. */
  tellOpening(text, kind) {
    this.former.opening = this.#messageBox.tell(text, kind);
  }

  /** Tell that the session has taken the place of another one, whether its user no longer types, and that it is recorded. */
  #tellNew(recorded) {
    const { former } = this;
    this.former = null;
    this.#messageBox.takeBack(former.opening);
    if (recorded) this.#messageBox.remember("recordings", recorded);
    const loss = this.#isLoss ? lostText(this.roles) : "";
    former.unconfirmed.cause = anewText(former, true);
    for (const content of anewMessages(former, { loss, recorded })) this.#messageBox.show(content);
  }

  /** No session follows the former one: take back that one would follow. */
  leaveFormer() {
    this.#messageBox.takeBack(this.former?.opening);
    this.former = null;
  }
}
