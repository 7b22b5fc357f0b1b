/** Assertions for the filters of lists. */

import assert from "node:assert/strict";

import { matches } from "../../../../twisted_exec/web/page/views/filter.js";

/** Metadata whose UID no filter finds. */
export const METADATA = { namespace: "team", name: "thing", uid: "7777-uid" };

/** Assert which words of a filter find a row by its texts. */
export function assertFinds(texts, found, missed) {
  assert.deepEqual([...found, ...missed].filter((word) => matches(texts, word)), found);
}
