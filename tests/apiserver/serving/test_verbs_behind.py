"""
Tests for :mod:`twisted_exec.apiserver.serving.verbs` with a stale cache: other replicas have
written meanwhile. For everything else see ``test_verbs`` and, through requests, ``test_rest``.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed

from tests.apiserver import support
from tests.apiserver.support import MACHINES, MERGE, NAMESPACES, APITestCase, machine
from twisted_exec.api.kinds import Object
from twisted_exec.api.resource import Resource
from twisted_exec.storage.memory import MemoryStorage

MACHINE = f"{MACHINES}/vm"


class Behind(MemoryStorage):
    """
    A store that other replicas write to, too.

    :ivar past: stale cached versions of some objects, ``None`` for uncached objects.
    :ivar asked: the number of reads that bypassed the cache.
    """

    exclusive = False

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.past: dict[str, Object | None] = {}
        self.asked = 0

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Object]:
        """As it was, to those who are content with it."""
        if stale and name in self.past:
            past = self.past[name]
            return succeed(past) if past is not None else super().get(resource, namespace, "?")
        self.asked += not stale
        return super().get(resource, namespace, name, stale=stale)


class BehindTests(APITestCase):
    """A cached object speeds a write up, and is never trusted."""

    def setUp(self) -> None:
        self.patch(support, "MemoryStorage", Behind)
        super().setUp()
        self.store: Any = self.storage
        self.first = self.make_machine("vm")
        self.store.asked = 0

    def label(self, value: str | None, code: int = 200, **more: Any) -> Any:
        body = {"metadata": {"labels": {"a": value}, **more}}
        return self.answer("PATCH", MACHINE, body, content_type=MERGE, code=code)

    def test_at_hand(self) -> None:
        """Usually the cached object is current, and no other read is needed."""
        self.label("1")
        self.answer("PUT", MACHINE, self.answer("GET", f"{MACHINE}?resourceVersion=0"))
        self.answer("POST", MACHINES, machine("other"), code=201)
        self.assertEqual(self.store.asked, 1)  # for the update that changes nothing

    def test_changed(self) -> None:
        """A change of what is older than what others have written is made of theirs."""
        self.store.past["vm"] = self.first
        self.answer("PATCH", MACHINE, {"spec": {"power": "Off"}}, content_type=MERGE)
        told = self.label("2")
        self.assertEqual(told["spec"]["power"], "Off")
        self.assertEqual(told["metadata"]["labels"], {"a": "2"})

    def test_same_as_before(self) -> None:
        """A write that does not change the cached object may change the current one."""
        self.label("1")
        self.store.past["vm"] = self.answer("GET", MACHINE)
        self.label("2")
        self.assertEqual(self.label("1")["metadata"]["labels"], {"a": "1"})
        self.assertEqual(self.answer("GET", MACHINE)["metadata"]["labels"], {"a": "1"})

    def test_newer_version(self) -> None:
        """A client that names the current version is not refused because of the cached one."""
        self.store.past["vm"] = self.first
        self.label("1")
        current = self.answer("GET", MACHINE)
        current["spec"]["power"] = "Off"
        self.answer("PUT", MACHINE, current)
        self.refused(409, "PUT", MACHINE, {**current, "spec": {**current["spec"], "power": "On"}})

    def test_made_elsewhere(self) -> None:
        """Objects created by others can be changed at once, in new namespaces too."""
        self.store.past |= {"vm": None, "default": None}
        self.label("1")
        self.answer("POST", MACHINES, machine("other"), code=201)

    def test_gone(self) -> None:
        """Objects deleted by others are not found."""
        self.store.past["vm"] = self.first
        self.answer("DELETE", MACHINE)
        self.label("1", code=404)

    def test_dry_run(self) -> None:
        """A dry run is based on the current object."""
        self.store.past["vm"] = self.first
        self.answer("PATCH", MACHINE, {"spec": {"power": "Off"}}, content_type=MERGE)
        body = {"metadata": {"labels": {"a": "3"}}}
        told = self.answer("PATCH", f"{MACHINE}?dryRun=All", body, content_type=MERGE)
        self.assertEqual(told["spec"]["power"], "Off")

    def test_terminating(self) -> None:
        """A namespace that was being deleted, as far as is known, may be another one by now."""
        self.answer("POST", NAMESPACES, {"metadata": {"name": "lab"}}, code=201)
        made = self.answer("GET", f"{NAMESPACES}/lab")
        made["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z"
        self.store.past["lab"] = made
        path = MACHINES.replace("default", "lab")
        self.answer("POST", path, machine("in-it"), code=201)
