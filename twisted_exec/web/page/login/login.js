/**
 * Login: the secret of the local command, an OIDC issuer, a pasted token, or the browser's certificate.
 *
 * A dialog lies over the page, so that consoles stay open while their user logs in again.
 */

import { fill, notice } from "../dom.js";
import { CERTIFICATE, PENDING, PLACE, TOKEN, askForLogin, enter, renewal, secretOf, tellOldURL } from "./dialogs.js";
import { answerOf, isForOpener, withoutAnswer } from "./oidc.js";
import { accepted, exchangeCode, refusalOf } from "./requests.js";

/** The local command knows a token until it ends. */
const STARTED_AGAIN = "The web console on this computer was started again.";
/** Time limit for the window that waits for an answer to take it. */
const OPENER_MS = 1000;

/** Forget the user of this tab. */
export function logout(store) {
  for (const key of [TOKEN, CERTIFICATE, PENDING]) store.remove(key);
}

/**
 * Resolve when the user is logged in: the store has a token, or the certificate was chosen.
 *
 * @param {object} config of the page
 * @param {object} context
 * @param {{reason: string}} options `reason`: why the user has to log in again; empty at the start
 */
export async function login(config, context, { reason }) {
  const { store } = context;
  if (config.local) Object.assign(config, store.get(PLACE, {}));
  if (config.local && reason && store.get(TOKEN)) {
    const refused = await refusalOf(store.get(TOKEN)).catch(() => null);
    if (refused === null) return; // the kubeconfig was renewed meanwhile
    if (!refused.isOfCommand) {
      await renewal(context, reason, refused.message);
      return;
    }
  }
  let problem = reason;
  if (!reason) {
    try {
      if (await completed(config, context)) return;
    } catch (error) {
      // Anybody may link to this page with an answer: that must not log its user out.
      if (await isLoggedIn(store)) {
        if (config.local) tellOldURL();
        return;
      }
      problem = error.message;
    }
    if (!problem && (store.get(TOKEN) || store.get(CERTIFICATE))) return;
  }
  // A reload must not try a refused credential again.
  logout(store);
  const advice = config.local ? "Log in again." : "Log in again; if that is refused, ask your administrator.";
  // The command that was stopped has ended their sessions; other servers end those that they know of, sooner or later.
  const consoles = config.local ? "Open consoles come back then." : "New sessions open then at consoles whose session has ended with this login.";
  if (reason) problem = `${config.local ? STARTED_AGAIN : reason} ${advice} ${consoles}`;
  await askForLogin(config, store, { problem, keepsPage: Boolean(reason) });
}

/** Whether this tab has a user: the certificate was chosen, or nobody refuses the token; the server may be away. */
async function isLoggedIn(store) {
  const token = store.get(TOKEN);
  if (!token) return Boolean(store.get(CERTIFICATE));
  return (await refusalOf(token).catch(() => null)) === null;
}

/** Complete a login that the page's address brings back. @returns {Promise<boolean>} there was one */
async function completed(config, { store }) {
  const secret = config.local ? secretOf(location.hash) : "";
  if (secret) {
    address(location.search, "");
    await enter(secret, config, store);
    return true;
  }
  const answer = config.local ? null : answerOf(location.search);
  if (!answer) return false;
  if (isForOpener(answer)) await report(answer);
  const pending = store.get(PENDING);
  if (pending?.state === answer.state) store.remove(PENDING);
  address(withoutAnswer(location.search), pending?.hash ?? "");
  store.set(TOKEN, await accepted(await exchangeCode(answer, pending)));
  return true;
}

/** Give the answer to the window that waits for it, if there is one, and close this one. */
async function report(answer) {
  const channel = new BroadcastChannel(answer.state);
  const isTaken = new Promise((resolve) => {
    channel.onmessage = () => resolve(true);
    setTimeout(resolve, OPENER_MS, false);
  });
  channel.postMessage(answer);
  const goesOn = await isTaken;
  channel.close();
  if (!goesOn) return; // anybody may link to this page with such an answer
  address("", "");
  window.close();
  fill(document.getElementById("view"), notice("", "The login goes on in the window of the console. Close this one."));
  await new Promise(() => {});
}

/** Replace the page's address, which must not keep a secret or a code. */
function address(search, hash) {
  history.replaceState(null, "", location.pathname + search + hash);
}
