/** Roles by the notices of the server's floor. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Roles } from "../../../../twisted_exec/web/page/terminal/roles.js";

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
