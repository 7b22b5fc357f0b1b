/** The files that index.html names. */

import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

const PAGE = new URL("../../../twisted_exec/web/page/", import.meta.url);
const INDEX = readFileSync(new URL("index.html", PAGE), "utf8");

/** All modules that these import, without those that they import later. */
function closure(...names) {
  const found = new Set();
  const visit = (url) => {
    if (found.has(url.href)) return;
    found.add(url.href);
    const source = readFileSync(url, "utf8");
    for (const [, from] of source.matchAll(/^(?:import|export) [^;]*?from "([^"]+)";/gm)) visit(new URL(from, url));
  };
  for (const name of names) visit(new URL(name, PAGE));
  return [...found].map((href) => href.slice(PAGE.href.length)).sort();
}

test("the browser fetches the modules of the list and of consoles at once, and no others", () => {
  const preloaded = [...INDEX.matchAll(/rel="modulepreload" href="([^"]+)"/g)].map(([, href]) => href);
  const needed = closure("main.js", "views/machines.js", "terminal/workspace.js");
  assert.deepEqual(preloaded, needed.filter((name) => name !== "main.js"));
});

test("each file exists", () => {
  for (const [, name] of INDEX.matchAll(/(?:href|src)="([^":]+)"/g)) assert.ok(existsSync(new URL(name, PAGE)), name);
});

test("nothing runs in the document itself", () => {
  assert.doesNotMatch(INDEX, /<script(?![^>]*\bsrc=)|\son\w+=|javascript:|style=/i);
});

test("no module makes markup or code of a text", () => {
  const names = readdirSync(PAGE, { recursive: true }).filter(
    (name) => name.endsWith(".js") && !name.startsWith("vendor"),
  );
  assert.ok(names.length > 30);
  for (const name of names) {
    const source = readFileSync(new URL(name, PAGE), "utf8");
    const found = /\.(innerHTML|outerHTML|srcdoc)\b|insertAdjacentHTML|document\.write|\beval\(|new Function|javascript:/.exec(source);
    assert.equal(found, null, `${name}: ${found}`);
  }
});
