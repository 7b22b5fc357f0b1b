"""
Tests for the hand-over of :class:`twisted_exec.runtimes.machinebroker.host.BrokerHost`: whole
brokers, one after the other, in one process.
"""

from __future__ import annotations

import json
import os
from typing import Any

from twisted.internet.defer import Deferred

from tests.chain import reactor
from tests.runtimes.machinebroker.test_host import HostCase
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.program.handover.interfaces import IHandsOver, ServiceState
from twisted_exec.program.listening import LISTENING, ListeningSocket
from twisted_exec.runtimes.machinebroker.host import BrokerHost
from twisted_exec.runtimes.machinebroker.tokens import new_key


def pass_on_unix_sockets() -> None:
    """Let the next broker of this process adopt the sockets; those of the target stay as they are."""
    ours = [each for each in LISTENING.sockets() if each.description.startswith("unix:")]
    passed = [ListeningSocket(each.description, each.socket.dup()) for each in ours]
    ports = LISTENING._ports
    LISTENING._ports = [each for each in ports if each[0].startswith("unix:")]
    LISTENING.release()
    LISTENING._ports = [each for each in ports if not each[0].startswith("unix:")]
    LISTENING.inherit(passed)


class HandOverTests(HostCase):
    """A broker that a successor replaces."""

    async def successor(self, first: BrokerHost, **options: Any) -> BrokerHost:
        """Freeze a broker, and return the one that takes its place."""
        handed = await first.freeze()
        pass_on_unix_sockets()
        second = self.host(**options)
        second.inherit(ServiceState(json.loads(json.dumps(dict(handed.values)))))
        ready = second.when_ready()
        second.startService()
        await ready
        return second

    async def test_replaced(self) -> None:
        """Tokens open one console each, old sessions go on and can be ended, calls are answered."""
        first = await self.ready()
        self.assertTrue(IHandsOver.providedBy(first))
        id = await self.machine(first)
        used, fresh = await self.token(first, id), await self.token(first, id)
        old = await self.use(first, used)
        second = await self.successor(first)
        self.assertTrue(self.known(second))
        retiring: Deferred[None] = first.retire(600)
        old.transport.write(b"hello")  # type: ignore[union-attr]
        await self.until(lambda: old.received == b"hello")
        self.assertFalse(retiring.called)
        self.assertEqual((await self.answer(second, used))[0], 404)
        new = await self.use(second, fresh)
        new.transport.write(b"again")  # type: ignore[union-attr]
        await self.until(lambda: new.received == b"again")
        client = IRIClient(second.iri.target, reactor)
        self.addCleanup(client.stopService)
        listed = await client.list_machines(pb.ListMachinesRequest())
        self.assertEqual([each.metadata.id for each in listed.machines], [id])
        old.transport.loseConnection()  # type: ignore[union-attr]
        await retiring
        await first.stopService()
        self.assertTrue(os.path.exists(second.iri.target.path))
        await self.use(second, await self.token(second, id))

    async def test_thawed(self) -> None:
        """A broker that goes on serves as before."""
        host = await self.ready()
        id = await self.machine(host)
        token = await self.token(host, id)
        await host.freeze()
        self.assertEqual((await self.answer(host, token))[0], 503)
        await host.thaw()
        await self.use(host, token)
        client = IRIClient(host.iri.target, reactor)
        self.addCleanup(client.stopService)
        listed = await client.list_machines(pb.ListMachinesRequest())
        self.assertEqual([each.metadata.id for each in listed.machines], [id])

    async def test_linger(self) -> None:
        """Sessions that are left when the time is over end with the reason."""
        host = await self.ready()
        await self.use(host, await self.token(host, await self.machine(host)))
        await host.freeze()
        await host.retire(0)
        self.assertEqual([each.get("reason") for each in self.records], [None, "ShuttingDown"])

    async def test_shared_key(self) -> None:
        """A key that replicas share stays in its file."""
        path = os.path.join(self.directory, "key")
        with open(path, "wb") as file:
            file.write(new_key())
        first = await self.ready(token_key=path)
        token = await self.token(first, await self.machine(first))
        self.assertEqual((await first.freeze()).values["key"], "")
        await first.thaw()
        second = await self.successor(first, token_key=path)
        await self.use(second, token)

    async def test_state_of_another_program(self) -> None:
        """A state that is no broker's is refused."""
        for values in ({}, {"key": 1, "claims": {}}, {"key": "", "claims": []}, {"key": "x"}):
            with self.assertRaises(ValueError):
                self.host().inherit(ServiceState(values))
