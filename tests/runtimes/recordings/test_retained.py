"""
Tests for :mod:`twisted_exec.runtimes.recordings.retained`: retention of journals leaves what recordings need.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.journal.retention import Retention
from twisted_exec.journal.writer import WRITE_SECONDS
from twisted_exec.runtimes.recordings.retained import RetainedSegments

from .support import KEY, OTHER, UID, Case

SEGMENT = 1 << 20


class RetainedCase(Case):
    """A journal that is smaller than what is recorded."""

    def print(self, number: int) -> bytes:
        """Print the content of one segment."""
        data = b"%07d\n" % number * (SEGMENT // 8)
        self.journal.append(data)
        self.clock.advance(WRITE_SECONDS)
        return data

    def shrink(self) -> None:
        """Remove everything but the newest segment from the journal."""
        self.store.journal(KEY, Retention(30, 1))
        removing = Deferred.fromCoroutine(self.store.remove_old())
        self.wait(1)
        self.successResultOf(removing)

    def segments(self) -> list[str]:
        directory = self.recordings.retained.directory(KEY)
        return sorted(os.listdir(directory)) if os.path.exists(directory) else []


class RetainedTests(RetainedCase):
    """Within the limit."""

    def test_open(self) -> None:
        """An open recording has all its output, although the journal has removed it."""
        self.print(0)
        self.set()
        printed = b"".join(self.print(number) for number in range(1, 4))
        self.shrink()
        self.assertGreater(self.journal.start, SEGMENT)
        self.end()
        self.assertEqual(self.output(), printed)
        self.assertTrue(self.report().is_closed)

    def test_closed(self) -> None:
        """A closed recording is retained, also over a restart, until it is deleted."""
        self.set()
        printed = self.print(0)
        self.end()
        for number in range(1, 4):
            self.print(number)
        self.shrink()
        self.kill()
        self.start()
        self.assertEqual(self.output(), printed)
        self.assertEqual(len(self.segments()), 1)
        self.assertGreater(self.recordings.retained.bytes, 0)
        self.set(released=True)
        self.assertEqual(self.segments(), [])
        self.assertEqual(self.recordings.retained.bytes, 0)

    def test_not_needed(self) -> None:
        """Output before and after the range is removed."""
        self.print(0)
        self.print(1)
        self.set()
        self.end()
        self.print(2)
        self.print(3)
        self.shrink()
        self.assertLessEqual(len(self.segments()), 1)

    def test_two_recordings(self) -> None:
        """What another recording needs stays when one is deleted."""
        other = UID.replace("1", "2")
        self.set()
        self.set(uid=other)
        printed = self.print(0)
        self.end()
        self.end(other)
        self.print(1)
        self.print(2)
        self.shrink()
        self.set(released=True)
        self.assertEqual(self.output(other), printed)

    def test_unreadable_directory(self) -> None:
        """A segment is retained also if nobody knows where it ends, as without a free descriptor."""

        class Layer:
            """As the module ``os``; it lists no directory of the journal."""

            def __getattr__(self, name: str) -> Any:
                return getattr(os, name)

            def listdir(self, path: str) -> list[str]:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        self.set()
        self.print(0)
        self.print(1)
        directory = self.journal.open_files().place.path
        retained = RetainedSegments(os.path.join(self.path, "other"), layer=Layer())
        os.mkdir(os.path.join(self.path, "other"), 0o700)
        retained.needed = self.recordings.retained.needed
        name = min(os.listdir(directory))
        retained.removing(os.path.join(directory, name))
        self.assertEqual((os.listdir(retained.directory(KEY)), retained.lost), ([name], []))

    def test_released_meanwhile(self) -> None:
        """A segment is retained also if its directory is removed just before, because it was empty."""

        class Layer:
            """As the module ``os``; the reactor acts between two calls of a thread."""

            def __init__(self, between: Callable[[], None]) -> None:
                self._between = [between]

            def __getattr__(self, name: str) -> Any:
                return getattr(os, name)

            def link(self, path: str, target: str) -> None:
                if self._between:
                    self._between.pop()()
                os.link(path, target)

        self.set()
        self.print(0)
        self.print(1)
        directory = self.journal.open_files().place.path
        os.mkdir(os.path.join(self.path, "other"), 0o700)
        layer = Layer(lambda: retained.release())
        retained = RetainedSegments(os.path.join(self.path, "other"), layer=layer)
        retained.needed = self.recordings.retained.needed
        name = min(os.listdir(directory))
        retained.removing(os.path.join(directory, name))
        self.assertEqual((os.listdir(retained.directory(KEY)), retained.lost), ([name], []))
        self.assertEqual(retained.bytes, os.path.getsize(os.path.join(directory, name)))
        retained.needed = {}
        retained.release()
        self.assertEqual((os.listdir(os.path.join(self.path, "other")), retained.bytes), ([], 0))

    def test_deleted_machine(self) -> None:
        """A recording survives the removal of the whole journal."""
        self.set()
        printed = self.print(0)
        self.store.deleted(KEY)
        self.recordings.remove(KEY)
        self.wait(1)
        self.clock.advance(8 * 86_400)
        removing = Deferred.fromCoroutine(self.store.remove_old())
        self.wait(1)
        self.successResultOf(removing)
        self.assertFalse(self.store.has(KEY))
        self.assertEqual(self.output(), printed)
        self.assertTrue(self.report().is_closed)


class LimitTests(RetainedCase):
    """Beyond the limit."""

    limit_bytes = 1000

    def test_open(self) -> None:
        """An open recording has failed, and its sessions may not type."""
        self.set()
        for number in range(4):
            self.print(number)
        self.shrink()
        self.wait(60)
        self.assertEqual(self.status().state, "Failed")
        self.assertIn("--recording-bytes", self.status().message)
        self.assertIn("has failed", self.recordings.problem(UID, "none", KEY))

    def test_closed(self) -> None:
        """A closed recording stays closed, and says what is missing."""
        self.set()
        self.print(0)
        self.end()
        for number in range(1, 4):
            self.print(number)
        self.shrink()
        self.journal.append(b"x")
        self.set(uid=UID.replace("1", "2"))
        self.wait(60)
        self.assertEqual(self.status().state, "Closed")
        self.assertIn("no longer retained", self.status().message)


class ShareTests(RetainedCase):
    """A machine that prints much, and another one."""

    limit_bytes = 8 * SEGMENT

    def test_other_machine(self) -> None:
        """A machine takes half of what the others leave, so that recordings of others go on."""
        other = UID.replace("1", "2")
        self.add(OTHER)
        self.set()
        self.set(uid=other, machine_uid=OTHER)
        for number in range(12):
            self.print(number)
        self.shrink()
        self.assertLess(self.recordings.retained.bytes, 5 * SEGMENT)
        quiet = self.store.journal(OTHER, Retention(30, 1))
        printed = b"quiet\n" * (SEGMENT // 6)
        quiet.append(printed)
        for _ in range(2):
            quiet.append(b"x" * SEGMENT)
        self.clock.advance(WRITE_SECONDS)
        self.shrink()
        self.wait(60)
        self.assertEqual(self.status().state, "Failed")
        self.assertIn("half of what the others leave", self.status().message)
        self.assertEqual(self.status(other).state, "Recording")
        self.assertTrue(self.output(other).startswith(printed))
        self.set(released=True)
        self.set(uid=other, machine_uid=OTHER, released=True)
        self.assertEqual(self.recordings.retained.bytes, 0)
        self.assertEqual(self.recordings.retained.own_bytes(KEY), 0)
