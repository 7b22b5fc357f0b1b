"""Tests for :mod:`twisted_exec.wire.spdy_connection`."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.wire.test_spdy_frames import VECTORS, captured, control, read
from twisted_exec.wire import spdy
from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError
from twisted_exec.wire.spdy import (
    CANCEL,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    FrameWriter,
    GoAway,
    Ping,
    RstStream,
    SynReply,
    SynStream,
)
from twisted_exec.wire.spdy_connection import (
    DataReceived,
    Event,
    GoAwayReceived,
    PingReceived,
    PongReceived,
    SPDYConnection,
    StreamAccepted,
    StreamEnded,
    StreamOpened,
    StreamReset,
)

ERROR = ((b"streamtype", b"error"),)


def events(connection: SPDYConnection, data: bytes = b"", *, accept: bool = True) -> list[Event]:
    """Feed bytes and return the events; accept the peer's streams."""
    connection.feed(data)
    found = []
    while (event := connection.next_event()) is not None:
        found.append(event)
        if accept and isinstance(event, StreamOpened):
            connection.accept(event.stream_id)
    return found


def block_of(client: SPDYConnection, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return a block of headers, compressed after those that the client has sent."""
    return client._headers.write(headers)  # It compresses with the state of all earlier blocks.


class ServerTestCase(SynchronousTestCase):
    """A server's connection, with a client that writes frames."""

    def setUp(self) -> None:
        self.server = SPDYConnection(client=False, max_streams=3)
        self.client = FrameWriter()

    def opened(self, *ids: int) -> None:
        """Open and accept streams."""
        for stream_id in ids:
            events(self.server, self.client.syn_stream(stream_id, ERROR))
        self.server.data_to_send()


class StreamTests(ServerTestCase):
    """Life cycle of a stream on the server."""

    def test_life(self) -> None:
        """A stream is opened, accepted, used in both directions, and ended in each."""
        (opened,) = events(self.server, self.client.syn_stream(1, ERROR))
        self.assertEqual(opened, StreamOpened(1, ERROR))
        self.assertEqual(read(self.server.data_to_send()), [SynReply(1)])
        self.assertEqual(events(self.server, b"\0\0\0\1\0\0\0\2hi"), [DataReceived(1, b"hi")])
        self.server.send(1, b"ho")
        self.assertEqual(self.server.data_to_send(), b"\0\0\0\1\0\0\0\2ho")
        self.assertEqual(events(self.server, b"\0\0\0\1\1\0\0\0"), [StreamEnded(1)])
        self.assertTrue(self.server.can_send(1))
        self.server.send(1, b"", fin=True)
        self.assertEqual(self.server.data_to_send(), b"\0\0\0\1\1\0\0\0")
        self.assertFalse(self.server.can_send(1))
        self.assertEqual(self.server.data_to_send(), b"")

    def test_ended_with_data(self) -> None:
        """FIN may come with the last data; data after it is ignored."""
        self.opened(1)
        data = b"\0\0\0\1\1\0\0\1x"
        self.assertEqual(events(self.server, data), [DataReceived(1, b"x"), StreamEnded(1)])
        self.assertEqual(events(self.server, data), [])

    def test_opened_and_ended(self) -> None:
        """A stream may be opened with FIN."""
        found = events(self.server, self.client.syn_stream(1, ERROR, True))
        self.assertEqual(found, [StreamOpened(1, ERROR), StreamEnded(1)])
        self.server.send(1, b"x", fin=True)

    def test_headers(self) -> None:
        """HEADERS frames are ignored, except for FIN."""
        self.opened(1)
        for flags, expected in ((0, []), (1, [StreamEnded(1)]), (1, [])):
            block = block_of(self.client, [(b"a", b"b")])
            data = control(8, b"\0\0\0\1" + block, flags)
            self.assertEqual(events(self.server, data), expected)

    def test_data_before_the_answer(self) -> None:
        """Data for a stream that is not accepted yet is discarded."""
        data = self.client.syn_stream(1, ERROR) + b"\0\0\0\1\0\0\0\2hi"
        self.assertEqual(events(self.server, data, accept=False), [StreamOpened(1, ERROR)])
        self.assertFalse(self.server.can_send(1))
        with self.assertRaises(LocalProtocolError):
            self.server.send(1, b"x")

    def test_unknown_streams(self) -> None:
        """Frames for unknown streams are discarded."""
        data = b"\0\0\0\7\1\0\0\2hi" + spdy.rst_stream(9, 5) + self.client.syn_reply(11)
        data += control(8, b"\0\0\0\x0d" + block_of(self.client, []), 1)
        self.assertEqual(events(self.server, data), [])
        self.assertEqual(self.server.data_to_send(), b"")

    def test_pieces_behind_a_reset(self) -> None:
        """The rest of a data frame is discarded after its stream was reset."""
        self.opened(1)
        self.assertEqual(events(self.server, b"\0\0\0\1\1\0\0\4a"), [DataReceived(1, b"a")])
        self.server.reset(1)
        self.assertEqual(events(self.server, b"bcd"), [])

    def test_reset_by_the_peer(self) -> None:
        """After the peer's reset the stream cannot send; earlier data was delivered."""
        self.opened(1)
        data = b"\0\0\0\1\0\0\0\2hi" + spdy.rst_stream(1, CANCEL)
        found = events(self.server, data)
        self.assertEqual(found, [DataReceived(1, b"hi"), StreamReset(1, CANCEL)])
        self.assertFalse(self.server.can_send(1))
        self.server.reset(1)
        self.assertEqual(self.server.data_to_send(), b"")

    def test_reset(self) -> None:
        """``reset`` sends RST_STREAM, unless our direction has already ended."""
        self.opened(1, 3)
        self.server.reset(1)
        self.server.send(3, b"", fin=True)
        self.server.reset(3)
        self.assertEqual(
            read(self.server.data_to_send()), [RstStream(1, CANCEL), spdy.Data(3, b"", True)]
        )
        self.assertEqual(events(self.server, b"\0\0\0\1\0\0\0\2hi\0\0\0\3\0\0\0\2ho"), [])

    def test_accept_what_is_not_there(self) -> None:
        """Only a pending stream can be accepted."""
        self.opened(1)
        for stream_id in (1, 3):
            with self.assertRaises(LocalProtocolError):
                self.server.accept(stream_id)


class RefusalTests(ServerTestCase):
    """Streams that are refused."""

    def refused(self, data: bytes, status: int) -> None:
        self.assertEqual(events(self.server, data), [])
        (answer,) = read(self.server.data_to_send())
        assert isinstance(answer, RstStream)
        self.assertEqual(answer.status, status)

    def test_ids(self) -> None:
        """A client's stream ids are odd and grow."""
        self.opened(5)
        for stream_id in (5, 3, 1, 2, 8):
            self.refused(self.client.syn_stream(stream_id, ERROR), PROTOCOL_ERROR)
        self.opened(7)
        self.assertTrue(self.server.can_send(7))

    def test_too_many(self) -> None:
        """Streams beyond ``max_streams`` are refused until another one ends."""
        self.opened(1, 3, 5)
        self.refused(self.client.syn_stream(7, ERROR), REFUSED_STREAM)
        events(self.server, spdy.rst_stream(3, CANCEL))
        self.opened(9)
        self.assertTrue(self.server.can_send(9))

    def test_one_way(self) -> None:
        """Unidirectional streams are refused."""
        payload = b"\0\0\0\1" + bytes(6) + block_of(self.client, ERROR)
        self.refused(control(1, payload, 2), REFUSED_STREAM)

    def test_compression_goes_on(self) -> None:
        """Headers of refused or unknown streams still update the compression state."""
        self.opened(1, 3, 5)
        data = self.client.syn_stream(7, [(b"streamtype", b"stdin"), (b"x", b"y" * 50)])
        data += self.client.syn_stream(1, [(b"a", b"stdin")]) + self.client.syn_reply(99, ERROR)
        events(self.server, data + spdy.rst_stream(1, CANCEL))
        last = ((b"streamtype", b"stdin"), (b"x", b"y" * 50), (b"a", b"stdin"))
        found = events(self.server, self.client.syn_stream(9, last))
        self.assertEqual(found, [StreamOpened(9, last)])

    def test_by_the_user(self) -> None:
        """The application may refuse a stream."""
        events(self.server, self.client.syn_stream(1, ERROR), accept=False)
        self.server.reset(1, REFUSED_STREAM)
        self.assertEqual(read(self.server.data_to_send()), [RstStream(1, REFUSED_STREAM)])


class ClientTests(SynchronousTestCase):
    """The client's connection."""

    def setUp(self) -> None:
        self.client = SPDYConnection(client=True, max_streams=0)
        self.server = FrameWriter()

    def test_open(self) -> None:
        """The client's streams have odd ids and can send after the reply."""
        self.assertEqual([self.client.open(ERROR), self.client.open(())], [1, 3])
        self.assertEqual(read(self.client.data_to_send()), [SynStream(1, ERROR), SynStream(3, ())])
        self.assertFalse(self.client.can_send(1))
        found = events(self.client, self.server.syn_reply(1) + self.server.syn_reply(1))
        self.assertEqual(found, [StreamAccepted(1)])
        self.client.send(1, b"x")

    def test_answered_and_ended(self) -> None:
        """The reply may end the stream."""
        self.client.open(ERROR)
        found = events(self.client, self.server.syn_reply(1, (), True))
        self.assertEqual(found, [StreamAccepted(1), StreamEnded(1)])

    def test_refused(self) -> None:
        """The server may refuse a stream."""
        self.client.open(ERROR)
        found = events(self.client, spdy.rst_stream(1, REFUSED_STREAM))
        self.assertEqual(found, [StreamReset(1, REFUSED_STREAM)])

    def test_servers_streams(self) -> None:
        """Streams opened by the server are refused."""
        for stream_id, status in ((2, REFUSED_STREAM), (3, PROTOCOL_ERROR)):
            self.assertEqual(events(self.client, self.server.syn_stream(stream_id, ERROR)), [])
            self.assertEqual(read(self.client.data_to_send()), [RstStream(stream_id, status)])

    def test_accept_our_own(self) -> None:
        """The client cannot accept its own stream."""
        self.client.open(ERROR)
        with self.assertRaises(LocalProtocolError):
            self.client.accept(1)


class PingTests(SynchronousTestCase):
    """Pings and their answers."""

    def test_parity(self) -> None:
        """A ping with the peer's parity is to be answered; one with ours is an answer."""
        for client, ours, theirs in ((True, 1, 2), (False, 2, 1)):
            connection = SPDYConnection(client=client, max_streams=0)
            connection.ping()
            connection.ping()
            self.assertEqual(read(connection.data_to_send()), [Ping(ours), Ping(ours + 2)])
            found = events(connection, spdy.ping(ours) + spdy.ping(theirs))
            self.assertEqual(found, [PongReceived(ours), PingReceived(theirs)])
            connection.answer(theirs)
            self.assertEqual(read(connection.data_to_send()), [Ping(theirs)])


class EndTests(ServerTestCase):
    """The end of a connection."""

    def test_go_away(self) -> None:
        """GOAWAY names the last good stream, is sent once, and nothing can be sent after it."""
        self.opened(1, 5)
        self.server.go_away()
        self.server.go_away()
        self.assertTrue(self.server.gone)
        self.assertEqual(read(self.server.data_to_send()), [GoAway(5, 0)])
        self.assertFalse(self.server.can_send(1))
        for send in (
            self.server.ping,
            lambda: self.server.answer(1),
            lambda: self.server.send(1, b"x"),
            lambda: self.server.reset(1),
            lambda: self.server.open(ERROR),
        ):
            with self.assertRaises(LocalProtocolError):
                send()
        self.assertEqual(self.server.data_to_send(), b"")

    def test_what_comes_behind_our_go_away(self) -> None:
        """Streams opened after our GOAWAY are ignored; the others go on."""
        self.opened(1)
        self.server.go_away()
        self.server.data_to_send()
        data = (
            self.client.syn_stream(3, ERROR) + b"\0\0\0\1\0\0\0\1x" + self.client.syn_stream(1, ())
        )
        self.assertEqual(events(self.server, data), [DataReceived(1, b"x")])
        self.assertEqual(self.server.data_to_send(), b"")

    def test_go_away_received(self) -> None:
        """Nothing is read after the peer's GOAWAY."""
        self.opened(1)
        data = spdy.go_away(0, 1) + b"\0\0\0\1\0\0\0\1x\xff\xff"
        self.assertEqual(events(self.server, data), [GoAwayReceived(1)])
        self.assertEqual(events(self.server, b"\xff" * 20), [])

    def test_violation(self) -> None:
        """A protocol error is raised once, after the events before it."""
        self.opened(1)
        self.server.feed(b"\0\0\0\1\0\0\0\1x" + control(5, b"") + b"\0\0\0\1\0\0\0\1y")
        self.assertEqual(self.server.next_event(), DataReceived(1, b"x"))
        with self.assertRaises(RemoteProtocolError):
            self.server.next_event()
        self.assertIsNone(self.server.next_event())
        self.assertEqual(events(self.server, b"more"), [])
        self.server.go_away(spdy.GOING_WRONG)
        self.assertEqual(read(self.server.data_to_send()), [GoAway(1, 1)])

    def test_ignored(self) -> None:
        """SETTINGS and WINDOW_UPDATE are ignored."""
        data = control(4, b"\0\0\0\1" + bytes(8)) + control(9, b"\0\0\0\1\0\0\0\1")
        self.assertEqual(events(self.server, data), [])
        self.assertEqual(self.server.data_to_send(), b"")


def joined(found: list[Event]) -> list[Event]:
    """Join adjacent data of a stream."""
    result: list[Event] = []
    for event in found:
        last = result[-1] if result else None
        if (
            isinstance(event, DataReceived)
            and isinstance(last, DataReceived)
            and last.stream_id == event.stream_id
        ):
            result[-1] = DataReceived(event.stream_id, last.data + event.data)
        else:
            result.append(event)
    return result


class CaptureTests(SynchronousTestCase):
    """Captured sessions of real kubectls, with our server."""

    def played(self, name: str, split: int) -> tuple[list[Event], bytes]:
        server = SPDYConnection(client=False, max_streams=5)
        data, found, sent = captured(name, "C"), [], b""
        for start in range(0, len(data), split):
            found += events(server, data[start : start + split])
            sent += server.data_to_send()
        return joined(found), sent

    def test_every_split(self) -> None:
        """Captured frames give the same events on any split, with kubectl's stream headers."""
        for session in VECTORS["sessions"]:
            name = session["capture"]
            whole, sent = self.played(name, 1 << 20)
            opened = [one for one in session["frames"] if one["type"] == "SYN_STREAM"]
            self.assertEqual(
                [dict(one.headers) for one in whole if isinstance(one, StreamOpened)],
                [{k.encode(): v.encode() for k, v in one["headers"].items()} for one in opened],
            )
            self.assertEqual(read(sent), [SynReply(one["sid"]) for one in opened])
            for split in range(1, 64):
                self.assertEqual(self.played(name, split), (whole, sent), (name, split))

    def test_input(self) -> None:
        """Captured input arrives, followed by its end."""
        found, _ = self.played("spdy-v4-exec-stdin-cat-kubectl1.27.json", 100)
        at = found.index(DataReceived(3, b"hello stdin\n"))
        self.assertEqual(found[at + 1], StreamEnded(3))


class AnythingTests(SynchronousTestCase):
    """Arbitrary input."""

    @settings(max_examples=300, deadline=None)
    @given(
        st.lists(
            st.one_of(
                st.binary(max_size=30),
                st.tuples(st.just("open"), st.integers(1, 12)),
                st.tuples(st.just("reply"), st.integers(1, 12)),
                st.builds(spdy.rst_stream, st.integers(1, 12), st.integers(1, 11)),
                st.builds(spdy.ping, st.integers(1, 9)),
                st.builds(
                    lambda one, data, fin: b"".join(spdy.data(one, data, fin)),
                    st.integers(1, 12),
                    st.binary(max_size=20),
                    st.booleans(),
                ),
            ),
            max_size=12,
        ),
        st.booleans(),
        st.integers(1, 40),
    )
    def test_anything(self, parts: list[object], client: bool, split: int) -> None:
        """Any bytes give the same events, or the same RemoteProtocolError, on any split."""
        writer, data = FrameWriter(), b""
        for part in parts:
            if isinstance(part, tuple):
                write = writer.syn_stream if part[0] == "open" else writer.syn_reply
                data += write(part[1], ERROR)  # type: ignore[operator]
            else:
                assert isinstance(part, bytes)
                data += part
        self.assertEqual(self.outcome(data, client, 1 << 20), self.outcome(data, client, split))

    def outcome(self, data: bytes, client: bool, split: int) -> object:
        connection = SPDYConnection(client=client, max_streams=2)
        if client:
            connection.open(ERROR)
        found: list[Event] = []
        blamed = ""
        for start in range(0, len(data), split):
            connection.feed(data[start : start + split])
            try:
                while (event := connection.next_event()) is not None:
                    found.append(event)
                    if isinstance(event, StreamOpened):
                        connection.accept(event.stream_id)
            except RemoteProtocolError as problem:
                blamed = str(problem)
        return joined(found), connection.data_to_send(), blamed


class WholeTests(SynchronousTestCase):
    """Our client and server together."""

    def test_conversation(self) -> None:
        """Each end reads the other's output."""
        client = SPDYConnection(client=True, max_streams=0)
        server = SPDYConnection(client=False, max_streams=5)
        stream_id = client.open([(b"streamType", b"stdin")])
        (opened,) = events(server, client.data_to_send())
        self.assertEqual(opened, StreamOpened(stream_id, ((b"streamtype", b"stdin"),)))
        self.assertEqual(events(client, server.data_to_send()), [StreamAccepted(stream_id)])
        data = bytes(range(256)) * 400
        client.send(stream_id, data, fin=True)
        found = joined(events(server, client.data_to_send()))
        self.assertEqual(found, [DataReceived(stream_id, data), StreamEnded(stream_id)])
        server.send(stream_id, data, fin=True)
        server.go_away()
        found = joined(events(client, server.data_to_send()))
        ended = [DataReceived(stream_id, data), StreamEnded(stream_id), GoAwayReceived(0)]
        self.assertEqual(found, ended)
