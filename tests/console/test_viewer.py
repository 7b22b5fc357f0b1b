"""
Tests for :mod:`twisted_exec.console.viewer`: marks, pace and endings.
"""

from __future__ import annotations

from zope.interface.verify import verifyObject

from twisted_exec.api.status import BadRequest
from twisted_exec.console.notices import HINT, notice
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    TOO_MANY_VIEWERS,
    Ending,
    IMarkTransport,
    IOperable,
    IResumableAttachment,
)
from twisted_exec.wire.marks import At, Notice, NoticeKind, NoticeRole
from twisted_exec.wire.session_terms import Terms

from .viewer_case import DELETED, KIB, ViewerCase


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

    def test_begins_with_a_gap(self) -> None:
        """A user is told if all that was printed before is missing."""
        self.shared.journal.missed()
        self.console.says(b"=> ")
        _, stream = self.attach()
        self.assertEqual(stream.sent[:2], [At(self.at(0), exact=False), b"=> "])
        self.assertIn(b"output is missing here]\r\n=> ", self.watch().got)

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
        _, stream = self.attach(user="bob")
        self.console.line.notice_received(notice("the console line is lost"))
        self.console.line.notice_received(b"\r\n[other]\r\n")
        self.console.says(b"x")
        role = Notice(
            f"the writer of this console is ann; you are an observer {HINT}",
            NoticeKind.ROLE,
            NoticeRole.OBSERVER,
            writer="ann",
            hint=HINT,
        )
        marks = [role, Notice("the console line is lost"), Notice("[other]")]
        self.assertEqual(stream.sent, [At(self.at(0)), b"=> ", *marks, b"x"])

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
        self.assertTrue(again.ending.is_success)
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
