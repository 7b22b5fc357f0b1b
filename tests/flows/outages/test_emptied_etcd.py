"""
API servers on an etcd whose keys another program deletes.
"""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows.deployment import pause
from tests.storage.etcds import Etcds, delete_by_hand, delete_everything
from tests.tiers import PROGRAMS
from twisted_exec.api.kinds import (
    CLUSTERROLEBINDINGS,
    CLUSTERROLES,
    LEASES,
    NAMESPACES,
)
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.apiserver.controllers.leader_election import LEASE, NAMESPACE

from .replicated import REPLICAS, Replica, Replicas


class EmptiedTests(TestCase):
    """Two API servers, and an operator who empties their etcd."""

    starts = PROGRAMS
    skip = needs.etcd()
    program = "etcd"

    async def setUp(self) -> None:
        self.etcds = Etcds(program=self.program)
        self.addCleanup(self.etcds.end)
        self.etcds.start()
        self.deployment = Replicas(self.mktemp())
        self.addCleanup(self.deployment.stop)
        self.deployment.storage = f"etcd:http://{self.etcds.target()}"
        await self.deployment.start_api()
        self.servers = [self.deployment.replicas[name] for name in REPLICAS]

    async def test_continues(self) -> None:
        """
        The servers make their namespaces, roles and bindings again, one of them leads, both are
        ready, and the log says what happened, without a traceback.
        """
        await self.led()
        before = await self.system_objects()
        await delete_everything(self.etcds.target())
        for server in self.servers:
            deleted = await server.program.until(rb"deleted etcd's keys below /twisted-exec")
            complete = rb"the system objects are complete: created \d+"
            await server.program.until(complete, start=deleted.end())
        self.assertEqual(await self.system_objects(), before)
        await self.led()
        for server in self.servers:
            await self.ready(server)
            self.assertNotIn(b"Traceback", server.program.output)

    async def test_deleted_namespace(self) -> None:
        """A permanent namespace whose key is deleted exists again soon, and a server leads."""
        before = await self.system_objects()
        await delete_by_hand(self.etcds.target(), f"/twisted-exec/namespaces/{NAMESPACE}")
        for server in self.servers:
            deleted = await server.program.until(rb"another program deleted namespace kube-system")
            complete = rb"the system objects are complete: created \d+"
            await server.program.until(complete, start=deleted.end())
        self.assertEqual(await self.system_objects(), before)
        await self.led()
        for server in self.servers:
            await self.ready(server)
            self.assertNotIn(b"Traceback", server.program.output)

    async def system_objects(self) -> dict[str, list[str]]:
        """Return the names of all namespaces, roles and bindings."""
        return {
            kind.resource.plural: await self.names(kind.resource)
            for kind in (NAMESPACES, CLUSTERROLES, CLUSTERROLEBINDINGS)
        }

    async def names(self, resource: Resource) -> list[str]:
        listed = await self.servers[0].client.list(resource)
        return [each["metadata"]["name"] for each in listed["items"]]

    async def led(self) -> None:
        """Wait until a server has the Lease."""
        while not await self.holder():
            await pause()

    async def holder(self) -> str:
        try:
            lease = await self.servers[0].client.get(LEASES.resource, LEASE, NAMESPACE)
        except APIError as error:
            if error.code != NotFound.code:
                raise
            return ""
        return str(lease["spec"]["holderIdentity"])

    async def ready(self, server: Replica) -> None:
        """Wait until a server is ready."""
        while b" 200 " not in await self.deployment.readyz(server):
            await pause()
