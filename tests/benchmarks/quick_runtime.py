"""
A runtime whose consoles cost next to nothing, to measure the hops in front of it.

``python -m tests.benchmarks.quick_runtime SOCKET ...`` serves machines that run at once at each of
these UNIX sockets, one runtime for each poollet, and prints ``ready``.  All consoles are served by
plain blocking sockets on loopback, in the clear: poollets of any make can dial them.  A console
greets, and echoes what is typed; ``F`` and a number of eight bytes, big-endian, makes it print that
many bytes (a multiple of :data:`BLOCK`) as fast as it can.
"""

from __future__ import annotations

import base64
import hashlib
import socket
import struct
import sys
import threading
from collections.abc import Iterator

from twisted.internet import reactor

from tests.poollet.doubles import MemoryRuntime
from twisted_exec.iri.server import IRIServer

CLASS = "small"
MEMORY = 256 << 20
BLOCK = 32 << 10
GREETING = b"ready"

_WEBSOCKET = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_AT_ONCE = 8


def main(targets: list[str]) -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    threading.Thread(target=_accept, args=(listening,), daemon=True).start()
    for path in targets:
        runtime = MemoryRuntime()
        runtime.classes = {CLASS: ({"cpu": 1, "memory": MEMORY}, 10)}
        runtime.url = f"http://127.0.0.1:{listening.getsockname()[1]}/exec/any"
        server = IRIServer(runtime, f"unix://{path}", reactor)
        reactor.callWhenRunning(server.startService)
        reactor.addSystemEventTrigger("before", "shutdown", server.stopService)
    reactor.callWhenRunning(print, "ready", flush=True)
    reactor.run()


def _accept(listening: socket.socket) -> None:
    while True:
        line, _ = listening.accept()
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_serve, args=(line,), daemon=True).start()


def _serve(line: socket.socket) -> None:
    try:
        with line:
            rest = _upgrade(line)
            line.sendall(_output(GREETING))
            for typed in _typed(line, rest):
                if typed[:1] == b"F" and len(typed) == 9:
                    _flood(line, int.from_bytes(typed[1:], "big"))
                else:
                    line.sendall(_output(typed))
    except (OSError, EOFError):
        pass  # a client that hung up is how every measurement ends


def _upgrade(line: socket.socket) -> bytes:
    """Answer the handshake; what came behind it is returned."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += _some(line)
    head, _, rest = head.partition(b"\r\n\r\n")
    told = dict(field.split(b": ", 1) for field in head.split(b"\r\n")[1:])
    key = {name.lower(): value for name, value in told.items()}[b"sec-websocket-key"]
    accept = base64.b64encode(hashlib.sha1(key + _WEBSOCKET).digest())
    line.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\nSec-WebSocket-Accept: "
        + accept
        + b"\r\n\r\n"
    )
    return rest


def _typed(line: socket.socket, buffer: bytes) -> Iterator[bytes]:
    """Standard input, from frames of less than 126 bytes with a mask of zeros."""
    while True:
        while len(buffer) < 6 or len(buffer) < 6 + (buffer[1] & 0x7F):
            buffer += _some(line)
        end = 6 + (buffer[1] & 0x7F)
        message, buffer = buffer[6:end], buffer[end:]
        if message[:1] == b"\0":
            yield message[1:]


def _some(line: socket.socket) -> bytes:
    data = line.recv(4096)
    if not data:
        raise EOFError
    return data


def _output(data: bytes) -> bytes:
    """One frame of standard output."""
    length = len(data) + 1
    size = bytes((length,)) if length < 126 else b"\x7e" + struct.pack(">H", length)
    return b"\x82" + size + b"\1" + data


def _flood(line: socket.socket, total: int) -> None:
    block = memoryview(_output(bytes(BLOCK)) * _AT_ONCE)
    frames = total // BLOCK
    frame = len(block) // _AT_ONCE
    while frames:
        now = min(frames, _AT_ONCE)
        line.sendall(block[: now * frame])
        frames -= now


if __name__ == "__main__":
    main(sys.argv[1:])
