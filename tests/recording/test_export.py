"""
Tests for :mod:`twisted_exec.recording.export`.
"""

from __future__ import annotations

import io
import os

from twisted.trial.unittest import SynchronousTestCase

from tests.journal.support import ManualDisk, close_segments
from tests.recording.support import NOW, SECOND, signer, trust
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.snapshot import Snapshot
from twisted_exec.recording.export import HEAD_BYTES, NothingPrinted, export
from twisted_exec.recording.playback import frames
from twisted_exec.recording.proof_lines import HEAD
from twisted_exec.recording.signatures import UnusableCertificate
from twisted_exec.recording.verification import verify


class ExportTests(SynchronousTestCase):
    """Tests for :func:`export`."""

    def setUp(self) -> None:
        self.path = os.path.abspath(self.mktemp())
        self.now = NOW
        self.disk = ManualDisk(self.path)
        self.journal = Journal(lambda: self.now, self.disk)
        self.addCleanup(close_segments)

    def export(self) -> bytes:
        pieces = export(Snapshot(self.path), signer(), lambda: self.now, machine={"uid": "u1"})
        return b"".join(pieces)

    def content(self) -> list[tuple[int, str, bytes]]:
        recording = io.BytesIO(self.export())
        return [((each.time * 1_000_000 - NOW), each.code, each.data) for each in frames(recording)]

    def test_joined_output(self) -> None:
        """Output that came byte by byte at one time is one event; events and times divide it."""
        for byte in b"U-Boot":
            self.journal.append(bytes([byte]))
        self.journal.resized(30, 100)
        self.journal.append(b"a")
        self.now += SECOND
        self.journal.append(b"b")
        self.assertEqual(
            self.content(),
            [(0, "o", b"U-Boot"), (0, "r", b"100x30"), (0, "o", b"a"), (SECOND, "o", b"b")],
        )

    def test_sealed_segments(self) -> None:
        """A recording of sealed segments has the same content as one of open segments."""
        for number in range(30):
            self.now += SECOND
            for byte in (b"%06d " % number, "größer".encode(), b"\xff" * 70_000):
                self.journal.append(byte)
        before = self.content()
        self.disk.seal_all()
        self.assertTrue(any(name.endswith(".sealed") for name in os.listdir(self.path)))
        after = self.content()
        self.assertEqual(b"".join(each[2] for each in after), b"".join(each[2] for each in before))
        self.assertEqual({each[0] for each in after}, {each[0] for each in before})

    def test_lost_end(self) -> None:
        """Of a long recording without its end, the part up to a head within it is proven."""
        for _ in range(5):
            self.now += SECOND
            self.journal.append(b"x" * (HEAD_BYTES // 3))
        recording = self.export()
        self.assertTrue(verify(io.BytesIO(recording), trust()).is_closed)
        report = verify(io.BytesIO(recording[: recording.rindex(HEAD)]), trust())
        self.assertFalse(report.is_closed)
        self.assertGreaterEqual(report.head.offset, HEAD_BYTES)

    def test_refused(self) -> None:
        """Nothing is written if there is nothing to write, or if it cannot be signed."""
        self.journal.booted("Started")
        self.assertRaises(NothingPrinted, self.export)
        self.now += 400 * 86_400 * SECOND
        self.journal.append(b"x")
        self.assertRaises(UnusableCertificate, self.export)
