/** Requests for an approval. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { requestApproval } from "../../../../twisted_exec/web/page/terminal/approval.js";

const KIND = { group: "g", version: "v1", plural: "machines" };

function requests(...statuses) {
  const sent = [];
  const api = {
    request: async (path, options = {}) => {
      sent.push({ path, ...options });
      if (options.method === "POST") return { metadata: { name: "vm-x7" } };
      const status = statuses.shift();
      if (status instanceof Error) throw status;
      return { status };
    },
  };
  return { sent, context: { api, machines: { parse: (name) => ({ kind: KIND, name }) } } };
}

const PLACE = { namespace: "a", name: "vm", mode: "drive", reason: "OPS-1" };
const now = async () => {};

test("an approval is awaited, also over a server that is away", async () => {
  const away = Object.assign(new Error(""), { code: 503 });
  const { sent, context: page } = requests({}, away, { approved: true, decidedBy: "bob", message: "go on" });
  const said = [];
  await requestApproval(page, PLACE, undefined, (message) => said.push(message), now);
  assert.deepEqual(sent[0].body.spec, {
    machine: "vm",
    machineResource: "machines.g",
    right: "drive",
    reason: "OPS-1",
  });
  assert.match(said[0], /twisted-exec request approve -n a vm-x7/);
  assert.equal(said[1], 'bob approved request "vm-x7": go on');
  assert.equal(sent.length, 4);
});

test("a request that is denied or deleted says so", async () => {
  const denied = requests({ denied: true, decidedBy: "bob", message: "not now" });
  await assert.rejects(requestApproval(denied.context, PLACE, undefined, now, now), /bob denied .*: not now/);
  const deleted = requests(Object.assign(new Error(""), { code: 404 }));
  await assert.rejects(requestApproval(deleted.context, PLACE, undefined, now, now), /was deleted/);
});
