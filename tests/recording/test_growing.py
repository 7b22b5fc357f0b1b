"""
Tests for :mod:`twisted_exec.recording.growing` and :mod:`~twisted_exec.recording.journal_ranges`: a recording has the
same text each time, however often its process was killed and however the journal stores the output.
"""

from __future__ import annotations

import io
import os

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests import soak
from tests.journal.support import ManualDisk, close_segments
from tests.recording.support import NOW, SECOND, info, signer, trust
from tests.recording.test_writer import played
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.snapshot import Snapshot
from twisted_exec.recording.growing import (
    GrowingRecording,
    SignedHead,
    decode_signed_head,
    render,
)
from twisted_exec.recording.journal_ranges import JournalPosition, MissingOutput, RangeReader
from twisted_exec.recording.proof_lines import InvalidRecording, decode_head
from twisted_exec.recording.signatures import HeadSigner, UnusableCertificate
from twisted_exec.recording.verification import verify

steps = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=20),
        st.sampled_from(["é".encode()[:1], "é".encode()[1:], b"x" * 70_000, b"y" * 1_100_000]),
        st.sampled_from(["tick", "size", "join", "type", "sign", "renew"]),
    ),
    max_size=25,
)


class Grown:
    """A recording of a journal on disk."""

    def __init__(self, path: str) -> None:
        self.path, self.now = path, NOW
        self.disk = ManualDisk(path)
        self.journal = Journal(lambda: self.now, self.disk)
        self.signer: HeadSigner = signer()
        self.certificate = b""
        self.heads: list[bytes] = []

    def begin(self) -> None:
        self.journal.append(b"before")
        self.journal.joined("s0", "eve", "writer")
        position = self.here()
        self.recording = GrowingRecording(info(position.offset), 80, 24, b"secret")
        self.add(self.recording.begin(position, self.signer, self.now))

    def here(self) -> JournalPosition:
        end = self.journal.end
        return JournalPosition(end, len(list(self.journal.events(end, end))))

    def add(self, head: SignedHead) -> None:
        self.heads.append(head.encode())
        self.certificate = head.certificate or self.certificate

    def reader(self, position: JournalPosition) -> RangeReader:
        return RangeReader(Snapshot(self.path).entries(position.offset), position)

    def sign_head(self, *, closed: bool = False) -> None:
        """Sign what was printed, from nothing but what is on disk."""
        last, here = decode_signed_head(self.heads[-1]), self.here()
        next_head = self.recording.next_head(last, self.signer, self.certificate)
        for entry in self.reader(last.position).until(here):
            next_head.add(entry)
        self.add(next_head.end(here, self.signer, self.now, closed=closed))

    def text(self, count: int | None = None) -> bytes:
        heads = [decode_signed_head(line) for line in self.heads[:count]]
        return b"".join(render(self.recording, iter(heads), self.reader(heads[0].position)))


class RenderTests(SynchronousTestCase):
    """Tests for :func:`render`."""

    def setUp(self) -> None:
        self.addCleanup(close_segments)

    def grown(self) -> Grown:
        grown = Grown(os.path.abspath(self.mktemp()))
        grown.begin()
        return grown

    @settings(
        deadline=None,
        max_examples=soak.figure_of("recording.test_growing.RenderTests.test_same_text_each_time"),
    )
    @given(steps)
    def test_same_text_each_time(self, given_steps: list[bytes | str]) -> None:
        """The text up to a head never changes, and has all output of the range once."""
        grown = self.grown()
        printed = b""
        for step in given_steps:
            if isinstance(step, bytes):
                grown.journal.append(step)
                printed += step
            elif step == "tick":
                grown.now += SECOND
            elif step == "size":
                grown.journal.resized(30, 100)
            elif step == "join":
                grown.journal.joined("s1", "ada", "writer")
            elif step == "type":
                self.assertTrue(grown.journal.typed("s1", b"ls\r", echoed=False))
            elif step == "renew":
                grown.signer = signer("metal-b")
            else:
                grown.sign_head()
        texts = [grown.text(count) for count in range(1, len(grown.heads) + 1)]
        grown.sign_head(closed=True)
        whole = grown.text()
        grown.disk.seal_all()
        self.assertEqual(grown.text(), whole)
        for text in texts:
            self.assertTrue(whole.startswith(text))
        self.assertEqual(played(whole), printed)
        report = verify(io.BytesIO(whole), trust())
        self.assertTrue(report.is_closed)
        self.assertEqual(report.head.offset, grown.journal.end)

    def test_heads_are_in_the_text(self) -> None:
        """Each head that was signed is found in the text, so a copy without its end is noticed."""
        grown = self.grown()
        grown.journal.append(b"one")
        grown.sign_head()
        stored, _ = decode_head(decode_signed_head(grown.heads[-1]).progress.head.encode() + b"\n")
        early = grown.text(1)
        grown.journal.append(b"two")
        grown.sign_head()
        self.assertEqual(verify(io.BytesIO(grown.text()), trust(), stored).head.offset, 12)
        error = self.assertRaises(InvalidRecording, verify, io.BytesIO(early), trust(), stored)
        self.assertIn("truncated", str(error))

    def test_changed_journal(self) -> None:
        """A journal that was changed after the signature is found when the text is rendered."""
        grown = self.grown()
        grown.journal.append(b"one")
        grown.sign_head()
        copy = Grown(os.path.abspath(self.mktemp()))
        copy.begin()
        copy.journal.append(b"two")
        copy.heads, copy.recording = grown.heads, grown.recording
        error = self.assertRaises(InvalidRecording, copy.text)
        self.assertIn("not as it was when block", str(error))

    def test_missing_output(self) -> None:
        """Output that is no longer retained is named by its offsets."""
        grown = self.grown()
        for _ in range(3):
            grown.journal.append(b"x" * 1_100_000)
        grown.sign_head()
        grown.journal.drop(0)
        error = self.assertRaises(MissingOutput, grown.text)
        self.assertIn("from offset 6 to", str(error))

    def test_expired_certificate(self) -> None:
        """Nothing is signed with a certificate that is not valid, and the recording can go on."""
        grown = self.grown()
        grown.signer = signer(days=1)
        grown.now += 90_000 * SECOND
        grown.journal.append(b"late")
        self.assertRaises(UnusableCertificate, grown.sign_head)
        grown.signer = signer()
        grown.sign_head(closed=True)
        self.assertEqual(played(grown.text()), b"late")

    def test_torn_line(self) -> None:
        """A line of a head that was not written completely is not taken for one."""
        line = self.grown().heads[0]
        for text in (line[:-1], line[: len(line) // 2] + b"\n", b"{}\n", b"[]\n"):
            self.assertRaises(ValueError, decode_signed_head, text)
