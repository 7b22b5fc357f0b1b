/** Requests that open a console, and their refusals. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { ApiError } from "../../../../twisted_exec/web/page/api.js";
import { explain, opening, untilOpenable } from "../../../../twisted_exec/web/page/terminal/rights.js";

const KIND = { group: "g", version: "v1", plural: "machines", subresources: ["console", "exec"] };

const MACHINE = { metadata: { name: "vm" } };

function context(...allowed) {
  return {
    api: {
      can: async (verb, resource, subresource) => allowed.includes(`${verb} ${subresource}`),
      request: async () => MACHINE,
    },
    machines: {
      parse: (name) => ({ kind: KIND, name }),
      path: (namespace, name) => `/${namespace}/${name}`,
    },
  };
}

test("a console is opened with as much as its user may do", async () => {
  const all = await opening(context("drive console", "takeover console", "get exec", "patch ", "create "), "a", "vm", "drive");
  assert.deepEqual(all, {
    drives: true,
    takesOver: true,
    opens: true,
    mayType: true,
    switches: true,
    records: true,
    endsRecordings: true,
    machine: MACHINE,
    path: "/a/vm/exec",
    query: { stdin: "true", stdout: "true", tty: "true" },
  });
  const forced = await opening(context("drive console"), "a", "vm", "takeover");
  assert.equal(forced.query.force, "true");
  const watching = await opening(context("get exec"), "a", "vm", "observe");
  assert.deepEqual([watching.path, watching.query.readOnly, watching.mayType], ["/a/vm/exec", "true", true]);
  const observer = await opening(context("observe console"), "a", "vm", "drive");
  assert.deepEqual([observer.path, observer.query.readOnly, observer.mayType, observer.records, observer.endsRecordings], ["/a/vm/console", "true", false, false, false]);
});

test("any right to a console opens it, and no other right does", async () => {
  for (const right of ["observe console", "drive console", "takeover console", "get exec", "create exec"]) {
    assert.equal((await opening(context(right), "a", "vm", "drive")).opens, true, right);
  }
  assert.equal((await opening(context("get ", "get log", "get screen", "patch "), "a", "vm", "drive")).opens, false);
});

test("a kube-apiserver that knows no verbs decides by machines/exec", async () => {
  const host = await opening(context("get exec"), "a", "vm", "drive");
  assert.deepEqual([host.path, host.query.stdin], ["/a/vm/exec", "true"]);
});

test("the reason of a refusal is asked with an ordinary request", async () => {
  const failing = (code, message, cause = "C") => ({
    request: async () => {
      const status = { details: { causes: [{ reason: cause, message }, { field: "x" }, null] } };
      throw Object.assign(new Error(message), { code, reason: "R", status });
    },
  });
  const refusal = await explain(failing(403, "no"), "/x", {});
  assert.deepEqual([refusal.code, refusal.message, refusal.causes], [403, "no", [{ reason: "C", message: "no", request: "", user: "", verb: "", remedy: "" }]]);
  assert.equal(await explain(failing(400, "other words", "UpgradeRequired"), "/x", {}), null);
  assert.equal(await explain(failing(0, "the server cannot be reached"), "/x", {}), null);
});

test("a user who may not read the machine opens its console without, and a server that is away is asked again", async () => {
  const asked = context("get exec");
  asked.api.request = async () => Promise.reject(new ApiError(403, "forbidden"));
  assert.equal((await opening(asked, "a", "vm", "drive")).machine, null);
  asked.api.can = async () => Promise.reject(new ApiError(503, "the server stops"));
  await assert.rejects(opening(asked, "a", "vm", "drive"), /stops/);
});

test("a refused console is asked for again while that is wanted, until only the WebSocket is missing", async () => {
  const answers = ["other", "C", "UpgradeRequired"];
  const asked = [];
  let forgotten = 0;
  const api = Object.assign(new EventTarget(), {
    forget: () => (forgotten += 1),
    request: async (path) => {
      asked.push(path);
      const [reason] = answers.splice(0, 1);
      throw new ApiError(403, "no", { details: { causes: [{ reason, message: "no" }] } });
    },
  });
  let pauses = 0;
  const pause = async () => void (pauses += 1);
  await untilOpenable(api, () => ({ path: "/x", query: {} }), () => pauses !== 2, new AbortController().signal, pause);
  assert.deepEqual([asked, pauses, forgotten], [["/x", "/x", "/x"], 4, 2]);
  const left = new AbortController();
  left.abort();
  await untilOpenable(api, () => assert.fail(), () => true, left.signal, pause);
});
