/** Messages of v5.channel.k8s.io. */

import assert from "node:assert/strict";
import { test } from "node:test";

import * as channel from "../../../../twisted_exec/web/page/session/channel.js";

const bytes = (text) => new TextEncoder().encode(text);

test("a message is one channel byte and the payload", () => {
  assert.deepEqual([...channel.encode(channel.STDIN, bytes("ls"))], [0, 108, 115]);
  const message = channel.decode(new Uint8Array([1, 104, 105]).buffer);
  assert.equal(message.channel, channel.STDOUT);
  assert.deepEqual([...message.payload], [104, 105]);
  assert.deepEqual([...channel.encodeEndOfInput()], [255, 0]);
});

test("empty messages, input and unknown channels are ignored", () => {
  for (const message of [[], [0, 1], [5, 1], [255, 0]]) {
    assert.equal(channel.decode(new Uint8Array(message).buffer), null);
  }
});

test("requests are JSON objects on channel 4", () => {
  const message = channel.encodeControl({ Width: 80, Height: 24 });
  assert.equal(new TextDecoder().decode(message), '\x04{"Width":80,"Height":24}\n');
});

test("marks are split at line feeds, wherever messages are split", () => {
  const text = '{"Ack":0}\n{"Notice":"h\u00e9"}\n\n{"At":1,"Epoch":"';
  for (let at = 0; at < bytes(text).length; at++) {
    const decoder = new channel.MarkDecoder();
    const marks = [...decoder.feed(bytes(text).subarray(0, at)), ...decoder.feed(bytes(text).subarray(at))];
    assert.deepEqual(marks, [{ Ack: 0 }, { Notice: "h\u00e9" }]);
  }
});

test("a mark that is no object, or too long, breaks the protocol", () => {
  for (const text of ["[]\n", "null\n", "5\n", "{\n", "x".repeat(channel.LONGEST_MARK_BYTES + 1)]) {
    assert.throws(() => new channel.MarkDecoder().feed(bytes(text)), channel.ProtocolError);
  }
});

test("a status says why a session has ended", () => {
  const read = (document) => channel.readStatus(bytes(JSON.stringify(document)));
  assert.equal(channel.readStatus(bytes("")).reason, "Completed");
  assert.equal(read({ metadata: {}, status: "Success" }).reason, "Completed");
  const causes = [{ reason: "ExitCode", message: "3" }];
  const exited = read({ status: "Failure", reason: "NonZeroExitCode", message: "m", details: { causes } });
  assert.deepEqual([exited.reason, exited.exitCode], ["Completed", 3]);
  const refused = read({ status: "Failure", reason: "TooManyRequests", code: 429, details: { retryAfterSeconds: 7 } });
  assert.deepEqual([refused.code, refused.retryAfterSeconds], [429, 7]);
  assert.equal(refused.message, "the server gave no reason");
  for (const text of ["{", "5", '{"status":"Perhaps"}', " ".repeat(70_000)]) {
    assert.throws(() => channel.readStatus(bytes(text)), channel.ProtocolError);
  }
});

test("the subprotocol for resuming is unpadded base64url", () => {
  const protocol = channel.resumeProtocol("marks; credit=131072");
  const encoded = protocol.slice(channel.RESUME_PROTOCOL.length);
  assert.match(encoded, /^[A-Za-z0-9_-]+$/);
  assert.equal(Buffer.from(encoded, "base64url").toString(), "marks; credit=131072");
});
