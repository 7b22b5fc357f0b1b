/** Requests, lists and watches against a fake server. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Api, ApiError } from "../../../twisted_exec/web/page/api.js";
import { Machines, discover } from "../../../twisted_exec/web/page/machines.js";

const MACHINES = "/apis/compute.ironcore.dev/v1alpha1/machines";

/** Answers by path and query; each call is kept. */
function server(answers) {
  const calls = [];
  const fetch = async (url, options) => {
    const path = url.replace("https://server.example", "");
    calls.push({ path, ...options });
    const answer = answers(path, options);
    if (answer instanceof Error) throw answer;
    const [code, body] = Array.isArray(answer) ? answer : [200, answer];
    return new Response(typeof body === "string" ? body : JSON.stringify(body), { status: code });
  };
  return { fetch, calls };
}

class FakeSocket {
  static made = [];

  constructor(url, protocols) {
    Object.assign(this, { url, protocols });
    FakeSocket.made.push(this);
  }

  close() {
    queueMicrotask(() => this.onclose({ code: 1000 }));
  }
}

function api(answers, token = "secret") {
  const { fetch, calls } = server(answers);
  const made = new Api({ origin: "https://server.example", token: () => token, fetch, WebSocket: FakeSocket });
  return { api: made, calls };
}

const object = (name, version) => ({ metadata: { name, resourceVersion: version } });

test("a request sends the token, and its query", async () => {
  const { api: client, calls } = api(() => ({ kind: "X" }));
  assert.deepEqual(await client.request("/x", { query: { a: "b c", none: "" } }), { kind: "X" });
  assert.equal(calls[0].path, "/x?a=b+c");
  assert.equal(calls[0].headers.Authorization, "Bearer secret");
  assert.equal(calls[0].redirect, "error");
});

test("without a token there is no header and no subprotocol of it", async () => {
  const { api: client, calls } = api(() => ({}), null);
  await client.request("/x");
  assert.equal(calls[0].headers.Authorization, undefined);
  assert.deepEqual(client.webSocketProtocols("v5.channel.k8s.io"), ["v5.channel.k8s.io"]);
});

test("a WebSocket carries the token in base64url", () => {
  const { api: client } = api(() => ({}), "ä?>");
  assert.deepEqual(client.webSocketProtocols("a"), ["base64url.bearer.authorization.k8s.io.w6Q_Pg", "a"]);
  assert.equal(client.webSocketURL("/x", { watch: "true" }), "wss://server.example/x?watch=true");
});

test("a refusal has the message of its Status", async () => {
  const status = { message: 'machines "a" not found', reason: "NotFound" };
  const { api: client } = api(() => [404, status]);
  const error = await client.request("/x").catch((problem) => problem);
  assert.ok(error instanceof ApiError);
  assert.equal(error.code, 404);
  assert.equal(error.reason, "NotFound");
  assert.equal(error.message, 'machines "a" not found');
});

test("an answer of a proxy, and no answer, are errors that can be read", async () => {
  const { api: proxied } = api(() => [502, "<html>"]);
  await assert.rejects(proxied.request("/x"), /the server answered 502/);
  const { api: lost } = api(() => new TypeError("Failed to fetch"));
  await assert.rejects(lost.request("/x"), { code: 0, message: "the server cannot be reached" });
});

test("only a refusal of the present token asks for a login", async () => {
  let token = "old";
  const { fetch } = server(() => {
    if (token === "newer") return [401, {}];
    token = "newer"; // the user has logged in while the request was on its way
    return [401, {}];
  });
  const client = new Api({ origin: "https://server.example", token: () => token, fetch });
  let count = 0;
  client.addEventListener("unauthorized", () => (count += 1));
  await assert.rejects(client.request("/x"));
  assert.equal(count, 0);
  await assert.rejects(client.request("/x"));
  assert.equal(count, 1);
});

test("a long list comes in pages", async () => {
  const { api: client, calls } = api((path) =>
    path.includes("continue=next")
      ? { items: [object("b")], metadata: { resourceVersion: "8" } }
      : { items: [object("a")], metadata: { resourceVersion: "7", continue: "next" } },
  );
  const { items, resourceVersion } = await client.list("/x", { query: { labelSelector: "a=b" } });
  assert.deepEqual(items.map((each) => each.metadata.name), ["a", "b"]);
  assert.equal(resourceVersion, "8");
  assert.match(calls[1].path, /labelSelector=a%3Db/);
});

test("rights are asked once a minute", async () => {
  const { api: client, calls } = api(() => [201, { status: { allowed: true } }]);
  client.group = "compute.ironcore.dev";
  assert.equal(await client.can("drive", "machines", "console", "default", "vm-1"), true);
  assert.equal(await client.can("drive", "machines", "console", "default", "vm-1"), true);
  assert.equal(calls.length, 1);
  const { resourceAttributes } = JSON.parse(calls[0].body).spec;
  assert.equal(resourceAttributes.group, "compute.ironcore.dev");
  await client.can("delete", "consolesessions", "", "default");
  assert.match(calls[1].body, /console\.twisted-exec\.dev/);
});

/** Start a watch; `next()` resolves with the next event, problem or pause. */
function watching(answers) {
  FakeSocket.made = [];
  const { api: client, calls } = api(answers);
  const controller = new AbortController();
  const seen = [];
  let wake = () => {};
  const put = (entry) => {
    seen.push(entry);
    wake();
  };
  const next = async () => {
    while (!seen.length) await new Promise((resolve) => (wake = resolve));
    return seen.shift();
  };
  const ended = client.watch(MACHINES, put, {
    query: { labelSelector: "a=b" },
    signal: controller.signal,
    onProblem: (error) => error && put({ problem: error.message }),
    pause: async (seconds) => put({ pause: Math.floor(seconds) }),
  });
  return { next, calls, ended, stop: () => controller.abort() };
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

test("a watch follows its list over a WebSocket, and ends with the signal", async () => {
  const { next, ended, stop } = watching(() => ({ items: [object("a", "3")], metadata: { resourceVersion: "5" } }));
  assert.deepEqual((await next()).type, "RESET");
  await settle();
  const [socket] = FakeSocket.made;
  assert.match(socket.url, /^wss:.*labelSelector=a%3Db&resourceVersion=5&watch=true/);
  socket.onopen();
  socket.onmessage({ data: JSON.stringify({ type: "ADDED", object: object("b", "6") }) });
  assert.deepEqual(await next(), { type: "ADDED", object: object("b", "6") });
  stop();
  await ended;
});

test("a watch lists again after an expired version, and waits longer each time", async () => {
  const { next, ended, stop } = watching(() => ({ items: [], metadata: { resourceVersion: "5" } }));
  for (const seconds of [1, 2, 4]) {
    assert.equal((await next()).type, "RESET");
    await settle();
    const socket = FakeSocket.made.at(-1);
    socket.onopen();
    socket.onmessage({ data: JSON.stringify({ type: "ERROR", object: { code: 410 } }) });
    assert.deepEqual(await next(), { pause: seconds });
  }
  stop();
  await settle();
  FakeSocket.made.at(-1).close();
  await ended;
});

test("a WebSocket that cannot be opened is explained by the list", async () => {
  let refused = false;
  const { next, ended, stop } = watching(() =>
    refused ? [403, { message: "forbidden" }] : { items: [], metadata: { resourceVersion: "5" } },
  );
  assert.equal((await next()).type, "RESET");
  await settle();
  refused = true;
  FakeSocket.made[0].onclose({ code: 1006 });
  assert.deepEqual(await next(), { pause: 1 });
  assert.deepEqual(await next(), { problem: "forbidden" });
  stop();
  await ended;
});

test("of a large answer no more is read than is wanted", async () => {
  const { api: client } = api(() => "x".repeat(1000));
  const { blob, isWhole } = await client.blob("/log", 1_000_000);
  assert.deepEqual([blob.size, isWhole], [1000, true]);
  let sent = 0;
  let wasCancelled = false;
  const body = new ReadableStream({
    pull: (controller) => controller.enqueue(new Uint8Array((sent += 100) && 100)),
    cancel: () => {
      wasCancelled = true;
    },
  });
  const endless = new Api({ origin: "", fetch: async () => new Response(body) });
  const part = await endless.blob("/log", 250);
  assert.deepEqual([part.blob.size, part.isWhole, wasCancelled], [300, false, true]);
  assert.ok(sent < 1000);
});

test("discovery finds each kind with a console, and the default without discovery", async () => {
  const groups = [{ name: "core.spheric.cloud", preferredVersion: { version: "v1alpha1" } }];
  const resources = ["instances", "instances/exec", "instances/log", "fleets"].map((name) => ({ name }));
  const { api: client } = api((path) => (path === "/apis" ? { groups } : { resources }));
  const kinds = await discover(client);
  assert.deepEqual(kinds, [
    { group: "core.spheric.cloud", version: "v1alpha1", plural: "instances", subresources: ["exec", "log"] },
  ]);
  const { api: denied } = api(() => [403, {}]);
  assert.equal((await discover(denied))[0].plural, "machines");
});

test("what an older server lacks is known", () => {
  const [kind] = [{ group: "g", version: "v1", plural: "machines", subresources: ["exec", "log"] }];
  const older = new Machines([kind], new Set(["consolesessions"]));
  assert.deepEqual(["", "logs", "screen", "recordings"].map((part) => older.has(kind, part)), [true, true, false, false]);
  assert.ok(older.serves("consolesessions"));
  assert.ok(new Machines([kind]).serves("consolealerts"));
});

test("machines of a second kind have longer names in routes", () => {
  const first = { group: "compute.ironcore.dev", version: "v1alpha1", plural: "machines" };
  const second = { group: "core.spheric.cloud", version: "v1alpha1", plural: "instances" };
  const machines = new Machines([first, second]);
  const name = machines.routeName(second, "vm-1");
  assert.equal(machines.path("a", name), "/apis/core.spheric.cloud/v1alpha1/namespaces/a/instances/vm-1");
  assert.equal(machines.path("a", "vm-1"), "/apis/compute.ironcore.dev/v1alpha1/namespaces/a/machines/vm-1");
  assert.equal(machines.list(first, ""), MACHINES);
  assert.deepEqual(["instances.core.spheric.cloud", "others.example.org", ""].map((each) => machines.kindOf(each)), [second, first, first]);
});
