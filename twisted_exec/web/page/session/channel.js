/**
 * Messages of the subprotocol v5.channel.k8s.io, and the marks on channel 4: bytes in, events out.
 *
 * One WebSocket message is one channel byte and the payload.  Message 255 closes one channel.
 * docs/reference/protocols.rst describes the channels, docs/explanation/resume.rst the marks.
 */

import { base64url } from "../base64url.js";
import { causesOf, kindOf, nameOf } from "../details.js";

export const PROTOCOL = "v5.channel.k8s.io";
export const RESUME_PROTOCOL = "base64url.resume.console.twisted-exec.";

export const STDIN = 0;
export const STDOUT = 1;
export const STDERR = 2;
export const ERROR = 3;
export const CONTROL = 4;
const CLOSE = 255;

/** Largest payload of one message: it still fits the read buffers of all servers. */
export const PAYLOAD_BYTES = 32 * 1024;
export const LONGEST_MARK_BYTES = 8 * 1024;
const LONGEST_STATUS_BYTES = 64 * 1024;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** The peer broke the protocol; another connection would not help. */
export class ProtocolError extends Error {}

/** Return one message: a Uint8Array. */
export function encode(channel, payload) {
  const message = new Uint8Array(payload.length + 1);
  message[0] = channel;
  message.set(payload, 1);
  return message;
}

/** Return the message that ends the input. */
export function encodeEndOfInput() {
  return new Uint8Array([CLOSE, STDIN]);
}

/**
 * Return the message with an object for channel 4: a size of the terminal, or a request beside it.
 */
export function encodeControl(document) {
  return encode(CONTROL, encoder.encode(`${JSON.stringify(document)}\n`));
}

/**
 * Read one message.
 *
 * @param {ArrayBuffer} message
 * @returns {{channel: number, payload: Uint8Array}|null} null for a message to ignore.
 */
export function decode(message) {
  const bytes = new Uint8Array(message);
  if (bytes.length === 0 || bytes[0] < STDOUT || bytes[0] > CONTROL) return null;
  return { channel: bytes[0], payload: bytes.subarray(1) };
}

/** Splits the payloads of channel 4 into marks. */
export class MarkDecoder {
  #pending = "";
  #text = new TextDecoder();

  /**
   * Take a payload, which may end within a mark.
   *
   * @returns {object[]} the complete marks, unknown ones too.
   * @throws {ProtocolError} a mark is too long or not a JSON object.
   */
  feed(payload) {
    const lines = (this.#pending + this.#text.decode(payload, { stream: true })).split("\n");
    this.#pending = lines.pop() ?? "";
    if ([...lines, this.#pending].some((line) => line.length > LONGEST_MARK_BYTES)) {
      throw new ProtocolError(`a mark is longer than ${LONGEST_MARK_BYTES} bytes`);
    }
    return lines.filter((line) => line.trim()).map(readMark);
  }
}

function readMark(line) {
  let document;
  try {
    document = JSON.parse(line);
  } catch {
    throw new ProtocolError("a mark is not JSON");
  }
  if (document === null || typeof document !== "object" || Array.isArray(document)) {
    throw new ProtocolError("a mark is not an object");
  }
  return document;
}

/** Return whether a value is a number of bytes or pieces. */
export function isCount(value) {
  return Number.isSafeInteger(value) && value >= 0;
}

/**
 * Read everything that arrived on channel 3: why the session has ended, or why it was refused.
 *
 * @param {Uint8Array} document JSON; empty means success.
 * @returns {{reason: string, message: string, code: number, exitCode: number|null, retryAfterSeconds: number,
 *     kind: string, name: string, causes: {reason: string, message: string}[]}} kind, name: of the object that a 404 is about; the reason "Completed" is that of a program that has ended by itself; code is 0 without one.
 * @throws {ProtocolError} it is no Status.
 */
export function readStatus(document) {
  const completed = { reason: "Completed", message: "", code: 0, exitCode: null, retryAfterSeconds: 0, kind: "", name: "", causes: [] };
  if (document.length === 0) return completed;
  let status;
  try {
    status = document.length <= LONGEST_STATUS_BYTES ? JSON.parse(decoder.decode(document)) : null;
  } catch {
    status = null;
  }
  if (status?.status === "Success") return completed;
  if (status?.status !== "Failure") throw new ProtocolError("the end of the session has no valid status");
  const message = typeof status.message === "string" ? status.message : "";
  const causes = causesOf(status);
  const exit = causes.find((cause) => cause.reason === "ExitCode");
  if (status.reason === "NonZeroExitCode" && exit) return { ...completed, message, exitCode: Number(exit.message) };
  return {
    reason: String(status.reason || "InternalError"),
    message: message || "the server gave no reason",
    code: isCount(status.code) ? status.code : 0,
    exitCode: null,
    retryAfterSeconds: isCount(status.details?.retryAfterSeconds) ? status.details.retryAfterSeconds : 0,
    kind: kindOf(status),
    name: nameOf(status),
    causes,
  };
}

/** Return the subprotocol that carries a value of X-Twisted-Exec-Resume: browsers set no headers. */
export function resumeProtocol(value) {
  return RESUME_PROTOCOL + base64url(value);
}
