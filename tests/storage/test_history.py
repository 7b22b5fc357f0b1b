"""
Tests for :mod:`twisted_exec.storage.history`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.storage import MACHINES, POOLS, changed, machine
from tests.linear import assert_linear
from tests.retained import instances
from twisted_exec.api.status import APIError, Expired
from twisted_exec.storage.history import History, key_of, table_of
from twisted_exec.storage.interfaces import DELETED, MODIFIED, Event, Object
from twisted_exec.storage.ordered import Snapshot
from twisted_exec.storage.write_checks import created, versioned


class KeyTests(SynchronousTestCase):
    """Tests for :func:`key_of`."""

    def test_of_any_object(self) -> None:
        """An object without a namespace has an empty one in its key."""
        self.assertEqual(key_of(machine("a")), ("default", "a"))
        self.assertEqual(key_of(versioned({"metadata": {"name": "b"}}, 1)), ("", "b"))

    def test_one_tuple(self) -> None:
        """All collections of a stored object have the same key in memory."""
        obj = created(machine("a"), 1).obj
        self.assertIs(key_of(obj), key_of(obj))


class DeliveryTests(SynchronousTestCase):
    """Changes that watchers make."""

    def test_begun_by_a_watcher(self) -> None:
        """A watch that begins behind a change does not receive it, also if others have yet to."""
        history, table = History(), table_of(MACHINES)
        early: list[Event] = []
        late: list[Event] = []

        def change(event: Event) -> None:
            if event.version == 1:
                history.apply(table, created(machine("b"), 2))
                history.watch(MACHINES, None, late.append, "")

        history.watch(MACHINES, None, change, "")
        history.watch(MACHINES, None, early.append, "")
        history.apply(table, created(machine("a"), 1))
        history.apply(table, created(machine("c"), 3))
        self.assertEqual([event.version for event in early], [1, 2, 3])
        self.assertEqual([event.version for event in late], [3])


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


class PagesTests(SynchronousTestCase):
    """Lists that are read in pages while objects change."""

    def setUp(self) -> None:
        self.histories: dict[int, History] = {}
        self.table = table_of(MACHINES)

    def filled(self, size: int) -> History:
        history = self.histories.get(size)
        if history is None:
            history = self.histories[size] = History()
            objects = [
                (self.table, versioned(machine(f"{number:06}"), 1)) for number in range(20 * size)
            ]
            history.restore(objects, 1, 1)
        return history

    def change(self, history: History, number: int) -> None:
        previous = history.get(MACHINES, "default", f"{number:06}")
        version = history.version + 1
        after = versioned(changed(previous, at=version), version)
        history.apply(self.table, Event(MODIFIED, after, previous, version))

    def test_latest(self) -> None:
        """A page costs what it returns, however many objects there are, also between changes."""

        def pages(size: int) -> None:
            history = self.filled(size)
            for number in range(size):
                items = history.list(MACHINES, "", None).items
                list(items[number * 10 : number * 10 + 1])
                self.change(history, number)

        for size in (200, 800):
            self.filled(size)
        assert_linear(pages, 200)

    def test_earlier(self) -> None:
        """So does a page of the list of an earlier version."""

        def pages(size: int) -> None:
            history = self.filled(size)
            then = history.version
            for number in range(100):
                self.change(history, number)
            for number in range(size):
                items = history.list(MACHINES, "", then).items
                list(items[number * 10 : number * 10 + 1])

        for size in (500, 2000):
            self.filled(size)
        assert_linear(pages, 500)

    def test_contents(self) -> None:
        """Lists of earlier versions hold what was there then, until they have expired."""
        history = History(remembered=50)
        for number in range(30):
            history.apply(self.table, created(machine(f"{number:06}"), number + 1))
        then = list(history.list(MACHINES, "", None).items)
        for number in range(0, 30, 2):
            self.change(history, number)
        gone = history.get(MACHINES, "default", "000007")
        history.apply(self.table, Event(DELETED, versioned(gone, 46), gone, 46))
        for _ in range(2):
            self.assertEqual(history.list(MACHINES, "", 30).items, then)
            self.assertEqual(history.list(MACHINES, "another", 30).items, [])
        self.assertEqual(history.list(MACHINES, "", 20).items, then[:20])
        for _ in range(40):
            self.change(history, 1)
        with self.assertRaises(Expired):
            history.list(MACHINES, "", 30)
        self.assertLess(len(instances(history, Snapshot)), 2)
