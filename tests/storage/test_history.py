"""
Tests for :mod:`twisted_exec.storage.history`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.storage import MACHINES, POOLS, changed, machine
from twisted_exec.api.status import APIError, Expired
from twisted_exec.storage.history import History, created, table_of, versioned
from twisted_exec.storage.interfaces import MODIFIED, Event, Object


class BeginAnewTests(SynchronousTestCase):
    """Watches of a history that starts over because changes were missed."""

    def setUp(self) -> None:
        self.history = History()
        self.table = table_of(MACHINES)
        self.events: list[Event] = []
        for version, name in enumerate("abc", 1):
            self.history.apply(self.table, created(machine(name), version))

    def stored(self, name: str) -> Object:
        return self.history.get(MACHINES, "default", name)

    def follow(self, since: int | None = None) -> None:
        self.history.watch(MACHINES, since, self.events.append, "")

    def told(self) -> list[tuple[str, str, int]]:
        return [(one.type, one.obj["metadata"]["name"], one.version) for one in self.events]

    def test_differences(self) -> None:
        """
        A watch without a callback for lost events sees the differences, with previous objects.
        """
        self.follow()
        before = self.stored("b")
        left = [
            (self.table, self.stored("a")),
            (self.table, versioned(changed(before, power="Off"), 7)),
            (self.table, versioned(machine("d"), 8)),
        ]
        self.history.start_over(left, 9)
        self.assertEqual(
            sorted(self.told()), [("ADDED", "d", 9), ("DELETED", "c", 9), ("MODIFIED", "b", 9)]
        )
        (modified,) = (one for one in self.events if one.type == MODIFIED)
        self.assertEqual(modified.previous, before)
        for event in self.events:
            if event.type == "DELETED":
                self.assertEqual(event.obj["metadata"]["resourceVersion"], "9")

    def test_another_of_the_name(self) -> None:
        """An object with a new UID is shown as a deletion and an addition."""
        self.follow()
        again = machine("a")
        again["metadata"]["uid"] = "another"
        left = [(self.table, self.stored(name)) for name in "bc"]
        self.history.start_over([*left, (self.table, versioned(again, 5))], 5)
        self.assertEqual(self.told(), [("DELETED", "a", 5), ("ADDED", "a", 5)])
        self.assertEqual(self.events[1].obj["metadata"]["uid"], "another")

    def test_same_version_of_another_history(self) -> None:
        """A different object with an equal version, after a restore, is shown as modified."""
        self.follow()
        before = self.stored("b")
        after = versioned(changed(before, power="Off"), int(before["metadata"]["resourceVersion"]))
        left = [(self.table, self.stored("a")), (self.table, after), (self.table, self.stored("c"))]
        self.history.start_over(left, 5)
        self.assertEqual(self.told(), [("MODIFIED", "b", 5)])
        self.assertEqual(self.events[0].obj, after)

    def test_namespaces(self) -> None:
        """A watch of one namespace sees no differences of others."""
        self.history.watch(MACHINES, None, self.events.append, "another")
        self.history.start_over([], 5)
        self.assertEqual(self.events, [])

    def test_lost(self) -> None:
        """The callback for lost events is called once, and the watch sees no later events."""
        lost: list[str] = []
        self.history.watch(MACHINES, None, self.events.append, "", lambda: lost.append("lost"))
        self.history.watch(POOLS, None, self.events.append, "", lambda: lost.append("pools"))
        self.history.start_over([], 5)
        self.history.start_over([], 6)
        self.history.apply(self.table, created(machine("e"), 7))
        self.assertEqual((sorted(lost), self.events), (["lost", "pools"], []))

    def test_failing(self) -> None:
        """A callback that fails is logged and does not affect other watches."""

        def fail() -> None:
            raise ZeroDivisionError

        self.history.watch(MACHINES, None, self.events.append, "", fail)
        self.follow()
        self.history.start_over([], 5)
        self.assertEqual(len(self.events), 3)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_forgotten(self) -> None:
        """Versions before the new start have expired."""
        self.history.start_over([], 9)
        for since in (2, 8):
            with self.assertRaises(Expired):
                self.follow(since)
        self.follow(9)

    def test_put_back(self) -> None:
        """After a restore, undone versions have expired; a version never reached is a 504."""
        self.history.start_over([], 1)
        for since in (2, 3):
            with self.assertRaises(Expired):
                self.follow(since)
        with self.assertRaises(APIError) as caught:
            self.follow(4)
        self.assertEqual(caught.exception.code, 504)
        self.follow(1)

    def test_lose(self) -> None:
        """lose() calls the callback for lost events of every watch."""
        lost: list[str] = []
        self.history.watch(MACHINES, None, self.events.append, "", lambda: lost.append("lost"))
        self.history.lose()
        self.assertEqual(lost, ["lost"])
