"""
Tests for :mod:`twisted_exec.storage.sharing`.
"""

from __future__ import annotations

import copy
import json

from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.storage import MACHINES, machine
from tests.retained import instances, weight
from twisted_exec.storage.history import History, table_of
from twisted_exec.storage.interfaces import Object
from twisted_exec.storage.sharing import SharedParts
from twisted_exec.storage.write_checks import created


def _object(number: int) -> Object:
    """As decoded: with strings of its own."""
    text = {
        "metadata": {"name": f"vm-{number}", "labels": {"rack": "a-12"}},
        "spec": {"class": {"name": "large-machine"}, "disks": [{"image": "os-12"}, {"size": 4}]},
        "status": {"disks": [{"image": "os-12"}], "ready": True, "count": 1, "share": 1.0},
    }
    decoded: Object = json.loads(json.dumps(text))
    return decoded


class SharedPartsTests(SynchronousTestCase):
    """Tests for :class:`SharedParts`."""

    def setUp(self) -> None:
        self.parts = SharedParts()
        self.objects = [_object(number) for number in range(5)]
        for obj in self.objects:
            self.parts.share(obj)

    def test_equal(self) -> None:
        """Objects are what they were, types of numbers included."""
        for number, obj in enumerate(self.objects):
            self.assertEqual(json.dumps(obj), json.dumps(_object(number)))

    def test_shared(self) -> None:
        """Equal dictionaries, lists and strings of two objects are one."""
        one, other = self.objects[3:]
        self.assertIs(one["spec"], other["spec"])
        self.assertIs(one["metadata"]["labels"], other["metadata"]["labels"])
        self.assertIs(one["status"]["disks"], other["status"]["disks"])
        self.assertIsNot(one["metadata"], other["metadata"])

    def test_within(self) -> None:
        """Equal parts of one object stay two, so that its deep copy can be changed."""
        for obj in self.objects:
            other = copy.deepcopy(obj)
            other["spec"]["disks"][0]["image"] = "changed"
            self.assertEqual(other["status"]["disks"], [{"image": "os-12"}])

    def test_numbers(self) -> None:
        """Values that compare as equal but are different JSON are not mixed."""
        mixed = [{"x": {"a": value, "b": "c"}} for value in (1, True, 1.0, 1, True, 1.0)]
        for obj in mixed:
            self.parts.share(obj)
        self.assertEqual([repr(obj["x"]["a"]) for obj in mixed], ["1", "True", "1.0"] * 2)

    def test_deep(self) -> None:
        """Objects that are deeper than Python can recurse stay as they are."""
        for _ in range(2):
            deep: Object = {}
            for _ in range(10_000):
                deep = {"a": [deep]}
            self.parts.share(deep)

    def test_bounded(self) -> None:
        """Names that are ever new are forgotten."""
        for number in range(60_000):
            self.parts.share({"metadata": {"name": f"a-name-of-its-own-{number}"}})
        self.assertLess(weight(self.parts), 1 << 20)


class StoredTests(SynchronousTestCase):
    """Objects of a history."""

    def test_in_history(self) -> None:
        """A hundred alike machines keep the text of their common parts once."""
        history, table = History(), table_of(MACHINES)
        for number in range(100):
            obj = json.loads(json.dumps(machine(f"vm-{number}", note="x" * 200)))
            history.apply(table, created(obj, number + 1))
        notes = [text for text in instances(history, str) if text == "x" * 200]
        self.assertLess(len(notes), 3)
        copies = [copy.deepcopy(obj) for obj in history.list(MACHINES, "", None).items]
        copies[5]["spec"]["note"] = "changed"
        self.assertEqual(history.get(MACHINES, "default", "vm-6")["spec"]["note"], "x" * 200)
        self.assertEqual(copies[6]["spec"]["note"], "x" * 200)
