"""Tests for :mod:`twisted_exec.cli.fleet.tiles`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.fleet.tiles import Key, first_key


def keys(data: bytes) -> list[Key | str]:
    """Return the keys of some input, without those that have no meaning here."""
    pressed = []
    while data:
        key, length = first_key(data)
        data = data[length:]
        if key is not None:
            pressed.append(key)
    return pressed


class KeysTests(SynchronousTestCase):
    """Tests for :func:`first_key`."""

    def test_keys(self) -> None:
        """Characters, keys with a name in both of the terminal's modes, and no others."""
        self.assertEqual(
            keys(b"a \x1b[A\x1bOB\x1b[C\x1b[D\x1b[5~\x1b[6~\x1b[H\x1b[4~\r\x1d\x03"),
            [
                "a",
                " ",
                Key.UP,
                Key.DOWN,
                Key.RIGHT,
                Key.LEFT,
                Key.PAGE_UP,
                Key.PAGE_DOWN,
                Key.HOME,
                Key.END,
                Key.ENTER,
                Key.LEAVE,
                "\x03",
            ],
        )
        self.assertEqual(keys(b"\x1b[15~\x1b[1;5P\xc3\xa9"), [])
