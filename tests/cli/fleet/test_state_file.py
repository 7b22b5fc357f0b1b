"""Tests for :mod:`twisted_exec.cli.fleet.state_file`."""

from __future__ import annotations

import os

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.fleet.state_file import SavedPosition, StateFile, StateFileError
from twisted_exec.wire.resume import Position

EPOCH = "0123456789abcdef"


class StateFileTests(SynchronousTestCase):
    """The file of ``--state``."""

    def setUp(self) -> None:
        os.makedirs(self.mktemp())
        self.path = os.path.join(self.mktemp(), "state")
        os.makedirs(os.path.dirname(self.path))

    def test_again(self) -> None:
        """A later run gets what was noted; only the user can read it."""
        state = StateFile(self.path)
        state.load()
        state.machines["uid-1"] = SavedPosition("web-1", Position(EPOCH, 12), inside_line=True)
        state.machines["uid-2"] = SavedPosition("web-2", Position(EPOCH, 0))
        state.write(state.encoded())
        again = StateFile(self.path)
        again.load()
        self.assertEqual(again.machines, state.machines)
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)
        self.assertEqual(os.listdir(os.path.dirname(self.path)), ["state"])

    def test_not_a_state(self) -> None:
        """Any other file is refused with the remedy, and stays as it is."""
        position = '{"name":"a","epoch":"%s","offset":%s}'
        for text in (
            "{",
            "[]",
            "{}",
            '{"version":2,"machines":{}}',
            '{"version":1,"machines":[]}',
            '{"version":1,"machines":{"u":{}}}',
            '{"version":1,"machines":{"u":%s}}' % (position % ("short", 1)),
            '{"version":1,"machines":{"u":%s}}' % (position % (EPOCH, -1)),
            '{"version":1,"machines":{"u":%s}}' % (position % (EPOCH, "true")),
            "[" * 100_000,
        ):
            with open(self.path, "w") as file:
                file.write(text)
            with self.assertRaises(StateFileError) as caught:
                StateFile(self.path).load()
            self.assertIn("is not a file of --state: name another file", str(caught.exception))
            with open(self.path) as file:
                self.assertEqual(file.read(), text)
        with open(self.path, "wb") as binary:
            binary.write(b"\xff\xfe")
        with self.assertRaises(StateFileError):
            StateFile(self.path).load()

    def test_link(self) -> None:
        """Links of others in the same directory do not lead to another file."""
        other = os.path.join(os.path.dirname(self.path), "other")
        os.symlink(os.path.abspath(other), f"{self.path}.new")
        StateFile(self.path).load()
        self.assertFalse(os.path.exists(other))
        self.assertTrue(os.path.isfile(self.path))

    def test_two_runs(self) -> None:
        """Of two runs with one file, which write at the same time, the last one is in the file."""
        state, other = StateFile(self.path), StateFile(self.path)
        state.load()
        state.machines["uid-1"] = SavedPosition("web-1", Position(EPOCH, 12))
        synced = os.fsync

        def sync(descriptor: int) -> None:
            self.patch(os, "fsync", synced)
            other.write(other.encoded())
            synced(descriptor)

        self.patch(os, "fsync", sync)
        state.write(state.encoded())
        again = StateFile(self.path)
        again.load()
        self.assertEqual(again.machines, state.machines)
        self.assertEqual(os.listdir(os.path.dirname(self.path)), ["state"])

    def test_not_writable(self) -> None:
        """A file that cannot be written is an error at once."""
        with self.assertRaises(StateFileError) as caught:
            StateFile(os.path.join(self.path, "none")).load()
        self.assertIn("No such file or directory", str(caught.exception))
