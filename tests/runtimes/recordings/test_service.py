"""
Tests for :mod:`twisted_exec.runtimes.recordings.service`.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import capturedLogs, formatEvent

from tests.recording.support import signer
from tests.recording.test_writer import played
from twisted_exec.api.status import APIError, BadRequest, Conflict, NotFound, ServiceUnavailable
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.recording.proof_lines import InvalidRecording
from twisted_exec.runtimes.recordings.service import READ_WAIT_SECONDS, STOP_SECONDS

from .support import KEY, OTHER, UID, Case, at_once, head_of


class LifeTests(Case):
    """Begin, heads and end of a recording."""

    def test_whole_life(self) -> None:
        """A recording has what is printed from its beginning to its end, and is closed then."""
        self.journal.append(b"before ")
        self.set()
        self.assertEqual((self.status().state, self.status().first), ("Recording", 7))
        self.journal.append(b"during ")
        self.end()
        self.journal.append(b"after")
        status = self.status()
        self.assertEqual((status.state, status.first, status.end), ("Closed", 7, 14))
        self.assertEqual(self.output(), b"during ")
        report = self.report()
        self.assertTrue(report.is_closed)
        self.assertEqual(report.info.id, UID)
        self.assertEqual(report.info.machine["name"], "vm-1")
        self.assertIn(b'"cols":132', self.text())

    def test_head_each_minute(self) -> None:
        """The newest head is signed once a minute while there is output, and only then."""
        self.set()
        heads = [self.status().head]
        for printed in (b"one", b"", b"two"):
            if printed:
                self.journal.append(printed)
            self.wait(60)
            heads.append(self.status().head)
        self.assertEqual(heads[1], heads[2])
        self.assertEqual(len({*heads}), 3)
        self.assertEqual(self.report().head.offset, 6)
        self.assertFalse(self.report().is_closed)

    def test_much_output(self) -> None:
        """Recordings with little new output are signed before one with much, which takes long."""
        other = UID.replace("1", "2")
        self.add(OTHER)
        self.set()
        self.set(uid=other, machine_uid=OTHER)
        self.journal.append(b"x" * 1_000_000)
        self.store.journal(OTHER).append(b"y")
        self.wait(60)
        self.assertEqual((self.status().end, self.status(other).end), (1_000_000, 1))
        self.assertGreater(self.status().number, self.status(other).number)

    def test_events(self) -> None:
        """Who joined is in the recording, from its beginning on."""
        self.journal.joined("s1", "eve", "writer")
        self.set()
        self.journal.joined("s2", "ada", "writer")
        self.end()
        text = self.text()
        self.assertIn(b"ada joined", text)
        self.assertNotIn(b'"eve"', text)

    def test_ended_before_stop(self) -> None:
        """A recording that was to end while it could not be signed ends at the next start."""
        self.set()
        self.problem = "the certificate of recordings has expired"
        self.end()
        self.assertEqual(self.status().state, "Recording")
        self.kill()
        self.problem = ""
        self.start()
        self.assertEqual(self.status().state, "Closed")

    def test_deleted_machine(self) -> None:
        """The recording of a machine that is deleted is closed, and can be read."""
        self.set()
        self.journal.append(b"last words")
        self.store.deleted(KEY)
        self.recordings.remove(KEY)
        self.wait(1)
        self.assertEqual(self.status().state, "Closed")
        self.assertEqual(self.output(), b"last words")

    def test_machine_that_comes_later(self) -> None:
        """A recording of a machine that the runtime does not have yet begins with it."""
        self.set(machine_uid=OTHER)
        self.assertEqual(self.list().recordings[:], [])
        self.add(OTHER)
        self.assertEqual(self.status().state, "Recording")

    def test_ended_before_it_began(self) -> None:
        """A recording that ends before it could begin has failed."""
        self.set(machine_uid=OTHER)
        self.set(machine_uid=OTHER, ended=True)
        self.assertEqual(self.status().state, "Failed")
        self.add(OTHER)
        self.assertRaises(NotFound, self.recordings.facts, UID)

    def test_released(self) -> None:
        """A recording whose object is deleted is forgotten."""
        self.set()
        self.set(released=True)
        self.assertRaises(NotFound, self.recordings.facts, UID)
        self.assertEqual(self.list().recordings[:], [])
        self.kill()
        self.start()
        self.assertRaises(NotFound, self.recordings.facts, UID)

    def test_clock_goes_back(self) -> None:
        """Times of heads never decrease, even if the clock does."""
        self.set()
        self.journal.append(b"one")
        self.wait(60)
        self.now = lambda: 1_700_000_000 * 10**9  # type: ignore[method-assign]
        self.journal.append(b"two")
        self.end()
        self.assertTrue(self.report().is_closed)


class NewerFactsTests(Case):
    """The facts about a recording that a newer release has written."""

    def test_read(self) -> None:
        """The recording goes on, and its content is valid."""
        self.set()
        self.journal.append(b"one")
        self.wait(60)
        path = Path(self.path, "recordings", f"{UID}.facts")
        path.write_text(json.dumps(json.loads(path.read_text()) | {"newer": 1}))
        self.kill()
        self.start()
        self.assertEqual((self.status().state, self.status().message), ("Recording", ""))
        self.journal.append(b"two")
        self.end()
        self.assertEqual(self.output(), b"onetwo")
        self.assertTrue(self.report().is_closed)


class ChangedFilesTests(Case):
    """A person with control of the host changes the files of recordings."""

    second = UID.replace("1", "2")

    def setUp(self) -> None:
        super().setUp()
        for uid in (UID, self.second):
            self.set(uid=uid)
        self.journal.append(b"one")
        self.wait(60)

    def file(self, uid: str, kind: str = "heads") -> Path:
        return Path(self.path, "recordings", f"{uid}.{kind}")

    def restarted(self) -> str:
        """Start the runtime anew; return why the first recording has failed."""
        self.kill()
        self.start()
        for uid in (UID, self.second):
            self.set(uid=uid)
        status = self.status()
        self.assertEqual((status.state, status.head), ("Failed", ""))
        with self.assertRaises(Conflict) as caught:
            self.recordings.require(UID, "none", KEY)
        self.assertEqual(caught.exception.message, status.message)
        return str(status.message)

    def test_damaged(self) -> None:
        """A recording whose files cannot be read at a start has failed, and does not begin anew."""
        unreadable = "the files of the recording cannot be read on the runtime's host: "
        heads, facts = self.file(UID), self.file(UID, "facts")
        whole = heads.read_bytes(), facts.read_bytes()
        for path, content, why in (
            (heads, b"", "it has no signed head"),
            (
                heads,
                self.file(self.second).read_bytes(),
                "its heads are those of another recording",
            ),
            (facts, b"{}", ""),
            (facts, b"", ""),
        ):
            path.write_bytes(content)
            self.assertTrue(self.restarted().startswith(unreadable + why))
            heads.write_bytes(whole[0])
            facts.write_bytes(whole[1])
        heads.unlink()
        self.assertEqual(self.restarted(), f"{unreadable}No such file or directory")
        heads.mkdir()
        foreign = "it is not a file of this program's user"
        self.assertEqual(self.restarted(), f"{unreadable}{foreign}")
        heads.rmdir()
        self.set(released=True)
        self.assertFalse(facts.exists())

    def test_while_it_runs(self) -> None:
        """Heads that are emptied or exchanged while the runtime runs let the recording fail with the next head."""
        self.file(UID).write_bytes(b"")
        self.assertRaises(InvalidRecording, self.recordings.content, UID)
        heads = self.file(self.second)
        heads.write_bytes(b"x" * heads.stat().st_size)
        self.journal.append(b"two")
        self.wait(60)
        for uid in (UID, self.second):
            status = self.status(uid)
            self.assertEqual(status.state, "Failed")
            self.assertEqual(status.message, "its signed heads were changed on the disk")
            self.assertEqual(status.reason, "Failed")


class KillTests(Case):
    """Kills and restarts."""

    def test_killed_while_open(self) -> None:
        """After a kill the recording goes on: nothing twice, nothing lost, no head is taken back."""
        self.set()
        self.journal.append(b"one ")
        self.wait(60)
        before, head = self.text(), self.status().head
        self.journal.append(b"two ")
        self.kill()
        self.start()
        self.journal.append(b"three")
        self.set()
        self.end()
        self.assertEqual(self.output(), b"one two three")
        self.assertTrue(self.text().startswith(before))
        self.assertIn(head.encode(), self.text())

    def test_stop_while_the_disk_hangs(self) -> None:
        """A stop waits no longer for a disk that does not answer; the log names ten unsigned recordings."""
        self.add(OTHER)
        self.set(uid="signed", machine_uid=OTHER)
        self.wait(60)
        for number in range(12):
            self.set(uid=f"{number:02}")
        self.journal.append(b"one")
        self.in_thread = lambda function: Deferred()
        stopping = Deferred.fromCoroutine(self.recordings.stop())
        self.assertNoResult(stopping)
        with capturedLogs() as logs:
            self.wait(STOP_SECONDS)
        self.successResultOf(stopping)
        names = ", ".join(f"{number:02}" for number in range(10))
        self.assertIn(f"the rest of the recordings {names} and 2 more:", formatEvent(logs[-1]))

    def test_stop_with_nothing_unsigned(self) -> None:
        """A stop that gives up without unsigned recordings logs nothing."""
        self.set()
        self.wait(60)
        self.in_thread = lambda function: Deferred()
        self.end()
        stopping = Deferred.fromCoroutine(self.recordings.stop())
        self.assertNoResult(stopping)
        with capturedLogs() as logs:
            self.wait(STOP_SECONDS)
        self.successResultOf(stopping)
        self.assertEqual([formatEvent(each) for each in logs], [])

    def test_disk_answers_after_the_stop(self) -> None:
        """What a stop gave up changes nothing of the recordings, which the next process may own."""
        other = UID.replace("6f", "7f")
        self.set()
        self.set(uid=other)
        self.journal.append(b"one ")
        waiting: list[tuple[Any, Deferred[Any]]] = []

        def hang(function: Any) -> Deferred[Any]:
            waiting.append((function, Deferred()))
            return waiting[-1][1]

        self.in_thread = hang
        stopping = Deferred.fromCoroutine(self.recordings.stop())
        self.wait(STOP_SECONDS)
        self.successResultOf(stopping)
        self.in_thread = at_once
        self.kill()
        self.start()
        self.set()
        self.set(uid=other)
        self.journal.append(b"two")
        self.wait(60)
        before = self.text()
        for function, answer in waiting:  # grows if more is signed
            maybeDeferred(function).chainDeferred(answer)
            self.clock.pump([1] * 3)
        self.assertEqual((len(waiting), self.text()), (1, before))
        self.kill()
        self.start()
        for uid in (UID, other):
            self.end(uid)
            self.assertEqual((self.status(uid).state, self.output(uid)), ("Closed", b"one two"))

    def test_stopped(self) -> None:
        """A stop signs what was printed until then."""
        self.set()
        self.journal.append(b"one")
        stopping = Deferred.fromCoroutine(self.recordings.stop())
        self.wait(1)
        self.successResultOf(stopping)
        self.kill()
        self.start()
        self.assertEqual(self.status().end, 3)

    def test_same_text_after_restart(self) -> None:
        """A closed recording has the same text after a restart."""
        self.set()
        self.journal.append(b"x" * 300_000)
        self.wait(60)
        self.journal.append(b"y")
        self.end()
        before = self.text()
        self.kill()
        self.start()
        self.assertEqual(self.text(), before)
        self.assertTrue(self.report().is_closed)

    def test_new_certificate(self) -> None:
        """A new certificate is in the recording before the heads that it signs."""

        self.set()
        self.journal.append(b"one")
        self.wait(60)
        self.signer = signer("metal-b")
        self.journal.append(b"two")
        self.wait(60)
        self.kill()
        self.start()
        self.set()
        self.end()
        self.assertEqual(self.report().signers, ["metal-a", "metal-b"])


class RequiredTests(Case):
    """Recordings that sessions require."""

    def require(self, input: str = "none", key: str = KEY) -> None:
        self.recordings.require(UID, input, key)

    def missing(self, input: str = "none") -> str:
        return self.recordings.problem(UID, input, KEY)

    def test_begins_at_once(self) -> None:
        """A session begins the recording, and the poollet learns of it and takes it over."""
        self.require()
        self.assertEqual(self.missing(), "")
        self.assertEqual(self.status().state, "Recording")
        self.require()
        self.set()
        self.end()
        self.assertEqual(self.status().state, "Closed")

    def refused(self, expected: type[APIError], says: str, **fields: str) -> None:
        error = self.assertRaises(expected, self.require, **fields)
        self.assertIn(says, error.message)

    def test_no_certificate(self) -> None:
        """A runtime without a recorder's certificate refuses the session."""
        self.problem = "the runtime has no certificate for recordings"
        self.refused(ServiceUnavailable, "no certificate for recordings")

    def test_ended(self) -> None:
        """A recording that has ended takes no session."""
        self.set()
        self.end()
        self.refused(Conflict, "has ended")

    def test_more_input(self) -> None:
        """A recording with less input than a session requires does not do."""
        self.set(input="masked")
        self.refused(ServiceUnavailable, "masked input", input="all")
        self.require("masked")

    def test_another_console(self) -> None:
        """A recording of another machine does not do."""
        self.set()
        self.add(OTHER)
        self.refused(ServiceUnavailable, "another console", key=OTHER)

    def test_unknown_machine(self) -> None:
        """A machine that the runtime does not have cannot be recorded."""
        self.refused(ServiceUnavailable, "try again", key=OTHER)


class ReadTests(Case):
    """Readers of recordings that go on."""

    def test_many_reads(self) -> None:
        """Readers get what was printed until now, and no reader causes more than a head in a second."""
        self.set()
        before = self.recordings.heads
        reads = []
        for _ in range(10):
            self.journal.append(b"x")
            reads.append(Deferred.fromCoroutine(self.recordings.read(UID)))
            self.clock.advance(0.05)
        self.wait(2)
        for each in reads:
            self.assertEqual(played(b"".join(self.successResultOf(each))), b"x" * 10)
        self.assertLessEqual(self.recordings.heads - before, 2)

    def reading(self, uid: str = UID) -> Deferred[bytes]:
        """Read a recording, two seconds after its newest head."""
        self.wait(2)
        return Deferred.fromCoroutine(self.recordings.read(uid)).addCallback(b"".join)

    def signs_long(self, uid: str) -> Deferred[None]:
        """Begin to sign a recording with much new output, which goes on until the Deferred fires."""
        over: Deferred[None] = Deferred()
        self.in_thread = lambda function: over.addCallback(lambda _: function())
        self.set(uid=uid, machine_uid=OTHER)
        self.store.journal(OTHER).append(b"much")
        self.wait(60)
        self.in_thread = at_once
        return over

    def test_long_signature(self) -> None:
        """While a head takes long, a reader waits two seconds, and gets what is signed."""
        other = UID.replace("1", "2")
        self.add(OTHER)
        over = self.signs_long(other)
        reading = self.reading(other)
        self.assertNoResult(reading)
        self.wait(READ_WAIT_SECONDS)
        self.assertEqual(played(self.successResultOf(reading)), b"")
        over.callback(None)
        self.assertEqual(played(self.successResultOf(self.reading(other))), b"much")

    def test_long_signature_of_another(self) -> None:
        """A closed recording waits for no head, and another one is whole when it is signed."""
        other, closed = UID.replace("1", "2"), UID.replace("1", "3")
        self.add(OTHER)
        self.set(uid=closed)
        self.journal.append(b"one ")
        self.end(closed)
        self.set()
        over = self.signs_long(other)
        self.journal.append(b"two")
        self.assertEqual(played(self.successResultOf(self.reading(closed))), b"one ")
        self.assertTrue(self.report(closed).is_closed)
        reading = self.reading()
        self.assertNoResult(reading)
        over.callback(None)
        self.wait(1)
        self.assertEqual(played(self.successResultOf(reading)), b"two")

    def test_stopped(self) -> None:
        """A stop of the runtime keeps no reader waiting."""
        self.add(OTHER)
        self.signs_long(UID)
        reading = self.reading()
        stopping = Deferred.fromCoroutine(self.recordings.stop())
        self.wait(STOP_SECONDS)
        self.successResultOf(stopping)
        self.successResultOf(reading)


class TroubleTests(Case):
    """Problems of open recordings."""

    def test_expired_certificate(self) -> None:
        """Without a usable certificate nothing is signed; the recording goes on with a new one."""
        self.set()
        self.journal.append(b"one")
        self.problem = "the certificate has expired"
        self.wait(60)
        self.assertEqual((self.status().state, self.status().message), ("Recording", self.problem))
        self.assertEqual(self.status().reason, "Interrupted")
        self.assertIn("has expired", self.recordings.problem(UID, "none", KEY))
        self.problem = ""
        self.wait(60)
        self.assertEqual(self.status().message, "")
        self.assertEqual(self.status().end, 3)

    def test_disk_full(self) -> None:
        """A head that cannot be written is none; a later one has everything."""

        class Full:
            is_full = False

            def __getattr__(self, name: str) -> object:
                if name == "pwrite" and self.is_full:
                    return lambda descriptor, data, position: (
                        os.pwrite(descriptor, data[:7], position) and 0
                    )
                return getattr(os, name)

        self.kill()
        self.layer = full = Full()
        self.start()
        self.set()
        self.journal.append(b"one")
        full.is_full = True
        self.wait(60)
        self.assertEqual(self.status().message, "not on disk: No space left on device")
        full.is_full = False
        self.wait(60)
        self.end()
        self.assertEqual(self.output(), b"one")
        self.assertTrue(self.report().is_closed)

    def test_not_begun(self) -> None:
        """A recording that cannot begin says why, and begins when it can."""
        self.problem = "no certificate"
        self.set()
        self.assertEqual(self.status().state, "")
        self.assertIn("no certificate", self.status().message)
        self.problem = ""
        self.wait(60)
        self.assertEqual(self.status().state, "Recording")

    def test_replaced_journal(self) -> None:
        """A recording whose journal was replaced has failed."""
        self.set()
        self.journal.append(b"one")
        self.kill()
        shutil.rmtree(os.path.join(self.path, "consoles", KEY))
        self.start()
        self.journal.append(b"two")
        self.set()
        self.wait(60)
        self.assertEqual(self.status().state, "Failed")

    def test_many(self) -> None:
        """Thousands of recordings begin one after the other, and hold nobody up."""

        clock = self.clock

        class Slow:
            """Each forcing to the disk takes a while."""

            def __getattr__(self, name: str) -> object:
                return getattr(os, name)

            def fsync(self, descriptor: int) -> None:
                clock.rightNow += 0.001

        self.kill()
        self.layer = Slow()
        self.start()
        desired = [
            pb.DesiredRecording(uid=f"r-{number}", machine_uid=KEY, input="none")
            for number in range(100)
        ]
        before = self.clock.seconds()
        request = pb.SetRecordingsRequest(owner="pool", recordings=desired)
        self.successResultOf(self.recordings.set_recordings(request))
        self.assertLess(self.clock.seconds() - before, 0.01)
        self.clock.pump([0.01] * 100)
        self.assertEqual(self.recordings.count("Recording"), 100)

    def test_many_machines(self) -> None:
        """The beginning of a recording concerns its own machine only."""
        concerned: list[str] = []
        self.recordings.on_change(concerned.append)
        self.add(OTHER)
        self.set()
        self.set(uid=UID.replace("1", "2"), machine_uid=OTHER)
        self.assertEqual(concerned, [KEY, OTHER])

    def test_released_before_it_began(self) -> None:
        """Nothing remains of a recording that was deleted before it began."""
        self.problem = "no certificate"
        self.set()
        self.assertIn("no certificate", self.status().message)
        self.set(released=True)
        self.assertEqual(self.list().recordings[:], [])
        self.problem = ""
        self.wait(60)
        self.assertEqual(self.list().recordings[:], [])

    def test_cannot_be_changed(self) -> None:
        """A change that cannot be stored is stored later."""

        class Full:
            is_full = False

            def __getattr__(self, name: str) -> object:
                return getattr(os, name)

            def rename(self, old: str, new: str) -> None:
                if self.is_full:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.rename(old, new)

        self.kill()
        self.layer = full = Full()
        self.start()
        self.set()
        full.is_full = True
        self.set(ended=True)
        self.wait(60)
        self.assertEqual(self.status().state, "Recording")
        full.is_full = False
        self.wait(61)
        self.assertEqual(self.status().state, "Closed")

    def test_bad_requests(self) -> None:
        """A recording needs a UID and a kind of input."""
        for uid, input in (("", "none"), (UID, "some")):
            desired = pb.DesiredRecording(uid=uid, input=input)
            request = pb.SetRecordingsRequest(owner="pool", recordings=[desired])
            self.assertRaises(BadRequest, self.recordings.set_recordings, request)


class StatusTests(Case):
    """What owners read."""

    def test_acknowledged(self) -> None:
        """A status is listed until it is acknowledged, and again when it changes."""
        self.set()
        first = self.list()
        number = first.recordings[0].number
        self.assertEqual(self.list(number, first.instance).recordings[:], [])
        self.assertEqual(len(self.list(number, "another").recordings), 1)
        self.journal.append(b"x")
        self.wait(60)
        again = self.list(number, first.instance).recordings
        self.assertEqual(head_of(again[0]).offset, 1)

    def test_waits(self) -> None:
        """A call waits for the first change."""
        request = pb.ListRecordingsRequest(owner="pool", wait_seconds=20)
        waiting = self.recordings.list_recordings(request)
        self.assertNoResult(waiting)
        self.set()
        self.assertEqual(len(self.successResultOf(waiting).recordings), 1)

    def test_other_owner(self) -> None:
        """Recordings of one poollet are not listed for another; those of sessions are."""
        self.set()
        self.recordings.require(UID.replace("1", "2"), "none", KEY)
        request = pb.ListRecordingsRequest(owner="another")
        listed = self.successResultOf(self.recordings.list_recordings(request)).recordings
        self.assertEqual([each.uid for each in listed], [UID.replace("1", "2")])
