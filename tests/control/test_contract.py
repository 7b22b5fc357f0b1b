"""
The contract of controllers, with each store and over a client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import TestCase

from tests import needs
from tests.audits import AuditList
from tests.chain import apiserver_settings, begin, client, reactor
from tests.contracts.controller import Candidate, ControllerContract, passed_on
from tests.examples.test_controller import USER, example, grant, note_roles
from tests.storage.etcds import EtcdCase, any_prefix, shared
from tests.storage.sqlites import SQLiteStores
from tests.tiers import PROGRAMS
from twisted_exec.api.kinds import CLUSTERROLES, LEASES, MACHINES, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.apiserver.service import APIServer
from twisted_exec.apiserver.settings import Settings
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.storage.memory import MemoryStorage

Request = tuple[str, str, str]
"""Verb, group and resource, and namespace or ``any``."""


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


def granted() -> set[Request]:
    """Return what these roles allow, apart from names."""
    return {
        (verb, f"{group}/{resource}", role["metadata"].get("namespace", "any"))
        for role in note_roles()
        for rule in role.get("rules", ())
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


class NetworkTests(ControllerContract, TestCase):
    """In a program of its own with the rights of ``note_role.yaml``, with an API server over TLS."""

    async def make_storage(self) -> IStorage:
        return MemoryStorage()

    async def make_ready(self) -> None:
        # The scheduler would change the machines that a test deletes.
        settings = Settings(**{**apiserver_settings(), "scheduling": False})
        self.server = APIServer(settings, self.faulty, AuditList(), reactor)
        await begin(self.server, self.addCleanup)
        self.pending = self.writing = 0
        self.used: set[Request] = set()
        self.admin = client(self.server, "user-admin", self.addCleanup)
        await grant(self.admin)

    def candidate(self, name: str) -> Candidate:
        made = client(self.server, f"user-{USER}", self.addCleanup)
        for verb in ("get", "create", "update", "patch"):
            self.patch(made, verb, self.counted(verb, getattr(made, verb)))
        for verb in ("list", "watch"):
            self.patch(made, verb, self.noted(verb, getattr(made, verb)))
        elected = example("note_program").program(
            made, self.kind.resource, MACHINES.resource, self.clock, self.now, name
        )
        elected.start()
        return self.stopped_in_the_end(Candidate(elected, elected.stop))

    def noted(
        self, verb: str, request: Callable[..., Deferred[Any]]
    ) -> Callable[..., Deferred[Any]]:
        """Take note of the rights that a request needs."""

        def begun(resource: Resource, *arguments: Any, **more: Any) -> Deferred[Any]:
            path = "/".join(filter(None, (resource.plural, more.get("subresource", ""))))
            place = "kube-system" if resource == LEASES.resource else "any"
            self.used.add((verb, f"{resource.group}/{path}", place))
            return request(resource, *arguments, **more)

        return begun

    def counted(
        self, verb: str, request: Callable[..., Deferred[Any]]
    ) -> Callable[..., Deferred[Any]]:
        """Count the requests under way, those of notes apart, because they may hang."""
        noted = self.noted(verb, request)

        def begun(resource: Resource, *arguments: Any, **more: Any) -> Deferred[Any]:
            of_note = resource == self.kind.resource

            def answered(result: Any) -> Any:
                self.pending -= not of_note
                self.writing -= of_note
                return result

            self.pending += not of_note
            self.writing += of_note
            return noted(resource, *arguments, **more).addBoth(answered)

        return begun

    def is_busy(self) -> bool:
        return bool(self.pending or (self.writing and not self.faulty.has_hung))

    async def test_rights(self) -> None:
        """The program needs each of the rights of ``note_role.yaml``, and no other."""

        def fault(verb: str, resource: Resource, obj: Object) -> Deferred[Any] | None:
            if resource == LEASES.resource and verb == "update":
                return fail(ServiceUnavailable("its disk is full"))
            return None

        with capturedLogs() as logged:
            candidate = await self.leader("a")
            await self.make_note("disk")
            await self.until(lambda: self.found("disk") == "False")
            machine = await self.make_machine()
            await self.until(lambda: self.found("disk") == "True")
            await self.storage.delete(MACHINES.resource, machine)
            await self.until(lambda: self.events and ("patch", "/events", "any") in self.used)
            self.faulty.fault = fault
            await self.until(lambda: not candidate.services)
            self.faulty.fault = passed_on
            await self.until(lambda: candidate.services)
        lines = " ".join(formatEvent(each) for each in logged if each["log_level"] >= LogLevel.warn)
        self.assertIn("leads, but cannot renew", lines)
        self.assertNotIn("forbidden", lines)
        self.assertEqual(self.used, granted())

    async def test_no_events(self) -> None:
        """Without the right to write Events a note has its status; the log says whose right is missing."""
        role = await self.admin.get(CLUSTERROLES.resource, "note-controller")
        rules = [each for each in role["rules"] if each["resources"] != ["events"]]
        await self.admin.update(CLUSTERROLES.resource, {**role, "rules": rules})
        lines: list[str] = []

        def told() -> bool:
            lines[:] = [formatEvent(each) for each in logged if "about" in each]
            return bool(lines)

        with capturedLogs() as logged:
            await self.leader("a")
            await self.make_note("disk")
            await self.until(told)
        self.assertEqual(self.found("disk"), "False")
        (line,) = lines
        self.assertIn("events of note-controller about machinenotes cannot be written: ", line)
        self.assertIn("; allow its user to get, create and patch events", line)
