"""
Tests for :mod:`twisted_exec.streaming.text.shared_downloads`: all that holds for downloads with a
connection of their own, and for a relay of them.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from tests.streaming.h2_server import BehindTransport, H2Fronts
from tests.streaming.http.test_upgrade_client import AbortableTransport
from tests.streaming.text import test_download, test_relay
from tests.streaming.text.test_download import CHUNKED, chunk
from twisted_exec.api.status import BadGateway, BadRequest, GatewayTimeout
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.text.shared_downloads import LOOK_SECONDS, WINDOW, SharedDownloads


class End(AbortableTransport):
    """One end of a connection in memory: writes arrive at the other end at once."""

    negotiatedProtocol = b"h2"
    other: End
    holds = False

    def __init__(self) -> None:
        super().__init__()
        self.delivers = False

    def write(self, data: bytes) -> None:
        super().write(data)
        self.deliver()

    def deliver(self) -> None:
        """Deliver written bytes; as with sockets never while the writer or the reader is busy."""
        if self.holds or self.delivers or self.other.delivers:
            return
        ends = [end for end in (self, self.other) if not end.holds]
        while any(end.value() for end in ends):
            for end in ends:
                said = end.value()
                end.clear()
                if said and not (end.closed or end.other.closed):
                    end.delivers = True
                    end.other.protocol.dataReceived(said)
                    end.delivers = False

    def abortConnection(self) -> None:
        super().abortConnection()
        if not self.other.closed:
            self.other.closed.append("lost")
            self.other.protocol.connectionLost(Failure(ConnectionDone()))


class Behind(Protocol):
    """A manual backend of a stream; the newest is the test's."""

    def __init__(self, backend: H2Connection) -> None:
        self._backend = backend

    def connectionMade(self) -> None:
        self._backend.asked.append(self)

    lost = False

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = True


@implementer(IStreamClientEndpoint)
class H2Connection:
    """
    As :class:`~.test_upgrade_client.OneConnection`: an endpoint whose connections the test holds.

    The test's answers are sent as HTTP/2 over a connection that a pool made.
    """

    streams = 100

    def __init__(self, connected: bool, shared: SharedDownloads) -> None:
        self.connected, self.connecting = connected, Deferred[Any]()
        self.asked: list[Behind] = []
        self.made: list[End] = []
        self._shared = shared
        self._factory: IProtocolFactory | None = None
        self.fronts = H2Fronts(self, self.streams)

    def buildProtocol(self, addr: Any) -> Behind:
        return Behind(self)

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        return self._shared.endpoint(id(self), _Inner(self)).connect(protocolFactory)

    def meet(self, factory: IProtocolFactory) -> Deferred[Any]:
        """Make a connection."""
        if not self.connected:
            return self.connecting
        ours, theirs = End(), End()
        ours.other, theirs.other = theirs, ours
        client: Any = factory.buildProtocol(ours.getPeer())
        theirs.protocol = self.fronts.buildProtocol(None)
        ours.protocol = client
        self.made.append(ours)
        theirs.holds = True
        theirs.protocol.makeConnection(theirs)
        client.makeConnection(ours)
        self.connecting = Deferred()
        self.connecting.callback(client)
        return self.connecting

    def settle(self) -> None:
        """Deliver the server's own frames."""
        for ours in self.made:
            self._release(ours.other)

    def _release(self, theirs: End) -> None:
        if theirs.holds:
            theirs.holds = False
            theirs.deliver()

    @property
    def protocol(self) -> Any:
        """The protocol that a test feeds with raw HTTP/1.1."""
        self.settle()
        return _Answering(self) if self.asked else None

    @property
    def transport(self) -> Any:
        self.settle()
        return _Seen(self.asked[-1])


class _Inner:
    def __init__(self, backend: H2Connection) -> None:
        self._backend = backend

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        return self._backend.meet(factory)


class _Answering:
    """The newest stream, to a test that writes answers of HTTP/1.1."""

    def __init__(self, backend: H2Connection) -> None:
        self._backend = backend

    def dataReceived(self, data: bytes) -> None:
        self._backend.asked[-1].transport.write(data)  # type: ignore[union-attr]

    def connectionLost(self, reason: Failure) -> None:
        self._backend.made[-1].other.abortConnection()


class _Seen:
    """The server's view of the newest stream, in the form of a test of a connection."""

    def __init__(self, asked: Behind) -> None:
        self._asked = asked

    @property
    def aborted(self) -> bool:
        """Whether the client has cancelled the stream."""
        transport: Any = self._asked.transport
        return bool(self._asked.lost or transport.ended)

    def value(self) -> bytes:
        """The request, as it is written in HTTP/1.1."""
        transport: BehindTransport = self._asked.transport  # type: ignore[assignment]
        told = dict(transport.head)
        lines = [b"%b %b HTTP/1.1" % (told[b":method"], told[b":path"])]
        lines.append(b"Host: %b" % told[b":authority"])
        lines += [b"%b: %b" % (n.title(), v) for n, v in transport.head if n[:1] != b":"]
        return b"\r\n".join(lines) + b"\r\n\r\n"


class SharedFetchCase(test_download.FetchCase):
    """A request that was sent on a connection that it shares."""

    def setUp(self) -> None:
        super().setUp()
        self.endpoint.settle()

    def place(self) -> H2Connection:
        self.shared = SharedDownloads(self.clock)
        return H2Connection(True, self.shared)

    def timed(self) -> list[Any]:
        self.shared.close()  # else it waits for the next request
        return super().timed()

    @property
    def server(self) -> Any:
        """The leaf's end of the connection."""
        return self.endpoint.fronts.made[-1]


class SharedBodyTests(SharedFetchCase, test_download.BodyTests):
    """A body that comes."""

    @given(test_download.PIECES, st.data())
    def test_any_split(self, pieces: list[bytes], data: st.DataObject) -> None:
        """However the body is cut and split, the same bytes arrive, and then the end."""
        self.check_split(pieces, data)

    def window(self) -> int:
        """The server's window for the newest stream."""
        return int(
            self.server.http.local_flow_control_window(self.endpoint.asked[-1].transport.number)
        )

    def test_waits(self) -> None:
        """Until the body is taken at most a window arrives; early bytes are kept."""
        self.answer(CHUNKED + chunk(b"one"))
        self.answer(chunk(bytes(1 << 20)))
        self.assertEqual(self.window(), 0)
        self.deliver()
        self.assertEqual(len(self.taker.got), 3 + (1 << 20))
        self.assertGreater(self.window(), 0)

    def test_pause(self) -> None:
        """The receiver sets the pace, from the first piece on, and gets the rest in order."""
        self.answer(CHUNKED + chunk(b"one"))
        download = self.successResultOf(self.fetching)

        def enough(data: bytes) -> None:
            self.taker.data(data)
            download.pause()

        download.deliver(enough, self.taker.ended.append)
        self.answer(chunk(bytes(200_000)) + b"0\r\n\r\n")
        self.assertEqual((self.taker.got, self.window()), (b"one", 0))
        for _ in range(50):
            download.resume()
        self.assertEqual(self.taker.got, b"one" + bytes(200_000))
        self.assertEqual(self.taker.ended, [True])

    def test_lost_while_paused(self) -> None:
        """Buffered bytes are still delivered, and then the incomplete end."""
        self.answer(CHUNKED + chunk(b"one"))
        download = self.successResultOf(self.fetching)
        download.pause()
        download.deliver(self.taker.data, self.taker.ended.append)
        self.lose()
        self.assertEqual((self.taker.got, self.taker.ended), (b"", []))
        download.resume()
        self.assertEqual((self.taker.got, self.taker.ended), (b"one", [False]))

    def test_taken_slowly(self) -> None:
        """A reader of small pieces never runs out of the sender's window."""
        self.answer(CHUNKED)
        self.deliver()
        for _ in range(200):
            self.answer(chunk(bytes(1000)))
        self.assertEqual(len(self.taker.got), 200_000)
        self.assertGreater(self.window(), WINDOW // 2)

    def test_leaving_is_told(self) -> None:
        """A cancelled stream ends at once; the connection stays for others."""
        self.answer(CHUNKED)
        self.deliver().abort()
        self.assertEqual(self.server.reset, [1])
        self.assertFalse(self.server.lost)


class SharedRefusalTests(SharedFetchCase, test_download.RefusalTests):
    """Responses other than the text."""

    def test_no_answer(self) -> None:
        """A late, missing or malformed response is an error."""
        self.clock.advance(10)
        self.assertEqual(self.broken(GatewayTimeout), "no answer to the request within 10 s")
        self.assertEqual(self.server.reset, [1])
        for answer in (b"", b"SSH-2.0-OpenSSH\r\n\r\n"):
            self.setUp()
            if answer:
                self.answer(answer)
            else:
                self.lose()
            self.assertIn("before the request was answered", self.broken(BadGateway))

    def test_endless_head(self) -> None:
        """A head that is too large is not collected."""
        number = self.endpoint.asked[-1].transport.number
        many = [(b"x-%d" % each, bytes(b"x" * 1000)) for each in range(200)]
        self.server.http.send_headers(number, [(b":status", b"200"), *many])
        self.server.flush()
        self.assertIn("before the request was answered", self.broken(BadGateway))
        self.assertTrue(self.server.lost)

    def test_bad_header(self) -> None:
        """A header that HTTP/1.1 would refuse is refused, and uses no stream."""
        stream = self.successResultOf(
            self.shared.endpoint(id(self.endpoint), self.endpoint).connect(None)
        )
        head = UpgradeRequest(b"GET", b"/", b"there", [(b"X", b"a\r\nY: b")])
        with self.assertRaises(BadRequest):
            stream.ask(head)


class SharedRelayCase(test_relay.RelayCase):
    """A relay whose backends are shared."""

    def add_backend(self, connected: bool = True) -> Any:
        self.shared = SharedDownloads(self.clock)
        backend = H2Connection(connected, self.shared)
        self.locator.endpoints.append((f"10.0.0.{len(self.locator.endpoints)}:1", backend))
        return backend

    def ask(self, *lines: bytes) -> Any:
        client = super().ask(*lines)
        self.backend.settle()
        return client

    def timed(self) -> list[Any]:
        self.shared.close()
        return super().timed()


class SharedPassTests(SharedRelayCase, test_relay.PassTests):
    """Passing texts."""

    def test_slow_client(self) -> None:
        """The backend waits for the client, once a window is full."""
        client = self.following()
        client.transport.producer.pauseProducing()
        self.answer(chunk(bytes(1 << 20)))
        behind: Any = self.backend.asked[-1].transport
        waits = len(behind.waiting)
        self.assertGreater(waits, (1 << 20) - (128 << 10))
        self.assertEqual(client.received(), b"")
        client.transport.producer.resumeProducing()
        self.assertEqual(len(behind.waiting), 0)


class SharedEndTests(SharedRelayCase, test_relay.EndTests):
    """Ends from this side."""


class SharedSilentTests(SharedRelayCase, test_relay.SilentTests):
    """A backend that has nothing to pass on yet."""

    def test_hours(self) -> None:
        """The response may take as long as the server lives."""
        client = self.ask()
        for _ in range(1000):
            self.clock.advance(LOOK_SECONDS)
        self.assertEqual(client.received(), b"")
        self.answer(CHUNKED + chunk(b"one\n"))
        self.assertIn(b"one\n", client.received())


class SharedRefuseTests(SharedRelayCase, test_relay.RefuseTests):
    """Refused texts."""
