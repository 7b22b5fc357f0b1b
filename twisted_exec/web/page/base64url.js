/** Base64 for subprotocols and tokens (RFC 4648, section 5), without padding. */

/**
 * @param {string|Uint8Array} content a text is encoded in UTF-8
 * @returns {string}
 */
export function base64url(content) {
  const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
  const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** Return the bytes; @throws {Error} the text is not base64url. */
export function bytesOf(text) {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}
