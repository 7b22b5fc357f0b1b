"""Tests of :mod:`twisted_exec.streaming.remotecommand.server`: handshakes and sessions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import ClassVar

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.audits import AuditList
from tests.contracts.attachment import ContractUser, EndOfInputContract, NoEndOfInputContract
from tests.streaming.frames import KEY, Peer, Pong, handshake, masked
from tests.streaming.http.test_upgrade_client import AbortableTransport
from tests.streaming.remotecommand.serving import NOON, ServeTestCase
from tests.streaming.users import Base64User, OlderUser, WebSocketUser
from twisted_exec.program.audit import Trail
from twisted_exec.program.metrics import new_registry
from twisted_exec.program.session_metrics import LatencyMetrics
from twisted_exec.streaming.interfaces import REVOKED, TIME_OVER, Ending, IAttachmentTransport, Role
from twisted_exec.streaming.remotecommand.carriers import DEFAULT_LIMITS
from twisted_exec.streaming.remotecommand.server import (
    MAY_OBSERVE,
    SERVED_TRANSITIONS,
    ConsoleServer,
    ServedLife,
)
from twisted_exec.streaming.remotecommand.spdy_carrier import ServerSPDY
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.testing.console import RecordingAttachment
from twisted_exec.wire.channel import TERMINAL
from twisted_exec.wire.resize import encode_wish
from twisted_exec.wire.session_terms import Right, Terms
from twisted_exec.wire.stream_options import StreamOptions

ENDING = Ending(REVOKED, "not any more")


class LifeTests(SynchronousTestCase):
    """The life of a stream at the machine's end."""

    STEPS: ClassVar = {
        ServedLife.ATTACHED: lambda server: server.opened(),
        ServedLife.ENDING: lambda server: server.end(ENDING),
        ServedLife.LEFT: lambda server: server.end_by_hop(ENDING),
        ServedLife.OVER: lambda server: server.lost("client lost"),
    }
    """What leads to each phase from those before it."""

    def reached(self, way: list[ServedLife]) -> ConsoleServer:
        clock = Clock()
        self.attachment = RecordingAttachment()
        server = ConsoleServer(
            self.attachment,
            session="s-1",
            user="ann",
            options=StreamOptions(),
            clock=clock,
            limits=DEFAULT_LIMITS,
            entry=None,
        )
        carrier = ServerSPDY(
            "v4.channel.k8s.io",
            TERMINAL,
            user=server,
            clock=clock,
            open_seconds=30,
            linger_seconds=30,
        )
        server.use(carrier)
        carrier.makeConnection(AbortableTransport())
        for life in way:
            self.STEPS[life](server)
        return server

    def test_transitions(self) -> None:
        """Each transition of the table happens, on each way to it."""
        ways = [[ServedLife.OPENING]]
        for way in ways:
            for following in SERVED_TRANSITIONS[way[-1]]:
                self.assertIs(self.reached([*way[1:], following]).life, following, way)
                ways.append([*way, following])
        self.assertEqual({life for way in ways for life in way}, set(ServedLife))

    def test_detached_once(self) -> None:
        """The attachment is detached once, and nothing changes a stream that is over."""
        for way in (
            [],
            [ServedLife.ATTACHED],
            [ServedLife.ENDING],
            [ServedLife.ENDING, ServedLife.LEFT],
        ):
            server = self.reached([*way, ServedLife.OVER])
            for step in self.STEPS.values():
                step(server)
            self.assertIs(server.life, ServedLife.OVER)
            self.assertEqual(len(self.attachment.detached_with), 1)


class TermsTests(ServeTestCase):
    """A session whose terms change."""

    def test_waiting_input(self) -> None:
        """Input that waits for the machine is dropped with the right to drive; its end is not."""
        peer = self.connect()
        self.attachment.transport.pause_input()
        peer.send(b"\0reboot")
        peer.send(b"\xff\0")
        assert self.serving.server is not None
        self.serving.server.hold_to(Terms(right=Right.OBSERVE))
        self.attachment.transport.resume_input()
        self.assertEqual(self.attachment.received, b"")
        self.assertTrue(self.attachment.input_ends)

    def test_only_observe(self) -> None:
        """The notice about input that is dropped is sent once, by a console without roles, too."""
        peer = self.connect()
        assert self.serving.server is not None
        self.serving.server.hold_to(Terms(right=Right.OBSERVE))
        peer.send(b"\0a")
        peer.send(b"\0b")
        peer.send(b"\4" + encode_wish(Role.WRITER, None))
        self.assertEqual(peer.messages(), [b"\1" + MAY_OBSERVE.output])
        self.assertEqual((self.attachment.received, self.attachment.wishes), (b"", []))

    def test_until(self) -> None:
        """A session ends at the time of its terms, after a warning, and leaves its console then."""
        self.serving.terms = Terms(until=NOON + 100, policy="a/x")
        peer = self.connect()
        self.clock.advance(91)
        until = b"ConsolePolicy a/x allows it until 2027-01-15T12:01:40Z"
        warning = b"\r\n[twisted-exec: this session ends in 9s: " + until + b"]\r\n"
        self.assertIn(b"\1" + warning, [getattr(each, "data", b"") for each in peer.events()])
        self.clock.advance(9)
        status = json.loads(peer.events()[0].data[1:])
        self.assertEqual(status["reason"], TIME_OVER)
        self.assertEqual(self.attachment.detached_with, [TIME_OVER])

    def test_until_is_over(self) -> None:
        """A session whose time is over before it opens ends at once."""
        self.serving.terms = Terms(until=NOON - 100, policy="a/x")
        peer = Peer(self.server)
        status = json.loads(peer.events()[1].data[1:])
        self.assertEqual(status["reason"], TIME_OVER)
        self.assertEqual(self.attachment.detached_with, [TIME_OVER])

    def test_idle(self) -> None:
        """Keys, requests and new sizes are input; whatever else a client sends is not."""
        self.serving.terms = Terms(idle_seconds=60, policy="a/x")
        size = b'\4{"Width":80,"Height":24}\n'
        for query, message, is_input in (
            (b"", size, False),
            (b"", b'\4{"Width":80,"Height":24,"Break":0}\n', False),
            (b"", b'\4{"Role":"nobody"}\n', False),
            (b"", b"\4{", False),
            (b"", b"\0", False),
            (b"", b"\1x", False),
            (b"?readOnly=true", b"\1x", False),
            (b"?readOnly=true", b'\4{"Width":81,"Height":24}\n', False),
            (b"", b"\0x", True),
            (b"", b'\4{"Break":250}\n', True),
        ):
            peer = self.connect(query=query)
            peer.send(size)
            for _ in range(6):
                self.clock.advance(10)
                peer.send(message)
            data = [bytes(getattr(each, "data", b"")) for each in peer.events()]
            self.assertEqual(any(b'"Idle"' in each for each in data), not is_input, message)

    def test_console_without_such_terms(self) -> None:
        """A session is refused if the console cannot enforce its terms, and ends if they change so."""
        limit = b"ConsolePolicy a/x limits the users at a console"
        rate = b"ConsolePolicy a/x limits the rate of input, and this console cannot"
        unrecorded = b"ConsolePolicy a/x requires a recording"
        for terms, refusal, why in (
            (Terms(people=2, policy="a/x"), limit, limit),
            (Terms(viewers=2, policy="a/x"), limit, limit),
            (Terms(input_rate=9, policy="a/x"), rate, rate),
            (Terms(recording="uid/none", policy="a/x"), b'"reason":"CannotBeRecorded"', unrecorded),
        ):
            self.serving.terms = terms
            client = self.server.connect()
            client.send(handshake())
            answer = client.received()
            self.assertTrue(answer.startswith(b"HTTP/1.1 501 "), answer)
            self.assertIn(refusal, answer)
            self.serving.terms = Terms(idle_seconds=60)
            peer = self.connect()
            assert self.serving.server is not None
            self.serving.server.hold_to(terms)
            status = json.loads(peer.events()[0].data[1:])
            self.assertEqual(status["reason"], REVOKED)
            self.assertIn(why.decode(), status["message"])


class LatencyTests(ServeTestCase):
    """Times that a server measures."""

    def setUp(self) -> None:
        super().setUp()
        registry = new_registry(process=False)
        self.serving.sessions = Sessions(Trail(AuditList(), "runtime", self.clock))
        self.serving.sessions.latency = LatencyMetrics(registry)
        self.value = registry.get_sample_value

    def pings(self) -> tuple[float | None, float | None]:
        """Return the number and the sum of measured pings."""
        name = "twisted_exec_ping_seconds"
        return self.value(f"{name}_count"), self.value(f"{name}_sum")

    def test_ping(self) -> None:
        """The time from a ping to its answer counts; an answer without a ping does not."""
        peer = self.connect()
        peer.say(Pong(b""))
        self.clock.advance(30)
        self.clock.advance(0.25)
        peer.say(Pong(b""))
        peer.say(Pong(b""))
        self.assertEqual(self.pings(), (1, 0.25))

    def test_no_answer(self) -> None:
        """A client that answers no ping is not measured; neither is one that has gone."""
        peer = self.connect()
        self.clock.advance(30)
        self.clock.advance(30)
        peer.client.lose()
        self.assertEqual(self.pings(), (0, 0))

    def test_echo(self) -> None:
        """The time that the machine takes to answer input counts."""
        self.connect()
        assert self.serving.server is not None
        self.serving.server.echoed(0.25)
        self.assertEqual(self.value("twisted_exec_echo_seconds_sum"), 0.25)

    def test_transports(self) -> None:
        """The hop's metrics know the connection to the user."""
        self.connect()
        assert self.serving.server is not None and self.serving.sessions is not None
        (session,) = self.serving.sessions.live()
        user, machine = session.transports()
        self.assertIs(user, self.serving.server._carrier.transport)
        self.assertIsNone(machine)


class HandshakeTests(ServeTestCase):
    """From a request to a console."""

    def test_answer(self) -> None:
        """The 101 names the protocol that was chosen, the key's answer, and the session."""
        peer = Peer(self.server)
        lines = peer.head.split(b"\r\n")
        self.assertEqual(lines[0], b"HTTP/1.1 101 Switching Protocols")
        self.assertIn(b"Sec-WebSocket-Protocol: v5.channel.k8s.io", lines)
        self.assertIn(b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", lines)
        self.assertIn(b"Audit-Id: s-1", lines)
        self.assertNotIn(b"Autobahn", peer.head)
        self.assertEqual(peer.messages(), [b"\x01"])
        transport = self.attachment.transport
        self.assertEqual((transport.session, transport.user), ("s-1", "ann"))
        self.assertTrue(IAttachmentTransport.providedBy(transport))

    def test_protocols(self) -> None:
        """The client's first protocol that is on our list wins."""
        for offered, chosen in (
            (b"v4.channel.k8s.io", b"v4.channel.k8s.io"),
            (b"v9.x, v4.channel.k8s.io,v5.channel.k8s.io", b"v4.channel.k8s.io"),
            (b"v3.k8s.io\r\nSec-WebSocket-Protocol: v5.channel.k8s.io", b"v5.channel.k8s.io"),
            (b"channel.k8s.io, v5.channel.k8s.io", b"channel.k8s.io"),
        ):
            self.setUp()
            peer = self.connect(protocols=offered)
            self.assertIn(b"Sec-WebSocket-Protocol: " + chosen + b"\r\n", peer.head + b"\r\n")

    def test_early(self) -> None:
        """Frames that arrive with the request are input."""
        self.connect(early=masked(b"\0early") + masked(b"\0 bird"))
        self.assertEqual(self.attachment.received, b"early bird")

    def test_odd_headers(self) -> None:
        """Nothing that a browser or proxy may add disturbs."""
        client = self.server.connect()
        client.send(
            handshake(
                b"Origin: null",
                b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
                b"X-Forwarded-For: 1.2.3.4",
            )
        )
        answer = client.received()
        self.assertIn(b"101 Switching", answer)
        self.assertNotIn(b"deflate", answer)

    def refused(self, request: bytes) -> tuple[int, str]:
        client = self.server.connect()
        client.send(request)
        (answer,) = client.responses()
        version = answer.headers.get("sec-websocket-version")
        self.assertEqual(version, "13" if b"Version: 8" in request else None)
        self.assertEqual(answer.json()["kind"], "Status")
        self.assertEqual(self.attachment.attachments, 0)
        return answer.code, answer.json()["message"]

    def test_refused(self) -> None:
        """A request that is no handshake is refused with a Status."""
        good = handshake()
        ours = (
            "this server speaks v5.channel.k8s.io, v4.channel.k8s.io, v4.base64.channel.k8s.io,"
            " channel.k8s.io and base64.channel.k8s.io"
        )
        for change, code, message in (
            ((b"Connection: Upgrade\r\n", b""), 400, "Upgrade request required"),
            (
                (b"websocket", b"h2c"),
                400,
                "the request does not ask for an upgrade to websocket",
            ),
            ((b"GET", b"POST"), 405, "a WebSocket is opened with GET"),
            ((b"Version: 13", b"Version: 8"), 400, "Sec-WebSocket-Version must be 13"),
            ((KEY, b"c2hvcnQ="), 400, "Sec-WebSocket-Key must be 16 bytes in base64"),
            ((KEY, b"!" * 24), 400, "Sec-WebSocket-Key must be 16 bytes in base64"),
            (
                (b"v5.channel", b"v3.channel"),
                403,
                f"no subprotocol in common; {ours}",
            ),
        ):
            with self.subTest(change=change):
                self.assertEqual(self.refused(good.replace(*change)), (code, message))


class InputEndedTests(ServeTestCase):
    """A session that begins after the end of its input."""

    def test_ended(self) -> None:
        """The attachment gets the end once, also if the client ends its input."""
        for query in (b"?stdout=true&inputEnded=true", b"?stdin=true&stdout=true&inputEnded=true"):
            self.attachment.input_ends = 0
            peer = self.connect(query=query)
            self.assertEqual(self.attachment.input_ends, 1)
            peer.send(b"\xff\0")
            self.assertEqual(self.attachment.input_ends, 1)
        self.connect(query=b"?stdout=true")
        self.assertEqual(self.attachment.input_ends, 1)


class ContractTests(EndOfInputContract, ServeTestCase):
    """The attachment contract, in version 5."""

    user: Callable[..., ContractUser] = WebSocketUser

    def new_user(self, query: bytes = b"") -> ContractUser:
        return self.user(self.server, query)


class OlderContractTests(NoEndOfInputContract, ServeTestCase):
    """The same in version 4."""

    user: Callable[..., ContractUser] = OlderUser

    def new_user(self, query: bytes = b"") -> ContractUser:
        return self.user(self.server, query)


class Base64ContractTests(OlderContractTests):
    """The same in base64."""

    user = Base64User
