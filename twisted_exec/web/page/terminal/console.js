/** One console in the page: its session, its terminal and the bars around it. */

import { ConsoleSession } from "../session/session.js";
import { button, fill, h, printable } from "../dom.js";
import { hasNoScreen, readScreen } from "../screens.js";
import { confirmPaste, chooseSysrq } from "./dialogs.js";
import { EndPanel } from "./end_panel.js";
import { buildFinder } from "./finder.js";
import { FirstScreen } from "./first_screen.js";
import { KeyBar } from "./key_bar.js";
import { encode, examine } from "./paste.js";
import { explain, opening } from "./rights.js";
import { Roles } from "./roles.js";
import { Screen, load } from "./screen.js";
import { StatusLine } from "./status_line.js";
import { amount, endText, recordingNews } from "./texts.js";

const SUBPROTOCOL = "v5.channel.k8s.io";
const SHORTEST_SESSION_MS = 60_000; // of one that the page has opened again by itself, to do so once more
const REVOKED = "AuthorizationWithdrawn"; // the reason: a token or a permission has ended
const REPLAY_BYTES = 256 << 10;
const MESSAGE_MILLISECONDS = 10_000;
const MOST_EARLY = 1000; // keys and pastes

let hasToldKeys = false;

export class Console {
  /**
   * @param {object} context of the page
   * @param {object} place `{namespace, name, mode, reason, size}`; kept over reloads by the owner
   * @param {object} on `key(event)`: false keeps a key from the machine; `menu()`; `close()`: it is to be closed; `active()`: it has the
   *     focus; `isActive()`: the user sees it; `keep()`: the place has changed
   */
  constructor(context, place, on) {
    this.context = context;
    this.place = place;
    this.element = h("section", { class: "console", "aria-label": `Console of ${printable(place.name)}` });
    this._on = on;
    this._key = `session.${place.namespace}/${place.name}`;
    this._session = null;
    this._early = null; // what the user types before there is a session
    this._screen = null;
    this._openedAgainAt = 0;
    this._roles = new Roles();
    this._rights = { drives: true, takesOver: false, mayType: true };
    this._login = () => (this._isLoggedOut ? this.reopen() : this._session?.reconnectNow());
    context.api.addEventListener("authorized", this._login);
    this._build();
    this._start();
  }

  get isOpen() {
    return this._session !== null && this._session.state !== "ended";
  }

  /** The terminal; null until xterm.js is loaded. */
  get screen() {
    return this._screen;
  }

  /** Whether the user sees it and no other one has the focus. */
  get isActive() {
    return this._on.isActive();
  }

  focus() {
    if (this._end.isShown) this._end.focus();
    else this._screen?.focus();
  }

  /** End the session and forget it. */
  close() {
    this.context.api.removeEventListener("authorized", this._login);
    this._session?.leave();
    this.context.store.remove(this._key);
    this._status.stop();
    clearTimeout(this._messageTimer);
    this._screen?.close();
    this._isClosed = true;
    this.element.remove();
  }

  /** Let the owner close it. */
  leave() {
    this._on.close();
  }

  _build() {
    const { name, namespace } = this.place;
    this._role = button("", () => this.changeRole(), { class: "role", hidden: true });
    this._head = h(
      "header",
      { class: "console-head" },
      h("h2", {}, h("span", { class: "dim" }, `${printable(namespace)} / `), printable(name)),
      h("span", { class: "grow" }),
      this._role,
      button("Find", () => this.find(), { class: "quiet find-button", title: "Find text in the terminal" }),
      button(["Commands ", h("kbd", { "aria-hidden": "true" }, "Ctrl ]")], () => this._on.menu(), {
        class: "quiet",
        title: "Ctrl ] or Ctrl F6 leaves the terminal and shows all commands",
        "aria-keyshortcuts": "Control+] Control+F6",
      }),
    );
    this._finder = h("form", { class: "finder", role: "search", hidden: true, onsubmit: (event) => event.preventDefault() });
    this._terminal = h("div", { class: "terminal-box" });
    this._message = h("div", { class: "message", hidden: true });
    this._end = new EndPanel(this);
    this._keys = new KeyBar({
      type: (text) => this.type(text),
      isApplication: () => this._screen?.terminal.modes.applicationCursorKeysMode ?? false,
    });
    this._status = new StatusLine(this.context, this.place, {
      reconnect: () => this._session?.reconnectNow(),
    });
    fill(
      this.element,
      this._head,
      h(
        "div",
        { class: "terminal-frame" },
        this._terminal,
        // Over the terminal: another size of it would be another size for the machine.
        h("div", { class: "overlays" }, this._finder, this._message),
        this._end.element,
      ),
      this._keys.element,
      this._status.element,
    );
    this.element.addEventListener("focusin", () => this._on.active());
    // Before xterm.js: it would send the text at once.
    this._terminal.addEventListener("paste", (event) => this._pasted(event), { capture: true });
    this._terminal.addEventListener("drop", (event) => event.preventDefault());
    buildFinder(this._finder, this);
  }

  async _start() {
    this._status.state("connecting", {});
    try {
      const loaded = await load();
      if (this._isClosed) return;
      this._screen = new Screen(loaded, {
        theme: this.context.theme,
        preferences: this.context.preferences,
        // The size before a reload: a console in a hidden tab must not get another one.
        size: this.place.size ?? [80, 24],
        typed: (bytes) => this._typed(this._keys.apply(bytes)),
        resized: (columns, rows) => {
          this.place.size = [columns, rows];
          this._on.keep();
          this._session?.resize(columns, rows);
          this._status.size(columns, rows);
        },
        key: (event) => this._on.key(event),
      });
      this._screen.open(this._terminal);
      if (this.isActive) this._screen.focus();
      await this.connect();
    } catch (problem) {
      this._end.showMissing(problem);
      this._status.state("ended", {});
    }
  }

  /** Open the session, or go on with the saved one. */
  async connect() {
    const { api, store } = this.context;
    const { namespace, name, mode, reason } = this.place;
    const saved = store.get(this._key);
    this._isRestored = saved !== null;
    this._replayed = saved ? Math.min(REPLAY_BYTES, saved.position.offset - saved.first.offset) : 0;
    this._wasOpen = false;
    this._recordings = null;
    this._early = [];
    const rights = await opening(this.context, namespace, name, mode);
    if (this._isClosed) return;
    this._rights = rights;
    // Another connection of a session has the path and the query of the first.
    const request = saved?.request ?? { path: rights.path, query: { ...rights.query, ...(reason && { reason }) } };
    this._request = request;
    const isReadOnly = request.query.readOnly === "true";
    this._roles = new Roles(isReadOnly);
    this._end.hide();
    this._first = new FirstScreen({
      read: () => this._readState(reason),
      show: (bytes, count) => this._screen.write(bytes, () => count && this._session?.taken(count)),
    });
    this._first.ask();
    this._status.begin(isReadOnly);
    this._session = new ConsoleSession({
      url: () => api.webSocketURL(request.path, request.query),
      protocols: () => {
        this._token = store.get("token");
        return api.webSocketProtocols(SUBPROTOCOL);
      },
      saved,
      keep: (kept) => {
        if (kept === null) store.remove(this._key);
        else store.set(this._key, { ...kept, request });
      },
      replayBytes: REPLAY_BYTES,
      explain: () => explain(api, request.path, request.query),
      on: {
        output: (bytes) => this._first.output(bytes),
        placed: (mark) => this._placed(mark),
        gap: (gap) => this._gap(gap),
        notice: (text) => this._notice(text),
        viewers: (viewers) => {
          this._status.viewers(viewers);
          const news = recordingNews(this._recordings, viewers.recordings);
          this._recordings = viewers.recordings ?? this._recordings;
          if (news) this._tell(news, "");
          if (!viewers.writer) this._roles.writer = null;
          this._showRole();
        },
        echo: (microseconds) => this._status.echo(microseconds),
        roundTrip: (milliseconds) => this._status.roundTrip(milliseconds),
        uncertain: (count) =>
          this._tell(`${count} ${count === 1 ? "key" : "keys"} may not have reached the machine.`, "warning"),
        state: (state, detail) => this._changed(state, detail),
      },
    });
    this._session.resize(this._screen.columns, this._screen.rows);
    this._showRole();
    const early = this._early;
    this._early = null;
    for (const bytes of early) this._typed(bytes);
  }

  async _readState(reason) {
    // Without this the browser's log has an error for each console.
    if (hasNoScreen(this.context, this.place)) return null;
    const size = `${this._screen.columns}x${this._screen.rows}`;
    return readScreen(this.context, this.place, { query: { as: "state", size, reason } });
  }

  // What the session says.

  _changed(state, detail) {
    if (this._isReplacing) return;
    if (state === "resumed" && this._replayed) {
      // The output of the former page comes again, so it was not missed.
      detail = { ...detail, missed: Math.max(0, detail.missed - this._replayed) };
      this._replayed = 0;
    }
    this._status.state(state, detail, this._session?.id ?? "");
    if (state === "open" && detail.resumable === false) this._first.cancel();
    if (state === "reconnecting" && detail.unauthorized) {
      // The answer may come after the user has logged in again.
      if (this._hasNewToken) this._session.reconnectNow();
      else this.context.api.dispatchEvent(new Event("unauthorized"));
    }
    const { announce } = this.context;
    const { name } = this.place;
    if (state === "reconnecting" && !this._isLost) announce(`${name}: connection lost, reconnecting`);
    if (state === "resumed") announce(`${name}: reconnected`);
    if (state === "open") {
      // A user of the keyboard cannot leave a terminal that gets all keys, and is told once how.
      announce(`${name}: connected${hasToldKeys ? "" : ". Control and ] leave the terminal and show all commands"}`);
      hasToldKeys = true;
    }
    this._isLost = state === "reconnecting";
    if (state === "open" || state === "resumed") this._wasOpen = true;
    if (state === "open" && this.place.mode === "takeover") {
      this.place.mode = "drive"; // another user may take over, and keeps the floor when this one opens again
      this._on.keep();
    }
    if (state === "ended") {
      this._first.cancel();
      if (this._isRestored && !this._wasOpen && isGone(detail)) {
        this._tell("The session before the reload is over; this is a new one.", "");
        this.reopen();
        return;
      }
      announce(`${name}: session ended. ${endText(detail)}`);
      this._end.show(detail, this._rights, this._status.isReadOnly);
      if (detail.reason === REVOKED) this._logInAgain();
    }
    this._showRole();
  }

  /** Whether the user has logged in after the last attempt to connect. */
  get _hasNewToken() {
    // There is none while the user is being asked for it; the event "authorized" follows.
    return ![null, this._token].includes(this.context.store.get("token"));
  }

  /** The server has withdrawn the session: if because of its token, open it again with the next one. */
  async _logInAgain() {
    const { api } = this.context;
    if (!this._hasNewToken) {
      // The answer to any request with this token; if it is 401, the page asks for another one.
      const refusal = await explain(api, this._request.path, this._request.query);
      if (this.isOpen || this._isClosed) return;
      if (refusal === null) {
        // Servers accept a token for some seconds after its end, and the local command renews credentials.
        const since = Date.now() - this._openedAgainAt;
        if (since > SHORTEST_SESSION_MS) this.reopen();
        this._openedAgainAt = Date.now();
        return;
      }
      if (refusal.code !== 401) return;
    }
    if (this._hasNewToken) this.reopen();
    else this._isLoggedOut = true;
  }

  _placed(mark) {
    this._first.placed(mark);
    this._status.position(() => this._session?.save()?.position?.offset ?? null);
  }

  _gap({ bytes, exact }) {
    const what = bytes === null ? "an unknown amount of output" : exact === false ? `about ${amount(bytes)}` : amount(bytes);
    // A mark in the output, and then the present screen: the former one is out of date.
    const mark = `\r\n\x1b[m[twisted-exec: ${what} skipped]\r\n`;
    this._screen.write(new TextEncoder().encode(mark));
    this._tell(`${what} skipped.`, "warning");
    this._first.ask();
  }

  _notice(text) {
    const shown = this._roles.read(text);
    this._tell(shown, "");
    this._showRole();
  }

  // What the user does.

  _typed(bytes) {
    if (this._early) {
      if (this._early.length < MOST_EARLY) this._early.push(bytes);
    } else if (this._session?.isFull) this._tell("The connection is slow: this key was not accepted.", "warning");
    else this._session?.send(bytes);
  }

  _pasted(event) {
    event.preventDefault();
    event.stopPropagation();
    this.pasteText(event.clipboardData?.getData("text/plain") ?? "");
  }

  async pasteText(text) {
    const paste = examine(text);
    if (!paste.text) return;
    if (paste.asks && !(await confirmPaste(this.place.name, paste))) {
      this.focus();
      return;
    }
    this._typed(encode(paste.text, this._screen.isBracketed));
    this.focus();
  }

  async paste() {
    try {
      await this.pasteText(await navigator.clipboard.readText());
    } catch {
      this._tell("The browser does not give the page the clipboard: press Ctrl Shift V instead.", "warning");
    }
  }

  async copy() {
    const text = this._screen?.selection ?? "";
    if (!text) {
      this._tell("Nothing is selected: select text with the mouse, or find it.", "");
      return;
    }
    try {
      await navigator.clipboard.writeText(text);
      this._tell(`${amount(new TextEncoder().encode(text).length)} copied.`, "");
    } catch {
      this._tell("The browser refuses to copy: use its menu instead.", "warning");
    }
    this.focus();
  }

  /** Show who is connected, and how fast the session is. */
  async showDetails() {
    await this._status.showDetails();
    this.focus();
  }

  find() {
    this._finder.hidden = false;
    const input = this._finder.querySelector("input");
    input.value = this._screen?.selection.split("\n")[0] || input.value;
    input.focus();
    input.select();
  }

  endFind() {
    this._finder.hidden = true;
    this._screen?.endFind();
    this.focus();
  }

  /** Take over, or become an observer. */
  changeRole(role = this._roles.isObserver ? "drive" : "observe") {
    // A session that was opened to observe only never gets input: another one takes its place.
    if (this._status.isReadOnly && role === "drive") this.reopen({ mode: "drive" });
    else this._session?.role(role);
    this.focus();
  }

  sendBreak() {
    this._session?.sendBreak();
    this._tell("BREAK sent.", "");
    this.focus();
  }

  async sysrq() {
    const letter = await chooseSysrq(this.place.name);
    if (letter) {
      this._session?.sysrq(letter);
      this._tell(`SysRq ${letter} sent.`, "");
    }
    this.focus();
  }

  type(text) {
    this._typed(new TextEncoder().encode(text));
    this.focus();
  }

  /** Type the command that tells a machine with a serial line the size of this terminal. */
  typeSize() {
    this.type(`stty cols ${this._screen.columns} rows ${this._screen.rows}\r`);
  }

  changeFontSize(step) {
    this._screen?.changeFontSize(step);
    this.focus();
  }

  toggleScreenReader() {
    const on = this._screen?.toggleScreenReader();
    this._tell(on ? "Screen reader mode is on: output is read aloud." : "Screen reader mode is off.", "");
    this.focus();
  }

  /** Open the session again, with another reason or mode. */
  reopen(changes = {}) {
    this._isLoggedOut = false;
    this._isReplacing = this.isOpen;
    if (this.isOpen) this._session.leave();
    this._isReplacing = false;
    Object.assign(this.place, changes);
    this._on.keep();
    this.context.store.remove(this._key);
    this.connect().catch((problem) => this._tell(problem.message, "error"));
    if (this.isActive) this._screen?.focus();
  }

  // What the user sees.

  /** Whether commands for the writer make sense. */
  get drives() {
    return this.isOpen && !this._roles.isObserver;
  }

  get isObserver() {
    return this._roles.isObserver;
  }

  get mayTakeOver() {
    if (!this.isOpen) return false;
    if (this._status.isReadOnly) return this._rights.mayType;
    const isFree = this._roles.writer === null && this._rights.drives;
    return this._rights.takesOver || isFree;
  }

  _showRole() {
    const { isObserver, isDenied, writer } = this._roles;
    this._status.role(this._roles);
    const { isReadOnly } = this._status;
    const typeHere = isReadOnly || writer === null ? "Type here" : "Take over";
    this._role.hidden = !this.isOpen || isDenied || (isReadOnly && !this.mayTakeOver);
    this._role.textContent = isObserver ? typeHere : "Observe only";
    this._role.classList.toggle("primary", isObserver);
    this._role.disabled = isObserver && !this.mayTakeOver;
    this._role.title = isReadOnly ? "This console was opened to observe only: open it to type." : "";
    if (this._role.disabled) {
      this._role.title = "You need the verb takeover on machines/console to take this console from its writer.";
    }
  }

  /** Show a message over the terminal, and let screen readers say it; warnings stay until dismissed. */
  _tell(text, kind) {
    fill(
      this._message,
      h("span", {}, printable(text)),
      button("×", () => this._hideMessage(), { class: "quiet icon", "aria-label": "Dismiss this message" }),
    );
    this._message.className = `message ${kind}`;
    this._message.hidden = false;
    clearTimeout(this._messageTimer);
    if (!kind) this._messageTimer = setTimeout(() => (this._message.hidden = true), MESSAGE_MILLISECONDS);
    this.context.announce(`${this.place.name}: ${text}`);
  }

  _hideMessage() {
    this._message.hidden = true;
    this.focus();
  }
}

/**
 * Whether the server has lost a session, or cannot resume it, so that a new one may begin.
 *
 * @param {{reason: string, code: number}} end of the session; a proxy answers with a code alone
 */
export function isGone({ reason, code }) {
  return reason === "CannotResume" || reason === "NotFound" || code === 404;
}
