"""Tests for :mod:`twisted_exec.wire.typed_keys`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.typed_keys import (
    DroppedKeys,
    dropped_keys,
    is_typed,
    keys_in,
    keys_of,
    unconfirmed_keys,
)


class TypedKeysTests(SynchronousTestCase):
    """Tests for :func:`dropped_keys` and :func:`keys_in`."""

    def test_dropped_keys(self) -> None:
        """Keys that were sent, and keys that never were, have a number each."""
        for dropped, unsent, text in (
            (1, 0, "1 key may not have reached the machine"),
            (2, 2, "2 keys typed meanwhile were discarded"),
            (3, 1, "2 keys may not have reached the machine; 1 key typed after that was discarded"),
            (
                5,
                4,
                "1 key may not have reached the machine; 4 keys typed after that were discarded",
            ),
        ):
            self.assertEqual(dropped_keys(dropped, unsent), text)

    def test_unconfirmed_keys(self) -> None:
        """A user who leaves reads of keys that were sent, and of keys that were not."""
        for sent, unsent, text in (
            (0, 0, ""),
            (14, 0, "14 keys may not have reached the machine"),
            (0, 1, "1 key was not sent"),
            (1, 2, "1 key may not have reached the machine; 2 keys typed after that were not sent"),
        ):
            self.assertEqual(unconfirmed_keys(sent, unsent), text)

    def test_keys_in(self) -> None:
        """The bytes of an arrow or of a character in UTF-8 are one key; reports, and what surrounds a paste, are none."""
        for data, count in (
            (b"", 0),
            (b"ls\r", 3),
            (b"\x1b[A\x1bOB\x1b[1;5C", 3),
            ("\u5b57\u00fc".encode(), 2),
            (b"\x80\x81", 1),
            (b"\x1b[I\x1b[<0;3;4mx\x1b[M\n\n\n\x1b[O", 1),
            (b"\x1b[200~ls\x1b[201~", 2),
        ):
            self.assertEqual(keys_in(data), count)

    def test_items(self) -> None:
        """A request counts as a key; the end of the input is none."""
        self.assertEqual(keys_of([b"ab", "a request", None]), 3)

    def test_typed(self) -> None:
        """Reports of the mouse and of the focus are not typed."""
        for data, typed in (
            (b"x", True),
            (b"\x1b[A", True),
            (b"", True),
            (b"\x1b[I", False),
            (b"\x1b[<0;3;4m\x1b[M\n\n\n\x1b[O", False),
            (b"\x1b[Ix", True),
        ):
            self.assertIs(is_typed(data), typed, data)


class DroppedKeysTests(SynchronousTestCase):
    """Tests for :class:`DroppedKeys`."""

    def test_count(self) -> None:
        """A key that arrives in parts is one, and any number of keys is counted."""
        keys = DroppedKeys()
        for part in (b"\x1b", b"[A", "\u5b57".encode()[:1], "\u5b57".encode()[1:]):
            keys.add(part)
        self.assertEqual(keys.count, 2)
        for _ in range(100):
            keys.add(b"k" * 100)
        self.assertEqual(keys.count, 10_002)
