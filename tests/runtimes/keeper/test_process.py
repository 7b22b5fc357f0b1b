"""
Tests for :mod:`twisted_exec.runtimes.keeper.process`: clients that misbehave.
"""

from __future__ import annotations

import os
import socket

from tests.tiers import PROGRAMS
from twisted_exec.runtimes.keeper.protocol import MAX_MESSAGE_BYTES, Message

from .support import Bare, KeeperCase, command


class MisbehaviourTests(KeeperCase):
    """A client that does not follow the protocol loses its connection; others notice nothing."""

    starts = PROGRAMS
    exact = True

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        held = await self.keeper.spawn("m", command("cat"), lambda _: None, keep=True)
        self.addCleanup(os.close, held.descriptor)
        self.terminal = held.descriptor
        assert held.command is not None
        with open(f"/proc/{held.command.pid}/stat") as file:
            self.pid = int(file.read().rpartition(")")[2].split()[1])
        self.before = self.descriptors()

    def descriptors(self) -> int:
        """Number of descriptors of the keeper."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    async def check(self, connected: int = 0) -> None:
        """The keeper works, and has no more descriptors than before and those of connections."""
        self.assertEqual(list(await self.keeper.holdings()), ["m"])
        os.write(self.terminal, b"alive\n")
        await self.read(self.terminal, b"alive")
        await self.until(lambda: self.descriptors() <= self.before + connected)

    async def refused(self, *messages: Message | bytes) -> None:
        client = await self.bare()
        for message in messages:
            client.send(message)
        with self.assertRaises(EOFError):
            while True:
                await client.receive()

    async def test_garbage(self) -> None:
        """Bytes that are no message."""
        for data in (b"\0", b"\xff" * 100, b"spawn", b"spawn\0=", b"take\0name", b"take"):
            client = await self.bare()
            client.send(data)
            try:
                answer, _ = await client.receive()
            except EOFError:
                continue
            self.assertEqual(answer.kind, "error")
            client.handle.close()
        await self.check()

    async def test_bad_commands(self) -> None:
        """Commands with missing or impossible fields."""
        for fields in (
            [("path", "/bin/true")],
            [("path", "/bin/true"), ("arg", "x"), ("rows", "-1")],
            [("path", "/bin/true"), ("arg", "x"), ("rows", "70000")],
            [("path", "/bin/true"), ("arg", "x"), ("uid", "root")],
            [("path", "/bin/true"), ("arg", "x"), ("uid", "0"), ("group", "a")],
            [("path", "/bin/true"), ("arg", "x"), ("env", "=x")],
        ):
            await self.refused(Message("spawn", [("name", "bad"), *fields]))
        await self.check()

    async def test_too_long(self) -> None:
        """A message that is longer than the limit."""
        client = await self.bare()
        client.handle.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_MESSAGE_BYTES)
        client.send(b"list\0after=" + bytes(MAX_MESSAGE_BYTES))
        with self.assertRaises(EOFError):
            await client.receive()
        await self.check()

    async def test_descriptors(self) -> None:
        """Descriptors that nobody asked for are closed, however many they are."""
        for count in (1, 2, 3, 100):
            client = await self.bare()
            client.send(Message("list"), *[0] * count)
            try:
                await client.receive()
            except EOFError:
                pass
            client.handle.close()
        await self.check()

    async def test_names(self) -> None:
        """A name is neither empty nor longer than 255 bytes."""
        client = await self.bare()
        for name in (b"", b"x" * 256):
            answer, _ = await client.ask(
                Message("spawn", [("name", name), ("path", "/bin/true"), ("arg", "true")])
            )
            self.assertEqual(answer.kind, "error")
        await self.check(1)

    async def test_unknown_request(self) -> None:
        """A request of another release is refused, and the connection stays."""
        client = await self.bare()
        answer, _ = await client.ask(Message("dance"))
        self.assertEqual(answer.text("why"), b"there is no request dance")
        answer, _ = await client.ask(Message("store", [("name", "port"), ("keep", 1)]), 0)
        self.assertEqual(answer.text("why"), b"there is no request store")  # of release 0.2.0
        answer, _ = await client.ask(Message("list"))
        self.assertEqual(answer.text("name"), b"m")

    async def test_never_reads(self) -> None:
        """A client that asks and never reads is not read either; nothing waits for it."""
        client = await self.bare()
        with self.assertRaises(BlockingIOError):
            while True:
                client.send(Message("take", [("name", "m"), ("keep", 1)]))
        await self.check(1)
        client.handle.close()
        await self.check()

    async def test_forgotten_before_it_was_sent(self) -> None:
        """An answer that waits never goes out with a descriptor that has another meaning by now."""
        slow, count = await self.bare(), 0
        with self.assertRaises(BlockingIOError):
            while True:
                slow.send(Message("take", [("name", "m"), ("keep", 1)]))
                count += 1
        self.keeper.forget("m")
        held = await self.keeper.spawn("other", command("cat"), lambda _: None, keep=True)
        self.addCleanup(os.close, held.descriptor)
        expected = os.fstat(self.terminal).st_rdev
        # How many are answered before the keeper forgets depends on who is faster.
        for _ in range(count):
            answer, descriptor = await slow.receive()
            self.assertEqual(answer.kind == "error", descriptor is None)
            if descriptor is not None:
                self.assertEqual(os.fstat(descriptor).st_rdev, expected)
                os.close(descriptor)

    async def test_crowd(self) -> None:
        """Only 16 connections are possible; the others are closed, and there is room again later."""
        crowd, refused = [], 0
        for _ in range(30):
            client = Bare(self.path)
            crowd.append(client)
            self.addCleanup(client.handle.close)
            try:
                await client.receive()
            except EOFError:
                refused += 1
        self.assertEqual(refused, 15)  # the runtime has one
        for client in crowd:
            client.handle.close()
        await self.check()
        await self.bare()

    async def test_vanishes(self) -> None:
        """Clients that vanish in the middle of a request."""
        for request in (
            Message("spawn", [("name", "v"), ("path", "/bin/cat"), ("arg", "cat")]),
            Message("take", [("name", "m"), ("keep", 1)]),
            Message("list"),
        ):
            for _ in range(10):
                client = await self.bare()
                client.send(request)
                client.handle.close()
        await self.check()

    async def test_other_user(self) -> None:
        """Another user's connection is closed before it is greeted; root can try that."""
        if os.geteuid() != 0:
            self.assertEqual(os.stat(self.path).st_mode & 0o077, 0)
            return
        os.chmod(self.directory, 0o711)
        os.chmod(self.path, 0o777)
        pid = os.fork()
        if pid == 0:
            got = b"no end"
            try:
                os.setuid(65534)
                handle = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                handle.settimeout(600)
                handle.connect(self.path)
                got = handle.recv(100)
            except ConnectionResetError:
                got = b""
            finally:
                os._exit(0 if got == b"" else 1)
        _, status = os.waitpid(pid, 0)  # wait: the process ends by itself
        self.assertEqual(status, 0)
        await self.check()
