"""
Real etcds: clusters of one or more members, on addresses of their own.

Each cluster has a random address of 127.0.0.0/8, so that its ports do not collide, and a
member that is started again is found where it was.
"""

from __future__ import annotations

import atexit
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import TestCase

from tests.runtimes.support import pause
from tests.shared import ENDS_WITH_PARENT
from tests.tiers import PROGRAMS
from twisted_exec.api.status import APIError
from twisted_exec.storage.etcd.client import COMPACT, RANGE, TXN, EtcdClient
from twisted_exec.storage.etcd.errors import EtcdError
from twisted_exec.storage.etcd.keys import Keys
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.etcd.store import EtcdStorage
from twisted_exec.storage.etcd.target import Endpoint, EtcdTarget
from twisted_exec.storage.quota import NO_LIMITS

_SECONDS = 600.0


async def until(true: Callable[[], object], ask: Callable[[], Deferred[Any]] | None = None) -> None:
    """
    Wait for a condition; fails after ten minutes.

    :param ask: something that makes it come true in the end, refused or not.
    """
    end = reactor.seconds() + _SECONDS  # type: ignore[attr-defined]
    while not true():
        if reactor.seconds() > end:  # type: ignore[attr-defined]
            raise AssertionError("this has not come true within ten minutes")
        if ask is not None:
            await ask().addErrback(lambda failure: failure.trap(APIError) and None)
        await pause()


class Member:
    """
    One process.

    :param flags: besides those that every member has.
    """

    def __init__(
        self,
        host: str,
        number: int,
        cluster: str,
        directory: Path,
        flags: Sequence[str],
        scheme: str,
        program: str,
    ) -> None:
        self.name = f"m{number}"
        self.data = directory / self.name
        self.endpoint = Endpoint(host, 2379 + 10 * number)
        client, peer = f"{scheme}://{self.endpoint}", f"http://{host}:{2380 + 10 * number}"
        self._command = [
            *ENDS_WITH_PARENT,
            program,
            f"--name={self.name}",
            f"--data-dir={self.data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={cluster}",
            "--logger=zap",
            "--log-level=error",
            *flags,
        ]
        self._log = directory / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; callers wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(600)
            self._process = None

    def freeze(self) -> None:
        """Stop the process, which then answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self._process.pid}/task")
        # The signal is sent at once; each thread stops when it next looks.
        for _ in range(600_000):
            if all(_is_stopped(task) for task in tasks.iterdir()):
                return
            time.sleep(0.001)
        raise AssertionError("etcd did not stop in ten minutes")

    def thaw(self) -> None:
        """Let the process continue."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


def _is_stopped(task: Path) -> bool:
    """As proc(5) has it: the state is the first word after the program's name."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"


class Etcds:
    """
    A cluster.

    :param members: how many.
    :param flags: for each.
    :param secure: listen with TLS; what that needs is in the flags.
    """

    def __init__(
        self,
        members: int = 1,
        flags: Sequence[str] = (),
        *,
        secure: bool = False,
        host: str = "",
        program: str = "etcd",
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="etcds-"))
        self.host = host or loopback()
        cluster = ",".join(f"m{one}=http://{self.host}:{2380 + 10 * one}" for one in range(members))
        scheme = "https" if secure else "http"
        if members == 1:  # it waits for an election at each start, and cannot lose one later
            flags = ["--heartbeat-interval=20", "--election-timeout=100", *flags]
        self.members = [
            Member(self.host, one, cluster, self.directory, flags, scheme, program)
            for one in range(members)
        ]
        self.secure = secure

    def start(self) -> None:
        """Start every member."""
        for member in self.members:
            member.start()

    def end(self) -> None:
        """Stop every member, and forget what they have."""
        for member in self.members:
            member.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def target(self, prefix: str = "/twisted-exec", **more: Any) -> EtcdTarget:
        """Return the target of all members."""
        endpoints = tuple(member.endpoint for member in self.members)
        more.setdefault("compaction_seconds", 0.0)
        return EtcdTarget(endpoints, self.secure, prefix, **more)


def loopback() -> str:
    """Return a random address of this host."""
    return f"127.{random.randint(2, 250)}.{random.randint(0, 250)}.{random.randint(2, 250)}"


def shared(program: str = "etcd") -> Etcds:
    """Return the cluster that tests of this process share, each with its own prefix."""
    sys.audit("tests.program", program)
    return _shared(program)


@cache
def _shared(program: str) -> Etcds:
    etcds = Etcds(program=program)
    etcds.start()
    atexit.register(etcds.end)
    return etcds


def any_prefix() -> str:
    """A prefix that no other test has."""
    return f"/test-{random.getrandbits(64):016x}"


class Gate:
    """
    A TCP proxy of one member that can be closed, or drop all answers.

    :ivar endpoint: the proxy's, for use in place of the member's.
    :ivar through: open connections.
    """

    def __init__(self, member: Member, port: int = 7000) -> None:
        self.endpoint = Endpoint(member.endpoint.host, port)
        self._to = member.endpoint
        self.through: set[_Inbound] = set()
        self._listening: Any = None
        self.deaf = False

    def open(self) -> None:
        """Listen, and forward new connections."""
        factory = Factory.forProtocol(_Inbound)
        factory.gate = self  # type: ignore[attr-defined]
        host, port = self.endpoint.host, self.endpoint.port
        self._listening = reactor.listenTCP(port, factory, interface=host)  # type: ignore[attr-defined]
        self.deaf = False

    def close(self) -> Deferred[Any]:
        """Abort all connections and stop listening."""
        listening, self._listening = self._listening, None
        for one in list(self.through):
            one.transport.abortConnection()  # type: ignore[union-attr]
        return maybeDeferred(listening.stopListening) if listening is not None else succeed(None)


class _Inbound(Protocol):
    """A client's connection, and what it is joined to."""

    factory: Any

    def connectionMade(self) -> None:
        gate: Gate = self.factory.gate
        gate.through.add(self)
        self._waiting: list[bytes] = []
        self._out: Any = None
        point = TCP4ClientEndpoint(reactor, gate._to.host, gate._to.port)
        connecting = connectProtocol(point, _Outbound(self, gate))
        connecting.addCallbacks(self._joined, lambda _: self.transport.abortConnection())  # type: ignore[union-attr]

    def _joined(self, out: Any) -> None:
        self._out = out
        for data in self._waiting:
            out.transport.write(data)

    def dataReceived(self, data: bytes) -> None:
        if self._out is None:
            self._waiting.append(data)
        else:
            self._out.transport.write(data)

    def connectionLost(self, reason: Any = None) -> None:
        self.factory.gate.through.discard(self)
        if self._out is not None:
            self._out.transport.abortConnection()


class _Outbound(Protocol):
    def __init__(self, inbound: _Inbound, gate: Gate) -> None:
        self._inbound, self._gate = inbound, gate

    def dataReceived(self, data: bytes) -> None:
        if not self._gate.deaf:
            self._inbound.transport.write(data)  # type: ignore[union-attr]

    def connectionLost(self, reason: Any = None) -> None:
        self._inbound.transport.abortConnection()  # type: ignore[union-attr]


class EtcdCase(TestCase):
    """Stores over etcds, which end with the test."""

    starts = PROGRAMS
    remembered = 20
    remembered_bytes = 20_000
    limits = NO_LIMITS
    program = "etcd"

    def cluster(self, members: int = 1, flags: Sequence[str] = (), **more: Any) -> Etcds:
        """A cluster of this test's own, started."""
        etcds = Etcds(members, flags, program=self.program, **more)
        self.addCleanup(etcds.end)
        etcds.start()
        return etcds

    def begin(self, target: EtcdTarget, **more: Any) -> EtcdStorage:
        """A store that is started, and perhaps not ready yet."""
        more = {"remembered": self.remembered, "remembered_bytes": self.remembered_bytes} | more
        storage = EtcdStorage(target, reactor, limits=self.limits, **more)
        storage.startService()
        self.addCleanup(storage.stopService)
        return storage

    def client(self, target: EtcdTarget) -> EtcdClient:
        """Return a client for operations that no store makes."""
        client = EtcdClient(target, reactor)
        self.addCleanup(client.close)
        return client

    async def put(self, target: EtcdTarget, key: str, value: str = "{}") -> None:
        """Write a key as another program."""
        await put_by_hand(target, key, value)

    async def compact(self, target: EtcdTarget) -> None:
        """Compact etcd up to the current revision."""
        client = self.client(target)
        now = await client.read(RANGE, pb.RangeRequest(key=b"x"))
        await client.write(COMPACT, pb.CompactionRequest(revision=now.header.revision))

    async def wipe(self, target: EtcdTarget) -> None:
        """Delete every key below the prefix, one by one, as an operator might."""
        client, keys = self.client(target), Keys(target.prefix)
        found = await client.read(RANGE, pb.RangeRequest(key=keys.first, range_end=keys.end))
        gone = [pb.DeleteRangeRequest(key=one.key) for one in found.kvs]
        all_of_it = pb.TxnRequest(success=[pb.RequestOp(request_delete_range=one) for one in gone])
        await client.write(TXN, all_of_it)

    def deferred(self, work: Coroutine[Any, Any, Any]) -> Deferred[Any]:
        """A call, as a Deferred."""
        return Deferred.fromCoroutine(work)

    def gate(self, member: Member, port: int = 7000) -> Gate:
        """A gate that is open; one address has one for each port."""
        gate = Gate(member, port)
        gate.open()
        self.addCleanup(gate.close)
        return gate

    async def open(self, target: EtcdTarget, **more: Any) -> EtcdStorage:
        """A store that is ready."""
        storage = self.begin(target, **more)
        await storage.when_ready()
        return storage


async def put_by_hand(target: EtcdTarget, key: str, value: str = "{}") -> None:
    """Write a key as another program, as soon as etcd takes it."""
    put = pb.RequestOp(request_put=pb.PutRequest(key=key.encode(), value=value.encode()))
    client = EtcdClient(target, reactor)
    try:
        while True:
            try:
                await client.write(TXN, pb.TxnRequest(success=[put]))
                return
            except EtcdError as error:
                if not error.undone:
                    raise
                await pause()
    finally:
        client.close()


async def delete_everything(target: EtcdTarget) -> None:
    """Delete all keys of the etcd at once, as ``etcdctl del "" --prefix`` does."""
    every_key = b"\0"
    # Our messages lack ``range_end``, which is field 2: no store deletes more than one key.
    request = pb.DeleteRangeRequest.FromString(
        pb.DeleteRangeRequest(key=every_key).SerializeToString() + b"\x12\x01" + every_key
    )
    await _delete(target, request)


async def delete_by_hand(target: EtcdTarget, key: str) -> None:
    """Delete a key as another program."""
    await _delete(target, pb.DeleteRangeRequest(key=key.encode()))


async def _delete(target: EtcdTarget, request: pb.DeleteRangeRequest) -> None:
    client = EtcdClient(target, reactor)
    try:
        deletion = pb.RequestOp(request_delete_range=request)
        await client.write(TXN, pb.TxnRequest(success=[deletion]))
    finally:
        client.close()


async def refusal(work: Deferred[Any]) -> APIError:
    """Return the error of a refused call."""
    try:
        made = await work
    except APIError as error:
        return error
    raise AssertionError(f"this was not refused: {made}")
