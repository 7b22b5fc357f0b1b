"""
Tests for :mod:`twisted_exec.apiserver.controllers.event_recorder`.
"""

from __future__ import annotations

import gc

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.storage import machine
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError
from twisted_exec.apiserver.controllers.event_recorder import WARNING, Reports
from twisted_exec.apiserver.controllers.expiry import SOON_SECONDS, EventExpiry
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.storage.memory import MemoryStorage


class GarbageTests(SynchronousTestCase):
    """Writes of Events leave nothing that waits for the garbage collector."""

    def setUp(self) -> None:
        self.clock, self.storage = Clock(), MemoryStorage()
        body = {"metadata": {"name": "default", "uid": "uid-of-default"}}
        self.successResultOf(self.storage.create(kinds.NAMESPACES.resource, body))
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)

    def tell(self, number: int) -> None:
        reports = Reports(Verbs(self.storage, [], self.clock.seconds), "scheduler", lambda: 1e9)
        told = reports.tell(kinds.MACHINES, machine(f"vm-{number}"), WARNING, "Failed", "no pool")
        self.successResultOf(Deferred.fromCoroutine(told))

    def errors(self) -> list[APIError]:
        return [each for each in gc.get_objects() if isinstance(each, APIError)]

    def test_new(self) -> None:
        """The first Event about an object, before which there is none."""
        before = len(self.errors())
        for number in range(20):
            self.tell(number)
        self.assertEqual(len(self.errors()), before)
        events = self.successResultOf(self.storage.list(kinds.EVENTS.resource)).items
        self.assertEqual(len(events), 20)

    def test_deleted_meanwhile(self) -> None:
        """Old Events that are deleted when others have deleted them."""
        for _ in range(2):
            expiry = EventExpiry(self.storage, self.clock, self.clock.seconds, most_bytes=1)
            expiry.startService()
            self.addCleanup(expiry.stopService)
        before = len(self.errors())
        for number in range(20):
            self.tell(number)
        self.clock.advance(SOON_SECONDS)
        self.assertEqual(self.successResultOf(self.storage.list(kinds.EVENTS.resource)).items, [])
        self.assertEqual(len(self.errors()), before)
