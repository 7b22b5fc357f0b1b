/** Styles of console text, as attributes of elements: colours of the terminal, with the contrast that text needs. */

import { h } from "../dom.js";
import { coloursOf } from "../terminal/screen.js";

const CLASSES = ["bold", "faint", "italic", "underline", "strikethrough"];
const LEAST_CONTRAST = 4.5; // as in the terminal
const [BLACK, WHITE] = [[0, 0, 0], [255, 255, 255]];
const STEPS = 8;
const LEVELS = [0, 95, 135, 175, 215, 255];
const THEMES = [false, true].map((isDark) => {
  const { foreground, background, ...others } = coloursOf({ isDark });
  return { foreground: parsed(foreground), background: parsed(background), palette: Object.values(others).slice(-16).map(parsed) };
});

/**
 * An element with a style of SGR.
 *
 * @param {string} text
 * @param {import("./log/text.js").Style} style
 * @returns {HTMLElement}
 */
export function styledText(text, style) {
  const names = CLASSES.filter((name) => style[name]).map((name) => `sgr-${name}`);
  const element = h("span", { class: names.join(" ") || null }, text);
  const { foreground, background } = coloursOfStyle(style);
  if (foreground) element.style.color = foreground;
  if (background) element.style.backgroundColor = background;
  return element;
}

/**
 * Return the colours of a style as CSS, for light and dark; null for those of the console.
 *
 * @param {import("./log/text.js").Style} style
 * @returns {{foreground: string | null, background: string | null}}
 */
export function coloursOfStyle(style) {
  const { foreground, background, inverse = false } = style;
  const pairs = [false, true].map((isDark) => {
    const colours = readableColours(style, isDark);
    return [colours.readable, colours.ground];
  });
  const css = (part) => `light-dark(${pairs.map((pair) => `rgb(${pair[part].join(", ")})`).join(", ")})`;
  const [hasText, hasGround] = [foreground, background].map((each) => inverse || rgbOf(each, THEMES[0].palette) !== null);
  return { foreground: hasText || hasGround ? css(0) : null, background: hasGround ? css(1) : null };
}

/**
 * Return the colours of a style in a theme, each as `[red, green, blue]`.
 *
 * @param {import("./log/text.js").Style} style
 * @param {boolean} isDark
 * @returns {{text: number[], ground: number[], readable: number[]}} `readable`: for the text; `text` itself if it can be read.
 */
export function readableColours({ foreground, background, inverse = false }, isDark) {
  const { palette, ...usual } = THEMES[isDark ? 1 : 0];
  const colours = [rgbOf(foreground, palette) ?? usual.foreground, rgbOf(background, palette) ?? usual.background];
  const [text, ground] = inverse ? colours.reverse() : colours;
  return { text, ground, readable: readable(text, ground) };
}

/** Return `[red, green, blue]` of a number of the palette, or of #rrggbb; null for anything else. */
function rgbOf(colour, palette) {
  if (typeof colour === "string") return /^#[0-9a-f]{6}$/i.test(colour) ? parsed(colour) : null;
  if (!Number.isInteger(colour) || colour < 0 || colour > 255) return null;
  if (colour < 16) return palette[colour];
  if (colour < 232) return [36, 6, 1].map((step) => LEVELS[Math.floor((colour - 16) / step) % 6]);
  return Array(3).fill(8 + (colour - 232) * 10);
}

function parsed(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** Return a colour that is as near to that of a text as can be read on its background. */
function readable(colour, background) {
  const goals = luminance(colour) < luminance(background) ? [BLACK, WHITE] : [WHITE, BLACK];
  const goal = goals.find((each) => contrast(each, background) >= LEAST_CONTRAST) ?? BLACK; // one of them always is
  let near = colour;
  for (let step = 1; contrast(near, background) < LEAST_CONTRAST && step <= STEPS; step += 1) {
    near = colour.map((each, at) => Math.round(each + ((goal[at] - each) * step) / STEPS));
  }
  return near;
}

/** The contrast of two colours, from 1 to 21 (WCAG 2.2, "contrast ratio"). */
function contrast(one, other) {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

function luminance(colour) {
  const [red, green, blue] = colour.map((each) => {
    const part = each / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
