/**
 * Login: the secret of the local command, an OIDC issuer, a pasted token, or the browser's certificate.
 *
 * A dialog lies over the page, so that consoles stay open while their user logs in again.
 */

import { button, fill, h, notice, printable } from "./dom.js";
import {
  answerOf,
  authorizationURL,
  begin,
  checkToken,
  codeOf,
  isForOpener,
  withoutAnswer,
} from "./oidc.js";

const REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEW = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
const [TOKEN, CERTIFICATE, PENDING] = ["token", "certificate", "login"];

// The local command's instruction, which the form below the problem gives, too.
const REMEDY = /: press Enter in the terminal where .*$/;

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
  if (config.local && reason && store.get(TOKEN)) {
    const refused = await refusalOf(store.get(TOKEN)).catch(() => null);
    if (refused === null) return; // the kubeconfig was renewed meanwhile
    if (!refused.isOfCommand) return renewal(store.get(TOKEN), refused.message);
  }
  let problem = reason;
  if (!reason) {
    try {
      if (await completed(config, context)) return;
    } catch (error) {
      problem = error.message;
    }
    if (!problem && (store.get(TOKEN) || store.get(CERTIFICATE))) return;
  }
  // A reload must not try a refused credential again.
  logout(store);
  await new Promise((resolve) => new Dialog(config, context, Boolean(reason), resolve).show(problem));
}

/** Complete a login that the page's address brings back. @returns {Promise<boolean>} there was one */
async function completed(config, { link, store }) {
  const secret = config.local ? secretOf(location.hash) : "";
  if (secret) {
    const { machine } = config;
    address(location.search, machine ? link(machine.namespace, machine.name) : "");
    store.set(TOKEN, await exchangeSecret(secret));
    return true;
  }
  const answer = config.local ? null : answerOf(location.search);
  if (!answer) return false;
  if (isForOpener(answer)) await report(answer);
  const pending = store.get(PENDING);
  store.remove(PENDING);
  address(withoutAnswer(location.search), pending?.hash ?? "");
  store.set(TOKEN, await accepted(await exchangeCode(answer, pending)));
  return true;
}

/** Give the answer to the window that waits for it, and close this one. */
async function report(answer) {
  const channel = new BroadcastChannel(answer.state);
  channel.postMessage(answer);
  address("", "");
  window.close();
  fill(document.getElementById("view"), notice("", "You are logged in. Close this window."));
  await new Promise(() => {});
}

/** Replace the page's address, which must not keep a secret or a code. */
function address(search, hash) {
  history.replaceState(null, "", location.pathname + search + hash);
}

/** Return the secret in a fragment, or in a whole address that the user has pasted. */
function secretOf(text) {
  return new URLSearchParams(text.slice(text.indexOf("#") + 1)).get("secret") ?? "";
}

async function exchangeSecret(secret) {
  return (await call("login", { secret })).token;
}

async function exchangeCode(answer, pending) {
  const code = codeOf(answer, pending);
  const { issuer, verifier, redirectUri } = pending;
  const { token } = await call("oidc/token", { issuer, code, verifier, redirectUri });
  checkToken(token, pending);
  return token;
}

/** Send a request to the page's own server, without credentials; @throws {Error} with its message. */
async function call(path, body) {
  let response;
  try {
    response = await fetch(path, {
      method: body ? "POST" : "GET",
      headers: body ? { "Content-Type": "application/json" } : {},
      body: body ? JSON.stringify(body) : undefined,
      cache: "no-store",
      redirect: "error",
    });
  } catch {
    throw new Error("the server cannot be reached; try again");
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.message ?? `the server answered ${response.status}`);
  return answer;
}

/**
 * Return the name of the user of a token, or of the certificate without one; null if it is refused, and "" if
 * the server is too old to know.
 */
export async function userOf(token) {
  const response = await review(token);
  if (response.status === 401) return null;
  const answer = await response.json().catch(() => ({}));
  return answer.status?.userInfo?.username ?? "";
}

/** Return a token that the server accepts; @throws {Error} it does not. */
async function accepted(token) {
  if ((await userOf(token)) !== null) return token;
  throw new Error("the server does not accept this token; it may have expired, and the server's log says more");
}

/** Return why a token is refused, and whether by the local command or by the API server behind it; null if it is not. */
async function refusalOf(token) {
  const response = await review(token);
  if (response.status !== 401) return null;
  const { message } = await response.json().catch(() => ({}));
  // The command passes this header on from nobody else.
  return { isOfCommand: response.headers.has("WWW-Authenticate"), message };
}

async function review(token) {
  try {
    return await fetch(REVIEWS, {
      method: "POST",
      headers: {
        "Content-Type": "application/json",
        ...(token && { Authorization: `Bearer ${token}` }),
      },
      body: JSON.stringify(REVIEW),
      redirect: "error",
    });
  } catch {
    throw new Error("the server cannot be reached; try again");
  }
}

/** Resolve when the API server accepts the kubeconfig of the local command again. */
function renewal(token, message) {
  return new Promise((resolve) => {
    const problem = h("div", {});
    const say = (text) => fill(problem, notice("warning", printable(text || "the server answered 401")));
    const again = async () => {
      try {
        const refused = await refusalOf(token);
        if (refused !== null) return say(refused.message);
      } catch (error) {
        return say(error.message);
      }
      dialog.close();
      dialog.remove();
      resolve();
    };
    const dialog = h(
      "dialog",
      { "aria-labelledby": "renewal-title", oncancel: (event) => event.preventDefault() },
      h("h2", { id: "renewal-title" }, "Renew your credentials"),
      problem,
      h("p", {}, "The API server refuses the credentials in your kubeconfig. Renew them in a terminal; open consoles stay."),
      h("div", { class: "actions" }, button("Try again", again, { class: "primary" })),
    );
    say(message);
    document.body.append(dialog);
    dialog.showModal();
  });
}

class Dialog {
  #store;
  #keepsPage;
  #done;
  #isDone;
  #problem;
  #certificate;
  #dialog;

  /**
   * @param {boolean} keepsPage the page must not be left: issuers get a window of their own
   * @param {() => void} done
   */
  constructor(config, context, keepsPage, done) {
    this.#store = context.store;
    this.#keepsPage = keepsPage;
    this.#done = done;
    this.#isDone = false;
    this.#problem = h("div", {});
    this.#certificate = h("div", {});
    const place = printable(config.cluster || location.host);
    this.#dialog = h(
      "dialog",
      {
        class: "login",
        "aria-labelledby": "login-title",
        oncancel: (event) => event.preventDefault(),
        // A browser closes the dialog at the second Escape in any case.
        onclose: () => this.#isDone || this.#dialog.showModal(),
      },
      h("h2", { id: "login-title" }, "Log in to ", place),
      h(
        "div",
        { class: "stack" },
        this.#problem,
        config.local ? this.#addressForm() : this.#hostedForms(config),
      ),
    );
  }

  show(problem) {
    this.#say(this.#keepsPage ? "warning" : "error", problem);
    document.body.append(this.#dialog);
    this.#dialog.showModal();
  }

  #hostedForms(config) {
    const ways = config.login ?? ["token"];
    if (ways.includes("certificate")) this.#offerCertificate();
    return [
      (config.oidc ?? []).map((offer) =>
        button(`Log in with ${printable(offer.name)}`, () => this.#try(() => this.#issuer(offer)), {
          class: "primary",
        }),
      ),
      this.#certificate,
      ways.includes("token") ? this.#tokenForm() : null,
    ];
  }

  #tokenForm() {
    const input = secretInput("token");
    return form("Token", input, () => this.#try(() => this.#token(input.value.trim())));
  }

  #addressForm() {
    const input = secretInput("address");
    const hint = "To log in, press Enter in the terminal where the web console runs, and open the new URL, or paste it here.";
    return [
      h("p", {}, hint),
      form("URL", input, () =>
        this.#try(async () => this.#finish(TOKEN, await exchangeSecret(secretOf(input.value)))),
      ),
    ];
  }

  async #offerCertificate() {
    const name = await userOf("").catch(() => null);
    if (name === null) return;
    const label = `Continue as ${printable(name) || "its user"} (client certificate)`;
    this.#certificate.replaceWith(button(label, () => this.#finish(CERTIFICATE, true)));
  }

  async #token(token) {
    this.#finish(TOKEN, await accepted(token));
  }

  async #issuer(offer) {
    // Opened at once: browsers allow a window only while they handle the click.
    const popup = this.#keepsPage ? window.open("", "_blank", "popup,width=520,height=680") : null;
    try {
      const { endpoint } = await call(`oidc/authorization?issuer=${encodeURIComponent(offer.issuer)}`);
      const redirectUri = location.origin + location.pathname;
      const { pending, query } = await begin(offer, redirectUri, { isPopup: Boolean(popup) });
      const url = authorizationURL(endpoint, query);
      if (popup) {
        popup.location.replace(url);
        await this.#token(await exchangeCode(await answered(pending.state), pending));
        return;
      }
      this.#store.set(PENDING, { ...pending, hash: location.hash });
      location.assign(url);
      await new Promise(() => {});
    } catch (problem) {
      popup?.close();
      throw problem;
    }
  }

  async #try(way) {
    this.#say("", "Please wait …");
    try {
      await way();
    } catch (problem) {
      this.#say("error", problem.message);
    }
  }

  #say(kind, text) {
    fill(this.#problem, text ? notice(kind, printable(text.replace(REMEDY, "."))) : null);
  }

  #finish(key, value) {
    this.#store.set(key, value);
    this.#isDone = true;
    this.#dialog.close();
    this.#dialog.remove();
    this.#done();
  }
}

/** Return the answer that another window reports. */
function answered(state) {
  return new Promise((resolve) => {
    const channel = new BroadcastChannel(state);
    channel.onmessage = ({ data }) => {
      channel.close();
      resolve(data);
    };
  });
}

function secretInput(id) {
  return h("input", { type: "password", id, autocomplete: "off", spellcheck: "false", required: true });
}

function form(label, input, onsubmit) {
  return h(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        onsubmit();
      },
    },
    h("label", { class: "field" }, h("span", {}, label), input),
    h("div", { class: "actions" }, button("Log in", null, { type: "submit" })),
  );
}
