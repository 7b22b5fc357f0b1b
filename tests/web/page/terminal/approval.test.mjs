/** Requests for an approval. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Denied, answered, approved, createRequest, isNeeded, waitingRequest } from "../../../../twisted_exec/web/page/terminal/approval.js";

const KIND = { group: "g", version: "v1", plural: "machines" };

function requests(...statuses) {
  const sent = [];
  const api = {
    request: async (path, options = {}) => {
      sent.push({ path, ...options });
      if (options.method === "POST") return { metadata: { name: "vm-x7" } };
      const status = statuses.shift();
      if (status instanceof Error) throw status;
      return { metadata: { name: "vm-x7", creationTimestamp: CREATED }, spec: { right: status?.right ?? "drive" }, status };
    },
  };
  return { sent, context: { api, machines: { parse: (name) => ({ kind: KIND, name }) } } };
}

const CREATED = new Date().toISOString();
const PLACE = { namespace: "a", name: "vm", mode: "drive", reason: "OPS-1" };
const METADATA = { namespace: "a", name: "vm-x7" };
const now = async () => {};
const ours = async () => true;
const needed = async () => true;

test("a request has the right and the reason of its console", async () => {
  const { sent, context: page } = requests();
  assert.equal((await createRequest(page, PLACE)).metadata.name, "vm-x7");
  assert.deepEqual(sent[0].body.spec, {
    machine: "vm",
    machineResource: "machines.g",
    right: "drive",
    reason: "OPS-1",
  });
});

test("an approval is awaited, also over a server that is away", async () => {
  const away = Object.assign(new Error(""), { code: 503 });
  const { sent, context: page } = requests({}, away, { approved: true, decidedBy: "bob", message: "go on" });
  const seen = [];
  assert.equal(await approved(page, METADATA, undefined, (request) => seen.push(request), ours, needed, now), "bob approved: go on");
  assert.deepEqual([seen.map(({ status }) => status), sent.length], [[{}], 3]);
});

test("an approval is left to the window that has claimed it, until that is gone, and is read once more then", async () => {
  const approval = { approved: true, decidedBy: "bob" };
  const claims = (...answers) => async () => answers.shift();
  const seen = [];
  const note = (_, message, isOurs) => seen.push([message, isOurs]);
  const text = "bob approved your request";
  const gone = requests({}, approval, approval, approval);
  assert.equal(await approved(gone.context, METADATA, undefined, note, claims(false, false, false, true), needed, now), text);
  assert.deepEqual([seen, gone.sent.length], [[["", false], [text, false], [text, false]], 4]);
  const used = requests(approval, { ...approval, session: "s-1" });
  await assert.rejects(approved(used.context, METADATA, undefined, now, claims(false, true), needed, now), /was for one session, which has begun: ask again/);
});

const APPROVAL = { approved: true, decidedBy: "bob" };

test("a request that waits is claimed as soon as the other window is gone", async () => {
  const { context: page } = requests({}, {}, APPROVAL, APPROVAL);
  const claims = [false, true];
  const seen = [];
  const note = (_, message, isOurs) => seen.push([message, isOurs]);
  assert.equal(await approved(page, METADATA, undefined, note, async () => claims.shift(), needed, now), "bob approved your request");
  assert.deepEqual(seen, [["", false], ["", true]]);
});

test("a request that is denied or deleted says so", async () => {
  const denied = requests({ denied: true, decidedBy: "bob", message: "not now" });
  await assert.rejects(
    approved(denied.context, METADATA, undefined, now, ours, needed, now),
    (problem) => problem instanceof Denied && problem.user === "bob" && /bob denied .*: not now/.test(problem.message),
  );
  const withdrawn = requests({ denied: true, decidedBy: "bob", expirationTime: "2099-01-01T00:00:00Z" });
  await assert.rejects(
    approved(withdrawn.context, METADATA, undefined, now, needed, now),
    (problem) => problem instanceof Denied && problem.isWithdrawn && /bob withdrew the approval/.test(problem.message),
  );
  const deleted = requests(Object.assign(new Error(""), { code: 404 }));
  await assert.rejects(approved(deleted.context, METADATA, undefined, now, ours, needed, now), /was deleted/);
});

test("a request that has expired is not waited for", async () => {
  const expired = requests({ expirationTime: "2026-01-01T00:00:00Z" });
  await assert.rejects(approved(expired.context, METADATA, undefined, now, ours, needed, now), /counts no longer .Expired.: ask again/);
});

test("the last request of a console that was refused is waited for only while it waits", async () => {
  const { context: page } = requests({}, { approved: true, decidedBy: "bob" }, { denied: true, decidedBy: "bob" }, { session: "s-1" });
  assert.equal((await waitingRequest(page, PLACE, "vm-x7")).metadata.name, "vm-x7");
  await assert.rejects(waitingRequest(page, PLACE, "vm-x7"), /is approved: try again/);
  await assert.rejects(waitingRequest(page, PLACE, "vm-x7"), Denied);
  await assert.rejects(waitingRequest(page, PLACE, "vm-x7"), /was for one session, which has begun: ask again/);
});

test("the approval of a request to observe is not awaited by a user who wants to type", async () => {
  const { context: page } = requests({ right: "observe" }, { right: "observe" }, { right: "takeover" });
  await assert.rejects(waitingRequest(page, PLACE, "vm-x7"), { name: "Error", message: "" });
  assert.ok(await waitingRequest(page, { ...PLACE, mode: "observe" }, "vm-x7"));
  assert.ok(await waitingRequest(page, PLACE, "vm-x7"));
});

test("a server answers again when it grants or refuses a request; a user who has gone on does not wait for that", async () => {
  const away = Object.assign(new Error("the server cannot be reached"), { code: 0 });
  for (const last of [{}, Object.assign(new Error("forbidden"), { code: 403 })]) {
    const { sent, context } = requests(away, away, last);
    await answered(context, new AbortController().signal, now);
    assert.equal(sent.length, 3);
  }
  const leaving = new AbortController();
  const leave = async () => leaving.abort();
  await assert.rejects(answered(requests(away).context, leaving.signal, leave), { name: "AbortError" });
});

test("a request is waited for only while the console needs it", async () => {
  const { sent, context: page } = requests(...Array(20).fill({}));
  const answers = [true, false];
  assert.equal(await approved(page, METADATA, undefined, () => {}, ours, async () => answers.shift(), now), "no approval is needed any more");
  assert.deepEqual([answers, sent.length], [[], 11]);
  const deleted = requests({}, Object.assign(new Error(""), { code: 404 })); // by another window of the user
  assert.equal(await approved(deleted.context, METADATA, undefined, () => {}, ours, async () => false, now), "no approval is needed any more");
  const { context: other } = requests({}, {}, {}, {}, {}, APPROVAL);
  assert.equal(await approved(other, METADATA, undefined, () => {}, ours, async () => false, now), "bob approved your request");
});

test("a console needs an approval as long as the server does not say the contrary", async () => {
  const refusal = (code, ...reasons) => Object.assign(new Error(""), { code, status: { details: { causes: reasons.map((reason) => ({ reason })) } } });
  for (const [error, isExpected] of [
    [refusal(403, "ApprovalRequired"), true],
    [refusal(403, "ReasonRequired", "ApprovalRequired"), true],
    [refusal(403, "ReasonRequired"), false],
    [refusal(400, "UpgradeRequired"), false],
    [refusal(503), true],
    [refusal(0), true],
  ]) {
    const { sent, context: page } = requests(error);
    assert.equal(await isNeeded(page, { path: "/exec", query: { reason: "OPS-1" } }), isExpected, error.code);
    assert.deepEqual([sent[0].path, sent[0].query], ["/exec", { reason: "OPS-1" }]);
  }
});
