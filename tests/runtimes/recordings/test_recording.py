"""
Tests for :mod:`twisted_exec.runtimes.recordings.recording`.
"""

from __future__ import annotations

import os
from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from tests.journal.support import FailingLayer
from tests.recording.support import NOW, signer
from twisted_exec.recording.growing import SignedHead
from twisted_exec.recording.journal_ranges import JournalPosition
from twisted_exec.runtimes.recordings import recording as files_module
from twisted_exec.runtimes.recordings.recording import (
    RecordingFacts,
    RecordingFiles,
    StoredRecording,
)

FACTS = RecordingFacts("u", "k", {}, "none", "e", 0, NOW, 80, 24, "ab" * 32)


class RecordingFilesTests(SynchronousTestCase):
    """A recording with the heads of a day, one of them by a renewed certificate."""

    def setUp(self) -> None:
        self.path = os.path.abspath(self.mktemp())
        files = RecordingFiles(self.path)
        files.open()
        self.renewed = signer("renewed")
        files.create(FACTS, self.head(0))
        for number in range(1, 1440):
            certificate = self.renewed.certificate if number == 700 else b""
            files.append(FACTS.uid, replace(self.head(number), certificate=certificate))

    def head(self, number: int) -> SignedHead:
        """A head."""
        return FACTS.growing.begin(JournalPosition(number), self.renewed, NOW)

    def read(self) -> StoredRecording:
        """Return the recording as after a start."""
        (stored,) = RecordingFiles(self.path).open()
        return stored

    def test_newest(self) -> None:
        """The newest head and its certificate are found, and the other heads are not decoded."""
        decoded: list[bytes] = []
        decode = files_module.decode_signed_head

        def counting(line: bytes) -> SignedHead:
            decoded.append(line)
            return decode(line)

        self.patch(files_module, "decode_signed_head", counting)
        stored = self.read()
        self.assertEqual(stored.last.position, JournalPosition(1439))
        self.assertEqual(stored.certificate, self.renewed.certificate)
        self.assertLess(len(decoded), 5)

    def test_closed_meanwhile(self) -> None:
        """A head that waits for the disk while the files are closed leaves those of a successor."""
        layer = FailingLayer()
        files, successor = RecordingFiles(self.path, layer), RecordingFiles(self.path)
        files.open()
        successor.open()

        def wait() -> None:
            layer.called = lambda: None
            files.close()
            successor.append(FACTS.uid, self.head(1440))

        layer.called = wait
        self.assertRaises(OSError, files.append, FACTS.uid, self.head(1440))
        self.assertRaises(OSError, files.create, FACTS, self.head(1441))
        self.assertRaises(OSError, files.save, FACTS)
        self.assertRaises(OSError, files.remove, FACTS.uid)
        self.assertEqual(self.read().last.position, JournalPosition(1440))

    def test_damaged_end(self) -> None:
        """After a power cut the last line may be incomplete, or have holes: the head before it counts."""
        path = os.path.join(self.path, "u.heads")
        with open(path, "rb") as file:
            whole = file.read()
        last = whole[whole[:-1].rindex(b"\n") + 1 :]
        before = whole[: -len(last)]
        for end in (last[:-1], last[:10], bytes(len(last) - 1) + b"\n", b"\n"):
            with open(path, "wb") as file:
                file.write(before + end)
            self.assertEqual(self.read().last.position, JournalPosition(1438), end)
