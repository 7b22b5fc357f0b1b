/** Rules of a console in the page that need no browser. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { requestApproval } from "../../../twisted_exec/web/page/terminal/approval.js";
import { arrow, withControl } from "../../../twisted_exec/web/page/terminal/key_bar.js";
import { isGone } from "../../../twisted_exec/web/page/terminal/console.js";
import { encode, examine } from "../../../twisted_exec/web/page/terminal/paste.js";
import { explain, opening } from "../../../twisted_exec/web/page/terminal/rights.js";
import { Roles } from "../../../twisted_exec/web/page/terminal/roles.js";
import {
  amount,
  demands,
  duration,
  endText,
  isMachineMissing,
  mayOpenAgain,
  presentText,
  recordedFor,
  recordingNews,
  stateText,
  writerText,
} from "../../../twisted_exec/web/page/terminal/texts.js";

const text = (bytes) => new TextDecoder().decode(bytes);

// Pastes

test("a short line is pasted at once", () => {
  const { text: clean, asks } = examine("ls -l");
  assert.deepEqual([clean, asks], ["ls -l", false]);
});

test("lines, long texts and control characters are shown first", () => {
  assert.ok(examine("reboot\n").asks);
  assert.ok(examine("a\r\nb").asks);
  assert.ok(examine("x".repeat(1001)).asks);
  assert.equal(examine("a\r\nb\rc\n").lines, 3);
  assert.equal(examine("👍👍").characters, 2);
});

test("control characters are removed, and counted", () => {
  const paste = examine("ls\u001b[201~\u0003;\trm\u009b");
  assert.deepEqual([paste.text, paste.removed, paste.asks], ["ls[201~;\trm", 3, true]);
});

test("a text with invisible characters is shown first", () => {
  for (const text of ["rm\u202e -rf", "a\u200bb", "a\u{e0041}b"]) {
    assert.deepEqual([examine(text).text, examine(text).asks], [text, true]);
  }
  assert.equal(examine("a\tb 👩‍💻").asks, false);
});

test("line ends become the Enter key, in brackets if the machine wants them", () => {
  assert.equal(text(encode("a\nb", false)), "a\rb");
  assert.equal(text(encode("a\nb", true)), "\x1b[200~a\rb\x1b[201~");
});

// Sessions of the time before a reload

test("a session that the server has lost may be followed by a new one", () => {
  assert.ok(isGone({ reason: "CannotResume", code: 0 }));
  assert.ok(isGone({ reason: "NotFound", code: 404 }));
  assert.ok(isGone({ reason: "Refused", code: 404 }));
  assert.ok(!isGone({ reason: "Forbidden", code: 403 }));
});

// Keys of the bar

test("Ctrl makes control characters of letters, and of nothing else", () => {
  assert.deepEqual(["c", "C", "[", "@", "1", "ü", "\x1b[A"].map(withControl), ["\x03", "\x03", "\x1b", "\0", "1", "ü", "\x1b[A"]);
});

test("arrow keys follow the mode that the machine has set", () => {
  assert.deepEqual([arrow("A", false), arrow("A", true)], ["\x1b[A", "\x1bOA"]);
});

// Roles: the texts are those of the server's floor

test("roles follow the notices", () => {
  const roles = new Roles();
  assert.ok(!roles.isObserver);
  const shown = roles.read("the writer of this console is ada; you are an observer (~f or --force takes over)");
  assert.equal(shown, "the writer of this console is ada; you are an observer");
  assert.deepEqual([roles.isObserver, roles.writer, roles.isDenied], [true, "ada", false]);
  roles.read("you have taken over this console; bob is an observer");
  assert.deepEqual([roles.isObserver, roles.writer], [false, ""]);
  roles.read("carol has taken over this console; you are an observer (~f or --force takes over)");
  assert.deepEqual([roles.isObserver, roles.writer], [true, "carol"]);
  roles.read("carol has left; this console has no writer (~f or --force takes over)");
  assert.deepEqual([roles.isObserver, roles.writer], [true, null]);
  const unsent = "what you type is not sent: this console has no writer";
  assert.equal(roles.read(`${unsent} (~f or --force takes over)`), `${unsent} (Type here)`);
  roles.read("this session ends in 10s");
  assert.equal(roles.isObserver, true);
});

test("a user without the right to type only observes", () => {
  const roles = new Roles();
  roles.read("you may only observe this console (your administrator can grant the verb drive on machines/console)");
  assert.deepEqual([roles.isObserver, roles.isDenied], [true, true]);
  assert.ok(new Roles(true).isObserver);
});

// Rights

const KIND = { group: "g", version: "v1", plural: "machines", subresources: ["console", "exec"] };

function context(...allowed) {
  return {
    api: { can: async (verb, resource, subresource) => allowed.includes(`${verb} ${subresource}`) },
    machines: {
      parse: (name) => ({ kind: KIND, name }),
      path: (namespace, name) => `/${namespace}/${name}`,
    },
  };
}

test("a console is opened with as much as its user may do", async () => {
  const all = await opening(context("drive console", "takeover console", "get exec"), "a", "vm", "drive");
  assert.deepEqual(all, {
    drives: true,
    takesOver: true,
    mayType: true,
    path: "/a/vm/exec",
    query: { stdin: "true", stdout: "true", tty: "true" },
  });
  const forced = await opening(context("drive console"), "a", "vm", "takeover");
  assert.equal(forced.query.force, "true");
  const watching = await opening(context("get exec"), "a", "vm", "observe");
  assert.deepEqual([watching.path, watching.query.readOnly, watching.mayType], ["/a/vm/exec", "true", true]);
  const observer = await opening(context("observe console"), "a", "vm", "drive");
  assert.deepEqual([observer.path, observer.query.readOnly, observer.mayType], ["/a/vm/console", "true", false]);
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
  assert.deepEqual([refusal.code, refusal.message, refusal.causes], [403, "no", [{ reason: "C", message: "no" }]]);
  assert.equal(await explain(failing(400, "other words", "UpgradeRequired"), "/x", {}), null);
  assert.equal(await explain(failing(0, "the server cannot be reached"), "/x", {}), null);
});

// Approvals

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
  return { sent, context: { ...context(), api } };
}

const PLACE = { namespace: "a", name: "vm", mode: "drive", reason: "OPS-1" };
const now = async () => {};

test("an approval is awaited, also over a server that is away", async () => {
  const away = Object.assign(new Error(""), { code: 503 });
  const { sent, context: page } = requests({}, away, { approved: true });
  const said = [];
  await requestApproval(page, PLACE, undefined, (message) => said.push(message), now);
  assert.deepEqual(sent[0].body.spec, {
    machine: "vm",
    machineResource: "machines.g",
    right: "drive",
    reason: "OPS-1",
  });
  assert.match(said[0], /twisted-exec request approve -n a vm-x7/);
  assert.equal(sent.length, 4);
});

test("a request that is denied or deleted says so", async () => {
  const denied = requests({ denied: true, decidedBy: "bob", message: "not now" });
  await assert.rejects(requestApproval(denied.context, PLACE, undefined, now, now), /bob denied .*: not now/);
  const deleted = requests(Object.assign(new Error(""), { code: 404 }));
  await assert.rejects(requestApproval(deleted.context, PLACE, undefined, now, now), /was deleted/);
});

// Texts

test("durations and amounts have the units of all views", () => {
  assert.deepEqual([3.24, 42.4, 125, 7400].map(duration), ["3.2s", "42s", "2m5s", "123m"]);
  assert.deepEqual([1, 5120, 34_683_237].map(amount), ["1 B", "5.0 KiB", "33 MiB"]);
});

test("each state has a text", () => {
  const lost = stateText("reconnecting", { since: 1000 }, 4200);
  assert.deepEqual(lost, { kind: "bad", text: "connection lost for 3.2s; reconnecting" });
  assert.match(stateText("reconnecting", { since: 0, unauthorized: true }, 0).text, /login/);
  assert.equal(stateText("resumed", { seconds: 3.2, missed: 5120 }, 0).text, "reconnected after 3.2s; 5.0 KiB of output followed");
  assert.equal(stateText("open", { resumable: true }, 0).text, "connected");
});

test("a connection that came back is soon an ordinary one, and the writer's time goes on", () => {
  const state = { name: "resumed", detail: { seconds: 3, missed: 0 }, at: 1000 };
  assert.match(presentText(state, 2000).text, /^reconnected after 3/);
  assert.equal(presentText(state, 60_000).text, "connected");
  const viewers = { count: 1, writer: "ada", seconds: 5, at: 1000 };
  assert.match(writerText(viewers, 31_000), /^ada, for 35/);
  assert.equal(writerText({ ...viewers, writer: "" }, 31_000), "nobody");
  assert.equal(writerText(undefined, 0), "unknown");
});

test("the user reads when a recording begins or ends, and whose it is", () => {
  const ada = { input: "masked", user: "ada" };
  const both = [ada, { input: "all", user: "" }];
  assert.equal(recordedFor(both), "ada (input: masked), somebody (input: all)");
  assert.equal(recordingNews(null, []), "");
  assert.equal(recordingNews(null, null), "");
  assert.equal(recordingNews(null, [ada]), "This console is recorded for ada (input: masked).");
  assert.equal(recordingNews([ada], [ada]), "");
  assert.match(recordingNews([ada], both), /for ada .*, somebody /);
  assert.equal(recordingNews([ada], []), "This console is not recorded any more.");
});

test("a console is offered again only where that may help", () => {
  assert.ok(!mayOpenAgain({ reason: "NotFound", code: 404, message: 'machines "vm" not found' }));
  assert.ok(!mayOpenAgain({ reason: "ShuttingDown", message: "the web console was stopped; start it again and open its new URL" }));
  assert.ok(mayOpenAgain({ reason: "ShuttingDown", message: "the poollet is shutting down" }));
  assert.ok(mayOpenAgain({ reason: "NotFound", code: 404, message: "the session is unknown" }));
  assert.ok(mayOpenAgain({ reason: "Completed", message: "" }));
  assert.ok(isMachineMissing({ reason: "NotFound", code: 404, message: 'machines "vm" not found' }));
  assert.ok(!isMachineMissing({ reason: "NotFound", code: 404, message: "the session is unknown" }));
});

test("the end of a session has the server's words", () => {
  assert.equal(endText({ reason: "SessionDeleted", message: "ada deleted it" }), "ada deleted it");
  assert.match(endText({ exitCode: 3, message: "" }), /exit code 3/);
  assert.match(endText({ reason: "UserLeft", message: "" }), /closed/);
});

test("a policy's demands become a form, without the commands in the message", () => {
  const causes = [
    { reason: "ReasonRequired", message: 'ConsolePolicy "default/p" requires a reason that matches OPS-[0-9]+, not "x"' },
    { reason: "ApprovalRequired", message: 'ConsolePolicy "default/q" requires the approval of another user' },
  ];
  const refusal = { code: 403, reason: "Forbidden", message: "…: use kubectl console --reason TICKET vm-1", causes };
  assert.deepEqual(demands(refusal), { reason: true, approval: true });
  assert.equal(
    endText(refusal),
    'ConsolePolicy "default/p" requires a reason that matches OPS-[0-9]+, not "x"; ConsolePolicy "default/q" requires the approval of another user.',
  );
});

test("a refusal that no reason and no approval helps has the server's words", () => {
  const message = 'ConsolePolicy "default/p" does not allow this console at this hour';
  const refusal = { code: 403, reason: "Forbidden", message, causes: [{ reason: "ConsolePolicyNotMet", message }] };
  assert.deepEqual(demands(refusal), { reason: false, approval: false });
  assert.equal(endText(refusal), message);
  assert.deepEqual(demands({ code: 403, message: "forbidden" }), { reason: false, approval: false });
});
