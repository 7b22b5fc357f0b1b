/** Dialogs of a console: what to paste, what to write to the other viewers, which SysRq, which command. */

import { ask } from "../dialogs.js";
import { button, h, printable, printableLines } from "../dom.js";
import { copyButton } from "../views/parts.js";
import { messageLine } from "./company.js";

const PREVIEW_CHARACTERS = 4000;
const SYSRQ = [
  ["h", "Help"],
  ["b", "Reboot at once"],
  ["c", "Crash"],
  ["e", "End all processes (SIGTERM)"],
  ["f", "Kill the largest process (OOM)"],
  ["i", "Kill all processes (SIGKILL)"],
  ["m", "Show the use of memory"],
  ["o", "Power off"],
  ["r", "Take the keyboard from raw mode"],
  ["s", "Write disks (sync)"],
  ["t", "Show all tasks"],
  ["u", "Mount disks read-only"],
  ["w", "Show blocked tasks"],
];

/** Ask whether a text is to be pasted; @param paste as paste.js examines it. */
export function confirmPaste(name, paste) {
  const { text, lines, characters, removed } = paste;
  const preview = printableLines(text.slice(0, PREVIEW_CHARACTERS));
  const rest = text.length > PREVIEW_CHARACTERS ? "\n…" : "";
  return ask(`Paste into ${printable(name)}?`, (close) =>
    h(
      "div",
      { class: "stack" },
      h("p", {}, `${lines} ${lines === 1 ? "line" : "lines"}, ${characters} characters.`),
      removed ? h("p", { class: "problem" }, `${removed} control ${removed === 1 ? "character has" : "characters have"} been removed.`) : null,
      h("pre", { tabindex: "0" }, preview + rest),
      h(
        "div",
        { class: "actions" },
        // A user who goes on typing must not paste by the Enter key.
        button("Cancel", () => close(false), { autofocus: true }),
        button("Paste", () => close(true)),
      ),
    ),
  );
}

/** Let the user paste into a field, where the browser does not give the page the clipboard. */
export async function askForPaste(name) {
  const field = h("textarea", { rows: "6", spellcheck: "false", autocomplete: "off", autofocus: true });
  const text = await ask(`Paste into ${printable(name)}`, (close) =>
    h(
      "div",
      { class: "stack" },
      h("p", {}, "The browser does not give the page the clipboard. Paste into this field: press long on it, or press Ctrl V."),
      h("label", { class: "field" }, h("span", {}, "Text to paste"), field),
      h(
        "div",
        { class: "actions" },
        button("Cancel", () => close("")),
        button("Paste", () => close(field.value), { class: "primary" }),
      ),
    ),
  );
  return text ?? "";
}

/** Show a text, such as output, as ordinary text, which the browser lets its user select and copy. */
export function showText(title, text) {
  return ask(printable(title), (close, dialog) => {
    dialog.classList.add("text");
    const actions = h("div", { class: "actions" }, copyButton("Copy all of it", () => text), button("Close", () => close(null)));
    return h("div", { class: "stack" }, h("pre", { tabindex: "0" }, printableLines(text)), actions);
  });
}

/**
 * Ask for a message to all viewers of a console.
 *
 * @param {string} name of the machine
 * @param {string} draft the text so far
 * @param {() => {viewers: string, longest: number, hindrance: string}} audience as it is now: such as `2 viewers`; the longest message in
 *     characters; why a message cannot be sent, as a sentence, or empty
 * @returns {{answer: Promise<{text: string, isSent: boolean}>, draw: () => void}} `isSent`: the user wants to send it; `draw()`: the
 *     audience has changed
 */
export function askForMessage(name, draft, audience) {
  const to = h("p");
  const rest = h("p", { class: "dim", id: "message-rest" });
  const send = button("Send", null, { type: "submit", class: "primary" });
  const draw = () => {
    const { viewers, longest, hindrance } = audience();
    const length = [...messageLine(field.value)].length;
    const over = length - longest;
    const problem = hindrance || (over > 0 && `A message has at most ${longest} characters: leave out ${over}.`);
    to.textContent = `${viewers} at this console, with you. The machine does not get the message; the audit log has it.`;
    rest.classList.toggle("problem", Boolean(problem));
    rest.textContent = problem || `${-over} characters left`;
    send.disabled = length === 0 || Boolean(problem);
    field.setAttribute("aria-invalid", String(!hindrance && over > 0));
  };
  // Its own limit would cut a pasted text without a word.
  const field = h("input", { type: "text", autocomplete: "off", value: draft, oninput: draw, onfocus: () => field.select(), autofocus: true, "aria-describedby": rest.id });
  draw();
  const answer = ask(`Message to all viewers of ${printable(name)}`, (close) =>
    h(
      "form",
      { class: "stack", onsubmit: (event) => (event.preventDefault(), close(true)) },
      to,
      h("label", { class: "field" }, h("span", {}, "Message"), field),
      rest,
      h(
        "div",
        { class: "actions" },
        button("Cancel", () => close(null)),
        send,
      ),
    ),
  );
  return { answer: answer.then((isSent) => ({ text: field.value, isSent: isSent === true })), draw };
}

/** Ask for the letter of a SysRq. */
export function chooseSysrq(name) {
  return ask(`SysRq for ${printable(name)}`, (close, dialog) => {
    dialog.addEventListener("keydown", (event) => {
      if (/^[a-z0-9]$/.test(event.key) && !event.ctrlKey && !event.altKey && !event.metaKey) {
        event.preventDefault();
        close(event.key);
      }
    });
    return h(
      "div",
      { class: "stack" },
      h("p", {}, "Sends BREAK and the letter. Any other letter or digit may be typed, too."),
      h(
        "div",
        { class: "commands" },
        SYSRQ.map(([letter, text]) =>
          button([h("kbd", {}, letter), h("span", {}, text)], () => close(letter), { class: "command" }),
        ),
      ),
      h("div", { class: "actions" }, button("Cancel", () => close(null))),
    );
  });
}

/**
 * Show commands with their keys in groups, and resolve with the chosen one. A title is the whole name where the label is cut;
 * `disabled` is why a command cannot be chosen, as a sentence.
 *
 * @param {string} title
 * @param {[string, {key: string, label: any, title?: string, shortcut?: string, action: () => void, disabled?: string | false}[]][]} groups
 */
export function chooseCommand(title, groups) {
  const commands = groups.flatMap(([, each]) => each);
  return ask(title, (close, dialog) => {
    dialog.classList.add("menu");
    dialog.addEventListener("keydown", (event) => {
      if (event.altKey || event.metaKey || event.key === "Control" || event.key === "Shift") return;
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        const all = /** @type {HTMLElement[]} */ ([...dialog.querySelectorAll("button:not(:disabled)")]);
        const at = all.findIndex((each) => each === document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
        all.at(at % all.length)?.focus();
        event.preventDefault();
        return;
      }
      const command = commands.find((each) => each.key === event.key && !each.disabled);
      if (command) {
        event.preventDefault();
        close(command);
      }
    });
    const shown = (command) => {
      const { key, label, title, shortcut, disabled } = command;
      const words = [h("kbd", {}, key), h("span", {}, label), shortcut && h("span", { class: "shortcut dim" }, shortcut)];
      return button(words, () => close(command), { class: "command", disabled, title: disabled || title, "aria-label": title && `${key} ${title}`.trim() });
    };
    return [
      button("Close", () => close(null), { class: "close", title: "Back to the terminal (Esc)" }),
      h(
        "div",
        { class: "groups" },
        groups.map(([name, each]) => h("section", {}, h("h3", {}, name), h("div", { class: "commands" }, each.map(shown)))),
      ),
    ];
  });
}
