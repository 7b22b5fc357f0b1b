"""
The other ends of lines: a console server in this process, and real ones as programs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from tests.flows.programs import start
from twisted_exec.runtimes.interfaces import MachineFacts

from .support import RuntimeCase, pause

reactor: Any = _reactor


class Peer(Protocol):
    """One connection of the far end; keeps what it gets, and answers when told to."""

    transport: Any

    def __init__(self, answer: Callable[[Peer, bytes], None]) -> None:
        self.got = b""
        self.gone = False
        self._answer = answer

    def dataReceived(self, data: bytes) -> None:
        self.got += data
        self._answer(self, data)

    def says(self, data: bytes) -> None:
        self.transport.write(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.gone = True


def echo(peer: Peer, data: bytes) -> None:
    """What is typed is printed, as by a machine that echoes."""
    peer.says(data)


def silent(peer: Peer, data: bytes) -> None:
    """Nothing is printed."""


class Far:
    """
    A console server on a UNIX socket.

    :ivar peers: its connections, the newest last.
    """

    def __init__(self, path: str, answer: Callable[[Peer, bytes], None] = echo) -> None:
        self.path, self._answer = path, answer
        self.peers: list[Peer] = []
        self._port: Any = None

    @property
    def endpoint(self) -> str:
        return f"unix:{self.path}"

    @property
    def peer(self) -> Peer:
        return self.peers[-1]

    def listen(self) -> Far:
        factory = Factory.forProtocol(self._build)
        factory.noisy = False
        self._port = reactor.listenUNIX(self.path, factory)
        return self

    def _build(self) -> Peer:
        self.peers.append(Peer(self._answer))
        return self.peers[-1]

    async def deafen(self) -> None:
        """Listen no longer; whoever is connected stays."""
        port, self._port = self._port, None
        if port is not None:
            await port.stopListening()

    async def vanish(self) -> None:
        """Be gone, with all connections."""
        await self.deafen()
        for peer in self.peers:
            peer.transport.abortConnection()


class LineCase(RuntimeCase):
    """Machines whose lines are elsewhere."""

    def setUp(self) -> None:
        super().setUp()
        self.changes: list[tuple[int, str, str]] = []

    def facts(self, id: str = "m") -> MachineFacts:
        known = super().facts(id)
        return MachineFacts(
            **{
                **known.__dict__,
                "namespace": "default",
                "name": id,
                "changed": lambda *told: self.changes.append(told),
            }
        )

    def far(self, answer: Callable[[Peer, bytes], None] = echo, name: str = "far") -> Far:
        """A listening console server, that vanishes after the test."""
        far = Far(os.path.join(self.directory, name), answer).listen()
        self.addCleanup(far.vanish)
        return far

    def reasons(self) -> list[str]:
        """Of the events so far."""
        return [reason for _, reason, _ in self.events]


class Ser2net:
    """
    A real ser2net, with one line.

    Its device is a network port of RFC 2217 in this process, which agrees to everything
    and echoes; :meth:`device` is what it was told.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._far = Far(os.path.join(directory, "device.sock"), _serial_device)
        self._program: Any = None

    @property
    def endpoint(self) -> str:
        return f"unix:{self._directory}/ser2net.sock"

    def device(self) -> bytes:
        """All that came to the device, in its newest connection."""
        return self._far.peer.got if self._far.peers else b""

    async def start(self) -> None:
        if self._far._port is None:
            self._far.listen()
        config = os.path.join(self._directory, "ser2net.yaml")
        with open(config, "w") as file:
            file.write(_SER2NET.format(directory=self._directory))
        self._program = start(["ser2net", "-n", "-d", "-u", "-c", config])
        while not os.path.exists(os.path.join(self._directory, "ser2net.sock")):
            await pause()

    async def stop(self) -> None:
        if self._program is not None:
            await self._program.stop()
            self._program = None
        await self._far.vanish()
        for name in ("ser2net.sock", "device.sock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._directory, name))


def _serial_device(peer: Peer, data: bytes) -> None:
    """Says DO to RFC 2217, confirms each setting, and echoes text."""
    text, at = b"", 0
    while at < len(data):
        if data[at] != 255:
            text += data[at : at + 1]
            at += 1
        elif data[at + 1] == 255:
            text += b"\xff\xff"
            at += 2
        elif data[at + 1] == 250:
            end = data.index(b"\xff\xf0", at)
            peer.says(
                b"\xff\xfa\x2c" + bytes((data[at + 3] + 100,)) + data[at + 4 : end] + b"\xff\xf0"
            )
            at = end + 2
        elif data[at + 1] in (251, 253):
            if data[at + 1 : at + 3] == b"\xfb\x2c":
                peer.says(b"\xff\xfd\x2c")
            at += 3
        else:
            at += 2
    if text:
        peer.says(text)


_SER2NET = """%YAML 1.1
---
connection: &line
  accepter: telnet(rfc2217),unix,{directory}/ser2net.sock
  connector: telnet(rfc2217),unix,{directory}/device.sock
  options:
    kickolduser: true
"""
