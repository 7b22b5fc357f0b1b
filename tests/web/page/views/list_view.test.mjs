/** The common part of lists, with a document and a server in memory. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { ApiError } from "../../../../twisted_exec/web/page/api.js";
import { Machines } from "../../../../twisted_exec/web/page/machines.js";
import { ListView } from "../../../../twisted_exec/web/page/views/list_view.js";
import { install } from "../dom.mjs";
import { turn } from "../fakes.mjs";

install();

const KIND = { plural: "machines", group: "compute.ironcore.dev", version: "v1alpha1", subresources: [] };
const named = (name) => ({ metadata: { namespace: "team-a", name } });

/** A server whose watches are driven by the test. */
class Server {
  watches = [];
  reviews = [];
  allowed = new Set();

  watch(path, onEvent, { onProblem, signal }) {
    this.watches.push({ path, onEvent, onProblem, signal });
  }

  forget() {
    this.reviews.push("forget");
  }

  async can(verb, resource, subresource, namespace) {
    this.reviews.push([verb, resource, subresource, namespace].join(" "));
    return this.allowed.has(verb);
  }
}

class Things extends ListView {
  objects = null;

  begin() {
    this.list((namespace) => `/things/${namespace}`, { onChange: (objects) => (this.objects = objects) });
  }

  draw() {
    this.drawn = (this.drawn ?? 0) + 1;
  }
}

async function open(t, { allowed = [], address = "", options = {}, served = null, namespace = undefined, view: View = Things } = {}) {
  t.mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"] });
  const server = new Server();
  server.allowed = new Set(allowed);
  const values = new Map();
  const store = { get: (key, fallback = null) => values.get(key) ?? fallback, set: (key, value) => values.set(key, value) };
  const lists = new Map();
  const context = { api: server, lists, config: { namespace: "home", cluster: "lab" }, store, machines: new Machines([KIND], served), count: () => server.reviews.push("count") };
  const query = new URLSearchParams(address);
  const rights = { mayEnd: ["delete", ""] };
  const view = new View(context, { query, namespace }, { plural: "things", role: "edit", missing: "No things.", rights, ...options });
  await view.start();
  t.after(() => view.stop());
  return { view, server, store, context };
}

/** Leave the view and come back to it. */
async function again(t, { view, context }) {
  view.stop();
  const next = new Things(context, { query: new URLSearchParams() }, { plural: "things", role: "edit" });
  await next.start();
  t.after(() => next.stop());
  return next;
}

test("a view that is opened again shows the rows that it had, and since when they may be old", async (t) => {
  const opened = await open(t, { allowed: ["list"] });
  const { view, server } = opened;
  server.watches[0].onEvent({ type: "RESET", items: [named("x")] });
  t.mock.timers.tick(100);
  const next = await again(t, opened);
  assert.deepEqual(next.objects.map((each) => each.metadata.name), ["x"]);
  assert.deepEqual([next.problem.text, next.asOf], ["", null]); // it will be read at once
  const { drawn = 0 } = next;
  t.mock.timers.tick(3000);
  assert.match(next.problem.text, /^Waiting for the server \(lab\), for 3s so far. This list is as of \d\d:\d\d\.$/);
  t.mock.timers.tick(100);
  assert.ok(next.asOf !== null && next.drawn > drawn); // the users of old rows are unknown
  server.watches.at(-1).onProblem({ code: 0, message: "the server cannot be reached" });
  assert.match(next.problem.text, /^This list is as of \d\d:\d\d: the server cannot be reached\./);
  server.watches.at(-1).onEvent({ type: "RESET", items: [] });
  server.watches.at(-1).onProblem(null);
  t.mock.timers.tick(100);
  assert.deepEqual([next.objects, next.problem.text, view.objects.length], [[], "", 1]);
});

test("the lists of few views are kept", async (t) => {
  const { view, context } = await open(t, { allowed: ["list"] });
  for (let number = 0; number < 40; number++) view.list(() => `/things/${number}`, { onChange: () => {} });
  assert.equal(context.lists.size, 16);
});

test("a view that is left does not change the address of the next one", async (t) => {
  globalThis.location.hash = "#/things";
  const { view } = await open(t, { allowed: ["list"] });
  view.filter.value = "x";
  view.filter.send("input");
  for (const next of ["#/others", "#/things?namespace=b"]) {
    globalThis.location.hash = next;
    view.keepAddress();
    t.mock.timers.tick(400);
    assert.equal(globalThis.location.hash, next);
  }
  globalThis.location.hash = "";
});

test("the address follows the filter and the namespaces", async (t) => {
  globalThis.location.hash = "#/things";
  const { view } = await open(t, { allowed: ["list"] });
  assert.equal(globalThis.location.hash, "#/things");
  view.filter.value = "web 1";
  view.filter.send("input");
  view.namespaces.value = "b";
  view.namespaces.send("input");
  t.mock.timers.tick(400);
  assert.equal(globalThis.location.hash, "#/things?filter=web+1&namespace=b");
  globalThis.location.hash = "";
});

test("another list is followed where the user may list it", async (t) => {
  const seen = [];
  const { view, server } = await open(t, { allowed: ["list"] });
  view.beside("consolesessions", (objects, isWhole) => seen.push(isWhole && objects));
  await turn();
  const { path, onEvent } = server.watches.at(-1);
  assert.match(path, /consolesessions$/);
  onEvent({ type: "RESET", items: [named("s")] });
  t.mock.timers.tick(100);
  assert.equal(seen.at(-1)[0].metadata.name, "s");
  server.allowed.clear();
  view.beside("consolerecordings", () => assert.fail("not allowed"));
  await turn();
  assert.doesNotMatch(server.watches.at(-1).path, /consolerecordings/);
});

const paths = (server) => server.watches.filter(({ signal }) => !signal.aborted).map(({ path }) => path);

test("a user who may list everywhere begins with all namespaces", async (t) => {
  assert.deepEqual(paths((await open(t, { allowed: ["list"] })).server), ["/things/"]);
});

test("a user who may not list everywhere begins at home", async (t) => {
  assert.deepEqual(paths((await open(t)).server), ["/things/home"]);
});

test("the address names namespaces and the filter", async (t) => {
  const { view, server } = await open(t, { address: "namespace=a,b&filter=x" });
  assert.deepEqual(paths(server), ["/things/a", "/things/b"]);
  assert.equal(view.filter.value, "x");
  assert.deepEqual(server.reviews, []);
});

test("namespaces that the user has named before are kept, also all of them", async (t) => {
  const { server } = await open(t, { options: { namespaces: "" } });
  assert.deepEqual(paths(server), ["/things/"]);
  assert.deepEqual(server.reviews, []);
});

test("a list that is no longer refused is a reason to ask again what the user may", async (t) => {
  const refusal = new ApiError(403, "things is forbidden");
  const { view, server } = await open(t, { address: "namespace=team-a,team-b" });
  const seen = [];
  view.beside("consolesessions", (objects) => seen.push(objects));
  view.rightsIn("team-a");
  await turn();
  assert.deepEqual([view.rightsIn("team-a"), server.watches.map(({ path }) => path)], [{ mayEnd: false }, ["/things/team-a", "/things/team-b"]]);
  const [first, second] = server.watches;
  for (const each of [first, second]) each.onProblem(refusal);
  server.reviews = [];
  second.onProblem(null);
  await turn();
  assert.deepEqual(server.reviews.slice(0, 2), ["forget", "count"]);
  assert.deepEqual([server.watches.length, server.reviews.includes("delete things  team-a")], [2, true]); // nothing more is allowed
  server.allowed = new Set(["list", "delete"]);
  first.onProblem(null);
  await turn();
  assert.deepEqual(view.rightsIn("team-a"), { mayEnd: true });
  assert.deepEqual(server.watches.slice(2).map(({ path }) => path.replace(/.*namespaces/, "")), ["/team-a/consolesessions", "/team-b/consolesessions"]);
  server.reviews = [];
  first.onProblem(null); // behind an outage
  await turn();
  assert.deepEqual([server.reviews, server.watches.length], [[], 4]);
});

test("other namespaces are followed when the user pauses", async (t) => {
  const { view, server, store } = await open(t);
  view.namespaces.value = "b";
  view.namespaces.send("input");
  t.mock.timers.tick(300);
  assert.deepEqual(paths(server), ["/things/home"]);
  t.mock.timers.tick(100);
  assert.deepEqual(paths(server), ["/things/b"]);
  assert.equal(store.get("namespace"), "b");
});

test("all events of a moment are one change", async (t) => {
  const { view, server } = await open(t);
  const [{ onEvent }] = server.watches;
  assert.equal(view.isLoading, true);
  onEvent({ type: "RESET", items: [named("x")] });
  onEvent({ type: "ADDED", object: named("y") });
  assert.equal(view.isLoading, false);
  t.mock.timers.tick(100);
  assert.equal(view.drawn, 1);
  assert.deepEqual(view.objects.map((each) => each.metadata.name), ["x", "y"]);
});

test("the problems of all lists are shown, each until its list is read again", async (t) => {
  const { view, server } = await open(t, { address: "namespace=a,b" });
  const [a, b] = server.watches;
  a.onProblem({ code: 403, message: 'things is forbidden: User "ada"' });
  b.onProblem({ code: 0, message: "the server cannot be reached" });
  assert.equal(view.isLoading, false);
  assert.match(view.problem.text, /No list for \ds: the server cannot be reached.*You may not list things in the namespace a\..*the role “edit”.*forbidden/);
  a.onProblem(null);
  assert.doesNotMatch(view.problem.text, /You may not/);
  assert.equal(view.hasProblem, true);
  b.onProblem(null);
  assert.equal(view.hasProblem, false);
});

test("a user without the right to a list is led to the field of the namespaces, if the view has one", async (t) => {
  for (const [namespace, labels] of [[undefined, ["Choose other namespaces"]], ["a", []]]) {
    const { view, server } = await open(t, { namespace });
    server.watches[0].onProblem({ code: 403, message: "things is forbidden" });
    assert.deepEqual(view.problem.all("button").map((each) => each.text), labels);
    assert.match(view.problem.text, labels.length ? /Type the namespaces in which.*, or ask your.* in the namespace home/ : /Ask your administrator.* in the namespace a/);
    view.stop();
    t.mock.timers.reset();
  }
});

/** As many lists as a view of alerts has. */
class ManyThings extends Things {
  begin() {
    for (const plural of ["things", "consolealerts", "events"]) this.list((namespace) => `/${plural}/${namespace}`, { plural, onChange: () => {} });
  }
}

test("all that the user may not list is one notice, which is shown once also while it grows", async (t) => {
  const where = { "namespace=": "in all namespaces", "namespace=a,b": "in the namespaces a and b" };
  for (const [address, text] of Object.entries(where)) {
    const { view, server } = await open(t, { address, view: ManyThings });
    for (const { path, onProblem } of server.watches) onProblem({ code: 403, message: `no right to ${path}` });
    const { length } = view.problem.all("div").filter((each) => each.class === "notice warning");
    assert.equal(length, 1, address);
    assert.match(view.problem.text, new RegExp(`^You may not list things, alerts and events ${text}\\.Type .*the role “edit” ${text}\\.Choose other namespacesno right to /things/[a]?$`));
    view.stop();
    t.mock.timers.reset();
  }
});

test("a notice of what the user may not list names only that", async (t) => {
  const { view, server } = await open(t, { address: "namespace=a,b", view: ManyThings });
  const refuse = (path) => server.watches.find((each) => each.path === path).onProblem({ code: 403, message: "no" });
  refuse("/things/a");
  refuse("/things/b");
  refuse("/events/b");
  assert.match(view.problem.text, /^You may not list things in the namespaces a and b\. You may not list events in the namespace b\./);
});

test("a reason that is that of several lists is shown once", async (t) => {
  const { view, server } = await open(t, { view: ManyThings });
  for (const { onProblem } of server.watches) onProblem({ code: 401, message: "Unauthorized" });
  assert.equal(view.problem.text, "Waiting for your login.");
  server.watches[0].onProblem(null);
  assert.equal(view.problem.text, "Waiting for your login.");
  for (const { onProblem } of server.watches) onProblem(null);
  assert.deepEqual([view.problem.text, view.hasProblem], ["", false]);
});

test("what the user may not list any more is gone, also from a view that is opened again", async (t) => {
  const opened = await open(t, { allowed: ["list"] });
  const { view, server } = opened;
  server.watches[0].onEvent({ type: "RESET", items: [named("x")] });
  t.mock.timers.tick(100);
  assert.equal(view.objects.length, 1);
  const next = await again(t, opened);
  assert.equal(next.objects.length, 1);
  server.watches[1].onProblem({ code: 403, message: "things is forbidden" });
  t.mock.timers.tick(100);
  assert.deepEqual([next.objects, next.asOf], [null, null]);
  assert.match(next.problem.text, /You may not list things/);
  const last = await again(t, { ...opened, view: next });
  assert.equal(last.objects, null);
});

test("who is at a machine is forgotten when the user may not list sessions any more", async (t) => {
  const opened = await open(t, { allowed: ["list"] });
  const seen = [];
  const beside = (view) => view.beside("consolesessions", (objects) => seen.push(objects.length));
  beside(opened.view);
  await turn();
  opened.server.watches.at(-1).onEvent({ type: "RESET", items: [named("x")] });
  t.mock.timers.tick(100);
  const next = await again(t, opened);
  opened.server.allowed.clear();
  beside(next);
  await turn();
  t.mock.timers.tick(100);
  assert.deepEqual(seen, [1, 1, 0]);
});

test("all namespaces are offered to a user who may list them", async (t) => {
  for (const [allowed, labels] of [[["list"], ["Show all namespaces"]], [[], []]]) {
    const { view } = await open(t, { allowed, address: "namespace=a" });
    view.noRows("thing", 0, "");
    await turn();
    const empty = /** @type {any} */ (view.noRows("thing", 0, ""));
    assert.match(empty.text, /There are no things in a; other namespaces are not shown\./);
    assert.deepEqual(empty.all("button").map((each) => each.text), labels);
    view.stop();
    t.mock.timers.reset();
  }
});

test("a user reads the names of lists in the navigation, not those of their resources", async (t) => {
  const { view, server } = await open(t, { address: "namespace=a", options: { plural: "consolerequests" } });
  server.watches[0].onProblem({ code: 403, message: "forbidden" });
  assert.match(view.problem.text, /You may not list requests in the namespace a\./);
});

test("a list that was read is not current when its server is away", async (t) => {
  const { view, server } = await open(t, { address: "namespace=a" });
  const [{ onEvent, onProblem }] = server.watches;
  onEvent({ type: "RESET", items: [] });
  onProblem({ code: 0, message: "the server cannot be reached" });
  assert.match(view.problem.text, /^This list is as of \d\d:\d\d: the server cannot be reached\. The page tries/);
  assert.match(/** @type {any} */ (view.emptyOf(true, "All is well.")), /^All is well\. That was at \d\d:\d\d\.$/);
  onProblem(null);
  assert.equal(view.emptyOf(true, "All is well."), "All is well.");
});

test("a list that was never read says for how long there is none, by a button that keeps the focus", async (t) => {
  const { view, server } = await open(t, { address: "namespace=a" });
  const [{ onEvent, onProblem }] = server.watches;
  const away = { code: 503, message: "cannot reach the API server: connection refused" };
  onProblem(away);
  assert.match(view.problem.text, /^No list for 0s: cannot reach the API server: connection refused\. The page tries again by itself\. +Try now$/);
  const [retry] = view.problem.all("button");
  t.mock.timers.tick(12_000);
  onProblem(away);
  assert.match(view.problem.text, /^No list for 12s: /);
  assert.equal(view.problem.all("button")[0], retry);
  assert.equal(view.asOf, null);
  onEvent({ type: "RESET", items: [] });
  onProblem(null);
  assert.equal(view.problem.text, "");
});

test("a problem that stays is shown once, also during an outage, with what a user can do who may not list", async (t) => {
  const shown = [];
  const instead = (namespace) => {
    shown.push(document.createElement("form"));
    return Object.assign(shown.at(-1), { namespace });
  };
  const { view, server } = await open(t, { address: "namespace=a", options: { instead } });
  const refusal = { code: 403, message: "forbidden" };
  for (const each of [refusal, refusal, { code: 503, message: "busy" }, refusal]) {
    server.watches[0].onProblem(each);
    assert.deepEqual(view.problem.all("form"), [shown[0]]);
  }
  assert.equal(shown[0].namespace, "a");
});

test("a list that waits for two seconds says for whom, until it has an answer", async (t) => {
  const { view, server } = await open(t, { address: "namespace=a" });
  t.mock.timers.tick(1000);
  assert.equal(view.problem.text, "");
  t.mock.timers.tick(2000);
  assert.equal(view.problem.text, "Waiting for the server (lab), for 3s so far. ");
  t.mock.timers.tick(18_000);
  assert.match(view.problem.text, /for 21s so far\. It does not answer\. .*Try now$/);
  server.watches[0].onEvent({ type: "RESET", items: [] });
  assert.equal(view.problem.text, "");
});

test("a view that waits to learn where it may begin says for whom", async (t) => {
  const { context, server } = await open(t);
  server.can = () => new Promise(() => {});
  const view = new Things(context, { query: new URLSearchParams() }, { plural: "things", role: "edit" });
  view.start();
  t.after(() => view.stop());
  t.mock.timers.tick(3000);
  assert.match(view.problem.text, /^Waiting for the server \(lab\), for 3s so far/);
});

test("words of a link that the list does not know are named", async (t) => {
  const { view } = await open(t, { address: "namespaces=a&filter=x" });
  assert.equal(view.problem.text, "The link says namespaces, which this list does not know. It knows filter, namespace.");
});

test("an address without a view is named", async (t) => {
  const { context } = await open(t);
  const view = new Things(context, { query: new URLSearchParams(), unknown: "nonsense/x" }, { plural: "things", role: "edit" });
  await view.start();
  t.after(() => view.stop());
  assert.equal(view.problem.text, "There is no view nonsense/x. This is the list of machines.");
});

test("rights are asked once for each namespace, and drawn when they are known", async (t) => {
  const { view, server } = await open(t, { allowed: ["delete"], address: "namespace=a" });
  assert.deepEqual([view.rightsIn("a"), view.rightsIn("a")], [{}, {}]);
  await turn();
  assert.deepEqual(view.rightsIn("a"), { mayEnd: true });
  assert.equal(view.drawn, 1);
  assert.deepEqual(server.reviews, ["delete things  a"]);
});

test("a right may be to another resource", async (t) => {
  const { view, server } = await open(t, { options: { rights: { mayChange: ["update", "", "others"] } } });
  view.rightsIn("a");
  await turn();
  assert.deepEqual([server.reviews.at(-1), view.rightsIn("a")], ["update others  a", { mayChange: false }]);
});

test("a server that does not have the resource is not asked for it", async (t) => {
  const { view, server } = await open(t, { served: new Set() });
  assert.equal(view.problem.text, "No things.");
  assert.deepEqual(server.reviews, []);
});

test("a list without rows of a machine says that there is no such machine", async (t) => {
  const { view, server } = await open(t, { allowed: ["list"], namespace: "lab" });
  const status = { reason: "NotFound", details: { kind: "machines" } };
  server.request = async (path) => {
    if (path.endsWith("/vm")) throw new ApiError(404, "not found", status);
    return { items: [] };
  };
  const none = view.noneOf(document.createElement("p"), { namespace: "lab", name: "vm" }, "events");
  for (let each = 0; each < 5; each += 1) await turn();
  assert.match(none.text, /^The namespace lab has no machine vm/);
});

test("a change that waited for the server and failed does not go on waiting", async (t) => {
  const { view } = await open(t);
  let fail;
  const answer = view.acknowledged("The end", new Promise((_, reject) => (fail = reject)));
  t.mock.timers.tick(5000);
  assert.match(view.problem.text, /The end waits for the server\.$/);
  fail(new Error("no"));
  await assert.rejects(answer, /no/);
  assert.doesNotMatch(view.problem.text, /The end/);
});
