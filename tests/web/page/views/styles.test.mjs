/** Colours of console text. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { coloursOfStyle } from "../../../../twisted_exec/web/page/views/styles.js";

const NUMBERS = Array.from({ length: 16 }, (_, number) => number);

/** The colours in `light-dark(rgb(...), rgb(...))`. */
const parsed = (css) => [...css.matchAll(/rgb\(([^)]*)\)/g)].map(([, each]) => each.split(", ").map(Number));

function luminance(colour) {
  const [red, green, blue] = colour.map((each) => (each <= 10 ? each / 3294.6 : ((each / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one, other) {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

test("text can be read on each background, in light and dark", () => {
  for (const background of [...NUMBERS, "#808080", 46, 226]) {
    for (const foreground of [...NUMBERS, undefined, "#7f7f7f", 46, 196]) {
      for (const inverse of [false, true]) {
        const css = coloursOfStyle({ foreground, background, inverse });
        parsed(css.foreground).forEach((each, at) => {
          const found = contrast(each, parsed(css.background)[at]);
          assert.ok(found >= 4.5, `${foreground} on ${background}, ${inverse}: ${found}`);
        });
      }
    }
  }
});

test("black on the first colours stays black in light, white becomes white, and these stay as they are on white", () => {
  for (const number of [1, 2, 3, 4, 5, 6]) {
    assert.deepEqual(parsed(coloursOfStyle({ foreground: 0, background: number }).foreground)[0], [0, 0, 0]);
    assert.deepEqual(parsed(coloursOfStyle({ foreground: 7, background: number }).foreground)[0], [255, 255, 255]);
    const [shown] = parsed(coloursOfStyle({ foreground: number }).foreground);
    assert.deepEqual(shown, parsed(coloursOfStyle({ background: number }).background)[0]);
  }
});

test("only colours of the palette reach CSS", () => {
  const css = (foreground) => coloursOfStyle({ background: foreground }).background;
  assert.equal(css(196), "light-dark(rgb(255, 0, 0), rgb(255, 0, 0))");
  assert.equal(css(255), "light-dark(rgb(238, 238, 238), rgb(238, 238, 238))");
  assert.equal(css("#01fe02"), "light-dark(rgb(1, 254, 2), rgb(1, 254, 2))");
  for (const wrong of [256, -1, 1.5, "red", "#12345", "url(x)", "#000000;x", null, undefined, {}]) {
    assert.deepEqual(coloursOfStyle({ foreground: wrong, background: wrong }), { foreground: null, background: null });
  }
});
