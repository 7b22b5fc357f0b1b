"""
Tests for :mod:`twisted_exec.console.viewer`: viewers whose connection is lost, beside others.
"""

from __future__ import annotations

from dataclasses import replace

from twisted_exec.api.status import TooManyRequests
from twisted_exec.console.floor import ANNOUNCE_SECONDS
from twisted_exec.console.notices import HINT, WAIT, notice
from twisted_exec.streaming.interfaces import Break, Role, TerminalSize
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.marks import OPTION, At, Notice, NoticeRole
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE, Right, Terms
from twisted_exec.wire.stream_options import StreamOptions

from .viewer_case import EYES, LOST, MISSING, READ_ONLY, ViewerCase


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
        self.assertEqual(bob.since(), notice(LOST + OPTION))
        self.assertEqual(eve.since(), notice(LOST + WAIT))
        self.assertIs(viewer.role, Role.WRITER)
        bob.viewer.data_received(b"x")
        self.assertIn(b"not sent: " + (LOST + OPTION).encode(), bob.since())
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
        self.assertEqual(bob.since(), notice(LOST + OPTION))
        third = self.watch("ann")
        self.assertEqual(bob.since(), notice("ann is back"))
        self.assertIs(third.viewer.role, Role.WRITER)
        self.resume(viewer, 0)
        self.assertEqual(bob.since(), b"")
        for each in (viewer, third.viewer):
            each.wished(Role.OBSERVER)
        self.assertEqual(bob.since(), notice(LOST + OPTION))
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
        at, prompt, told, rest = again.sent
        self.assertEqual((at, prompt, rest), (At(self.at(0)), b"=> ", b"x"))
        assert isinstance(told, Notice)
        self.assertEqual((told.role, told.writer), (NoticeRole.OBSERVER, "bob"))
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

    def test_agent(self) -> None:
        """An agent counts as its person, so a person and their agent are one, and another person makes two."""
        bob = self.watch(terms=EYES)
        self.watch("agent:bob:bot")
        bob.viewer.data_received(b"x")
        self.assertEqual(self.console.heard(), b"")
        self.watch("agent:eve:bot")
        bob.viewer.data_received(b"y")
        self.assertEqual(self.console.heard(), b"y")

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

    def test_size_of_those_who_are_here(self) -> None:
        """
        A session that has left, is away or only observes leaves its size to another session of its user; an
        observer's size counts for nobody.
        """
        desk, phone_size = TerminalSize(120, 40), TerminalSize(45, 30)
        first, _ = self.attach()
        first.window_changed(desk)
        self.watch().viewer.window_changed(TerminalSize(200, 50))
        for leave in (
            lambda phone: phone.away(),
            lambda phone: phone.detached("left"),
            lambda phone: phone.wished(Role.OBSERVER),
        ):
            phone, _ = self.attach()
            phone.window_changed(phone_size)
            self.assertEqual(self.console.sizes[-1], phone_size)
            leave(phone)
            self.assertEqual(self.console.sizes[-1], desk)
        first.away()
        self.assertEqual(self.console.sizes[-1], desk)

    def test_size(self) -> None:
        """The last size counts for a session that gets the floor while its user is away."""
        viewer, _ = self.attach()
        viewer.window_changed(TerminalSize(80, 24))
        viewer.away()
        self.resume(viewer, 0)
        self.assertEqual(self.console.sizes, [TerminalSize(80, 24)])
