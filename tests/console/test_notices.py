"""Tests for :mod:`twisted_exec.console.notices`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.console.test_floor import Person, people_with_notices
from tests.retained import weight
from twisted_exec.console.floor import ANNOUNCE_SECONDS, Floor
from twisted_exec.console.notices import (
    HINT,
    RESTARTED,
    WAITS,
    RoleNotices,
    notice,
    understood,
    with_kind,
)
from twisted_exec.streaming.interfaces import Role
from twisted_exec.streaming.remotecommand.server import MAY_OBSERVE
from twisted_exec.wire.marks import OPTION, Notice, NoticeKind, NoticeRole, not_sent
from twisted_exec.wire.notices import decode_notice
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE


class RoleNoticesTests(SynchronousTestCase):
    """Tests for :class:`RoleNotices`."""

    def test_acts(self) -> None:
        """Whoever reads the notices knows the role after each act."""
        floor, ann, bob = Floor(Clock()), Person("ann"), Person("bob")
        readers = {ann: RoleNotices(), bob: RoleNotices()}
        for act in (
            lambda: floor.join(ann),
            lambda: floor.join(bob),
            lambda: floor.request_role(bob, Role.WRITER),
            lambda: floor.request_role(bob, Role.OBSERVER),
            lambda: floor.request_role(ann, Role.WRITER),
            lambda: floor.request_role(ann, Role.WRITER),
        ):
            act()
            for person in (ann, bob):
                if person in floor:
                    readers[person].feed(person.news().encode())
                    self.assertIsNot(readers[person].is_observer, person.writes)

    def test_not_sent(self) -> None:
        """The notice that input is discarded has the reason."""
        floor, ann, bob = Floor(Clock()), Person("ann"), Person("bob", may_take_over=False)
        floor.join(ann)
        for notice_, why in (
            (floor.refusal(ann), "the writer of this console is ann, in another session"),
            (floor.refusal(bob), "the writer of this console is ann"),
            (not_sent('line "vm" was lost: refused'), 'line "vm" was lost: refused'),
            (MAY_OBSERVE, MAY_ONLY_OBSERVE),
        ):
            notices = RoleNotices()
            self.assertEqual(notices.not_sent, "")
            notices.feed(notice_.output)
            self.assertEqual(notices.not_sent, why)
            notices = RoleNotices()
            notices.read(notice_)
            self.assertEqual(notices.not_sent, why)

    def test_interruption(self) -> None:
        """The notices say that the machine has ended, also when it has started again."""
        text = f"the emulator ended; {WAITS} 60 s for the machine to start again"
        for notice_ in (
            Notice(text, NoticeKind.INTERRUPTED, why="the emulator ended"),
            understood(text),
        ):
            notices = RoleNotices()
            notices.read(notice_)
            self.assertEqual(notices.interruption, "the emulator ended")
            self.assertTrue(notices.is_off)
            notices.read(RESTARTED)
            self.assertEqual(notices.interruption, "the emulator ended")
            self.assertFalse(notices.is_off)

    def test_earlier_release(self) -> None:
        """
        A machine that has started again has a kind of its own, also in output, and for a mark of release 0.2.0.

        A notice with a kind, and every other text, stays as it is.
        """
        text = "the machine has started again"
        self.assertEqual(understood(text), RESTARTED)
        self.assertEqual(with_kind(Notice(text)), RESTARTED)
        self.assertIs(RESTARTED.kind, NoticeKind.RESTARTED)
        for other in (RESTARTED, Notice(f"{text}!"), Notice(text, NoticeKind.SAID)):
            self.assertIs(with_kind(other), other)

    def test_rights(self) -> None:
        """Whoever reads the notices knows that the user may not type, and when it may again."""
        floor, ann = Floor(Clock()), Person("ann", may_take_over=False)
        bob = Person("bob", may_take_over=False)
        floor.join(ann)
        floor.join(bob)
        reader = RoleNotices()
        reader.feed(bob.news().encode())
        self.assertEqual((reader.is_observer, reader.is_denied), (True, False))
        for may_write in (False, True):
            bob.may_write, bob.is_denied = may_write, not may_write
            floor.right_to_write_changed(bob)
            reader.feed(bob.news().encode())
            self.assertEqual((reader.is_observer, reader.is_denied), (True, not may_write))
        self.assertEqual(reader.not_sent, "")
        floor.leave(ann)
        floor.request_role(bob, Role.WRITER)
        reader.feed(bob.news().encode())
        self.assertEqual((reader.is_observer, reader.is_denied), (False, False))

    def test_writer(self) -> None:
        """Whoever reads the notices knows the name of another writer."""
        clock = Clock()
        floor, ann, bob = Floor(clock), Person("ann"), Person("bob", may_take_over=False)
        ann_reader, bob_reader = RoleNotices(), RoleNotices()
        writers = []
        for act in (
            lambda: floor.join(ann),
            lambda: floor.join(bob),
            lambda: floor.request_role(bob, Role.WRITER),
            lambda: floor.request_role(ann, Role.OBSERVER),
            lambda: floor.request_role(bob, Role.WRITER),
            lambda: floor.request_role(ann, Role.WRITER),
            lambda: floor.leave(ann),
        ):
            act()
            clock.advance(ANNOUNCE_SECONDS)
            ann_reader.feed(ann.news().encode())
            bob_reader.feed(bob.news().encode())
            writers.append((ann_reader.writer, bob_reader.writer))
        self.assertEqual(
            writers,
            [
                ("", ""),
                ("", "ann"),
                ("", "ann"),
                ("nobody", "nobody"),
                ("nobody", ""),
                ("", "ann"),
                ("", "nobody"),
            ],
        )
        other = Person("ann")
        floor.join(ann, force=True)
        floor.join(other)
        floor.request_role(other, Role.WRITER)
        ann_reader.feed(ann.news().encode())
        self.assertEqual(ann_reader.writer, "ann")

    def test_marks(self) -> None:
        """The kind of a notice that came as a mark counts, and not its text."""
        reader = RoleNotices()
        text = f"the writer of this console is ann; you are an observer {HINT}"
        reader.read(Notice(text))
        self.assertEqual((reader.is_observer, reader.writer), (False, ""))
        reader.read(Notice(text, NoticeKind.ROLE, NoticeRole.OBSERVER, "ann"))
        reader.read(Notice("the console line is back"))
        self.assertEqual((reader.is_observer, reader.writer), (True, "ann"))

    def test_in_output(self) -> None:
        """
        A notice in the output names no key, which stock kubectl does not have; our client knows the key.

        Notices of earlier releases name the key, and mean the same.
        """
        text = f"the writer of this console is ann; you are an observer {HINT}"
        made = Notice(text, NoticeKind.ROLE, NoticeRole.OBSERVER, "ann", hint=HINT)
        shown = decode_notice(made.output)
        self.assertEqual(
            shown, "the writer of this console is ann; you are an observer (--force takes over)"
        )
        self.assertEqual([understood(shown), understood(text)], [made, made])

    def test_any_split(self) -> None:
        """A notice is recognised wherever the output is split."""
        text = b"x" + notice(f"ada has left; this console has no writer {HINT}") + b"y"
        for cut in range(len(text)):
            notices = RoleNotices()
            notices.feed(text[:cut])
            notices.feed(text[cut:])
            self.assertTrue(notices.is_observer, cut)

    def test_other_output(self) -> None:
        """Notices about other things, and output that resembles a notice, change nothing."""
        notices = RoleNotices()
        notices.feed(notice("the console line is back"))
        notices.feed(f"[twisted-exec: {HINT}]\r\n".encode())
        notices.feed(f"\r\n[twisted-exec: {'x' * 5000} {HINT}]\r\n".encode())
        self.assertFalse(notices.is_observer)
        self.assertLess(weight(notices), 2000)


class KindTests(SynchronousTestCase):
    """What notices say to programs, and what names in them cannot say."""

    def test_wording(self) -> None:
        """The wording, which counts where notices come in output, says the same as the kind."""
        found = set()
        for person in people_with_notices():
            for told in person.notices:
                self.assertEqual(understood(told.text), told)
                found.add((told.kind, told.role))
        self.assertEqual(
            found,
            {
                (NoticeKind.MESSAGE, None),
                (NoticeKind.DISCARDED, NoticeRole.OBSERVER),
                (NoticeKind.DISCARDED, NoticeRole.DENIED),
                *((NoticeKind.ROLE, role) for role in NoticeRole),
            },
        )

    def test_names(self) -> None:
        """
        No name of a user changes the role that another user's client believes in.

        The wording of a notice with a hostile name may be ambiguous, but it is never taken for another role, nor
        for a reason to end a script.
        """
        texts = {each.text for person in people_with_notices() for each in person.notices}
        ends = (
            f"; {WAITS} 60 s for the machine to start again",
            f"what you type is not sent: {HINT}",
            f"what you type is not sent: {OPTION}",
        )
        names = {part for text in (*texts, *ends) for part in (text, text[:63], text[-62:])}
        told_apart = 0
        for name in sorted(names):
            for person in (*people_with_notices(ada=name), *people_with_notices(bob=name)):
                for told in person.notices:
                    for text in (told.text, decode_notice(told.output)):
                        read = understood(text)
                        self.assertIn(read.role, (None, told.role), told)
                        self.assertIn(read.kind, (NoticeKind.MESSAGE, told.kind), told)
                        told_apart += read.kind is told.kind
        self.assertGreater(told_apart, 1000)

    def test_taken_over(self) -> None:
        """A user who has taken over is the writer, also from a user whose name reads like a hint."""
        floor, ada, bob = Floor(Clock()), Person(HINT), Person("bob")
        for act in (
            lambda: floor.join(ada),
            lambda: floor.join(bob),
            lambda: floor.request_role(bob, Role.WRITER),
        ):
            act()
        for is_marked in (True, False):
            reader = RoleNotices()
            for told in bob.notices:
                reader.read(told if is_marked else understood(told.text))
            self.assertFalse(reader.is_observer)

    def test_back(self) -> None:
        """An observer stays one when a user is back whose name reads like a notice to the writer."""
        floor, ada, bob = (
            Floor(Clock()),
            Person("you are the writer of this console"),
            Person("bob"),
        )
        floor.join(ada)
        floor.join(bob)
        ada.is_away = True
        floor.follow_presence()
        ada.is_away = False
        floor.follow_presence()
        for is_marked in (True, False):
            reader = RoleNotices()
            for told in bob.notices[:-1]:
                reader.read(told)
            last = bob.notices[-1]
            reader.read(last if is_marked else understood(last.text))
            self.assertTrue(reader.is_observer)
