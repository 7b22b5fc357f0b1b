/** The login of the hosted page, whose address anybody may make up. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { login } from "../../../../twisted_exec/web/page/login/login.js";
import { install } from "../dom.mjs";
import { turn } from "../fakes.mjs";

install();

const FORGED = "?code=a&state=b&theme=dark";

/** Open the page at an address in a tab whose store has `kept`; `status` is the server's answer about its token. */
function begin(t, search, kept, status = 201, { config = { local: false }, reason = "", message = undefined } = {}) {
  const values = new Map(Object.entries(kept));
  const store = {
    get: (key, missing) => values.get(key) ?? missing,
    set: (key, value) => values.set(key, value),
    remove: (key) => values.delete(key),
  };
  const page = { store: values, address: "", isOver: false, closed: () => {} };
  const view = document.createElement("div");
  document.getElementById = () => view;
  globalThis.window = { close: () => page.closed() };
  globalThis.location = { search, hash: "", pathname: "/console/" };
  globalThis.history = { replaceState: (_state, _title, address) => (page.address = address) };
  t.mock.method(globalThis, "fetch", async () => {
    if (!status) throw new TypeError("away");
    return { status, ok: status < 300, headers: new globalThis.Headers(config.local ? { "WWW-Authenticate": "Bearer" } : {}), json: async () => ({ message }) };
  });
  login(config, { store }, { reason }).then(() => (page.isOver = true));
  return page;
}

/** Let the page's requests be answered. */
async function pass() {
  for (let count = 0; count < 10; count++) await turn();
}

test("a link with a forged answer of an issuer does not log the tab out", async (t) => {
  for (const [kept, status] of [
    [{ token: "t" }, 201],
    [{ token: "t" }, 0], // the server is away
    [{ certificate: true }, 201],
  ]) {
    const page = begin(t, FORGED, kept, status);
    await pass();
    assert.deepEqual([Object.fromEntries(page.store), page.isOver], [kept, true]);
    assert.equal(page.address, "/console/?theme=dark");
    assert.deepEqual(document.body.children, []);
    t.mock.restoreAll();
  }
});

test("a forged answer leaves a login that has begun", async (t) => {
  const login = { issuer: "https://id.example", state: "s", nonce: "n", verifier: "v", redirectUri: "/console/" };
  const page = begin(t, FORGED, { token: "t", login });
  await pass();
  assert.deepEqual(page.store.get("login"), login);
});

test("a link with a forged answer for another window shows the page as usual", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const page = begin(t, "?code=a&state=popup.x", { token: "t" });
  t.mock.timers.tick(1000);
  await pass();
  assert.deepEqual([Object.fromEntries(page.store), page.isOver, page.address], [{ token: "t" }, true, "/console/"]);
});

test("an answer goes to the window that waits for it, and this one closes", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const opener = new globalThis.BroadcastChannel("popup.x");
  const taken = new Promise((resolve) => (opener.onmessage = ({ data }) => resolve(data)));
  const page = begin(t, "?code=a&state=popup.x", { token: "t" });
  const closed = new Promise((resolve) => (page.closed = resolve));
  assert.equal((await taken).code, "a");
  opener.postMessage("taken");
  await closed;
  opener.close();
  assert.deepEqual([page.isOver, page.address], [false, "/console/"]);
});

test("the page of a local command that was started again says that, and not that a login has expired", async (t) => {
  begin(t, "", { token: "t" }, 401, { config: { local: true, cluster: "lab" }, reason: "Your login as ada has expired or was withdrawn." });
  await pass();
  const dialog = document.body.lastChild;
  assert.match(dialog.text, /The web console on this computer was started again\. Log in again\. Open consoles come back then\./);
  assert.doesNotMatch(dialog.text, /expired|administrator/);
  dialog.close();
});

test("a user whose token has expired under the page reads what becomes of the consoles", async (t) => {
  begin(t, "", { token: "t" }, 401, { reason: "Your login as ada has expired or was withdrawn." });
  await pass();
  const dialog = document.body.lastChild;
  assert.match(dialog.text, /Your login as ada has expired or was withdrawn\. Log in again; if that is refused, ask your administrator\. New sessions open then at consoles whose session has ended with this login\./);
  dialog.close();
});

test("a login at a local command that does not run says what to start", async (t) => {
  begin(t, "", {}, 0, { config: { local: true } });
  globalThis.location.port = "8001";
  await pass();
  document.body.lastChild.all("form")[0].submit();
  await pass();
  assert.match(document.body.lastChild.text, /The web console on this computer cannot be reached; if it was stopped, start it again: twisted-exec web --port=8001/);
});

test("a user whose token is refused reads the sentence of the server, and where another token is", async (t) => {
  for (const [message, expected] of [
    ["the service account token is refused: it has expired", /The service account token is refused: it has expired\.kubectl create token/],
    ["Unauthorized", /The server does not accept this token: it may have expired, or be for another cluster\.kubectl create token/],
    [undefined, /The server does not accept this token: it may have expired, or be for another cluster\.kubectl create token/],
  ]) {
    begin(t, "", {}, 401, { message });
    await pass();
    const dialog = document.body.lastChild;
    const [input] = dialog.all("input");
    input.value = "eyJ";
    dialog.all("form")[0].submit();
    await pass();
    assert.match(dialog.text, expected);
    dialog.close();
    t.mock.restoreAll();
  }
});
