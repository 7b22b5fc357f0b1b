"""
Support for tests of the keeper: real keepers, and clients with bare sockets.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from tests.runtimes.support import pause
from twisted_exec.runtimes.keeper.client import SOCKET, Keeper, KeptCommand
from twisted_exec.runtimes.keeper.protocol import MAX_MESSAGE_BYTES, Message
from twisted_exec.runtimes.processes import read_process
from twisted_exec.streaming.interfaces import TerminalSize


def command(script: str, **options: Any) -> KeptCommand:
    """A shell script as a command."""
    options.setdefault("environment", {"PATH": "/usr/bin:/bin"})
    return KeptCommand(
        path="/bin/sh",
        arguments=["sh", "-c", script],
        directory="/",
        size=TerminalSize(80, 24),
        **options,
    )


class Bare:
    """A client with a bare socket, which may do anything."""

    def __init__(self, path: str) -> None:
        self.handle = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.handle.setblocking(False)
        self.handle.connect(path)

    def send(self, message: Message | bytes, *descriptors: int) -> None:
        data = message if isinstance(message, bytes) else message.encode()
        socket.send_fds(self.handle, [data], descriptors)

    async def receive(self) -> tuple[Message, int | None]:
        """
        The next message.

        :raises EOFError: the keeper has closed the connection.
        """
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self.handle, MAX_MESSAGE_BYTES, 1)
            except BlockingIOError:
                await pause()
            except ConnectionResetError:
                raise EOFError from None
            else:
                if not data:
                    raise EOFError
                return Message.decode(data), descriptors[0] if descriptors else None

    async def ask(self, message: Message, *descriptors: int) -> tuple[Message, int | None]:
        self.send(message, *descriptors)
        return await self.receive()


class KeeperCase(TestCase):
    """A directory with a keeper, which has ended after the test."""

    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.path = os.path.join(self.directory, SOCKET)
        self.log = os.path.join(self.directory, "keeper.log")
        self.addCleanup(lambda: Deferred.fromCoroutine(self.end()))
        self.keeper = self.client()

    def client(self) -> Keeper:
        """Another runtime, after or beside the first one."""
        client = Keeper(reactor, self.directory, self.log)
        self.addCleanup(lambda: Deferred.fromCoroutine(client.close()))
        return client

    async def bare(self) -> Bare:
        """A client with a bare socket, after the greeting."""
        client = Bare(self.path)
        self.addCleanup(client.handle.close)
        hello, _ = await client.receive()
        self.assertEqual((hello.kind, hello.number("version")), ("hello", 1))
        return client

    async def until(self, condition: Callable[[], Any]) -> None:
        while not condition():
            await pause()

    async def end(self) -> None:
        """Let the keeper forget everything, and wait for its end."""
        last = Keeper(reactor, self.directory, self.log)
        for name in await last.holdings():
            last.forget(name)
        await last.close()
        await self.until(lambda: not os.path.exists(self.path))
        if os.path.exists(self.log):
            with open(self.log) as file:
                self.assertEqual(file.read(), "")

    def kill(self) -> None:
        """Drop the runtime's connection as its death does, without a word."""
        connection = self.keeper._connection
        assert connection is not None
        self.keeper._connection = None
        connection.close()

    async def read(self, descriptor: int, expected: bytes) -> bytes:
        """Read a terminal until it has printed something."""
        got = b""
        while expected not in got:
            try:
                got += os.read(descriptor, 4096)
            except BlockingIOError:
                await pause()
        return got

    async def gone(self, pid: int) -> None:
        await self.until(lambda: read_process(pid) is None)
