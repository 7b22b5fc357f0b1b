"""
The contract of controllers, with each store and over a client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from tests import needs
from tests.audits import AuditList
from tests.chain import apiserver_settings, begin, client, reactor
from tests.contracts.controller import Candidate, ControllerContract
from tests.examples.test_controller import example
from tests.storage.etcds import EtcdCase, any_prefix, shared
from tests.storage.sqlites import SQLiteStores
from tests.tiers import PROGRAMS
from twisted_exec.api.kinds import MACHINES
from twisted_exec.api.resource import Resource
from twisted_exec.apiserver.service import APIServer, Settings
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.storage.memory import MemoryStorage


class MemoryTests(ControllerContract, TestCase):
    """In the API server, with objects in memory."""

    async def make_storage(self) -> IStorage:
        return MemoryStorage()


class SQLiteTests(SQLiteStores, ControllerContract, TestCase):
    """In the API server, with a file."""

    async def make_storage(self) -> IStorage:
        storage = self.open(self.mktemp())
        await storage.when_ready()
        return storage


class EtcdTests(ControllerContract, EtcdCase):
    """In the API server, with an etcd."""

    starts = PROGRAMS
    skip = needs.etcd()

    async def make_storage(self) -> IStorage:
        return await self.open(shared().target(any_prefix()))


class NetworkTests(ControllerContract, TestCase):
    """In a program of its own, with an API server over TLS."""

    async def make_storage(self) -> IStorage:
        return MemoryStorage()

    async def make_ready(self) -> None:
        # The scheduler would change the machines that a test deletes.
        settings = Settings(**{**apiserver_settings(), "scheduling": False})
        self.server = APIServer(settings, self.faulty, AuditList(), reactor)
        await begin(self.server, self.addCleanup)
        self.pending = 0

    def candidate(self, name: str) -> Candidate:
        made = client(self.server, "user-admin", self.addCleanup)
        for verb in ("get", "create", "update", "patch"):
            self.patch(made, verb, self.counted(getattr(made, verb)))
        elected = example("note_program").program(
            made, self.kind.resource, MACHINES.resource, self.clock, self.now, name
        )
        elected.start()
        return self.stopped_in_the_end(Candidate(elected, elected.stop))

    def counted(self, request: Callable[..., Deferred[Any]]) -> Callable[..., Deferred[Any]]:
        """Count the requests under way, except those of notes, which may hang."""

        def answered(result: Any) -> Any:
            self.pending -= 1
            return result

        def begun(resource: Resource, *arguments: Any, **more: Any) -> Deferred[Any]:
            answer = request(resource, *arguments, **more)
            if resource == self.kind.resource:
                return answer
            self.pending += 1
            return answer.addBoth(answered)

        return begun

    def is_busy(self) -> bool:
        return bool(self.pending)
