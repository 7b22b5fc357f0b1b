"""
Tests for :mod:`twisted_exec.console.viewer`: streams with marks, and streams that are lost.

:mod:`tests.console.test_shared_console` and :mod:`tests.console.test_input` have the tests of ordinary streams.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zope.interface.verify import verifyObject

from twisted_exec.api.status import BadRequest, TooManyRequests
from twisted_exec.console import acts
from twisted_exec.console.floor import ANNOUNCE_SECONDS, HINT, WAIT, notice
from twisted_exec.console.limits import Limits
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.console.viewer import Viewer
from twisted_exec.journal.journal import Journal
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    MACHINE_DELETED,
    TOO_MANY_VIEWERS,
    Break,
    Ending,
    IMarkTransport,
    IOperable,
    IResumableAttachment,
    Position,
    Role,
    TerminalSize,
)
from twisted_exec.testing.attachment import MarkStream
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.resume import At, Notice
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE, Right, Terms
from twisted_exec.wire.stream_options import StreamOptions

from ..journal.support import ManualDisk, close_segments
from .doubles import MemoryConsole, MemoryStream, OpenConsoleCase

KIB = 1 << 10
DELETED = Ending(MACHINE_DELETED, 'machine "default/x" was deleted')
EYES = Terms(people=2, policy="default/eyes")
MISSING = "ConsolePolicy default/eyes needs 2 people at this console, 1 is connected"
READ_ONLY = StreamOptions(read_only=True)
LOST = "ann's connection is lost; the writer of this console is ann "


class ViewerCase(OpenConsoleCase):
    """A console whose line is open, and streams with marks."""

    def attach(self, **options: Any) -> tuple[Viewer, MarkStream]:
        """Open a session over a stream with marks."""
        viewer, stream = self.shared.viewer(), MarkStream(**options)
        viewer.attached(stream)
        return viewer, stream

    def watch(self, user: str = "bob", **options: Any) -> MemoryStream:
        """Open a session over an ordinary stream."""
        return MemoryStream(self.shared.viewer(), user=user, **options)

    def at(self, offset: int) -> Position:
        """Return a position in the journal."""
        return Position(self.shared.journal.epoch, offset)

    def resume(self, viewer: Viewer, offset: int, **options: Any) -> MarkStream:
        """Come back over another stream."""
        stream = MarkStream(**{"session": "s2", "user": viewer.user, **options})
        viewer.admit(stream.terms)
        viewer.check(self.at(offset))
        viewer.resumed(stream, self.at(offset))
        return stream

    def kinds(self) -> list[tuple[str, str]]:
        """Return kind and session of the journal's events."""
        events = self.shared.journal.events(0, self.shared.journal.end)
        return [(each.kind, each.data.get("session", "")) for each in events]


class MarkTests(ViewerCase):
    """What a stream with marks gets."""

    def test_interfaces(self) -> None:
        viewer, stream = self.attach()
        for interface in (IOperable, IResumableAttachment):
            verifyObject(interface, viewer)
        verifyObject(IMarkTransport, stream)

    def test_position(self) -> None:
        """The position comes first, also without any output."""
        _, stream = self.attach()
        self.assertEqual(stream.sent, [At(self.at(0))])
        self.console.says(b"=> ")
        self.assertEqual(stream.sent[1:], [b"=> "])

    def test_scrollback(self) -> None:
        """The position of the first byte is that of the scrollback."""
        for _ in range(300):
            self.console.says(bytes(KIB))
        _, stream = self.attach()
        self.assertEqual(stream.positions, [44 * KIB])
        self.assertEqual(len(stream.output), 256 * KIB)

    def test_stream_that_is_full(self) -> None:
        """The position does not wait until the stream accepts output."""
        self.console.says(b"=> ")
        _, stream = self.attach(capacity=0)
        self.assertEqual(stream.sent, [At(self.at(0))])
        stream.take()
        self.assertEqual(stream.output, b"=> ")

    def test_notices(self) -> None:
        """Notices have their place in the output, without line breaks and brackets."""
        self.attach()
        self.console.says(b"=> ")
        bob, stream = self.attach(user="bob")
        self.console.line.notice_received(notice("the console line is lost"))
        self.console.line.notice_received(b"\r\n[other]\r\n")
        self.console.says(b"x")
        writer = f"the writer of this console is ann; you are an observer {HINT}"
        marks = [Notice(writer), Notice("the console line is lost"), Notice("[other]")]
        self.assertEqual(stream.sent, [At(self.at(0)), b"=> ", *marks, b"x"])
        self.assertEqual(bob.bytes_to_user, 4)

    def test_gap(self) -> None:
        """A slow viewer gets the position behind the gap in place of a text."""
        _, stream = self.attach(capacity=1)
        self.console.says(b"a")
        for _ in range(17):
            self.console.says(bytes(64 * KIB))
        self.console.says(b"now")
        stream.take()
        at = 17 * 64 * KIB + 1
        self.assertEqual(stream.sent, [At(self.at(0)), b"a", At(self.at(at)), b"now"])

    def test_too_many(self) -> None:
        """A session that finds no place gets a position, and then its ending."""
        terms = Terms(viewers=1)
        self.attach(terms=terms)
        self.console.says(b"secret")
        viewer, stream = self.attach(user="eve", terms=terms)
        assert stream.ending is not None
        self.assertEqual((stream.sent, stream.ending.reason), ([At(self.at(6))], TOO_MANY_VIEWERS))
        viewer.away()
        again = self.resume(viewer, 6)
        self.assertEqual((again.sent, again.ending), ([At(self.at(6))], stream.ending))


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
        self.assertEqual(viewer.bytes_to_user, 16 + 12 + 1)

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
        viewer.heard()
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
        self.assertIn(b"ann has left; this console has no writer (~f", bob.since())
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


class PresenceTests(ViewerCase):
    """What a lost connection means for the others."""

    def test_writer(self) -> None:
        """The user keeps the floor; observers read that the connection is lost, and back."""
        viewer, _ = self.attach()
        bob, eve = self.watch("bob"), self.watch("eve", terms=Terms(right=Right.DRIVE))
        reader = self.watch("rob", options=READ_ONLY)
        denied = self.watch("dan", terms=Terms(right=Right.OBSERVE))
        for each in (bob, eve, denied):
            each.since()
        viewer.away()
        self.assertEqual(bob.since(), notice(LOST + HINT))
        self.assertEqual(eve.since(), notice(LOST + WAIT))
        self.assertIs(viewer.role, Role.WRITER)
        bob.viewer.data_received(b"x")
        self.assertIn(b"not sent: the writer of this console is ann (~f", bob.since())
        again = self.resume(viewer, 0)
        self.assertEqual((bob.since(), eve.since()), (notice("ann is back"),) * 2)
        self.assertEqual((reader.since(), denied.since(), again.notices), (b"", b"", []))

    def test_observer(self) -> None:
        """Nobody is told about the connection of an observer."""
        bob = self.watch("bob")
        viewer, _ = self.attach()
        viewer.away()
        self.resume(viewer, 0)
        self.assertEqual(bob.since(), b"")

    def test_another_session_of_the_user(self) -> None:
        """Only the last connection of the writing user counts, and the first that is back."""
        viewer, _ = self.attach()
        other, _ = self.attach()
        bob = self.watch()
        bob.since()
        viewer.away()
        self.assertEqual(bob.since(), b"")
        other.away()
        self.assertEqual(bob.since(), notice(LOST + HINT))
        third = self.watch("ann")
        self.assertEqual(bob.since(), notice("ann is back"))
        self.assertIs(third.viewer.role, Role.WRITER)
        self.resume(viewer, 0)
        self.assertEqual(bob.since(), b"")
        for each in (viewer, third.viewer):
            each.wished(Role.OBSERVER)
        self.assertEqual(bob.since(), notice(LOST + HINT))
        self.resume(other, 0)
        self.assertEqual(bob.since(), notice("ann is back"))

    def test_taken_over(self) -> None:
        """A user who was taken over from while away reads it at the resume, and types no more."""
        viewer, _ = self.attach()
        bob = self.watch()
        viewer.away()
        self.console.says(b"=> ")
        bob.viewer.wished(Role.WRITER)
        bob.since()
        self.console.says(b"x")
        again = self.resume(viewer, 0)
        text = f"bob has taken over this console; you are an observer {HINT}"
        self.assertEqual(again.sent, [At(self.at(0)), b"=> ", Notice(text), b"x"])
        self.assertEqual(bob.since(), b"x")
        viewer.data_received(b"a")
        self.assertEqual(self.console.heard(), b"")
        self.assertIn("what you type is not sent: the writer", again.notices[-1])

    def test_not_sent_again(self) -> None:
        """The notice that input is discarded may be lost with the stream, so it comes again."""
        self.watch()
        viewer, stream = self.attach()
        viewer.data_received(b"x")
        viewer.data_received(b"x")
        self.assertEqual(len(stream.notices), 2)
        viewer.away()
        again = self.resume(viewer, 0)
        viewer.data_received(b"x")
        self.assertEqual(again.notices, stream.notices[1:])

    def test_role_changed_on_a_dead_stream(self) -> None:
        """
        A role that changes before the loss is noticed is told again, once, because that notice may
        be lost.
        """
        viewer, stream = self.attach()
        bob = self.watch()
        bob.viewer.wished(Role.WRITER)
        self.assertEqual(len(stream.notices), 1)
        again = self.resume(viewer, 0)
        text = f"the writer of this console is bob; you are an observer {HINT}"
        self.assertEqual(again.notices, [text])
        self.assertEqual(self.resume(viewer, 0).notices, [])
        viewer.wished(Role.WRITER)
        viewer.away()
        self.assertEqual(self.resume(viewer, 0).notices, ["you are the writer of this console"])
        viewer.terms_changed(Terms(right=Right.OBSERVE))
        viewer.away()
        again = self.resume(viewer, 0, terms=Terms(right=Right.OBSERVE))
        self.assertEqual(again.notices, [MAY_ONLY_OBSERVE])

    def test_notices_are_bounded(self) -> None:
        """An absent user gets the newest notices, within the limit of slow users."""
        viewer, _ = self.attach()
        viewer.away()
        for number in range(100):
            self.console.line.notice_received(notice(f"notice {number}"))
        notices = self.resume(viewer, 0).notices
        self.assertEqual(notices, [f"notice {number}" for number in range(84, 100)])

    def test_people(self) -> None:
        """An absent user does not count as a person, as nobody watches."""
        bob = self.watch(terms=EYES)
        viewer, _ = self.attach(options=READ_ONLY)
        bob.since()
        viewer.away()
        self.assertEqual(bob.since(), notice(f"the machine gets no input: {MISSING}"))
        bob.viewer.data_received(b"x")
        self.assertEqual(self.console.heard(), b"")
        bob.since()
        self.resume(viewer, 0)
        self.assertEqual(bob.since(), notice("the machine gets input now"))

    def test_absent_writer(self) -> None:
        """A writer without enough people reads so only if that is so at the resume."""
        bob = self.watch(options=READ_ONLY)
        viewer, _ = self.attach(terms=EYES)
        viewer.away()
        again = self.resume(viewer, 0, terms=EYES)
        self.assertEqual((again.notices, again.input_paused), ([], False))
        viewer.away()
        bob.drop()
        again = self.resume(viewer, 0, terms=EYES)
        self.assertEqual(again.notices, [f"the machine gets no input: {MISSING}"])
        viewer.data_received(b"x")
        self.assertEqual(self.console.heard(), b"")

    def test_withheld_input_does_not_wait(self) -> None:
        """Input that is discarded is discarded at once, also while the line accepts none."""
        viewer, _ = self.attach(terms=EYES)
        viewer.away()
        self.console.transport.producer.pauseProducing()
        self.assertFalse(self.resume(viewer, 0, terms=EYES).input_paused)

    def test_place(self) -> None:
        """An absent session keeps its place, and does not keep itself out."""
        few = Terms(viewers=2)
        viewer, _ = self.attach(terms=few)
        viewer.away()
        self.shared.viewer().admit(few)
        self.watch(terms=few)
        self.assertRaises(TooManyRequests, self.shared.viewer().admit, few)
        stricter = replace(few, viewers=1)
        again = self.resume(viewer, 0, terms=stricter)
        self.assertIsNone(again.ending)

    def test_terms(self) -> None:
        """Terms of the new stream count from the resume on."""
        viewer, _ = self.attach()
        viewer.away()
        again = self.resume(viewer, 0, terms=Terms(right=Right.OBSERVE))
        self.assertEqual(again.notices, [f"from now on {MAY_ONLY_OBSERVE}"])
        self.assertIs(viewer.role, Role.OBSERVER)
        viewer.away()
        again = self.resume(viewer, 0)
        self.assertIn("you may type at this console again", again.notices[0])
        self.assertIs(viewer.role, Role.OBSERVER)

    def test_terms_while_away(self) -> None:
        """Terms that change while the user is away are enforced at once, and told later."""
        viewer, _ = self.attach()
        bob = self.watch()
        viewer.away()
        bob.since()
        viewer.terms_changed(Terms(right=Right.OBSERVE))
        self.clock.advance(ANNOUNCE_SECONDS)
        self.assertIn(b"ann may no longer type; this console has no writer", bob.since())
        again = self.resume(viewer, 0, terms=Terms(right=Right.OBSERVE))
        self.assertEqual(again.notices, [f"from now on {MAY_ONLY_OBSERVE}"])
        self.assertEqual(bob.since(), b"")

    def test_options(self) -> None:
        """A stream without input is an observer's."""
        viewer, _ = self.attach()
        bob = self.watch()
        viewer.away()
        self.resume(viewer, 0, options=StreamOptions(frozenset({Channel.STDOUT})))
        self.assertIs(viewer.role, Role.OBSERVER)
        viewer.wished(Break())
        bob.viewer.wished(Role.WRITER)
        self.assertIs(bob.viewer.role, Role.WRITER)

    def test_force(self) -> None:
        """A request that forces does not take over once more when it resumes."""
        viewer, _ = self.attach(options=StreamOptions(force=True))
        bob = self.watch()
        viewer.away()
        bob.viewer.wished(Role.WRITER)
        self.resume(viewer, 0, options=StreamOptions(force=True))
        self.assertEqual((viewer.role, bob.viewer.role), (Role.OBSERVER, Role.WRITER))

    def test_size(self) -> None:
        """The last size counts for a session that gets the floor while its user is away."""
        viewer, _ = self.attach()
        viewer.window_changed(TerminalSize(80, 24))
        viewer.away()
        self.resume(viewer, 0)
        self.assertEqual(self.console.sizes, [TerminalSize(80, 24)])


class MemoryTests(ViewerCase):
    """Output for users who are away, in a journal without a disk."""

    def retained(self) -> int:
        return int(self.shared.journal.end - self.shared.journal.start)

    def test_no_skipping(self) -> None:
        """While a user is away, nothing within 1 MiB is lost."""
        viewer, _ = self.attach()
        self.console.says(b"a" * 100)
        viewer.away()
        for _ in range(16):
            self.console.says(bytes(63 * KIB))
        again = self.resume(viewer, 50)
        self.assertEqual(again.positions, [50])
        self.assertEqual(len(again.output), 50 + 16 * 63 * KIB)

    def test_bytes_on_the_way(self) -> None:
        """A scrollback's length of what was written before the loss is there for the resume."""
        viewer, _ = self.attach()
        for _ in range(16):
            self.console.says(bytes(64 * KIB))
        viewer.away()
        for _ in range(12):
            self.console.says(bytes(64 * KIB))
        begin = (16 - 4) * 64 * KIB
        again = self.resume(viewer, begin)
        self.assertEqual((again.positions, len(again.output)), ([begin], 16 * 64 * KIB))

    def test_bounded(self) -> None:
        """An absent user holds 1 MiB, and then gets the exact position behind the gap."""
        viewer, _ = self.attach()
        self.console.says(b"=> ")
        viewer.away()
        for _ in range(300):
            self.console.says(bytes(16 * KIB))
            self.assertLess(self.retained(), 1100 * KIB)
        again = self.resume(viewer, 3)
        self.assertEqual(again.positions, [self.shared.journal.start])
        self.assertEqual(len(again.output), self.retained())
        self.assertGreaterEqual(len(again.output), KIB * KIB)

    def test_catching_up_is_bounded(self) -> None:
        """So does a user who is back and reads slowly; each gap has its position."""
        viewer, _ = self.attach()
        viewer.away()
        for _ in range(100):
            self.console.says(bytes(16 * KIB))
        again = self.resume(viewer, 0, capacity=1)
        for _ in range(100):
            self.console.says(bytes(16 * KIB))
            self.assertLess(self.retained(), 1100 * KIB)
        again.take()
        self.assertEqual(len(again.positions), 2)
        at = 0
        for each in again.sent:
            if isinstance(each, At):
                at = each.position.offset
            elif isinstance(each, bytes):
                at += len(each)
        self.assertEqual(at, 200 * 16 * KIB)

    def test_lag_again(self) -> None:
        """A user who has read everything since the loss is a slow viewer like any other."""
        viewer, _ = self.attach()
        viewer.away()
        again = self.resume(viewer, 0, capacity=1)
        self.console.says(b"x")
        again.take()
        again.take(0)
        for _ in range(17):
            self.console.says(bytes(64 * KIB))
        again.take()
        self.assertEqual(again.positions, [0, self.shared.journal.end])

    def test_later_machine(self) -> None:
        """The next console of a machine may free what an absent user of the last one lacks."""
        viewer, _ = self.attach()
        self.console.says(b"panic")
        viewer.away()
        self.shared.end(DELETED)
        later = MemoryConsole()
        shared = SharedConsole(later, self.clock, journal=self.shared.journal)
        self.successResultOf(shared.open())
        later.says(b"boot")
        again = self.resume(viewer, 2)
        self.assertEqual((again.output, again.ending), (b"nic", DELETED))
        for _ in range(10):
            later.says(bytes(64 * KIB))
        viewer.away()
        again = self.resume(viewer, 2)
        self.assertEqual((again.positions, again.output, again.ending), ([5], b"", DELETED))


class DiskTests(ViewerCase):
    """Output for users who are away, in a journal on disk."""

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(close_segments)
        self.journal = Journal(disk=ManualDisk(self.mktemp()))
        limits = Limits(scrollback_bytes=16 * KIB, lag_bytes=64 * KIB)
        self.console = MemoryConsole()
        self.shared = SharedConsole(self.console, self.clock, journal=self.journal, limits=limits)
        self.successResultOf(self.shared.open())

    def test_everything(self) -> None:
        """Nothing is lost, however long the user was away, and however slowly it is read."""
        viewer, _ = self.attach()
        viewer.away()
        for number in range(100):
            self.console.says(bytes([number]) * 8 * KIB)
        again = self.resume(viewer, 0, capacity=1)
        for number in range(100, 200):
            self.console.says(bytes([number]) * 8 * KIB)
            again.take(12 * KIB)
        again.take()
        self.assertEqual(again.positions, [0])
        expected = b"".join(bytes([number]) * 8 * KIB for number in range(200))
        self.assertEqual(again.output, expected)

    def test_skipped(self) -> None:
        """What a slow user skipped before the loss is there, too, at the true position."""
        viewer, stream = self.attach(capacity=1)
        for _ in range(20):
            self.console.says(bytes(8 * KIB))
        viewer.away()
        self.assertEqual(len(stream.output), 8 * KIB)
        again = self.resume(viewer, 8 * KIB)
        self.assertEqual((again.positions, len(again.output)), ([8 * KIB], 19 * 8 * KIB))

    def test_unknown_gap(self) -> None:
        """After a power cut nobody knows how much is missing."""
        self.console.says(b"before")
        path = self.journal.files.place.path if self.journal.files else ""
        again = Journal(disk=ManualDisk(path, run=2, cut=1))
        shared = SharedConsole(self.console, self.clock, journal=again)
        self.successResultOf(shared.open())
        self.console.says(b"after")
        viewer, stream = shared.viewer(), MarkStream()
        viewer.oldest = Position(again.epoch, 0)
        viewer.resumed(stream, Position(again.epoch, 2))
        first, fore, second, aft, _ = stream.sent
        self.assertEqual((fore, aft), (b"fore", b"after"))
        assert isinstance(first, At) and isinstance(second, At)
        self.assertEqual((first.exact, second.exact), (True, False))
        self.assertEqual(second.position.offset, again.end - 5)
        behind = SharedConsole(self.console, self.clock, journal=again).viewer()
        behind.oldest = Position(again.epoch, 0)
        stream = MarkStream()
        behind.resumed(stream, Position(again.epoch, 100))
        self.assertEqual(stream.sent[0], At(second.position, exact=False))


class PacedTests(ViewerCase):
    """A pty waits for a user who is away."""

    paced = True

    def test_alone(self) -> None:
        """A sole absent user loses nothing: the line waits until the user is back, or has left."""
        viewer, _ = self.attach()
        printed = 0
        for _ in range(40):
            self.console.says(bytes(16 * KIB))
            printed += 16 * KIB
        viewer.away()
        while not self.console.transport.paused:
            self.console.says(bytes(16 * KIB))
            printed += 16 * KIB
        self.clock.advance(30)
        self.assertTrue(self.console.transport.paused)
        begin = 30 * 16 * KIB
        again = self.resume(viewer, begin, capacity=1)
        self.assertTrue(self.console.transport.paused)
        again.take()
        self.assertFalse(self.console.transport.paused)
        self.assertEqual((again.positions, len(again.output)), ([begin], printed - begin))

    def test_leaves(self) -> None:
        """The line goes on when the user has not come back."""
        viewer, _ = self.attach()
        viewer.away()
        while not self.console.transport.paused:
            self.console.says(bytes(16 * KIB))
        viewer.detached("connection lost")
        self.assertFalse(self.console.transport.paused)

    def test_others(self) -> None:
        """The line does not wait for an absent user while another one reads."""
        viewer, _ = self.attach()
        bob = self.watch()
        viewer.away()
        for _ in range(100):
            self.console.says(bytes(16 * KIB))
            self.assertFalse(self.console.transport.paused)
        bob.drop()
        self.assertTrue(self.console.transport.paused)


class EndingTests(ViewerCase):
    """The console ends while the user is away, or the connection is lost with the status."""

    def test_while_away(self) -> None:
        """The user who comes back gets the rest of the output and the ending."""
        viewer, _ = self.attach()
        self.console.says(b"=> reset")
        viewer.away()
        self.console.says(b"\r\nbye")
        self.shared.end(DELETED)
        self.assertEqual(self.shared.viewers, ())
        self.assertEqual(self.kinds()[-1], ("leave", "s"))
        again = self.resume(viewer, 3)
        self.assertEqual(again.sent, [At(self.at(3)), b"reset\r\nbye"])
        self.assertEqual(again.ending, DELETED)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_status_was_lost(self) -> None:
        """As often as the connection is lost with the status, the next one has it again."""
        viewer, stream = self.attach()
        self.console.says(b"bye")
        self.shared.end(DELETED)
        self.assertEqual(stream.ending, DELETED)
        for offset in (3, 0, 1):
            viewer.away()
            again = self.resume(viewer, offset)
            self.assertEqual((again.output, again.ending), (b"bye"[offset:], DELETED))
        viewer.detached("client closed")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_slow(self) -> None:
        """A stream that is lost while it still reads the rest goes on there."""
        viewer, stream = self.attach(capacity=1)
        self.console.says(b"one ")
        self.console.says(b"two")
        self.shared.end(DELETED)
        self.assertIsNone(stream.ending)
        viewer.away()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        again = self.resume(viewer, 2, capacity=1)
        self.assertEqual((again.output, again.ending), (b"e two", DELETED))

    def test_stalled(self) -> None:
        """A client that stalled, was ended, and comes back gets the rest."""
        viewer, stream = self.attach(capacity=1)
        self.console.says(b"one ")
        self.console.says(b"two")
        self.shared.end(DELETED)
        self.clock.advance(11)
        self.assertEqual((stream.output, stream.ending), (b"one ", DELETED))
        viewer.away()
        again = self.resume(viewer, 4, capacity=0)
        self.assertIsNone(again.ending)
        self.clock.advance(9)
        again.take()
        self.assertEqual((again.output, again.ending), (b"two", DELETED))

    def test_newer_stream_wins(self) -> None:
        """The rest goes to the newest stream only."""
        viewer, stream = self.attach(capacity=1)
        self.console.says(b"one ")
        self.console.says(b"two")
        self.shared.end(DELETED)
        again = self.resume(viewer, 0)
        self.assertEqual((stream.output, stream.ending), (b"one ", None))
        self.assertEqual((again.output, again.ending), (b"one two", DELETED))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_check(self) -> None:
        """The output of a session ends where its console ended."""
        viewer, _ = self.attach()
        self.console.says(b"bye")
        viewer.away()
        self.shared.end(DELETED)
        self.shared.journal.append(b"boot")
        self.assertRaises(BadRequest, viewer.check, self.at(4))
        self.assertEqual(self.resume(viewer, 3).output, b"")

    def test_notices(self) -> None:
        """Notices of the time before the end are still delivered."""
        viewer, _ = self.attach()
        viewer.away()
        self.console.line.notice_received(notice("the console line is lost"))
        self.shared.end(DELETED)
        self.shared.journal.append(b"boot")
        self.assertEqual(self.resume(viewer, 0).notices, ["the console line is lost"])

    def test_place(self) -> None:
        """A session that has ended has no place, and needs none."""
        few = Terms(viewers=1)
        viewer, _ = self.attach(terms=few)
        viewer.finish(Ending(COMPLETED))
        viewer.away()
        self.watch(terms=few)
        again = self.resume(viewer, 0, terms=few)
        self.assertEqual(again.ending, Ending(COMPLETED))
        self.assertEqual(len(self.shared.viewers), 1)

    def test_quiet(self) -> None:
        """A script whose input has ended does not end before its user has read the output."""
        viewer, _ = self.attach()
        viewer.input_ended()
        viewer.away()
        self.console.says(b"done")
        self.clock.advance(30)
        again = self.resume(viewer, 0)
        self.assertEqual((again.output, again.ending), (b"done", None))
        self.clock.advance(4)
        assert again.ending is not None
        self.assertTrue(again.ending.ok)
        viewer.away()
        self.assertEqual(self.resume(viewer, 0).ending, again.ending)

    def test_quiet_without_output(self) -> None:
        """Neither does one whose machine prints nothing."""
        viewer, _ = self.attach()
        viewer.input_ended()
        viewer.away()
        self.clock.advance(30)
        self.assertTrue(viewer.is_away)
        self.assertFalse(viewer.is_ending)
        viewer.detached("connection lost")
        self.assertEqual(self.clock.getDelayedCalls(), [])
