/** The kinds of machines of a server, and their paths. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Machines, discover, whatIsServed } from "../../../twisted_exec/web/page/machines.js";
import { fakeApi } from "./fakes.mjs";

const MACHINES = "/apis/compute.ironcore.dev/v1alpha1/machines";

test("discovery finds each kind with a console, and the default without discovery", async () => {
  const groups = [{ name: "core.spheric.cloud", preferredVersion: { version: "v1alpha1" } }];
  const resources = ["instances", "instances/exec", "instances/log", "fleets"].map((name) => ({ name }));
  const { api: client } = fakeApi((path) => (path === "/apis" ? { groups } : { resources }));
  const kinds = await discover(client);
  assert.deepEqual(kinds, [
    { group: "core.spheric.cloud", version: "v1alpha1", plural: "instances", subresources: ["exec", "log"] },
  ]);
  const { api: denied } = fakeApi(() => [403, {}]);
  assert.equal((await discover(denied))[0].plural, "machines");
});

test("a page whose token is refused waits for its user, and not for the server", async () => {
  let isLoggedIn = false;
  const news = [];
  const { api } = fakeApi((path) => (isLoggedIn ? { resources: [{ name: "consolesessions" }] } : [401, {}]));
  const logIn = async () => {
    isLoggedIn = true;
    news.push("login");
  };
  const begin = () => {
    news.push("begin");
    return () => news.push("end");
  };
  const [, served] = await whatIsServed(api, logIn, begin);
  assert.deepEqual(news, ["begin", "end", "login", "begin", "end"]);
  assert.ok(served.has("consolesessions"));
});

test("what an older server lacks is known", () => {
  const [kind] = [{ group: "g", version: "v1", plural: "machines", subresources: ["exec", "log"] }];
  const older = new Machines([kind], new Set(["consolesessions"]));
  assert.deepEqual(["", "logs", "screen", "recordings"].map((part) => older.has(kind, part)), [true, true, false, false]);
  assert.ok(older.serves("consolesessions"));
  assert.ok(new Machines([kind]).serves("consolealerts"));
});

test("machines of a second kind have longer names in routes", () => {
  const first = { group: "compute.ironcore.dev", version: "v1alpha1", plural: "machines" };
  const second = { group: "core.spheric.cloud", version: "v1alpha1", plural: "instances" };
  const machines = new Machines([first, second]);
  const name = machines.routeName(second, "vm-1");
  assert.equal(machines.path("a", name), "/apis/core.spheric.cloud/v1alpha1/namespaces/a/instances/vm-1");
  assert.equal(machines.path("a", "vm-1"), "/apis/compute.ironcore.dev/v1alpha1/namespaces/a/machines/vm-1");
  assert.equal(machines.list(first, ""), MACHINES);
  assert.deepEqual(["instances.core.spheric.cloud", "others.example.org", ""].map((each) => machines.kindOf(each)), [second, first, first]);
  const named = { name: "vm-1", group: "core.spheric.cloud", resource: "instances" };
  assert.equal(machines.routeNameOf(named), name);
  assert.equal(machines.routeNameOf({ name: "vm-1" }), "vm-1");
});
