"""Tests for :mod:`twisted_exec.runtimes.serving.rejoin_requests`, over real sockets."""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.endpoints import UNIXClientEndpoint, connectProtocol

from tests.retained import entries
from tests.runtimes.serving.test_server import UPGRADE, Raw, StreamCase
from tests.streaming.frames import masked
from twisted_exec.runtimes.serving.options import Listening
from twisted_exec.runtimes.serving.stream_server import StreamServer
from twisted_exec.streaming.interfaces import MACHINE_DELETED, Ending
from twisted_exec.wire.rejoin import Rejoin, Rejoinable, parse_received


class Hop:
    """The hop before: a connection, and what it knows of the stream."""

    def __init__(self, raw: Raw, head: bytes) -> None:
        self.raw, self.head = raw, head.decode("ascii").split("\r\n")

    @property
    def got(self) -> bytes:
        """The stream behind the head."""
        return self.raw.got.partition(b"\r\n\r\n")[2]

    def header(self, name: str) -> str:
        lines = [line for line in self.head if line.lower().startswith(f"{name.lower()}: ")]
        return lines[-1].partition(": ")[2] if lines else ""

    def write(self, data: bytes) -> None:
        assert self.raw.transport is not None
        self.raw.transport.write(data)

    def lose(self) -> None:
        transport: Any = self.raw.transport
        transport.abortConnection()


class RejoinCase(StreamCase):
    """A hop that offers to rejoin streams, and does."""

    async def serve(self, listening: Listening | None = None, **options: Any) -> StreamServer:
        # A server that stops would wait for hops whose connections were lost.
        limits: dict[str, Any] = {"drain_seconds": 0.0, "rejoin_seconds": 3600}
        return await super().serve(listening, **(limits | options))

    async def hop(
        self, value: str, user: str = "ann", uid: str = "uid-x", token: str = "", more: str = ""
    ) -> Hop:
        raw: Raw = await connectProtocol(UNIXClientEndpoint(reactor, self.path), Raw())
        path = f"/exec/{token or self.token(user=user)}"
        headers = f"X-Twisted-Exec-User: {user}\r\nX-Twisted-Exec-Machine-Uid: {uid}\r\n{more}"
        rejoin = f"X-Twisted-Exec-Rejoin: {value}\r\n" if value else ""
        assert raw.transport is not None
        raw.transport.write(f"GET {path} HTTP/1.1\r\n{UPGRADE}{headers}{rejoin}\r\n".encode())
        await self.until(lambda: b"\r\n\r\n" in raw.got)
        hop = Hop(raw, raw.got.partition(b"\r\n\r\n")[0])
        self.addCleanup(hop.lose)
        return hop

    async def opened(self) -> tuple[Hop, str]:
        hop = await self.hop("offer")
        self.assertIn("101", hop.head[0])
        return hop, Rejoinable.parse(hop.header("X-Twisted-Exec-Rejoin")).key

    def code(self, hop: Hop) -> int:
        return int(hop.head[0].split()[1])


class RejoinTests(RejoinCase):
    """A stream whose connection is lost, and that goes on over another one."""

    async def test_goes_on(self) -> None:
        """Both sides send again what the other one lacks; the console notices nothing."""
        server = await self.serve()
        hop, key = await self.opened()
        self.console.says(b"one ")
        await self.until(lambda: hop.got.endswith(b"one "))
        received = len(hop.got)
        keys = masked(b"\x00date")
        hop.write(keys)
        await self.until(self.console.transport.value)
        hop.lose()
        self.console.says(b"two ")
        self.console.says(b"three")
        again = await self.hop(Rejoin(key, received).text())
        self.assertIn("101", again.head[0])
        self.assertEqual(parse_received(again.header("X-Twisted-Exec-Rejoin")), len(keys))
        self.assertEqual(again.header("Sec-WebSocket-Protocol"), "v5.channel.k8s.io")
        await self.until(lambda: again.got.endswith(b"three"))
        self.assertEqual(again.got, b"\x82\x05\x01two \x82\x06\x01three")
        again.write(masked(b"\x00 -u"))
        await self.until(lambda: self.console.transport.value().endswith(b"-u"))
        self.assertEqual(self.console.heard(), b"date -u")
        self.assertEqual(len(self.shared.viewers), 1)
        self.assertEqual(len(server.sessions), 1)

    async def test_latency(self) -> None:
        """A ping that was on its way when the connection was lost is not measured."""
        server = await self.serve()
        hop, key = await self.opened()
        (session,) = server.sessions.live()
        self.assertIsNotNone(session.transports()[0])
        ((_, stream),) = server.streams._streams.values()
        stream.keep_alive()
        await self.until(lambda: hop.got.endswith(b"\x89\x00"))
        hop.lose()
        await self.until(lambda: session.transports() == (None, None))
        again = await self.hop(Rejoin(key, len(hop.got)).text())
        again.write(masked(b"", opcode=10) + masked(b"\x00x"))
        await self.until(self.console.transport.value)
        count = server.registry.get_sample_value("twisted_exec_ping_seconds_count")
        self.assertEqual(count, 0)

    async def test_older_connection(self) -> None:
        """A connection that is still open is replaced."""
        await self.serve()
        hop, key = await self.opened()
        again = await self.hop(Rejoin(key, len(hop.got)).text())
        await hop.raw.over
        self.console.says(b"new")
        await self.until(lambda: again.got.endswith(b"new"))
        self.assertNotIn(b"new", hop.got)

    async def test_ended_through_new_token(self) -> None:
        """The new hop ends the session with the token of its own request."""
        await self.serve()
        hop, key = await self.opened()
        token = self.token()
        again = await self.hop(Rejoin(key, len(hop.got)).text(), token=token)
        code, _ = await self.ask(
            f"DELETE /exec/{token}?session=s1&reason={MACHINE_DELETED} HTTP/1.1\r\nHost: x\r\n"
            "X-Twisted-Exec-User: ann\r\nX-Twisted-Exec-Machine-Uid: uid-x\r\n"
        )
        self.assertEqual(code, 200)
        await self.until(lambda: MACHINE_DELETED.encode() in again.got)
        again.write(masked(b"\x03\xe8", opcode=8))
        await again.raw.over
        await self.until(lambda: not entries(self.cache))

    async def test_status_after_loss(self) -> None:
        """A session that ends while there is no connection tells its user why."""
        await self.serve()
        hop, key = await self.opened()
        received = len(hop.got)
        hop.lose()
        await hop.raw.over
        self.shared.end(Ending(MACHINE_DELETED, "it is gone"))
        again = await self.hop(Rejoin(key, received).text())
        await self.until(lambda: b"it is gone" in again.got)

    async def test_time_over(self) -> None:
        """Without another connection in time the session ends."""
        server = await self.serve(rejoin_seconds=0.05)
        hop, key = await self.opened()
        hop.lose()
        await self.until(lambda: not len(server.sessions))
        self.assertEqual(self.shared.viewers, ())
        self.assertEqual(self.code(await self.hop(Rejoin(key, 0).text())), 404)

    async def test_client_leaves(self) -> None:
        """A client that closes the session is not waited for."""
        server = await self.serve()
        hop, _ = await self.opened()
        hop.write(masked(b"\x03\xe8", opcode=8))
        await hop.raw.over
        await self.until(lambda: not len(server.sessions))
        await self.until(lambda: not len(server.streams))


class RefusalTests(RejoinCase):
    """Requests that rejoin nothing."""

    async def test_refused(self) -> None:
        await self.serve()
        hop, key = await self.opened()
        received = len(hop.got)
        for value, facts, code in (
            (Rejoin("x" * 43, received).text(), {}, 404),
            (Rejoin(key, received).text(), {"user": "bob"}, 404),
            (Rejoin(key, 10**6).text(), {}, 409),
            ("nonsense", {}, 400),
        ):
            answer = await self.hop(value, **facts)
            self.assertEqual(self.code(answer), code, value)
            self.assertNotIn(key.encode(), answer.raw.got)
        self.assertEqual(len(self.shared.viewers), 1)
        self.assertNotIn(key, self.records.getvalue())

    async def test_not_offered(self) -> None:
        """A hop that offers nothing gets no key, and its stream ends with its connection."""
        server = await self.serve()
        hop = await self.hop("")
        self.assertEqual(hop.header("X-Twisted-Exec-Rejoin"), "")
        hop.lose()
        await self.until(lambda: not len(server.sessions))

    async def test_turned_off(self) -> None:
        await self.serve(rejoin_seconds=0)
        hop = await self.hop("offer")
        self.assertIn("101", hop.head[0])
        self.assertEqual(hop.header("X-Twisted-Exec-Rejoin"), "")
