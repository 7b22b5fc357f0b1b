/** The line below a terminal, in a document in memory. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Machines } from "../../../../twisted_exec/web/page/machines.js";
import { StatusLine } from "../../../../twisted_exec/web/page/terminal/status_line.js";
import { install } from "../dom.mjs";

install();

const KIND = { group: "compute.ironcore.dev", version: "v1alpha1", plural: "machines", subresources: [] };
const WRITER = { isObserver: false, isDenied: false, writer: "" };

function line(waiting, context = {}) {
  const [news, told, said] = [[], [], []];
  const away = (isAway) => told.push(isAway);
  const made = new StatusLine(context, { namespace: "default", name: "vm" }, { reconnect: () => {}, powerOn: () => {}, waiting: () => waiting, news: (text) => news.push(text), messages: () => said, away });
  made.role(WRITER, true);
  made.state("open", { resumable: true });
  made.viewers({ count: 1, writer: "ada", seconds: 0, recordings: [{ user: "ada", input: "none" }] });
  made.stop();
  const shown = () => made.element.children.filter((each) => !each.hidden).map((each) => each.text).filter(Boolean);
  const outage = () => !made.outage.hidden && made.outage.children.filter((each) => !each.hidden).map((each) => each.text).join(" ");
  return { made, shown, outage, told, news, said };
}

test("an outage is said over the terminal, with what becomes of keys, and nowhere else", () => {
  const { made, shown, outage, told } = line(3);
  assert.deepEqual(shown(), ["Connected", "You can type", "Recordedfor ada (input: none)", "1 viewer", "Details"]);
  made.state("reconnecting", { since: Date.now() });
  // The styles hide the keys as long as they are also over the terminal.
  assert.deepEqual(shown(), ["3 keys will be sent if this session goes on", "Details"]);
  assert.equal(outage(), "Connection lost for 0s. 3 keys will be sent if this session goes on. Try now");
  const away = { code: 503, message: 'cannot connect to pool "pool-a" at 127.0.0.1:30250: connection refused' };
  made.state("reconnecting", { since: Date.now(), ...away });
  assert.equal(
    outage(),
    'Connection lost for 0s. Cannot connect to pool "pool-a" at 127.0.0.1:30250: connection refused. 3 keys will be sent if this session goes on. Try now',
  );
  made.state("connecting", { since: Date.now(), reason: "WebConsoleStopped", drops: true, advice: "Start it again." });
  assert.deepEqual(shown(), ["3 keys will not be sent", "Details"]);
  assert.equal(outage(), "Web console on this computer stopped for 0s. Start it again. 3 keys will not be sent. Try now");
  made.state("resumed", { seconds: 1, missed: 0 });
  assert.deepEqual(shown().slice(1, 2), ["You can type"]);
  assert.equal(outage(), false);
  assert.deepEqual(told, [true, false]);
  made.state("ended", { reason: "Forbidden", code: 403 });
  assert.deepEqual(shown(), ["No session", "Details"]);
});

test("what is in the way of a new session in a used terminal is said over its output, unless it opens at once", (t) => {
  t.mock.timers.enable({ apis: ["Date"] });
  const { made, shown, outage, told } = line(0, { api: { unreachable: "the server cannot be reached" } });
  const since = Date.now();
  made.state("connecting", { since });
  assert.deepEqual([shown(), outage()], [["Connecting for 0s", "Details"], false]);
  made.state("connecting", { since, code: 503, message: "the poollet is not connected" });
  assert.equal(outage(), "Connecting for 0s. The host of the machine cannot be reached now. Try now");
  made.state("open", {});
  made.state("connecting", { since });
  t.mock.timers.tick(3000);
  made.role(WRITER, true); // as each second
  assert.equal(outage(), "Connecting for 3s. Try now");
  t.mock.timers.tick(9000);
  made.role(WRITER, true);
  assert.equal(outage(), "Connecting for 12s. The server does not answer. Try now");
  made.state("connecting", { since, code: 0, message: "no WebSocket", isSilent: true });
  assert.equal(outage(), "Connecting for 12s. The server does not answer. Try now");
  made.state("connecting", { since, code: 0, message: "no WebSocket", isSilent: false });
  assert.equal(outage(), "Connecting for 12s. The server cannot be reached. Try now");
  assert.deepEqual(told, [true, false, true]);
});

test("a connection that came back is news for some seconds; then the line has room for the viewers again", (t) => {
  t.mock.timers.enable({ apis: ["Date"] });
  const { made } = line(0);
  made.state("resumed", { seconds: 3, missed: 0 });
  const classes = () => made.element.className.split(" ");
  assert.deepEqual([made.element.children[0].text, classes().includes("resumed")], ["Reconnected after 3s", true]);
  t.mock.timers.tick(11_000);
  made.role(WRITER, true); // as each second
  assert.deepEqual([made.element.children[0].text, classes().includes("resumed")], ["Connected", false]);
});

test("a session that is not open yet takes no keys: the line says how many wait for it, but not to an observer", () => {
  const { made, shown } = line(2);
  made.state("connecting", {});
  assert.deepEqual(shown(), ["Connecting", "2 keys wait for the connection", "Details"]);
  made.role({ ...WRITER, isObserver: true }, true);
  assert.deepEqual(shown(), ["Connecting", "Details"]);
});

test("a server that is silent is not connected, until it answers", () => {
  const { made, shown, outage } = line(1);
  made.roundTrip(10);
  assert.ok(shown().includes("round trip 10 ms"));
  made.quiet(Date.now() - 6000);
  assert.deepEqual(shown().filter((each) => each !== "Recordedfor ada (input: none)"), ["1 key waits for the answer", "Details"]);
  assert.equal(outage(), "No answer for 6s. 1 key waits for the answer.");
  made.quiet(null);
  assert.equal(outage(), false);
  assert.deepEqual(shown().slice(0, 2), ["Connected", "You can type"]);
});

test("a machine that is off can be powered on where its state is read, by a user who may, while the server answers", () => {
  const { made, shown } = line(0);
  const off = { state: "Shutdown", problem: "", isOff: true };
  const stopped = () => shown().filter((each) => /^(Machine|Power)/.test(each));
  made.machine(off, true);
  assert.deepEqual(stopped(), ["Machine: Shutdown", "Power on"]);
  made.machine(off, false);
  assert.deepEqual(stopped(), ["Machine: Shutdown"]);
  made.machine({ ...off, isOff: false }, true); // only powering it off and on starts it
  assert.deepEqual(stopped(), ["Machine: Shutdown"]);
  made.machine(off, true);
  made.quiet(Date.now() - 6000);
  assert.deepEqual(stopped(), ["Machine: Shutdown"]);
});

test("users who join are told, with the names of those that the server lists", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  const people = [["ada", "s-1"]];
  const lists = [];
  const list = async (path, { query }) => {
    lists.push(query.fieldSelector);
    return { items: people.map(([user, session, awaySince, agent]) => ({ spec: { user, session, machine: "vm", agent }, status: { awaySince } })) };
  };
  const { made, shown, news } = line(0, { api: { list }, machines: new Machines([KIND]) });
  made.state("open", { resumable: true }, "s-1");
  const change = async (viewers) => {
    made.viewers({ writer: "ada", seconds: 0, recordings: [], ...viewers });
    for (let turn = 0; turn < 4; turn += 1) {
      t.mock.timers.tick(3500);
      await new Promise(setImmediate);
    }
    return [shown().find((each) => /viewer/.test(each)), news.splice(0)];
  };
  assert.deepEqual(await change({ count: 1 }), ["1 viewer: ada (you)", []]);
  made.viewers({ writer: "ada", seconds: 0, recordings: [], count: 2 });
  assert.equal(shown().find((each) => /viewer/.test(each)), "2 viewers"); // without the names of another moment
  assert.deepEqual(await change({ count: 2 }), ["2 viewers", []]); // the list is older
  people.push(["bob", "s-2"]);
  assert.deepEqual(await change({ count: 2 }), ["2 viewers: ada (you), bob", ["bob has joined"]]);
  setTimeout(() => people[1].push("2026-01-01T00:00:00Z"), 5000); // the list has the loss later
  assert.deepEqual(await change({ count: 2, lost: 1 }), ["1 viewer, 1 lost: ada (you), bob (lost)", []]);
  people.pop();
  assert.deepEqual(await change({ count: 1 }), ["1 viewer: ada (you)", ["bob has left"]]);
  people.push(["bob", "s-3", undefined, "twisted-exec doctor"]);
  const check = "twisted-exec doctor of bob";
  assert.deepEqual(await change({ count: 2 }), [`2 viewers: ada (you), ${check}`, [`${check} has joined`]]);
  people.pop();
  assert.deepEqual(await change({ count: 1 }), ["1 viewer: ada (you)", [`${check} has left`]]);
  lists.length = 0;
  assert.deepEqual(await change({ count: 500 }), ["500 viewers", []]);
  assert.deepEqual(lists, []); // each of 500 pages would ask for 500 sessions
});

test("a user who joins before the first list of the names is told, too, also behind an outage", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  const items = ["ada", "bob"].map((user) => ({ spec: { user, session: user, machine: "vm" } }));
  const { made, shown, news } = line(0, { api: { list: async () => ({ items }) }, machines: new Machines([KIND]) });
  made.begin(false);
  made.state("open", { resumable: true }, "ada");
  made.viewers({ count: 1, writer: "ada", seconds: 0, recordings: [] });
  made.viewers({ count: 2, writer: "ada", seconds: 0, recordings: [] });
  made.quiet(Date.now());
  const look = async () => {
    t.mock.timers.tick(3500);
    await new Promise(setImmediate);
  };
  await look();
  assert.deepEqual(news, []);
  made.quiet(null);
  await look();
  assert.deepEqual(news, ["bob has joined"]);
  assert.ok(shown().includes("2 viewers: ada (you), bob"));
});

test("details follow the sessions, the role and the state until they are closed", async () => {
  const session = (user, role, resource = "machines.compute.ironcore.dev") => ({
    metadata: { namespace: "default", name: user }, spec: { user, machine: "vm", machineResource: resource }, status: { role },
  });
  const watches = [];
  const api = { watch: (path, onEvent, options) => watches.push({ path, onEvent, ...options }) };
  const { made, said } = line(0, { api, machines: new Machines([KIND]), user: "ada" });
  const closed = made.showDetails();
  const dialog = document.body.children.at(-1);
  const [{ path, query, onEvent, onProblem, signal }] = watches;
  assert.match(path, /namespaces\/default\/consolesessions$/);
  assert.deepEqual(query, { fieldSelector: "spec.machine=vm" });
  assert.match(dialog.text, /Loading/);
  onEvent({ type: "RESET", items: [session("ada", "Writer"), session("eve", "Writer", "instances.core.spheric.cloud")] });
  assert.match(dialog.text, /PeopleUserRoleFromadaWriterDebug/);
  onEvent({ type: "ADDED", object: session("bob", "Observer") });
  said.push({ text: "Message from bob: \"hi\".", at: new Date(2026, 1, 2, 8, 38).getTime() });
  made.viewers({ count: 2, writer: "ada", seconds: 0, recordings: [] });
  assert.match(dialog.text, /Viewers2RecordedNo.*adaWriterbobObserverLast messages.*08:38Message from bob: "hi"/);
  made.role({ ...WRITER, isObserver: true }, true, "Ask an administrator.");
  assert.match(dialog.text, /Take overAsk an administrator\.RecordedNo/);
  assert.match(watches[1].path, /namespaces\/default\/consolerequests$/);
  const expirationTime = new Date(Date.now() + 60_000).toISOString();
  const request = (name, user, status) => ({ metadata: { namespace: "default", name, creationTimestamp: new Date().toISOString() }, spec: { user, machine: "vm" }, status });
  const approved = { approved: true, decidedBy: "bob", message: "go on", expirationTime };
  watches[1].onEvent({ type: "RESET", items: [request("a", "ada", approved), request("b", "ada", { ...approved, session: "s-9" }), request("c", "eve", approved), request("d", "ada", {})] });
  assert.match(dialog.text, /ApprovalUntil [^A]* by bob: go on\.PeopleUser/);
  watches[1].onProblem({ code: 403, message: "forbidden" });
  assert.ok(watches[1].signal.aborted);
  onEvent({ type: "DELETED", object: session("ada", "Writer") });
  made.state("reconnecting", { since: Date.now(), code: 503, message: "the poollet is not connected" });
  assert.match(dialog.text, /StateConnection lost for 0sCausethe poollet is not connected.*FrombobObserver/);
  onProblem({ code: 403, message: "forbidden" });
  assert.match(dialog.text, /Names are not shown: you may not list sessions\. Ask [^.]*“console-session-reader” in the namespace default\.forbidden/);
  assert.ok(signal.aborted);
  dialog.all("button").find((each) => each.text === "Close").click();
  await closed;
  made.stop();
});
