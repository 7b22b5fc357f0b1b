"""
Tests for :mod:`twisted_exec.storage.handover.messages`.
"""

from __future__ import annotations

import struct

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import AlreadyExists, Conflict, Forbidden, NotFound
from twisted_exec.storage.handover.messages import (
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    Answer,
    Change,
    Current,
    Decoder,
    Hello,
    Item,
    ListBegin,
    ListEnd,
    Message,
    Request,
    encode,
    error_of,
    object_of,
    resource_of,
)
from twisted_exec.wire.errors import RemoteProtocolError

MESSAGES: list[tuple[Message, bytes]] = [
    (Hello(1, 0), b""),
    (Request(7, "ADDED", {"group": "g", "version": "v1"}), b'{"metadata":{"name":"a"}}'),
    (Answer(7, 12), b""),
    (Answer(8, status={"code": 409}), b""),
    (Change("machines.g", "DELETED", 12), b"{}"),
    (ListBegin(), b""),
    (Item("machines.g"), b'{"metadata":{"name":"b"}}'),
    (ListEnd(14), b""),
    (Current(), b""),
]


class MessageTests(SynchronousTestCase):
    """Messages between a store and its predecessor."""

    def test_round_trip(self) -> None:
        """Each message arrives as it was sent, however the bytes are split."""
        data = b"".join(encode(message, body) for message, body in MESSAGES)
        for step in (1, 3, 64, len(data)):
            decoder, decoded = Decoder(), list[tuple[Message, bytes]]()
            for at in range(0, len(data), step):
                decoded += decoder.feed(data[at : at + step])
            self.assertEqual(decoded, MESSAGES)

    def test_too_large(self) -> None:
        """A message is refused by its announced size, before its bytes are there."""
        for lengths in ((MAX_HEAD_BYTES + 1, 0), (10, MAX_BODY_BYTES + 1)):
            with self.assertRaises(RemoteProtocolError):
                Decoder().feed(struct.pack("!II", *lengths))

    def test_no_message(self) -> None:
        """Bytes that are no message are refused."""
        heads = [
            b"",
            b"[]",
            b"{",
            b"\xff",
            b"{}",
            b'{"message":"Unknown"}',
            b'{"message":["Hello"]}',
            b'{"message":"Hello"}',
            b'{"message":"Hello","protocol":1,"since":"1"}',
            b'{"message":"Hello","protocol":1,"since":true}',
            b'{"message":"Current","more":1}',
            b'{"message":"Item","table":5}',
        ]
        for head in heads:
            with self.assertRaises(RemoteProtocolError, msg=repr(head)):
                Decoder().feed(struct.pack("!II", len(head), 0) + head)

    def test_no_object(self) -> None:
        """A body without an object that has a name is refused."""
        for body in (
            b"",
            b"[]",
            b"{}",
            b'{"metadata":[]}',
            b'{"metadata":{"name":1}}',
            b"[" * 99999,
        ):
            with self.assertRaises(RemoteProtocolError):
                object_of(body)
        with self.assertRaises(RemoteProtocolError):
            resource_of({"group": "g"})

    def test_errors(self) -> None:
        """A refusal has its class, its message and its details at the predecessor, too."""
        for error in (
            NotFound("machines", "a", "g"),
            AlreadyExists("machines", "a", "g"),
            Conflict("it has changed", details={"name": "a"}),
            Forbidden("exceeded quota", retry_after_seconds=3),
        ):
            copied = error_of(error.to_status())
            self.assertIs(type(copied), type(error))
            self.assertEqual(copied.to_status(), error.to_status())
