"""
The two ends of every measured line: a backend in a process of its own, and a
client in the process that measures.  Both are plain blocking sockets, so that
what is measured is what stands between them.

A connection begins with a command of nine bytes: a letter and a number,
big-endian.  ``S`` N: swallow N bytes, answer one.  ``E`` 0: echo.
"""

from __future__ import annotations

import socket
import ssl
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from .console import connect

CHUNK = 64 << 10


def server_context(directory: Path) -> ssl.SSLContext:
    """The one certificate that every measured server shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.crt", directory / "server.key")
    context.num_tickets = 0
    return context


def client_context(directory: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(directory / "ca.crt"))


def backend(directory: Path) -> None:
    """Serve until standard input closes; print the port first."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    context = server_context(directory)
    print(listening.getsockname()[1], flush=True)

    def accept() -> None:
        while True:
            plain, _ = listening.accept()
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_serve, args=(context, plain), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


def _serve(context: ssl.SSLContext, plain: socket.socket) -> None:
    try:
        with context.wrap_socket(plain, server_side=True) as line:
            command = _exactly(line, 9)
            if command[:1] == b"S":
                _swallow(line, int.from_bytes(command[1:], "big"))
                line.sendall(b"!")
            while data := line.recv(CHUNK):
                line.sendall(data)
    except (OSError, EOFError):
        pass  # a client that hung up is how every measurement ends


def _exactly(line: ssl.SSLSocket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        data = line.recv(count - len(got))
        if not data:
            raise EOFError
        got += data
    return got


def _swallow(line: ssl.SSLSocket, count: int) -> None:
    buffer = bytearray(CHUNK)
    while count:
        got = line.recv_into(buffer)
        if not got:
            raise EOFError
        count -= got


Opener = Callable[[], ssl.SSLSocket]


def opener(directory: Path, port: int) -> Opener:
    """Connections to one port, each with its handshake done."""
    context = client_context(directory)
    return lambda: connect(port, context)


def seconds_to_swallow(connect: Opener, total: int) -> float:
    """Seconds until the backend has confirmed ``total`` bytes sent one way."""
    block = memoryview(bytes(CHUNK))
    with connect() as line:
        line.sendall(b"S" + total.to_bytes(8, "big"))
        start = time.perf_counter()
        for _ in range(total // CHUNK):
            line.sendall(block)
        _exactly(line, 1)
        return time.perf_counter() - start


def round_trips(connect: Opener, count: int) -> list[float]:
    """Seconds of each of ``count`` one-byte round trips."""
    with connect() as line:
        line.sendall(b"E" + bytes(8))
        times = []
        for _ in range(count):
            start = time.perf_counter()
            line.sendall(b"x")
            _exactly(line, 1)
            times.append(time.perf_counter() - start)
        return times


def idle(connect: Opener, count: int) -> list[ssl.SSLSocket]:
    """``count`` echo sessions that have carried one byte and then nothing."""
    lines = []
    for _ in range(count):
        line = connect()
        line.sendall(b"E" + bytes(8) + b"x")
        _exactly(line, 1)
        lines.append(line)
    return lines


def median_microseconds(times: list[float]) -> float:
    return statistics.median(times) * 1e6


if __name__ == "__main__":
    backend(Path(sys.argv[1]))
