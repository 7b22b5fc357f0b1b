"""
Tests for :mod:`twisted_exec.runtimes.recordings.machine_recorder`: a console whose sessions must be recorded.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from typing import Any

from tests.console.doubles import MemoryConsole, MemoryStream
from tests.journal.support import FailingLayer
from tests.program.disks import FreezableThread
from twisted_exec.api.obstacles import Obstacle, obstacles_of
from twisted_exec.api.status import APIError, Conflict, ServiceUnavailable
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.runtimes.recordings.machine_recorder import MachineRecorder
from twisted_exec.testing.console import MarkStream
from twisted_exec.wire.marks import Attendance, OpenRecording
from twisted_exec.wire.session_terms import FULL, Terms

from .support import KEY, OTHER, UID, Case


class ConsoleCase(Case):
    """A console in front of the journal of the machine."""

    def start(self) -> None:
        super().start()
        self.recorder_of_machine = MachineRecorder(
            KEY, self.journal, lambda: self.recordings, self.clock.seconds
        )
        self.recordings.on_change(lambda _: self.recorder_of_machine.follow())
        self.recorder_of_machine.follow()
        self.console = MemoryConsole()
        self.shared = SharedConsole(
            self.console, self.clock, journal=self.journal, recorder=self.recorder_of_machine
        )
        self.recordings.on_change(lambda _: self.shared.recordings_changed())
        self.shared.open()

    def open(self, input: str = "none", uid: str = UID, **options: Any) -> MemoryStream:
        """Open a session that must be recorded."""
        return self.attach(Terms(recording=f"{uid}/{input}"), **options)

    def attach(self, terms: Terms = FULL, **options: Any) -> MemoryStream:
        viewer = self.shared.viewer()
        viewer.admit(terms)
        return MemoryStream(viewer, terms=terms, **options)

    def typed(self, uid: str = UID) -> bytes:
        """Return the input in the recording, as players read it."""
        lines = [line for line in self.text(uid).splitlines() if line.startswith(b"[")]
        events = [json.loads(line) for line in lines]
        return b"".join(data.encode() for _, code, data in events if code == "i")


class RequiredTests(ConsoleCase):
    """Sessions whose policy wants a recording."""

    def test_begins_with_the_session(self) -> None:
        """The recording has the session from its first byte, without a word of the poollet."""
        self.console.says(b"before")
        stream = self.open()
        stream.viewer.data_received(b"ls\r")
        self.console.says(b"ls\r\nfile")
        self.assertEqual(self.console.heard(), b"ls\r")
        self.end()
        self.assertEqual(self.output(), b"ls\r\nfile")
        self.assertIn(b"ann joined as", self.text())

    def test_told(self) -> None:
        """
        A user who reads marks learns of each recording that begins or ends, and whose it is; others get nothing new.
        """
        ordinary, viewer, marks = self.attach(), self.shared.viewer(), MarkStream(user="ann")
        viewer.attached(marks)

        def told() -> tuple[int, str, int, object]:
            self.clock.advance(0.5)
            mark = marks.sent[-1]
            assert isinstance(mark, Attendance)
            return mark.viewers, mark.writer, mark.seconds, mark.recordings

        self.assertEqual(told(), (2, "ann", 0, ()))
        self.open("masked").viewer.detached("client closed")
        self.assertEqual(told(), (2, "ann", 1, (OpenRecording("masked"),)))
        self.set(input="masked", user="ada")  # the poollet knows the user
        ada = OpenRecording("masked", "ada")
        self.assertEqual(told(), (2, "ann", 1, (ada,)))
        self.set(input="masked", user="ada", policies=["lab/rec4"])  # a session has joined it
        ada = OpenRecording("masked", "ada", ("lab/rec4",))
        self.assertEqual(told(), (2, "ann", 2, (ada,)))
        other = UID.replace("1", "2")
        self.set(uid=other, input="all", user="bob")
        self.assertEqual(told(), (2, "ann", 2, (ada, OpenRecording("all", "bob"))))
        count = len(marks.sent)
        self.set(uid=UID.replace("1", "3"), machine_uid=OTHER, input="all", user="eve")
        self.clock.advance(1)
        self.assertEqual(len(marks.sent), count)
        self.end()
        self.end(other)
        self.assertEqual(told()[3], ())
        self.assertEqual(ordinary.got, b"")

    def test_refused(self) -> None:
        """A session is refused if it cannot be recorded."""
        self.problem = "there is no certificate"
        error = self.assertRaises(ServiceUnavailable, self.open)
        self.assertIn("there is no certificate", error.message)
        self.assertEqual(obstacles_of(error), (Obstacle.CANNOT_BE_RECORDED,))
        self.problem = ""
        self.open()
        self.end()
        self.assertRaises(Conflict, self.open)

    def test_other_sessions(self) -> None:
        """Sessions that need no recording are opened, and type, whatever is wrong."""
        self.problem = "there is no certificate"
        self.attach().viewer.data_received(b"x")
        self.assertEqual(self.console.heard(), b"x")

    def test_fails_closed(self) -> None:
        """While the recording cannot be written the machine gets no input, and the user reads why."""
        stream = self.open()
        self.console.says(b"x")
        self.problem = "the certificate has expired"
        self.wait(60)
        stream.since()
        stream.viewer.data_received(b"rm")
        self.assertEqual(self.console.heard(), b"")
        self.assertIn(b"the certificate has expired", stream.since())
        self.console.says(b"still shown")
        self.assertIn(b"still shown", stream.since())
        self.problem = ""
        self.wait(60)
        stream.viewer.data_received(b"ls")
        self.assertEqual(self.console.heard(), b"ls")

    def test_ended_while_open(self) -> None:
        """A session whose recording is ended by somebody may only watch from then on."""
        stream = self.open()
        self.end()
        stream.viewer.data_received(b"x")
        self.assertEqual(self.console.heard(), b"")
        self.assertIn(b"has ended", stream.since())

    def test_new_terms(self) -> None:
        """A session that must be recorded from now on begins the recording."""
        stream = self.attach()
        stream.viewer.terms_changed(Terms(recording=f"{UID}/none"))
        self.assertEqual(self.status().state, "Recording")
        stream.viewer.data_received(b"x")
        self.assertEqual(self.console.heard(), b"x")

    def test_console_without_recorder(self) -> None:
        """A console that cannot be recorded refuses such sessions."""
        shared = SharedConsole(MemoryConsole(), self.clock)
        terms = Terms(recording=f"{UID}/none")
        self.assertRaises(APIError, shared.viewer().admit, terms)


class DiskTests(ConsoleCase):
    """Input reaches a machine whose session must be recorded only while the disk takes the recording."""

    def setUp(self) -> None:
        super().setUp()
        self.kill()
        self.layer = self.disk = FailingLayer()
        self.start()

    def heard(self, stream: MemoryStream, key: bytes) -> bytes:
        """Type a key, and return the input that the machine gets."""
        stream.since()
        stream.viewer.data_received(key)
        return self.console.heard()

    def moved(self, name: str) -> tuple[str, str]:
        """Move a directory of the runtime away; return its path and its new path."""
        path = os.path.join(self.path, name)
        os.rename(path, f"{path}.moved")
        return path, f"{path}.moved"

    def test_write_fails(self) -> None:
        """The key whose record the disk does not take does not reach the machine, and is in no recording."""
        stream = self.open("all")
        self.assertEqual(self.heard(stream, b"a"), b"a")
        self.disk.error = errno.ENOSPC
        self.assertEqual(self.heard(stream, b"b"), b"")
        self.assertIn(b"cannot be written", stream.since())
        self.assertEqual(self.heard(stream, b"b"), b"")
        self.assertIn(b"No space left on device", stream.since())
        self.disk.error = 0
        self.assertEqual(self.heard(stream, b"c"), b"c")
        self.end()
        self.assertEqual(self.typed(), b"ac")

    def test_output_is_not_written(self) -> None:
        """Output that the disk does not take ends the input, also that of which the recording has none."""
        stream = self.open("none")
        self.disk.error = errno.ENOSPC
        self.console.says(b"x")
        self.assertEqual(self.heard(stream, b"a"), b"")
        self.assertIn(b"No space left on device", stream.since())
        self.disk.error = 0
        self.assertEqual(self.heard(stream, b"b"), b"b")

    def test_head_is_not_written(self) -> None:
        """A second after the disk has space again, a recording whose head could not be written takes input."""
        stream = self.open("all")
        self.console.says(b"x")
        self.wait(1)
        self.disk.error = errno.ENOSPC
        self.wait(90)
        self.assertEqual(self.heard(stream, b"a"), b"")
        self.assertIn("No space left on device", self.status().message)
        self.disk.error = 0
        self.wait(2)
        self.assertEqual(self.status().message, "")
        self.assertEqual(self.heard(stream, b"b"), b"b")

    def test_all_recordings(self) -> None:
        """When one of many recordings can be written again, all are."""
        uids = [UID, *(UID.replace("1", str(number)) for number in range(2, 9))]
        for uid in uids:
            self.set(uid=uid)
        self.console.says(b"x")
        self.disk.error = errno.ENOSPC
        self.wait(90)
        self.disk.error = 0
        self.wait(2)
        self.assertEqual({self.status(uid).message for uid in uids}, {""})

    def test_journal_is_moved(self) -> None:
        """While the journal's directory has another name, no key reaches the machine."""
        stream = self.open("all")
        self.assertEqual(self.heard(stream, b"a"), b"a")
        path, moved = self.moved(f"consoles/{KEY}")
        self.assertEqual(self.heard(stream, b"b"), b"")
        self.assertIn(b"was removed or renamed", stream.since())
        os.rename(moved, path)
        self.assertEqual(self.heard(stream, b"c"), b"c")

    def test_journal_of_output_is_moved(self) -> None:
        """The same for a recording without input."""
        stream = self.open("none")
        self.console.says(b"x")
        self.wait(1)
        path, moved = self.moved(f"consoles/{KEY}")
        self.assertEqual(self.heard(stream, b"b"), b"")
        self.assertIn(b"was removed or renamed", stream.since())
        os.rename(moved, path)
        self.assertEqual(self.heard(stream, b"c"), b"c")

    def test_journal_is_deleted(self) -> None:
        """After the journal was deleted no key reaches the machine, and the recording fails."""
        stream = self.open("all")
        self.heard(stream, b"a")
        self.wait(1)
        shutil.rmtree(os.path.join(self.path, f"consoles/{KEY}"))
        self.assertEqual(self.heard(stream, b"b"), b"")
        self.wait(60)
        self.assertEqual(self.heard(stream, b"c"), b"")

    def test_recordings_are_moved(self) -> None:
        """While the recordings have no directory, no key reaches the machine; soon after they have, it does."""
        stream = self.open("none")
        self.assertEqual(self.heard(stream, b"a"), b"a")
        path, moved = self.moved("recordings")
        self.assertEqual(self.heard(stream, b"b"), b"")
        self.assertIn(b"No such file or directory", stream.since())
        os.rename(moved, path)
        self.wait(2)
        self.assertEqual(self.heard(stream, b"c"), b"c")

    def test_recording_is_deleted(self) -> None:
        """A recording whose heads were deleted has failed at the next key."""
        stream = self.open("none")
        os.unlink(os.path.join(self.path, f"recordings/{UID}.heads"))
        self.assertEqual(self.heard(stream, b"a"), b"")
        self.wait(1)
        self.assertEqual(self.status().state, "Failed")

    def test_facts_are_deleted(self) -> None:
        """The facts about a recording that were deleted are written again, and input goes on."""
        stream = self.open("none")
        os.unlink(os.path.join(self.path, f"recordings/{UID}.facts"))
        stream.viewer.data_received(b"a")
        self.wait(2)
        self.console.heard()
        self.assertEqual(self.heard(stream, b"b"), b"b")
        self.kill()
        self.start()
        self.assertEqual(self.status().state, "Recording")


class StalledDiskTests(ConsoleCase):
    """Recordings that shall begin while the disk does not answer."""

    def setUp(self) -> None:
        super().setUp()
        self.kill()
        self.thread = self.disk = FreezableThread()
        self.start()
        self.console.says(b"before\r\n")
        self.wait(1)
        self.disk.is_frozen = True

    def test_full(self) -> None:
        """While a full disk is slow, too, the reason stays that it is full."""

        class Full:
            def __getattr__(self, name: str) -> object:
                return getattr(os, name)

            def pwrite(self, *_: object) -> int:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        full = "the console cannot be recorded: the runtime cannot write its files: No space left on device"
        self.disk.thaw()
        self.kill()
        self.layer = Full()
        self.start()
        self.set()
        self.assertEqual(self.status().message, full)
        self.disk.is_frozen = True
        self.wait(3)
        self.assertEqual(self.status().message, full)

    def test_opened(self) -> None:
        """A session is refused, and the next one, after the disk has answered, is recorded."""
        for seconds in (0, 2):
            self.wait(seconds)
            refusal = self.assertRaises(ServiceUnavailable, self.open)
            self.assertIn("cannot be recorded: the disk does not answer", refusal.message)
        self.disk.thaw()
        self.wait(1)
        self.open()
        self.console.says(b"recorded")
        self.end()
        self.assertEqual(self.output(), b"recorded")

    def test_new_terms(self) -> None:
        """A session that must be recorded from now on reads why it is not, and begins it later."""
        stream = self.attach()
        stream.viewer.terms_changed(Terms(recording=f"{UID}/none"))
        stream.viewer.data_received(b"x")
        self.assertIn(b"cannot be recorded: the disk does not answer", stream.since())
        self.disk.thaw()
        self.wait(1)
        stream.viewer.data_received(b"y")
        self.assertEqual((self.console.heard(), self.status().state), (b"y", "Recording"))

    def test_set(self) -> None:
        """A recording that a poollet sets begins soon after, with the output of the time before."""
        others = [UID.replace("1", str(number)) for number in range(2, 9)]
        self.wait(1)
        self.set(input="masked", since=self.now())
        for uid in others:
            self.set(uid=uid, since=self.now())
        self.assertIn("the disk does not answer", self.status().message)
        self.assertEqual(self.status().reason, "NotStarted")
        self.wait(5)
        self.console.says(b"meanwhile\r\n")
        self.disk.thaw()
        self.wait(2)
        self.assertEqual({self.status(uid).state for uid in (UID, *others)}, {"Recording"})
        self.assertRegex(
            self.status().message,
            "^it began late: it has no input from 2.*Z to 2.*Z: the console cannot be recorded: "
            "the disk does not answer$",
        )
        reasons = [self.status(uid).reason for uid in (UID, others[0])]
        self.assertEqual(reasons, ["Incomplete", ""])
        self.assertEqual(self.status(others[0]).message, "")
        self.end()
        self.assertEqual(self.output(), b"meanwhile\r\n")

    def test_ended(self) -> None:
        """One that ends before has failed, and is not tried any more."""
        self.set()
        self.set(ended=True)
        self.assertEqual(self.status().state, "Failed")
        self.disk.thaw()
        self.wait(70)
        self.assertEqual(self.status().state, "Failed")


class InputTests(ConsoleCase):
    """Input in recordings."""

    def type(self, stream: MemoryStream, data: bytes, echo: bytes = b"") -> None:
        stream.viewer.data_received(data)
        if echo:
            self.console.says(echo)

    def login(self, stream: MemoryStream) -> None:
        self.type(stream, b"root\r", b"root\r\nPassword: ")
        self.type(stream, b"hunter2\r", b"\r\nWelcome, root\r\n# ")
        self.type(stream, b"ls\r", b"ls\r\n")

    def test_none(self) -> None:
        """Without input nothing of it is in the journal."""
        self.login(self.open("none"))
        self.end()
        self.assertEqual(self.typed(), b"")
        self.assertNotIn("input", [each.kind for each in self.journal.events(0, 1000)])

    def test_masked(self) -> None:
        """Masked input is what was echoed; a password is neither in the recording nor on disk."""
        self.login(self.open("masked"))
        self.end()
        self.assertEqual(self.typed(), b"root\rls\r")
        self.assertNotIn(b"hunter2", self.text())
        events = [dict(each.data) for each in self.journal.events(0, 1000)]
        self.assertNotIn("aHVudGVyMg", json.dumps(events))  # hunter2

    def test_all(self) -> None:
        """All input is in the recording, in order, before what it causes."""
        self.login(self.open("all"))
        self.end()
        self.assertEqual(self.typed(), b"root\rhunter2\rls\r")

    def test_two_recordings(self) -> None:
        """Each of two recordings has the input that it shall have, and once."""
        other = UID.replace("1", "2")
        self.set(uid=other, input="all")
        self.login(self.open("masked"))
        self.end()
        self.end(other)
        self.assertEqual(self.typed(), b"root\rls\r")
        self.assertEqual(self.typed(other), b"root\rhunter2\rls\r")

    def test_stops_with_the_recording(self) -> None:
        """Nothing more is written when the recording has ended."""
        self.set(input="all")
        stream = self.attach()
        self.type(stream, b"a")
        self.end()
        self.type(stream, b"b")
        kinds = [each.kind for each in self.journal.events(0, 1000)]
        self.assertEqual(kinds.count("input"), 1)
        self.assertEqual(self.console.heard(), b"ab")

    def test_too_much_input(self) -> None:
        """Input that the journal cannot take does not reach the machine."""
        stream = self.open("all")
        for _ in range(4):
            stream.viewer.data_received(b"x" * 3000 * 3072)
        self.assertIn(b"cannot be written", stream.since())
        self.assertLessEqual(len(self.console.heard()), 10_000 * 3072)
        self.console.says(b"$ ")
        stream.viewer.data_received(b"y")
        self.assertEqual(self.console.heard(), b"y")
