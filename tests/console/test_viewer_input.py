"""
Tests for the input of :mod:`twisted_exec.console.viewer`: who may type, and when a script ends.
"""

from __future__ import annotations

from dataclasses import replace

from twisted_exec.console import acts
from twisted_exec.console.floor import ANNOUNCE_SECONDS
from twisted_exec.console.notices import notice
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    CONSOLE_IN_USE,
    INPUT_DENIED,
    MACHINE_DELETED,
    Break,
    Ending,
    Role,
    TerminalSize,
)
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.marks import not_sent
from twisted_exec.wire.notices import TELL_AGAIN_SECONDS
from twisted_exec.wire.session_terms import FULL, MAY_ONLY_OBSERVE, Right, Terms
from twisted_exec.wire.stream_options import StreamOptions

from .doubles import (
    BreakableConsole,
    SharedConsoleCase,
)

DELETED = Ending(MACHINE_DELETED, 'machine "default/x" was deleted')
OBSERVE, DRIVE = Terms(right=Right.OBSERVE), Terms(right=Right.DRIVE)
DENIED_TO_BOB = (acts.INPUT_DENIED, "bob", "ann")


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
        self.assertEqual(bob.since(), self.shared.floor.refusal(bob.viewer).output)
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

    def test_key_takes_over(self) -> None:
        """The key that takes the floor of a user who yields reaches the machine, and what that user types no more."""
        reported: list[acts.Act] = []
        shared = SharedConsole(self.console, self.clock, acted=reported.append)
        self.successResultOf(shared.open())
        ann = self.attach(shared, terms=Terms(yields=True))
        bob = self.attach(shared, user="bob", terms=DRIVE)
        ann.viewer.data_received(b"a")
        bob.viewer.data_received(b"\x1b[I")  # the focus of a terminal is no key
        self.assertIs(ann.viewer.role, Role.WRITER)
        bob.viewer.data_received(b"b")
        ann.viewer.data_received(b"a")
        self.assertEqual(self.console.heard(), b"ab")
        self.assertIn(b"bob has taken over this console; you are an observer", ann.since())
        kinds = [each.kind for each in reported]
        self.assertEqual(kinds, [acts.INPUT_DENIED, acts.TAKEOVER, acts.INPUT_DENIED])

    def test_break_takes_over(self) -> None:
        """A BREAK counts as a key."""
        console = BreakableConsole()
        shared = SharedConsole(console, self.clock)
        self.successResultOf(shared.open())
        self.attach(shared, terms=Terms(yields=True))
        bob = self.attach(shared, user="bob", terms=DRIVE)
        bob.viewer.wished(Break(400))
        self.assertEqual(console.breaks, [400])
        self.assertIs(bob.viewer.role, Role.WRITER)

    def test_withheld_key(self) -> None:
        """A key that is discarded anyway takes no floor: it was typed at the boot before."""
        ann = self.attach(user="eve", options=StreamOptions(force=True), terms=Terms(yields=True))
        bob = self.attach(user="bob", terms=DRIVE)
        bob.viewer.input.is_behind = True
        bob.viewer.data_received(b"b")
        self.assertIs(ann.viewer.role, Role.WRITER)

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
        self.clock.advance(ANNOUNCE_SECONDS)
        self.assertIn(b"ann has left; this console has no writer", bob.since())
        bob.viewer.data_received(b"x")
        self.assertIn(b"not sent: this console has no writer", bob.since())

    def test_told_later(self) -> None:
        """An observer who types again later gets the notice again, but not for the mouse or the focus."""
        bob = self.attach(user="bob")
        bob.viewer.data_received(b"x")
        refusal = self.shared.floor.refusal(bob.viewer).output
        bob.since()
        for seconds, keys, told in (
            (TELL_AGAIN_SECONDS - 1, b"x", b""),
            (1, b"\x1b[<35;10;5M\x1b[<35;11;5M\x1b[O\x1b[M !!", b""),
            (0, b"x", refusal),
            (TELL_AGAIN_SECONDS - 1, b"x", b""),
            (1, b"\x1b[A", refusal),
        ):
            self.clock.advance(seconds)
            bob.viewer.data_received(keys)
            self.assertEqual(bob.since(), told, keys)

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
        self.assertTrue(script.ending.is_success)

    def test_slow_reader(self) -> None:
        """Notices keep their place in the output for a slow reader, and their number is bounded."""
        slow = self.attach(room=3, user="bob")
        self.console.says(b"before")
        for _ in range(1000):
            slow.viewer.wished(Role.OBSERVER)
            slow.viewer.wished(Role.WRITER)
        self.console.says(b"after")
        slow.take(1 << 20)
        got = slow.since()
        self.assertLessEqual(got.count(b"twisted-exec:"), 17)  # 16 have waited
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
        self.assertEqual(eve.since(), not_sent(MAY_ONLY_OBSERVE).output)
        eve.hold_to(DRIVE)
        eve.hold_to(OBSERVE)
        eve.since()
        eve.viewer.input_refused()
        self.assertEqual(eve.since(), not_sent(MAY_ONLY_OBSERVE).output)
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
        self.assertEqual(eve.since(), not_sent(MAY_ONLY_OBSERVE).output)
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
        self.clock.advance(ANNOUNCE_SECONDS)
        self.assertIn(b"ann may no longer type; this console has no writer (--force", bob.since())
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
        self.assertEqual(ann.since(), not_sent(self.missing).output)
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
        self.assertEqual(ann.since(), not_sent(self.missing).output)
        self.assertEqual((self.console.heard(), eve.since()), (b"a", b""))

    def test_break(self) -> None:
        """BREAK is input, too."""
        console = BreakableConsole()
        shared = SharedConsole(console, self.clock)
        self.successResultOf(shared.open())
        ann = self.attach(shared, terms=self.eyes)
        ann.viewer.wished(Break())
        self.assertEqual(console.breaks, [])
        self.assertIn(not_sent(self.missing).output, ann.since())
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
            self.assertEqual(ann.since(), not_sent(self.missing).output)
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
        self.assertEqual(ann.since(), not_sent(three).output)
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
        self.assertTrue(ann.ending.is_success)
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


class RateTests(SharedConsoleCase):
    """Input whose rate a policy limits."""

    slow = Terms(input_rate=100, policy="default/slow")

    def test_waits(self) -> None:
        """Beyond a burst of one second the stream keeps the input, and its user reads why once."""
        ann = self.attach(terms=self.slow)
        ann.viewer.data_received(b"x" * 100)
        self.assertFalse(ann.input_paused)
        ann.viewer.data_received(b"y")
        self.assertTrue(ann.input_paused)
        rule = b"your input is slowed down: ConsolePolicy default/slow allows 100 bytes per second"
        self.assertIn(rule, ann.since().replace(b"\r\n  ", b" "))
        self.clock.advance(1)
        self.assertFalse(ann.input_paused)
        ann.viewer.data_received(b"z" * 101)
        self.assertTrue(ann.input_paused)
        self.assertEqual(ann.since(), b"")
        self.assertEqual(self.console.heard(), b"x" * 100 + b"y" + b"z" * 101)

    def test_of_the_console(self) -> None:
        """Neither a second nor a new session of a user gets a burst of its own; other users wait for none of it."""
        ann, other = self.attach(terms=self.slow), self.attach(terms=self.slow)
        ann.viewer.data_received(b"x" * 101)
        self.assertTrue(other.input_paused)
        ann.drop()
        other.drop()
        self.assertTrue(self.attach(terms=self.slow).input_paused)
        bob = self.attach(user="bob", options=StreamOptions(force=True))
        self.assertFalse(bob.input_paused)

    def test_lost_floor(self) -> None:
        """What waited is discarded, and no longer waits, when another user takes over."""
        ann = self.attach(terms=self.slow)
        ann.viewer.data_received(b"x" * 101)
        bob = self.attach(user="bob")
        bob.viewer.wished(Role.WRITER)
        self.assertFalse(ann.input_paused)

    def test_change(self) -> None:
        """A limit that is lifted holds no input back."""
        ann = self.attach(terms=self.slow)
        ann.viewer.data_received(b"x" * 101)
        ann.hold_to(FULL)
        self.assertFalse(ann.input_paused)
