"""Tests for :mod:`twisted_exec.streaming.remotecommand.tunnel`: through a proxy, in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import wsproto
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from wsproto.connection import ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from zope.interface import implementer

from tests.audits import AuditList
from tests.streaming.frames import handshake, masked
from tests.streaming.raw import Raw
from tests.streaming.remotecommand.translating import Proxying
from twisted_exec.program.audit import Trail
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import Dispatcher, respond_text
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.http.upgrade_server import requested_protocol, take_over
from twisted_exec.streaming.interfaces import REVOKED, SHUTTING_DOWN, Ending
from twisted_exec.streaming.location import IStreamAdmission, Location
from twisted_exec.streaming.proxied import ProxySettings
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.remotecommand.tunnel import LEAVE_SECONDS
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.testing.network import BUFFER_BYTES, MemoryNetwork
from twisted_exec.wire.upgrade import switching_protocols

TUNNEL = b"SPDY/3.1+portforward.k8s.io"
CAPTURE = Path(__file__).parents[2] / "captures/portforward-ws-tunnel-kubectl1.33.json"
_SAID = [
    bytes.fromhex(item["hex"])
    for item in json.loads(CAPTURE.read_text())["items"]
    if item["dir"] == "C"
]
# In the capture, each frame is followed by a copy of its content, which is dropped here.
RECORDED = [_SAID[0], *(piece for piece in _SAID[1:] if piece[:1] in (b"\x82", b"\x88"))]
NOISE = bytes(range(256)) * 3


class OldKubelet(Dispatcher):
    """
    Forwards ports over SPDY, and knows no tunnel: as a kubelet before 1.36.

    :ivar refusal: of the tunnel; ``None`` for Go's WebSocket server, which says nothing.
    :ivar protocol: the protocol that it selects.
    """

    refusal: str | None = 'query parameter "port" is required'
    protocol = b"portforward.k8s.io"
    answers = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[bytes, dict[bytes, list[bytes]]]] = []
        self.ends: list[Raw] = []

    async def dispatch(self, request: Request) -> None:
        headers = dict(request.requestHeaders.getAllRawHeaders())
        self.asked.append((request.method, headers))
        if requested_protocol(request) == b"SPDY/3.1" and self.answers:
            end = Raw()
            self.ends.append(end)
            chosen = [(b"X-Stream-Protocol-Version", self.protocol)]
            take_over(request, end, switching_protocols(b"SPDY/3.1", chosen))
        elif self.refusal is not None:
            respond_text(request, 400, self.refusal)
        else:
            request.channel.transport.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            request.channel.transport.loseConnection()


@implementer(IStreamAdmission)
class Admission:
    """Leads to one place."""

    def __init__(self, endpoint: Any) -> None:
        self.endpoint = endpoint

    def admit(self, context: RequestContext) -> Deferred[Location]:
        context.learn(session="s-1", user="ann", machine="web")
        places = [("the leaf", self.endpoint)]
        return succeed(Location(places, b"/pf", b"leaf", whole=True))


class TunnelTestCase(SynchronousTestCase):
    """kubectl, a proxy, and a next hop without tunnels."""

    def setUp(self) -> None:
        self.clock, self.network, self.records = Clock(), MemoryNetwork(), AuditList()
        self.kubelet = OldKubelet()
        self.sessions = Sessions(Trail(self.records, "nodeserver", self.clock))
        admission = Admission(self.network.endpoint(Site(self.kubelet, self.clock)))
        proxy = Proxy(
            admission, ProxySettings("nodeserver"), sessions=self.sessions, clock=self.clock
        )
        self.entry = self.network.endpoint(Site(Proxying(proxy), self.clock))
        self.frames = wsproto.Connection(ConnectionType.CLIENT)

    def ask(self, early: bytes = b"", protocols: bytes = TUNNEL) -> Raw:
        user: Any = self.successResultOf(self.entry.connect(Factory.forProtocol(Raw)))
        user.transport.write(handshake(protocols=protocols) + early)
        self.network.pump()
        return user  # type: ignore[no-any-return]

    def open(self) -> tuple[Raw, Raw]:
        """A session: the user's end, behind the head of its answer, and the next hop's."""
        user = self.ask()
        head, _, user.received = user.received.partition(b"\r\n\r\n")
        self.assertIn(b"101 Switching Protocols", head)
        (end,) = self.kubelet.ends
        return user, end

    def say(self, user: Raw, event: Any) -> None:
        user.transport.write(self.frames.send(event))
        self.network.pump()

    def heard(self, user: Raw) -> list[Any]:
        self.network.pump()
        data, user.received = user.received, b""
        self.frames.receive_data(data)
        return list(self.frames.events())

    def told(self, user: Raw) -> bytes:
        """The bytes in the messages that came."""
        events = self.heard(user)
        self.assertTrue(all(isinstance(event, BytesMessage) for event in events), events)
        return b"".join(bytes(event.data) for event in events)

    def over(self, reason: str) -> None:
        """Check that nothing of the session is left, and that its end is recorded once."""
        self.network.pump()
        self.assertEqual(len(self.sessions), 0)
        self.records.check_pairs()
        self.assertEqual(self.records.ends(), [(reason, None)])
        self.assertEqual([call.getTime() for call in self.clock.getDelayedCalls()], [])


class AskTests(TunnelTestCase):
    """Opening a tunnel."""

    def test_asked_for_spdy(self) -> None:
        """If the next hop refuses the tunnel, a second request asks for SPDY itself."""
        for refusal in ("the port is missing", None):
            self.setUp()
            self.kubelet.refusal = refusal
            user = self.ask()
            first, second = self.kubelet.asked
            self.assertEqual((first[0], second[0]), (b"GET", b"POST"))
            self.assertEqual(second[1][b"X-Stream-Protocol-Version"], [b"portforward.k8s.io"])
            self.assertEqual(second[1][b"Upgrade"], [b"SPDY/3.1"])
            self.assertNotIn(b"Sec-Websocket-Key", second[1])
            self.assertIn(b"Sec-WebSocket-Protocol: " + TUNNEL, user.received)
            self.assertEqual(len(self.sessions), 1)

    def test_refused_as_well(self) -> None:
        """If SPDY is refused too, that refusal is the response."""
        self.kubelet.answers = False
        user = self.ask()
        self.assertIn(b" 400 Bad Request", user.received)
        self.assertEqual(self.records.ends()[0][1], 400)
        self.assertEqual(len(self.sessions), 0)

    def test_other_protocol(self) -> None:
        """A next hop that selects another protocol is a 502, and its connection is closed."""
        for protocol in (b"v4.channel.k8s.io", b"", b"portforward.k8s.io, other.k8s.io"):
            self.setUp()
            self.kubelet.protocol = protocol
            user = self.ask()
            self.assertIn(b" 502 ", user.received)
            self.assertEqual(self.records.ends()[0][1], 502)
            (end,) = self.kubelet.ends
            self.assertIsNotNone(end.lost)

    def test_no_tunnel(self) -> None:
        """The refusal of a protocol that is no tunnel is passed on without a second request."""
        user = self.ask(protocols=b"v4.channel.k8s.io.not")
        self.assertIn(b" 400 ", user.received)
        self.assertEqual(len(self.kubelet.asked), 1)


class TalkTests(TunnelTestCase):
    """Traffic."""

    def test_both_ways(self) -> None:
        """Bytes pass in order; message boundaries and empty messages have no meaning."""
        user, end = self.open()
        for piece in (b"\x80\x03", b"", b"\x00\x01", NOISE, b"", b"x"):
            self.say(user, BytesMessage(piece))
        self.assertEqual(end.received, b"\x80\x03\x00\x01" + NOISE + b"x")
        end.transport.write(NOISE * 200)
        self.assertEqual(self.told(user), NOISE * 200)

    def test_early(self) -> None:
        """Data sent right behind the request is not lost."""
        self.ask(early=masked(b"early") + masked(b""))
        self.assertEqual(self.kubelet.ends[0].received, b"early")

    def test_fragments(self) -> None:
        """A message in several frames is one."""
        user, end = self.open()
        user.transport.write(masked(b"ab", fin=False) + masked(b"cd", opcode=0))
        self.network.pump()
        self.assertEqual(end.received, b"abcd")

    def test_recorded(self) -> None:
        """A tunnel recorded from kubectl is unwrapped into the SPDY that kubectl wrote."""
        frames = wsproto.Connection(ConnectionType.SERVER)
        user, end = self.open()
        for piece in RECORDED[1:]:
            frames.receive_data(piece)
            user.transport.write(piece)
            self.network.pump(chunk_bytes=7)
        events = list(frames.events())
        inner = b"".join(bytes(each.data) for each in events if isinstance(each, BytesMessage))
        self.assertTrue(inner.startswith(b"\x80\x03\x00\x01"))
        self.assertEqual(end.received, inner)

    def test_ping(self) -> None:
        """Pings are answered by this hop, even while the next one does not read."""
        user, end = self.open()
        self.say(user, Ping(b"are you there"))
        self.assertEqual(self.heard(user), [Pong(b"are you there")])
        self.assertEqual(end.received, b"")

    def test_slow_user(self) -> None:
        """A user who does not read pauses the next hop; nothing piles up."""
        user, end = self.open()
        user.transport.pauseProducing()
        end.transport.write(NOISE * 2000)
        self.network.pump()
        server = user.transport.peer
        self.assertLess(len(server.queued), 3 * BUFFER_BYTES)
        user.transport.resumeProducing()
        self.assertEqual(self.told(user), NOISE * 2000)

    def test_slow_machine(self) -> None:
        """A next hop that does not read pauses the user."""
        user, end = self.open()
        end.transport.pauseProducing()
        for _ in range(20):
            self.say(user, BytesMessage(NOISE * 64))
        self.assertLess(len(end.transport.peer.queued), 4 * BUFFER_BYTES)
        self.assertGreater(len(user.transport.queued), BUFFER_BYTES)
        end.transport.resumeProducing()
        self.network.pump()
        self.assertEqual(end.received, NOISE * 64 * 20)


class EndTests(TunnelTestCase):
    """Endings."""

    def test_client_closes(self) -> None:
        """A Close is answered, and the next hop's connection is closed after pending data."""
        user, end = self.open()
        user.transport.write(self.frames.send(BytesMessage(b"last")))
        self.say(user, CloseConnection(1000))
        self.assertEqual(end.received, b"last")
        end.transport.loseConnection()
        (closed,) = self.heard(user)
        self.assertEqual((type(closed), closed.code), (CloseConnection, 1000))
        self.over("client closed")
        self.assertIsNotNone(user.lost)

    def test_client_vanishes(self) -> None:
        """B5: then the next hop's connection is closed as well, at the latest after a second."""
        for leave in ("abortConnection", "loseConnection"):
            self.setUp()
            user, end = self.open()
            getattr(user.transport, leave)()
            self.network.pump()
            self.clock.advance(LEAVE_SECONDS)
            self.network.pump()
            self.assertIsNotNone(end.lost)
            self.assertEqual(len(self.sessions), 0)
            self.records.check_pairs()

    def test_machine_closes(self) -> None:
        """The end of SPDY is a Close behind the last byte."""
        user, end = self.open()
        end.transport.write(b"last")
        end.transport.loseConnection()
        last, closed = self.heard(user)
        self.assertEqual((bytes(last.data), closed.code), (b"last", 1000))
        self.say(user, closed.response())
        self.over("backend closed")

    def test_machine_vanishes(self) -> None:
        """If the next hop's connection is lost, the user gets Close 1011."""
        user, end = self.open()
        end.transport.abortConnection()
        (closed,) = self.heard(user)
        self.assertEqual(closed.code, 1011)
        self.clock.advance(60)  # the client does not answer
        self.clock.advance(60)
        self.over("backend lost")

    def test_text(self) -> None:
        """A text message has no place in a tunnel."""
        user, end = self.open()
        self.say(user, TextMessage("hello"))
        (closed,) = self.heard(user)
        self.assertEqual((type(closed), closed.code), (CloseConnection, 1002))
        self.assertEqual(end.received, b"")
        self.say(user, closed.response())
        self.clock.advance(LEAVE_SECONDS)
        self.network.pump()
        self.assertIsNotNone(end.lost)
        self.over("protocol error: a text message in a tunnel")

    def test_ended_by_the_hop(self) -> None:
        """Both sides are closed; a client that does not answer is not waited for."""
        user, end = self.open()
        self.sessions.end(lambda _: True, Ending(SHUTTING_DOWN, "going"))
        (closed,) = self.heard(user)
        self.assertEqual(closed.code, 1001)
        self.clock.advance(LEAVE_SECONDS)
        self.network.pump()
        self.assertIsNotNone(end.lost)
        self.clock.pump([15, 15])
        self.over(SHUTTING_DOWN)
        self.assertIsNotNone(user.lost)

    def test_input_behind_the_end(self) -> None:
        """Nothing that the user sends after the decision reaches a next hop that was busy then."""
        user, end = self.open()
        end.transport.pauseProducing()
        for _ in range(20):
            self.say(user, BytesMessage(NOISE * 64))
        self.sessions.end(lambda _: True, Ending(REVOKED, "no more"))
        user.transport.write(self.frames.send(BytesMessage(b"typed")))
        self.network.pump()
        end.transport.resumeProducing()
        self.network.pump()
        self.assertNotIn(b"typed", end.received)
        self.assertIsNotNone(end.lost)

    def test_paused_user(self) -> None:
        """A paused user's bytes wait, also when the next hop has room again."""
        user, end = self.open()
        end.transport.pauseProducing()
        for _ in range(20):
            self.say(user, BytesMessage(NOISE * 64))
        (session,) = self.sessions.live()
        tunnel: Any = session._stream.connections  # The session alone pauses its user.
        tunnel.pause_user()
        end.transport.resumeProducing()
        self.network.pump()
        passed = len(end.received)
        self.assertLess(passed, len(NOISE) * 64 * 20)
        tunnel.message_received(b"decrypted already")
        tunnel.resume_user()
        self.network.pump()
        self.assertEqual(len(end.received), len(NOISE) * 64 * 20 + len(b"decrypted already"))

    def test_cut_by_the_hop(self) -> None:
        """A drain without time closes both connections at once."""
        user, end = self.open()
        self.sessions.drain(self.clock, 0, "exec-poollet")
        self.clock.advance(0)
        self.over(SHUTTING_DOWN)
        self.assertIsNotNone(user.lost)
        self.assertIsNotNone(end.lost)


class VanishTests(TunnelTestCase):
    """A client that vanishes at any byte."""

    @settings(deadline=None, max_examples=60)
    @given(
        st.integers(0, len(b"".join(RECORDED))),
        st.integers(1, 2000),
        st.sampled_from(["abortConnection", "loseConnection"]),
    )
    def test_any_byte(self, length: int, chunk_bytes: int, leave: str) -> None:
        """Of a recorded exchange: no session, no connection and no timer is left."""
        self.setUp()
        user: Any = self.successResultOf(self.entry.connect(Factory.forProtocol(Raw)))
        said = b"".join(RECORDED)[:length]
        for at in range(0, len(said), chunk_bytes):
            user.transport.write(said[at : at + chunk_bytes])
            self.network.pump()
        getattr(user.transport, leave)()
        self.network.pump()
        self.clock.pump([LEAVE_SECONDS, 60, 60])
        self.network.pump()
        self.assertEqual(len(self.sessions), 0)
        self.records.check_pairs()
        self.assertTrue(all(end.lost for end in self.kubelet.ends))
        self.assertEqual(self.clock.getDelayedCalls(), [])
