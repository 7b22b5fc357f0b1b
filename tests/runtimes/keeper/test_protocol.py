"""
Tests for :mod:`twisted_exec.runtimes.keeper.protocol`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.keeper.protocol import MAX_MESSAGE_BYTES, BadMessage, Message


class MessageTests(SynchronousTestCase):
    """Messages as bytes."""

    def test_round_trip(self) -> None:
        """Keys may repeat, values may be empty or contain anything but NUL, a body anything."""
        fields = [("name", b"a"), ("arg", b""), ("arg", b"x=y z"), ("pid", 7)]
        message = Message.decode(Message("spawn", fields, b"\0\0raw\0").encode())
        self.assertEqual(message.kind, "spawn")
        self.assertEqual(message.all("arg"), [b"", b"x=y z"])
        self.assertEqual((message.text("name"), message.number("pid")), (b"a", 7))
        self.assertEqual(message.body, b"\0\0raw\0")

    def test_impossible(self) -> None:
        """A NUL byte in a value and a message that is too long are refused before they are sent."""
        with self.assertRaisesRegex(ValueError, "NUL"):
            Message("spawn", [("arg", b"a\0b")]).encode()
        with self.assertRaisesRegex(ValueError, "possible"):
            Message("release", body=bytes(MAX_MESSAGE_BYTES)).encode()

    def test_bad(self) -> None:
        """Fields without a value, and missing or wrong numbers, are errors of the peer."""
        with self.assertRaises(BadMessage):
            Message.decode(b"spawn\0name")
        message = Message.decode(b"spawn\0rows=many")
        for key in ("rows", "columns"):
            with self.assertRaises(BadMessage):
                message.number(key)
        with self.assertRaises(BadMessage):
            message.number("rows", 3)
        self.assertEqual(message.number("columns", 3), 3)
