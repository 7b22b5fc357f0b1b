/**
 * The authorization code flow with PKCE (RFC 6749, 7636, 9207; OpenID Connect Core), without a browser.
 *
 * The verifier stays in the page until the code has come back: a code that somebody else reads is of no
 * use to them.  The state ties the answer to this page, the nonce ties the token to this login.
 */

import { base64url, bytesOf } from "../base64url.js";

const POPUP = "popup.";
const PARAMETERS = ["code", "state", "session_state", "iss", "error", "error_description", "error_uri", "scope"];

/**
 * Begin a login.
 *
 * @param {{issuer: string, clientId: string, scopes: string[]}} offer of config.json
 * @param {string} redirectUri address of this page, as it is registered at the issuer
 * @param {{isPopup?: boolean, crypto?: Crypto}} options `isPopup`: another window asks the issuer and reports the answer
 * @returns `pending`, to keep until the issuer answers, and `query` for the authorization endpoint
 */
export async function begin(offer, redirectUri, { isPopup = false, crypto = globalThis.crypto } = {}) {
  const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));
  const [state, nonce, verifier] = [(isPopup ? POPUP : "") + random(), random(), random()];
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  return {
    pending: { issuer: offer.issuer, redirectUri, state, nonce, verifier },
    query: {
      response_type: "code",
      client_id: offer.clientId,
      redirect_uri: redirectUri,
      scope: offer.scopes.join(" "),
      state,
      nonce,
      code_challenge: base64url(new Uint8Array(digest)),
      code_challenge_method: "S256",
    },
  };
}

/** Return the URL to send the user to; the endpoint may have a query of its own. */
export function authorizationURL(endpoint, query) {
  const url = new URL(endpoint);
  if (url.protocol !== "https:") throw new Error("the identity provider's address is not https");
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  return url.href;
}

/** Return the issuer's answer in the query of the page's address, or null. */
export function answerOf(search) {
  const query = new URLSearchParams(search);
  if (!query.has("state") || !(query.has("code") || query.has("error"))) return null;
  const text = (name) => query.get(name) ?? "";
  return {
    code: text("code"),
    state: text("state"),
    issuer: text("iss"),
    error: [text("error"), text("error_description")].filter(Boolean).join(": "),
  };
}

/** Tell whether an answer is for the window that opened this one. */
export function isForOpener(answer) {
  return answer.state.startsWith(POPUP);
}

/** Return a query without the answer's parameters. */
export function withoutAnswer(search) {
  const query = new URLSearchParams(search);
  for (const name of PARAMETERS) query.delete(name);
  const rest = query.toString();
  return rest ? `?${rest}` : "";
}

/**
 * Return the code of an answer.
 *
 * @throws {Error} it does not belong to the pending login, or the issuer refuses the login
 */
export function codeOf(answer, pending) {
  if (!pending || answer.state !== pending.state) {
    throw new Error("this login was not begun here, or another one was begun after it; log in again");
  }
  if (answer.issuer && answer.issuer !== pending.issuer) {
    throw new Error("the answer is from another identity provider");
  }
  if (answer.error) throw new Error(`the identity provider refuses the login: ${answer.error}`);
  return answer.code;
}

/** Check that an ID token belongs to the pending login. The server verifies it. */
export function checkToken(token, pending) {
  if (claimsOf(token)?.nonce !== pending.nonce) {
    throw new Error("the identity provider sent the token of another login");
  }
}

/** Return the claims of a JWT, unverified, or null. */
export function claimsOf(token) {
  try {
    return JSON.parse(new TextDecoder().decode(bytesOf(token.split(".")[1])));
  } catch {
    return null;
  }
}
