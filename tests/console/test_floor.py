"""
Tests for :mod:`twisted_exec.console.floor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.console.floor import Floor, notice, shown_user
from twisted_exec.streaming.interfaces import Role


class Person:
    """A party that remembers what it was told."""

    def __init__(self, user: str, *, may_drive: bool = True) -> None:
        self.user, self.may_drive = user, may_drive
        self.role = Role.WATCH
        self.told: list[bytes] = []
        self.driven = 0

    def tell(self, notice: bytes) -> None:
        self.told.append(notice)

    def driving(self) -> None:
        self.driven += 1

    @property
    def drives(self) -> bool:
        return self.role is Role.DRIVE

    def hears(self) -> str:
        """What it was told since the last time."""
        told, self.told = b"".join(self.told).decode(), []
        return told


class ActTests(SynchronousTestCase):
    """What each act does, and who is told."""

    def setUp(self) -> None:
        self.floor = Floor()

    def join(self, user: str, *, may_drive: bool = True, force: bool = False) -> Person:
        person = Person(user, may_drive=may_drive)
        self.floor.join(person, force=force)
        return person

    def test_first(self) -> None:
        """Who comes first drives, and need not be told."""
        ann = self.join("ann")
        self.assertEqual((ann.drives, ann.driven, ann.hears()), (True, 1, ""))
        self.assertEqual(self.floor.driver, "ann")

    def test_second(self) -> None:
        """Somebody else looks on, and reads who drives and what can be done about it."""
        ann, bob = self.join("ann"), self.join("bob")
        self.assertEqual((ann.drives, bob.drives, bob.driven), (True, False, 0))
        told = "ann drives this console; you are looking on (~f or --force takes it over)"
        self.assertEqual(bob.hears(), f"\r\n[twisted-exec: {told}]\r\n")
        self.assertEqual(ann.hears(), "")

    def test_same_user(self) -> None:
        """A second session of who drives drives as well."""
        first, second = self.join("ann"), self.join("ann")
        self.assertEqual((first.drives, second.drives), (True, True))
        self.assertEqual((first.hears(), second.hears()), ("", ""))

    def test_nobody_knows(self) -> None:
        """Users whom a poollet of another make does not name may all type."""
        self.assertTrue(all(self.join("").drives for _ in range(3)))
        self.assertEqual(self.floor.driver, "somebody")

    def test_looking_on(self) -> None:
        """Who did not ask for input drives never, whatever else is asked, and is not bothered."""
        eve = self.join("eve", may_drive=False, force=True)
        self.floor.wish(eve, Role.DRIVE)
        self.assertFalse(eve.drives)
        ann = self.join("ann")
        self.floor.wish(eve, Role.WATCH)
        self.floor.leave(ann)
        self.assertEqual((eve.drives, eve.hears()), (False, ""))

    def test_force(self) -> None:
        """Who joins with force drives; who drove looks on and is told by whom."""
        ann, other = self.join("ann"), self.join("ann")
        bob = self.join("bob", force=True)
        self.assertEqual((ann.drives, other.drives, bob.drives), (False, False, True))
        self.assertIn("you have taken over this console from ann]", bob.hears())
        for one in (ann, other):
            self.assertIn("bob has taken over this console; you are looking on", one.hears())

    def test_take_over(self) -> None:
        """So does who takes over later."""
        ann, bob = self.join("ann"), self.join("bob")
        bob.hears()
        self.floor.wish(bob, Role.DRIVE)
        self.assertEqual((ann.drives, bob.drives, bob.driven), (False, True, 1))
        self.assertIn("from ann]", bob.hears())
        self.assertIn("bob has taken over", ann.hears())

    def test_take_over_from_oneself(self) -> None:
        """By force a user drives with one session alone; the others read which it was."""
        first, second = self.join("ann"), self.join("ann")
        self.floor.wish(second, Role.DRIVE)
        self.assertEqual((first.drives, second.drives), (False, True))
        self.assertIn("ann, in another session, has taken over", first.hears())

    def test_take_over_nothing(self) -> None:
        """A driver that takes over hears that it drives."""
        ann = self.join("ann")
        self.floor.wish(ann, Role.DRIVE)
        self.assertEqual((ann.drives, ann.driven), (True, 1))
        self.assertIn("[twisted-exec: you drive this console]", ann.hears())

    def test_release(self) -> None:
        """Who releases looks on; those who would drive hear of it, and nobody is made to."""
        ann, bob, eve = self.join("ann"), self.join("bob"), self.join("eve", may_drive=False)
        bob.hears()
        self.floor.wish(ann, Role.WATCH)
        self.assertEqual([one.drives for one in (ann, bob, eve)], [False] * 3)
        self.assertIn("you are looking on; nobody drives this console", ann.hears())
        self.assertIn("ann has stopped driving; nobody drives this console", bob.hears())
        self.assertEqual(eve.hears(), "")
        self.floor.wish(bob, Role.DRIVE)
        self.assertTrue(bob.drives)
        self.assertIn("you drive this console]", bob.hears())

    def test_release_of_one_among_two(self) -> None:
        """While another session of the same user drives nothing is free."""
        first, second, bob = self.join("ann"), self.join("ann"), self.join("bob")
        bob.hears()
        self.floor.wish(first, Role.WATCH)
        self.assertIn("you are looking on; ann drives this console", first.hears())
        self.floor.leave(second)
        self.assertIn("ann has left; nobody drives", bob.hears())
        self.assertIn("ann has left; nobody drives", first.hears())

    def test_nothing_to_release(self) -> None:
        """Who looks on anyway hears that, and nobody else does."""
        ann, bob = self.join("ann"), self.join("bob")
        bob.hears()
        self.floor.wish(bob, Role.WATCH)
        self.assertIn("you are looking on; ann drives", bob.hears())
        self.assertEqual(ann.hears(), "")

    def test_leave(self) -> None:
        """When the driver leaves who waits is told and looks on; who comes next drives."""
        ann, bob = self.join("ann"), self.join("bob")
        bob.hears()
        self.floor.leave(ann)
        self.floor.leave(ann)
        self.assertFalse(bob.drives)
        self.assertEqual(bob.hears().count("ann has left; nobody drives this console"), 1)
        self.assertEqual(self.floor.driver, "nobody")
        self.assertTrue(self.join("joe").drives)
        self.floor.wish(ann, Role.DRIVE)
        self.assertFalse(ann.drives)

    def test_refusal(self) -> None:
        """What one reads who types in vain."""
        self.join("ann")
        self.assertIn(b"what you type is not sent: ann drives this console", self.floor.refusal())

    def test_names(self) -> None:
        """A name is safe for a terminal, and no longer than a line."""
        self.assertEqual(shown_user("a\x1b[2Jb\n"), "a?[2Jb?")
        self.assertEqual(len(shown_user("x" * 1000)), 64)
        self.assertEqual(shown_user("x" * 64), "x" * 64)
        self.assertEqual(shown_user("j\u00f6rg"), "j\u00f6rg")
        self.assertEqual(notice("hi"), b"\r\n[twisted-exec: hi]\r\n")


State = tuple[str, ...]
Act = tuple[str, int, Callable[[Floor, Person], None]]

_USERS = ("ann", "ann", "bob", "")


def _acts() -> Iterator[Act]:
    for who in range(len(_USERS)):
        yield "look", who, lambda floor, one: _join(floor, one, False, False)
        yield "join", who, lambda floor, one: _join(floor, one, True, False)
        yield "force", who, lambda floor, one: _join(floor, one, True, True)
        yield "take", who, lambda floor, one: floor.wish(one, Role.DRIVE)
        yield "release", who, lambda floor, one: floor.wish(one, Role.WATCH)
        yield "leave", who, lambda floor, one: floor.leave(one)


def _join(floor: Floor, one: Person, may_drive: bool, force: bool) -> None:
    if one not in floor._parties:
        one.may_drive = may_drive
        floor.join(one, force=force)


class EveryStateTests(SynchronousTestCase):
    """Every act in every state that acts can lead to."""

    def reached(self, acts: list[Act]) -> tuple[Floor, list[Person]]:
        floor, people = Floor(), [Person(user) for user in _USERS]
        for _, who, act in acts:
            act(floor, people[who])
        return floor, people

    def state(self, floor: Floor, people: list[Person]) -> State:
        return tuple(
            ("drives" if one.drives else "waits" if one.may_drive else "looks")
            if one in floor._parties
            else "away"
            for one in people
        )

    def check(self, name: str, who: int, before: State, after: State, people: list[Person]) -> None:
        """What must hold of one act."""
        drivers = {_USERS[number] for number, role in enumerate(after) if role == "drives"}
        self.assertLessEqual(len(drivers), 1, "two users drive")
        for number, one in enumerate(people):
            told, was, is_now = one.hears(), before[number], after[number]
            if number == who:
                if name == "release" and was in ("drives", "waits"):
                    self.assertEqual(is_now, "waits")
                if (name, was) in (("take", "waits"), ("force", "away")):
                    self.assertEqual(is_now, "drives")
                continue
            self.assertTrue(is_now == was or (was, is_now) == ("drives", "waits"), (was, is_now))
            if is_now != was:
                self.assertIn(name, ("take", "force"))
                self.assertIn("has taken over this console", told)
                self.assertIn(shown_user(_USERS[who]), told)
            if was == "looks":
                self.assertEqual(told, "")

    def test_all(self) -> None:
        """
        Never two users drive; nobody's role changes by another's act, but by a take-over,
        of which one is told; who only looks on drives never and is never bothered.
        """
        start: State = ("away",) * len(_USERS)
        known: dict[State, list[Act]] = {start: []}
        todo = [start]
        while todo:
            before = todo.pop()
            for act in _acts():
                floor, people = self.reached(known[before])
                for one in people:
                    one.told.clear()
                name, who, do = act
                do(floor, people[who])
                after = self.state(floor, people)
                self.check(name, who, before, after, people)
                if after not in known:
                    known[after] = [*known[before], act]
                    todo.append(after)
        drove = {state for state in known if "drives" in state}
        self.assertGreater(len(drove), 50)
