"""Tests for :mod:`twisted_exec.spacemanager.spaces.index`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.retained import entries
from twisted_exec.api import spaces
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.spaces.index import SpaceIndex
from twisted_exec.spacemanager.spaces.naming import PHYSICAL_SPACE

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def space(
    name: str,
    physical: str = "",
    type: str = spaces.UNMANAGED,
    *,
    created: str = EARLY,
    namespace: str = "spaceprovider-p",
    found: bool = False,
    **metadata: Any,
) -> Object:
    """A Space of provider ``p``; an imported one of none."""
    spec = {"Type": type} | ({} if type == spaces.IMPORTED else {"SpaceProviderDescName": "p"})
    status = {PHYSICAL_SPACE: {"name": physical or name, "found": found}} if found else {}
    notes = {"annotations": {spaces.PHYSICAL_NAME: physical}} if physical else {}
    whole = {"name": name, "namespace": namespace, "creationTimestamp": created}
    return {"metadata": {**whole, **notes, **metadata}, "spec": spec, "status": status}


class SpaceIndexTests(SynchronousTestCase):
    """Tests for :class:`SpaceIndex`."""

    def setUp(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.index = SpaceIndex(lambda name, namespace: self.objects.get((namespace, name)))

    def put(self, each: Object) -> Object:
        key = each["metadata"]["namespace"], each["metadata"]["name"]
        before, self.objects[key] = self.objects.get(key), each
        self.index.changed(before, each)
        return each

    def drop(self, each: Object) -> None:
        del self.objects[each["metadata"]["namespace"], each["metadata"]["name"]]
        self.index.changed(each, None)

    def test_of_provider(self) -> None:
        """Spaces are found by their provider, imported ones by none; what is gone is gone."""
        before = entries(self.index)
        one, other = self.put(space("one")), self.put(space("x", type=spaces.IMPORTED))
        self.assertEqual(self.index.of_provider("p"), [one])
        self.assertEqual(self.index.keys_of(""), [("spaceprovider-p", "x")])
        self.drop(one)
        self.drop(other)
        self.assertEqual((self.index.of_provider("p"), self.index.keys_of("")), ([], []))
        self.assertEqual(entries(self.index), before)

    def test_standing_for(self) -> None:
        """And by what they stand for, as it is by now; one in a wrong place stands for nothing."""
        self.put(space("one", "red"))
        self.put(space("two", "red", namespace="elsewhere"))
        red, green = Physical("red"), Physical("green")
        self.assertEqual(self.index.standing_for("p", red), [("spaceprovider-p", "one")])
        self.put(space("one", "green"))
        self.assertEqual(self.index.standing_for("p", red), [])
        self.assertEqual(self.index.standing_for("p", green), [("spaceprovider-p", "one")])
        self.assertEqual(self.index.standing_for("q", green), [])

    def check_rivals(self, one: Object, two: Object, *expected: str) -> None:
        self.assertEqual((self.index.rival(one), self.index.rival(two)), expected)

    def test_first(self) -> None:
        """Of two pictures of the same the older one stays, or that whose name comes first."""
        old, new = self.put(space("b", "red")), self.put(space("a", "red", created=LATE))
        self.check_rivals(old, new, "", "b")
        new = self.put(space("a", "red"))
        self.check_rivals(old, new, "a", "")
        self.assertEqual(self.index.rival(self.put(space("c", "green"))), "")

    def test_managed(self) -> None:
        """One that it was made for goes before; one that only wants it says nothing yet."""
        picture = self.put(space("a", "red"))
        wants = self.put(space("b", "red", spaces.MANAGED, created=LATE))
        self.check_rivals(picture, wants, "", "")
        has = self.put(space("b", "red", spaces.MANAGED, created=LATE, found=True))
        self.check_rivals(picture, has, "b", "")

    def test_going(self) -> None:
        """Nobody gives way to one that is being deleted."""
        going = self.put(space("a", "red", deletionTimestamp=LATE))
        stays = self.put(space("b", "red", created=LATE))
        self.check_rivals(going, stays, "", "")
