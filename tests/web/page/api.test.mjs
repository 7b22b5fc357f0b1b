/** Requests, lists and rights against a fake server. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Api, ApiError } from "../../../twisted_exec/web/page/api.js";
import { FakeClock, fakeApi } from "./fakes.mjs";

const object = (name, version) => ({ metadata: { name, resourceVersion: version } });

test("a request sends the token, and its query", async () => {
  const { api: client, calls } = fakeApi(() => ({ kind: "X" }));
  assert.deepEqual(await client.request("/x", { query: { a: "b c", none: "" } }), { kind: "X" });
  assert.equal(calls[0].path, "/x?a=b+c");
  assert.equal(calls[0].headers.Authorization, "Bearer secret");
  assert.equal(calls[0].redirect, "error");
});

test("without a token there is no header and no subprotocol of it", async () => {
  const { api: client, calls } = fakeApi(() => ({}), () => null);
  await client.request("/x");
  assert.equal(calls[0].headers.Authorization, undefined);
  assert.deepEqual(client.webSocketProtocols("v5.channel.k8s.io"), ["v5.channel.k8s.io"]);
});

test("a WebSocket carries the token in base64url", () => {
  const { api: client } = fakeApi(() => ({}), () => "ä?>");
  assert.deepEqual(client.webSocketProtocols("a"), ["base64url.bearer.authorization.k8s.io.w6Q_Pg", "a"]);
  assert.equal(client.webSocketURL("/x", { watch: "true" }), "wss://server.example/x?watch=true");
});

test("a refusal has the message of its Status", async () => {
  const status = { message: 'machines "a" not found', reason: "NotFound" };
  const { api: client } = fakeApi(() => [404, status]);
  const error = await client.request("/x").catch((problem) => problem);
  assert.ok(error instanceof ApiError);
  assert.equal(error.code, 404);
  assert.equal(error.reason, "NotFound");
  assert.equal(error.message, 'machines "a" not found');
});

test("a refused login is named", async () => {
  const { api: client } = fakeApi(() => [401, { message: "Unauthorized" }]);
  await assert.rejects(client.request("/x"), { code: 401, message: "the server does not accept your login any more" });
  const { api: other } = fakeApi(() => [401, { message: "the token has ended" }]);
  await assert.rejects(other.request("/x"), { message: "the token has ended" });
});

test("an answer of a proxy, and no answer, are errors that can be read", async () => {
  const { api: proxied } = fakeApi(() => [502, "<html>"]);
  await assert.rejects(proxied.request("/x"), /the server answered 502/);
  const { api: lost } = fakeApi(() => new TypeError("Failed to fetch"));
  await assert.rejects(lost.request("/x"), { code: 0, message: "the server cannot be reached" });
});

test("what is read is read again at once if the user wants it before there is an answer", async () => {
  const methods = [];
  const fetch = (_, { method, signal }) => {
    methods.push(method);
    return new Promise((resolve, reject) => {
      signal?.addEventListener("abort", () => reject(signal.reason));
      if (methods.length === 4) resolve(new Response("{}"));
    });
  };
  const api = new Api({ origin: "https://server.example", fetch, clock: new FakeClock() });
  const left = new AbortController();
  const answered = api.request("/x");
  api.patch("/x", {}).catch(() => {});
  const leaving = api.request("/x", { signal: left.signal });
  left.abort();
  await assert.rejects(leaving, { name: "AbortError" });
  api.dispatchEvent(new Event("retry"));
  assert.deepEqual(await answered, {});
  assert.deepEqual(methods, ["GET", "PATCH", "GET", "GET"]);
});

test("only a refusal of the present token asks for a login", async () => {
  let token = "old";
  const answer = () => {
    if (token === "newer") return [401, {}];
    token = "newer"; // the user has logged in while the request was on its way
    return [401, {}];
  };
  const { api: client } = fakeApi(answer, () => token);
  let count = 0;
  client.addEventListener("unauthorized", () => (count += 1));
  await assert.rejects(client.request("/x"));
  assert.equal(count, 0);
  await assert.rejects(client.request("/x"));
  assert.equal(count, 1);
});

test("a long list comes in pages", async () => {
  const { api: client, calls } = fakeApi((path) =>
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
  const { api: client, calls } = fakeApi(() => [201, { status: { allowed: true } }]);
  client.group = "compute.ironcore.dev";
  assert.equal(await client.can("drive", "machines", "console", "default", "vm-1"), true);
  assert.equal(await client.can("drive", "machines", "console", "default", "vm-1"), true);
  assert.equal(calls.length, 1);
  const { resourceAttributes } = JSON.parse(calls[0].body).spec;
  assert.equal(resourceAttributes.group, "compute.ironcore.dev");
  await client.can("delete", "consolesessions", "", "default");
  assert.match(calls[1].body, /console\.twisted-exec\.dev/);
});

test("of a large answer no more is read than is wanted", async () => {
  const { api: client } = fakeApi(() => "x".repeat(1000));
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

test("a request that a busy server refuses may succeed later, as one without an answer or with another token", () => {
  const isPassing = (code) => new ApiError(code, "").isPassing;
  assert.deepEqual([0, 401, 408, 429, 500, 503].map(isPassing), Array(6).fill(true));
  assert.deepEqual([400, 403, 404, 409].map(isPassing), Array(4).fill(false));
});

test("a page of the local command says what to start if nothing answers", async () => {
  globalThis.location = /** @type {any} */ ({ port: "8001" });
  const api = new Api({ origin: "http://127.0.0.1:8001", fetch: () => Promise.reject(new TypeError("away")), config: { local: true } });
  const { code, message } = await api.request("/x").catch((problem) => problem);
  assert.deepEqual([code, message], [0, "the web console on this computer cannot be reached; if it was stopped, start it again: twisted-exec web --port=8001"]);
});
