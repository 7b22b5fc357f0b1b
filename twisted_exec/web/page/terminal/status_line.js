/** The line below a terminal: state of the connection, roles, recordings and viewers, speed and position. */

import { ask } from "../dialogs.js";
import { button, fill, h, printable } from "../dom.js";
import { qualifiedName } from "../machines.js";
import { presentText, recordedFor, writerText } from "./texts.js";

const TICK_MILLISECONDS = 1000;
const NAMES_MILLISECONDS = 700; // the object of a session appears a moment after it
const SPEED =
  "Echo: from a key at the runtime to the machine's next output. Round trip: from this page to the runtime and back.";

export class StatusLine {
  isReadOnly = false;

  constructor(context, place, { reconnect }) {
    this._context = context;
    this._place = place;
    this._state = { name: "connecting", detail: {}, at: Date.now() };
    this._facts = {};
    this._offset = () => null;
    this._session = "";
    this._stateText = h("span", { class: "badge waiting" });
    this._reconnect = button("Reconnect now", reconnect, { class: "small", hidden: true });
    this._roleText = h("span", { class: "role-text" });
    this._viewers = button("", () => this.showDetails(), {
      class: "quiet small viewers",
      title: "Sessions at this console, with this one, and their users",
      hidden: true,
    });
    this._recordedFor = h("span", { class: "recorded-for" });
    this._recorded = button(["recorded", this._recordedFor], () => this.showDetails(), {
      class: "quiet small recorded",
      title: "What the machine prints is kept; of what is typed: nothing (none), what the machine echoes (masked), or all",
      hidden: true,
    });
    this._names = h("span", { class: "names" });
    this._speed = h("span", { class: "speed dim", title: SPEED });
    this._position = h("span", { class: "offset dim", title: "How much the machine has printed, as its log counts" });
    this._details = button("Details", () => this.showDetails(), { class: "quiet small" });
    this.element = h(
      "footer",
      { class: "status-line" },
      this._stateText,
      this._reconnect,
      this._roleText,
      this._recorded,
      this._viewers,
      h("span", { class: "grow" }),
      this._speed,
      this._position,
      this._details,
    );
    this._timer = setInterval(() => this._draw(), TICK_MILLISECONDS);
  }

  stop() {
    clearInterval(this._timer);
    clearTimeout(this._namesTimer);
  }

  /** A new session begins. */
  begin(isReadOnly) {
    this.isReadOnly = isReadOnly;
    this._facts = { columns: this._facts.columns, rows: this._facts.rows };
    this._offset = () => null;
  }

  state(name, detail, session = "") {
    this._state = { name, detail, at: Date.now() };
    this._session = session || this._session;
    this._reconnect.hidden = name !== "reconnecting";
    if (name === "ended") this._viewers.hidden = this._recorded.hidden = true;
    this._draw();
  }

  role({ isObserver, isDenied, writer }) {
    const open = ["open", "resumed", "reconnecting"].includes(this._state.name);
    let text = isObserver ? "observing" : "you can type";
    if (isDenied) text = "observing (no right to type)";
    else if (isObserver && writer) text = `observing; the writer is ${printable(writer)}`;
    else if (isObserver && writer === null) text = "observing; nobody types";
    this._roleText.textContent = open ? text : "";
  }

  viewers(viewers) {
    this._facts.viewers = { ...viewers, at: Date.now() };
    this._viewers.hidden = false;
    this._recorded.hidden = !viewers.recordings?.length;
    this._recordedFor.textContent = `for ${printable(recordedFor(viewers.recordings ?? []))}`;
    const count = viewers.count === 1 ? "1 viewer" : `${viewers.count} viewers`;
    fill(this._viewers, count, this._names);
    clearTimeout(this._namesTimer);
    this._namesTimer = setTimeout(() => this._nameViewers(), NAMES_MILLISECONDS);
  }

  echo(microseconds) {
    this._facts.echo = microseconds;
    this._draw();
  }

  roundTrip(milliseconds) {
    this._facts.roundTrip = milliseconds;
    this._draw();
  }

  size(columns, rows) {
    Object.assign(this._facts, { columns, rows });
  }

  /** @param {() => number|null} offset of the next output */
  position(offset) {
    this._offset = offset;
    this._draw();
  }

  async _nameViewers() {
    const names = await this._people().catch(() => null);
    if (!names?.length || this._viewers.hidden) return;
    const shown = names.map(({ user }) => printable(user));
    this._names.textContent = `: ${[...new Set(shown)].join(", ")}`;
  }

  /** Return the users of all sessions at this console; fails without the right to list them. */
  async _people() {
    const { api, machines } = this._context;
    const { namespace } = this._place;
    const { name, kind } = machines.parse(this._place.name);
    const path = `/apis/console.twisted-exec.dev/v1alpha1/namespaces/${encodeURIComponent(namespace)}/consolesessions`;
    const { items } = await api.list(path, { query: { fieldSelector: `spec.machine=${name}` } });
    const resource = qualifiedName(kind);
    return items
      .filter(({ spec }) => !spec.machineResource || spec.machineResource === resource)
      .map(({ spec, status = {} }) => ({
        user: spec.user ?? "",
        isOwn: Boolean(spec.session) && spec.session === this._session,
        role: status.role ?? "",
        address: spec.address ?? "",
        away: status.awaySince ?? "",
      }));
  }

  async showDetails() {
    const { viewers, echo, roundTrip, columns, rows } = this._facts;
    const people = await this._people().catch((problem) => problem);
    const offset = this._offset();
    const facts = [
      ["State", presentText(this._state, Date.now()).text],
      ["Session", this._session || "unknown"],
      ["Writer", writerText(viewers, Date.now())],
      ["Viewers", viewers ? String(viewers.count) : "unknown"],
      ...(viewers?.recordings ? [["Recorded", viewers.recordings.length ? `for ${recordedFor(viewers.recordings)}` : "no"]] : []),
      ["Echo", echo === undefined ? "not measured yet" : `${(echo / 1000).toFixed(1)} ms from the machine`],
      ["Round trip", roundTrip === undefined ? "not measured yet" : `${roundTrip} ms to the runtime and back`],
      ["Output", offset === null ? "unknown" : `at byte ${offset}`],
      ["Terminal", `${columns} columns, ${rows} rows`],
    ];
    await ask(`Console of ${printable(this._place.name)}`, (close) =>
      h(
        "div",
        { class: "stack" },
        h("dl", { class: "facts" }, facts.map(([label, value]) => [h("dt", {}, label), h("dd", {}, printable(value))])),
        h("h3", {}, "People"),
        Array.isArray(people) ? peopleTable(people) : h("p", { class: "dim" }, `Names are not shown: ${printable(people.message)}`),
        h("div", { class: "actions" }, button("Close", () => close(null), { class: "primary", autofocus: true })),
      ),
    );
  }

  _draw() {
    const { name } = this._state;
    const { kind, text } = presentText(this._state, Date.now());
    if (this._stateText.textContent !== text) this._stateText.textContent = text;
    this._stateText.className = `badge ${kind}`;
    const { echo, roundTrip } = this._facts;
    const speeds = [
      echo === undefined ? null : `echo ${(echo / 1000).toFixed(1)} ms`,
      roundTrip === undefined ? null : `round trip ${roundTrip} ms`,
    ];
    const open = name === "open" || name === "resumed";
    this._speed.textContent = open ? speeds.filter(Boolean).join(" · ") : "";
    const offset = this._offset();
    this._position.textContent = offset === null ? "" : `byte ${offset}`;
  }
}

function peopleTable(people) {
  if (!people.length) return h("p", { class: "dim" }, "No session is listed yet.");
  return h(
    "table",
    { class: "list" },
    h("thead", {}, h("tr", {}, ["User", "Role", "From"].map((label) => h("th", { scope: "col" }, label)))),
    h(
      "tbody",
      {},
      people.map(({ user, isOwn, role, address, away }) =>
        h(
          "tr",
          {},
          h("td", {}, printable(user) + (isOwn ? " (this console)" : "")),
          h("td", {}, role + (away ? " (connection lost)" : "")),
          h("td", { class: "mono" }, printable(address)),
        ),
      ),
    ),
  );
}
