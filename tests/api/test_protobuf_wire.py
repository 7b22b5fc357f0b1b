"""Tests for :mod:`twisted_exec.api.protobuf_wire`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.protobuf_wire import read_fields, varint


class WireTests(SynchronousTestCase):
    """Numbers and fields."""

    @given(st.integers(0, (1 << 64) - 1))
    def test_numbers(self, number: int) -> None:
        """Every number that fits can be read again."""
        self.assertEqual(list(read_fields(memoryview(b"\x08" + varint(number)))), [(1, number)])

    def test_negative(self) -> None:
        """A negative number has the ten bytes of an ``int64``."""
        self.assertEqual(varint(-1), b"\xff" * 9 + b"\x01")

    def test_fields(self) -> None:
        """Bytes and numbers are read, fields of fixed length are skipped."""
        message = b"\x0a\x02hi\x11" + bytes(8) + b"\x1d" + bytes(4) + b"\x20\x07"
        self.assertEqual(list(read_fields(memoryview(message))), [(1, b"hi"), (4, 7)])

    def test_malformed(self) -> None:
        """Malformed messages are refused, whatever is wrong."""
        for message, problem in (
            (b"\x08", "ends early"),
            (b"\x0a\x03hi", "ends early"),
            (b"\x09\0", "ends early"),
            (b"\x08" + b"\xff" * 10, "has a number that is too long"),
            (b"\x0b", "has the wire type 3"),
            (b"\0\0", "has a field with the number 0"),
        ):
            with self.assertRaises(ValueError) as raised:
                list(read_fields(memoryview(message)))
            self.assertEqual(str(raised.exception), problem)
