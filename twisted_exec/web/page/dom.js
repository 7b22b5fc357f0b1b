/** Elements of the page. Text becomes text nodes only, so no data is ever parsed as HTML. */

// Controls, and characters that reorder or hide text: a machine's name or a user's reason must not look
// like another one.  Variation selectors and joiners inside emoji stay.
const HIDDEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|[\ud800-\udfff]/gu;

/**
 * Return text with control, bidi and invisible characters as escapes, such as `\x1b` and `\u202e`.
 *
 * @param {unknown} text
 */
export function printable(text) {
  return String(text).replace(HIDDEN, (character) => {
    const code = Number(character.codePointAt(0));
    if (code < 0x100) return "\\x" + code.toString(16).padStart(2, "0");
    if (code < 0x10000) return "\\u" + code.toString(16).padStart(4, "0");
    return "\\u{" + code.toString(16) + "}";
  });
}

/** Return printable text whose tabs and ends of lines remain. */
export function printableLines(text) {
  return text.split(/([\t\n])/).map((piece) => (piece === "\t" || piece === "\n" ? piece : printable(piece))).join("");
}

/**
 * Return a new element.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any>} attributes `onclick` and the like become listeners, `true` an empty attribute; `false`
 *   and `null` are left out
 * @param {any[]} children nodes, texts, arrays of these; `null` and `false` are left out
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = /** @type {any} */ (document.createElement(tag));
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on") && typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replace the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/**
 * Replace only those children of an element that differ: the others keep the focus, the selection, and a click that
 * has begun.
 *
 * @param {HTMLElement} element
 * @param {HTMLElement[]} children as many as at each call
 */
export function renew(element, children) {
  if (!element.firstChild) append(element, children);
  else [...element.children].forEach((child, at) => child.isEqualNode(children[at]) || child.replaceWith(children[at]));
}

/**
 * Return a button. Its label is its text, or `aria-label` among the attributes.
 *
 * @param {any} label
 * @param {((event: Event) => any) | null} onclick
 * @param {Record<string, any>} attributes
 */
export function button(label, onclick, attributes = {}) {
  const { class: extra = "", ...rest } = attributes;
  return h("button", { type: "button", class: `button ${extra}`.trim(), onclick, ...rest }, label);
}

const NEVER_CUT = 16; // characters of a name for which each window has room
const END = 10; // characters of a longer one that stay

/** Return a printable name, of which the middle is cut where it does not fit: the ends tell names apart. */
export function cutInTheMiddle(name) {
  return name.length <= NEVER_CUT ? name : h("span", { class: "cut" }, h("span", {}, name.slice(0, -END)), h("span", {}, name.slice(-END)));
}

/**
 * Return a link whose text is a name, cut in the middle.
 *
 * @param {string} href
 * @param {string} name is shown printable.
 * @param {Record<string, any>} attributes
 */
export function nameLink(href, name, attributes = {}) {
  const whole = printable(name);
  return h("a", { href, title: whole, "aria-label": whole, ...attributes }, cutInTheMiddle(whole));
}

const PAUSE_MILLISECONDS = 1000; // of a user who types no more
const TYPED = new Set(["Enter", "Backspace", "Delete", "Tab"]); // beside keys of one character

/**
 * Let an element that appears by itself have the focus, for its user may be typing elsewhere: no key does anything there, and
 * Tab leaves it only behind a pause. Each key that was typed in vain is an event `missed` of `typist`, which bubbles.
 *
 * @param {HTMLElement} element
 * @param {EventTarget | null} typist what has the focus otherwise
 * @param {() => void} [paused] its user, who has not gone elsewhere, types no more
 */
export function holdStill(element, typist = element, paused) {
  let typedAt = 0;
  let isDeaf = false; // until the first pause: what is typed later is no rest of what its user typed elsewhere
  let timer;
  const wait = () => {
    clearTimeout(timer);
    if (paused) timer = setTimeout(paused, PAUSE_MILLISECONDS);
  };
  element.setAttribute("tabindex", "-1");
  element.addEventListener("focus", (event) => {
    typedAt = event.timeStamp;
    isDeaf = true;
    wait();
  });
  element.addEventListener("blur", () => clearTimeout(timer));
  element.addEventListener("keydown", (event) => {
    const { target, key, metaKey, timeStamp } = event;
    if (target !== element || metaKey || (key.length > 1 && !TYPED.has(key))) return;
    isDeaf &&= timeStamp - typedAt < PAUSE_MILLISECONDS;
    if (key === "Tab") {
      if (!isDeaf) return;
      event.preventDefault();
    } else typedAt = timeStamp;
    wait();
    typist?.dispatchEvent(new Event("missed", { bubbles: true }));
  });
}

/**
 * Load a style sheet, which applies when the promise resolves.
 *
 * @param {string} href relative to the page
 * @returns {Promise<void>}
 * @throws {Error} this installation does not have it
 */
export function loadStyles(href) {
  return new Promise((resolve, reject) => {
    const link = h("link", {
      rel: "stylesheet",
      href,
      onload: () => resolve(),
      onerror: () => {
        link.remove(); // it may be loaded again later
        reject(new Error(`${href} cannot be loaded`));
      },
    });
    document.head.append(link);
  });
}

/**
 * Load a module of others. Not by a literal address: tsc has no types of it, and a checkout may lack it.
 *
 * @param {string} name
 * @returns {Promise<any>}
 * @throws {Error} this installation does not have it
 */
export function loadVendored(name) {
  return import(`./vendor/${name}`);
}

/** Return a paragraph that reports a problem or a fact; `kind`: error, warning or empty. */
export function notice(kind, ...children) {
  const role = kind === "error" ? "alert" : "status";
  return h("div", { class: `notice ${kind}`.trim(), role }, ...children);
}
