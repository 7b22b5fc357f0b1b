"""
Tests for :mod:`twisted_exec.runtimes.state`.
"""

from __future__ import annotations

import errno
import fcntl
import os

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.machine_storage import ID
from twisted_exec.runtimes.state import (
    StateInUse,
    StateNotLockable,
    lock_state,
    read_or_create_id,
)


class StateDirectoryTests(SynchronousTestCase):
    """Tests for :func:`lock_state` and :func:`read_or_create_id`."""

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.mkdir(self.directory)

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def test_one(self) -> None:
        """Only one runtime at a time; a second one gets the place in the message."""
        held = lock_state(self.path("lock"))
        with self.assertRaises(StateInUse) as caught:
            lock_state(self.path("lock"))
        self.assertIn(self.directory, str(caught.exception))
        os.close(held)
        os.close(lock_state(self.path("lock")))

    def test_no_locks(self) -> None:
        """A file system without locks, such as NFS without its daemon, is no other runtime."""

        def refuse(descriptor: int, operation: int) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        self.patch(fcntl, "flock", refuse)
        before = os.listdir("/proc/self/fd")
        with self.assertRaises(StateNotLockable) as caught:
            lock_state(self.path("lock"))
        self.assertEqual(
            str(caught.exception),
            f"the state directory {self.directory} cannot be locked (No locks available): choose one on a"
            " local disk",
        )
        self.assertEqual(os.listdir("/proc/self/fd"), before)

    def test_id(self) -> None:
        """The id is stable."""
        with capturedLogs() as logged:
            first_id = read_or_create_id(self.path("id"))
            self.assertTrue(ID.fullmatch(first_id))
            self.assertEqual(read_or_create_id(self.path("id")), first_id)
        self.assertEqual(logged, [])

    def test_damaged_id(self) -> None:
        """A damaged id is replaced, and the log says what the user may have to do."""
        for damaged in (b"", b"torn", b"\xff\x00"):
            with open(self.path("id"), "wb") as file:
                file.write(damaged)
            with capturedLogs() as logged:
                self.assertTrue(ID.fullmatch(read_or_create_id(self.path("id"))), damaged)
            (text,) = map(formatEvent, logged)
            self.assertIn(f"{self.path('id')} is damaged and is replaced", text)
