/** Requests of a login: they carry another token than the page's, or none, and an answer 401 asks for no login. */

import { ApiError, unreachable } from "../api.js";
import { checkToken, codeOf } from "./oidc.js";

const REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEW = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
const SENT = /^[\x21-\x7e]+$/; // other tokens do not fit into a header, and browsers fail as if there were no server
const HOSTED = { local: false };
const LOCAL = { local: true };
const awayText = (config) => unreachable(config) + (config.local ? "" : "; try again");

/**
 * Return the token for the secret in the URL of the local command, and where the page is.
 *
 * @returns {Promise<{token: string, place: {cluster: string, namespace: string, machine: object|null}}>}
 */
export async function exchangeSecret(secret) {
  const { token, cluster, namespace, machine = null } = await call("login", { secret }, LOCAL);
  return { token, place: { cluster, namespace, machine } };
}

/** Return the token for the code in an issuer's answer. */
export async function exchangeCode(answer, pending) {
  const code = codeOf(answer, pending);
  const { issuer, verifier, redirectUri } = pending;
  const { token } = await call("oidc/token", { issuer, code, verifier, redirectUri });
  checkToken(token, pending);
  return token;
}

/** Send a request to the page's own server, without credentials; @throws {Error} with its message. */
export async function call(path, body, config = HOSTED) {
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
    throw new Error(awayText(config));
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.message ?? `the server answered ${response.status}`);
  return answer;
}

/**
 * Return the name of the user of a token, or of the certificate without one; null if it is refused, and "" if
 * the server is too old to know; @throws {Error} the server is away.
 */
export async function userOf(token) {
  const response = await review(token);
  if (response.status === 401) return null;
  const answer = await response.json().catch(() => ({}));
  if (response.status >= 500) throw new Error(answer.message ?? awayText(HOSTED));
  return answer.status?.userInfo?.username ?? "";
}

/** Return a token that the server accepts; @throws {ApiError} it does not: 401, and why; @throws {Error} the server is away. */
export async function accepted(token) {
  const refused = SENT.test(token) ? await refusalOf(token, HOSTED) : { message: "" };
  if (refused === null) return token;
  const isBare = !refused.message || refused.message === "Unauthorized"; // all that a kube-apiserver says
  throw new ApiError(401, isBare ? "the server does not accept this token: it may have expired, or be for another cluster" : refused.message);
}

/**
 * Return why a token is refused, and, of the local page, whether by the command or by the API server behind it; null if it is not;
 * @throws {Error} the server is away.
 */
export async function refusalOf(token, config = LOCAL) {
  const response = await review(token, config);
  const { message } = await response.json().catch(() => ({}));
  if (response.status >= 500) throw new Error(message ?? awayText(HOSTED));
  if (response.status !== 401) return null;
  // The command drops this header from answers of the API server.
  return { isOfCommand: response.headers.has("WWW-Authenticate"), message };
}

async function review(token, config = HOSTED) {
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
    throw new Error(awayText(config));
  }
}
