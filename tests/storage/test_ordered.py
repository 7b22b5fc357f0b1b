"""
Tests for :mod:`twisted_exec.storage.ordered`.
"""

from __future__ import annotations

import random

from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.storage.interfaces import Object
from twisted_exec.storage.ordered import Converted, OrderedObjects

_NAMESPACES = ("a", "a-b", "a.c", "b", "c")


class OrderedObjectsTests(SynchronousTestCase):
    """Tests for :class:`OrderedObjects` and its snapshots."""

    def test_snapshots(self) -> None:
        """A snapshot has the objects in order as they were, by place, slice and namespace."""
        choose = random.Random(1)
        objects, model = OrderedObjects(), dict[tuple[str, str], Object]()
        snapshots = []
        for number in range(12_000):
            key = choose.choice(_NAMESPACES), f"n{choose.randrange(1500)}"
            if choose.random() < 0.4:
                objects.drop(key)
                model.pop(key, None)
            else:
                obj = {"number": number}
                objects.put(key, obj)
                model[key] = obj
            if number % 997 == 0:
                snapshots.append((objects.snapshot(), sorted(model.items())))
        for snapshot, expected in snapshots:
            self.assertEqual(snapshot, [obj for _, obj in expected])
            for namespace in (*_NAMESPACES, "", "d"):
                part = snapshot.within(namespace)
                left = [obj for (where, _), obj in expected if where == namespace]
                self.assertEqual(part, left)
                for first, end in ((0, 5), (3, 700), (len(left) - 1, len(left) + 4), (9, 3)):
                    self.assertEqual(part[first:end], left[first:end])
                self.assertEqual([part[place] for place in range(len(left))], left)

    def test_before(self) -> None:
        """The objects as they were before some changes, of which one was made twice."""
        objects = OrderedObjects()
        for number in range(2000):
            objects.put(("", f"{number:04}"), {"number": number})
        then = list(objects.snapshot())
        previous: dict[tuple[str, str], Object | None] = {("", "0007"): then[7]}
        objects.put(("", "0007"), {"number": "changed"})
        previous["", "0900"] = then[900]
        objects.drop(("", "0900"))
        for number in range(3000):
            previous["new", f"{number}"] = None
            objects.put(("new", f"{number}"), {"number": number})
        now = list(objects.snapshot())
        self.assertEqual(objects.before(previous), then)
        self.assertEqual(objects.snapshot(), now)

    def test_cost(self) -> None:
        """Neither a snapshot nor a change costs more with more objects."""
        filled: dict[int, OrderedObjects] = {}

        def pages(size: int) -> None:
            objects = filled.get(size)
            if objects is None:
                objects = filled[size] = OrderedObjects()
                for number in range(20 * size):
                    objects.put(("", f"{number:07}"), {})
            for number in range(size):
                snapshot = objects.snapshot().within("")
                list(snapshot[len(snapshot) - 1 :])
                objects.put(("", f"{20 * number:07}"), {})

        for size in (500, 2000):
            pages(size)
        assert_linear(pages, 500)

    def test_converted(self) -> None:
        """Converted objects are converted when they are read."""
        read: list[int] = []

        def convert(obj: Object) -> Object:
            read.append(obj["number"])
            return {"converted": obj["number"]}

        objects = Converted([{"number": number} for number in range(5)], convert)
        part = objects[2:]
        self.assertEqual((len(objects), len(part), read), (5, 3, []))
        self.assertEqual((part[0], read), ({"converted": 2}, [2]))
        self.assertEqual(list(part)[1:], [{"converted": 3}, {"converted": 4}])
