/** Base64url as OIDC and WebSockets need it. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { base64url, bytesOf } from "../../../twisted_exec/web/page/base64url.js";

test("texts and bytes are encoded with the alphabet for addresses, without padding", () => {
  assert.equal(base64url("ä?>"), "w6Q_Pg");
  assert.equal(base64url(new Uint8Array([251, 255])), "-_8");
  assert.equal(base64url(""), "");
});

test("what was encoded is decoded", () => {
  const bytes = Uint8Array.from({ length: 256 }, (_, number) => number);
  assert.deepEqual(bytesOf(base64url(bytes)), bytes);
  assert.throws(() => bytesOf("a b c!"));
});
