"""Tests for :mod:`twisted_exec.streaming.text.shared_downloads`."""

from __future__ import annotations

from typing import Any

from h2.errors import ErrorCodes
from h2.events import PingReceived
from h2.settings import SettingCodes
from hyperframe.frame import GoAwayFrame
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.streaming.text.test_download import CHUNKED, Taker, chunk
from tests.streaming.text.test_shared_stream import H2Connection
from twisted_exec.api.status import BadGateway
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.text.download import DOWNLOADS, Download
from twisted_exec.streaming.text.shared_downloads import (
    IDLE_SECONDS,
    LOOK_SECONDS,
    MAX_STREAMS,
    SharedDownloads,
)

HEAD = UpgradeRequest(b"GET", b"/log", b"there", [(b"Authorization", b"Bearer secret")])


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + payload


FRAMES = st.lists(
    st.builds(
        frame,
        st.integers(0, 12),
        st.integers(0, 255).map(lambda flags: flags & ~1),  # a text may well be ended
        st.sampled_from([0, 1, 2, 3, 1 << 31]),
        st.binary(max_size=20),
    ),
    min_size=1,
    max_size=6,
).map(b"".join)


class Reader(Taker):
    """A client that requests and reads a text."""

    def __init__(self, case: ConnectionCase) -> None:
        super().__init__()
        backend = case.backend
        connecting = case.shared.endpoint("leaf", _Meets(backend)).connect(DOWNLOADS)
        backend.settle()
        self.stream: Any = case.successResultOf(connecting)
        self.asking = self.stream.ask(HEAD)
        self.behind: Any = backend.asked[-1].transport if backend.asked else None
        self.download: Download

    def read(self, case: ConnectionCase, text: bytes = b"") -> Reader:
        """Answer the request with a text, and read it; return self."""
        self.behind.write(CHUNKED + (chunk(text) if text else b""))
        self.download = case.successResultOf(self.asking)
        self.download.deliver(self.data, self.ended.append)
        return self


class _Meets:
    def __init__(self, backend: H2Connection) -> None:
        self._backend = backend

    def connect(self, factory: Any) -> Any:
        return self._backend.meet(factory)


class ConnectionCase(SynchronousTestCase):
    """Readers on connections to one server in memory."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.shared = SharedDownloads(self.clock)
        self.backend = H2Connection(True, self.shared)

    def reader(self, text: bytes = b"") -> Reader:
        return Reader(self).read(self, text)

    @property
    def server(self) -> Any:
        """The server's end of the newest connection."""
        return self.backend.fronts.made[-1]

    def say(self, raw: bytes) -> None:
        """Send raw bytes that the server's library would not send."""
        self.server.transport.write(raw)

    def goaway(self, last: int) -> None:
        self.say(GoAwayFrame(0, last_stream_id=last).serialize())


class SharingTests(ConnectionCase):
    """Many on one connection."""

    def test_one_connection(self) -> None:
        """Readers share one connection, and each gets its own text."""
        readers = [self.reader(b"%d" % number) for number in range(10)]
        self.assertEqual(len(self.backend.made), 1)
        self.assertEqual([reader.got for reader in readers], [b"%d" % n for n in range(10)])

    def test_credentials(self) -> None:
        """Credentials are sent in each request, and never indexed in the header tables."""
        self.reader()
        self.assertIn((b"authorization", b"Bearer secret"), self.reader().behind.head)
        held = [value for _, value in self.server.http.decoder.header_table.dynamic_entries]
        self.assertNotIn(b"Bearer secret", [bytes(value) for value in held])

    def test_stopped_reader(self) -> None:
        """A paused reader holds one window, and any number of them block no others."""
        stopped = [self.reader() for _ in range(MAX_STREAMS - 1)]
        for each in stopped:
            each.download.pause()
            each.behind.write(chunk(bytes(90_000)))
            self.assertGreater(len(each.behind.waiting), 1 << 14)
        other = self.reader()
        for _ in range(8):
            other.behind.write(chunk(bytes(1 << 18)))
        self.assertEqual(len(other.got), 8 << 18)

    def test_leavers_give_back(self) -> None:
        """Bytes of cancelled streams are returned to the connection's window."""
        stays = self.reader()
        for _ in range(150):
            leaves = self.reader()
            leaves.download.pause()
            leaves.behind.write(chunk(bytes(60_000)))
            leaves.download.abort()
        stays.behind.write(chunk(bytes(1 << 20)))
        self.assertEqual(len(stays.got), 1 << 20)
        self.assertEqual(len(self.backend.made), 1)

    def test_broken_off(self) -> None:
        """A stream that its sender resets is incomplete; the others continue."""
        each, two = self.reader(b"one"), self.reader(b"two")
        each.behind.abortConnection()
        two.behind.write(chunk(b"more"))
        self.assertEqual((each.ended, two.ended, two.got), ([False], [], b"twomore"))

    def test_lost(self) -> None:
        """If the connection is lost, its streams are incomplete and waiting requests fail."""
        reader, waits = self.reader(b"one"), Reader(self)
        self.server.transport.abortConnection()
        self.assertEqual(reader.ended, [False])
        self.failureResultOf(waits.asking, BadGateway)
        self.assertEqual((len(self.shared), self.clock.getDelayedCalls()), (0, []))

    def test_place_without_request(self) -> None:
        """A request on a connection that was lost in the meantime fails."""
        connecting = self.shared.endpoint("leaf", _Meets(self.backend)).connect(DOWNLOADS)
        self.backend.settle()
        stream: Any = self.successResultOf(connecting)
        self.server.transport.abortConnection()
        self.failureResultOf(stream.ask(HEAD), BadGateway)


class LimitTests(ConnectionCase):
    """Number of streams on a connection."""

    def test_most(self) -> None:
        """A connection has at most 100 streams, even if the server permits more."""
        self.backend.fronts.streams = 1000
        for _ in range(MAX_STREAMS + 1):
            self.reader()
        self.assertEqual([len(each.streams) for each in self.backend.fronts.made], [100, 1])

    def test_servers_limit(self) -> None:
        """The server's lower limit applies; a stream that ends frees its place."""
        self.backend.fronts.streams = 2
        first, *_ = [self.reader() for _ in range(3)]
        self.assertEqual([len(each.streams) for each in self.backend.fronts.made], [2, 1])
        first.download.abort()
        self.reader()
        self.reader()
        self.assertEqual([len(each.streams) for each in self.backend.fronts.made], [2, 2])

    def test_lowered(self) -> None:
        """A lowered limit keeps existing streams, and allows no new ones."""
        reader = self.reader()
        self.server.http.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: 1})
        self.server.flush()
        self.reader()
        self.assertEqual(len(self.backend.made), 2)
        reader.behind.write(chunk(b"still"))
        self.assertEqual(reader.got, b"still")

    def test_none(self) -> None:
        """A server that allows no streams is refused, and not tried again and again."""
        self.backend.fronts.streams = 0
        connecting = self.shared.endpoint("leaf", _Meets(self.backend)).connect(DOWNLOADS)
        self.backend.settle()
        self.assertIn("takes no requests", str(self.failureResultOf(connecting).value))
        self.assertEqual((len(self.backend.made), len(self.shared)), (1, 0))


class EndTests(ConnectionCase):
    """Ends of a connection."""

    def test_idle(self) -> None:
        """An idle connection is closed after a while and leaves nothing behind."""
        self.reader().download.abort()
        self.clock.advance(IDLE_SECONDS - 1)
        self.reader().download.abort()
        self.clock.advance(IDLE_SECONDS - 1)
        self.assertFalse(self.server.lost)
        self.clock.advance(1)
        self.assertTrue(self.server.lost)
        self.assertEqual((len(self.shared), self.clock.getDelayedCalls()), (0, []))

    def test_closed(self) -> None:
        """On close, idle connections end at once, others behind their last stream."""
        reader = self.reader()
        self.shared.close()
        reader.behind.write(chunk(b"last words"))
        self.assertEqual(reader.got, b"last words")
        reader.behind.write(b"0\r\n\r\n")
        self.assertEqual(reader.ended, [True])
        self.assertTrue(self.server.lost)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_goaway(self) -> None:
        """After GOAWAY the server completes its streams; new requests use another connection."""
        each, two = self.reader(), self.reader()
        first = self.server
        self.goaway(3)
        other = self.reader(b"other")
        self.assertEqual((len(self.backend.made), other.got), (2, b"other"))
        each.behind.write(chunk(b"still"))
        two.behind.write(chunk(b"more") + b"0\r\n\r\n")
        self.assertEqual((each.got, two.got, two.ended), (b"still", b"more", [True]))
        self.clock.advance(LOOK_SECONDS)
        self.clock.advance(LOOK_SECONDS)
        self.assertFalse(first.lost)
        each.download.abort()
        self.assertTrue(first.lost)
        self.assertFalse(self.server.lost)

    def test_goaway_overlooked(self) -> None:
        """Streams that GOAWAY excludes fail."""
        seen, unseen = self.reader(), Reader(self)
        self.goaway(1)
        self.failureResultOf(unseen.asking, BadGateway)
        seen.behind.write(chunk(b"still"))
        self.assertEqual((seen.got, seen.ended), (b"still", []))

    def test_vanished(self) -> None:
        """A server that does not even answer PING is gone within a minute, and all hear it."""
        reader, waits = self.reader(), Reader(self)
        self.server.transport.holds = True  # nothing that it says arrives any more
        begun = self.clock.seconds()
        while not reader.ended:
            self.clock.advance(1)
        self.assertLess(self.clock.seconds() - begun, 60)
        self.assertEqual(reader.ended, [False])
        self.failureResultOf(waits.asking, BadGateway)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_silent(self) -> None:
        """A silent server that answers PING is alive."""
        reader = self.reader()
        for _ in range(4000):
            self.clock.advance(LOOK_SECONDS)
        self.assertEqual(reader.ended, [])
        pings = [each for each in self.server.told if isinstance(each, PingReceived)]
        self.assertGreater(len(pings), 1000)


class HostileTests(ConnectionCase):
    """A server that does not keep to the rules."""

    @given(st.one_of(st.binary(min_size=1, max_size=200), FRAMES))
    def test_nonsense(self, nonsense: bytes) -> None:
        """No input of the server raises an error or counts as the end of a text."""
        self.setUp()
        reader = self.reader(b"one")
        self.say(nonsense)
        self.assertNotIn(True, reader.ended)
        reader.download.abort()
        self.shared.close()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_long_frame(self) -> None:
        """A frame that is longer than allowed ends the connection by its head."""
        reader = self.reader()
        self.say((1 << 20).to_bytes(3, "big") + bytes(6))
        self.assertEqual(reader.ended, [False])
        self.assertTrue(self.server.lost)

    def test_beyond_the_window(self) -> None:
        """A server that exceeds its window is disconnected."""
        reader = self.reader()
        reader.download.pause()
        head = (1 << 14).to_bytes(3, "big") + b"\0\0" + (1).to_bytes(4, "big")
        for _ in range(5):
            if not self.server.lost:
                self.say(head + bytes(1 << 14))
        self.assertTrue(self.server.lost)
        reader.download.resume()
        self.assertEqual(reader.ended, [False])

    def test_unread_answers(self) -> None:
        """A server that sends PINGs but does not read is paused."""
        self.reader()
        ours = self.backend.made[0]
        ours.producer.pauseProducing()
        self.assertEqual(ours.producerState, "paused")
        ours.producer.resumeProducing()
        self.assertEqual(ours.producerState, "producing")

    def test_never_ready(self) -> None:
        """A server that chose HTTP/2 but sends nothing is disconnected."""
        connecting = self.shared.endpoint("leaf", _Meets(self.backend)).connect(DOWNLOADS)
        self.clock.advance(3)
        self.failureResultOf(connecting)
        self.assertEqual((len(self.shared), self.clock.getDelayedCalls()), (0, []))

    def test_end_in_the_same_read(self) -> None:
        """A reader may react to a piece even if the end arrived with it."""
        for leaves in (False, True):
            self.setUp()
            other, reader = self.reader(b"other"), self.reader()
            if leaves:
                leave = reader.download.abort
                reader.download.deliver(lambda _, leave=leave: leave(), reader.ended.append)  # type: ignore[misc]
            self.server.transport.holds = True
            reader.behind.write(chunk(bytes(40_000)) + b"0\r\n\r\n")
            self.server.transport.holds = False
            self.server.transport.deliver()
            self.assertEqual(reader.ended, [] if leaves else [True])
            other.behind.write(chunk(b"more"))
            self.assertEqual(other.got, b"othermore")

    def test_reset_of_others(self) -> None:
        """A RST_STREAM of a stream that is over does nothing."""
        reader = self.reader()
        reader.behind.write(chunk(b"all") + b"0\r\n\r\n")
        other = self.reader(b"other")
        self.say(b"\0\0\4\3\0" + (1).to_bytes(4, "big") + int(ErrorCodes.CANCEL).to_bytes(4, "big"))
        self.assertEqual((reader.ended, other.ended), ([True], []))
