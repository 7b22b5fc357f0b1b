"""
A console's user as a plain blocking socket: as little as possible between the
clock and the wire.
"""

from __future__ import annotations

import base64
import os
import socket
import ssl
import struct
from typing import TYPE_CHECKING

from twisted_exec.api import kinds

if TYPE_CHECKING:
    from twisted_exec.tls.pki.directory import PKI

BUFFER = 64 << 10
PATIENCE_SECONDS = 60
"""The longest wait for one piece of output."""


def connect(port: int, tls: ssl.SSLContext) -> ssl.SSLSocket:
    """Return a connection to a port of this host, whose handshake is done."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return tls.wrap_socket(plain, server_hostname="localhost")


def user_context(pki: PKI, user: str = "admin") -> ssl.SSLContext:
    """Return the TLS context of a user's client."""
    tls = ssl.create_default_context(cafile=pki.serving_ca)
    pair = pki.pair(f"user-{user}")
    tls.load_cert_chain(pair.certificate, pair.key)
    return tls


class Console:
    """
    One open console, over a connected (and, if need be, TLS-wrapped) socket.

    Each wait has a limit, and its :class:`TimeoutError` says what was missing, and what the console has printed.

    :raises ConnectionError: the upgrade was refused; the answer is the message.
    :cvar input: what comes before the input of a message.
    :cvar output: what comes before the output of one.
    """

    input, output = b"\0", b"\1"

    def __init__(
        self,
        line: socket.socket,
        host: str,
        path: str,
        headers: str = "",
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._line = line
        self._patience_seconds = patience_seconds
        self._line.settimeout(patience_seconds)
        self._buffer = b""
        self._last = b""  # the newest piece of output
        self._awaited = "an answer to the upgrade request"
        key = base64.b64encode(os.urandom(16)).decode()
        line.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
            f"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n{headers}\r\n".encode()
        )
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101 "):
            raise ConnectionError((head + self._buffer).decode(errors="replace"))
        self._awaited = "output"

    @classmethod
    def open(cls, port: int, tls: ssl.SSLContext, machine: str, headers: str = "") -> Console:
        """Open the console of a machine at an API server of this host."""
        path = kinds.MACHINES.resource.path("default", machine, "exec")
        return cls(connect(port, tls), f"localhost:{port}", path, headers)

    def type(self, data: bytes) -> None:
        """Send standard input, less than 125 bytes; a zero mask is a mask, and costs nothing."""
        payload = self.input + data
        self._line.sendall(bytes((0x82, 0x80 | len(payload))) + b"\0\0\0\0" + payload)

    def receive(self) -> bytes:
        """The next piece of output."""
        while True:
            while len(self._buffer) < 2:
                self._more()
            length, head = self._buffer[1], 2
            if length >= 126:
                head = 4 if length == 126 else 10
                while len(self._buffer) < head:
                    self._more()
                length = struct.unpack(">H" if head == 4 else ">Q", self._buffer[2:head])[0]
            while len(self._buffer) < head + length:
                self._more()
            frame = self._buffer[head : head + length]
            opcode, self._buffer = self._buffer[0] & 15, self._buffer[head + length :]
            lead = len(self.output)
            if opcode == 2 and frame.startswith(self.output) and length > lead:
                self._last = frame[lead:]
                return self._last

    def until(self, mark: bytes, seen: bytes = b"") -> bytes:
        """
        Read until the output, of which some may have been seen, contains a mark.

        :return: what came behind the mark in the same piece.
        """
        self._awaited = f"{mark!r} in the output"
        while mark not in seen:
            seen = seen[-len(mark) :] + self.receive()
        self._awaited = "output"
        return seen.partition(mark)[2]

    def count(self, total: int, piece: bytes = b"") -> bytes:
        """
        Read that many bytes of output, of which some may have been seen.

        :return: what came behind them in the same piece.
        """
        total -= len(piece)
        self._awaited = "the rest of the output that is counted"
        while total > 0:
            piece = self.receive()
            total -= len(piece)
        self._awaited = "output"
        return piece[len(piece) + total :]

    def close(self) -> None:
        self._line.close()

    def _more(self) -> None:
        try:
            data = self._line.recv(BUFFER)
        except TimeoutError:
            waited = f"waited {self._patience_seconds:g} s for {self._awaited}"
            raise TimeoutError(f"{waited}; the last output was {self._last[-300:]!r}") from None
        if not data:
            raise ConnectionError(f"the console ended: {self._buffer[-300:]!r}")
        self._buffer += data
