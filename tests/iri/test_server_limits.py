"""Limits of the machine runtime interface's server and its gate."""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.endpoints import connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

from tests.iri.test_client import RPCCase
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.server import CallLimits
from twisted_exec.tls.endpoints import unix_client_endpoint


class Silent(Protocol):
    """Client that sends nothing; fires ``lost`` on disconnect."""

    transport: Any

    def __init__(self) -> None:
        self.lost: Deferred[None] = Deferred()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.callback(None)


class LimitTests(RPCCase):
    """Connections, messages and calls have limits."""

    async def test_connections(self) -> None:
        """Connections beyond the limit are closed at once; the others stay open."""
        self.serve(limits=CallLimits(connections=3))
        client = self.connect()
        await client.version(pb.VersionRequest())
        silent = [
            await connectProtocol(unix_client_endpoint(reactor, self.path), Silent())
            for _ in range(6)
        ]
        await gatherResults([each.lost for each in silent[2:]])
        self.assertEqual([each.lost.called for each in silent[:2]], [False, False])
        await client.version(pb.VersionRequest())
        for each in silent[:2]:
            each.transport.loseConnection()
        await gatherResults([each.lost for each in silent[:2]])

    async def test_message(self) -> None:
        """An oversized message is refused unread with 413."""
        self.serve()
        client, request = self.connect(), pb.CreateMachineRequest()
        request.machine.metadata.annotations["a"] = "x" * (5 << 20)
        found = await self.refusal(client.create_machine(request))
        self.assertEqual(found.code, 413)
        self.assertIn("larger than max", found.message)
        self.assertEqual(self.runtime.calls, [])
        await client.version(pb.VersionRequest())

    async def test_calls(self) -> None:
        """Calls beyond the limit fail with 429; the pending ones are answered."""
        waiting: list[Deferred[pb.VersionResponse]] = []
        both: Deferred[None] = Deferred()

        def answer(_: pb.VersionRequest) -> Deferred[pb.VersionResponse]:
            waiting.append(Deferred())
            if len(waiting) == 2:
                both.callback(None)
            return waiting[-1]

        self.runtime.answers["version"] = answer
        self.serve(limits=CallLimits(calls=2))
        client = self.connect()
        calls = [client.version(pb.VersionRequest()) for _ in range(2)]
        await both
        found = await self.refusal(client.version(pb.VersionRequest()))
        self.assertEqual(found.code, 429)
        for each in waiting:
            each.callback(pb.VersionResponse(runtime_name="x"))
        self.assertEqual([each.runtime_name for each in await gatherResults(calls)], ["x", "x"])

    async def test_changes(self) -> None:
        """Slow changes leave queries unaffected; a change beyond the limit fails with 429."""
        waiting: list[Deferred[pb.DeleteMachineResponse]] = []
        both: Deferred[None] = Deferred()

        def delete(_: pb.DeleteMachineRequest) -> Deferred[pb.DeleteMachineResponse]:
            waiting.append(Deferred())
            if len(waiting) == 2:
                both.callback(None)
            return waiting[-1]

        self.runtime.answers["delete_machine"] = delete
        self.serve(limits=CallLimits(changes=2))
        client = self.connect()
        calls = [client.delete_machine(pb.DeleteMachineRequest()) for _ in range(2)]
        await both
        found = await self.refusal(client.delete_machine(pb.DeleteMachineRequest()))
        self.assertEqual((found.code, found.retry_after_seconds), (429, 1))
        await client.status(pb.StatusRequest())
        for each in waiting:
            each.callback(pb.DeleteMachineResponse())
        await gatherResults(calls)
        del self.runtime.answers["delete_machine"]
        await client.delete_machine(pb.DeleteMachineRequest())
