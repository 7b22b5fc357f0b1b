/** The details of a session. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { details } from "../../../../twisted_exec/web/page/views/sessions.js";
import { install } from "../dom.mjs";

install();

test("the connection of a session is unknown while the server is away", () => {
  const row = { mode: "", isResumable: true, away: "" };
  assert.match(details(row).text, /ConnectionConnected, can resume/);
  assert.match(details({ ...row, isOld: true }).text, /ConnectionUnknown/);
});

test("the bytes of a session are said to include the framing", () => {
  const { text } = details({ mode: "", address: "192.0.2.1", toMachine: 20, toUser: 30 });
  assert.match(text, /From192\.0\.2\.1To the machine20 B, with the framingTo the user30 B, with the framing$/);
});
