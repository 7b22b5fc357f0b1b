"""
A runtime with one machine class whose consoles greet and are then idle, at next to no cost.

``python -m tests.benchmarks.idle_consoles SOCKET ...`` serves one runtime at each of these UNIX
sockets.  All consoles are on one loopback port, in the clear, so that poollets of any make can dial
them.
"""

from __future__ import annotations

import base64
import hashlib
import resource
import sys
from typing import Any

from twisted.internet import reactor
from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import Factory, Protocol

from tests.poollet.doubles import MemoryRuntime
from twisted_exec.iri.server import IRIServer

from .quick_runtime import CLASS, GREETING, MEMORY

_WEBSOCKET = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_HELLO = bytes((0x82, len(GREETING) + 1, 1)) + GREETING


class _IdleConsole(Protocol):
    _head: bytes | None = b""

    def dataReceived(self, data: bytes) -> None:
        if self._head is None:
            return
        self._head += data
        if b"\r\n\r\n" not in self._head:
            return
        fields = dict(line.split(b": ", 1) for line in self._head.split(b"\r\n")[1:] if line)
        key = {name.lower(): value for name, value in fields.items()}[b"sec-websocket-key"]
        accept = base64.b64encode(hashlib.sha1(key + _WEBSOCKET).digest())
        self._head = None
        assert self.transport is not None
        self.transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\nSec-WebSocket-Accept: "
            + accept
            + b"\r\n\r\n"
            + _HELLO
        )


def main(targets: list[str]) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def serve(port: Any) -> None:
        for path in targets:
            runtime = MemoryRuntime()
            runtime.classes = {CLASS: ({"cpu": 1, "memory": MEMORY}, 10)}
            runtime.url = f"http://127.0.0.1:{port.getHost().port}/exec/any"
            server = IRIServer(runtime, f"unix://{path}", reactor)
            server.startService()
            reactor.addSystemEventTrigger("before", "shutdown", server.stopService)
        print("ready", flush=True)

    where = serverFromString(reactor, "tcp:0:interface=127.0.0.1:backlog=4096")
    where.listen(Factory.forProtocol(_IdleConsole)).addCallback(serve)
    reactor.run()


if __name__ == "__main__":
    main(sys.argv[1:])
