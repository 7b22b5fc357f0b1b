/** Questions to the user, with a document in memory. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { confirmed, insist, recordedAlready } from "../../../twisted_exec/web/page/dialogs.js";
import { askForMessage, chooseCommand, confirmPaste } from "../../../twisted_exec/web/page/terminal/dialogs.js";
import { examine } from "../../../twisted_exec/web/page/terminal/paste.js";
import { install } from "./dom.mjs";

install();
const views = new EventTarget();
globalThis.addEventListener = views.addEventListener.bind(views);
const changeView = () => views.dispatchEvent(new Event("hashchange"));

function question(text) {
  const answer = confirmPaste("vm-1", examine(text));
  const dialog = document.body.lastChild;
  const [cancel, paste] = dialog.all("button");
  return { answer, dialog, cancel, paste };
}

test("Enter typed too early cancels a paste", async () => {
  const { answer, dialog, cancel, paste } = question("ls\n");
  assert.deepEqual([cancel.text, cancel.autofocus, paste.autofocus], ["Cancel", "", undefined]);
  assert.equal(cancel.class, "button"); // as in all questions
  cancel.click();
  assert.equal(await answer, false);
  assert.deepEqual([dialog.open, document.body.children], [false, []]);
});

test("a paste is shown with its hidden characters as escapes", async () => {
  const { answer, dialog, paste } = question("ls \u202e\n\tb");
  assert.equal(dialog.all("pre")[0].text, "ls \\u202e\n\tb");
  paste.click();
  assert.equal(await answer, true);
});

test("what cannot be undone is done by its button alone", async () => {
  const ended = confirmed("End the session of ada?", "Its output goes on.", "End the session");
  const dialog = document.body.lastChild;
  const [cancel, end] = dialog.all("button");
  assert.deepEqual([dialog.all("h2")[0].text, dialog.all("p")[0].text], ["End the session of ada?", "Its output goes on."]);
  assert.deepEqual([cancel.autofocus, end.text], ["", "End the session"]);
  end.click();
  assert.equal(await ended, true);

  const cancelled = confirmed("End it?", "", "End");
  document.body.lastChild.all("button")[0].click();
  assert.equal(await cancelled, false);

  const escaped = confirmed("End it?", "", "End");
  document.body.lastChild.close(); // as the Escape key does
  assert.equal(await escaped, false);
});

test("a console that is recorded already is recorded once more only if the user wants that", async () => {
  for (const [at, expected] of [[0, null], [1, "begin"], [2, "end"]]) {
    const answer = recordedAlready("vm-1", "ada (input: masked)", { mayEnd: true, required: "" });
    const dialog = document.body.lastChild;
    assert.match(dialog.text, /^vm-1 is already recordedFor ada \(input: masked\)\./);
    const buttons = dialog.all("button");
    assert.deepEqual(buttons.map((each) => each.text), ["Cancel", "Begin another recording", "End the recording"]);
    assert.equal(buttons[0].autofocus, "");
    buttons[at].click();
    assert.equal(await answer, expected);
  }
});

test("a recording that a policy requires has no button that ends it", async () => {
  const required = "The recording for ConsolePolicy default/p ends after the last session.";
  const answer = recordedAlready("vm-1", "ConsolePolicy default/p (input: masked)", { mayEnd: false, required });
  const dialog = document.body.lastChild;
  assert.ok(dialog.text.includes(required));
  const buttons = dialog.all("button");
  assert.deepEqual(buttons.map((each) => each.text), ["Cancel", "Begin another recording"]);
  buttons[0].click();
  assert.equal(await answer, null);
});

test("a greyed command says why", async () => {
  const action = () => {};
  const answer = chooseCommand("Commands", [["Send", [{ key: "b", label: "BREAK", action, disabled: "You only observe." }, { key: "e", label: "Details", action, disabled: false }]]]);
  const [close, greyed, offered] = document.body.lastChild.all("button");
  assert.deepEqual([greyed.disabled, greyed.title], ["You only observe.", "You only observe."]);
  assert.deepEqual([offered.disabled, offered.title], [undefined, undefined]);
  close.click();
  assert.equal(await answer, null);
});

test("another view closes a question without an answer, but not one that the page needs", async () => {
  const { answer, dialog } = question("ls");
  changeView();
  assert.equal(await answer, null);
  assert.deepEqual([dialog.open, document.body.children], [false, []]);
  const login = insist("Log in", () => []);
  changeView();
  assert.equal(document.body.lastChild.open, true);
  document.body.lastChild.remove();
  assert.ok(login);
});

test("Back closes a dialog, and the view stays where the browser asks the page", async (t) => {
  globalThis.navigation = new EventTarget();
  t.after(() => delete globalThis.navigation);
  const go = (navigationType, cancelable) => {
    const event = Object.assign(new Event("navigate", { cancelable }), { navigationType });
    globalThis.navigation.dispatchEvent(event);
    return event.defaultPrevented;
  };
  const { answer, dialog } = question("ls");
  assert.deepEqual([go("push", true), go("traverse", false), dialog.open], [false, false, true]);
  assert.equal(go("traverse", true), true);
  assert.equal(await answer, null);
  assert.equal(go("traverse", true), false);
});

test("a dialog that the page needs an answer to stays open", async () => {
  let close;
  const answer = insist("Log in", (done) => {
    close = done;
    return [];
  });
  const dialog = document.body.lastChild;
  dialog.close(); // as the Escape key does
  assert.equal(dialog.open, true);
  close("token");
  assert.equal(await answer, "token");
  assert.deepEqual([dialog.open, document.body.children], [false, []]);
});

test("a message that is too long is not cut, but refused with the number of characters to leave out", async () => {
  const { answer } = askForMessage("vm-1", "", () => ({ viewers: "2 viewers", longest: 200, hindrance: "" }));
  const dialog = document.body.lastChild;
  const [field] = dialog.all("input");
  const send = dialog.all("button").at(-1);
  const typed = (text) => {
    field.value = text;
    field.send("input");
    return [dialog.all("p").at(-1).text, send.disabled];
  };
  assert.deepEqual([dialog.all("p").at(-1).text, send.disabled], ["200 characters left", true]);
  assert.equal(field.maxlength, undefined);
  assert.deepEqual(typed("\u{1f600}".repeat(203)), ["A message has at most 200 characters: leave out 3.", true]);
  assert.deepEqual(typed("  "), ["200 characters left", true]); // Enter would close the dialog, and the next text go to the machine
  assert.deepEqual(typed(` ${"x".repeat(198)}  y `), ["0 characters left", false]);
  dialog.all("form")[0].submit();
  assert.deepEqual(await answer, { text: field.value, isSent: true });
});

test("a message that reaches nobody any more waits in its dialog, and what is left of it is there again", async () => {
  const audience = { viewers: "2 viewers", longest: 200, hindrance: "" };
  const question = askForMessage("vm-1", "", () => audience);
  const dialog = document.body.lastChild;
  const [field] = dialog.all("input");
  const [cancel, send] = dialog.all("button");
  field.value = "I reboot it";
  field.send("input");
  assert.equal(send.disabled, false);
  Object.assign(audience, { viewers: "1 viewer", hindrance: "Nobody else is here." });
  question.draw();
  assert.deepEqual([dialog.all("p").at(-1).text, send.disabled, field.value], ["Nobody else is here.", true, "I reboot it"]);
  assert.match(dialog.text, /1 viewer at this console/);
  Object.assign(audience, { viewers: "3 viewers", hindrance: "" });
  question.draw();
  assert.deepEqual([dialog.all("p").at(-1).text, send.disabled], ["189 characters left", false]);
  cancel.click();
  assert.deepEqual(await question.answer, { text: "I reboot it", isSent: false });
  const again = askForMessage("vm-1", "I reboot it", () => audience);
  assert.equal(document.body.lastChild.all("input")[0].value, "I reboot it");
  document.body.lastChild.all("button")[0].click();
  await again.answer;
});

test("a dialog that opens by itself takes no key of somebody who is typing", async () => {
  for (const [isSudden, autofocus, tabindex] of [[true, "", "-1"], [false, undefined, undefined]]) {
    let close;
    const login = insist("Log in", (done) => {
      close = done;
      return [];
    }, isSudden);
    const [title] = document.body.lastChild.all("h2");
    assert.deepEqual([title.autofocus, title.tabindex], [autofocus, tabindex]);
    close(null);
    await login;
  }
});
