"""
Count the code of the API server that a ``kubectl exec`` runs, on a machine shown as a Pod.

The server is the shipped one, on a socket with TLS.  ``kubectl`` and the poollet are plain sockets
in threads of their own, so that nothing of theirs is counted.  The trace counts the code that
runs from the user's connection to the end of the session, with one byte to the machine and back in
between: modules, functions, and how often the path, the stream options and the query are parsed.
"""

from __future__ import annotations

import socket
import ssl
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react
from twisted.internet.threads import deferToThread

import twisted_exec
from twisted_exec.api import kinds
from twisted_exec.apiserver.service import APIServer
from twisted_exec.apiserver.settings import Settings
from twisted_exec.program.audit_file import JSONLinesAudit
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.tls.pki.directory import PKI, create_pki

POOL = "pool-a"
PATH = (
    "/api/v1/namespaces/default/pods/vm/exec"
    "?command=console&container=console&stdin=true&stdout=true&tty=true"
)
_HEAD = (
    "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
)
_ACCEPTED = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
    b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
)
_QUIET_SECONDS = 0.5
"""For what follows the start and the first console, such as the review after a change of roles."""
_PARSED = {
    "path": ("split_path",),
    "stream options": ("Asked.of", "StreamOptions.of"),
    "query": ("Query.__init__",),
}


class Trace:
    """
    The code of this package that ran.

    :ivar functions: how often each ran, by module and qualified name.
    :ivar until_answer: those that ran until the connection was taken over for the stream.
    """

    def __init__(self) -> None:
        self.functions: Counter[tuple[str, str]] = Counter()
        self.until_answer: set[tuple[str, str]] = set()
        self._root = str(Path(twisted_exec.__file__).parent) + "/"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count what runs in this thread meanwhile."""
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        # Bodies of modules and classes, and comprehensions, do not count as functions.
        if event != "call" or not code.co_filename.startswith(self._root):
            return
        if code.co_name.startswith("<") and code.co_name != "<lambda>":
            return
        module = code.co_filename.removeprefix(self._root).removesuffix(".py").replace("/", ".")
        self.functions[module, code.co_qualname] += 1
        if code.co_qualname == "take_over":
            self.until_answer = set(self.functions)

    @property
    def modules(self) -> list[str]:
        """Each once, sorted."""
        return sorted({module for module, _ in self.functions})

    def times(self, names: tuple[str, ...]) -> int:
        """Return the number of calls of functions with these qualified names."""
        return sum(count for (_, name), count in self.functions.items() if name in names)


class _Poollet(threading.Thread):
    """Accepts one console and echoes what is typed."""

    def __init__(self, pki: PKI) -> None:
        super().__init__(daemon=True)
        pair = pki.pair(f"poollet-{POOL}")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pair.certificate, pair.key)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]

    def run(self) -> None:
        """Serve one connection after another."""
        while True:
            plain, _ = self._listening.accept()
            with suppress(OSError), self._context.wrap_socket(plain, server_side=True) as tls:
                _read_head(tls)
                tls.sendall(_ACCEPTED)
                while data := tls.recv(65536):
                    tls.sendall(data)


def _read_head(connection: ssl.SSLSocket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        data = connection.recv(65536)
        if not data:
            break
        head += data
    return head


def _exec(pki: PKI, port: int) -> bytes:
    """Act as ``kubectl exec`` up to the first echoed byte, and return the head of the answer."""
    pair = pki.pair("user-admin")
    context = ssl.create_default_context(cafile=pki.serving_ca)
    context.load_cert_chain(pair.certificate, pair.key)
    with context.wrap_socket(
        socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1"
    ) as connection:
        connection.sendall(_HEAD.format(method="GET", path=PATH).encode("ascii"))
        head = _read_head(connection)
        if head.startswith(b"HTTP/1.1 101"):
            connection.sendall(b"\x82\x81\0\0\0\0x")
            connection.recv(65536)
        return head


async def _traced(reactor: Any, scratch: Path) -> Trace:
    pki = create_pki(str(scratch / "pki"))
    pki.issue_apiserver(["127.0.0.1"])
    pki.issue_poollet(POOL, ["127.0.0.1"])
    pki.issue_user("admin", ["system:masters"])
    serving, forwarding = pki.pair("apiserver"), pki.pair("apiserver-forwarding")
    settings = Settings(
        listen="tcp:0:interface=127.0.0.1",
        certificate=serving.certificate,
        key=serving.key,
        client_ca=pki.client_ca,
        poollet_certificate=forwarding.certificate,
        poollet_key=forwarding.key,
        poollet_ca=pki.serving_ca,
        drain_seconds=0,
    )
    storage, poollet = MemoryStorage(), _Poollet(pki)
    poollet.start()
    server = APIServer(settings, storage, JSONLinesAudit(str(scratch / "audit.log")), reactor)
    server.startService()
    await server.when_ready()
    await _make_machine(storage, poollet.port)
    port: int = server.address.port  # type: ignore[union-attr]
    await deferToThread(_exec, pki, port)  # work done once per server must not count
    await deferLater(reactor, _QUIET_SECONDS)
    trace = Trace()
    with trace.running():
        head = await deferToThread(_exec, pki, port)
        await deferLater(reactor, _QUIET_SECONDS)  # until it is over for the server as well
    if not head.startswith(b"HTTP/1.1 101"):
        raise RuntimeError(f"the console was refused: {head!r}")
    await server.stopService()
    return trace


async def _make_machine(storage: MemoryStorage, port: int) -> None:
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    pool = {
        "metadata": {"name": POOL, "uid": "p-1"},
        "spec": {"providerID": "trace://a"},
        "status": {
            "addresses": addresses,
            "daemonEndpoints": {"machinepoolletEndpoint": {"port": port}},
        },
    }
    machine = {
        "metadata": {"namespace": "default", "name": "vm", "uid": "m-1"},
        "spec": {"machinePoolRef": {"name": POOL}, "machineClassRef": {"name": "small"}},
    }
    for kind, obj in ((kinds.MACHINEPOOLS, pool), (kinds.MACHINES, machine)):
        described = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
        await storage.create(kind.resource, {**described, **obj})


def main(scratch: Path) -> None:
    """Trace one console and print what ran."""
    traces: list[Trace] = []

    def traced(reactor: Any) -> Deferred[None]:
        return Deferred.fromCoroutine(_traced(reactor, scratch)).addCallback(traces.append)

    try:
        react(traced)
    except SystemExit as ended:
        if ended.code:
            raise
    report(traces[0])


def report(trace: Trace) -> None:
    """Print what ran, module by module."""
    print(f"one kubectl exec: {len(trace.modules)} modules, {len(trace.functions)} functions")
    modules = {module for module, _ in trace.until_answer}
    print(f"  until its 101: {len(modules)} modules, {len(trace.until_answer)} functions")
    for what, names in _PARSED.items():
        print(f"  {what} parsed {trace.times(names)} times")
    for module in trace.modules:
        qualified = sorted(name for found, name in trace.functions if found == module)
        print(f"  {module:40} {len(qualified):3} {' '.join(qualified)}")
