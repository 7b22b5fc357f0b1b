"""
Recordings of sessions in Pods: :mod:`twisted_exec.nodeserver.recordings.service`.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.recording.support import signer
from twisted_exec.api.selectors import parse_labels
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.nodeserver.recordings.file import WAITING_BYTES, RecordingFile
from twisted_exec.nodeserver.recordings.recording import PodRecording
from twisted_exec.nodeserver.recordings.service import HEAD_SECONDS, STOP_SECONDS
from twisted_exec.recording.signatures import UnusableCertificate
from twisted_exec.recording.stores.interfaces import StoreError
from twisted_exec.recording.verification import Report
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.wire.channel import Channel

from .support import SUBJECT, Recordings, Stored, pod

DISK_FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class RecordingCase(SynchronousTestCase):
    """A directory for recordings."""

    def setUp(self) -> None:
        self.directory = os.path.abspath(self.mktemp())

    def begin(self, recordings: Recordings, *, has_terminal: bool = True) -> PodRecording:
        """A session whose recording has begun."""
        recorder = self.recorder(recordings, has_terminal)
        recorder.begin()
        return recorder

    def recorder(self, recordings: Recordings, has_terminal: bool = True) -> PodRecording:
        """The recorder of a session."""
        recorder = recordings.made.recorder(
            SUBJECT, pod(), "main", ["sh", "-c", "a b"], has_terminal
        )
        assert recorder is not None
        return recorder

    def fill_disk(self) -> None:
        """From now on the disk is full."""

        def write(file: RecordingFile, text: bytes) -> None:
            raise DISK_FULL

        self.patch(RecordingFile, "write", write)


class RecordingTests(RecordingCase):
    """Sessions that are recorded."""

    def test_session(self) -> None:
        """Output, sizes and facts are in a closed recording in the store; here is nothing left."""
        recordings = Recordings(self.directory)
        recorder = self.begin(recordings)
        recorder.input(Channel.RESIZE, b'{"Width":120,"Height":30}')
        recordings.clock.advance(1)
        recorder.output(Channel.STDOUT, b"out ")
        recorder.output(Channel.STDERR, "err ü".encode())
        self.assertEqual(recordings.files(), [".open"])
        recorder.end("backend closed")
        stored = recordings.stored()
        self.assertTrue(stored.report.is_closed)
        self.assertEqual(stored.report.signers, ["metal-a"])
        self.assertEqual((stored.output, stored.sizes), ("out err ü", ["120x30"]))
        self.assertEqual(recordings.files(), [])
        machine = stored.report.info.machine
        self.assertEqual(machine["namespace"], "default")
        self.assertEqual((machine["name"], machine["container"]), ("web", "main"))
        self.assertEqual(machine["command"], "sh -c 'a b'")
        (name,) = recordings.store.content
        self.assertRegex(name, r"^default\.web\.[0-9a-f]{16}$")

    def test_user(self) -> None:
        """The user is stated as unknown, with the client of the node server beside it."""
        recordings = Recordings(self.directory)
        self.begin(recordings).end("client closed")
        stored = recordings.stored()
        self.assertEqual(stored.report.info.machine["user"], "unknown")
        self.assertIn('"user":"unknown","via":"kube-apiserver-kubelet-client"', stored.text)
        self.assertIn("unknown joined as writer", stored.text)

    def test_input(self) -> None:
        """No input, only what the terminal has echoed, or all of it."""
        for input, expected in (("none", ""), ("masked", "ls\r"), ("all", "ls\rsecret\r")):
            recordings = Recordings(self.directory, input=input)
            recorder = self.begin(recordings)
            recorder.input(Channel.STDIN, b"ls\r")
            recorder.output(Channel.STDOUT, b"ls\r\n")
            recorder.output(Channel.STDOUT, b"Password: ")
            recorder.input(Channel.STDIN, b"secret\r")
            recorder.output(Channel.STDOUT, b"\r\nwrong")
            recorder.end("client closed")
            stored = recordings.stored()
            self.assertEqual(stored.input, expected, input)
            self.assertEqual("secret" in stored.text, input == "all")

    def test_no_terminal(self) -> None:
        """Without a terminal nothing is echoed: masked input is none."""
        recordings = Recordings(self.directory, input="masked")
        recorder = self.begin(recordings, has_terminal=False)
        recorder.input(Channel.STDIN, b"secret")
        recorder.output(Channel.STDOUT, b"secret")
        recorder.end("client closed")
        self.assertEqual(recordings.stored().input, "")

    def test_signed_each_minute(self) -> None:
        """A recording that goes on is proven up to the last minute, if there was anything new."""
        recordings = Recordings(self.directory)
        recorder = self.begin(recordings)
        recorder.output(Channel.STDOUT, b"one")
        recordings.clock.advance(HEAD_SECONDS)
        recorder.output(Channel.STDOUT, b"two")
        report = self.report()
        self.assertEqual((report.head.offset, report.is_closed), (3, False))
        recordings.clock.advance(HEAD_SECONDS)
        self.assertEqual(self.report().head.offset, 6)
        size = len(self.open_text())
        recordings.clock.advance(HEAD_SECONDS)
        self.assertEqual(len(self.open_text()), size)

    def report(self) -> Report:
        """The open recording, verified."""
        return Stored(self.open_text()).report

    def open_text(self) -> bytes:
        """The text of the open recording."""
        (name,) = os.listdir(self.directory)
        with open(os.path.join(self.directory, name), "rb") as file:
            return file.read()

    def test_renewed_certificate(self) -> None:
        """A certificate that is renewed signs from then on."""
        signers = [signer("old"), signer("new")]
        recordings = Recordings(self.directory, signer=lambda: signers[0])
        recorder = self.begin(recordings)
        recorder.output(Channel.STDOUT, b"one")
        del signers[0]
        recorder.end("client closed")
        self.assertEqual(recordings.stored().report.signers, ["old", "new"])

    def test_clock_goes_back(self) -> None:
        """A recording is valid although the host's clock was set back."""
        recordings = Recordings(self.directory)
        recorder = self.begin(recordings)
        recordings.clock.rightNow = -5000
        recorder.output(Channel.STDOUT, b"one")
        recorder.end("client closed")
        self.assertTrue(recordings.stored().report.is_closed)

    def test_selected(self) -> None:
        """Only Pods of the namespaces and with the labels are recorded."""
        recordings = Recordings(
            self.directory, namespaces={"default"}, selector=parse_labels("tier=web")
        )
        selects = recordings.made.selects
        self.assertTrue(selects(pod(tier="web")))
        self.assertFalse(selects(pod()))
        self.assertFalse(selects(pod(namespace="other", tier="web")))
        self.assertIsNone(recordings.made.recorder(SUBJECT, pod(), "main", [], False))


class TroubleTests(RecordingCase):
    """What fails."""

    def failing(self) -> Any:
        """A recorder without a certificate that can be used."""
        raise UnusableCertificate("it has expired")

    def test_required_certificate(self) -> None:
        """A session that must be recorded, and cannot be, is refused."""
        recordings = Recordings(self.directory, is_required=True)
        recordings.made.signer = self.failing
        error = self.assertRaises(ServiceUnavailable, self.begin, recordings)
        self.assertIn('pod "web" must be recorded, and cannot be: it has expired', str(error))
        self.assertEqual(recordings.files(), [])

    def test_certificate(self) -> None:
        """Otherwise it is opened, and the log says that it is not recorded."""
        recordings = Recordings(self.directory)
        recordings.made.signer = self.failing
        recorder = self.begin(recordings)
        self.assertIsNone(recorder.output(Channel.STDOUT, b"x"))
        self.assertIsNone(recorder.input(Channel.STDIN, b"x"))
        recorder.end("client closed")
        self.assertEqual((recordings.files(), recordings.store.content), ([], {}))

    def test_much_output(self) -> None:
        """A session with much output takes half of what is left, and others go on."""
        recordings = Recordings(self.directory, is_required=True, limit_bytes=200_000)
        noisy, quiet = self.begin(recordings), self.begin(recordings)
        while (ending := noisy.output(Channel.STDOUT, b"x" * 1000)) is None:
            pass
        self.assertIn("must be recorded", ending.message)
        (content,) = recordings.store.content.values()
        self.assertIn(len(content), range(90_000, 110_000))
        self.assertIsNone(quiet.output(Channel.STDOUT, b"quiet"))
        for each in (noisy, quiet, self.begin(recordings)):
            each.end("client closed")
        reports = [Stored(each).report for each in recordings.store.content.values()]
        self.assertEqual(sorted(each.is_closed for each in reports), [False, True, True])
        self.assertEqual(recordings.made.bytes, 0)

    def test_away_for_long(self) -> None:
        """Recordings that the store does not take count; with too many of them a session is refused."""
        recordings = Recordings(self.directory, is_required=True, limit_bytes=100_000)
        recordings.store.problem = StoreError("unreachable", "away")
        with self.assertRaisesRegex(ServiceUnavailable, r"100000 .*--recording-bytes"):
            while True:
                recorder = self.begin(recordings)
                recorder.output(Channel.STDOUT, b"x" * 1000)
                recorder.end("client closed")
        before = recordings.made.bytes
        again = Recordings(self.directory, is_required=True, limit_bytes=100_000)
        self.assertEqual(before, recordings.made.bytes)
        self.assertEqual(again.made.bytes, 0)
        self.begin(again).end("client closed")

    def test_full_disk_at_the_begin(self) -> None:
        """A full disk refuses a session, too; no file is left."""
        recordings = Recordings(self.directory, is_required=True)
        self.fill_disk()
        error = self.assertRaises(ServiceUnavailable, self.begin, recordings)
        self.assertIn("No space left on device", str(error))
        self.assertEqual(recordings.files(), [])

    def test_required_full_disk(self) -> None:
        """
        When the disk becomes full, a session that must be recorded ends before anything passes
        unrecorded; its recording is stored up to there.
        """
        recordings = Recordings(self.directory, is_required=True)
        recorder = self.begin(recordings)
        self.assertIsNone(recorder.output(Channel.STDOUT, b"one"))
        recordings.clock.advance(HEAD_SECONDS)
        self.fill_disk()
        ending = recorder.output(Channel.STDOUT, b"two")
        assert ending is not None
        self.assertIn("must be recorded", ending.message)
        self.assertIsNotNone(recorder.input(Channel.STDIN, b"x"))
        recorder.end("ended")
        stored = recordings.stored()
        self.assertEqual((stored.output, stored.report.is_closed), ("one", False))

    def test_required_deleted_file(self) -> None:
        """A session that must be recorded ends at the next key when its recording was deleted."""
        recordings = Recordings(self.directory, is_required=True)
        recorder = self.begin(recordings)
        self.assertIsNone(recorder.output(Channel.STDOUT, b"one"))
        shutil.rmtree(self.directory)
        ending = recorder.output(Channel.STDOUT, b"two")
        assert ending is not None
        self.assertIn("must be recorded", ending.message)

    def test_full_disk(self) -> None:
        """A session that need not be recorded goes on without."""
        recordings = Recordings(self.directory)
        recorder = self.begin(recordings)
        recorder.output(Channel.STDOUT, b"one")
        recordings.clock.advance(HEAD_SECONDS)
        self.fill_disk()
        self.assertIsNone(recorder.output(Channel.STDOUT, b"two"))
        recorder.end("client closed")
        self.assertFalse(recordings.stored().report.is_closed)

    def test_frozen_disk(self) -> None:
        """What a session prints waits for a disk that does not answer, and is recorded in order."""
        recordings = Recordings(self.directory)
        recorder = self.begin(recordings)
        recordings.disk.is_frozen = True
        for text in (b"one", b"two", b"three"):
            self.assertIsNone(recorder.output(Channel.STDOUT, text))
        recordings.disk.thaw()
        recorder.output(Channel.STDOUT, b"four")
        recorder.end("client closed")
        stored = recordings.stored()
        self.assertEqual((stored.output, stored.report.is_closed), ("onetwothreefour", True))

    def test_disk_frozen_for_long(self) -> None:
        """Only so much waits; then the recording ends, and the session goes on."""
        recordings = Recordings(self.directory)
        recorder = self.begin(recordings)
        recordings.disk.is_frozen = True
        for _ in range(3):
            self.assertIsNone(recorder.output(Channel.STDOUT, b"x" * (WAITING_BYTES // 2)))
        recorder.end("client closed")
        recordings.disk.thaw()
        self.assertFalse(recordings.stored().report.is_closed)
        self.assertEqual(recordings.files(), [])

    def test_frozen_then_full(self) -> None:
        """Text that waited, and does not fit on the disk, ends the recording where the gap begins."""
        recordings = Recordings(self.directory)
        recorder = self.begin(recordings)
        recorder.output(Channel.STDOUT, b"one")
        recordings.clock.advance(HEAD_SECONDS)
        self.patch(os, "write", self.full)
        recordings.disk.is_frozen = True
        recorder.output(Channel.STDOUT, b"two")
        recorder.output(Channel.STDOUT, b"three")
        recordings.disk.thaw()
        self.assertIsNone(recorder.output(Channel.STDOUT, b"four"))
        recorder.end("client closed")
        stored = recordings.stored()
        self.assertEqual((stored.output, stored.report.is_closed), ("one", False))

    def test_lost_at_the_end(self) -> None:
        """The log says so if text that waited at the end of a session cannot be written, once."""
        recordings = Recordings(self.directory)
        recorder = self.begin(recordings)
        self.patch(os, "write", self.full)
        recordings.disk.is_frozen = True
        recorder.output(Channel.STDOUT, b"one")
        recorder.end("client closed")
        with capturedLogs() as logs:
            recordings.disk.thaw()
        reasons = [event["why"] for event in logs if "session" in event]
        self.assertEqual(reasons, ["No space left on device"])

    @staticmethod
    def full(descriptor: int, text: bytes) -> int:
        """Instead of :func:`os.write`."""
        raise DISK_FULL

    def test_required_frozen_disk(self) -> None:
        """A session that must be recorded ends if the disk does not answer, and cannot begin."""
        recordings = Recordings(self.directory, is_required=True)
        recorder = self.begin(recordings)
        recordings.disk.is_frozen = True
        ending = recorder.output(Channel.STDOUT, b"one")
        assert ending is not None
        error = self.assertRaises(ServiceUnavailable, self.begin, recordings)
        self.assertIn("the disk does not answer", str(error))
        recordings.disk.thaw()
        self.assertEqual(recordings.files(), [])

    def test_disk_frozen_at_the_begin(self) -> None:
        """A file that a disk creates too late is deleted."""
        recordings = Recordings(self.directory, is_required=True)
        recordings.disk.is_frozen = True
        self.assertRaises(ServiceUnavailable, self.begin, recordings)
        recordings.disk.thaw()
        self.assertEqual((recordings.files(), recordings.made.bytes), ([], 0))

    def test_certificate_expires(self) -> None:
        """While it cannot be signed, a session is recorded further; a later signature covers it."""
        recordings = Recordings(self.directory, is_required=True)
        recorder = self.begin(recordings)
        good, recordings.made.signer = recordings.made.signer, self.failing
        self.assertIsNone(recorder.output(Channel.STDOUT, b"one"))
        recordings.clock.advance(HEAD_SECONDS)
        self.assertIsNone(recorder.output(Channel.STDOUT, b"two"))
        recordings.made.signer = good
        recorder.end("client closed")
        stored = recordings.stored()
        self.assertEqual((stored.output, stored.report.is_closed), ("onetwo", True))

    def test_killed(self) -> None:
        """The recording of a process that was killed is stored after the next start, as not closed."""
        recordings = Recordings(self.directory)
        recorder = self.begin(recordings)
        recorder.output(Channel.STDOUT, b"one")
        recordings.clock.advance(HEAD_SECONDS)
        recorder.output(Channel.STDOUT, b"two")
        after = Recordings(self.directory)
        report = after.stored().report
        self.assertEqual((report.head.offset, report.is_closed), (3, False))
        self.assertEqual(after.files(), [])

    def test_store_away(self) -> None:
        """A recording stays here until the store has it, also over a restart."""
        recordings = Recordings(self.directory)
        recordings.store.problem = StoreError("unreachable", "away")
        self.begin(recordings).end("client closed")
        self.assertEqual(recordings.files(), [".cast"])
        self.successResultOf(self.stop(recordings))
        after = Recordings(self.directory)
        self.assertTrue(after.stored().report.is_closed)
        self.assertEqual(after.files(), [])

    def test_stop_while_frozen(self) -> None:
        """A stop does not wait longer for a disk that does not answer; the log names ten recordings."""
        recordings = Recordings(self.directory)
        recorders = [self.begin(recordings) for _ in range(12)]
        recorders[0].output(Channel.STDOUT, b"one")
        recordings.disk.is_frozen = True
        recordings.clock.advance(HEAD_SECONDS)
        for recorder in recorders:
            recorder.end("client closed")
        stopping = self.stop(recordings)
        self.assertNoResult(stopping)
        with capturedLogs() as logs:
            recordings.clock.advance(STOP_SECONDS)
        self.successResultOf(stopping)
        self.assertIn("may be lost of default.web.", formatEvent(logs[0]))
        self.assertEqual(formatEvent(logs[0]).count("default.web."), 10)
        self.assertTrue(formatEvent(logs[0]).endswith(" and 2 more"))

    def stop(self, recordings: Recordings) -> Any:
        """Stop."""
        return Deferred.fromCoroutine(recordings.made.stop())

    def test_check(self) -> None:
        """A program without a certificate that can be used, or a private directory, does not start."""
        recordings = Recordings(self.directory)
        recordings.made.signer = self.failing
        error = self.assertRaises(TLSConfigError, recordings.made.check)
        self.assertTrue(re.match("--recorder-certificate: it has expired", str(error)))
