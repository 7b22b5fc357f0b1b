"""
Tests for :mod:`twisted_exec.recording.verification`: what was done to a recording is found.
"""

from __future__ import annotations

import io
import json
import random
import tracemalloc
from collections.abc import Iterator

from twisted.trial.unittest import SynchronousTestCase

from tests import soak
from tests.recording.support import NOW, SECOND, Entry, info, record, signer, trust
from twisted_exec.journal.interfaces import Event, EventKind
from twisted_exec.recording.proof_lines import (
    HEAD,
    HeadContent,
    Info,
    InvalidRecording,
    decode_head,
)
from twisted_exec.recording.signatures import TrustedRecorders
from twisted_exec.recording.verification import Report, verify
from twisted_exec.recording.writer import RecordingWriter

ENTRIES: list[Entry] = [
    (NOW, b"U-Boot 2026.01\r\n"),
    Event(16, NOW, EventKind.SIZE, {"columns": 100, "rows": 30}),
    (NOW + SECOND, b"=> \xff\xfe"),
    (NOW + 2 * SECOND, "größer\r\n".encode()),
]


def verified(
    recording: bytes, stored: HeadContent | None = None, trusted: TrustedRecorders | None = None
) -> Report:
    return verify(io.BytesIO(recording), trusted or trust(), stored)


def heads(recording: bytes) -> list[HeadContent]:
    lines = recording.splitlines(keepends=True)
    return [decode_head(line)[0] for line in lines if line.startswith(HEAD)]


class VerifyTests(SynchronousTestCase):
    """Tests for :func:`verify`."""

    def setUp(self) -> None:
        self.recording = record(ENTRIES, sign_each=True)

    def assert_not_proven(self, recording: bytes, what: object) -> None:
        """Neither of a closed recording, nor without a remark."""
        try:
            report = verified(recording)
        except InvalidRecording:
            return
        self.assertFalse(report.is_closed, what)

    def assert_invalid(
        self, recording: bytes, message: str, stored: HeadContent | None = None
    ) -> None:
        error = self.assertRaises(InvalidRecording, verified, recording, stored)
        self.assertIn(message, str(error))

    def test_untouched(self) -> None:
        """The report names the recording, its signers and its end."""
        report = verified(self.recording)
        self.assertEqual((report.info, report.signers), (info(), ["metal-a"]))
        self.assertTrue(report.is_closed)
        self.assertEqual((report.omitted, report.unsigned_bytes), (0, 0))
        self.assertEqual(report.blocks, report.head.block + 1)

    def test_flipped_bytes(self) -> None:
        """A change of any byte is found, whichever bit it is."""
        recording = record(ENTRIES[:1], sign_each=True)
        for position in range(0, len(recording), soak.figure(self)):
            changed = bytearray(recording)
            changed[position] ^= 1 << position % 8
            self.assert_not_proven(bytes(changed), position)

    def test_lines(self) -> None:
        """Each line that is dropped, duplicated or swapped with the next one is found."""
        lines = self.recording.splitlines(keepends=True)
        for number, line in enumerate(lines):
            before, after = lines[:number], lines[number + 1 :]
            self.assert_not_proven(b"".join([*before, *after]), line)
            self.assert_not_proven(b"".join([*before, line, line, *after]), line)
            if after:
                self.assert_not_proven(b"".join([*before, after[0], line, *after[1:]]), line)

    def test_blocks(self) -> None:
        """Each block that is dropped, duplicated or swapped is found, with its head or without."""
        blocks = list(_blocks(self.recording))
        for number, block in enumerate(blocks):
            before, after = blocks[:number], blocks[number + 1 :]
            self.assert_not_proven(b"".join([*before, *after]), number)
            self.assert_not_proven(b"".join([*before, block, block, *after]), number)
            if after:
                self.assert_not_proven(b"".join([*before, after[0], block, *after[1:]]), number)

    def test_truncations(self) -> None:
        """A recording that ends earlier is not closed, whatever its end."""
        recording = record(ENTRIES[:1], sign_each=True)
        for end in range(0, len(recording), soak.figure(self)):
            self.assert_not_proven(recording[:end], end)

    def test_truncation_with_stored_head(self) -> None:
        """With its newest head from elsewhere, a truncated recording is invalid."""
        newest = heads(self.recording)[-2]
        for end in range(0, self.recording.rindex(HEAD), 7):
            try:
                report = verified(self.recording[:end], newest)
            except InvalidRecording:
                continue
            self.assertGreaterEqual(report.blocks, newest.block + 1)

    def test_appended(self) -> None:
        """Nothing follows the signed end."""
        for text in (b"x", b"\n", b"# comment\n", b'[1.0, "o", "x"]\n', ENTRIES[0][1]):  # type: ignore[index]
            self.assert_invalid(self.recording + bytes(text), "goes on after its signed end")

    def test_other_recording(self) -> None:
        """A stored head of another recording, or of another content, does not fit."""
        other = record([(NOW, b"other")])
        same_id = heads(other)[-1]
        self.assert_invalid(self.recording, "not that of the given head", same_id)
        foreign = HeadContent("r2", 99, "00" * 32, 0, 0, False)
        self.assert_invalid(self.recording, "of another recording", foreign)

    def test_not_closed(self) -> None:
        """A recording that is still written, or whose recorder died, is proven up to its head."""
        recording = record(ENTRIES, sign_each=True, closed=False)
        report = verified(recording)
        self.assertFalse(report.is_closed)
        self.assertEqual(report.unsigned_bytes, 0)
        tail = b'# at {"cols":80,"offset":0,"rows":24,"time":0}\n[0.000, "o", "x'
        self.assertEqual(verified(recording + tail).unsigned_bytes, len(tail))

    def test_blocks_behind_head(self) -> None:
        """Whole blocks behind the newest head are not proven, either."""
        whole = record(ENTRIES, sign_each=True)
        newest = whole.rindex(HEAD)
        before = whole.rindex(HEAD, 0, newest)
        end_of_head = whole.index(b"\n", before) + 1
        report = verified(whole[:newest])
        self.assertFalse(report.is_closed)
        self.assertEqual(report.unsigned_bytes, newest - end_of_head)

    def test_no_head(self) -> None:
        """A recording whose recorder died in its first minute proves nothing."""
        text = RecordingWriter(info(), signer()).begin()
        self.assert_invalid(text, "no signed head")
        self.assert_invalid(
            b"", "not a recording of twisted-exec, or its first lines are damaged: it is"
        )
        self.assert_invalid(b'{"version": 3}\n[0, "o", "x"]\n', "# recording")

    def test_newer_format(self) -> None:
        """A recording of a later release is named as such."""
        self.assert_invalid(self.recording.replace(b'"format":1', b'"format":2'), "the format 2")

    def test_foreign_authority(self) -> None:
        """Other authorities vouch for nothing; several are trusted while one is replaced."""
        error = self.assertRaises(InvalidRecording, verified, self.recording, None, trust("b"))
        self.assertIn("none of the given authorities has issued the certificate of '", str(error))
        self.assertTrue(verified(self.recording, None, trust("b", "a")).is_closed)

    def test_expired_since(self) -> None:
        """A signature counts if its certificate was valid at its time, and only then."""
        early = _signed_at(NOW + SECOND)
        self.assertTrue(verified(early).is_closed)
        late = early.replace(
            b'"time":%d}' % ((NOW + SECOND) // 1_000_000),
            b'"time":%d}' % ((NOW + 90_000 * SECOND) // 1_000_000),
        )
        self.assertNotEqual(early, late)
        self.assert_invalid(late, "was not valid at the time of its signature")

    def test_renewed_certificate(self) -> None:
        """A recorder gets another certificate while it records."""
        writer = RecordingWriter(info(), signer())
        text = writer.begin() + writer.output(NOW, 0, b"one") + writer.sign_head(NOW)
        text += writer.renew(signer("metal-b")) + writer.output(NOW, 3, b"two") + writer.close(NOW)
        self.assertEqual(verified(text).signers, ["metal-a", "metal-b"])

    def test_two_recorders_at_once(self) -> None:
        """Parts of recordings that begin alike cannot be exchanged."""
        other = record([(NOW, b"U-Boot 2026.02\r\n"), *ENTRIES[1:]], sign_each=True)
        mine, theirs = list(_blocks(self.recording)), list(_blocks(other))
        for number in range(2, len(mine)):
            self.assert_not_proven(b"".join([*mine[:number], *theirs[number:]]), number)

    def test_hostile_lines(self) -> None:
        """Lines of any content and length are refused, never an error of ours."""
        choose = random.Random(20)
        lines = self.recording.splitlines(keepends=True)
        strange = [
            b"# head {}\n",
            b"# head " + b"[" * 5000 + b"\n",
            b"# head " + b"9" * 70_000 + b"\n",
            b"# certificate !\n",
            b"# certificate AAAA\n",
            b"# omitted -1 00\n",
            b"# omitted 1 " + b"00" * 32 + b"\n",
            b"# recording []\n",
            b'# recording {"format":1}\n',
            info().encode().replace(b'"first":0', b'"first":"0"'),
            Info("r1", [], "", 0, 0).encode(),  # type: ignore[arg-type]
            HeadContent("r1", 0, "", 0, "now", True).encode(b"x"),  # type: ignore[arg-type]
            HeadContent("r1", 0, "", 0, 1 << 90, True).encode(b"x"),
            b"# block \n",
            b"\xff" * 200_000,
        ]
        for _ in range(400):
            changed = list(lines)
            changed[choose.randrange(len(lines))] = choose.choice(strange)
            self.assert_not_proven(b"".join(changed), changed)

    def test_constant_memory(self) -> None:
        """A recording of any length needs a few megabytes."""
        piece = record([(NOW, b"x" * 60_000 + b"\r\n")] * 400)
        tracemalloc.start()
        try:
            self.assertTrue(verify(_Stream(piece), trust()).is_closed)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        self.assertLess(most, 6 << 20)

    def test_one_form_of_heads(self) -> None:
        """A head in another form of JSON is refused, even if its meaning is the same."""
        line = self.recording.splitlines(keepends=True)[-1]
        text, signature = line[len(HEAD) :].rsplit(b" ", 1)
        other = HEAD + json.dumps(json.loads(text)).encode() + b" " + signature
        self.assert_invalid(self.recording.replace(line, other), "a signed head is damaged")


class _Stream(io.BytesIO):
    """A file that can be read only forward."""

    def seek(self, *args: int) -> int:
        raise OSError("not seekable")


def _blocks(recording: bytes) -> Iterator[bytes]:
    """Split a recording behind the last lines of its blocks; the last part is the signed end."""
    part = b""
    for line in recording.splitlines(keepends=True):
        part += line
        if line.startswith(b"# block"):
            yield part
            part = b""
    yield part


def _signed_at(time: int) -> bytes:
    writer = RecordingWriter(info(), signer(days=1))
    return writer.begin() + writer.output(NOW, 0, b"x") + writer.close(time)
