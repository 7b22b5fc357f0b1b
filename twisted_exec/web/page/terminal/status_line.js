/** The line below a terminal: state of the connection, roles, recordings and viewers, and speed. */

import { causesOf, withoutRemedy } from "../details.js";
import { ask } from "../dialogs.js";
import { button, fill, h, printable, renew } from "../dom.js";
import { qualifiedName } from "../machines.js";
import { Objects, listPath } from "../objects.js";
import { minute } from "../times.js";
import { askFor, silenceText, skeleton } from "../views/parts.js";
import { rowOf } from "../views/request_model.js";
import { Company, MOST_TOLD } from "./company.js";
import { amount, causeText, isAway, isBackNow, isOpeningAgain, othersText, presentText, recordedFor, roleText, sentence, unansweredText, viewerCount, viewerNames, waitingText, withRoles, writerText } from "./texts.js";

const TICK_MILLISECONDS = 1000;
const NAMES_MILLISECONDS = 700; // the object of a session appears a moment after it
const LOOKS = 5; // at the list, beside the first
const MOST_BESIDE_VIEWERS = 32; // characters about the role, on a phone
const DOCTOR = "twisted-exec doctor";
const VIEWERS = "Sessions at this console, with this one, and their users; lost: a user whose connection is lost may come back";
const SPEED =
  "Echo: from a key at the runtime to the machine's next output. Round trip: from this page to the runtime and back.";

export class StatusLine {
  #context;
  #place;
  #state;
  #waiting;
  #isPowerOffered = false;
  /** @type {{roles: any, mayType: boolean, refusal: string}} */
  #role = { roles: { isObserver: false, withheld: "" }, mayType: true, refusal: "" };
  #facts;
  /** @type {() => number | null} */
  #offset;
  #session;
  #stateText;
  #machineText;
  #powerOn;
  #roleText = h("span", { class: "role-text" });
  #larger = h("span", { class: "larger dim", hidden: true });
  #viewers;
  #recordedFor;
  #recorded;
  #names;
  #news;
  #messages;
  #company = new Company();
  /** @type {any[] | null} the sessions at the console, as the server has listed them last. */
  #named = null;
  #speed;
  #details;
  /** Over the terminal, where the eye is, while its output is old: the line below says nothing of it. */
  outage = h("div", { class: "outage", hidden: true, role: "group", "aria-label": "Connection" });
  #outageText = h("span");
  #reconnect;
  #away;
  #timer;
  #namesTimer;
  #drawDetails = () => {}; // while the user sees them

  isReadOnly = false;

  /**
   * @param {object} context of the page
   * @param {{namespace: string, name: string}} place
   * @param {object} on `reconnect()`: at once; `powerOn()` the machine; `waiting()` returns the number of keys that are
   *     not confirmed; `news(text)`: users have joined or left; `messages()` returns the last ones; `away(isAway)`: the output in sight is old, or no longer
   */
  constructor(context, place, { reconnect, powerOn, waiting, news, messages, away }) {
    this.#away = away;
    this.#context = context;
    this.#place = place;
    this.#waiting = waiting;
    this.#news = news;
    this.#messages = messages;
    this.#state = { name: "connecting", detail: {}, at: Date.now(), silentSince: null };
    this.#facts = {};
    this.#offset = () => null;
    this.#session = "";
    this.#stateText = h("span", { class: "badge waiting" });
    this.#reconnect = button("Try now", reconnect, { class: "small", hidden: true });
    fill(this.outage, this.#outageText, this.#reconnect);
    this.#machineText = h("span", { class: "badge waiting", hidden: true });
    this.#powerOn = button("Power on", powerOn, { class: "small power-on", hidden: true });
    this.#viewers = button("", () => this.showDetails(), {
      class: "quiet small viewers",
      title: VIEWERS,
      hidden: true,
    });
    this.#recordedFor = h("span", { class: "recorded-for" });
    this.#recorded = button(["Recorded", this.#recordedFor], () => this.showDetails(), {
      class: "quiet small recorded",
      title: "What the machine prints is kept; of what is typed: nothing (none), what the machine echoes (masked), or all",
      hidden: true,
    });
    this.#names = h("span", { class: "names" });
    this.#speed = h("span", { class: "speed dim", title: SPEED });
    this.#details = button("Details", () => this.showDetails(), { class: "quiet small details-button" });
    this.element = h(
      "footer",
      { class: "status-line" },
      this.#stateText,
      this.#machineText,
      this.#powerOn,
      this.#roleText,
      this.#larger,
      this.#recorded,
      this.#viewers,
      h("span", { class: "grow" }),
      this.#speed,
      this.#details,
    );
    this.#timer = setInterval(() => this.#draw(), TICK_MILLISECONDS);
  }

  stop() {
    clearInterval(this.#timer);
    clearTimeout(this.#namesTimer);
  }

  /** A new session begins. */
  begin(isReadOnly) {
    this.isReadOnly = isReadOnly;
    this.#company = new Company();
    this.#named = null;
    this.#facts = { columns: this.#facts.columns, rows: this.#facts.rows };
    this.#offset = () => null;
  }

  state(name, detail, session = "") {
    this.#state = { name, detail, at: Date.now(), silentSince: null };
    this.#session = session || this.#session;
    this.#draw();
  }

  /** The server does not answer since then; null: it does again. */
  quiet(silentSince) {
    this.#state.silentSince = silentSince;
    this.#draw();
  }

  /**
   * @param {any} roles
   * @param {boolean} mayType
   * @param {string} [refusal] why the user may not take over; empty if that is not so, or not the point
   */
  role(roles, mayType, refusal = "") {
    this.#role = { roles, mayType, refusal };
    this.#draw();
  }

  /**
   * @param {{state: string, problem: string, isOff: boolean}|null} machine null: unknown
   * @param {boolean} [maySwitch] whether the user may power it on and off
   */
  machine(machine, maySwitch = false) {
    const isStopped = machine !== null && machine.state !== "Running";
    this.#machineText.textContent = isStopped ? `Machine: ${printable(machine.state)}` : "";
    this.#machineText.title = printable(machine?.problem ?? "");
    this.#isPowerOffered = isStopped && machine.isOff && maySwitch;
    this.#draw();
  }

  viewers(viewers) {
    this.#facts.viewers = { ...viewers, at: Date.now() };
    this.#recordedFor.textContent = `for ${printable(recordedFor(viewers.recordings ?? []))}`;
    this.#company.begin(viewers.count);
    this.#drawNames();
    this.#draw();
    this.#nameLater(LOOKS);
  }

  /** Take note of a notice about other users. */
  heard(text) {
    this.#company.heard(text);
  }

  /** The sessions at the console, as the server said last. */
  get viewersNow() {
    return this.#facts.viewers ?? { count: 1 };
  }

  /** Which other users are at the console, as {@link othersText} says. */
  get others() {
    return othersText(this.viewersNow, this.#isNamed ? this.#named : null);
  }

  /** The longest message to all viewers; 0 if the console passes none on. */
  get longestMessage() {
    return this.#facts.viewers?.message ?? 0;
  }

  /** The name of the user who types, as the server said last; empty if nobody does, or if it is unknown. */
  get writer() {
    return this.#facts.viewers?.writer ?? "";
  }

  echo(microseconds) {
    this.#facts.echo = microseconds;
    this.#draw();
  }

  roundTrip(milliseconds) {
    this.#facts.roundTrip = milliseconds;
    this.#draw();
  }

  size(columns, rows) {
    Object.assign(this.#facts, { columns, rows });
  }

  /**
   * The window of another user for which a program draws is larger.
   *
   * @param {{size: string, text: string}} larger its size, such as `167x41`, and what the user reads of it; empty: it is not
   */
  larger({ size, text }) {
    this.#larger.textContent = size;
    this.#larger.title = printable(text);
    this.#larger.hidden = !size;
  }

  /** @param {() => number|null} offset of the next output */
  position(offset) {
    this.#offset = offset;
  }

  /** Not all pages of a console ask at the same time. */
  #nameLater(attempts, milliseconds = NAMES_MILLISECONDS * (1 + Math.random())) {
    clearTimeout(this.#namesTimer);
    this.#namesTimer = setTimeout(() => this.#nameViewers(attempts), milliseconds);
  }

  /** @param {number} attempts how often to look again: the list follows some seconds behind an end or a loss */
  async #nameViewers(attempts) {
    if (this.#viewers.hidden) return; // another look follows when it is shown
    const count = this.#facts.viewers?.count ?? 0;
    const isCrowd = count > MOST_TOLD; // each of its pages would list all of them at each change
    const names = isCrowd ? null : await this.#people().catch(() => null);
    if (this.#viewers.hidden || count !== this.#facts.viewers?.count) return; // another look follows
    this.#named = names;
    const isCounted = !names || names.length === count;
    if (attempts && names && !this.#isNamed) this.#nameLater(attempts - 1, 5 * NAMES_MILLISECONDS);
    const news = isCounted || !attempts ? this.#company.news(count, names, this.#facts.viewers?.lost) : "";
    if (news) this.#news(news);
    this.#drawNames();
  }

  /** Whether the list of sessions agrees with the number that the runtime says: one of them may be older. */
  get #isNamed() {
    const { count, lost = 0 } = this.viewersNow;
    const named = this.#named ?? [];
    return named.length === count && named.filter(({ away }) => away).length === lost;
  }

  #drawNames() {
    const text = this.#isNamed ? viewerNames(this.#named).map(printable).join(", ") : "";
    this.#names.textContent = text && `: ${text}`;
    fill(this.#viewers, viewerCount(this.viewersNow), this.#names);
    this.#viewers.title = text || VIEWERS;
  }

  /** The list of the sessions at this console, with the query and the test of an object in it. */
  get #sessions() {
    const { machines } = this.#context;
    const { name, kind } = machines.parse(this.#place.name);
    const resource = qualifiedName(kind);
    return {
      path: listPath("consolesessions", this.#place.namespace),
      query: { fieldSelector: `spec.machine=${name}` },
      isHere: ({ spec }) => !spec.machineResource || spec.machineResource === resource,
    };
  }

  /**
   * Return the users of all sessions at this console; fails without the right to list them.
   *
   * @returns {Promise<any>}
   */
  async #people() {
    const { path, query, isHere } = this.#sessions;
    const { items } = await this.#context.api.list(path, { query });
    return this.#peopleOf(items.filter(isHere));
  }

  /** @param {any[]} sessions */
  #peopleOf(sessions) {
    return sessions
      .map(({ spec, status = {} }) => ({
        user: nameOf(spec),
        isOwn: Boolean(spec.session) && spec.session === this.#session,
        role: status.role ?? "",
        address: spec.address ?? "",
        away: status.awaySince ?? "",
      }))
      .sort((one, other) => Number(other.isOwn) - Number(one.isOwn) || one.user.localeCompare(other.user));
  }

  /** Show who is here and how the session is, as it changes, until the user closes it. */
  async showDetails() {
    const { path, query, isHere } = this.#sessions;
    const leaving = new AbortController();
    const sessions = new Objects(isHere);
    const requests = new Objects(({ spec }) => isHere({ spec }) && spec.user === this.#context.user);
    const asking = new AbortController();
    const facts = h("dl", { class: "facts" });
    const debug = h("dl", { class: "facts" });
    const people = h("div", {}, skeleton(2));
    const messages = h("dl", { class: "facts" });
    const said = h("div");
    /** @type {any} */
    let problem = null;
    this.#drawDetails = () => {
      drawFacts(facts, [...this.#presentFacts, ...this.#approvalFacts(requests.all)]);
      drawFacts(debug, this.#debugFacts);
      const last = this.#messages();
      if (last.length && !said.firstChild) fill(said, h("h3", {}, "Last messages"), messages);
      drawFacts(messages, last.map(({ text, at }) => [minute(at, Date.now()), text]));
      if (problem) renew(people, [this.#nameless(problem)]);
      else if (sessions.isKnown) renew(people, [peopleTable(withRoles(this.#peopleOf(sessions.all), this.#role.roles.isObserver))]);
    };
    const onEvent = (event) => {
      sessions.apply(event);
      this.#drawDetails();
    };
    const onProblem = (error) => {
      problem = error;
      if (error?.code === 403) leaving.abort();
      this.#drawDetails();
    };
    this.#context.api.watch(path, onEvent, { query, signal: leaving.signal, onProblem });
    const onRequest = (event) => {
      requests.apply(event);
      this.#drawDetails();
    };
    const isRefused = (error) => error?.code === 403 || error?.code === 404; // the details do without
    this.#context.api.watch(listPath("consolerequests", this.#place.namespace), onRequest, { query, signal: asking.signal, onProblem: (error) => isRefused(error) && asking.abort() });
    this.#drawDetails();
    await ask(`Console of ${printable(this.#place.name)}`, (close) =>
      h(
        "div",
        { class: "stack" },
        facts,
        h("h3", {}, "People"),
        people,
        said,
        h("details", {}, h("summary", {}, "Debug"), debug),
        h("div", { class: "actions" }, button("Close", () => close(null), { class: "primary", autofocus: true })),
      ),
    );
    leaving.abort();
    asking.abort();
    this.#drawDetails = () => {};
  }

  /** Why the people at the console are not shown: first what the user can do, then the words of the server. */
  #nameless({ code, message, status }) {
    if (code !== 403) return h("p", { class: "dim" }, `Names are not shown: ${printable(message)}`);
    const advice = `Names are not shown: you may not list sessions. ${askFor("console-session-reader", this.#place.namespace)}`;
    return h("div", {}, h("p", {}, advice), h("p", { class: "dim" }, printable(withoutRemedy(message, causesOf(status)))));
  }

  get #presentFacts() {
    const { viewers } = this.#facts;
    const facts = [["State", presentText(this.#state, Date.now()).text]];
    const { missed } = this.#state.detail;
    const { text, detail } = causeText(this.#state.detail);
    if (text) facts.push(["Cause", detail || text]);
    if (missed) facts.push(["Output", `${amount(missed)} followed after the reconnection`]);
    if (this.#isOpen) {
      facts.push(["Typing", writerText(viewers, Date.now(), this.#role.roles)], ["Viewers", viewers ? viewerCount(viewers).replace(/ viewers?/, "") : "Unknown"]);
      if (this.#role.refusal) facts.push(["Take over", this.#role.refusal]);
      if (viewers?.recordings) facts.push(["Recorded", viewers.recordings.length ? `For ${recordedFor(viewers.recordings)}` : "No"]);
    }
    return facts;
  }

  /** The approvals with which the session goes on. */
  #approvalFacts(requests) {
    const isOurs = ({ status }) => !status?.session || status.session === this.#session;
    const rows = requests.filter(isOurs).map((each) => rowOf(each, Date.now(), this.#context.user));
    const inUse = rows.filter(({ state }) => this.#isOpen && ["Approved", "Used"].includes(state));
    return inUse.map(({ decision }) => ["Approval", sentence(`${decision[0].toUpperCase()}${decision.slice(1)}`)]);
  }

  get #debugFacts() {
    const { echo, roundTrip, columns, rows } = this.#facts;
    const offset = this.#offset();
    return [
      ["Session", this.#session || "Unknown"],
      ["Echo", echo === undefined ? "Not measured yet" : `${(echo / 1000).toFixed(1)} ms from the machine`],
      ["Round trip", roundTrip === undefined ? "Not measured yet" : `${roundTrip} ms to the runtime and back`],
      ["Output", offset === null ? "Unknown" : `At offset ${offset}, as in the log`],
      ["Terminal", `${columns} columns, ${rows} rows`],
    ];
  }

  #draw() {
    const { kind, text } = presentText(this.#state, Date.now());
    if (this.#stateText.textContent !== text) this.#stateText.textContent = this.#stateText.title = text;
    this.#stateText.className = `badge ${kind} ${text === "Connected" ? "open" : ""}`;
    this.#stateText.hidden = isAway(this.#state, Date.now());
    this.#reconnect.hidden = this.#state.detail.since === undefined;
    this.#drawPeople();
    this.#drawOutage(kind, text);
    this.#drawDetails();
    // Where there is little room the styles depend on what is news: if all is good, only the role.
    const isStopped = this.#machineText.textContent !== "";
    const { isObserver, withheld } = this.#role.roles;
    const { name } = this.#state;
    const others = { ended: name === "ended", resumed: isBackNow(this.#state, Date.now()), withheld: this.#isAnswering && !isStopped && !isObserver && withheld !== "", wordy: (this.#roleText.textContent ?? "").length > MOST_BESIDE_VIEWERS };
    this.element.className = ["status-line", isStopped && kind === "good" ? "stopped" : kind, ...Object.keys(others).filter((each) => others[each])].join(" ");
    const { echo, roundTrip } = this.#facts;
    const speeds = [
      echo === undefined ? null : `Echo ${(echo / 1000).toFixed(1)} ms`,
      roundTrip === undefined ? null : `round trip ${roundTrip} ms`,
    ];
    this.#speed.textContent = this.#isAnswering ? speeds.filter(Boolean).join(" · ") : "";
  }

  get #isOpen() {
    return ["open", "resumed"].includes(this.#state.name);
  }

  /** Whether the session is open and the server answers: what the page knows of others, and of the speed, is current. */
  get #isAnswering() {
    return this.#isOpen && this.#state.silentSince === null;
  }

  #drawOutage(kind, text) {
    const isNow = isAway(this.#state, Date.now());
    const hasChanged = this.outage.hidden === isNow;
    const keys = this.#roleText.hidden ? "" : this.#roleText.textContent;
    const { detail } = this.#state;
    const isUnanswered = isOpeningAgain(this.#state) && !detail.code && silenceText(Date.now() - detail.since) !== "";
    // Without a message the first attempt goes on: nothing has refused it.
    const cause = isUnanswered ? unansweredText({ isSilent: !detail.message, ...detail }, this.#context.api.unreachable) : causeText(detail).text;
    const said = [text, cause, detail.advice, keys].filter(Boolean).map((each) => sentence(each)).join(" ");
    if (isNow && this.#outageText.textContent !== said) this.#outageText.textContent = said;
    this.outage.classList.toggle("error", kind === "bad");
    this.outage.classList.toggle("warning", kind !== "bad");
    this.outage.hidden = !isNow;
    if (hasChanged) this.#away(isNow);
  }

  /** Who types, and who else is there: in an outage nobody knows, but the page knows what becomes of keys. */
  #drawPeople() {
    const { viewers } = this.#facts;
    const { roles, mayType } = this.#role;
    const isStopped = this.#machineText.textContent !== "";
    const wasHidden = this.#viewers.hidden;
    this.#viewers.hidden = !this.#isAnswering || !viewers;
    if (wasHidden && !this.#viewers.hidden) this.#nameLater(LOOKS);
    this.#recorded.hidden = !this.#isOpen || !viewers?.recordings?.length;
    this.#machineText.hidden = !isStopped || this.#state.name === "ended";
    this.#powerOn.hidden = !(this.#isAnswering && this.#isPowerOffered);
    this.#roleText.hidden = isStopped; // nothing reads what is typed
    const waiting = roles.isObserver ? "" : waitingText(this.#state, this.#waiting(), Date.now());
    const role = this.#isAnswering ? printable(roleText(roles, { mayType, isReadOnly: this.isReadOnly })) : "";
    if (this.#roleText.textContent !== (waiting || role)) this.#roleText.textContent = waiting || role;
    this.#roleText.title = printable(roles.withheld) || this.#roleText.textContent;
  }
}

/** Return the name of a session's user; that of a check names the user, too, because a client may give any agent. */
function nameOf({ user = "", agent }) {
  return agent === DOCTOR ? `${DOCTOR} of ${user}` : user;
}

/** Draw facts into a list; those that stay keep what the user has selected in them. */
function drawFacts(list, facts) {
  const parts = facts.flatMap(([label, value]) => [h("dt", {}, label), h("dd", {}, printable(value))]);
  if (list.children.length === parts.length) renew(list, parts);
  else fill(list, parts);
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
