/** Roles by the notices of the server's floor. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Roles } from "../../../../twisted_exec/web/page/terminal/roles.js";

const HINT = "(~f or --force takes over)";

test("roles follow the notices", () => {
  const roles = new Roles();
  assert.ok(!roles.isObserver);
  const joined = { Notice: `ada types; you do not ${HINT}`, Kind: "role", Role: "observer", Writer: "ada", Hint: HINT };
  assert.equal(roles.read(joined), "ada types; you do not");
  assert.deepEqual([roles.isObserver, roles.writer, roles.isDenied], [true, "ada", false]);
  roles.read({ Notice: "it is yours", Kind: "role", Role: "writer" });
  assert.deepEqual([roles.isObserver, roles.writer], [false, ""]);
  roles.read({ Notice: "nobody types", Kind: "role", Role: "observer" });
  assert.deepEqual([roles.isObserver, roles.writer], [true, null]);
  const unsent = { Notice: `not sent ${HINT}`, Kind: "discarded", Role: "observer", Hint: HINT };
  assert.equal(roles.read(unsent), "what you type is not sent: choose Type here first.");
  assert.equal(roles.read({ ...unsent, Writer: "ada" }), "what you type is not sent: ada types here.");
  roles.read({ Notice: "this session ends in 10s", Kind: "message" });
  assert.equal(roles.isObserver, true);
});

test("an observer reads what keeps the session: any key, or nothing where no key is sent", () => {
  const warning = { Notice: "this session ends in 10s unless you type: ConsolePolicy a/idle allows 1m without input", Kind: "message" };
  const observer = { Notice: "nobody types", Kind: "role", Role: "observer" };
  const roles = new Roles();
  assert.equal(roles.read(warning), warning.Notice);
  roles.read(observer);
  assert.equal(roles.read(warning), "this session ends in 10s unless you press a key: ConsolePolicy a/idle allows 1m without input");
  assert.equal(new Roles(true).read(warning), "this session ends in 10s: ConsolePolicy a/idle allows 1m without input");
});

test("a writer of the same name is the user, in another session", () => {
  const roles = new Roles(false, () => "ada");
  assert.ok(!roles.isOwn);
  const mark = { Notice: `not sent ${HINT}`, Kind: "discarded", Role: "observer", Writer: "ada", Hint: HINT };
  assert.equal(roles.read(mark), "what you type is not sent: you type in another session. Choose Type here first.");
  assert.ok(roles.isOwn);
  assert.equal(roles.read({ ...mark, Kind: "role" }), "you only observe: another session of yours types here");
  roles.read({ ...mark, Kind: "role", Writer: "bob" });
  assert.ok(!roles.isOwn);
  roles.read({ ...mark, Writer: "ada, in another session," });
  assert.ok(!roles.isOwn);
});

test("after what a user has done, a notice says that nobody types", () => {
  const Notice = `ada has released this console; this console has no writer ${HINT}`;
  const said = new Roles().read({ Notice, Kind: "role", Role: "observer", Hint: HINT });
  assert.equal(said, "ada has released this console; nobody types here now");
});

test("it is said with the same words who types, however the server says it", () => {
  const ada = "the writer of this console is ada";
  for (const [notice, said] of [
    [`${ada}; you are an observer`, "ada types here now; you only observe"],
    [`you are an observer; ${ada}`, "you only observe; ada types here now"],
    [`ada's connection is lost; ${ada}`, "ada, who types here, has lost the connection"],
    ["this console has no writer; you are an observer", "nobody types here now; you only observe"],
    ["bob has taken over this console", "bob has taken over this console"],
  ]) {
    const mark = { Kind: "role", Role: "observer", Writer: "ada" };
    assert.equal(new Roles().read({ ...mark, Notice: `${notice} ${HINT}`, Hint: HINT }), said);
    assert.equal(new Roles().read({ ...mark, Notice: notice }), said);
    assert.equal(new Roles().read({ ...mark, Notice: `${notice} (you may not take over)` }), said);
  }
});

test("names are not read", () => {
  const roles = new Roles();
  const taken = `you have taken over this console from ${HINT}`;
  assert.equal(roles.read({ Notice: taken, Kind: "role", Role: "writer" }), taken);
  roles.read({ Notice: `the writer of this console is ada; you are an observer ${HINT}`, Kind: "message" });
  assert.deepEqual([roles.isObserver, roles.writer], [false, ""]);
  roles.read({ Notice: "x", Kind: "role", Role: "later", Writer: 7, Hint: 7 });
  assert.deepEqual([roles.isObserver, roles.writer], [false, ""]);
});

test("a user without the right to type only observes", () => {
  const roles = new Roles();
  roles.read({ Notice: "no", Kind: "role", Role: "denied" });
  assert.deepEqual([roles.isObserver, roles.isDenied], [true, true]);
  assert.ok(new Roles(true).isObserver);
});

test("who types is unknown until the server has said it", () => {
  const roles = new Roles();
  assert.deepEqual([roles.isUnknown, roles.isObserver], [true, false]);
  roles.read({ Notice: "a policy asks for a reason", Kind: "message" });
  assert.ok(roles.isUnknown);
  roles.settle(); // without a word about the role
  assert.deepEqual([roles.isUnknown, roles.isObserver], [false, false]);
  const observer = new Roles();
  observer.read({ Notice: "ada types", Kind: "role", Role: "observer", Writer: "ada" });
  observer.settle();
  assert.deepEqual([observer.isUnknown, observer.isObserver], [false, true]);
  assert.equal(new Roles(true).isUnknown, false);
});
