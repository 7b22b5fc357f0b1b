"""
Tests for :mod:`twisted_exec.recording.excerpt`.
"""

from __future__ import annotations

import io

from twisted.trial.unittest import SynchronousTestCase

from tests.recording.support import NOW, SECOND, Entry, info, record, signer, trust
from twisted_exec.recording.excerpt import NotClosed, excerpt
from twisted_exec.recording.export import NothingPrinted
from twisted_exec.recording.playback import frames
from twisted_exec.recording.proof_lines import InvalidRecording
from twisted_exec.recording.verification import Report, verify
from twisted_exec.recording.writer import RecordingWriter

BEGIN = NOW // 1_000_000
ENTRIES: list[Entry] = [(NOW + n * SECOND, b"second %d\r\n" % n) for n in range(10)]


def cut(recording: bytes, first: int, last: int) -> bytes:
    """Return an excerpt between two times, in seconds after the beginning."""
    file = io.BytesIO(recording)
    return b"".join(excerpt(file, BEGIN + first * 1000, BEGIN + last * 1000))


def output(recording: bytes) -> list[bytes]:
    return [frame.data.strip() for frame in frames(io.BytesIO(recording)) if frame.code == "o"]


class ExcerptTests(SynchronousTestCase):
    """Tests for :func:`excerpt`."""

    def setUp(self) -> None:
        self.recording = record(ENTRIES, sign_each=True)

    def verified(self, recording: bytes) -> Report:
        report = verify(io.BytesIO(recording), trust())
        self.assertTrue(report.is_closed)
        return report

    def test_middle(self) -> None:
        """An excerpt has the blocks of its time, nothing of the others, and is as proven."""
        part = cut(self.recording, 4, 6)
        self.assertEqual(output(part), [b"second 4", b"second 5", b"second 6", b"second 7"])
        self.assertNotIn(b"second 8", part)
        report, whole = self.verified(part), self.verified(self.recording)
        self.assertEqual((report.head, report.blocks), (whole.head, whole.blocks))
        self.assertEqual(report.omitted, whole.blocks - 5)

    def test_times(self) -> None:
        """Output has its own time, also behind blocks that are left out."""
        part = io.BytesIO(cut(self.recording, 8, 9))
        times = [frame.time - BEGIN for frame in frames(part) if frame.code == "o"]
        self.assertEqual(times, [8000, 9000])

    def test_all(self) -> None:
        """An excerpt of everything is the recording."""
        self.assertEqual(cut(self.recording, 0, 20), self.recording)

    def test_excerpt_of_excerpt(self) -> None:
        """An excerpt can be cut again."""
        part = cut(cut(self.recording, 2, 8), 4, 5)
        self.assertEqual(part, cut(self.recording, 4, 5))

    def test_certificates(self) -> None:
        """Certificates stay, so that later signatures can be verified."""
        writer = RecordingWriter(info(), signer())
        text = writer.begin() + writer.output(NOW, 0, b"one") + writer.sign_head(NOW)
        text += writer.renew(signer("metal-b"))
        text += writer.output(NOW + 5 * SECOND, 3, b"two") + writer.close(NOW + 5 * SECOND)
        part = cut(text, 0, 0)
        self.assertEqual(self.verified(part).signers, ["metal-b"])

    def test_changed_blocks(self) -> None:
        """What stays and what was left out cannot be changed."""
        part = cut(self.recording, 4, 6)
        for old, new in ((b"second 4", b"second 9"), (b"# omitted 1 ", b"# omitted 2 ")):
            self.assertIn(old, part)
            self.assertRaises(InvalidRecording, self.verified, part.replace(old, new))
        lines = part.splitlines(keepends=True)
        omitted = next(number for number, line in enumerate(lines) if b"omitted" in line)
        self.assertRaises(
            InvalidRecording, self.verified, b"".join(lines[:omitted] + lines[omitted + 1 :])
        )

    def test_not_closed(self) -> None:
        """Only a closed recording can be cut: the head of another one may be left out."""
        recording = record(ENTRIES, closed=False)
        self.assertRaises(NotClosed, cut, recording, 0, 5)

    def test_nothing(self) -> None:
        """A range before the beginning has nothing, and the message says what there is."""
        with self.assertRaises(NothingPrinted) as caught:
            cut(self.recording, -10, -5)
        self.assertEqual(
            str(caught.exception),
            "the recording has nothing between these times; "
            "there is output from 2023-11-14T22:13:20Z to 2023-11-14T22:13:29Z",
        )

    def test_nothing_left(self) -> None:
        """An excerpt without the blocks of a range does not deny that the recording has them."""
        with self.assertRaises(NothingPrinted) as caught:
            cut(cut(self.recording, 8, 9), 2, 4)
        self.assertEqual(
            str(caught.exception),
            "this excerpt has nothing between these times; cut the whole recording instead",
        )
