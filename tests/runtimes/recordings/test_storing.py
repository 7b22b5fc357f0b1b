"""
Closed recordings in a store: :mod:`twisted_exec.runtimes.recordings.storing`.
"""

from __future__ import annotations

import errno
import io
import os
from typing import Any

from twisted.internet.defer import Deferred

from tests.recording.stores.doubles import MemoryStore
from tests.recording.support import trust
from tests.recording.test_writer import played
from twisted_exec.api.status import NotFound, ServiceUnavailable
from twisted_exec.recording.stores.interfaces import StoreError
from twisted_exec.recording.stores.uploads import LONGEST_DELAY_SECONDS, UploadMetrics, Uploads
from twisted_exec.recording.verification import verify

from .support import KEY, UID, Case

AWAY = StoreError("unreachable", "cannot reach the bucket")


class StoringTests(Case):
    """A runtime whose recordings go to a store in memory, which outlives it."""

    def setUp(self) -> None:
        self.bucket = MemoryStore()
        self.make_uploads = lambda: Uploads(self.bucket, self.clock, UploadMetrics())
        super().setUp()

    def record(self, output: bytes = b"output") -> None:
        """A recording that is closed."""
        self.set()
        self.journal.append(output)
        self.end()

    def needed(self) -> bool:
        """Whether a journal is retained for recordings."""
        return bool(self.recordings.retained.needed)

    def restart(self) -> None:
        """The process is killed, and starts again."""
        self.kill()
        self.start()

    def test_stored(self) -> None:
        """A closed recording is in the store; the status says where, and the journal is free."""
        self.set()
        self.journal.append(b"output")
        self.wait(60)
        self.assertEqual((self.bucket.content, self.needed()), ({}, True))
        self.end()
        content = self.bucket.content[UID]
        self.assertTrue(verify(io.BytesIO(content), trust()).is_closed)
        self.assertEqual(played(content), b"output")
        self.assertEqual(content, self.text())
        self.assertEqual(self.status().location, f"memory://store/{UID}.cast")
        self.assertFalse(self.needed())

    def test_served_from_the_store(self) -> None:
        """The content is read from the store then, also after a restart."""
        self.record()
        self.restart()
        read = self.recordings.storing.text(self.recordings.facts(UID))
        assert read is not None
        self.assertEqual(self.successResultOf(read(0, 1 << 20)), self.bucket.content[UID])
        self.assertFalse(self.needed())
        self.assertEqual(self.bucket.calls, [f"put {UID}"])

    def test_away(self) -> None:
        """
        While the store is away the status says so, the journal is retained, and the content is read
        from it; the recording is stored when the store is back.
        """
        self.bucket.problem = AWAY
        self.record()
        self.wait(5 * LONGEST_DELAY_SECONDS)
        status = self.status()
        self.assertEqual((status.state, status.location), ("Closed", ""))
        self.assertEqual(
            (status.reason, status.message),
            ("NotStored", "it is not stored yet: cannot reach the bucket"),
        )
        self.assertTrue(self.needed())
        self.assertIsNone(self.recordings.storing.text(self.recordings.facts(UID)))
        self.assertEqual(self.output(), b"output")
        self.bucket.problem = None
        self.wait(LONGEST_DELAY_SECONDS)
        self.assertEqual(self.status().message, "")
        self.assertTrue(self.status().location)
        self.assertFalse(self.needed())

    def test_full(self) -> None:
        """A store that is full is reported like one that is away; nothing is lost."""
        self.bucket.problem = StoreError("full", "No space left on device")
        self.record()
        self.assertIn("No space left on device", self.status().message)
        self.restart()
        self.assertTrue(self.needed())
        self.bucket.problem = None
        self.wait(LONGEST_DELAY_SECONDS)
        self.assertEqual(played(self.bucket.content[UID]), b"output")

    def test_killed_in_the_middle(self) -> None:
        """A runtime that is killed in the middle of an upload stores the recording after its start."""
        self.bucket.gate = Deferred()
        self.record()
        self.assertEqual(self.bucket.content, {})
        self.bucket.gate = None
        self.restart()
        self.assertEqual(played(self.bucket.content[UID]), b"output")
        self.assertTrue(self.status().location)

    def test_killed_after_the_upload(self) -> None:
        """A runtime that is killed before it noted the location stores the same once more."""

        class NoSpace:
            is_full = False

            def __getattr__(self, name: str) -> Any:
                if name == "rename" and self.is_full:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return getattr(os, name)

        self.kill()
        self.layer = layer = NoSpace()
        self.start()
        self.set()
        self.journal.append(b"output")
        self.bucket.gate = gate = Deferred()
        self.end()
        layer.is_full = True
        self.bucket.gate = None
        gate.callback(None)
        content = self.bucket.content[UID]
        self.assertEqual(self.status().location, "")
        self.assertTrue(self.needed())
        layer.is_full = False
        self.restart()
        self.assertEqual(self.bucket.content, {UID: content})
        self.assertTrue(self.status().location)
        self.assertFalse(self.needed())

    def test_deleted(self) -> None:
        """A recording whose object is deleted is deleted in the store."""
        self.record()
        self.set(released=True)
        self.assertEqual(self.bucket.content, {})
        self.assertRaises(NotFound, self.recordings.facts, UID)
        self.restart()
        self.assertRaises(NotFound, self.recordings.facts, UID)

    def test_deleted_while_away(self) -> None:
        """It is deleted there when the store is back, also after a restart."""
        self.record()
        self.bucket.problem = AWAY
        self.set(released=True)
        self.assertRaises(NotFound, self.recordings.facts, UID)
        self.assertEqual(self.list().recordings[:], [])
        self.restart()
        self.assertRaises(NotFound, self.recordings.facts, UID)
        self.set(released=True)
        self.bucket.problem = None
        self.wait(LONGEST_DELAY_SECONDS)
        self.assertEqual(self.bucket.content, {})
        self.restart()
        self.assertEqual(self.bucket.calls[-1], f"delete {UID}")

    def test_deleted_while_open(self) -> None:
        """A recording that was never closed is not in the store."""
        self.set()
        self.set(released=True)
        self.assertEqual(self.bucket.calls, [])
        self.assertFalse(self.needed())

    def test_without_the_store(self) -> None:
        """A runtime that lacks the option later says where the recording is."""
        self.record()
        self.make_uploads = lambda: None
        self.restart()
        error = self.assertRaises(
            ServiceUnavailable, self.recordings.storing.text, self.recordings.facts(UID)
        )
        self.assertIn(f"memory://store/{UID}.cast", str(error))
        self.assertIn("--recording-store", str(error))

    def test_machine_is_gone(self) -> None:
        """The recording of a machine that is deleted is stored, too."""
        self.set()
        self.journal.append(b"last words")
        self.store.deleted(KEY)
        self.recordings.remove(KEY)
        self.wait(1)
        self.assertEqual(played(self.bucket.content[UID]), b"last words")
