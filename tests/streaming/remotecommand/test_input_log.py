"""Tests for :mod:`twisted_exec.streaming.remotecommand.input_log`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.remotecommand.input_log import (
    LIMIT_PIECES,
    WINDOW_PIECES,
    InputLog,
    Item,
)
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.resize import Break, Role

ITEMS = st.lists(
    st.one_of(st.binary(min_size=1, max_size=5), st.just(Break()), st.sampled_from(Role))
)


def flat(items: list[Item]) -> list[Item]:
    """Return items with each byte apart."""
    pieces: list[Item] = []
    for item in items:
        pieces += [bytes((byte,)) for byte in item] if isinstance(item, bytes) else [item]
    return pieces


class InputLogTests(SynchronousTestCase):
    """What is sent, and what is sent again."""

    @given(ITEMS, ITEMS, st.data())
    def test_in_order(self, first: list[Item], second: list[Item], data: st.DataObject) -> None:
        """After any loss exactly the input that is not settled is sent again, in order."""
        log = InputLog()
        for item in first:
            log.put(item)
        sent = flat(list(log.sendable()))
        self.assertEqual(sent, flat(first))
        settled = data.draw(st.integers(0, len(sent)))
        log.settle(settled)
        for item in second:
            log.put(item)
        known = data.draw(st.integers(settled, len(sent)))
        log.settle(known)
        log.send_again()
        log.put(None)
        again = flat(list(log.sendable()))
        self.assertEqual(again, flat([*first, *second, None])[known:])
        self.assertEqual((log.unsent, log.uncertain), (0, len(again)))

    def test_wrong_counts(self) -> None:
        """A server can settle neither less than before nor more than was sent."""
        log = InputLog()
        log.put(b"abc")
        list(log.sendable())
        log.put(b"d")
        log.settle(2)
        for wrong in (1, 4):
            with self.assertRaises(RemoteProtocolError):
                log.settle(wrong)
        log.settle(3)

    def test_window(self) -> None:
        """Without an Ack a limited amount is sent, in messages of a limited size."""
        log = InputLog()
        log.put(b"x" * (WINDOW_PIECES + 10))
        sizes = [len(item) for item in log.sendable() if isinstance(item, bytes)]
        self.assertEqual((sum(sizes), max(sizes), log.unsent), (WINDOW_PIECES, 32768, 10))
        log.settle(4)
        self.assertEqual(list(log.sendable()), [b"xxxx"])

    def test_full(self) -> None:
        """The log is full at its limit, and has room again at half of it."""
        log = InputLog()
        log.put(b"x" * LIMIT_PIECES)
        self.assertTrue(log.is_full)
        list(log.sendable())
        log.settle(WINDOW_PIECES - 1)
        self.assertFalse(log.is_full or log.has_room)
        log.settle(WINDOW_PIECES)
        self.assertTrue(log.has_room)

    def test_keys(self) -> None:
        """Dropped input counts in keys and requests: an arrow is one key, and so is a letter of several bytes."""
        log = InputLog()
        log.put("\x1b[Aé\x1bOB".encode())
        list(log.sendable())
        log.put(Break())
        log.put(b"\x1b[1;5C\r")
        log.put(None)
        self.assertEqual(log.drop(), (3, 3))

    def test_exact(self) -> None:
        """When the machine has got nothing behind the last Ack, all of it is sent again, counted from 0."""
        log = InputLog()
        log.put(b"abc")
        list(log.sendable())
        log.settle(1)
        log.put(b"d")
        self.assertEqual(log.begin_anew(is_exact=True), (0, 0))
        log.send_again()
        self.assertEqual(b"".join(each for each in log.sendable() if each), b"bcd")
        log.settle(3)
        self.assertEqual(log.unconfirmed, (0, 0))

    def test_nobody_knows(self) -> None:
        """
        When nobody knows what is settled, uncertain input is dropped with all behind it, but not the
        end of the input.
        """
        log = InputLog()
        log.put(b"abc")
        list(log.sendable())
        log.settle(1)
        log.put(b"d")
        log.put(None)
        self.assertEqual(log.begin_anew(is_exact=False), (2, 1))
        self.assertEqual(list(log.sendable()), [None])
        log.settle(1)
        log.put(b"xy")
        self.assertEqual(log.begin_anew(is_exact=False), (0, 0))  # nothing was sent
        self.assertEqual(list(log.sendable()), [b"xy"])
        log.settle(2)
