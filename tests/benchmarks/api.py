"""
An API server that holds many machines, in a process of its own, and a client that
reads from it with plain blocking sockets.

``python -m tests.benchmarks.api DIRECTORY MACHINES STORAGE`` prints its port.  To each line on its
standard input it answers with the longest time, in milliseconds, for which its
reactor was blocked since the previous line.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.stdio import StandardIO
from twisted.internet.task import LoopingCall
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure

from tests.benchmarks.console import connect
from twisted_exec.api import kinds, strategy
from twisted_exec.api.status import AlreadyExists
from twisted_exec.apiserver.identity.credentials import Identities
from twisted_exec.apiserver.service import APIServer
from twisted_exec.apiserver.settings import Settings
from twisted_exec.program.audit_file import JSONLinesAudit
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.storage.option import storage_option
from twisted_exec.tls.pki.directory import PKI, create_pki

USERS = 4
"""One alone may not have as many watches as are measured."""
MACHINES = kinds.MACHINES.resource.path("default")
POOLS = 20
_PARALLEL = 500


def machine(number: int) -> dict[str, Any]:
    """A machine as a user would have it, with a status."""
    name = f"machine-{number:05}"
    obj = strategy.for_create(
        kinds.MACHINES,
        {
            "metadata": {
                "name": name,
                "labels": {"app": f"app-{number % 50}", "team": f"team-{number % 7}"},
                "annotations": {"example.org/owner": f"owner-{number % 100}@example.org"},
            },
            "spec": {
                "machineClassRef": {"name": "large"},
                "machinePoolRef": {"name": f"pool-{number % POOLS}"},
                "volumes": [
                    {"name": "root", "device": "oda", "localDisk": {"image": "registry/os:12"}},
                    {"name": "data", "device": "odb", "volumeRef": {"name": f"{name}-data"}},
                ],
                "networkInterfaces": [
                    {"name": "primary", "networkInterfaceRef": {"name": f"{name}-primary"}}
                ],
                "ignitionRef": {"name": f"{name}-ignition"},
            },
        },
        namespace="default",
        now=time.time(),
    )
    obj["status"] = {
        "machineID": f"pool-{number % 20}://{number:08x}-0000-4000-8000-000000000000",
        "observedGeneration": 1,
        "state": "Running",
        "volumes": [
            {"name": volume, "handle": f"{name}-{volume}", "state": "Attached"}
            for volume in ("root", "data")
        ],
    }
    return obj


def pool(number: int) -> dict[str, Any]:
    """A pool, without which the scheduler would have something to say of each machine."""
    body = {"metadata": {"name": f"pool-{number}"}, "spec": {"providerID": f"pool://{number}"}}
    return strategy.for_create(kinds.MACHINEPOOLS, body, namespace="", now=time.time())


class _Gaps(LineReceiver):
    """Reports how long the reactor was blocked."""

    delimiter = b"\n"
    _STEP_SECONDS = 0.002

    def __init__(self) -> None:
        self._longest, self._before = 0.0, time.perf_counter()
        # Measuring costs the server something, too: it starts with the first line of input.
        self._looking = LoopingCall(self._look)

    def _look(self) -> None:
        now = time.perf_counter()
        self._longest = max(self._longest, now - self._before - self._STEP_SECONDS)
        self._before = now

    def lineReceived(self, line: bytes) -> None:
        if not self._looking.running:
            self._before = time.perf_counter()
            self._looking.start(self._STEP_SECONDS)
        self._look()
        print(f"{self._longest * 1000:.1f}", flush=True)
        self._longest = 0.0


async def serve(directory: Path, count: int, storage: IStorage) -> None:
    """Make the machines, then print the port."""
    pki = PKI(str(directory))
    serving, forwarding = pki.pair("apiserver"), pki.pair("apiserver-forwarding")
    server = APIServer(
        Settings(
            listen="tcp:0:interface=127.0.0.1:backlog=4096",
            certificate=serving.certificate,
            key=serving.key,
            client_ca=pki.client_ca,
            poollet_certificate=forwarding.certificate,
            poollet_key=forwarding.key,
            poollet_ca=pki.serving_ca,
            identities=Identities(str(directory / "tokens.csv")),
        ),
        storage,
        JSONLinesAudit(str(directory / "audit.log")),
        reactor,
    )
    server.startService()
    await server.when_ready()
    for number in range(POOLS):
        with suppress(AlreadyExists):  # another server on the same store may have been faster
            await storage.create(kinds.MACHINEPOOLS.resource, pool(number))
    for first in range(0, count, _PARALLEL):
        numbers = range(first, min(count, first + _PARALLEL))
        await gatherResults(
            [storage.create(kinds.MACHINES.resource, machine(number)) for number in numbers]
        )
    StandardIO(_Gaps())
    print(server.address.port, flush=True)


class Server:
    """The client's side of :func:`serve`."""

    def __init__(self, child: subprocess.Popen[bytes], directory: Path, port: int) -> None:
        self.pid = child.pid
        self._child, self.port = child, port
        self._tls = ssl.create_default_context(cafile=PKI(str(directory)).serving_ca)

    def longest_gap(self) -> float:
        """Return the longest time that the reactor was blocked since the last call, in ms."""
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(b"\n")
        self._child.stdin.flush()
        return float(self._child.stdout.readline())

    def connect(self) -> ssl.SSLSocket:
        """A connection whose handshake is done."""
        return connect(self.port, self._tls)


@contextmanager
def running(directory: Path, count: int, storage: str = "") -> Iterator[Server]:
    """
    An API server that makes so many machines.

    :param storage: as the option ``--storage``; SQLite in the directory when it is empty.
    """
    pki = create_pki(str(directory))
    pki.issue_apiserver(["localhost", "127.0.0.1"])
    users = "".join(f"user-{one},user-{one},{one},system:masters\n" for one in range(USERS))
    (directory / "tokens.csv").write_text(users)
    storage = storage or f"sqlite:{directory / 'store.sqlite'}"
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.api", str(directory), str(count), storage],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    try:
        yield Server(child, directory, int(child.stdout.readline()))
    finally:
        child.terminate()
        child.wait()


def request(
    path: str,
    accept: str = "application/json",
    method: str = "GET",
    user: int = 0,
    body: bytes = b"",
) -> bytes:
    """A request, with its JSON if there is any."""
    told = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer user-{user}\r\n"
        f"Accept: {accept}\r\n{told}\r\n"
    ).encode() + body


def body_of(line: ssl.SSLSocket) -> bytes:
    """The next answer's whole body."""
    answer = line.makefile("rb")
    headers = {}
    assert answer.readline().startswith(b"HTTP/1.1 2")
    while (header := answer.readline()) != b"\r\n":
        name, _, value = header.partition(b":")
        headers[name.lower()] = value.strip()
    if b"content-length" in headers:
        return answer.read(int(headers[b"content-length"]))
    chunks = []
    while size := int(answer.readline(), 16):
        chunks.append(answer.read(size))
        answer.readline()
    answer.readline()
    return b"".join(chunks)


def dumps(document: Any) -> bytes:
    """Encode with the standard library, the baseline of every comparison here."""
    return json.dumps(document, separators=(",", ":")).encode()


def main() -> None:
    def failed(reason: Failure) -> None:
        reason.printTraceback(file=sys.stderr)
        reactor.callWhenRunning(reactor.stop)

    storage = storage_option(sys.argv[3])(reactor)
    starting = Deferred.fromCoroutine(serve(Path(sys.argv[1]), int(sys.argv[2]), storage))
    starting.addErrback(failed)
    reactor.run()


if __name__ == "__main__":
    main()
