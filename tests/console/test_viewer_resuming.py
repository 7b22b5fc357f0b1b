"""
Tests for :mod:`twisted_exec.console.viewer`: viewers that are resumed.
"""

from __future__ import annotations

from twisted_exec.api.status import BadRequest, TooManyRequests
from twisted_exec.console import acts
from twisted_exec.console.floor import ANNOUNCE_SECONDS
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.journal.journal import Journal
from twisted_exec.streaming.interfaces import Break, Position, Role
from twisted_exec.testing.console import MarkStream
from twisted_exec.wire.marks import At, Notice, NoticeKind
from twisted_exec.wire.session_terms import Terms
from twisted_exec.wire.stream_options import StreamOptions

from .viewer_case import KIB, ViewerCase


class PacedResumeTests(ViewerCase):
    """The machine waits while the stream is lost."""

    paced = True

    def test_machine_goes_on(self) -> None:
        """A machine that waited goes on when the user has read what came meanwhile, in several turns."""
        terminal = StreamOptions(tty=True)
        viewer, _ = self.attach(options=terminal)
        viewer.away()
        while not self.console.transport.paused:
            self.console.says(b"x" * (16 * KIB))
        end = self.shared.journal.end
        again = self.resume(viewer, 0, options=terminal)
        self.clock.pump([0] * 100)
        self.assertEqual(len(again.output), end)
        self.assertFalse(self.console.transport.paused)


class ResumeTests(ViewerCase):
    """A stream is lost and another one follows."""

    def test_continues(self) -> None:
        """Output continues at the user's position, whatever was written to the lost stream."""
        viewer, stream = self.attach()
        self.console.says(b"U-Boot 2023.01\r\n")
        viewer.away()
        self.console.says(b"=> ")
        self.assertEqual(stream.output, b"U-Boot 2023.01\r\n")
        again = self.resume(viewer, 7)
        self.console.says(b"x")
        self.assertEqual(again.sent, [At(self.at(7)), b"2023.01\r\n=> ", b"x"])

    def test_nothing_new(self) -> None:
        """The position comes first, also without any new output."""
        viewer, _ = self.attach()
        self.console.says(b"=> ")
        viewer.away()
        self.assertEqual(self.resume(viewer, 3).sent, [At(self.at(3))])

    def test_another_journal(self) -> None:
        """A position of another epoch means nothing: output begins as for a new user."""
        viewer, _ = self.attach()
        self.console.says(b"=> ")
        viewer.away()
        there = Position("0" * 16, 1 << 40)
        viewer.check(there)
        stream = MarkStream()
        viewer.resumed(stream, there)
        self.assertEqual(stream.sent, [At(self.at(0), exact=False), b"=> "])

    def test_check(self) -> None:
        """A position beyond the end is refused."""
        viewer, _ = self.attach()
        self.console.says(b"=> ")
        for offset in (0, 3):
            viewer.check(self.at(offset))
        error = self.assertRaises(BadRequest, viewer.check, self.at(4))
        self.assertIn("cannot continue at offset 4: it ends at 3", error.message)

    def test_no_older_output(self) -> None:
        """A session does not get output from before it began, which is what logs are for."""
        self.console.says(b"secret" * 60_000)
        viewer, stream = self.attach()
        viewer.away()
        again = self.resume(viewer, 0)
        begin = 360_000 - 256 * KIB
        self.assertEqual((stream.positions, again.positions), ([begin], [begin]))

    def test_input(self) -> None:
        """Input goes on, and is counted for the whole session."""
        viewer, _ = self.attach()
        viewer.data_received(b"ab")
        viewer.away()
        stream = self.resume(viewer, 0)
        viewer.data_received(b"c")
        self.assertEqual((self.console.heard(), viewer.bytes_to_machine), (b"abc", 3))
        self.assertEqual(stream.notices, [])

    def test_line_takes_no_input(self) -> None:
        """The input of a user who is back waits like that of all others."""
        viewer, _ = self.attach()
        viewer.away()
        self.console.transport.producer.pauseProducing()
        stream = self.resume(viewer, 0)
        self.assertTrue(stream.input_paused)
        self.console.transport.producer.resumeProducing()
        self.assertFalse(stream.input_paused)

    def test_full_stream(self) -> None:
        """The flow control of a lost stream does not count for the next one."""
        viewer, lost = self.attach(capacity=1)
        self.console.says(b"=> ")
        producer = lost.producer
        viewer.away()
        self.assertIsNone(lost.producer)
        producer.resumeProducing()  # a late call
        self.assertEqual(lost.output, b"=> ")
        again = self.resume(viewer, 0, capacity=1)
        self.console.says(b"x")
        self.assertEqual(again.output, b"=> ")
        again.take()
        self.assertEqual(again.output, b"=> x")

    def test_newer_stream_wins(self) -> None:
        """A user may be back before the loss is noticed; the others hear nothing of that."""
        viewer, lost = self.attach(capacity=1)
        bob = self.watch()
        bob.since()
        self.console.says(b"=> ")
        again = self.resume(viewer, 0)
        self.assertIsNone(lost.producer)
        self.console.says(b"x")
        self.assertEqual((lost.output, again.output), (b"=> ", b"=> x"))
        self.assertEqual((bob.since(), viewer.role), (b"=> x", Role.WRITER))

    def test_leaves(self) -> None:
        """A user who does not come back leaves as always."""
        viewer, _ = self.attach()
        bob = self.watch()
        viewer.away()
        bob.since()
        viewer.detached("connection lost")
        self.clock.advance(ANNOUNCE_SECONDS)
        self.assertIn(b"ann has left; this console has no writer (--force", bob.since())
        self.assertEqual(self.shared.viewers, (bob.viewer,))
        self.assertEqual(self.kinds()[-1], ("leave", "s"))

    def test_journal(self) -> None:
        """The journal has one session, by its first id; its newest id is that of the stream."""
        viewer, _ = self.attach()
        viewer.away()
        self.resume(viewer, 0)
        self.assertEqual(viewer.session, "s2")
        viewer.wished(Role.OBSERVER)
        viewer.detached("gone")
        found = [("join", "s"), ("role", "s"), ("role", "s"), ("leave", "s")]
        self.assertEqual(self.kinds(), found)

    def test_acts(self) -> None:
        """Acts name the newest stream, by which the hops know the session."""
        reported: list[acts.Act] = []
        self.shared = SharedConsole(self.console, self.clock, acted=reported.append)
        self.watch("ann")
        viewer, _ = self.attach(user="bob")
        viewer.away()
        self.resume(viewer, 0)
        viewer.wished(Role.WRITER)
        self.assertEqual([each.session for each in reported], ["s2"])

    def test_never_attached(self) -> None:
        """A stream that never came up is not lost."""
        viewer = self.shared.viewer()
        viewer.away()
        viewer.detached("connection lost")
        self.assertFalse(viewer.is_away)


class KeysOfOutagesTests(ViewerCase):
    """Keys that a user typed while the connection was lost, and that the machine does not get."""

    MEANWHILE = "{} typed meanwhile {} discarded"

    def test_taken_over(self) -> None:
        """The user reads how many keys are discarded because another user has taken over meanwhile."""
        ann, _ = self.attach(user="ann")
        bob, _ = self.attach(user="bob")
        ann.away()
        bob.wished(Role.WRITER)
        again = self.resume(ann, 0)
        for keys in (b"rm -r", b" x\x1b", b"[D", b"\xc3", b"\xa4\r"):
            ann.data_received(keys)
        ann.wished(Break())
        why = "the writer of this console is bob"
        self.assertIn(f"what you type is not sent: {why}", again.notices[-1])
        ann.answered()
        *_, counted = (each for each in again.sent if isinstance(each, Notice))
        text = self.MEANWHILE.format("11 keys", "were")
        self.assertEqual(counted, Notice(text, NoticeKind.DISCARDED, why=why, keys=11))
        for _ in range(2):
            ann.data_received(b"x")
            ann.answered()
        self.assertEqual(again.notices[-1], text)
        self.assertEqual(again.notices.count(text), 1)

    def test_another_process(self) -> None:
        """So it is after another session has the floor of a console server that is new."""
        bob, _ = self.attach(user="bob")
        again = self.resume(self.shared.viewer(), 0, user="ann")
        (ann,) = (each for each in self.shared.viewers if each is not bob)
        ann.data_received(b"xy")
        ann.answered()
        self.assertEqual(again.notices[-1], self.MEANWHILE.format("2 keys", "were"))

    def test_received(self) -> None:
        """Keys that the machine gets are not counted, and keys that follow the answer neither."""
        ann, _ = self.attach(user="ann")
        bob, _ = self.attach(user="bob")
        ann.away()
        again = self.resume(ann, 0)
        ann.data_received(b"ls")
        ann.answered()
        bob.wished(Role.WRITER)
        ann.data_received(b"x")
        ann.answered()
        self.assertEqual(self.console.heard(), b"ls")
        self.assertFalse([each for each in again.notices if "typed meanwhile" in each])

    def test_told_before(self) -> None:
        """An observer who knew that the keys are not sent reads no number."""
        self.attach(user="ann")
        bob, _ = self.attach(user="bob")
        bob.data_received(b"x")
        bob.away()
        again = self.resume(bob, 0)
        bob.data_received(b"yz")
        bob.answered()
        self.assertFalse([each for each in again.notices if "typed meanwhile" in each])

    def test_told_long_ago(self) -> None:
        """A user who has typed since then expects the keys to be sent."""
        for types in (b"", b"x"):
            ann, _ = self.attach(user="ann")
            bob, _ = self.attach(user="bob")
            bob.data_received(b"x")
            bob.wished(Role.WRITER)
            if types:
                bob.data_received(types)
            bob.away()
            ann.wished(Role.WRITER)
            again = self.resume(bob, 0)
            bob.data_received(b"yz")
            bob.answered()
            self.assertEqual(again.notices[-1], self.MEANWHILE.format("2 keys", "were"))
            ann.detached("left")
            bob.detached("left")


class RestartTests(ViewerCase):
    """A session of an earlier process."""

    def test_continues(self) -> None:
        """It joins at its position."""
        self.console.says(b"=> version")
        viewer = self.shared.viewer()
        stream = self.resume(viewer, 3)
        self.assertEqual(stream.sent[:2], [At(self.at(3)), b"version"])
        self.assertEqual(self.kinds(), [("join", "s2"), ("role", "s2")])

    def test_role(self) -> None:
        """Roles are those of a new session, the user is told, and nothing is taken over."""
        first, second = self.shared.viewer(), self.shared.viewer()
        one = self.resume(first, 0, user="ann")
        other = self.resume(second, 0, user="bob", options=StreamOptions(force=True))
        self.assertEqual(one.notices, ["you are the writer of this console"])
        self.assertEqual((first.role, second.role), (Role.WRITER, Role.OBSERVER))
        self.assertIn("the writer of this console is ann; you are an observer", other.notices[0])

    def test_observer(self) -> None:
        """A session that says that it is an observer does not become the writer, also if nobody types."""
        viewer = self.shared.viewer()
        stream = self.resume(viewer, 0, user="bob", options=StreamOptions(observe=True))
        self.assertIs(viewer.role, Role.OBSERVER)
        self.assertIn("this console has no writer; you are an observer", stream.notices[0])

    def test_oldest(self) -> None:
        """It continues no earlier than at the scrollback, or where it began."""
        self.shared.journal = Journal()  # without a limit: nobody trims it
        self.shared.journal.append(bytes(400 * KIB))
        self.assertEqual(self.resume(self.shared.viewer(), 0).positions, [144 * KIB])
        for began, begins in ((100 * KIB, 100 * KIB), (300 * KIB, 144 * KIB)):
            viewer = self.shared.viewer()
            viewer.oldest = self.at(began)
            self.assertEqual(self.resume(viewer, 0).positions, [begins])
            self.assertEqual(viewer.oldest, self.at(begins))
        viewer = self.shared.viewer()
        viewer.oldest = Position("0" * 16, 0)
        self.assertEqual(self.resume(viewer, 0).positions, [144 * KIB])

    def test_no_place(self) -> None:
        """It is a new session for the limit of a policy."""
        terms = Terms(viewers=1)
        self.attach(terms=terms)
        viewer = self.shared.viewer()
        self.assertRaises(TooManyRequests, viewer.admit, terms)
