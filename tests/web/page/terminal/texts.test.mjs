/** Texts about a console and its end. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { STOPPED } from "../../../../twisted_exec/web/page/session/session.js";
import { amount, anewMessages, anewText, announcedEnd, attemptText, bannerText, causeText, demands, droppedKeys, endText, endingOf, explained, isForbidden, isMachineMissing, isMachineStopped, isRequired, largerText, lostText, othersText, presentText, readOnlyText, recordedFor, recordingNews, recordingRefusal, requestOf, requiredText, roleText, said, sentence, startText, stopAdvice, stateText, stoppedText, viewerCount, viewerNames, waitingText, withRoles, writerText } from "../../../../twisted_exec/web/page/terminal/texts.js";

const AWAY = "the server cannot be reached";

test("amounts have the units of all views", () => {
  assert.deepEqual([1, 5120, 34_683_237].map(amount), ["1 B", "5.0 KiB", "33 MiB"]);
});

test("keys that may have arrived and keys that were never sent are counted apart", () => {
  assert.equal(droppedKeys({ sent: 1, unsent: 0 }), "1 key may not have reached the machine.");
  assert.equal(droppedKeys({ sent: 3, unsent: 1 }), "3 keys may not have reached the machine; 1 key typed after that was discarded.");
  assert.equal(droppedKeys({ sent: 0, unsent: 1 }), "1 key typed meanwhile was discarded.");
  assert.equal(droppedKeys({ sent: 0, unsent: 0 }), "");
  assert.equal(droppedKeys({ sent: 3, unsent: 12 }), "3 keys may not have reached the machine; 12 keys typed after that were discarded.");
});

test("each state has a text", () => {
  const lost = stateText("reconnecting", { since: 1000 }, 4200);
  assert.deepEqual(lost, { kind: "bad", text: "Connection lost for 3s" });
  const restarts = "exec-runtime is restarting";
  assert.equal(stateText("reconnecting", { since: 1000, restarts }, 4200).text, `${restarts}; reconnecting for 3s`);
  assert.match(stateText("reconnecting", { since: 0, unauthorized: true }, 0).text, /login/);
  assert.deepEqual(stateText("connecting", { since: 0 }, 42_000), { kind: "waiting", text: "Connecting for 42s" });
  assert.equal(stateText("connecting", { since: 0, code: 401 }, 42_000).text, "Connecting for 42s; waiting for your login");
  assert.deepEqual(stateText("connecting", { since: 0, reason: STOPPED }, 4_000), { kind: "bad", text: "Web console on this computer stopped for 4s" });
  assert.equal(stateText("connecting", { since: 0, code: 401, reason: "WebConsoleStopped" }, 42_000).text, "Web console on this computer started again; waiting for your login");
  assert.equal(stateText("connecting", { code: 503 }, 42_000).text, "Connecting");
  assert.equal(stateText("resumed", { seconds: 3.2, missed: 5120 }, 0).text, "Reconnected after 3s");
  assert.equal(stateText("resumed", { seconds: 0.4, missed: 0 }, 0).text, "Reconnected");
  assert.equal(stateText("resumed", { seconds: 34, missed: 0 }, 0).text, "Reconnected after 34s");
  assert.equal(stateText("resumed", { seconds: 34, missed: 0, anew: { sent: 0, unsent: 0 } }, 0).text, "New session after 34s");
  assert.equal(stateText("open", { resumable: true }, 0).text, "Connected");
  assert.equal(stateText("ended", { reason: "PoweredOff" }, 0).text, "No session");
  assert.equal(stateText("ended", { reason: "Forbidden", code: 403 }, 0).text, "No session");
});

test("a connection that came back is soon an ordinary one, and the writer's time goes on", () => {
  const state = { name: "resumed", detail: { seconds: 3, missed: 0 }, at: 1000, silentSince: null };
  assert.match(presentText(state, 2000).text, /^Reconnected after 3/);
  assert.equal(presentText(state, 60_000).text, "Connected");
  const viewers = { count: 1, writer: "ada", seconds: 5, at: 1000 };
  const observer = { isObserver: true };
  assert.match(writerText(viewers, 31_000, observer), /^ada, for 35/);
  assert.match(writerText(viewers, 31_000, { isObserver: false }), /^You, for 35/);
  assert.match(writerText(viewers, 31_000, { isObserver: true, isOwn: true }), /^You, in another session, for 35/);
  assert.equal(writerText({ ...viewers, writer: "" }, 31_000, observer), "Nobody");
  assert.equal(writerText(undefined, 0, observer), "Unknown");
  assert.match(writerText({ ...viewers, withheld: "2 are needed" }, 31_000, { isObserver: false }), /^You, for 35s; nothing is sent: 2 are needed$/);
});

test("the user of a silent server reads for how long, and how many keys wait for it", () => {
  const state = { name: "open", detail: {}, at: 0, silentSince: 1000 };
  assert.deepEqual(presentText(state, 7000), { kind: "waiting", text: "No answer for 6s" });
  assert.equal(waitingText(state, 1), "1 key waits for the answer");
  assert.equal(waitingText(state, 0), "What you type waits for the answer");
  assert.equal(waitingText({ ...state, silentSince: null }, 5), "");
  assert.equal(waitingText({ ...state, name: "ended" }, 0), ""); // nothing reads what is typed
  const lost = { name: "reconnecting", detail: { since: 1, keptSeconds: 60 }, silentSince: null };
  const reloaded = { name: "connecting", detail: { saved: { lostAt: 1, seconds: 60 } }, silentSince: null };
  for (const each of [lost, reloaded]) {
    assert.deepEqual([0, 1, 2].map((count) => waitingText(each, count, 60_001)), [
      "What you type will be sent if this session goes on within 60s",
      "1 key will be sent if this session goes on within 60s",
      "2 keys will be sent if this session goes on within 60s",
    ]);
    assert.deepEqual([0, 1, 2].map((count) => waitingText(each, count, 60_002)), [
      "What you type will not be sent: the server keeps a session for 60s",
      "1 key will not be sent: the server keeps a session for 60s",
      "2 keys will not be sent: the server keeps a session for 60s",
    ]);
    const refused = { ...each, detail: { ...each.detail, code: 401 } };
    assert.equal(waitingText(refused, 2, 2), "2 keys will be sent after your login if this session goes on within 60s");
  }
  // A machine may have got keys that the server had no time to confirm.
  for (const each of [{ ...lost, detail: { ...lost.detail, sent: 1 } }, { ...reloaded, detail: { saved: { ...reloaded.detail.saved, sent: 1 } } }]) {
    assert.deepEqual([0, 1, 2].map((count) => waitingText(each, count, 60_001)), [
      "What you type will be sent if this session goes on within 60s",
      "1 key, unless it has arrived, will be sent if this session goes on within 60s",
      "2 keys, unless they have arrived, will be sent if this session goes on within 60s",
    ]);
    assert.equal(waitingText(each, 2, 60_002), "2 keys, unless they have arrived, will not be sent: the server keeps a session for 60s");
  }
  const stopped = { name: "connecting", detail: { since: 1, drops: true }, silentSince: null };
  assert.deepEqual([0, 1, 2].map((count) => waitingText(stopped, count)), ["What you type will not be sent", "1 key will not be sent", "2 keys will not be sent"]);
  const first = { ...stopped, detail: {} };
  assert.deepEqual([0, 1, 2].map((count) => waitingText(first, count)), ["", "1 key waits for the connection", "2 keys wait for the connection"]);
});

test("the roles of all users agree with that of this session, and a user may type in several", () => {
  const person = (user, role, isOwn = false) => ({ user, role, isOwn });
  const people = [person("ada", "Observer", true), person("bob", "Writer"), person("bob", "Observer")];
  const roles = (...given) => withRoles(...given).map(({ role }) => role);
  assert.deepEqual(roles(people, false), ["Writer", "Observer", "Observer"]);
  assert.deepEqual(roles([person("ada", "Writer", true), people[1]], true), ["Observer", "Writer"]);
  const second = [people[0], person("ada", "Writer"), person("ada", "Observer")];
  assert.deepEqual(roles(second, false), ["Writer", "Writer", "Observer"]);
  assert.deepEqual(roles(second, true), ["Observer", "Writer", "Observer"]);
  assert.deepEqual(roles(people.slice(1), false), ["Writer", "Observer"]);
});

test("the user reads when a recording begins or ends, and whose it is", () => {
  const ada = { input: "masked", user: "ada" };
  const both = [ada, { input: "all", user: "" }];
  assert.equal(recordedFor(both), "ada (input: masked), somebody (input: all)");
  const demanded = (...policies) => recordedFor([{ user: "ada", input: "all", policies }]);
  assert.equal(demanded("lab/a"), "ConsolePolicy lab/a (input: all)");
  assert.equal(demanded("lab/a", "lab/b"), "ConsolePolicies lab/a, lab/b (input: all)");
  assert.equal(recordingNews(null, []), "");
  assert.equal(recordingNews(null, null), "");
  assert.equal(recordingNews(null, [ada]), "This console is recorded for ada (input: masked).");
  assert.equal(recordingNews([ada], [ada]), "");
  assert.match(recordingNews([ada], both), /for ada .*, somebody /);
  assert.equal(recordingNews([ada], []), "This console is not recorded any more.");
});

test("a recording that policies require is named after them", () => {
  const ada = { user: "ada", input: "masked" };
  const [one, two] = [["default/p"], ["default/q", "default/r"]].map((policies) => ({ user: "", policies, input: "masked" }));
  assert.deepEqual([ada, one, two, { user: "", input: "all" }].map(isRequired), [false, true, true, false]);
  assert.equal(requiredText([ada]), "");
  assert.match(requiredText([ada, one, { ...one, input: "all" }]), /^The recording for ConsolePolicy default\/p ends after the last session;/);
  assert.match(requiredText([one, two]), / for ConsolePolicy default\/p and ConsolePolicies default\/q, default\/r ends/);
});

test("an observer reads why", () => {
  const session = { mayType: true, isReadOnly: false };
  const observer = { isObserver: true, isDenied: false, writer: "" };
  assert.equal(roleText({ ...observer, isObserver: false }, session), "You can type");
  assert.equal(roleText({ ...observer, isObserver: false, withheld: "2 are needed" }, session), "Keys are not sent: more people are needed");
  assert.equal(roleText(observer, session), "Observing");
  assert.equal(roleText({ ...observer, writer: "ada" }, session), "Observing; ada types");
  assert.equal(roleText({ ...observer, writer: null }, session), "Observing; nobody types");
  assert.equal(roleText({ ...observer, writer: "ada", isOwn: true }, session), "Observing; you type in another session");
  assert.equal(roleText({ ...observer, writer: null }, { ...session, isReadOnly: true }), "Observing (opened to observe only)");
  assert.equal(roleText({ ...observer, writer: "ada" }, { ...session, isReadOnly: true }), "Observing (opened to observe only); ada types");
  assert.equal(roleText({ ...observer, writer: "ada" }, { ...session, mayType: false }), "Observing (no right to type); ada types");
  for (const denied of [[{ ...observer, isDenied: true }, session], [observer, { mayType: false, isReadOnly: true }]]) {
    assert.match(roleText(...denied), /no right to type/);
  }
});

test("a user finds the own session among the viewers", () => {
  const ada = { user: "ada", isOwn: false };
  const people = [ada, ada, { user: "bob", isOwn: false }, { user: "ada", isOwn: true }];
  assert.deepEqual(viewerNames(people), ["ada (you, 3)", "bob"]);
  assert.deepEqual(viewerNames(people.slice(2)), ["ada (you)", "bob"]);
  assert.deepEqual(viewerNames([{ user: "bob", isOwn: false }, ada, ada]), ["bob", "ada (2)"]);
  const lost = [ada, { user: "bob", isOwn: false }, ada].map((each) => ({ ...each, away: "2026-01-01T00:00:00Z" }));
  assert.deepEqual(viewerNames([...people, ...lost]), ["ada (you, 3)", "bob", "ada (lost, 2)", "bob (lost)"]);
});

test("sessions whose connections are lost are no viewers", () => {
  assert.deepEqual([{ count: 1 }, { count: 3, lost: 0 }, { count: 4, lost: 3 }, { count: 1, lost: 1 }].map(viewerCount), [
    "1 viewer", "3 viewers", "1 viewer, 3 lost", "0 viewers, 1 lost",
  ]);
});

test("who else is at a console is named if that is one user, and else counted; own and lost sessions are nobody else", () => {
  const person = (user, more = {}) => ({ user, isOwn: false, away: "", ...more });
  const own = person("ada", { isOwn: true });
  assert.equal(othersText({ count: 1 }, null), "");
  assert.equal(othersText({ count: 3, lost: 1 }, null), "1 other is at this console.");
  assert.equal(othersText({ count: 3 }, null), "2 others are at this console.");
  assert.equal(othersText({ count: 4, lost: 1 }, [own, person("ada"), person("bob"), person("eve", { away: "now" })]), "bob is at this console.");
  assert.equal(othersText({ count: 3 }, [own, person("bob"), person("eve")]), "2 others are at this console.");
  assert.equal(othersText({ count: 2 }, [own, person("ada")]), "");
});

test("a machine that does not exist is told from a session that is over", () => {
  const missing = { reason: "NotFound", code: 404, message: 'machines "vm" not found', kind: "machines" };
  const gone = { reason: "NotFound", code: 404, message: "there is no such session to resume", kind: "exec" };
  assert.deepEqual([missing, gone].map(isMachineMissing), [true, false]);
  assert.match(endText(gone), /could not be kept for so long/);
  const said = (ending) => [endingOf(ending).title, endText(ending)];
  assert.deepEqual(said({ ...missing, hadSession: false }), ["There is no such machine", ""]);
  assert.deepEqual(said({ ...missing, hadSession: true }), ["The machine is deleted", ""]);
});

test("the end of a session says what happened, why, and what to do, each once", () => {
  const policy = 'ConsolePolicy "default/p" allows';
  const deleted = { reason: "SessionDeleted", message: "ada deleted the console session vm-1-x7", causes: [{ reason: "SessionDeleted", user: "ada" }] };
  for (const [ending, title, why, advice] of [
    [deleted, /^ada has ended this session$/, /^$/, /open a new one/],
    [{ reason: "Idle", message: `nothing was typed: ${policy} 5m without input` }, /because it was idle/, /^nothing was typed: Cons/, /new session/],
    [{ reason: "TimeOver", message: `${policy} this session until 08:00` }, /time for this session is over/, /until 08:00$/, /approval again/],
    [{ reason: "AuthorizationWithdrawn", message: "ada may not drive it" }, /right to this session has ended/, /^ada may not/, /administrator/],
    [{ reason: "AuthorizationWithdrawn", code: 401, message: "the certificate or token of this session expired at 08:00; open the console again with a new one" }, /^Your login has expired or was withdrawn$/, /^the certificate or token of this session expired at 08:00$/, /^Log in: a new session opens then\.$/],
    [{ reason: "AuthorizationWithdrawn", code: 401, message: "Unauthorized" }, /^Your login has/, /^$/, /^Log in/],
    [{ reason: "PoweredOff", message: 'machine "default/vm" was powered off' }, /machine is not running/, /^It was powered off$/, /^$/],
    [{ reason: "PoweredOff", message: "This machine is off." }, /machine is not running/, /^This machine is off\.$/, /^$/],
    [{ reason: "LineLost", message: 'the emulator of "vm-1" ended: killed' }, /console of the machine is lost/, /emulator/, /^Open the console again when the machine is back/],
    [{ reason: "InternalError", message: "a fault" }, /fault of the server/, /^a fault$/, /log of the server/],
    [{ reason: "PoolDeleted", message: 'machine pool "a" was deleted' }, /^The machine has lost its pool$/, /^machine pool "a" was deleted$/, /another pool/],
    [{ reason: "PoolDeleted", message: "" }, /^The machine has lost its pool$/, /^$/, /another pool/],
    [{ reason: "ShuttingDown", message: "exec-apiserver is restarting; try again in a moment" }, /server of this console has stopped/, /^exec-apiserver is restarting/, /when the server is back/],
    [{ reason: "TooManyViewers", message: `${policy} 2 sessions` }, /too many sessions/, /2 sessions$/, /another one has ended/],
    [{ reason: "ConnectionLost", message: "closed" }, /connection is lost/, /closed/, /cannot resume/],
    [{ reason: "ConnectionLost", message: "" }, /connection is lost/, /^$/, /cannot resume/],
    [{ reason: "Forbidden", code: 403, message: "not at this hour" }, /was not opened/, /at this hour$/, /^$/],
    [{ reason: "", message: "" }, /session has ended/, /^$/, /^$/],
    [{ exitCode: 3, message: "" }, /program at the console has ended/, /^Its exit code is 3\.$/, /^$/],
    [{ reason: "UserLeft", message: "" }, /session has ended/, /closed/, /^$/],
    [{ reason: "AuthorizationWithdrawn", message: "ConsolePolicies default/a, default/b require a recording", causes: [{ reason: "NotRecorded", message: "" }] }, /Your right/, /recording/, /^$/],
  ]) {
    const ended = endingOf(ending);
    assert.match(ended.title, title);
    assert.match(endText(ending), why);
    assert.match(ended.advice, advice);
  }
  assert.equal(endingOf(deleted, "ada").title, "You (ada) have ended this session");
  const unnamed = { ...deleted, causes: [{ reason: "SessionDeleted" }] }; // of release 0.2.0
  assert.deepEqual([endingOf(unnamed, "ada").title, endText(unnamed)], ["A user has ended this session", unnamed.message]);
  assert.equal(sentence('request "vm-1-x7" was deleted'), 'Request "vm-1-x7" was deleted.');
  assert.equal(sentence(`nothing was typed: ${policy} 5m without input`), `Nothing was typed: ${policy} 5m without input.`);
});

test("a policy's demands become a form, without the commands in the message", () => {
  const causes = [
    { reason: "ReasonRequired", message: 'ConsolePolicy "default/p" requires a reason that matches OPS-[0-9]+, not "x"' },
    { reason: "ApprovalRequired", message: 'ConsolePolicy "default/q" requires the approval of another user' },
  ];
  const refusal = { code: 403, reason: "Forbidden", message: "…: use kubectl console --reason TICKET vm-1", causes };
  assert.deepEqual(demands(refusal), { reason: true, approval: true });
  assert.equal(
    endText(refusal),
    'ConsolePolicy "default/p" requires a reason that matches OPS-[0-9]+, not "x"; ConsolePolicy "default/q" requires the approval of another user.',
  );
});

test("a refusal names each policy once, and the user's last request", () => {
  const policy = 'ConsolePolicy "default/p" requires';
  const approval = `${policy} the approval of another user (#on-call)`;
  const reason = { reason: "ReasonRequired", message: `${policy} a reason that matches OPS-[0-9]+` };
  const refusal = (message, request) => ({ causes: [reason, { reason: "ApprovalRequired", message, request }] });
  const both = `${policy} a reason that matches OPS-[0-9]+, and the approval of another user (#on-call)`;
  assert.equal(endText({ code: 403, reason: "Forbidden", message: approval, ...refusal(approval) }), `${both}.`);
  assert.equal(requestOf(refusal(approval)), "");
  assert.equal(requestOf(refusal(approval, "vm-x7")), "vm-x7");
  assert.equal(stateText("ended", { asked: 1000 }, 43_000).text, "Waiting for approval, 42s");
});

test("a refusal that no reason and no approval helps has the server's words", () => {
  const message = 'ConsolePolicy "default/p" does not allow this console at this hour';
  const refusal = { code: 403, reason: "Forbidden", message, causes: [{ reason: "ConsolePolicyNotMet", message }] };
  assert.deepEqual(demands(refusal), { reason: false, approval: false });
  assert.equal(endText(refusal), message);
  assert.deepEqual(demands({ code: 403, message: "forbidden" }), { reason: false, approval: false });
  assert.deepEqual([refusal, { code: 403 }, { code: 403, kind: "machines" }].map(isForbidden), [false, false, true]);
});

test("a session that ended because its machine does not run differs from others", () => {
  assert.ok(isMachineStopped({ reason: "PoweredOff", code: 0, message: "" }));
  assert.ok(isMachineStopped({ reason: "Conflict", code: 409, message: "machine \"vm\" is powered off: set spec.power to On" }));
  assert.ok(!isMachineStopped({ reason: "NotFound", code: 404, message: "" }));
  const without = { reason: "NotFound", code: 404, message: 'machinepools "absent" not found', kind: "machinepools", name: "absent" };
  assert.deepEqual([isMachineStopped(without), isMachineMissing(without)], [true, false]);
  assert.equal(endText(without), 'The pool "absent" does not exist.');
  assert.equal(endText({ ...without, name: "" }), "The pool of this machine does not exist.");
  assert.equal(stoppedText({ state: "Pending", problem: "no such image" }), "Pending: no such image.");
  assert.equal(stoppedText({ state: "Shutdown", problem: "" }), "Shutdown.");
  assert.equal(stoppedText({ state: "Shutdown", problem: "powered off, as spec.power says", isOff: true }), "It is powered off.");
  assert.equal(stoppedText({ state: "Shutdown", problem: "", isOff: true, isOwn: true }), "You have powered it off.");
  assert.deepEqual([true, false].map((maySwitch) => startText({ state: "Pending", isOff: false }, maySwitch)), ["", ""]);
  assert.equal(startText({ state: "Shutdown", isOff: true }, true), "");
  assert.match(startText({ state: "Shutdown", isOff: true }, false), /may not power it on; users with the role “edit”/);
  assert.match(startText({ state: "Shutdown", isOff: false }, true), /off and then on, with “Power off” and “Power on” in Commands\.$/);
  assert.match(startText({ state: "Shutdown", isOff: false }, false), /users with the role “edit” in its namespace may do that/);
});

test("messages begin with a capital, and names stay as they are", () => {
  assert.equal(sentence("you are the writer of this console"), "You are the writer of this console.");
  assert.equal(sentence("ada has left"), "ada has left.");
  assert.equal(sentence("the disk is full!"), "The disk is full!");
  assert.equal(sentence("anton has left"), "anton has left.");
});

test("the first sentence is about the machine, and the server's words follow", () => {
  const message = 'the poollet of machinepool "rack-7" is not connected';
  assert.deepEqual(explained(message), { text: "The host of the machine cannot be reached now.", detail: message });
  assert.deepEqual(explained("no such class"), { text: "No such class.", detail: "" });
});

test("an attempt to connect says what is in the way", () => {
  assert.deepEqual(["connecting", "open", "resumed"].map((name) => attemptText(name, {}, AWAY).text), ["", "", ""]);
  assert.match(attemptText("reconnecting", {}, AWAY).text, /cannot be reached/);
  assert.match(attemptText("reconnecting", { unauthorized: true }, AWAY).text, /login/);
  assert.match(attemptText("connecting", { message: "no WebSocket", code: 0 }, AWAY).text, /^The server cannot be reached\. .* by itself/);
  assert.equal(attemptText("connecting", { message: "no WebSocket", code: 0 }, AWAY).detail, "no WebSocket");
  assert.equal(attemptText("connecting", { message: AWAY, code: 0 }, AWAY).detail, ""); // the text says it
  assert.match(attemptText("connecting", { code: 0, message: "x" }, "the command does not run").text, /^The command does not run\. The page tries/);
  assert.match(attemptText("connecting", { message: "no WebSocket", isSilent: true }, "the command does not run").text, /^The server does not answer\. The page tries/);
  const busy = attemptText("connecting", { message: "the poollet is not connected", code: 503 }, AWAY);
  assert.match(busy.text, /^The console cannot be opened now: the host of the machine cannot be reached now\. .* by itself/);
  assert.match(busy.detail, /poollet/);
  const away = attemptText("connecting", { message: "cannot reach the API server: connection refused", code: 502 }, AWAY);
  assert.equal(away.text, "The console cannot be opened now: cannot reach the API server: connection refused. The page tries again by itself.");
});

test("an outage says what is in the way if the server answers, in words that its user can understand", () => {
  const refused = { since: 0, code: 503, message: "cannot connect to pool-a" };
  assert.deepEqual(causeText(refused), { text: "Cannot connect to pool-a.", detail: "" });
  const inner = causeText({ ...refused, message: "the poollet is away" });
  assert.deepEqual(inner, { text: "The host of the machine cannot be reached now.", detail: "the poollet is away" });
  for (const other of [{ code: 0 }, { code: 401 }, { unauthorized: true }, { since: undefined }, { message: "" }]) {
    assert.equal(causeText({ ...refused, ...other }).text, "");
  }
});

test("a user reads why a new session begins", () => {
  globalThis.location = /** @type {any} */ ({ port: "8001" });
  const unconfirmed = { sent: 0, unsent: 2 };
  assert.match(anewText({ reason: "WebConsoleStopped", unconfirmed }), /on this computer was stopped\. Start it again with “twisted-exec web --port=8001” and log in here/);
  assert.equal(stopAdvice({ unconfirmed }), "Start it again with “twisted-exec web --port=8001” and log in here: a new session opens then.");
  assert.equal(stopAdvice({ unconfirmed: { sent: 3, unsent: 1 } }, { unauthorized: true }), "A new session opens after it. 3 keys may not have reached the machine.");
  assert.match(anewText({ reason: "NotFound", unconfirmed }), /is over\. A new session opens\.$/);
  const former = { reason: "NotFound", unconfirmed: { sent: 0, unsent: 0 } };
  assert.equal(anewText(former, true), "The session before is over. This is a new session.");
});

test("a warning about a new session says nothing of recordings, which change while it stays", () => {
  const recorded = "This console is recorded for ada (input: masked).";
  const ending = (unsent) => ({ reason: "NotFound", unconfirmed: { sent: 0, unsent } });
  const told = (unsent, loss = "") => anewMessages(ending(unsent), { loss, recorded });
  const begin = "The session before is over. This is a new session.";
  assert.deepEqual(told(0), [{ text: begin, recorded }]);
  assert.deepEqual(told(2), [{ text: "", recorded }]); // the line about the keys says it
  assert.deepEqual(told(0, "bob types here now."), [{ text: begin, loss: "bob types here now.", kind: "warning" }, { recorded }]);
  assert.deepEqual(anewMessages(ending(2), { loss: "", recorded: "" }), []);
});

test("a user whose session a policy has ended reads which one, and one whose login has expired that", () => {
  const unconfirmed = { sent: 0, unsent: 0 };
  const withdrawn = (message, ...reasons) => {
    const causes = reasons.map((reason) => ({ reason, message: "" }));
    return anewText({ reason: "AuthorizationWithdrawn", message, causes, unconfirmed }, true);
  };
  const rest = " This is a new session.";
  const message = "ConsolePolicy default/rec4 requires a recording of this console (input: masked), and this session began without the policy's recording: a new session has it";
  assert.equal(withdrawn(message, "AuthorizationWithdrawn", "NotRecorded"), `${message}.${rest}`);
  assert.equal(withdrawn(message, "AuthorizationWithdrawn"), `The session before is over.${rest}`);
  assert.equal(withdrawn("the certificate or token of this session expired at 2026-02-02T20:24:47Z; open the console again with a new one"), `Your login had expired.${rest}`);
  assert.equal(anewText({ reason: "AuthorizationWithdrawn", message: "", code: 401, unconfirmed }, true), `Your login had expired or was withdrawn.${rest}`);
  assert.equal(withdrawn("no right"), `The session before is over.${rest}`);
});

test("what a server says of times is in the time of its user", () => {
  const [at, day] = [new Date(), new Date(2020, 1, 2, 8, 38)];
  at.setHours(16, 33, 0, 0);
  const utc = (time) => time.toISOString().replace(".000", "");
  assert.equal(said(`ConsolePolicy a/b allows this session until ${utc(at)}`), "ConsolePolicy a/b allows this session until 16:33.");
  assert.equal(explained(`it ended at ${utc(day)}, as asked`).text, "it ended at 2020-02-02 08:38, as asked.");
  assert.equal(said("until 2026-99-99T99:99:99Z"), "until 2026-99-99T99:99:99Z.");
});

test("the banner of a machine is short and plain", () => {
  assert.equal(bannerText(undefined), "");
  assert.equal(bannerText({ no: "text" }), "");
  assert.equal(bannerText("\n Ask \x1b[31mfirst\r\nthen\ttype \n"), "Ask [31mfirst\nthentype");
  assert.deepEqual(bannerText(`${"😀".repeat(90)}\n2\n3\n4\n5`).split("\n").map((line) => [...line].length), [80, 1, 1, 1]);
});

test("a user who has lost the right to type reads to whom", () => {
  assert.match(lostText({ isDenied: false, writer: "bob", isOwn: false }), /^bob types here now\. You only observe/);
  assert.match(lostText({ isDenied: true, writer: "", isOwn: false }), /no longer type/);
  assert.match(lostText({ isDenied: false, writer: "ada", isOwn: true }), /^Another session of yours types/);
});

test("an observer whose window is smaller in one direction reads both sizes, and what shows the rest", () => {
  assert.equal(largerText("bob", [120, 40], [120, 40]), "");
  assert.equal(largerText("bob", [80, 24], [120, 40]), "");
  assert.equal(
    largerText("bob", [120, 40], [200, 24]),
    "bob's window is 120x40 and yours 200x24: scroll to see all of it, or choose “Smaller” in Commands.",
  );
  assert.match(largerText("", [120, 40], [119, 40]), /^The writer's window is 120x40/);
});

test("an observer who types reads that it is not sent, and what to choose first, if anything helps", () => {
  assert.match(readOnlyText({ mayTakeOver: true, writer: "" }), /not sent: .*opened to observe only\. Choose “Type here” first\./);
  assert.match(readOnlyText({ mayTakeOver: true, writer: "bob" }), /Choose “Take over” first\./);
  assert.match(readOnlyText({ mayTakeOver: false, writer: "" }), /not sent: you may only observe this console\.$/);
});

test("users of screen readers hear of a session that has ended only if it had begun", () => {
  for (const [ending, title] of [
    [{ reason: "NotStarted", message: "no pool yet", hadSession: false }, "The machine is not running"],
    [{ reason: "", code: 0, hadSession: false }, "The console was not opened"],
    [{ reason: "", code: 0, hadSession: true }, "The session has ended"],
  ]) {
    assert.equal(endingOf(ending).title, title);
  }
});

test("a user who may not record learns which role it takes, and others why the server refuses", () => {
  const forbidden = { code: 403, message: 'User "bob" cannot create', status: { details: { kind: "consolerecordings" } } };
  const advice = "You may not record this console. Ask your administrator for the role “edit” in the namespace lab.";
  assert.equal(recordingRefusal(forbidden, "lab"), advice);
  assert.equal(recordingRefusal({ code: 500, message: "the disk is full", status: {} }, "lab"), "The recording was not begun: the disk is full");
});

test("screen readers say of an end what the panel shows", () => {
  const place = { namespace: "default", name: "vm" };
  const machine = { state: "Pending", problem: "no machine pool offers class \"huge\"", runs: false, isOff: false };
  const known = { place, machine, user: "ada" };
  const missing = { reason: "NotFound", code: 404, message: 'machines "vm" not found', kind: "machines" };
  assert.equal(announcedEnd({ reason: "NotStarted", message: "This machine does not run yet." }, known), 'The machine is not running. Pending: no machine pool offers class "huge". This console opens as soon as the machine runs.');
  assert.equal(announcedEnd({ reason: "NotStarted", message: "This machine does not run yet." }, { ...known, machine: null }), "The machine is not running. This machine does not run yet.");
  assert.equal(announcedEnd(missing, known), "The namespace default has no machine vm.");
  assert.equal(announcedEnd({ ...missing, hadSession: true }, known), "The machine is deleted. Its output stays in the log for some time.");
});

test("a session that was open has ended, whatever the server answers to its return", () => {
  const gone = { reason: "Forbidden", code: 403, message: "no" };
  assert.equal(endingOf({ ...gone, hadSession: true }).title, "The session has ended");
  for (const hadSession of [false, undefined]) assert.equal(endingOf({ ...gone, hadSession }).title, "The console was not opened");
  assert.match(endingOf({ reason: "AuthorizationWithdrawn", code: 401 }, "", true).advice, /^Renew your credentials/);
});
