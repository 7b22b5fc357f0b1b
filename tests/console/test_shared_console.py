"""
Tests for :mod:`twisted_exec.console.shared_console` and :mod:`twisted_exec.console.viewer`.
"""

from __future__ import annotations

import gc
import itertools
from dataclasses import replace
from typing import Any
from weakref import WeakSet

from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectionRefusedError, ProcessDone, ProcessTerminated
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import ServiceUnavailable, TooManyRequests
from twisted_exec.console import acts
from twisted_exec.console.floor import not_sent, notice
from twisted_exec.console.line import LineEnded
from twisted_exec.console.shared_console import UNWATCHED_BYTES_PER_SECOND, SharedConsole
from twisted_exec.console.viewer import Viewer
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    CONSOLE_IN_USE,
    INPUT_DENIED,
    LINE_LOST,
    MACHINE_DELETED,
    TOO_MANY_VIEWERS,
    Break,
    Ending,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.server import NO_BREAK
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.remotecommand.messages import encode_gap
from twisted_exec.wire.session_terms import FULL, MAY_ONLY_OBSERVE, Right, Terms
from twisted_exec.wire.stream_options import StreamOptions

from .doubles import BreakableConsole, MemoryConsole, MemoryStream, OpenConsoleCase

KIB = 1 << 10
DELETED = Ending(MACHINE_DELETED, 'machine "default/x" was deleted')
OBSERVE, DRIVE = Terms(right=Right.OBSERVE), Terms(right=Right.DRIVE)

DENIED_TO_BOB = (acts.INPUT_DENIED, "bob", "ann")


class SharedConsoleCase(OpenConsoleCase):
    """A console whose line is open, and streams without marks."""

    def attach(self, shared: SharedConsole | None = None, **options: Any) -> MemoryStream:
        return MemoryStream((shared or self.shared).viewer(), **options)


class TrafficTests(SharedConsoleCase):
    """Input and output."""

    def test_output(self) -> None:
        """All viewers see the output."""
        ann, bob = self.attach(), self.attach()
        self.console.says(b"=> ")
        self.assertEqual((ann.since(), bob.since()), (b"=> ", b"=> "))

    def test_notices(self) -> None:
        """A notice of the line is shown to the viewers; the journal has only the machine's output."""
        ann = self.attach()
        self.console.says(b"=> ")
        self.console.line.notice_received(b"[lost]")
        self.console.says(b"boot\r\n")
        self.assertEqual(ann.since(), b"=> [lost]boot\r\n")
        self.assertEqual(self.shared.journal.read(0, 99), b"=> boot\r\n")
        self.assertEqual(self.attach().since(), b"=> boot\r\n")

    def test_events(self) -> None:
        """The journal records sizes, viewers, and who of them may type."""
        ann = self.attach()
        ann.viewer.window_changed(TerminalSize(80, 24))
        self.attach()
        ann.viewer.detached("gone")
        events = [
            (each.kind, each.data.get("role", "")) for each in self.shared.journal.events(0, 0)
        ]
        self.assertEqual(
            events[:4],
            [("join", "observer"), ("role", "writer"), ("size", ""), ("join", "observer")],
        )
        self.assertIn(("leave", ""), events)

    def test_input(self) -> None:
        """All sessions of the writing user may type."""
        first, other = self.attach(), self.attach()
        first.viewer.data_received(b"ver")
        other.viewer.data_received(b"sion\r")
        self.assertEqual(self.console.heard(), b"version\r")

    def test_32_scrollback(self) -> None:
        """A later viewer reads the earlier output first."""
        self.console.says(b"U-Boot 2023.01\r\n")
        self.console.says(b"=> ")
        late = self.attach()
        self.console.says(b"x")
        self.assertEqual(late.since(), b"U-Boot 2023.01\r\n=> x")

    def test_scrollback_is_bounded(self) -> None:
        """The scrollback is the last 256 KiB, exactly."""
        whole = bytes(itertools.islice(itertools.cycle(range(251)), 1_000_000))
        for at in range(0, len(whole), 4096):
            self.console.says(whole[at : at + 4096])
        self.assertEqual(self.attach().since(), whole[-256 * KIB :])

    def test_line_outlives_viewers(self) -> None:
        """The line stays open and its output is stored without viewers."""
        self.attach().drop()
        self.console.says(b"while you were away")
        self.assertFalse(self.console.closed)
        self.assertEqual(self.attach().since(), b"while you were away")

    def test_audit_counts(self) -> None:
        """A viewer counts bytes in both directions, without our marks."""
        ann = self.attach()
        ann.viewer.data_received(b"abc")
        self.console.says(b"12345")
        self.assertEqual((ann.viewer.bytes_to_machine, ann.viewer.bytes_to_user), (3, 5))
        self.assertEqual(ann.viewer.user, "ann")

    def test_resize(self) -> None:
        """The latest size of anyone is applied."""
        ann, bob = self.attach(), self.attach()
        ann.viewer.window_changed(TerminalSize(80, 24))
        bob.viewer.window_changed(TerminalSize(132, 50))
        self.assertEqual(self.console.sizes, [TerminalSize(80, 24), TerminalSize(132, 50)])

    def test_line_takes_no_more(self) -> None:
        """
        While the line accepts no input, all viewers' input is paused, including that of new
        viewers.
        """
        ann = self.attach()
        producer = self.console.transport.producer
        producer.pauseProducing()
        bob = self.attach()
        self.assertEqual((ann.input_paused, bob.input_paused), (True, True))
        producer.resumeProducing()
        self.assertEqual((ann.input_paused, bob.input_paused), (False, False))


class RoleTests(SharedConsoleCase):
    """Several users of one console."""

    def setUp(self) -> None:
        super().setUp()
        self.ann = self.attach()
        self.console.says(b"=> ")

    def test_second_user(self) -> None:
        """
        A second user sees all output, gets a notice with the writer's name, and one that input is
        discarded.
        """
        bob = self.attach(user="bob")
        scrollback, _, output = bob.since().partition(b"\r\n")
        self.assertEqual(scrollback, b"=> ")
        self.assertIn(b"the writer of this console is ann; you are an observer", output)
        for key in b"reset":
            bob.viewer.data_received(bytes((key,)))
        self.assertEqual(self.console.heard(), b"")
        self.assertEqual(bob.since(), self.shared.floor.refusal(bob.viewer))
        self.assertEqual(bob.viewer.bytes_to_machine, 0)
        self.assertEqual(self.ann.since(), b"=> ")

    def test_29_take_over(self) -> None:
        """
        After a take-over the new writer's input and window size count, and the old writer gets a
        notice.
        """
        bob = self.attach(user="bob")
        bob.viewer.window_changed(TerminalSize(132, 50))
        self.ann.viewer.window_changed(TerminalSize(80, 24))
        bob.viewer.wished(Role.WRITER)
        bob.viewer.data_received(b"b")
        self.ann.viewer.data_received(b"a")
        self.assertEqual(self.console.heard(), b"b")
        self.assertIn(b"bob has taken over this console; you are an observer", self.ann.since())
        self.assertEqual(self.console.sizes, [TerminalSize(80, 24), TerminalSize(132, 50)])
        self.ann.viewer.window_changed(TerminalSize(81, 25))
        self.assertEqual(len(self.console.sizes), 2)

    def test_acts(self) -> None:
        """
        A take-over from another user and discarded input are reported; keys of one session once a
        minute.
        """
        reported: list[acts.Act] = []
        shared = SharedConsole(self.console, self.clock, acted=reported.append)
        ann = self.attach(shared)
        bob = self.attach(shared, user="bob")
        for key in b"reset":
            bob.viewer.data_received(bytes((key,)))
        self.assertEqual([(each.kind, each.user, each.other) for each in reported], [DENIED_TO_BOB])
        self.assertIn("the writer of this console is ann", reported[0].message)
        self.clock.advance(59)
        bob.viewer.data_received(b"x")
        self.assertEqual(len(reported), 1)
        self.clock.advance(1)
        bob.viewer.data_received(b"x")
        self.assertEqual(len(reported), 2)
        bob.viewer.wished(Role.WRITER)
        self.assertEqual(
            (reported[2].kind, reported[2].user, reported[2].other), (acts.TAKEOVER, "bob", "ann")
        )
        self.assertEqual(reported[2].session, bob.viewer.session)
        self.attach(shared, user="bob").viewer.wished(Role.WRITER)  # from oneself
        ann.viewer.wished(Role.WRITER)
        bob.viewer.wished(Role.WRITER)
        self.assertEqual([each.user for each in reported[3:]], ["ann", "bob"])
        for _ in range(100):  # scripts
            ann.viewer.wished(Role.WRITER)
            bob.viewer.wished(Role.WRITER)
        self.assertEqual(len(reported), 2 + 40)

    def test_denied_take_overs(self) -> None:
        """A denied take-over is reported once a minute for each user, whatever the number of sessions."""
        reported: list[acts.Act] = []
        shared = SharedConsole(self.console, self.clock, acted=reported.append)
        self.attach(shared)
        for user in ("bob", "bob", "eve"):
            session = self.attach(shared, user=user)
            session.viewer.terms_changed(DRIVE)
            session.viewer.wished(Role.WRITER)
        found = [(each.kind, each.user, each.other) for each in reported]
        denied = acts.TAKEOVER_DENIED
        self.assertEqual(found, [(denied, "bob", "ann"), (denied, "eve", "ann")])
        self.assertEqual(reported[0].message, "bob may not take over the console from ann")
        self.clock.advance(60)
        session.viewer.wished(Role.WRITER)
        self.assertEqual(len(reported), 3)

    def test_break_is_the_writers(self) -> None:
        """An observer cannot send BREAK."""
        console = BreakableConsole()
        shared = SharedConsole(console, self.clock)
        self.successResultOf(shared.open())
        self.attach(shared)
        bob = self.attach(shared, user="bob")
        bob.viewer.wished(Break())
        self.assertEqual(console.breaks, [])
        self.assertIn(b"what you type is not sent: the writer of this console is ann", bob.since())
        bob.viewer.wished(Role.WRITER)
        bob.viewer.wished(Break())
        self.assertEqual(console.breaks, [250])

    def test_force(self) -> None:
        """A session may take over when it joins."""
        bob = self.attach(user="bob", options=StreamOptions(force=True))
        bob.viewer.data_received(b"b")
        self.assertEqual(self.console.heard(), b"b")
        self.assertIn(b"bob has taken over", self.ann.since())

    def test_read_only(self) -> None:
        """A read-only session gets no notices about roles."""
        eve = self.attach(user="eve", options=StreamOptions(read_only=True, force=True))
        self.assertEqual(eve.since(), b"=> ")
        self.ann.drop()
        self.assertEqual(eve.since(), b"")
        self.assertTrue(self.attach(user="bob").viewer.role is Role.WRITER)

    def test_told_again(self) -> None:
        """After the writer has changed, an observer who types gets another notice."""
        bob = self.attach(user="bob")
        bob.viewer.data_received(b"x")
        bob.since()
        bob.viewer.data_received(b"x")
        self.assertEqual(bob.since(), b"")
        self.ann.drop()
        self.assertIn(b"ann has left; this console has no writer", bob.since())
        bob.viewer.data_received(b"x")
        self.assertIn(b"not sent: this console has no writer", bob.since())

    def test_script(self) -> None:
        """A script whose input was discarded fails with the reason."""
        script = self.attach(user="ci")
        script.viewer.data_received(b"version\r")
        script.viewer.input_ended()
        message = "the input was not sent: the writer of this console is ann"
        self.assertEqual(script.ending, Ending(CONSOLE_IN_USE, message))

    def test_script_in_time(self) -> None:
        """A script that took over succeeds."""
        script = self.attach(user="ci")
        script.viewer.data_received(b"x")
        script.viewer.wished(Role.WRITER)
        script.viewer.data_received(b"version\r")
        script.viewer.input_ended()
        self.clock.advance(3)
        assert script.ending is not None
        self.assertTrue(script.ending.ok)

    def test_slow_reader(self) -> None:
        """Notices keep their place in the output for a slow reader, and their number is bounded."""
        slow = self.attach(room=3, user="bob")
        self.console.says(b"before")
        for _ in range(1000):
            slow.viewer.wished(Role.OBSERVER)
            slow.viewer.wished(Role.WRITER)
        self.console.says(b"after")
        self.assertLessEqual(len(slow.viewer.output._notices), 16)
        slow.take(1 << 20)
        got = slow.since()
        self.assertEqual((got[:3], got[-5:]), (b"=> ", b"after"))
        self.assertTrue(
            got.split(b"before")[1].endswith(b"you are the writer of this console]\r\nafter")
        )

    def test_end(self) -> None:
        """After the end of the line there are no notices about roles."""
        bob = self.attach(user="bob")
        bob.since()
        self.shared.end(DELETED)
        self.assertEqual((bob.since(), bob.ending), (b"", DELETED))


class RightTests(SharedConsoleCase):
    """What users may do at a console."""

    def test_only_observe(self) -> None:
        """
        A user without the right to drive is an observer; a notice says so once, and again after the
        right was there meanwhile.
        """
        eve = self.attach(user="eve", terms=OBSERVE, options=StreamOptions(force=True))
        self.assertEqual(eve.since(), notice(MAY_ONLY_OBSERVE))
        self.assertNotIn("~f", MAY_ONLY_OBSERVE)
        eve.viewer.data_received(b"x")  # a stream that does not enforce the right
        for _ in range(3):
            eve.viewer.input_refused()
        self.assertEqual(eve.since(), not_sent(MAY_ONLY_OBSERVE))
        eve.hold_to(DRIVE)
        eve.hold_to(OBSERVE)
        eve.since()
        eve.viewer.input_refused()
        self.assertEqual(eve.since(), not_sent(MAY_ONLY_OBSERVE))
        self.assertEqual((self.console.heard(), eve.viewer.role), (b"", Role.OBSERVER))
        self.assertIs(self.attach().viewer.role, Role.WRITER)

    def test_only_observe_without_input(self) -> None:
        """A session that did not ask for input gets no such notice."""
        for options in (StreamOptions(read_only=True), StreamOptions(frozenset({Channel.STDOUT}))):
            eve = self.attach(user="eve", terms=OBSERVE, options=options)
            eve.viewer.wished(Role.WRITER)
            eve.hold_to(DRIVE)
            eve.hold_to(OBSERVE)
            self.assertEqual((eve.since(), eve.viewer.role), (b"", Role.OBSERVER))

    def test_only_observe_asks_for_the_floor(self) -> None:
        """Each request of such a user for the floor, or for BREAK, is answered."""
        eve = self.attach(user="eve", terms=OBSERVE)
        eve.since()
        eve.viewer.wished(Role.WRITER)
        self.assertEqual(eve.since(), notice(MAY_ONLY_OBSERVE))
        eve.viewer.wished(Break())
        self.assertEqual(eve.since(), not_sent(MAY_ONLY_OBSERVE))
        self.assertIs(eve.viewer.role, Role.OBSERVER)

    def test_script_may_only_observe(self) -> None:
        """A script whose user may only observe fails with the reason, but not without input."""
        for types in (True, False):
            script = self.attach(user="ci", terms=OBSERVE)
            if types:
                script.viewer.input_refused()
            script.viewer.input_ended()
            self.clock.advance(3)
            ending = Ending(INPUT_DENIED, f"the input was not sent: {MAY_ONLY_OBSERVE}")
            self.assertEqual(script.ending == ending, types)
            self.assertIsNotNone(script.ending)

    def test_drive_is_lost(self) -> None:
        """With the right to drive a writer loses the floor; it and the waiting users get notices."""
        ann, bob = self.attach(), self.attach(user="bob")
        bob.since()
        ann.hold_to(OBSERVE)
        self.assertIs(ann.viewer.role, Role.OBSERVER)
        self.assertEqual(ann.since(), notice(f"from now on {MAY_ONLY_OBSERVE}"))
        self.assertIn(b"ann may no longer type; this console has no writer (~f", bob.since())
        ann.viewer.data_received(b"a")
        bob.viewer.wished(Role.WRITER)
        bob.viewer.data_received(b"b")
        self.assertEqual(self.console.heard(), b"b")
        roles = [e.data.get("role") for e in self.shared.journal.events(0, 0) if e.kind == "role"]
        self.assertEqual(roles, ["writer", "observer", "writer"])

    def test_drive_returns(self) -> None:
        """
        With the right to drive again the session stays an observer, because keys that its user has
        typed in vain must not reach the machine, and it may ask for the floor.
        """
        ann = self.attach()
        ann.hold_to(OBSERVE)
        ann.since()
        ann.hold_to(DRIVE)
        self.assertIn(b"you may type at this console again; this console has no", ann.since())
        ann.viewer.data_received(b"a")
        self.assertEqual(self.console.heard(), b"")
        ann.viewer.wished(Role.WRITER)
        ann.viewer.data_received(b"b")
        self.assertEqual(self.console.heard(), b"b")

    def test_takeover_is_lost(self) -> None:
        """Without the right to take over, the writer stays the writer."""
        ann = self.attach()
        ann.hold_to(DRIVE)
        ann.viewer.data_received(b"a")
        self.assertEqual((self.console.heard(), ann.since()), (b"a", b""))

    def test_force(self) -> None:
        """A session without the right to take over does not take over when it joins."""
        ann = self.attach()
        bob = self.attach(user="bob", terms=DRIVE, options=StreamOptions(force=True))
        self.assertEqual(ann.since(), b"")
        self.assertIn(b"you may not take over this console; its writer is ann (wait", bob.since())
        self.assertEqual((ann.viewer.role, bob.viewer.role), (Role.WRITER, Role.OBSERVER))
        bob.hold_to(FULL)
        bob.viewer.wished(Role.WRITER)
        self.assertEqual((ann.viewer.role, bob.viewer.role), (Role.OBSERVER, Role.WRITER))


class PeopleTests(SharedConsoleCase):
    """A console that gets input only while several users are connected."""

    eyes = Terms(people=2, policy="default/eyes")
    missing = "ConsolePolicy default/eyes needs 2 people at this console, 1 is connected"

    def test_alone(self) -> None:
        """The input of a user alone is discarded, with a notice, and does not arrive later."""
        ann = self.attach(terms=self.eyes)
        self.assertEqual(ann.since(), notice(f"the machine gets no input: {self.missing}"))
        for key in b"reboot":
            ann.viewer.data_received(bytes((key,)))
        ann.viewer.wished(Break())
        self.assertEqual(ann.since(), not_sent(self.missing))
        self.attach(user="bob", options=StreamOptions(read_only=True))
        self.assertEqual(self.console.heard(), b"")
        self.assertEqual((ann.viewer.bytes_to_machine, ann.viewer.role), (0, Role.WRITER))

    def test_another_person(self) -> None:
        """
        With another user, whatever that user's right, the machine gets input, until one of them
        leaves; the writer gets a notice at each change.
        """
        ann = self.attach(terms=self.eyes)
        ann.since()
        bob = self.attach(user="bob", terms=replace(OBSERVE, people=2))
        self.assertEqual(ann.since(), notice("the machine gets input now"))
        ann.viewer.data_received(b"a")
        eve = self.attach(user="eve", options=StreamOptions(read_only=True))
        bob.drop()
        self.assertEqual(ann.since(), b"")
        eve.drop()
        self.assertEqual(ann.since(), notice(f"the machine gets no input: {self.missing}"))
        ann.viewer.data_received(b"b")
        self.assertEqual(ann.since(), not_sent(self.missing))
        self.assertEqual((self.console.heard(), eve.since()), (b"a", b""))

    def test_break(self) -> None:
        """BREAK is input, too."""
        console = BreakableConsole()
        shared = SharedConsole(console, self.clock)
        self.successResultOf(shared.open())
        ann = self.attach(shared, terms=self.eyes)
        ann.viewer.wished(Break())
        self.assertEqual(console.breaks, [])
        self.assertIn(not_sent(self.missing), ann.since())
        self.attach(shared, user="bob")
        ann.viewer.wished(Break())
        self.assertEqual(console.breaks, [250])

    def test_told_again(self) -> None:
        """A writer who types after the other user has left again gets the notice again."""
        ann = self.attach(terms=self.eyes)
        for _ in range(2):
            ann.since()
            for _ in range(2):
                ann.viewer.data_received(b"x")
            self.assertEqual(ann.since(), not_sent(self.missing))
            self.attach(user="bob").drop()
        ann.viewer.input_ended()
        assert ann.ending is not None
        self.assertEqual(ann.ending.reason, INPUT_DENIED)

    def test_distinct(self) -> None:
        """Further sessions of one user, and users without a name, do not count as people."""
        ann = self.attach(terms=self.eyes)
        for user in ("ann", "ann", "", "", "system:anonymous"):
            self.attach(user=user, options=StreamOptions(read_only=True))
        ann.viewer.data_received(b"a")
        self.assertEqual(self.console.heard(), b"")
        self.attach(user="bob")
        ann.viewer.data_received(b"b")
        self.assertEqual(self.console.heard(), b"b")

    def test_unknown_writer(self) -> None:
        """A writer without a name needs as many users with one."""
        nobody = self.attach(user="", terms=self.eyes)
        self.assertIn(b"needs 2 people at this console, 0 are connected", nobody.since())

    def test_ending(self) -> None:
        """A user whose session is ending is not at the console any more."""
        ann = self.attach(terms=self.eyes)
        slow = self.attach(user="bob", room=0, options=StreamOptions(read_only=True))
        self.console.says(b"=> ")
        ann.since()
        slow.viewer.finish(Ending(COMPLETED))
        self.assertIsNone(slow.ending)
        self.assertEqual(ann.since(), notice(f"the machine gets no input: {self.missing}"))

    def test_strictest(self) -> None:
        """The strictest terms of the writers count; those of observers do not."""
        three = "ConsolePolicy default/eyes needs 3 people at this console, 2 are connected"
        ann = self.attach()
        other = self.attach(terms=replace(self.eyes, people=3))
        self.attach(user="bob", terms=replace(self.eyes, people=4))
        ann.since()
        ann.viewer.data_received(b"a")
        self.assertEqual(ann.since(), not_sent(three))
        other.viewer.wished(Role.OBSERVER)
        self.assertEqual(ann.since(), notice("the machine gets input now"))
        ann.viewer.data_received(b"b")
        self.assertEqual(self.console.heard(), b"b")

    def test_terms_change(self) -> None:
        """A policy that is changed counts at once."""
        ann = self.attach()
        ann.hold_to(self.eyes)
        self.assertEqual(ann.since(), notice(f"the machine gets no input: {self.missing}"))
        ann.viewer.data_received(b"a")
        ann.hold_to(FULL)
        self.assertIn(b"the machine gets input now", ann.since())
        ann.viewer.data_received(b"b")
        self.assertEqual(self.console.heard(), b"b")

    def test_new_writer(self) -> None:
        """A new writer reads that the machine gets no input, after it reads that it is the writer."""
        ann = self.attach(terms=self.eyes)
        ann.viewer.wished(Role.OBSERVER)
        ann.since()
        ann.viewer.wished(Role.WRITER)
        writer, none = "you are the writer of this console", "the machine gets no input: "
        self.assertEqual(ann.since(), notice(writer) + notice(none + self.missing))

    def test_script(self) -> None:
        """A script whose input was discarded fails with the reason, even if somebody came later."""
        script = self.attach(user="ci", terms=self.eyes)
        script.viewer.data_received(b"version\r")
        self.attach(user="bob")
        script.viewer.input_ended()
        ending = Ending(INPUT_DENIED, f"the input was not sent: {self.missing}")
        self.assertEqual(script.ending, ending)

    def test_waiting_line(self) -> None:
        """While the line accepts nothing, the stream does not hold back input for later either."""
        self.console.transport.producer.pauseProducing()
        ann = self.attach(terms=self.eyes)
        self.assertFalse(ann.input_paused)
        bob = self.attach(user="bob")
        self.assertTrue(ann.input_paused)
        bob.drop()
        self.assertFalse(ann.input_paused)
        self.console.transport.producer.resumeProducing()
        self.attach(user="bob")
        self.assertFalse(ann.input_paused)

    def test_policies(self) -> None:
        """The notice names all policies."""
        for policy, text in (
            ("a/x, a/y", b"ConsolePolicies a/x, a/y need 2 people"),
            ("", b"the policy of this console needs 2 people"),
        ):
            ann = self.attach(terms=Terms(people=2, policy=policy))
            self.assertIn(text, ann.since())
            ann.drop()


class ViewersTests(SharedConsoleCase):
    """A console with a limited number of sessions."""

    few = Terms(viewers=2, policy="default/few")
    full = (
        "ConsolePolicy default/few allows 2 sessions at this console, and 2 are open;"
        " try again when one of them has ended"
    )

    def admit(self, terms: Terms) -> None:
        self.shared.viewer().admit(terms)

    def test_refused(self) -> None:
        """A session too many is refused before it opens, whoever is there, until one has ended."""
        ann = self.attach(terms=self.few)
        self.admit(self.few)
        self.attach(terms=self.few, options=StreamOptions(read_only=True))
        error = self.assertRaises(TooManyRequests, self.admit, self.few)
        self.assertEqual(error.message, self.full)
        ann.drop()
        self.admit(self.few)

    def test_at_the_same_time(self) -> None:
        """Of sessions that open at the same time, the ones too many end when they join."""
        ann, bob = (self.attach(user=user, terms=self.few) for user in ("ann", "bob"))
        self.console.says(b"secret")
        options = StreamOptions(force=True)
        eve = self.attach(user="eve", terms=self.few, options=options)
        self.assertEqual((eve.since(), eve.ending), (b"", Ending(TOO_MANY_VIEWERS, self.full)))
        self.assertIs(ann.viewer.role, Role.WRITER)
        self.assertEqual(self.shared.viewers, (ann.viewer, bob.viewer))
        self.assertNotIn("eve", [e.data.get("user") for e in self.shared.journal.events(0, 0)])
        eve.drop()
        self.assertIsNone(ann.ending)

    def test_forged(self) -> None:
        """
        A limit that a client has sent for its own session, which anybody can do, keeps nobody else
        out.
        """
        self.attach(user="eve", terms=Terms(Right.OBSERVE, viewers=1, policy="default/forged"))
        self.admit(FULL)
        self.admit(self.few)
        self.attach()
        self.assertRaises(TooManyRequests, self.admit, self.few)

    def test_ending(self) -> None:
        """A session that is ending does not count."""
        self.attach(terms=self.few)
        slow = self.attach(terms=self.few, room=0)
        self.console.says(b"=> ")
        slow.viewer.finish(Ending(COMPLETED))
        self.admit(self.few)

    def test_changed(self) -> None:
        """A limit that is lowered ends no session."""
        ann, bob = self.attach(), self.attach()
        for each in (ann, bob):
            each.hold_to(replace(self.few, viewers=1))
        self.assertEqual((ann.ending, bob.ending), (None, None))
        error = self.assertRaises(TooManyRequests, self.admit, replace(self.few, viewers=1))
        self.assertIn("allows 1 session at this console, and 2 are open", error.message)


class BreakTests(SynchronousTestCase):
    """BREAK on a line, and on one that has none."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.console = BreakableConsole()
        self.shared = SharedConsole(self.console, self.clock)

    def attach(self) -> MemoryStream:
        return MemoryStream(self.shared.viewer())

    def test_sent(self) -> None:
        """BREAK reaches the line; all input waits until it is over."""
        self.successResultOf(self.shared.open())
        ann, bob = self.attach(), self.attach()
        ann.viewer.wished(Break(300))
        self.assertEqual(self.console.breaks, [300])
        self.assertEqual((ann.input_paused, bob.input_paused), (True, True))
        self.clock.advance(0.29)
        late = self.attach()
        self.assertTrue(late.input_paused)
        self.clock.advance(0.02)
        self.assertEqual([each.input_paused for each in (ann, bob, late)], [False] * 3)
        self.assertEqual(ann.since(), b"")

    def test_one_at_a_time(self) -> None:
        """A second request during a BREAK is ignored; after it, it is another BREAK."""
        self.successResultOf(self.shared.open())
        ann = self.attach()
        for _ in range(100):
            ann.viewer.wished(Break(5000))
        self.assertEqual(self.console.breaks, [5000])
        self.clock.advance(5)
        ann.viewer.wished(Break(1))
        self.assertEqual(self.console.breaks, [5000, 1])

    def test_line_takes_no_more(self) -> None:
        """A line that is stuck stays so when its BREAK is over, and the other way round."""
        self.successResultOf(self.shared.open())
        ann = self.attach()
        line = self.console.transport.producer
        ann.viewer.wished(Break(100))
        line.pauseProducing()
        self.clock.advance(1)
        self.assertTrue(ann.input_paused)
        line.resumeProducing()
        self.assertFalse(ann.input_paused)
        ann.viewer.wished(Break(100))
        line.resumeProducing()
        self.assertTrue(ann.input_paused)

    def test_not_open(self) -> None:
        """A line that is not open, or is no more, sends none; nothing is left to do."""
        ann = self.attach()
        ann.viewer.wished(Break())
        self.successResultOf(self.shared.open())
        ann.viewer.wished(Break())
        self.shared.end(DELETED)
        ann.viewer.wished(Break())
        self.assertEqual(self.console.breaks, [250])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_has_none(self) -> None:
        """If the line has no BREAK, only the user who requested it gets a notice."""
        shared = SharedConsole(MemoryConsole(), self.clock)
        self.successResultOf(shared.open())
        ann, bob = MemoryStream(shared.viewer()), MemoryStream(shared.viewer(), room=0)
        ann.viewer.wished(Break())
        self.assertEqual((ann.since(), bob.since()), (NO_BREAK, b""))
        for _ in range(1000):
            bob.viewer.wished(Break())
        bob.take(1000)
        self.assertEqual(bob.since(), NO_BREAK)


class UnpacedTests(SharedConsoleCase):
    """A machine's serial line is never paused."""

    def test_never_paused(self) -> None:
        """The line is not paused, even for a viewer that reads nothing."""
        self.attach(room=0)
        for _ in range(100):
            self.console.says(bytes(64 * KIB))
            self.assertFalse(self.console.transport.paused)

    def test_gap(self) -> None:
        """A viewer too far behind gets the number of missed bytes, and continues with current output."""
        slow = self.attach(room=1)
        self.console.says(b"a")
        for _ in range(17):
            self.console.says(bytes(64 * KIB))
        self.console.says(b"now")
        slow.take(1 << 30)
        self.assertEqual(slow.since(), b"a" + encode_gap(17 * 64 * KIB) + b"now")

    def test_gap_mark(self) -> None:
        """The notice of a gap has a line of its own."""
        self.assertEqual(encode_gap(7), b"\r\n[twisted-exec: 7 bytes skipped]\r\n")

    def test_gaps_add_up(self) -> None:
        """However often a viewer falls behind before it reads again, it gets one mark."""
        slow = self.attach(room=0)
        for _ in range(170):
            self.console.says(bytes(64 * KIB))
        slow.take(1 << 30)
        got = slow.since()
        self.assertEqual(got.count(b"skipped"), 1)
        skipped = int(got.split(b": ")[1].split(b" ")[0])
        self.assertEqual(skipped + len(got) - len(encode_gap(skipped)), 170 * 64 * KIB)

    def test_mebibyte_behind_is_not_too_far(self) -> None:
        """Up to 1 MiB nothing is lost."""
        slow = self.attach(room=0)
        for _ in range(16):
            self.console.says(bytes(64 * KIB))
        slow.take(1 << 30)
        self.assertEqual(len(slow.since()), 1 << 20)

    def test_nobody_waits(self) -> None:
        """A viewer that reads nothing delays no other."""
        self.attach(room=0)
        quick = self.attach()
        for _ in range(100):
            self.console.says(bytes(64 * KIB))
            self.assertEqual(len(quick.since()), 64 * KIB)

    def test_memory(self) -> None:
        """Stored output is bounded, however slow the viewers are, and small without viewers."""
        streams = [self.attach(room=0) for _ in range(3)]
        for _ in range(200):
            self.console.says(bytes(60 * KIB))
            retained = self.shared.journal.end - self.shared.journal.start
            self.assertLess(retained, 1300 * KIB)
        for stream in streams:
            stream.drop()
        self.console.says(b"x")
        retained = self.shared.journal.end - self.shared.journal.start
        self.assertLess(retained, 400 * KIB)


class PacedTests(SharedConsoleCase):
    """A pty waits for its fastest viewer."""

    paced = True

    def flood(self, limit: int = 1000) -> int:
        """Print 16 KiB at a time until the line is paused; the number printed."""
        for count in range(limit):
            if self.console.transport.paused:
                return count
            self.console.says(bytes([count % 256]) * (16 * KIB))
        return limit

    def test_nobody_there(self) -> None:
        """Without viewers the process goes on for ever, at a limited rate."""
        printed = 0
        while self.clock.seconds() < 60:
            printed += self.flood()
            self.clock.advance(0.01)
        self.assertEqual(round(printed * 16 * KIB / 60 / UNWATCHED_BYTES_PER_SECOND, 1), 1.0)

    def test_somebody_comes(self) -> None:
        """The limit ends when a viewer joins, and begins anew when the last one has left."""
        self.assertLess(self.flood(), 1000)
        viewer = self.attach()
        self.assertFalse(self.console.transport.paused)
        self.assertEqual(self.flood(), 1000)
        viewer.drop()
        self.assertLess(self.flood(), 1000)
        self.clock.advance(1)
        self.assertFalse(self.console.transport.paused)

    def test_watched_after_a_limit(self) -> None:
        """The end of the limit does not resume a line that waits for its viewer."""
        self.flood()
        self.attach(room=0)
        self.flood()
        self.clock.advance(60)
        self.assertTrue(self.console.transport.paused)

    def test_end_of_a_limited_line(self) -> None:
        """A console that ends while its line is limited leaves no timer."""
        self.flood()
        self.assertTrue(self.console.transport.paused)
        self.shared.end(DELETED)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_alone_loses_nothing(self) -> None:
        """A sole viewer, however slow, reads every byte."""
        slow = self.attach(room=0)
        printed = 0
        while printed < 400:
            printed += self.flood(10)
            slow.take(24 * KIB)
        while self.shared.journal.end > len(slow.got):
            slow.take(24 * KIB)
        self.assertNotIn(b"skipped", slow.got)
        self.assertEqual(len(slow.got), printed * 16 * KIB)

    def test_bound(self) -> None:
        """The line is paused at 512 KiB and goes on at half of that."""
        slow = self.attach(room=0)
        self.assertEqual(self.flood(), 32)
        slow.take(200 * KIB)
        self.assertTrue(self.console.transport.paused)
        slow.take(100 * KIB)
        self.assertFalse(self.console.transport.paused)

    def test_fastest_decides(self) -> None:
        """A stopped viewer does not pause the line, and loses only its own place."""
        stopped, quick = self.attach(room=0), self.attach()
        self.assertEqual(self.flood(), 1000)
        self.assertEqual(len(quick.since()), 1000 * 16 * KIB)
        stopped.take(1 << 30)
        self.assertIn(b"bytes skipped]", stopped.since())

    def test_skipping_is_not_reading(self) -> None:
        """
        A stopped viewer that was moved to the end does not count as the fastest.

        Else the line would run on, and the one who reads slowly would lose bytes.
        """
        self.attach(room=0)
        slow = self.attach(room=0)
        total = 0
        for _ in range(300):
            total += self.flood(64)
            slow.take(64 * KIB)
        while len(slow.got) < total * 16 * KIB:
            slow.take(64 * KIB)
        self.assertNotIn(b"skipped", slow.got)

    def test_last_viewer_leaves(self) -> None:
        """A line that waited for a viewer runs on when the viewer is gone."""
        slow = self.attach(room=0)
        self.flood()
        slow.drop()
        self.assertFalse(self.console.transport.paused)

    def test_fastest_leaves(self) -> None:
        """When the fastest viewer leaves, the next one paces the line and loses nothing more."""
        slow, quick = self.attach(room=0), self.attach()
        self.flood(50)
        quick.drop()
        self.assertTrue(self.console.transport.paused)
        slow.take(1 << 30)
        self.assertEqual(len(slow.got), 50 * 16 * KIB)
        self.assertFalse(self.console.transport.paused)


class OpeningTests(SynchronousTestCase):
    """Before the line is open, and when it cannot be opened."""

    def setUp(self) -> None:
        self.console = MemoryConsole(later=True)
        self.shared = SharedConsole(self.console, Clock())
        assert self.console.opening is not None
        self.connecting = self.console.opening

    def test_input_waits(self) -> None:
        """Input before the line is open waits in the stream."""
        early = MemoryStream(self.shared.viewer())
        self.assertTrue(early.input_paused)
        opened = self.shared.open()
        self.assertTrue(early.input_paused)
        self.connecting.callback(None)
        self.successResultOf(opened)
        self.assertFalse(early.input_paused)

    def test_size_is_told_at_once(self) -> None:
        """A size that comes before the line is open reaches the console."""
        MemoryStream(self.shared.viewer()).viewer.window_changed(TerminalSize(80, 24))
        self.assertEqual(self.console.sizes, [TerminalSize(80, 24)])

    def test_fails(self) -> None:
        """Waiting viewers get the reason; the caller gets the failure."""
        early = MemoryStream(self.shared.viewer())
        opened = self.shared.open()
        self.connecting.errback(ConnectionRefusedError())
        self.failureResultOf(opened, ConnectionRefusedError)
        assert early.ending is not None
        self.assertEqual(early.ending.reason, LINE_LOST)
        self.assertIn("the console cannot be opened", early.ending.message)

    def test_fails_with_an_answer(self) -> None:
        """The message of an API error is shown unchanged."""
        early = MemoryStream(self.shared.viewer())
        opened = self.shared.open()
        self.connecting.errback(ServiceUnavailable("no QEMU here"))
        self.failureResultOf(opened, ServiceUnavailable)
        assert early.ending is not None
        self.assertEqual(early.ending.message, "the console cannot be opened: no QEMU here")

    def test_ended_while_opening(self) -> None:
        """A machine that is deleted meanwhile: connecting is given up."""
        early = MemoryStream(self.shared.viewer())
        opened = self.shared.open()
        self.shared.end(DELETED)
        self.failureResultOf(opened, CancelledError)
        self.assertEqual(early.ending, DELETED)

    def test_ended_before(self) -> None:
        """A console that is over is not opened."""
        self.shared.end(DELETED)
        self.failureResultOf(self.shared.open(), LineEnded)
        self.assertIsNone(self.console.line)


class EndingTests(SharedConsoleCase):
    """Endings of a shared console."""

    def test_process_done(self) -> None:
        """A process that ended well is a console that ended well."""
        ann = self.attach()
        self.console.close(ProcessDone(0))
        assert ann.ending is not None
        self.assertEqual((ann.ending.reason, ann.ending.exit_code), (COMPLETED, 0))
        self.assertTrue(ann.ending.ok)

    def test_process_failed(self) -> None:
        """The ending has the exit code."""
        ann = self.attach()
        self.console.close(ProcessTerminated(exitCode=7))
        assert ann.ending is not None
        self.assertEqual(ann.ending, Ending(COMPLETED, "the process ended with exit code 7", 7))

    def test_process_killed(self) -> None:
        """A signal becomes an exit code as in shells."""
        ann = self.attach()
        self.console.close(ProcessTerminated(signal=9))
        assert ann.ending is not None
        self.assertEqual(ann.ending.exit_code, 137)

    def test_line_lost(self) -> None:
        """Any other end of the line is a loss."""
        ann = self.attach()
        self.console.close()
        assert ann.ending is not None
        self.assertEqual(ann.ending.reason, LINE_LOST)

    def test_line_explains(self) -> None:
        """A console that knows why its line ended is believed."""
        ann = self.attach()
        self.console.close(LineEnded(DELETED))
        self.assertEqual(ann.ending, DELETED)

    def test_everyone_is_told(self) -> None:
        """Every viewer gets the reason; the line is closed; who waited knows."""
        ann, bob = self.attach(), self.attach()
        over = self.shared.when_line_over()
        self.shared.end(DELETED)
        self.shared.end(Ending(LINE_LOST))
        self.assertEqual((ann.ending, bob.ending), (DELETED, DELETED))
        self.assertTrue(self.console.closed)
        self.assertEqual(self.successResultOf(over), DELETED)
        self.assertEqual(self.successResultOf(self.shared.when_line_over()), DELETED)
        self.assertEqual(self.shared.viewers, ())

    def test_tail(self) -> None:
        """The last output comes before the status, also for a slow viewer."""
        slow = self.attach(room=0)
        self.console.says(b"last words")
        self.console.close(ProcessDone(0))
        self.assertIsNone(slow.ending)
        slow.take(100)
        self.assertEqual(slow.since(), b"last words")
        self.assertIsNotNone(slow.ending)

    def test_stalled(self) -> None:
        """A client that reads nothing for ten seconds is ended without the rest of the output."""
        slow = self.attach(room=0)
        self.console.says(bytes(100))
        self.console.close(ProcessDone(0))
        self.clock.advance(6)
        slow.take(10)
        self.clock.advance(6)
        self.assertIsNone(slow.ending if slow.since() == b"" else None)
        self.clock.advance(10)
        self.assertIsNotNone(slow.ending)
        slow.drop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_too_late(self) -> None:
        """A viewer after the end gets the last output and the reason."""
        self.console.says(b"panic")
        self.console.close(ProcessTerminated(exitCode=1))
        late = self.attach()
        self.assertEqual(late.since(), b"panic")
        assert late.ending is not None
        self.assertEqual(late.ending.exit_code, 1)

    def test_typed_too_late(self) -> None:
        """Input after the end goes nowhere."""
        ann = self.attach()
        self.console.close()
        ann.viewer.data_received(b"x")
        self.assertEqual(self.console.heard(), b"")

    def test_next_line_goes_on(self) -> None:
        """A new console of the same machine continues the journal."""
        self.console.says(b"first ")
        self.console.close(ProcessDone(0))
        console = MemoryConsole()
        again = SharedConsole(console, self.clock, journal=self.shared.journal)
        self.successResultOf(again.open())
        console.says(b"second")
        self.assertEqual(self.attach(again).since(), b"first second")

    def test_next_line_has_the_size(self) -> None:
        """A new line starts with the size that the last one had."""
        self.attach().viewer.window_changed(TerminalSize(132, 50))
        console = MemoryConsole()
        SharedConsole(console, self.clock, size=self.shared.size)
        self.assertEqual(console.sizes, [TerminalSize(132, 50)])


class QuietTests(SharedConsoleCase):
    """A viewer whose input ended leaves when the output is quiet."""

    def test_quiet(self) -> None:
        """Two seconds without output end the attachment, well, and not the line."""
        ann, bob = self.attach(), self.attach()
        ann.viewer.input_ended()
        self.clock.advance(1.9)
        self.assertIsNone(ann.ending)
        self.clock.advance(0.1)
        assert ann.ending is not None
        self.assertTrue(ann.ending.ok)
        self.assertIsNone(bob.ending)
        self.assertFalse(self.console.closed)

    def test_output_goes_on(self) -> None:
        """Each output starts the two seconds anew."""
        ann = self.attach()
        ann.viewer.input_ended()
        for _ in range(10):
            self.clock.advance(1.5)
            self.console.says(b".")
        self.assertIsNone(ann.ending)
        self.clock.advance(2)
        self.assertIsNotNone(ann.ending)
        self.assertEqual(ann.since(), b"." * 10)

    def test_unread_output(self) -> None:
        """Output that the viewer has not taken yet is not quiet."""
        ann = self.attach(room=0)
        self.console.says(b"x")
        ann.viewer.input_ended()
        self.clock.advance(2)
        self.assertIsNone(ann.ending)
        ann.take(100)
        self.clock.advance(2)
        self.assertIsNotNone(ann.ending)

    def test_earlier_output_counts(self) -> None:
        """The two seconds are those after the input ended."""
        self.clock.advance(100)
        ann = self.attach()
        ann.viewer.input_ended()
        self.clock.advance(1)
        self.assertIsNone(ann.ending)

    def test_gone_before(self) -> None:
        """A viewer that leaves meanwhile leaves no timer."""
        ann = self.attach()
        ann.viewer.input_ended()
        ann.viewer.input_ended()
        ann.drop()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class ManyTests(SynchronousTestCase):
    """Consoles and viewers in numbers."""

    def test_every_order_of_death(self) -> None:
        """Whatever ends first, nothing stays behind."""
        clock = Clock()
        alive: WeakSet[Viewer] = WeakSet()
        consoles: WeakSet[SharedConsole] = WeakSet()
        orders = itertools.cycle(itertools.permutations("vVle"))
        for order in itertools.islice(orders, 1000):
            console = MemoryConsole(paced=True)
            shared = SharedConsole(console, clock)
            self.successResultOf(shared.open())
            first, second = (MemoryStream(shared.viewer(), room=0) for _ in range(2))
            alive.update((first.viewer, second.viewer))
            consoles.add(shared)
            console.says(bytes(600 * KIB))
            first.viewer.input_ended()
            for step in order:
                if step == "v":
                    first.drop()
                elif step == "V":
                    second.drop()
                elif step == "l":
                    console.close()
                else:
                    shared.end(DELETED)
            self.assertEqual(shared.viewers, ())
        self.assertEqual(clock.getDelayedCalls(), [])
        del console, shared, first, second
        gc.collect()
        self.assertEqual((len(alive), len(consoles)), (0, 0))
