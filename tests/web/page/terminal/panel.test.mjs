/** The panel over a terminal, in a document in memory. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Machines } from "../../../../twisted_exec/web/page/machines.js";
import { machineLink } from "../../../../twisted_exec/web/page/routes.js";
import { Panel } from "../../../../twisted_exec/web/page/terminal/panel.js";
import { install } from "../dom.mjs";
import { turn } from "../fakes.mjs";

install();

const KIND = { group: "compute.ironcore.dev", version: "v1alpha1", plural: "machines", subresources: ["log", "screen"] };
const OFF = { state: "Shutdown", problem: "powered off", runs: false, isOff: true };
const RUNNING = { state: "Running", problem: "", runs: true, isOff: false };
const DELETED = { reason: "MachineDeleted", code: 0, message: 'machine "vm" was deleted' };
const MISSING = { reason: "NotFound", code: 404, message: 'machines "vm" not found', kind: "machines" };

/** A server with machines. */
const listing = (names) => ({
  unreachable: "the server cannot be reached",
  dispatchEvent: () => true,
  request: async (path, { query }) => {
    const { fieldSelector = "" } = query;
    const all = names.map(([namespace, name]) => ({ metadata: { namespace, name } }));
    const isThere = ({ metadata }) => (path.includes("/namespaces/") ? metadata.namespace === "default" : fieldSelector.endsWith(`=${metadata.name}`));
    return { items: all.filter(isThere) };
  },
});

function panel(ending, { machine = null, readable = ["log", "screen"], names = [] } = {}) {
  const opened = [];
  const powered = [];
  const announced = [];
  const owner = {
    context: { machines: new Machines([KIND]), link: machineLink, config: { cluster: "garden" }, api: listing(names), announce: (text) => announced.push(text) },
    place: { namespace: "default", name: "vm" },
    isActive: true,
    isEmpty: true,
    machine,
    acts: {
      maySwitch: machine !== null,
      setPower: async (power) => {
        powered.push(power);
        owner.acts.switched = power;
      },
      switched: "",
      isResetting: false,
    },
    mayRead: async (part, isDeleted = false) => readable.includes(isDeleted ? "deleted" : part),
    connectNow: () => powered.push("now"),
    reopen: (changes) => opened.push(changes),
    focus: () => {},
    waitsForApproval: () => {},
    isInSight: true,
    decided: () => (owner.decisions += 1),
    decisions: 0,
    untilOpenable: () => new Promise((resolve) => (owner.allow = resolve)),
    openingWith: (reason) => ({ path: "/exec", query: { reason } }),
  };
  const made = new Panel(owner);
  if (ending) made.show(ending, { drives: true }, false);
  const labels = () => [...made.element.all("button"), ...made.element.all("a")].filter((each) => !each.hidden).map((each) => each.text);
  const primary = () => made.element.all("button").filter((each) => !each.hidden && each.class.includes("primary")).map((each) => each.text);
  return { made, owner, opened, powered, announced, labels, primary };
}

test("a console whose machine is off shows why, leads to its log and screen, and opens when it starts", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { made, owner, opened, labels } = panel({ reason: "PoweredOff", code: 0, message: 'machine "vm" was powered off' });
  assert.ok(made.followsMachine);
  assert.match(made.element.text, /not runningIt was powered off\./);
  assert.deepEqual(labels(), ["Open again", "Log", "Screen"]);
  made.follow(OFF, false);
  assert.deepEqual(labels(), ["Log", "Screen"]);
  const seen = () => made.element.all("p").filter((each) => !each.hidden).map((each) => each.text).join(" ");
  assert.match(seen(), /^It is powered off\. .*opens as soon as.*may not power it on; users with the role “edit”/);
  owner.acts.switched = "Off";
  made.follow(OFF, false);
  assert.match(seen(), /^You have powered it off\. This console opens/);
  for (let each = 0; each < 2; each += 1) {
    made.follow({ ...OFF, isOff: false, problem: "powered off, as spec.power says" }, false); // it is powered on
    assert.equal(seen(), "This console opens as soon as the machine runs.");
    assert.equal(made.element.all("h3")[0].text, "The machine is starting");
  }
  made.follow({ ...OFF, isOff: false, problem: "" }, false); // it has switched itself off meanwhile
  assert.equal(made.element.all("h3")[0].text, "The machine is not running");
  assert.match(seen(), /It was powered off\. Shutdown\. .*starts when it is powered off and then on/);
  made.follow(RUNNING, true);
  assert.equal(made.element.all("h3")[0].text, "The machine is running");
  t.mock.timers.tick(2000);
  assert.equal(opened.length, 1);
  made.hide();
  made.follow(RUNNING, true);
  t.mock.timers.tick(2000);
  assert.equal(opened.length, 1);
});

test("a console that waits for its machine says that the machine is deleted, and offers no power then", () => {
  for (const ending of [{ reason: "PoweredOff", code: 0, message: "" }, { reason: "NotStarted", message: "", isSeen: true }]) {
    const { made, labels, announced } = panel(ending, { machine: OFF });
    made.follow(OFF, false);
    assert.equal(labels()[0], "Power on");
    made.follow({ ...OFF, state: "Terminating" }, false);
    assert.ok(!labels().includes("Power on"));
    made.follow(null, false); // unknown
    assert.equal(made.element.all("h3")[0].text, "The machine is not running");
    made.follow(null, false, true);
    assert.equal(made.element.all("h3")[0].text, "The machine is deleted");
    assert.deepEqual([labels()[0], announced], ["Close this console", ["vm: the machine was deleted."]]);
    made.follow(RUNNING, true);
    assert.equal(made.element.all("h3")[0].text, "There is a new machine");
  }
});

test("a console without a session says that the server does not answer, and offers another attempt, but no power", () => {
  const { made, owner, labels } = panel({ reason: "PoweredOff", code: 0, message: "" }, { machine: OFF });
  let attempts = 0;
  owner.context.api.dispatchEvent = ({ type }) => (attempts += Number(type === "retry"));
  made.follow(OFF, false);
  assert.deepEqual(labels(), ["Power on", "Log", "Screen"]);
  const outage = { asOf: Date.now(), message: "the server cannot be reached" };
  made.follow(OFF, false, false, outage);
  assert.match(made.element.text, /not runningThis state is as of \d\d:\d\d: the server cannot be reached\. The page tries again by itself\. +Try now.*It is powered off\./);
  assert.deepEqual(labels(), ["Try now", "Log", "Screen"]);
  made.element.all("button").find((each) => each.text === "Try now").click();
  assert.equal(attempts, 1);
  made.follow(OFF, false);
  assert.deepEqual(labels(), ["Power on", "Log", "Screen"]);
  assert.doesNotMatch(made.element.text, /as of/);
});

test("a console whose user resets the machine speaks of the reset, and offers no other switch meanwhile", () => {
  const { made, owner, labels } = panel({ reason: "PoweredOff", code: 0, message: 'machine "vm" was powered off' }, { machine: OFF });
  owner.acts.isResetting = true;
  made.follow(OFF, false);
  const seen = () => [...made.element.all("h3"), ...made.element.all("p")].filter((each) => !each.hidden).map((each) => each.text).join(" ");
  assert.match(seen(), /^The machine is being reset This console opens as soon as the machine runs\. *$/);
  assert.deepEqual(labels(), ["Log", "Screen"]);
  owner.acts.isResetting = false;
  made.follow(OFF, false);
  assert.deepEqual(labels(), ["Power on", "Log", "Screen"]);
});

test("a console that was refused is offered as soon as the user may open it, and opens only by the user", async () => {
  const forbidden = { reason: "AuthorizationWithdrawn", code: 403, message: "is forbidden", kind: "machines", hadSession: true };
  const demanding = { reason: "Forbidden", code: 403, message: "", causes: [{ reason: "ApprovalRequired", message: 'ConsolePolicy "default/p" requires the approval of another user' }], hadSession: true };
  for (const ending of [forbidden, demanding]) {
    const { made, owner, opened, announced, labels, primary } = panel(ending);
    owner.allow();
    await turn();
    assert.equal(made.element.all("h3")[0].text, "You may open this console now");
    assert.deepEqual(announced.at(-1), "vm: You may open this console now.");
    assert.deepEqual(labels(), ["Open", "Log", "Screen"]);
    assert.deepEqual(primary(), ["Open"]);
    assert.equal(opened.length, 0);
    made.element.all("button")[0].click();
    assert.equal(opened.length, 1);
  }
});

test("a console that waits for a silent server says what may be in the way, and offers another attempt", (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "Date"] });
  const { made, owner, labels, powered } = panel(null);
  owner.context.api.dispatchEvent = ({ type }) => powered.push(type);
  made.showConnecting("connecting", {});
  t.mock.timers.tick(9000);
  assert.doesNotMatch(made.element.text, /may be/);
  t.mock.timers.tick(2000);
  assert.match(made.element.text, /for 11s\.It may be busy or stopped, or the network may be down\./);
  assert.deepEqual(labels(), ["Log", "Screen"]);
  t.mock.timers.tick(10_000);
  assert.match(made.element.text, /It does not answer\. It may be busy or stopped/);
  assert.deepEqual(labels(), ["Try now", "Log", "Screen"]);
  made.element.all("button").find((each) => each.text === "Try now").click();
  assert.deepEqual(powered, ["retry", "now"]);
  made.hide();
});

test("a console of a page that was loaded again in an outage says when its output comes back", () => {
  for (const isRestored of [false, true]) {
    const { made, owner } = panel(null);
    owner.isRestored = isRestored;
    made.showConnecting("reconnecting", { message: "no", code: 503 });
    assert.equal(/The output before the reload comes back/.test(made.element.text), isRestored);
    made.hide();
  }
});

test("a warning before the first output is part of the panel that connects", () => {
  const { made } = panel(null);
  made.warn("too early");
  made.showConnecting("connecting", {});
  assert.doesNotMatch(made.element.text, /early/);
  made.warn("The web console was stopped.");
  assert.match(made.element.text, /Connecting to vm.*The web console was stopped\./);
  made.showConnecting("connecting", { message: "no", code: 500 });
  assert.match(made.element.text, /was stopped\.The page has tried for 0s\.The console cannot be opened now/);
  made.hide();
  made.showConnecting("connecting", {});
  assert.doesNotMatch(made.element.text, /stopped/);
  made.hide();
});

test("a console whose machine has no pool yet follows its condition, leads to its events, and opens when it runs", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { made, opened, labels } = panel({ reason: "NotStarted", message: "This machine does not run yet.", isSeen: true });
  for (const problem of ["not ready: 1 of 1 machinepools", 'class "gpu" does not exist']) {
    made.follow({ state: "Pending", problem, runs: false, isOff: false }, false);
    assert.match(made.element.text, new RegExp(`Pending: ${problem}\\. This console opens as soon as the machine runs.*To learn what to change: twisted-exec doctor vm -n default`));
    assert.equal(made.element.all("p").at(-1).hidden, false);
    assert.deepEqual(labels(), ["Copy the command", "Events"]);
  }
  const copied = [];
  Object.defineProperty(globalThis, "navigator", { configurable: true, value: { clipboard: { writeText: async (text) => copied.push(text) } } });
  const copy = made.element.all("button").find((each) => each.text === "Copy the command");
  copy.click();
  await turn();
  assert.deepEqual([copied, copy.title], [["twisted-exec doctor vm -n default"], "twisted-exec doctor vm -n default"]);
  made.follow(RUNNING, true);
  t.mock.timers.tick(2000);
  assert.equal(opened.length, 1);
  assert.ok(!labels().includes("Copy the command"));
});

test("a console whose pool does not exist names it once, and a command", () => {
  const { made, labels } = panel({ reason: "NotFound", code: 404, message: 'machinepools "absent" not found', kind: "machinepools", name: "absent" });
  const seen = () => made.element.all("p").filter((each) => !each.hidden && each.text).map((each) => each.text);
  made.follow({ state: "Pending", problem: "", runs: false, isOff: false }, false);
  const remedy = "To learn what to change: twisted-exec doctor vm -n default";
  assert.deepEqual(seen(), ['The pool "absent" does not exist.', "Pending. This console opens as soon as the machine runs.", remedy]);
  assert.deepEqual(labels(), ["Copy the command", "Events"]);
  made.follow({ state: "Pending", problem: 'machinepool "absent" does not exist', runs: false, isOff: false }, false);
  assert.deepEqual(seen().filter((each) => /does not exist/.test(each)), ['Pending: machinepool "absent" does not exist. This console opens as soon as the machine runs.']);
});

test("a console whose machine has a class that is missing says so, and a command, and opens when the machine runs", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const message = 'machine "vm" is not running yet: machine class "absent" does not exist';
  const { made, opened, labels } = panel({ reason: "ServiceUnavailable", code: 503, message, causes: [{ reason: "CannotStart", message }] });
  const seen = () => made.element.all("p").filter((each) => !each.hidden && each.text).map((each) => each.text);
  assert.equal(made.element.all("h3")[0].text, "The machine is not running");
  assert.deepEqual(seen(), ['Machine "vm" is not running yet: machine class "absent" does not exist.']);
  made.follow({ state: "Pending", problem: 'machine class "absent" does not exist', runs: false, isOff: false }, false);
  const state = 'Pending: machine class "absent" does not exist. This console opens as soon as the machine runs.';
  assert.deepEqual(seen(), [state, "To learn what to change: twisted-exec doctor vm -n default"]);
  assert.deepEqual(labels(), ["Copy the command", "Events"]);
  made.follow(RUNNING, true);
  t.mock.timers.tick(2000);
  assert.equal(opened.length, 1);
});

test("the title of a form says what a policy demands; its text repeats that only with details", () => {
  const demand = (reason, demand) => ({ reason, message: `ConsolePolicy "p" requires ${demand}` });
  for (const [causes, title, text] of [
    [[demand("ReasonRequired", "a reason")], "This console needs a reason", 'ConsolePolicy "p" requires it.'],
    [[demand("ApprovalRequired", "the approval of another user")], "This console needs an approval to type", 'ConsolePolicy "p" requires it.'],
    [[demand("ReasonRequired", "a reason that matches OPS")], "This console needs a reason", 'ConsolePolicy "p" requires a reason that matches OPS.'],
  ]) {
    const { made } = panel({ reason: "Forbidden", code: 403, message: "", causes });
    assert.equal(made.element.all("h3")[0].text, title);
    assert.deepEqual(made.element.all("p").filter((each) => !each.hidden && each.text).map((each) => each.text), [text]);
  }
});

test("a console does not open by itself at a machine that runs already", () => {
  const { made, opened, labels } = panel({ reason: "Conflict", code: 409, message: "" });
  made.follow(RUNNING, false);
  assert.deepEqual([opened.length, labels()[0]], [0, "Open again"]);
});

test("a console opens at another machine of the same name only if the user wants that, by the panel's only primary button", () => {
  const [DELETED_ONE, UNKNOWN_ONE] = [["The machine is deleted", "There is a new machine"], ["The namespace default has no machine vm", "The machine exists now"]];
  // A machine that is missing behind a lost connection was deleted meanwhile.
  for (const [ending, [before, after]] of [[DELETED, DELETED_ONE], [{ ...MISSING, hadSession: true }, DELETED_ONE], [MISSING, UNKNOWN_ONE]]) {
    const { made, opened, labels, primary, announced } = panel(ending);
    const title = () => made.element.all("h3")[0].text;
    assert.ok(made.followsMachine);
    assert.deepEqual([title(), primary()], [before, ["Close this console"]]);
    assert.equal(labels().includes("Log"), ending !== MISSING);
    made.follow({ ...RUNNING, state: "Terminating" }, false);
    assert.deepEqual([title(), primary()], [before, ["Close this console"]]);
    made.follow(OFF, false);
    made.follow(RUNNING, true);
    assert.equal(opened.length, 0);
    assert.deepEqual([title(), primary()], [after, ["Open again"]]);
    assert.deepEqual(announced, ["vm: a machine with this name was created."]);
    made.follow(null, false);
    assert.deepEqual([title(), primary()], [before, ["Close this console"]]);
  }
});

test("a machine that does not exist has the namespace in which it is looked for, and one that the user may have meant", async () => {
  const near = panel(MISSING, { names: [["default", "vm-2"], ["default", "database"]] });
  await turn();
  assert.match(near.made.element.text, /^The namespace default has no machine vmDid you mean vm-2\?/);
  assert.equal(near.made.element.text.match(/no such machine|has no machine/g)?.length, 1);
  const far = panel(MISSING, { names: [["default", "vm-2"], ["tools", "vm"]] });
  await turn();
  assert.match(far.made.element.text, /Did you mean tools \/ vm\?/);
  const none = panel(MISSING, { names: [["default", "database"]] });
  await turn();
  assert.doesNotMatch(none.made.element.text, /Did you mean/);
});

test("a refusal by roles says whom to ask, the right in the words of the server, and leads only to what its user may read", async () => {
  const refusal = { reason: "Forbidden", code: 403, message: 'machines is forbidden: ask an administrator for the role console-observer in the namespace "default"', kind: "machines", causes: [{ reason: "MissingRight", message: "", remedy: 'ask an administrator for the role console-observer in the namespace "default"' }] };
  const { made, labels } = panel(refusal, { readable: ["log"] });
  await turn();
  assert.match(made.element.text, /^You may not open this console.*administrator.*console-observer.*default.*is forbidden/);
  assert.equal(made.element.text.match(/administrator/g)?.length, 1);
  assert.deepEqual(labels(), ["Try again", "Log", "List of machines"]);
  assert.ok(made.element.all("button").every((each) => !each.class.includes("primary")));
});

test("a user whose right was withdrawn reads whom to ask, and of the server's words only below that", () => {
  const message = 'machines "vm" is forbidden: User "eve" cannot create resource "machines/exec"';
  const { made } = panel({ reason: "AuthorizationWithdrawn", code: 0, message, hadSession: true });
  assert.deepEqual([made.element.all("h3")[0].text, made.element.all("p").map((each) => each.text)], ["Your right to this session has ended", ["If a new one is refused, too, ask your administrator."]]);
  const causes = [{ reason: "MissingRight", message: "", remedy: "ask for a role" }];
  made.show({ reason: "AuthorizationWithdrawn", code: 403, message: `${message}: ask for a role`, kind: "machines", causes, hadSession: true }, { drives: true }, false);
  const [advice, words, ...others] = made.element.all("p").map((each) => each.text);
  assert.equal(made.element.all("h3")[0].text, "Your right to this session has ended");
  assert.match(advice, /console-user/);
  assert.deepEqual([words, others], [`machines "vm" is forbidden: User "eve" cannot create resource "machines/exec"`, []]);
});

test("no panel leads to what its user may not read", async () => {
  for (const [ending, readable, expected] of [
    [DELETED, ["log", "deleted"], ["Close this console", "Log", "List of machines"]],
    [DELETED, ["log"], ["Close this console", "List of machines"]],
    [{ reason: "Idle", code: 0, message: "" }, ["screen"], ["Open again", "Screen"]],
    [{ reason: "PoweredOff", code: 0, message: "" }, ["log"], ["Open again", "Log"]],
  ]) {
    const { labels } = panel(ending, { readable });
    await turn();
    assert.deepEqual(labels(), expected);
  }
});

test("of a deleted machine a user reads who may read its log, if the user may not", async () => {
  for (const [readable, more] of [[["deleted"], ""], [[], " You may not read it. Ask your administrator for the role “admin” in the namespace default."]]) {
    const { made } = panel(DELETED, { readable });
    await turn();
    assert.equal(made.element.all("p")[0].text, `Its output stays in the log for some time.${more}`);
  }
});

test("a machine that is deleted while its console needs a reason has no form any more", () => {
  const causes = [{ reason: "ReasonRequired", message: 'ConsolePolicy "default/p" requires a reason' }];
  const { made, announced, labels } = panel({ reason: "Forbidden", code: 403, message: "", causes });
  made.follow(null, false, false); // not known yet
  assert.deepEqual(labels(), ["Open with this reason", "Try again"]);
  made.follow(null, false, true);
  assert.match(made.element.text, /^The machine is deleted/);
  assert.deepEqual([announced, made.element.all("form"), made.followsMachine], [["vm: the machine was deleted."], [], true]);
});

test("a machine that is powered off while its console needs a reason has Power on, unless its user types the reason", () => {
  const causes = [{ reason: "ReasonRequired", message: "" }];
  const ending = { reason: "Forbidden", code: 403, message: "", causes };
  const { made, labels } = panel(ending, { machine: OFF });
  made.follow({ ...OFF, state: "Running" }, false); // it still goes off
  assert.deepEqual(labels(), ["Open with this reason", "Try again"]);
  made.follow(OFF, false);
  made.follow(OFF, false);
  assert.match(made.element.text, /^The machine is not running.*It is powered off\./);
  assert.deepEqual(labels(), ["Power on", "Log", "Screen"]);
  const typing = panel(ending, { machine: OFF });
  typing.made.element.all("input")[0].send("input");
  typing.made.follow(OFF, false);
  assert.deepEqual(typing.labels(), ["Open with this reason", "Try again"]);
});

test("a panel whose page learns nothing about the machine says what is known, and offers another attempt", () => {
  for (const ending of [{ reason: "PoweredOff", message: "This machine is off.", isSeen: true }, { reason: "PoweredOff", message: "", hadSession: true }, MISSING]) {
    const { made, owner, opened, labels, primary } = panel(ending);
    owner.isBlind = true;
    made.follow(null, false);
    assert.deepEqual([labels()[0], primary()], ["Try again", ["Try again"]]);
    if (ending.isSeen) assert.match(made.element.all("p").find((each) => !each.hidden).text, /^This machine is off\.$/);
    made.element.all("button")[0].click();
    assert.ok(labels().includes("Try again") && opened.length <= 1);
  }
});

test("a reason that was given before is replaced by what the user types, but not what is typed already", () => {
  const causes = [{ reason: "ReasonRequired", message: "" }];
  const { made } = panel({ reason: "Forbidden", code: 403, message: "", causes });
  const [input] = made.element.all("input");
  let selected = 0;
  input.select = () => (selected += 1);
  input.send("focus");
  assert.equal(selected, 1);
  input.send("input");
  input.send("focus");
  assert.equal(selected, 1);
});

test("a reason that a policy does not accept is an error of its field, until it is given again", async () => {
  const missing = { reason: "ReasonRequired", message: 'ConsolePolicy "p" requires a reason that matches OPS' };
  const refused = { ...missing, message: `${missing.message}, not "because"` };
  const approval = { reason: "ApprovalRequired", message: 'ConsolePolicy "p" requires the approval of another user' };
  const refusal = (...causes) => ({ reason: "Forbidden", code: 403, message: "", causes });
  const { made, owner } = panel(null);
  const seen = () => made.element.all("p").filter((each) => !each.hidden && each.text).map((each) => each.text);
  const error = () => {
    const [input] = made.element.all("input");
    if (input["aria-invalid"] !== "true") return null;
    const described = made.element.all("p").find(({ id }) => id === input["aria-describedby"]);
    assert.ok(described.class.includes("problem"));
    return described.text;
  };
  const text = `${refused.message}.`;
  made.show(refusal(missing, approval), { drives: true }, false);
  assert.deepEqual([error(), seen()], [null, [`${missing.message}, and the approval of another user.`]]);
  owner.place.reason = "because";
  made.show(refusal(refused), { drives: true }, false);
  assert.deepEqual([error(), seen()], [text, [text]]);
  made.show(refusal(refused, approval), { drives: true }, false);
  assert.deepEqual([error(), seen()], [text, ['ConsolePolicy "p" requires it.', text]]);
  owner.context.api.request = async () => {
    throw Object.assign(new Error("is forbidden"), { status: { details: { causes: [refused] } } });
  };
  made.element.all("form")[0].submit();
  assert.equal(error(), null);
  await turn();
  assert.deepEqual([error(), seen()], [text, ['ConsolePolicy "p" requires it.', text]]);
});

const DECIDED = new Date(2026, 1, 2, 8, 38);

test("of a request that counts no longer its user reads why, and what the policy demands", async () => {
  const demand = 'ConsolePolicy "p" requires the approval of another user (#on-call: ring)';
  const message = `${demand}: your request "vm-1" does not count, it has expired`;
  const causes = [{ reason: "ApprovalRequired", message, request: "vm-1" }];
  const { made, owner } = panel(null);
  const metadata = { namespace: "default", name: "vm-1", creationTimestamp: new Date().toISOString() };
  for (const [status, title, text] of [
    [{ denied: true, decidedBy: "bob", message: "not now", decisionTime: DECIDED.toISOString() }, "This console needs an approval to type", 'bob denied request "vm-1" at 2026-02-02 08:38: not now.'],
    [{ session: "s-1" }, "The session has ended: this console needs an approval to type", 'The approval of request "vm-1" was for one session, which has begun: ask again.'],
  ]) {
    owner.context.api.request = async () => ({ metadata, spec: {}, status });
    made.show({ reason: "Forbidden", code: 403, message: "", causes, hadSession: Boolean(status.session) }, { drives: true }, false);
    const seen = () => made.element.all("p").filter((each) => !each.hidden && each.text).map((each) => each.text);
    assert.match(seen()[0], /does not count/);
    await turn();
    assert.equal(made.element.all("h3")[0].text, title);
    assert.deepEqual(seen(), [`${demand}.`, text]);
    assert.equal(made.element.all("button")[0].text, "Ask to type");
  }
});

test("a user who observes asks to type while the session goes on", async () => {
  const causes = [{ reason: "ApprovalRequired", message: 'ConsolePolicy "p" requires the approval of another user', request: "" }];
  const { made, owner, opened, labels } = panel(null);
  const asked = [];
  owner.context.api.request = async (path, { method, body }) => {
    if (method === "POST") throw new Error(`asked to ${body.spec.right}`);
    asked.push(path);
    throw Object.assign(new Error(""), { code: 403, status: { details: { causes } } });
  };
  made.askToType({ code: 403, message: "", causes }, { mode: "takeover", openingWith: () => ({ path: "/typing", query: {} }) });
  assert.match(made.element.text, /^This console needs an approval to take over.*You go on observing meanwhile/);
  assert.deepEqual(labels(), ["Ask to take over", "Go on observing"]);
  made.element.all("form")[0].submit();
  await turn();
  assert.deepEqual(asked, ["/typing"]);
  assert.match(made.element.text, /asked to takeover/);
  owner.context.api.request = async () => {
    throw Object.assign(new Error(""), { code: 403, status: { details: { causes: [{ reason: "UpgradeRequired", message: "" }] } } });
  };
  owner.tellApproval = () => {};
  made.element.all("form")[0].submit();
  await turn();
  assert.deepEqual(opened, [{ mode: "takeover", observes: false, reason: "" }]);
  made.element.all("button").find(({ text }) => text === "Go on observing").click();
  assert.equal(made.element.hidden, true);
});

test("other endings have nothing to do with the machine", () => {
  const { made, labels } = panel({ reason: "SessionDeleted", code: 0, message: "ada deleted it", causes: [{ reason: "SessionDeleted", user: "ada" }] });
  assert.match(made.element.text, /^ada has ended this sessionYou may open a new one\./);
  assert.ok(!made.followsMachine);
  assert.deepEqual(labels(), ["Open again", "Log", "Screen"]);
});

test("a machine that is off can be powered on by who may, and its console opens even if its start was missed", async () => {
  const ending = { reason: "PoweredOff", message: "This machine is off.", isSeen: true };
  const { made, opened, powered, labels } = panel(ending, { machine: OFF });
  await turn();
  assert.deepEqual(labels(), ["Power on", "Log", "Screen"]);
  made.element.all("button")[0].click();
  await turn();
  assert.deepEqual(powered, ["On"]);
  assert.match(made.element.text, /^The machine is startingThis machine is off\.This console opens as soon/);
  made.follow(RUNNING, false);
  assert.equal(opened.length, 1);
});

test("the user who has powered a machine on opens its console before those who only wait, and is the writer", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const [own, other] = ["On", ""].map((switched) => {
    const made = panel({ reason: "PoweredOff", message: "This machine is off.", isSeen: true }, { machine: OFF });
    made.owner.acts.switched = switched;
    for (let each = 0; each < 2; each += 1) made.made.follow(RUNNING, each === 0);
    return made.opened;
  });
  assert.deepEqual([own.length, other.length], [1, 0]);
  t.mock.timers.tick(2000);
  assert.deepEqual([own.length, other.length], [1, 1]);
});

test("the user who has powered a machine on types at its console, unless that user has chosen to observe", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  for (const [switched, observes, changes] of [["On", "told", { observes: false }], ["On", "chosen", {}], ["", "told", {}]]) {
    const { made, owner, opened } = panel({ reason: "PoweredOff", message: "" }, { machine: OFF });
    owner.acts.switched = switched;
    owner.place.observes = observes;
    made.follow(RUNNING, true);
    t.mock.timers.tick(2000);
    assert.deepEqual(opened, [changes]);
  }
});

test("a console that connects shows the machine, for how long, and what is in the way", () => {
  const { made, powered, labels } = panel(null, { machine: RUNNING });
  made.showConnecting("connecting", {});
  assert.ok(made.isConnecting && !made.takesFocus);
  assert.match(made.element.text, /^Connecting to vm.*machine is running\. Waiting for the server \(garden\) for /);
  assert.deepEqual(labels(), ["Log", "Screen"]);
  made.showConnecting("connecting", { message: "the server cannot be reached", code: 0 });
  assert.equal(made.element.text.match(/server cannot be reached/gi)?.length, 1);
  made.element.all("button")[0].click();
  assert.deepEqual(powered, ["now"]);
  made.hide();
  assert.ok(!made.isConnecting);
});

test("a console opens with the reason of its last request, also if that is approved before it is seen to wait", async () => {
  const causes = [{ reason: "ApprovalRequired", message: 'ConsolePolicy "default/p" requires an approval', request: "vm-x7" }];
  const { made, owner, opened } = panel(null);
  const answers = [{}, { approved: true, decidedBy: "bob" }];
  const request = (status) => ({ metadata: { namespace: "default", name: "vm-x7", uid: "1", creationTimestamp: new Date().toISOString() }, spec: { reason: "OPS-1" }, status });
  owner.context.api.request = async () => request(answers.shift());
  owner.tellApproval = () => {};
  owner.place.reason = "OPS-2";
  Object.defineProperty(globalThis, "navigator", { configurable: true, value: {} });
  made.show({ reason: "Forbidden", code: 403, message: "", causes }, { drives: true }, false);
  await turn();
  await turn();
  assert.deepEqual([opened, answers], [[{ observes: false, reason: "OPS-1" }], []]);
});

test("a user takes back a request that waits, and can ask anew", async (t) => {
  const causes = [{ reason: "ApprovalRequired", message: 'ConsolePolicy "default/p" requires an approval', request: "vm-x7" }];
  const { made, owner, opened, labels } = panel(null);
  t.after(() => made.hide());
  const views = new EventTarget();
  globalThis.addEventListener = views.addEventListener.bind(views);
  const deleted = [];
  owner.context.api.request = async (path, { method, body } = {}) => {
    if (method === "DELETE") deleted.push([path.split("/").at(-1), body.preconditions.uid]);
    return { metadata: { namespace: "default", name: "vm-x7", uid: "1", creationTimestamp: new Date().toISOString() }, spec: {}, status: {} };
  };
  Object.defineProperty(globalThis, "navigator", { configurable: true, value: {} });
  made.show({ reason: "Forbidden", code: 403, message: "", causes }, { drives: true }, false);
  await turn();
  assert.deepEqual(labels(), ["Ask to type", "Stop waiting", "Take back", "Copy the command"]);
  const press = (element, label) => element.all("button").find((each) => each.text === label).click();
  press(made.element, "Take back");
  press(document.body.lastChild, "Cancel");
  await turn();
  assert.deepEqual(deleted, []);
  press(made.element, "Take back");
  assert.match(document.body.lastChild.text, /^Take back your request for vm\?/);
  press(document.body.lastChild, "Take back");
  await turn();
  assert.deepEqual([deleted, labels(), opened], [[["vm-x7", "1"]], ["Ask to type", "Try again"], []]);
  assert.match(made.element.text, /Your request is taken back\./);
});

test("a user without the right to delete requests cannot take them back", async (t) => {
  const causes = [{ reason: "ApprovalRequired", message: 'ConsolePolicy "default/p" requires an approval', request: "vm-x7" }];
  const { made, owner, labels } = panel(null);
  t.after(() => made.hide());
  owner.context.api.can = async (verb) => verb !== "delete";
  owner.context.api.request = async () => ({ metadata: { namespace: "default", name: "vm-x7", uid: "1", creationTimestamp: new Date().toISOString() }, spec: {}, status: {} });
  Object.defineProperty(globalThis, "navigator", { configurable: true, value: {} });
  made.show({ reason: "Forbidden", code: 403, message: "", causes }, { drives: true }, false);
  await turn();
  assert.deepEqual(labels(), ["Ask to type", "Stop waiting", "Copy the command"]);
});

test("a user who has asked to type is no observer in the next session; one who asked to observe is", async () => {
  const causes = [{ reason: "ApprovalRequired", message: 'ConsolePolicy "default/p" requires an approval', request: "vm-x7" }];
  for (const [mode, right, changes] of [["drive", "drive", { observes: false, reason: "" }], ["observe", "observe", { reason: "" }]]) {
    const { made, owner, opened } = panel(null);
    const answers = [{}, { approved: true, decidedBy: "bob" }];
    const metadata = { namespace: "default", name: "vm-x7", uid: "1", creationTimestamp: new Date().toISOString() };
    owner.context.api.request = async () => ({ metadata, spec: { right }, status: answers.shift() });
    owner.tellApproval = () => {};
    Object.assign(owner.place, { mode, observes: true });
    Object.defineProperty(globalThis, "navigator", { configurable: true, value: {} });
    made.show({ reason: "AuthorizationWithdrawn", code: 403, message: "", causes, hadSession: true }, { drives: true }, false);
    made.element.all("button").find((each) => each.text === "Try again").click();
    assert.deepEqual(opened.splice(0), [{ reason: "" }]); // nothing is approved yet
    await turn();
    await turn();
    assert.deepEqual(opened, [changes]);
  }
});

test("Open in the list is another attempt at a console that was refused, except while its user waits", async () => {
  const causes = [{ reason: "ApprovalRequired", message: 'ConsolePolicy "p" requires an approval' }];
  const { made, owner, opened } = panel({ reason: "Forbidden", code: 403, message: "", causes });
  made.comeBack();
  assert.equal(opened.length, 1);
  owner.context.api.request = () => new Promise(() => {});
  made.element.all("form")[0].submit();
  made.comeBack();
  assert.equal(opened.length, 1);
  const forbidden = panel({ reason: "Forbidden", code: 403, message: "is forbidden", kind: "machines" });
  forbidden.made.comeBack();
  assert.equal(forbidden.opened.length, 1);
  forbidden.owner.allow();
  await turn();
  forbidden.made.comeBack(); // it is offered now
  assert.equal(forbidden.opened.length, 2);
  const other = panel({ reason: "SessionDeleted", code: 0, message: "" });
  other.made.comeBack();
  assert.equal(other.opened.length, 0);
});

test("a panel whose request did not reach the server says when that answers again", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const causes = [{ reason: "ApprovalRequired", message: 'ConsolePolicy "p" requires an approval' }];
  const { made, owner } = panel({ reason: "Forbidden", code: 403, message: "", causes });
  owner.context.api.request = async () => {
    throw Object.assign(new Error("the server cannot be reached"), { code: 0 });
  };
  made.element.all("form")[0].submit();
  await turn();
  assert.match(made.element.text, /The server cannot be reached\./);
  owner.context.api.request = async () => ({});
  t.mock.timers.tick(2000);
  await turn();
  assert.match(made.element.text, /The server answers again\./);
  assert.doesNotMatch(made.element.text, /cannot be reached/);
});

test("a user who may only observe asks for that", async () => {
  const causes = [{ reason: "ApprovalRequired", message: 'ConsolePolicy "p" requires an approval' }];
  for (const [isReadOnly, right] of [[true, "observe"], [false, "drive"]]) {
    const { made, owner } = panel(null);
    owner.place.mode = "drive";
    const rights = [];
    owner.context.api.request = async (path, { body } = {}) => {
      rights.push(body?.spec.right);
      throw Object.assign(new Error("away"), { code: 503 });
    };
    made.show({ reason: "Forbidden", code: 403, message: "", causes }, { drives: !isReadOnly }, isReadOnly);
    made.element.all("form")[0].submit();
    await turn();
    assert.equal(rights.at(-1), right);
  }
});

test("a session has ended because its console needs an approval, not because of a denial before; a withdrawal ends it", async () => {
  const causes = [{ reason: "ApprovalRequired", message: 'ConsolePolicy "p" requires the approval of another user', request: "vm-1" }];
  const { made, owner } = panel(null);
  const metadata = { namespace: "default", name: "vm-1", creationTimestamp: new Date().toISOString() };
  const denied = { denied: true, decidedBy: "bob", decisionTime: DECIDED.toISOString() };
  const withdrawn = { ...denied, expirationTime: DECIDED.toISOString() };
  // A title that does not name the demand leaves that to the sentence below it.
  for (const [status, title, demand, text] of [
    [denied, "The session has ended: this console needs an approval to type", 'ConsolePolicy "p" requires it.', 'bob denied request "vm-1" at 2026-02-02 08:38.'],
    [withdrawn, "bob has withdrawn the approval; the session has ended", `${causes[0].message}.`, 'bob withdrew the approval of request "vm-1" at 2026-02-02 08:38.'],
  ]) {
    owner.context.api.request = async () => ({ metadata, spec: {}, status });
    made.show({ reason: "Forbidden", code: 403, message: "", causes, hadSession: true }, { drives: true }, false);
    await turn();
    const shown = made.element.all("p").filter((each) => !each.hidden && each.text).map((each) => each.text);
    assert.deepEqual([made.element.all("h3")[0].text, shown], [title, [demand, text]]);
  }
});

test("a request that is denied while its user waits is the news", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const causes = [{ reason: "ApprovalRequired", message: 'ConsolePolicy "p" requires the approval of another user', request: "vm-1" }];
  const { made, owner } = panel(null);
  const metadata = { namespace: "default", name: "vm-1", uid: "1", creationTimestamp: new Date().toISOString() };
  let status = {};
  owner.context.api.request = async () => ({ metadata, spec: {}, status });
  Object.defineProperty(globalThis, "navigator", { configurable: true, value: {} });
  made.show({ reason: "Forbidden", code: 403, message: "", causes }, { drives: true }, false);
  await turn();
  assert.match(made.element.text, /Request "vm-1" to type waits/);
  status = { denied: true, decidedBy: "bob" };
  t.mock.timers.tick(2000);
  await turn();
  assert.equal(made.element.all("h3")[0].text, "bob has denied your request");
  assert.match(made.element.text, /ConsolePolicy "p" requires the approval of another user\./);
  assert.equal(owner.decisions, 1);
});

test("an approval opens a console out of sight when its user comes to it, unless it is closed before", async (t) => {
  for (const isClosed of [false, true]) {
    const causes = [{ reason: "ApprovalRequired", message: 'ConsolePolicy "p" requires the approval of another user', request: "vm-1" }];
    const { made, owner, opened, announced } = panel(null);
    owner.isInSight = false;
    let come = () => {};
    owner.inSight = () => new Promise((resolve) => (come = () => resolve(undefined)));
    const told = [];
    owner.tellApproval = (text) => told.push(text);
    const metadata = { namespace: "default", name: "vm-1", uid: "1", creationTimestamp: new Date().toISOString() };
    let status = {};
    owner.context.api.request = async () => ({ metadata, spec: {}, status });
    Object.defineProperty(globalThis, "navigator", { configurable: true, value: {} });
    t.mock.timers.enable({ apis: ["setTimeout"] });
    made.show({ reason: "Forbidden", code: 403, message: "", causes }, { drives: true }, false);
    await turn();
    status = { approved: true, decidedBy: "bob", expirationTime: new Date(Date.now() + 60_000).toISOString() };
    t.mock.timers.tick(2000);
    await turn();
    assert.deepEqual([owner.decisions, opened.length, told], [1, 0, []]);
    assert.equal(announced.at(-1), "vm: bob approved your request. The console opens when you go to it.");
    if (isClosed) made.hide();
    come();
    await turn();
    assert.deepEqual([opened.length, told], isClosed ? [0, []] : [1, ["bob approved your request"]]);
    t.mock.timers.reset();
  }
});

test("a console that needs no approval any more opens instead of a request", async () => {
  const causes = [{ reason: "ApprovalRequired", message: 'ConsolePolicy "p" requires an approval' }];
  const { made, owner, opened } = panel({ reason: "Forbidden", code: 403, message: "", causes });
  const [asked, told] = [[], []];
  owner.tellApproval = (text) => told.push(text);
  owner.context.api.request = async (path) => {
    asked.push(path);
    throw Object.assign(new Error(""), { code: 400, status: { details: { causes: [{ reason: "UpgradeRequired" }] } } });
  };
  made.element.all("input")[0].value = "OPS-1";
  made.element.all("form")[0].submit();
  await turn();
  assert.deepEqual([asked, told, opened], [["/exec"], ["no approval is needed any more"], [{ observes: false, reason: "OPS-1" }]]);
});

test("a request that waits is taken back when no approval is needed any more, if its user may do that", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const causes = [{ reason: "ApprovalRequired", message: 'ConsolePolicy "p" requires an approval', request: "vm-1" }];
  for (const mayDelete of [true, false]) {
    const { made, owner, opened } = panel(null);
    const taken = [];
    const metadata = { namespace: "default", name: "vm-1", uid: "1", creationTimestamp: new Date().toISOString() };
    owner.tellApproval = () => {};
    owner.context.api.can = async () => mayDelete;
    owner.context.api.request = async (path, { method, body } = {}) => {
      if (path === "/exec") throw Object.assign(new Error(""), { code: 400, status: { details: { causes: [{ reason: "UpgradeRequired" }] } } });
      if (method === "DELETE") taken.push(body.preconditions.uid);
      return { metadata, spec: {}, status: {} };
    };
    Object.defineProperty(globalThis, "navigator", { configurable: true, value: {} });
    made.show({ reason: "Forbidden", code: 403, message: "", causes }, { drives: true }, false);
    for (let look = 0; look < 8 && !opened.length; look += 1) {
      await turn();
      t.mock.timers.tick(2000);
    }
    await turn();
    assert.deepEqual([opened.length, taken], [1, mayDelete ? ["1"] : []]);
    made.hide();
  }
});
