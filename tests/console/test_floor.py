"""
Tests for :mod:`twisted_exec.console.floor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.console.floor import HINT, Floor, RoleNotices, display_name, not_sent, notice
from twisted_exec.streaming.interfaces import Role


class Person:
    """A participant that records its notices."""

    def __init__(self, user: str, *, may_write: bool = True) -> None:
        self.user, self.may_write = user, may_write
        self.role = Role.OBSERVER
        self.notices: list[bytes] = []
        self.promotions = 0

    def tell(self, notice: bytes) -> None:
        self.notices.append(notice)

    def became_writer(self) -> None:
        self.promotions += 1

    @property
    def writes(self) -> bool:
        return self.role is Role.WRITER

    def news(self) -> str:
        """Return the notices since the last call."""
        text, self.notices = b"".join(self.notices).decode(), []
        return text


class ActTests(SynchronousTestCase):
    """The effect and the notices of each act."""

    def setUp(self) -> None:
        self.floor = Floor()

    def join(self, user: str, *, may_write: bool = True, force: bool = False) -> Person:
        person = Person(user, may_write=may_write)
        self.floor.join(person, force=force)
        return person

    def test_first(self) -> None:
        """The first session becomes the writer without a notice."""
        ann = self.join("ann")
        self.assertEqual((ann.writes, ann.promotions, ann.news()), (True, 1, ""))
        self.assertEqual(self.floor.writer, "ann")

    def test_second(self) -> None:
        """Another user is an observer; a notice names the writer and how to take over."""
        ann, bob = self.join("ann"), self.join("bob")
        self.assertEqual((ann.writes, bob.writes, bob.promotions), (True, False, 0))
        text = "the writer of this console is ann; you are an observer (~f or --force takes over)"
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

    def test_force(self) -> None:
        """Joining with force takes over; a notice tells the former writers the user's name."""
        ann, other = self.join("ann"), self.join("ann")
        bob = self.join("bob", force=True)
        self.assertEqual((ann.writes, other.writes, bob.writes), (False, False, True))
        self.assertIn("you have taken over this console from ann]", bob.news())
        for person in (ann, other):
            self.assertIn("bob has taken over this console; you are an observer", person.news())

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
        self.assertIn("you are an observer; the writer of this console is ann", first.news())
        self.floor.leave(second)
        self.assertIn("ann has left; this console has no writer", bob.news())
        self.assertIn("ann has left; this console has no writer", first.news())

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
        self.assertFalse(bob.writes)
        self.assertEqual(bob.news().count("ann has left; this console has no writer"), 1)
        self.assertEqual(self.floor.writer, "nobody")
        self.assertTrue(self.join("joe").writes)
        self.floor.request_role(ann, Role.WRITER)
        self.assertFalse(ann.writes)

    def test_refusal(self) -> None:
        """The notice for an observer who types names the writer."""
        self.join("ann")
        self.assertIn(
            b"what you type is not sent: the writer of this console is ann", self.floor.refusal()
        )

    def test_names(self) -> None:
        """A display name is printable and at most 64 characters long."""
        self.assertEqual(display_name("a\x1b[2Jb\n"), "a?[2Jb?")
        self.assertEqual(len(display_name("x" * 1000)), 64)
        self.assertEqual(display_name("x" * 64), "x" * 64)
        self.assertEqual(display_name("j\u00f6rg"), "j\u00f6rg")
        self.assertEqual(notice("hi"), b"\r\n[twisted-exec: hi]\r\n")


State = tuple[str, ...]
Act = tuple[str, int, Callable[[Floor, Person], None]]

_USERS = ("ann", "ann", "bob", "")


def _acts() -> Iterator[Act]:
    for who in range(len(_USERS)):
        yield "look", who, lambda floor, person: _join(floor, person, False, False)
        yield "join", who, lambda floor, person: _join(floor, person, True, False)
        yield "force", who, lambda floor, person: _join(floor, person, True, True)
        yield "take", who, lambda floor, person: floor.request_role(person, Role.WRITER)
        yield "release", who, lambda floor, person: floor.request_role(person, Role.OBSERVER)
        yield "leave", who, lambda floor, person: floor.leave(person)


def _join(floor: Floor, person: Person, may_write: bool, force: bool) -> None:
    if person not in floor._participants:
        person.may_write = may_write
        floor.join(person, force=force)


class EveryStateTests(SynchronousTestCase):
    """Every act in every reachable state."""

    def reached(self, acts: list[Act]) -> tuple[Floor, list[Person]]:
        floor, people = Floor(), [Person(user) for user in _USERS]
        for _, who, act in acts:
            act(floor, people[who])
        return floor, people

    def state(self, floor: Floor, people: list[Person]) -> State:
        return tuple(
            ("writer" if person.writes else "waiting" if person.may_write else "read-only")
            if person in floor._participants
            else "away"
            for person in people
        )

    def check(self, name: str, who: int, before: State, after: State, people: list[Person]) -> None:
        """Check the invariants of one act."""
        writers = {_USERS[number] for number, role in enumerate(after) if role == "writer"}
        self.assertLessEqual(len(writers), 1, "two users are writers")
        for number, person in enumerate(people):
            text, was, is_now = person.news(), before[number], after[number]
            if number == who:
                if name == "release" and was in ("writer", "waiting"):
                    self.assertEqual(is_now, "waiting")
                if (name, was) in (("take", "waiting"), ("force", "away")):
                    self.assertEqual(is_now, "writer")
                continue
            self.assertTrue(is_now == was or (was, is_now) == ("writer", "waiting"), (was, is_now))
            if is_now != was:
                self.assertIn(name, ("take", "force"))
                self.assertIn("has taken over this console", text)
                self.assertIn(display_name(_USERS[who]), text)
            if was == "read-only":
                self.assertEqual(text, "")

    def test_all(self) -> None:
        """
        All writers belong to one user; only a take-over changes another session's role, with a
        notice; a read-only session is never a writer and gets no notices.
        """
        start: State = ("away",) * len(_USERS)
        paths: dict[State, list[Act]] = {start: []}
        todo = [start]
        while todo:
            before = todo.pop()
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


class RoleNoticesTests(SynchronousTestCase):
    """Tests for :class:`RoleNotices`."""

    def test_acts(self) -> None:
        """Whoever reads the notices knows the role after each act."""
        floor, ann, bob = Floor(), Person("ann"), Person("bob")
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
                if person in floor._participants:
                    readers[person].feed(person.news().encode())
                    self.assertIsNot(readers[person].is_observer, person.writes)

    def test_not_sent(self) -> None:
        """The notice that input is discarded has the reason."""
        floor, ann = Floor(), Person("ann")
        floor.join(ann)
        for notice_, why in (
            (floor.refusal(), "the writer of this console is ann"),
            (not_sent('line "vm" was lost: refused'), 'line "vm" was lost: refused'),
        ):
            notices = RoleNotices()
            self.assertEqual(notices.not_sent, "")
            notices.feed(notice_)
            self.assertEqual(notices.not_sent, why)

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
        self.assertLess(len(notices._tail), 2000)
