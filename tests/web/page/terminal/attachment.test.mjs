/** Sessions from before a reload. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { isGone } from "../../../../twisted_exec/web/page/terminal/attachment.js";

test("a session that the server has lost may be followed by a new one", () => {
  assert.ok(isGone({ reason: "CannotResume", code: 0 }));
  assert.ok(isGone({ reason: "NotFound", code: 404 }));
  assert.ok(isGone({ reason: "Refused", code: 404 }));
  assert.ok(!isGone({ reason: "Forbidden", code: 403 }));
});
