/** Tests of oidc.js. */

import assert from "node:assert/strict";
import { createHash, webcrypto } from "node:crypto";
import { test } from "node:test";

import {
  answerOf,
  authorizationURL,
  begin,
  checkToken,
  claimsOf,
  codeOf,
  isForOpener,
  withoutAnswer,
} from "../../../../twisted_exec/web/page/login/oidc.js";

const OFFER = { issuer: "https://id.example", clientId: "page", scopes: ["openid", "groups"] };
const PAGE = "https://api.example/console/";
const crypto = webcrypto;

const jwt = (claims) => `e30.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.x`;

test("the challenge is the hash of a verifier that nobody else has", async () => {
  const { pending, query } = await begin(OFFER, PAGE, { crypto });
  assert.match(pending.verifier, /^[A-Za-z0-9_-]{43}$/);
  const digest = createHash("sha256").update(pending.verifier).digest("base64url");
  assert.equal(query.code_challenge, digest);
  assert.ok(!JSON.stringify(query).includes(pending.verifier));
  const another = await begin(OFFER, PAGE, { crypto });
  for (const name of ["verifier", "state", "nonce"]) assert.notEqual(another.pending[name], pending[name]);
});

test("the user is sent to the endpoint, which keeps its own query", async () => {
  const { query } = await begin(OFFER, PAGE, { crypto });
  const url = new URL(authorizationURL("https://id.example/a?realm=staff", query));
  assert.equal(url.searchParams.get("realm"), "staff");
  assert.equal(url.searchParams.get("scope"), "openid groups");
  assert.equal(url.searchParams.get("redirect_uri"), PAGE);
  assert.equal(url.searchParams.get("code_challenge_method"), "S256");
  assert.throws(() => authorizationURL("javascript:alert(1)", query), /https/);
  assert.throws(() => authorizationURL("http://id.example/", query), /https/);
});

test("an answer is read from the query, and removed from it", () => {
  const answer = answerOf("?code=c&state=s&iss=https%3A%2F%2Fid.example&session_state=x");
  assert.deepEqual(answer, { code: "c", state: "s", issuer: "https://id.example", error: "" });
  assert.equal(withoutAnswer("?code=c&state=s&session_state=x"), "");
  assert.equal(withoutAnswer("?code=c&state=s&debug=1"), "?debug=1");
  for (const search of ["", "?code=c", "?state=s", "?x=1"]) assert.equal(answerOf(search), null);
});

test("only the answer to this login has a code", async () => {
  const { pending } = await begin(OFFER, PAGE, { crypto });
  const { state } = pending;
  assert.equal(codeOf({ code: "c", state, issuer: "", error: "" }, pending), "c");
  assert.equal(codeOf({ code: "c", state, issuer: OFFER.issuer, error: "" }, pending), "c");
  const wrong = [
    [{ code: "c", state: "forged", issuer: "", error: "" }, pending, /not begun here/],
    [{ code: "c", state, issuer: "", error: "" }, null, /not begun here/],
    [{ code: "c", state, issuer: "https://evil.example", error: "" }, pending, /another identity/],
    [answerOf(`?error=access_denied&error_description=no&state=${state}`), pending, /access_denied: no/],
  ];
  for (const [answer, begun, message] of wrong) assert.throws(() => codeOf(answer, begun), message);
});

test("an answer says whether another window waits for it", async () => {
  for (const isPopup of [true, false]) {
    const { pending } = await begin(OFFER, PAGE, { isPopup, crypto });
    assert.equal(isForOpener({ state: pending.state }), isPopup);
  }
});

test("a token of another login is refused", async () => {
  const { pending } = await begin(OFFER, PAGE, { crypto });
  checkToken(jwt({ nonce: pending.nonce }), pending);
  for (const token of [jwt({ nonce: "other" }), jwt({}), "nonsense", ""]) {
    assert.throws(() => checkToken(token, pending), /another login/);
  }
});

test("claims are UTF-8", () => {
  assert.deepEqual(claimsOf(jwt({ name: "Ådå 🐢" })), { name: "Ådå 🐢" });
  assert.equal(claimsOf("a.b"), null);
});
