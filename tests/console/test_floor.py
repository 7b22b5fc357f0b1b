"""
Tests for :mod:`twisted_exec.console.floor`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.agents import is_person
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.display import display_name
from twisted_exec.auth.default_roles import smallest_role
from twisted_exec.console.floor import ANNOUNCE_SECONDS, Floor
from twisted_exec.console.notices import (
    ELSEWHERE,
    WAIT,
    notice,
)
from twisted_exec.streaming.interfaces import Role
from twisted_exec.wire.marks import OPTION, Notice, NoticeKind
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE


class Person:
    """A participant that records its notices."""

    def __init__(
        self,
        user: str,
        *,
        may_write: bool = True,
        may_take_over: bool = True,
        denied: bool = False,
        yields: bool = False,
    ) -> None:
        self.user, self.may_write, self.may_take_over = (
            user,
            may_write and not denied,
            may_take_over,
        )
        self.is_denied = denied
        self.yields = yields
        self.is_person = is_person(user)
        self.is_away = False
        self.has_terminal = True
        self.role = Role.OBSERVER
        self.notices: list[Notice] = []
        self.promotions = 0
        self.taken_from: list[str] = []
        self.denied_by: list[str] = []

    def tell(self, notice: Notice) -> None:
        self.notices.append(notice)

    def became_writer(self) -> None:
        self.promotions += 1

    def took_over(self, previous: str) -> None:
        self.taken_from.append(previous)

    def takeover_denied(self, writer: str) -> None:
        self.denied_by.append(writer)

    @property
    def writes(self) -> bool:
        return self.role is Role.WRITER

    def news(self) -> str:
        """Return the notices since the last call, as they are in output."""
        text, self.notices = b"".join(each.output for each in self.notices).decode(), []
        return text


class FloorTestCase(SynchronousTestCase):
    """An empty floor."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.floor = Floor(self.clock)

    def join(
        self, user: str, *, force: bool = False, observe: bool = False, **rights: bool
    ) -> Person:
        person = Person(user, **rights)
        self.floor.join(person, force=force, observe=observe)
        return person

    def script(self, user: str = "bob", *, force: bool = False) -> Person:
        """Join a session without a terminal."""
        person = Person(user)
        person.has_terminal = False
        self.floor.join(person, force=force)
        return person


class YieldTests(FloorTestCase):
    """A writer who yields the floor to people."""

    robot = "system:serviceaccount:lab:robot"

    def test_hint(self) -> None:
        """An observer reads that a key takes over, also without the right to take over."""
        self.join("ann", yields=True)
        bob = self.join("bob", may_take_over=False)
        self.assertIn("you are an observer (type to take over)", bob.news())
        self.assertTrue(self.floor.is_yielded_to(bob))
        self.floor.request_role(bob, Role.WRITER)
        self.assertTrue(bob.writes)

    def test_to_whom(self) -> None:
        """A program, an unknown user, an observer without the right to type, and the writer's own session get nothing."""
        self.join("ann", yields=True)
        for person in (
            self.join(self.robot),
            self.join("agent:bob:bot"),
            self.join(""),
            self.join("system:anonymous"),
            self.join("eve", may_write=False),
            self.join("dan", denied=True),
            self.join("ann", observe=True),
        ):
            self.assertFalse(self.floor.is_yielded_to(person), person.user)

    def test_from_whom(self) -> None:
        """A user of whom one session does not yield keeps the floor, and so does nobody's floor."""
        bob = self.join("bob", observe=True)
        self.assertFalse(self.floor.is_yielded_to(bob))
        ann = self.join("ann", yields=True)
        self.assertTrue(self.floor.is_yielded_to(bob))
        self.join("ann")
        self.assertFalse(self.floor.is_yielded_to(bob))
        ann.yields = False
        self.assertFalse(self.floor.is_yielded_to(bob))

    def test_between_equals(self) -> None:
        """Between two people who yield, the floor passes by an act alone; a program yields to both."""
        self.join("ann", yields=True)
        bob = self.join("bob", yields=True)
        self.assertFalse(self.floor.is_yielded_to(bob))
        self.join(self.robot, yields=True, force=True)
        self.assertTrue(self.floor.is_yielded_to(bob))


class PresenceTests(FloorTestCase):
    """Connections that are lost for a while."""

    def lose(self, person: Person, *, lost: bool = True) -> None:
        person.is_away = lost
        self.floor.follow_presence()

    def test_lost(self) -> None:
        """The floor stays with the writer; observers that may write read of the loss once."""
        ann, bob = self.join("ann"), self.join("bob")
        eve, dan = self.join("eve", may_take_over=False), self.join("dan", denied=True)
        for each in (bob, eve, dan):
            each.news()
        self.lose(ann)
        lost = "ann's connection is lost; the writer of this console is ann"
        self.assertEqual(bob.news(), notice(f"{lost} {OPTION}").decode())
        self.assertEqual(eve.news(), notice(f"{lost} {WAIT}").decode())
        self.assertEqual((ann.writes, ann.news(), dan.news()), (True, "", ""))
        self.lose(eve)
        self.assertEqual(bob.news(), "")
        self.lose(ann, lost=False)
        self.assertEqual(bob.news(), notice("ann is back").decode())

    def test_joins_meanwhile(self) -> None:
        """A session that opens meanwhile, and an observer who types, read of the loss as well."""
        ann = self.join("ann")
        self.lose(ann)
        bob = self.join("bob")
        lost = f"ann's connection is lost; the writer of this console is ann {OPTION}"
        self.assertEqual(bob.news(), notice(lost).decode())
        refusal = self.floor.refusal(bob)
        self.assertEqual(refusal.for_script, f"what you type is not sent: {lost}")
        self.assertEqual((refusal.kind, refusal.writer), (NoticeKind.DISCARDED, "ann"))
        self.lose(ann, lost=False)
        bob.news()
        self.floor.remind(bob)
        self.assertIn("the writer of this console is ann; you are an observer", bob.news())

    def test_free_floor(self) -> None:
        """The loss of an observer, also of a former writer, is no news."""
        ann, bob = self.join("ann"), self.join("bob")
        self.floor.request_role(ann, Role.OBSERVER)
        bob.news()
        self.lose(ann)
        self.lose(ann, lost=False)
        self.assertEqual(bob.news(), "")

    def test_expired(self) -> None:
        """A writer who does not come back has left."""
        ann, bob = self.join("ann"), self.join("bob")
        self.lose(ann)
        bob.news()
        self.floor.leave(ann)
        self.clock.advance(ANNOUNCE_SECONDS)
        self.assertIn("ann has left; this console has no writer", bob.news())
        self.join("ann")
        self.assertEqual(bob.news(), "")

    def test_taken_over(self) -> None:
        """The return of a user who lost the floor meanwhile is no news."""
        ann, bob, eve = self.join("ann"), self.join("bob"), self.join("eve")
        self.lose(ann)
        self.floor.request_role(bob, Role.WRITER)
        for each in (bob, eve):
            each.news()
        self.lose(ann, lost=False)
        self.assertEqual((bob.news(), eve.news()), ("", ""))
        self.assertIn("bob has taken over this console; you are an observer", ann.news())

    def test_takes_over_from_oneself(self) -> None:
        """A user whose connection hangs may take over in another session, and is back."""
        ann, bob = self.join("ann"), self.join("bob")
        self.lose(ann)
        other = self.join("ann")
        self.floor.request_role(other, Role.WRITER)
        self.assertTrue(other.writes)
        self.assertFalse(ann.writes)
        self.assertIn("ann is back", bob.news())

    def test_rejoin(self) -> None:
        """A session of an earlier process takes nothing over, and its user reads the role."""
        ann, bob = Person("ann"), Person("bob")
        self.floor.rejoin(ann)
        self.floor.rejoin(bob)
        self.assertEqual(ann.news(), notice("you are the writer of this console").decode())
        self.assertIn("the writer of this console is ann; you are an observer", bob.news())
        self.floor.leave(ann)
        eve = Person("eve")
        self.floor.rejoin(eve, observe=True)
        self.assertIn("this console has no writer; you are an observer", eve.news())

    def test_remind(self) -> None:
        """A reminder names the role; a session without input has none."""
        people = self.join("ann"), self.join("bob"), self.join("dan", denied=True)
        silent = self.join("rob", may_write=False)
        for each in (*people, silent):
            each.news()
            self.floor.remind(each)
        for each, text in zip(people, ("you are the writer", "you are an", "observe"), strict=True):
            self.assertIn(text, each.news())
        self.assertEqual(silent.news(), "")


class ActTests(FloorTestCase):
    """The effect and the notices of each act."""

    def test_first(self) -> None:
        """The first session becomes the writer without a notice."""
        ann = self.join("ann")
        self.assertEqual((ann.writes, ann.promotions, ann.news()), (True, 1, ""))
        self.assertEqual(self.floor.writer, "ann")

    def test_second(self) -> None:
        """Another user is an observer; a notice names the writer and how to take over."""
        ann, bob = self.join("ann"), self.join("bob")
        self.assertEqual((ann.writes, bob.writes, bob.promotions), (True, False, 0))
        text = "the writer of this console is ann; you are an observer (--force takes over)"
        self.assertEqual(bob.news(), f"\r\n[twisted-exec: {text}]\r\n")
        self.assertEqual(ann.news(), "")

    def test_same_user(self) -> None:
        """A second session of the writing user is a writer, too."""
        first, second = self.join("ann"), self.join("ann")
        self.assertEqual((first.writes, second.writes), (True, True))
        self.assertEqual((first.news(), second.news()), ("", ""))

    def test_anonymous(self) -> None:
        """Users without names, from a poollet of another make, are all writers."""
        self.assertTrue(all(self.join("").writes for _ in range(3)))
        self.assertEqual(self.floor.writer, "somebody")

    def test_without_input(self) -> None:
        """A session without input is always an observer and gets no notices."""
        eve = self.join("eve", may_write=False, force=True)
        self.floor.request_role(eve, Role.WRITER)
        self.assertFalse(eve.writes)
        ann = self.join("ann")
        self.floor.request_role(eve, Role.OBSERVER)
        self.floor.leave(ann)
        self.assertEqual((eve.writes, eve.news()), (False, ""))

    def test_observe(self) -> None:
        """A session that begins as an observer is one also at a free floor, and may type later."""
        bob = self.join("bob", observe=True)
        self.assertFalse(bob.writes)
        self.assertIn(f"this console has no writer; you are an observer {OPTION}", bob.news())
        ann = self.join("ann")
        self.assertEqual((ann.writes, ann.news(), bob.news()), (True, "", ""))
        self.floor.request_role(bob, Role.WRITER)
        self.assertEqual((ann.writes, bob.writes), (False, True))

    def test_force(self) -> None:
        """Joining with force takes over; a notice tells the former writers the user's name."""
        ann, other = self.join("ann"), self.join("ann")
        bob = self.join("bob", force=True)
        self.assertEqual((ann.writes, other.writes, bob.writes), (False, False, True))
        self.assertIn("you have taken over this console from ann]", bob.news())
        for person in (ann, other):
            self.assertIn("bob has taken over this console; you are an observer", person.news())

    def test_force_of_the_same_user(self) -> None:
        """Joining with force takes nothing from the user's other sessions."""
        first, second = self.join("ann"), self.join("ann", force=True)
        self.assertEqual((first.writes, second.writes), (True, True))
        self.assertEqual((first.news(), second.news()), ("", ""))
        # Users without a name may be several.
        floor, first, second = Floor(self.clock), Person(""), Person("")
        floor.join(first)
        floor.join(second, force=True)
        self.assertEqual((first.writes, second.writes), (False, True))
        self.assertNotIn(ELSEWHERE, floor.refusal(first).text)

    def test_script_gives_back(self) -> None:
        """A script that took the floor gives it back when it leaves; nobody else gets it."""
        ann, other, eve = self.join("ann"), self.join("ann"), self.join("eve")
        script = self.script(force=True)
        for each in (ann, other, eve):
            each.news()
        self.floor.leave(script)
        self.assertEqual([each.writes for each in (ann, other, eve)], [True, True, False])
        again = notice("you are the writer of this console again; bob has left").decode()
        self.assertEqual([each.news() for each in (ann, other, eve)], [again, again, ""])

    def test_script_gives_back_later(self) -> None:
        """The last one of a user's scripts gives back."""
        ann = self.join("ann")
        scripts = [self.script(force=True) for _ in range(2)]
        self.floor.leave(scripts[0])
        self.assertEqual((ann.writes, scripts[1].writes), (False, True))
        self.floor.leave(scripts[1])
        self.assertTrue(ann.writes)

    def test_scripts_take_over_from_scripts(self) -> None:
        """
        When the last of several users' scripts has left, the user at a terminal is the writer again.
        """
        for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
            ann = self.join("ann")
            scripts = [self.script(user, force=True) for user in ("bob", "ann", "bob")]
            for each in order:
                self.floor.leave(scripts[each])
            self.assertEqual((ann.writes, self.floor.writers), (True, [ann]), order)
            self.floor.leave(ann)

    def test_terminal_between_scripts(self) -> None:
        """A terminal that took the floor keeps it from those before, also when it has left or is away."""

        def is_away(eve: Person) -> None:
            eve.is_away = True

        for act in (self.floor.leave, is_away):
            ann, eve = self.join("ann"), self.join("eve", force=True)
            script = self.script(force=True)
            act(eve)
            self.floor.leave(script)
            self.assertEqual((ann.writes, self.floor.writers), (False, []), act)
            self.floor.leave(eve)
            self.floor.leave(ann)

    def test_nothing_to_give_back(self) -> None:
        """
        The floor is free after a script if its former writer has left, is away, has released it or may not type
        any more, and after a person at a terminal.
        """

        def is_away(ann: Person) -> None:
            ann.is_away = True

        def may_not_type(ann: Person) -> None:
            ann.may_write, ann.is_denied = False, True
            self.floor.right_to_write_changed(ann)

        def at_terminal(_: Person) -> None:
            script.has_terminal = True

        def release(ann: Person) -> None:
            self.floor.request_role(ann, Role.OBSERVER)

        for act in (self.floor.leave, is_away, may_not_type, release, at_terminal):
            ann, eve = self.join("ann"), self.join("eve")
            script = self.script(force=True)
            act(ann)
            eve.news()
            self.floor.leave(script)
            self.clock.advance(ANNOUNCE_SECONDS)
            self.assertEqual((self.floor.writers, script.promotions), ([], 1), act)
            self.assertIn("bob has left; this console has no writer", eve.news())
            # Nor does a script that found the floor free.
            self.floor.leave(self.script())
            self.assertEqual(self.floor.writers, [], act)
            self.floor.leave(ann)
            self.floor.leave(eve)

    def test_taken_from_a_script(self) -> None:
        """A user who has taken the floor from a script keeps it."""
        ann, eve = self.join("ann"), self.join("eve")
        script = self.script(force=True)
        self.floor.request_role(eve, Role.WRITER)
        self.floor.leave(script)
        self.assertEqual((ann.writes, eve.writes), (False, True))

    def test_take_over(self) -> None:
        """An observer takes over later."""
        ann, bob = self.join("ann"), self.join("bob")
        bob.news()
        self.floor.request_role(bob, Role.WRITER)
        self.assertEqual((ann.writes, bob.writes, bob.promotions), (False, True, 1))
        self.assertIn("from ann]", bob.news())
        self.assertIn("bob has taken over", ann.news())

    def test_take_over_from_oneself(self) -> None:
        """After a take-over one session of a user is the writer; the user's others get a notice."""
        first, second = self.join("ann"), self.join("ann")
        self.floor.request_role(second, Role.WRITER)
        self.assertEqual((first.writes, second.writes), (False, True))
        self.assertIn("ann, in another session, has taken over", first.news())
        self.assertIn(
            "you have taken over this console from another session of yours]", second.news()
        )

    def test_take_over_nothing(self) -> None:
        """A writer that takes over gets a notice that it is the writer."""
        ann = self.join("ann")
        self.floor.request_role(ann, Role.WRITER)
        self.assertEqual((ann.writes, ann.promotions), (True, 1))
        self.assertIn("[twisted-exec: you are the writer of this console]", ann.news())

    def test_release(self) -> None:
        """A release frees the floor: waiting observers get a notice, and none becomes the writer."""
        ann, bob, eve = self.join("ann"), self.join("bob"), self.join("eve", may_write=False)
        bob.news()
        self.floor.request_role(ann, Role.OBSERVER)
        self.assertEqual([person.writes for person in (ann, bob, eve)], [False] * 3)
        self.assertIn("you are an observer; this console has no writer", ann.news())
        self.assertIn("ann has released this console; this console has no writer", bob.news())
        self.assertEqual(eve.news(), "")
        self.floor.request_role(bob, Role.WRITER)
        self.assertTrue(bob.writes)
        self.assertIn("you are the writer of this console]", bob.news())

    def test_release_of_one_among_two(self) -> None:
        """The floor is not free while another session of the same user is a writer."""
        first, second, bob = self.join("ann"), self.join("ann"), self.join("bob")
        bob.news()
        self.floor.request_role(first, Role.OBSERVER)
        own = f"the writer of this console is ann{ELSEWHERE}"
        self.assertIn(f"you are an observer; {own} {OPTION}", first.news())
        refusal = self.floor.refusal(first)
        self.assertEqual((refusal.why, refusal.writer), (own, "ann"))
        self.floor.remind(first)
        self.assertIn(f"{own}; you are an observer", first.news())
        self.floor.remind(bob)
        self.assertIn("the writer of this console is ann; you are an observer", bob.news())
        self.floor.leave(second)
        self.clock.advance(ANNOUNCE_SECONDS)
        # She is still there.
        self.assertIn("a session of ann has left; this console has no writer", bob.news())
        self.assertIn("another session of yours has left; this console has no writer", first.news())

    def test_nothing_to_release(self) -> None:
        """A release by an observer is answered to that observer only."""
        ann, bob = self.join("ann"), self.join("bob")
        bob.news()
        self.floor.request_role(bob, Role.OBSERVER)
        self.assertIn("you are an observer; the writer of this console is ann", bob.news())
        self.assertEqual(ann.news(), "")

    def test_leave(self) -> None:
        """
        When the writer leaves, observers get a notice and stay observers; the next session is the
        writer.
        """
        ann, bob = self.join("ann"), self.join("bob")
        bob.news()
        self.floor.leave(ann)
        self.floor.leave(ann)
        self.clock.advance(ANNOUNCE_SECONDS)
        self.assertFalse(bob.writes)
        self.assertEqual(bob.news().count("ann has left; this console has no writer"), 1)
        self.assertEqual(self.floor.writer, "nobody")
        self.assertTrue(self.join("joe").writes)
        self.floor.request_role(ann, Role.WRITER)
        self.assertFalse(ann.writes)

    def test_all_leave_together(self) -> None:
        """Users whose sessions end as well, as when a server stops, are not told that a writer has left."""
        ann, bob = self.join("ann"), self.join("bob")
        bob.news()
        self.floor.leave(ann)
        self.floor.leave(bob)
        self.assertEqual((bob.news(), self.clock.getDelayedCalls()), ("", []))

    def test_refusal(self) -> None:
        """The notice for an observer who types names the writer."""
        ann, bob = self.join("ann"), self.join("bob", may_take_over=False)
        text = "what you type is not sent: the writer of this console is ann (~f or --force"
        self.assertIn(text, self.floor.refusal(self.join("eve")).text)
        self.assertIn("is ann (you may not take over)", self.floor.refusal(bob).text)
        self.floor.leave(ann)
        self.assertIn("this console has no writer (~f", self.floor.refusal(bob).text)

    def test_notice(self) -> None:
        """A notice is a line of its own, whatever is in the name of a user or in a reason."""
        self.assertEqual(notice("hi"), b"\r\n[twisted-exec: hi]\r\n")
        for hostile in ("\x1b]0;x\x07", "\x9b2J", "\r\n", "\x00", "\u202e", "\u2028", "\ud800"):
            shown = notice(f"{hostile}ann  has left")
            self.assertTrue(shown.decode()[2:-2].isprintable(), shown)
            self.assertIn(b"ann has left]", shown)

    def test_taken_from(self) -> None:
        """Only a take-over from another user is reported, once."""
        ann, _ = self.join("ann"), self.join("ann")
        self.floor.request_role(ann, Role.WRITER)
        bob = self.join("bob", force=True)
        self.assertEqual((ann.taken_from, bob.taken_from), ([], ["ann"]))

    def test_denied_take_overs(self) -> None:
        """Each denied take-over is reported with the writer; the notices of others are not."""
        ann = self.join("ann")
        ben, eve = Person("ben", may_take_over=False), Person("eve", denied=True)
        self.floor.join(ben, force=True)
        self.floor.join(eve, force=True)
        for each in (ben, eve):
            self.floor.request_role(each, Role.OBSERVER)
            self.assertEqual(each.denied_by, ["ann"])
            self.floor.request_role(each, Role.WRITER)
            self.assertEqual(each.denied_by, ["ann"] * 2)
        self.floor.leave(ann)
        self.floor.request_role(eve, Role.WRITER)
        self.floor.request_role(ben, Role.WRITER)
        self.assertEqual((eve.denied_by[2:], ben.denied_by[2:]), ([""], []))


class RightTests(FloorTestCase):
    """Users without the right to take over, or to type."""

    def test_no_takeover(self) -> None:
        """A user without the right to take over reads what to do instead, however often it asks."""
        role = smallest_role("takeover", IRONCORE.group, "machines", "console")
        ann, bob = self.join("ann"), self.join("bob", may_take_over=False)
        text = bob.news()
        self.assertIn(f"the writer of this console is ann; you are an observer {WAIT}", text)
        self.assertNotIn("~f", text)
        for _ in range(2):
            self.floor.request_role(bob, Role.WRITER)
            text = bob.news()
            self.assertIn("you may not take over this console; its writer is ann (wait", text)
            self.assertIn(f"or ask an administrator for the role {role})", text)
        self.assertEqual((ann.writes, bob.writes, ann.news()), (True, False, ""))

    def test_free_floor(self) -> None:
        """Such a user may take a free floor, and reads when it is free."""
        ann, bob = self.join("ann"), self.join("bob", may_take_over=False)
        bob.news()
        self.floor.leave(ann)
        self.clock.advance(ANNOUNCE_SECONDS)
        self.assertIn("ann has left; this console has no writer (--force", bob.news())
        self.floor.request_role(bob, Role.WRITER)
        self.assertTrue(bob.writes)
        self.assertIn("you are the writer of this console]", bob.news())
        self.assertTrue(self.join("bob", may_take_over=False, force=True).writes)

    def test_own_session(self) -> None:
        """Such a user may take over from another session of its own."""
        first = self.join("bob", may_take_over=False)
        second = self.join("bob", may_take_over=False)
        self.floor.request_role(second, Role.WRITER)
        self.assertEqual((first.writes, second.writes), (False, True))
        self.assertIn("bob, in another session, has taken over", first.news())

    def test_taken_over(self) -> None:
        """Such a user who loses the floor is not told to take it back."""
        bob = self.join("bob", may_take_over=False)
        self.join("ann", force=True)
        text = bob.news()
        self.assertIn(f"ann has taken over this console; you are an observer {WAIT}", text)

    def test_denied(self) -> None:
        """A user who may only observe gets a notice, and one for each request for the floor."""
        eve = self.join("eve", denied=True, force=True)
        role = smallest_role("drive", IRONCORE.group, "machines", "console")
        self.assertIn(f"(ask an administrator for the role {role})", MAY_ONLY_OBSERVE)
        for _ in range(2):
            self.assertEqual(eve.news(), notice(MAY_ONLY_OBSERVE).decode())
            self.floor.request_role(eve, Role.WRITER)
        self.assertFalse(eve.writes)
        ann = self.join("ann")
        self.floor.leave(ann)
        self.assertEqual(eve.news(), notice(MAY_ONLY_OBSERVE).decode())

    def test_right_changes(self) -> None:
        """Losing the right to type releases the floor; getting it again does not give it back."""
        ann, bob = self.join("ann"), self.join("bob")
        bob.news()
        ann.may_write, ann.is_denied = False, True
        self.floor.right_to_write_changed(ann)
        self.assertEqual((ann.writes, bob.writes), (False, False))
        self.assertEqual(ann.news(), notice(f"from now on {MAY_ONLY_OBSERVE}").decode())
        self.assertEqual(bob.news(), "")
        self.clock.advance(ANNOUNCE_SECONDS)
        self.assertIn("ann may no longer type; this console has no writer (--force", bob.news())
        ann.may_write, ann.is_denied = True, False
        self.floor.right_to_write_changed(ann)
        self.assertFalse(ann.writes)
        self.assertIn("you may type at this console again; this console has no", ann.news())
        self.assertEqual(bob.news(), "")

    def test_rights_end_together(self) -> None:
        """A user who loses the right to type just after the writer is not told to take over."""
        people = [self.join(user) for user in ("ann", "ann", "bob", "dan")]
        for each in people:
            each.news()
        for each in people[:3]:
            each.may_write, each.is_denied = False, True
            self.floor.right_to_write_changed(each)
        self.clock.advance(ANNOUNCE_SECONDS)
        told = notice(f"from now on {MAY_ONLY_OBSERVE}").decode()
        self.assertEqual([each.news() for each in people[:3]], [told] * 3)
        self.assertEqual(people[3].news().count("ann may no longer type"), 1)

    def test_right_ends_before_a_take_over(self) -> None:
        """A floor that has another writer meanwhile is not announced as free."""
        ann, bob, dan = self.join("ann"), self.join("bob"), self.join("dan")
        ann.may_write, ann.is_denied = False, True
        self.floor.right_to_write_changed(ann)
        self.floor.request_role(bob, Role.WRITER)
        dan.news()
        self.clock.advance(ANNOUNCE_SECONDS)
        self.assertEqual(dan.news(), "")

    def test_all_leave(self) -> None:
        """Nothing remains to be announced when the last session ends."""
        ann = self.join("ann")
        ann.may_write, ann.is_denied = False, True
        self.floor.right_to_write_changed(ann)
        self.floor.leave(ann)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_right_of_an_observer_changes(self) -> None:
        """An observer who loses the right to type gets a notice, and nobody else does."""
        ann, bob = self.join("ann"), self.join("bob")
        bob.may_write, bob.is_denied = False, True
        self.floor.right_to_write_changed(bob)
        self.assertIn(MAY_ONLY_OBSERVE, bob.news())
        self.assertEqual((ann.writes, ann.news()), (True, ""))


State = tuple[str, ...]
Act = tuple[str, int, Callable[[Floor, Person], None]]

_USERS = ("ann", "ann", "bob", "")
_MAY_NOT_TAKE_OVER = "bob"


def _acts() -> Iterator[Act]:
    for who in range(len(_USERS)):
        yield "look", who, lambda floor, person: _join(floor, person, False, False)
        yield "join", who, lambda floor, person: _join(floor, person, True, False)
        yield "force", who, lambda floor, person: _join(floor, person, True, True)
        yield "take", who, lambda floor, person: floor.request_role(person, Role.WRITER)
        yield "release", who, lambda floor, person: floor.request_role(person, Role.OBSERVER)
        yield "leave", who, lambda floor, person: floor.leave(person)
        yield "lose", who, lambda floor, person: _change(floor, person, may_write=False)
        yield "regain", who, lambda floor, person: _change(floor, person, may_write=True)


def _standing(person: Person) -> str:
    if person.writes:
        return "writer"
    if person.is_denied:
        return "denied"
    return "waiting" if person.may_write else "read-only"


def _join(floor: Floor, person: Person, may_write: bool, force: bool) -> None:
    if person not in floor:
        person.may_write, person.is_denied = may_write, False
        floor.join(person, force=force)


def _change(floor: Floor, person: Person, *, may_write: bool) -> None:
    """Withdraw or return the right to type of a session that asked for input."""
    if person in floor and person.is_denied == may_write != person.may_write:
        person.may_write, person.is_denied = may_write, not may_write
        floor.right_to_write_changed(person)


class EveryStateTests(SynchronousTestCase):
    """Every act in every reachable state."""

    def reached(self, acts: list[Act]) -> tuple[Floor, list[Person]]:
        floor = Floor(Clock())
        people = [Person(user, may_take_over=user != _MAY_NOT_TAKE_OVER) for user in _USERS]
        for _, who, act in acts:
            act(floor, people[who])
        return floor, people

    def state(self, floor: Floor, people: list[Person]) -> State:
        return tuple(_standing(person) if person in floor else "away" for person in people)

    def check(self, name: str, who: int, before: State, after: State, people: list[Person]) -> None:
        """Check the invariants of one act."""
        writers = {_USERS[number] for number, role in enumerate(after) if role == "writer"}
        self.assertLessEqual(len(writers), 1, "two users are writers")
        writers_before = {_USERS[number] for number, role in enumerate(before) if role == "writer"}
        for number, person in enumerate(people):
            text, was, is_now = person.news(), before[number], after[number]
            if number == who:
                if name == "release" and was in ("writer", "waiting"):
                    self.assertEqual(is_now, "waiting")
                if (name, was) in (("take", "waiting"), ("force", "away")):
                    may = _USERS[who] != _MAY_NOT_TAKE_OVER or not writers_before - {_USERS[who]}
                    self.assertEqual(is_now, "writer" if may else "waiting")
                if name in ("lose", "regain"):
                    self.assertNotEqual(is_now, "writer" if is_now != was else "")
                continue
            self.assertTrue(is_now == was or (was, is_now) == ("writer", "waiting"), (was, is_now))
            if is_now != was:
                self.assertIn(name, ("take", "force"))
                self.assertIn("has taken over this console", text)
                self.assertIn(display_name(_USERS[who]), text)
            if was in ("read-only", "denied"):
                self.assertEqual(text, "")

    def test_all(self) -> None:
        """
        All writers belong to one user; only a take-over changes another session's role, with a
        notice; a read-only session is never a writer and gets no notices.
        """
        start: State = ("away",) * len(_USERS)
        paths: dict[State, list[Act]] = {start: []}
        todo = deque([start])
        while todo:
            before = todo.popleft()  # breadth first: each path is as short as can be
            for act in _acts():
                floor, people = self.reached(paths[before])
                for person in people:
                    person.notices.clear()
                name, who, do = act
                do(floor, people[who])
                after = self.state(floor, people)
                self.check(name, who, before, after, people)
                if after not in paths:
                    paths[after] = [*paths[before], act]
                    todo.append(after)
        with_writer = {state for state in paths if "writer" in state}
        self.assertGreater(len(with_writer), 50)


def people_with_notices(ada: str = "ada", bob: str = "bob") -> list[Person]:
    """
    Return people who have got each kind of notice.

    :param ada: the name of one user, and ``bob`` that of another one.
    """
    clock = Clock()
    floor = Floor(clock)
    first, second, again = Person(ada), Person(bob), Person(ada)
    weak, denied = Person("carol", may_take_over=False), Person("dan", denied=True)
    everybody = [first, second, again, weak, denied]
    for person in everybody:
        floor.join(person)
        floor.remind(person)
        person.tell(floor.refusal(person))
    for person in (second, first, again, weak, denied):
        floor.request_role(person, Role.WRITER)
    again.is_away = True
    floor.follow_presence()
    again.is_away = False
    floor.follow_presence()
    again.may_write, again.is_denied = False, True
    floor.right_to_write_changed(again)
    clock.advance(ANNOUNCE_SECONDS)
    again.may_write, again.is_denied = True, False
    floor.right_to_write_changed(again)
    floor.request_role(weak, Role.WRITER)
    floor.request_role(weak, Role.OBSERVER)
    floor.request_role(first, Role.WRITER)
    floor.request_role(second, Role.WRITER)
    second.has_terminal = False
    floor.leave(second)
    floor.leave(first)
    return everybody
