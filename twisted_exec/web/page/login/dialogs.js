/** The dialogs of a login. */

import { ask, insist, interrupt } from "../dialogs.js";
import { button, fill, h, notice, printable } from "../dom.js";
import { sentence } from "../terminal/texts.js";
import { sleep } from "../watch.js";
import { authorizationURL, begin } from "./oidc.js";
import { accepted, call, exchangeCode, exchangeSecret, refusalOf, userOf } from "./requests.js";

/**
 * Keys of the store: the user's token; that the browser's certificate was chosen; the login at an issuer that has
 * begun; cluster, namespace and machine of the local command, which it tells nobody without the secret.
 */
export const [TOKEN, CERTIFICATE, PENDING, PLACE] = ["token", "certificate", "login", "place"];

const TRY_SECONDS = 4; // between attempts of a page whose credentials are refused

// The local command's instruction, which the form below the problem gives, too.
const REMEDY = /: press Enter in the terminal where .*$/;

/** Return the secret in a fragment, or in a whole address that the user has pasted. */
export function secretOf(text) {
  return new URLSearchParams(text.slice(text.indexOf("#") + 1)).get("secret") ?? "";
}

/** Log in with the secret of the local command; `config` gets what it tells of the cluster. */
export async function enter(secret, config, store) {
  const { token, place } = await exchangeSecret(secret);
  Object.assign(config, place);
  store.set(PLACE, place);
  store.set(TOKEN, token);
}

/** Tell a user who is logged in that the URL, which this tab has just opened, logs nobody in. */
export function tellOldURL() {
  return ask("This URL is old", (close) => [
    h("p", {}, "It was used already, or has expired. You are still logged in."),
    h("div", { class: "actions" }, button("Go on", () => close(null), { class: "primary", autofocus: true })),
  ]);
}

/**
 * Resolve when the API server accepts the kubeconfig of the local command again, or when the command itself refuses the
 * page. The user may leave the dialog, for consoles that are connected need no login; a button in the bar opens it again.
 *
 * @param {object} context of the page
 * @param {string} reason why it does not now, a sentence
 * @param {string} message of the API server
 */
export async function renewal({ config, frame, store }, reason, message) {
  const problem = h("div", {});
  const say = (...texts) => fill(problem, notice("warning", printable(texts.join(" "))));
  const answer = (text) => `The API server of ${config.cluster || "your kubeconfig"} answers: ${text || "Unauthorized"}.`;
  /** @type {any} */
  let close, wake;
  let isAsked = false; // by the user, for the answer of the attempt that goes on or comes next
  const again = () => {
    isAsked = true;
    wake();
  };
  const open = (openDialog) =>
    openDialog("Renew your credentials", (leave) => {
      close = leave;
      return [
        problem,
        h("p", {}, "Log in again in a terminal, as you did for your kubeconfig; or ask your administrator for a new token or certificate, and put it there. The page then goes on by itself, and new sessions open at consoles whose session has ended with the credentials."),
        h("div", { class: "actions" }, button("Not now", () => leave(null)), button("Try again", again, { class: "primary" })),
      ];
    });
  say(reason, answer(message));
  frame.renewal(() => open(ask));
  open(interrupt);
  for (;;) {
    await Promise.race([new Promise((resolve) => (wake = resolve)), sleep(TRY_SECONDS)]);
    try {
      const refused = await refusalOf(store.get(TOKEN));
      if (refused === null || refused.isOfCommand) break;
      if (isAsked) say("Tried again.", answer(refused.message));
    } catch (error) {
      if (isAsked) say(`Tried again: ${error.message}.`);
    }
    isAsked = false;
  }
  frame.renewal(null);
  close(null);
}

/**
 * Resolve when the user has logged in.
 *
 * @param {object} config of the page
 * @param {import("../store.js").Store} store gets the token
 * @param {{problem: string, keepsPage: boolean}} options `keepsPage`: the page must not be left, so issuers get a
 *     window of their own
 */
export function askForLogin(config, store, { problem, keepsPage }) {
  const place = printable(config.cluster || location.host);
  return insist(`Log in to ${place}`, (close, dialog) => {
    dialog.classList.add("login");
    return new Forms(store, keepsPage, close).build(config, problem);
  }, keepsPage);
}

class Forms {
  #store;
  #keepsPage;
  #close;
  #problem = h("div", {});
  #certificate = h("div", {});

  constructor(store, keepsPage, close) {
    this.#store = store;
    this.#keepsPage = keepsPage;
    this.#close = close;
  }

  build(config, problem) {
    this.#say(this.#keepsPage ? "warning" : "error", problem);
    const forms = config.local ? this.#addressForm(config) : this.#hostedForms(config);
    return h("div", { class: "stack" }, this.#problem, forms);
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
    return form("Token of your kubeconfig, or of a ServiceAccount", input, () => this.#try(() => this.#token(input.value.trim()), whereTokensAre()));
  }

  #addressForm(config) {
    const input = secretInput("address");
    const how = this.#keepsPage ? "paste the new URL here: in another tab it opens none of these consoles" : "open the new URL, or paste it here";
    const hint = `To log in, press Enter in the terminal where the web console runs, and ${how}.`;
    return [
      h("p", {}, hint),
      form("URL", input, () =>
        this.#try(async () => {
          await enter(secretOf(input.value), config, this.#store);
          this.#close();
        }),
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

  /**
   * @param {() => Promise<any>} way to log in.
   * @param {HTMLElement | null} [remedy] is shown if the server refuses the token.
   */
  async #try(way, remedy = null) {
    this.#say("", "Please wait …");
    try {
      await way();
    } catch (problem) {
      this.#say("error", problem.message, problem.code === 401 ? remedy : null);
    }
  }

  /** @param {HTMLElement | null} [remedy] */
  #say(kind, text, remedy = null) {
    fill(this.#problem, text ? notice(kind, h("p", {}, printable(sentence(text.replace(REMEDY, ".")))), remedy) : null);
  }

  #finish(key, value) {
    this.#store.set(key, value);
    this.#close();
  }
}

/** Return the answer that another window reports, and let that know that it was taken. */
function answered(state) {
  return new Promise((resolve) => {
    const channel = new BroadcastChannel(state);
    channel.onmessage = ({ data }) => {
      channel.postMessage("taken");
      channel.close();
      resolve(data);
    };
  });
}

/** Say where a user finds another token. */
function whereTokensAre() {
  const command = (text) => h("code", {}, text);
  return h("p", {}, command("kubectl create token NAME"), " makes a token of a ServiceAccount; ", command("kubectl config view --minify --raw"), " shows that of your kubeconfig, if it has one. Else ask your administrator.");
}

function secretInput(id) {
  return h("input", { type: "password", id, autocomplete: "off", spellcheck: "false", required: true });
}

function form(label, input, onsubmit) {
  return h(
    "form",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        await onsubmit();
        input.focus();
        input.select(); // what is pasted next takes its place
      },
    },
    h("label", { class: "field" }, h("span", {}, label), input),
    h("div", { class: "actions" }, button("Log in", null, { type: "submit", class: "primary" })),
  );
}
