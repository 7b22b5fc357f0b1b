"""
Two API servers on one etcd, behind a load balancer; the other programs as in a deployment.
"""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP4ServerEndpoint, connectProtocol
from twisted.internet.error import ConnectError
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from tests.flows.deployment import Deployment
from tests.flows.programs import Program
from tests.storage.etcds import any_prefix, shared
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import client_endpoint

reactor: Any = _reactor

REPLICAS = ("a", "b")


class _Side(Protocol):
    """One end of a forwarded connection."""

    transport: Any
    peer: _Side | None = None

    def join(self, peer: _Side) -> None:
        self.peer, peer.peer = peer, self
        self.transport.registerProducer(peer.transport, True)
        peer.transport.registerProducer(self.transport, True)

    def dataReceived(self, data: bytes) -> None:
        assert self.peer is not None  # nothing is read before
        self.peer.transport.write(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.peer is not None:
            self.peer.transport.unregisterProducer()
            self.peer.transport.loseConnection()


class _Front(_Side):
    """The end towards the client."""

    factory: Balancer
    lost = False

    def connectionMade(self) -> None:
        self.transport.pauseProducing()
        passing = Deferred.fromCoroutine(self.factory.pass_on(self))
        passing.addErrback(lambda _: self.transport.abortConnection())

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = True
        super().connectionLost(reason)


class Balancer(Factory):
    """
    Forwards each connection unchanged to the next server that accepts it.

    :ivar ports: of the servers.
    """

    protocol = _Front
    noisy = False

    def __init__(self) -> None:
        self.ports: list[int] = []
        self._turn = itertools.count()
        self._listening: Any = None
        self._open: list[_Side] = []

    async def start(self) -> int:
        """Fires with the port."""
        self._listening = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(self)
        port: int = self._listening.getHost().port
        return port

    async def stop(self) -> None:
        if self._listening is not None:
            await self._listening.stopListening()
        for side in self._open:
            side.transport.abortConnection()

    async def pass_on(self, front: _Front) -> None:
        turn = next(self._turn)
        for offset in range(len(self.ports)):
            port = self.ports[(turn + offset) % len(self.ports)]
            try:
                back = await connectProtocol(
                    TCP4ClientEndpoint(reactor, "127.0.0.1", port), _Side()
                )
            except ConnectError:
                continue
            if front.lost:
                back.transport.abortConnection()
                return
            self._open += [front, back]
            front.join(back)
            front.transport.resumeProducing()
            return
        front.transport.abortConnection()


class _Probe(Protocol):
    """One request for ``/readyz``."""

    transport: Any

    def __init__(self) -> None:
        self.response = b""
        self.ended: Deferred[bytes] = Deferred()

    def connectionMade(self) -> None:
        self.transport.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    def dataReceived(self, data: bytes) -> None:
        self.response += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.ended.callback(self.response)


class Replica:
    """
    One of the API servers.

    :ivar kubeconfig: of an administrator, for this server only.
    """

    program: Program
    url = ""
    port = 0
    kubeconfig = ""
    client: KubeClient

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def runs(self) -> bool:
        return hasattr(self, "program") and self.program.exit_code is None


class Replicas(Deployment):
    """
    A :class:`Deployment` with two API servers behind one address.

    :ivar replicas: by name.
    """

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        member = shared().members[0].endpoint
        self.storage = f"etcd:http://{member}?prefix={any_prefix()}"
        self.balancer = Balancer()
        self.replicas = {name: Replica(name) for name in REPLICAS}

    async def start_api(self, *options: str) -> None:
        """Start both servers at the same time, and the load balancer."""
        starting = [self.start_replica(name, *options) for name in REPLICAS]
        for each in [Deferred.fromCoroutine(one) for one in starting]:
            await each
        self.port = await self.balancer.start()
        self.url = f"https://127.0.0.1:{self.port}"
        self.api = self.replicas[REPLICAS[0]].program
        await self.be_admin()

    async def start_replica(self, name: str, *options: str) -> Replica:
        """Start one server; a restart uses the same port."""
        replica = self.replicas[name]
        is_first = not replica.port
        replica.port = replica.port or self.reserved.add()
        replica.program, replica.url = await self.api_server(
            name, replica.port, self.storage, *options
        )
        if is_first:
            self.balancer.ports.append(replica.port)
            replica.kubeconfig = self.kubeconfig(
                "admin", ["system:masters"], url=replica.url, name=name
            )
            replica.client = KubeClient(load(replica.kubeconfig), reactor)
        return replica

    async def kill(self, name: str) -> None:
        """Kill a server with SIGKILL."""
        await self.replicas[name].program.stop(signal.SIGKILL)

    async def readyz(self, replica: Replica) -> bytes:
        """Return the whole response of a server to ``/readyz`` without credentials."""
        tls = ClientTLS("127.0.0.1", ca_pem=Path(self.pki.serving_ca).read_bytes())
        endpoint = client_endpoint(reactor, "127.0.0.1", replica.port, tls)
        probe: Any = await connectProtocol(endpoint, _Probe())
        response: bytes = await probe.ended
        return response

    async def stop(self) -> None:
        for replica in self.replicas.values():
            if hasattr(replica, "client"):
                await replica.client.close()
        await super().stop()
        await self.balancer.stop()


def other(name: str) -> str:
    """Return the name of the other server."""
    return REPLICAS[1 - REPLICAS.index(name)]
