"""
Malicious and broken clients at each port of the three programs: a port at most refuses them, and
serves other users as before.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Sequence
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from tests.flows import shared
from tests.flows.consoles import Screen, watch
from tests.flows.deployment import pause
from tests.streaming.frames import KEY
from twisted_exec.api import kinds
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest, upgrade
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import client_endpoint, unix_client_endpoint
from twisted_exec.tls.files import read_file

reactor: Any = _reactor

SLOW_CLIENTS = 150
"""Number of slow clients at each port."""
GARBAGE = random.Random(1).randbytes(1 << 16)
"""The same in each run: a part of all random bytes begins a frame that never ends."""
EXEC = b"/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines/sh/exec"


class Peer(Protocol):
    """A raw connection; keeps the received data and whether it is closed."""

    transport: Any

    def __init__(self) -> None:
        self.data = b""
        self.lost = False

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = True


def frame(opcode: int, payload: bytes, *, first: int = 0x80, masked: bool = True) -> bytes:
    """Return a WebSocket frame of a client; ``first`` is FIN and the reserved bits."""
    size = len(payload)
    if size < 126:
        length = bytes([size | 0x80 * masked])
    elif size < 1 << 16:
        length = bytes([126 | 0x80 * masked]) + struct.pack(">H", size)
    else:
        length = bytes([127 | 0x80 * masked]) + struct.pack(">Q", size)
    return bytes([first | opcode]) + length + (b"\0\0\0\0" if masked else b"") + payload


class HostileTests(TestCase):
    """All three programs, one shell and a legitimate user."""

    async def setUp(self) -> None:
        self.deployment = await shared.deployment(self)
        await self.deployment.create_machine("sh", "shell")
        self.ca = read_file(self.deployment.pki.serving_ca)
        self.screen = await self.open()
        self.addCleanup(self.screen.leave)
        self.ports = {
            "api": self.deployment.port,
            "poollet": await self.poollet_port(),
            "runtime": await self.runtime_port(),
        }
        self.programs = [getattr(self.deployment, name) for name in self.ports]

    async def poollet_port(self) -> int:
        pool = await self.deployment.client.get(kinds.MACHINEPOOLS.resource, "pool-a")
        port: int = pool["status"]["daemonEndpoints"]["machinepoolletEndpoint"]["port"]
        return port

    async def runtime_port(self) -> int:
        told = await self.deployment.runtime.until(rb"consoles at https://127\.0\.0\.1:(\d+)/")
        return int(told[1])

    async def open(self) -> Screen:
        return await watch(self.deployment.admin, "sh")

    def tls(self) -> ClientTLS:
        return ClientTLS("127.0.0.1", ca_pem=self.ca)

    async def connect(self, port: int) -> Peer:
        """Connect with TLS and verify the server."""
        endpoint = client_endpoint(reactor, "127.0.0.1", port, self.tls(), timeout_seconds=600)
        peer: Peer = await connectProtocol(endpoint, Peer())
        self.addCleanup(peer.transport.abortConnection)
        return peer

    async def bare(self, port: int) -> Peer:
        """Connect without TLS."""
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", port)
        peer: Peer = await connectProtocol(endpoint, Peer())
        self.addCleanup(peer.transport.abortConnection)
        return peer

    async def until(self, condition: Any) -> None:
        while not condition():
            await pause()

    async def answer(self, port: int, request: bytes) -> tuple[int, bytes]:
        """Return the code and the body of the response; the server must close the connection."""
        peer = await self.connect(port)
        peer.transport.write(request)
        await self.until(lambda: peer.lost)
        head, _, body = peer.data.partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 "), head)
        return int(head[9:12]), body

    async def refused(self, port: int, request: bytes, *codes: int) -> None:
        """Check that the response is a Status with one of these codes."""
        code, body = await self.answer(port, request)
        self.assertIn(code, codes, request[:80])
        status = json.loads(body)
        self.assertEqual((status["kind"], status["code"]), ("Status", code))

    async def honest(self) -> None:
        """Check that every port answers, that the open session works and that another opens."""
        request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        for port in self.ports.values():
            self.assertEqual(await self.answer(port, request), (200, b"ok"))
        await self.deployment.client.get(kinds.MACHINES.resource, "sh", "default")
        await self.screen.ask(b"echo $((6*7))\n", rb"42\r\n")
        another = await self.open()
        await another.ask(b"echo $((5*5))\n", rb"25\r\n")
        await another.leave()
        for program in self.programs:
            self.assertIsNone(program.exit_code)
            self.assertNotIn(b"Traceback", program.output)
        self.no_token_was_written()

    def no_token_was_written(self) -> None:
        """Check that no log and no audit record contains a token that would open a console."""
        written = [program.output for program in self.programs]
        written += [read_file(self.deployment.path(f"{hop}.audit")) for hop in self.ports]
        for text in written:
            self.assertNotRegex(text, rb"/exec/[\w-]")
            # A token has 43 characters; nothing else in the output has its form.
            self.assertNotRegex(text, rb"(?<![\w-])(?=[a-z0-9_-]*[A-Z])[\w-]{43}(?![\w-])")

    async def test_25_slow_clients(self) -> None:
        """Hundreds of slow clients, at every stage of a request, delay no other user."""
        dawdlers: list[Peer] = []
        for port in self.ports.values():
            for connect in (self.bare, self.connect):
                some = [Deferred.fromCoroutine(connect(port)) for _ in range(SLOW_CLIENTS // 3)]
                dawdlers += await gatherResults(some, consumeErrors=True)
            for peer in dawdlers[-SLOW_CLIENTS // 3 :]:
                peer.transport.write(b"POST /apis HTTP/1.1\r\nContent-Length: 1000\r\nX-A: ")
            bodies = [Deferred.fromCoroutine(self.connect(port)) for _ in range(SLOW_CLIENTS // 3)]
            for peer in await gatherResults(bodies, consumeErrors=True):
                peer.transport.write(b"POST /apis HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
                dawdlers.append(peer)
        for _ in range(3):
            for peer in dawdlers:
                if not peer.lost:
                    peer.transport.write(b"a")
            await self.honest()

    async def test_large_heads(self) -> None:
        """Oversized headers are refused: a long line, many lines, a long path."""
        line, half = b"X-A: " + b"a" * 8000 + b"\r\n", b"a" * (60 << 10)
        for port in self.ports.values():
            for request in (
                b"GET / HTTP/1.1\r\nX-A: " + b"a" * (1 << 20),
                b"GET / HTTP/1.1\r\n" + line * 200 + b"\r\n",
                b"GET /" + b"a" * (1 << 20),
                b"GET /" + half + b" HTTP/1.1\r\nX-A: " + half + b"\r\n\r\n",
            ):
                await self.refused(port, request, 431)
            many = b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20000 + b"\r\n"
            await self.refused(port, many, 431, 400)
        await self.honest()

    async def test_large_bodies(self) -> None:
        """Oversized bodies are refused, whether the length is announced or not."""
        for port in self.ports.values():
            head = b"POST /apis HTTP/1.1\r\nHost: x\r\n"
            await self.refused(port, head + b"Content-Length: 99999999999999\r\n\r\n", 413)
            chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
            chunk = b"100000\r\n" + b"a" * (1 << 20) + b"\r\n"
            await self.refused(port, chunked + chunk * 5, 413)
        await self.honest()

    async def test_malformed_requests(self) -> None:
        """Malformed and ambiguous requests are refused, and the data after them is ignored."""
        behind = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        for port in self.ports.values():
            for request in (
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
                b"GET\r\n\r\n",
                b"GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                b"GET /healthz HTTP/1.1\r\nHost x\r\n\r\n",
                b"GET /healthz HTTP/1.1\r\nHost: x\r\n folded\r\nContent-Length: -1\r\n\r\n",
                b"POST /healthz HTTP/1.1\r\nContent-Length: 0x5\r\n\r\nhello",
                b"POST /healthz HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
                b"POST /healthz HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"0\r\n\r\n",
                b"POST /healthz HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
                b"POST /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n",
            ):
                code, body = await self.answer(port, request + behind)
                self.assertIn(code, (400, 501, 505), request)
                self.assertNotIn(b"\r\n\r\nok", body)
        await self.honest()

    async def test_no_tls(self) -> None:
        """Invalid TLS data ends only its own connection."""
        for port in self.ports.values():
            for garbage in (
                b"GET / HTTP/1.1\r\n\r\n",
                GARBAGE,
                b"\x16\x03\x01\xff\xff" + b"\0" * 100,
                b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
            ):
                peer = await self.bare(port)
                peer.transport.write(garbage)
                peer.transport.loseWriteConnection()
                await self.until(lambda peer=peer: peer.lost)
                self.assertNotIn(b"HTTP/1.1 200", peer.data)
        await self.honest()

    async def test_malformed_frames(self) -> None:
        """Malformed WebSocket frames end at most their own session."""
        for what, data in (
            ("no mask", frame(2, b"\0x", masked=False)),
            ("reserved bits", frame(2, b"\0x", first=0xF0)),
            ("reserved opcode", frame(3, b"\0x")),
            ("a long ping", frame(9, b"x" * 126)),
            ("a ping in parts", frame(9, b"x", first=0)),
            ("a part of nothing", frame(0, b"x")),
            ("a length beyond all", b"\x82\xff" + b"\xff" * 8 + b"\0" * 4),
            ("a message too large", frame(2, b"\0" + b"x" * (2 << 20))),
            ("parts in parts", frame(2, b"\0", first=0) * 2),
            ("parts without end", frame(2, b"\0", first=0) + frame(0, b"x" * 65536, first=0) * 40),
            ("no channel", frame(2, b"")),
            ("an unknown channel", frame(2, b"\x09x")),
            ("the server's channel", frame(2, b"\x01x")),
            ("a size that is none", frame(2, b'\x04{"Width":-1,"Height":1e99}')),
            ("a size that is no JSON", frame(2, b"\x04" + b"[" * 100000)),
            ("the end of what cannot end", frame(2, b"\xff\x04")),
            ("a Close that is none", frame(8, b"\x03")),
            ("a Close with a code that is none", frame(8, struct.pack(">H", 999))),
            ("garbage", GARBAGE[:4096]),
        ):
            peer = await self.session()
            peer.transport.write(data)
            await self.over(peer, what)
            await self.screen.ask(b"echo $((6*7))\n", rb"42\r\n")
        await self.honest()

    async def session(self) -> Peer:
        """Open a session without a client, for frames of the test."""
        user = self.deployment.pki.pair("user-admin")
        tls = ClientTLS(
            "127.0.0.1",
            ca_pem=self.ca,
            certificate_pem=read_file(user.certificate),
            key_pem=read_file(user.key),
        )
        head: Sequence[tuple[bytes, bytes]] = [
            (b"Connection", b"Upgrade"),
            (b"Upgrade", b"websocket"),
            (b"Sec-WebSocket-Version", b"13"),
            (b"Sec-WebSocket-Key", KEY),
            (b"Sec-WebSocket-Protocol", b"v5.channel.k8s.io"),
        ]
        upgraded = await upgrade(
            client_endpoint(reactor, "127.0.0.1", self.deployment.port, tls),
            UpgradeRequest(b"GET", EXEC, b"127.0.0.1", head),
            clock=reactor,
            timeout_seconds=600,
        )
        peer = Peer()
        upgraded.hand_over(peer)
        self.addCleanup(peer.transport.abortConnection)
        return peer

    async def over(self, peer: Peer, what: str) -> None:
        """
        Check that a session ends: broken by the data, or by the Close frame sent here.

        Data that may be ignored, such as an invalid size, must not break the session later.
        """
        peer.transport.write(frame(8, struct.pack(">H", 1000)))
        late = reactor.callLater(600, peer.transport.abortConnection)
        # The shell prints only ASCII, so this byte starts a Close frame.
        await self.until(lambda: peer.lost or b"\x88" in peer.data)
        self.assertTrue(late.active(), f"after {what} the session did not end")
        late.cancel()
        peer.transport.loseConnection()
        await self.until(lambda: peer.lost)

    async def test_sockets_of_the_host(self) -> None:
        """Garbage and idle connections on the IRI socket disturb no other user."""
        path = self.deployment.iri_target.removeprefix("unix://")
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", GARBAGE, b"PRI * HTTP/2.0\r\n\r\n"):
            endpoint = unix_client_endpoint(reactor, path)
            peer: Peer = await connectProtocol(endpoint, Peer())
            peer.transport.write(garbage)
            peer.transport.loseConnection()
            await self.until(lambda peer=peer: peer.lost)
        for _ in range(50):
            idle: Peer = await connectProtocol(unix_client_endpoint(reactor, path), Peer())
            self.addCleanup(idle.transport.abortConnection)
        await self.honest()
