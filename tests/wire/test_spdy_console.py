"""Tests for :mod:`twisted_exec.wire.spdy_console`."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.wire.test_spdy_frames import VECTORS, captured, read_on
from twisted_exec.wire import spdy
from twisted_exec.wire.channel import (
    SPDY_PROTOCOLS,
    V1,
    V2,
    V3,
    V4,
    Channel,
    StreamClosed,
    StreamData,
)
from twisted_exec.wire.endings import COMPLETED, LINE_LOST, Ending, encode_ending
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.spdy import (
    Data,
    Frame,
    FrameReader,
    FrameWriter,
    GoAway,
    Ping,
    RstStream,
    SynReply,
    SynStream,
)
from twisted_exec.wire.spdy_connection import PingReceived, PongReceived
from twisted_exec.wire.spdy_console import (
    MAX_BUFFERED_BYTES,
    ClientStreams,
    PeerDone,
    Ready,
    ServerStreams,
)

SUCCESS = b'{"metadata":{},"status":"Success"}'
STDIN, STDOUT, STDERR = Channel.STDIN, Channel.STDOUT, Channel.STDERR
ERROR, RESIZE = Channel.ERROR, Channel.RESIZE


def data(stream_id: int, payload: bytes, fin: bool = False) -> bytes:
    return b"".join(spdy.data(stream_id, payload, fin))


def happened(streams: Any, received: bytes = b"") -> list[Any]:
    """Feed bytes and return the events, with adjacent data joined."""
    streams.feed(received)
    found = []
    while (event := streams.next_event()) is not None:
        found.append(event)
    return joined(found)


def joined(events: list[Any]) -> list[Any]:
    """Join adjacent data."""
    found: list[Any] = []
    for event in events:
        last = found[-1] if found else None
        if (
            isinstance(event, StreamData)
            and isinstance(last, StreamData)
            and event.channel is last.channel
        ):
            found[-1] = StreamData(event.channel, last.data + event.data)
        else:
            found.append(event)
    return found


class ServerTestCase(SynchronousTestCase):
    """A server's streams, with a client that writes frames."""

    protocol = V4

    def setUp(self) -> None:
        self.start()

    def start(self, expected: frozenset[Channel] | None = None, protocol: str = V4) -> None:
        self.server = ServerStreams(protocol, expected)
        self.server.start()
        self.client, self.reader = FrameWriter(), FrameReader()
        self.next_id = 1

    def open(self, *names: str) -> list[Any]:
        """Open streams one by one, check the replies and return the other events."""
        found = []
        for name in names:
            headers = [(b"streamType", name.encode())]
            found += happened(self.server, self.client.syn_stream(self.next_id, headers))
            answers = [one for one in self.sent() if isinstance(one, SynReply)]
            self.assertEqual(answers, [SynReply(self.next_id)], name)
            self.next_id += 2
        return found

    def sent(self) -> list[Frame]:
        return read_on(self.reader, self.server.data_to_send())


class BeginningTests(ServerTestCase):
    """Conditions for the session's start."""

    def test_enough(self) -> None:
        """Without expected channels, error and stdout suffice; other streams may join later."""
        self.assertEqual(self.open("error", "stdin"), [])
        self.assertFalse(self.server.ready)
        self.assertEqual(self.open("stdout"), [Ready()])
        self.assertEqual(self.open("resize"), [])
        found = happened(self.server, data(3, b"ls") + data(7, b"{"))
        self.assertEqual(found, [StreamData(STDIN, b"ls"), StreamData(RESIZE, b"{")])

    def test_rest(self) -> None:
        """``rest_bytes`` is the length of the data frame's missing part."""
        server = ServerStreams("v4.channel.k8s.io")
        server.feed(b"\0\0\0\1\0\0\0\4ab")
        server.next_event()
        self.assertEqual(server.rest_bytes, 2)

    def test_asked_for(self) -> None:
        """With expected channels, the session starts once they are all open."""
        self.start(frozenset({ERROR, STDIN, STDOUT, STDERR}))
        self.assertEqual(self.open("error", "stdout", "stdin"), [])
        self.assertEqual(self.open("stderr"), [Ready()])
        self.start(frozenset({ERROR, STDIN}))
        self.assertEqual(self.open("error", "stdin"), [Ready()])

    def test_held(self) -> None:
        """Data that arrives before the start is delivered after it."""
        self.open("error", "stdin", "resize")
        self.assertEqual(happened(self.server, data(5, b"{}") + data(3, b"ls", True)), [])
        self.assertEqual(
            self.open("stdout"),
            [Ready(), StreamData(RESIZE, b"{}"), StreamData(STDIN, b"ls"), StreamClosed(STDIN)],
        )

    def test_held_too_much(self) -> None:
        """Once the early data reaches the limit, the session starts with the open streams."""
        self.open("stdin")
        much = bytes(MAX_BUFFERED_BYTES - 1000)
        self.assertEqual(happened(self.server, data(1, much)), [])
        found = happened(self.server, data(1, bytes(1000)))
        self.assertEqual(found, [Ready(), StreamData(STDIN, bytes(MAX_BUFFERED_BYTES))])

    def test_held_pieces(self) -> None:
        """Small early frames count for more than their bytes, because they cost more memory."""
        self.open("stdin")
        count = 0
        while not happened(self.server, data(1, b"x")):
            count += 1
        self.assertLess(count, 300)

    def test_settled(self) -> None:
        """``settle`` starts the session without the missing streams."""
        self.open("error", "stdin")
        self.assertTrue(self.server.settle())
        self.assertEqual(happened(self.server), [Ready()])
        self.assertTrue(self.server.settle())
        self.assertEqual(happened(self.server), [])
        self.server.send(STDOUT, b"nobody")
        self.assertEqual(self.sent(), [])

    def test_nothing_came(self) -> None:
        """``settle`` returns false without a stream of a known type."""
        self.assertFalse(self.server.settle())
        self.open("future")
        self.assertFalse(self.server.settle())

    def test_twice(self) -> None:
        """A second stream for the same channel is reset."""
        self.open("error", "stdin")
        happened(self.server, self.client.syn_stream(5, [(b"streamtype", b"stdin")]))
        self.assertEqual(self.sent(), [RstStream(5, 5)])
        happened(self.server, data(3, b"", True))
        happened(self.server, self.client.syn_stream(7, [(b"streamtype", b"stdin")]))
        self.assertEqual(self.sent(), [RstStream(7, 5)])

    def test_unknown_types(self) -> None:
        """Streams of unknown type are accepted, and their data is ignored."""
        for headers in ([], [(b"other", b"stdin")], [(b"streamtype", b"future")]):
            self.start()
            happened(self.server, self.client.syn_stream(1, headers))
            self.assertEqual(self.sent(), [SynReply(1)])
            self.assertEqual(happened(self.server, data(1, b"x", True)), [])


class TalkTests(ServerTestCase):
    """Tests of a started session."""

    def setUp(self) -> None:
        super().setUp()
        self.open("error", "stdin", "stdout", "stderr", "resize")

    def test_output(self) -> None:
        """Output is sent on its stream."""
        self.server.send(STDOUT, b"hello")
        self.server.send(STDERR, b"oh")
        self.assertEqual(self.sent(), [Data(5, b"hello"), Data(7, b"oh")])

    def test_output_nobody_wants(self) -> None:
        """
        After the client resets an output stream, its output is dropped and the session goes on.
        """
        self.assertEqual(happened(self.server, spdy.rst_stream(5, 5)), [])
        self.server.send(STDOUT, b"hello")
        self.assertEqual(self.sent(), [])
        self.server.finish(encode_ending(Ending(COMPLETED), self.server.protocol))
        self.assertEqual(
            self.sent(),
            [Data(1, SUCCESS, True), RstStream(3, 5), Data(7, b"", True), RstStream(9, 5)],
        )

    def test_input_reset(self) -> None:
        """A reset of stdin counts as its end."""
        found = happened(self.server, data(3, b"x") + spdy.rst_stream(3, 5))
        self.assertEqual(found, [StreamData(STDIN, b"x"), StreamClosed(STDIN)])

    def test_ends_of_others(self) -> None:
        """A client's end of a server-to-client stream is ignored."""
        self.assertEqual(happened(self.server, data(1, b"", True) + data(5, b"", True)), [])

    def test_pings(self) -> None:
        """Pings work in both directions."""
        self.server.ping()
        self.assertEqual(self.sent(), [Ping(2)])
        found = happened(self.server, spdy.ping(2) + spdy.ping(1))
        self.assertEqual(found, [PongReceived(2), PingReceived(1)])
        self.server.answer(PingReceived(1))
        self.assertEqual(self.sent(), [Ping(1)])

    def test_client_goes(self) -> None:
        """After the client's GOAWAY and our own, nothing more is sent."""
        self.assertEqual(happened(self.server, spdy.go_away(0)), [PeerDone()])
        self.server.leave()
        self.server.leave()
        self.server.ping()
        self.server.answer(PingReceived(1))
        self.server.send(STDOUT, b"late")
        self.server.end(STDOUT)
        self.assertEqual(self.sent(), [GoAway(9, 0)])

    def test_broken(self) -> None:
        """After a protocol error, GOAWAY has status 1."""
        with self.assertRaises(RemoteProtocolError):
            happened(self.server, b"\xff" * 8)
        self.server.go_away(broken=True)
        self.assertEqual(self.sent(), [GoAway(9, 1)])


class EndTests(ServerTestCase):
    """The end of a session."""

    def test_order(self) -> None:
        """Output, status and stream ends are sent in this order; GOAWAY follows later."""
        self.open("error", "stdin", "stdout", "resize")
        self.server.send(STDOUT, b"bye")
        self.server.finish(encode_ending(Ending(COMPLETED), self.server.protocol))
        self.assertEqual(
            self.sent(),
            [
                Data(5, b"bye"),
                Data(1, SUCCESS, True),
                RstStream(3, 5),
                Data(5, b"", True),
                RstStream(7, 5),
            ],
        )
        self.server.send(STDOUT, b"late")
        self.assertEqual(happened(self.server, data(3, b"late", True) + data(7, b"{}")), [])
        self.assertEqual(self.sent(), [])
        self.server.go_away()
        self.assertEqual(self.sent(), [GoAway(7, 0)])

    def test_status(self) -> None:
        """Version 4 sends the ending as a Status, earlier versions as text or not at all."""
        code = Ending(COMPLETED, exit_code=7)
        lost = Ending(LINE_LOST, "the line is lost")
        for protocol in SPDY_PROTOCOLS:
            told = []
            for ending in (Ending(COMPLETED), code, lost):
                self.start(protocol=protocol)
                self.open("error", "stdout")
                self.server.finish(encode_ending(ending, self.server.protocol))
                status, *ends = self.sent()
                assert isinstance(status, Data)
                self.assertEqual((status.stream_id, status.fin), (1, True))
                # A version 1 client takes the end of its output as success.
                failed = protocol == V1 and not ending.is_success
                self.assertEqual(ends, [] if failed else [Data(3, b"", True)])
                told.append(status.data)
            if protocol == V4:
                self.assertEqual(told[0], SUCCESS)
                self.assertEqual(json.loads(told[1])["reason"], "NonZeroExitCode")
                self.assertEqual(json.loads(told[2])["message"], "the line is lost")
            else:
                self.assertEqual((told[0], told[2]), (b"", b"the line is lost"))
                self.assertIn(b"exit code 7", told[1])

    def test_version_1_without_errors(self) -> None:
        """Without an error stream, a version 1 client still gets the end of its output."""
        self.start(protocol=V1)
        self.open("stdin", "stdout")
        self.server.settle()
        self.server.finish(encode_ending(Ending(LINE_LOST, "gone"), self.server.protocol))
        self.assertEqual(self.sent(), [RstStream(1, 5), Data(3, b"", True)])

    def test_late_streams(self) -> None:
        """A stream opened after the ending is accepted and ended at once."""
        self.open("error")
        self.server.finish(encode_ending(Ending(COMPLETED), self.server.protocol))
        self.assertEqual(self.sent(), [Data(1, SUCCESS, True)])
        for name, end in (
            ("stdin", RstStream(3, 5)),
            ("stdout", Data(5, b"", True)),
            ("resize", RstStream(7, 5)),
        ):
            headers = [(b"streamtype", name.encode())]
            found = happened(self.server, self.client.syn_stream(self.next_id, headers))
            self.assertEqual((found, self.sent()), ([], [SynReply(self.next_id), end]))
            self.next_id += 2

    def test_ended_before_the_error_stream(self) -> None:
        """The status is held until the error stream opens."""
        self.server.finish(encode_ending(Ending(COMPLETED), self.server.protocol))
        self.assertEqual(self.sent(), [])
        happened(self.server, self.client.syn_stream(1, [(b"streamtype", b"error")]))
        self.assertEqual(self.sent(), [SynReply(1), Data(1, SUCCESS, True)])


class CaptureTests(SynchronousTestCase):
    """Captured sessions of real kubectls."""

    def test_every_split(self) -> None:
        """Captured input gives the same events on any split."""
        for session in VECTORS["sessions"]:
            name = session["capture"]
            if "exec" not in name:
                continue
            sent = captured(name, "C")
            whole = happened(ServerStreams(V4), sent)
            self.assertEqual(whole[0], Ready())
            self.assertEqual("stdin" in name or "tty" in name, StreamClosed(STDIN) in whole)
            self.assertEqual("tty" in name, any(getattr(e, "channel", 0) is RESIZE for e in whole))
            for split in range(1, 48):
                server, found = ServerStreams(V4), []
                for start in range(0, len(sent), split):
                    found += happened(server, sent[start : start + split])
                self.assertEqual(by_channel(found), by_channel(whole), (name, split))


def by_channel(found: list[Any]) -> Any:
    """Return the data of each channel, and the other events in order."""
    channels: dict[Channel, bytes] = {}
    for event in found:
        if isinstance(event, StreamData):
            channels[event.channel] = channels.get(event.channel, b"") + event.data
    return channels, [event for event in found if not isinstance(event, StreamData)]


class ClientTests(SynchronousTestCase):
    """Tests for :class:`ClientStreams`."""

    def start(self, protocol: str = V4, **more: Any) -> None:
        self.client = ClientStreams(protocol, **more)
        self.server, self.reader = FrameWriter(), FrameReader()
        self.client.start()

    def setUp(self) -> None:
        self.start()

    def sent(self) -> list[Frame]:
        return read_on(self.reader, self.client.data_to_send())

    def reply(self, *ids: int) -> list[Any]:
        return [
            one
            for stream_id in ids
            for one in happened(self.client, self.server.syn_reply(stream_id))
        ]

    def up(self) -> None:
        self.assertEqual(self.reply(1, 3, 5, 7), [Ready()])
        self.sent()

    def test_chosen(self) -> None:
        """Only the given channels are opened, in kubectl's order; RESIZE needs version 3."""
        for protocol, channels, types in (
            (V4, {STDERR, STDOUT, ERROR}, [b"error", b"stdout", b"stderr"]),
            (V4, {RESIZE, STDIN, ERROR}, [b"error", b"stdin", b"resize"]),
            (V2, {RESIZE, STDIN, ERROR}, [b"error", b"stdin"]),
        ):
            self.start(protocol, channels=frozenset(channels))
            opened = []
            for number in range(len(types)):
                (stream,) = self.sent()
                assert isinstance(stream, SynStream)
                opened.append(stream.headers[0][1])
                told = self.reply(2 * number + 1)
            self.assertEqual((opened, told), (types, [Ready()]))
            self.assertEqual(self.sent(), [])

    def test_errors_apart(self) -> None:
        """With a separate stderr, the session ends when both outputs and the status have ended."""
        self.start(channels=frozenset({ERROR, STDOUT, STDERR}))
        self.reply(1, 3, 5)
        data = b"".join(spdy.data(5, b"oh", True)) + b"".join(spdy.data(3, b"", True))
        told = happened(self.client, data)
        self.assertEqual(told, [StreamData(STDERR, b"oh"), *map(StreamClosed, (STDERR, STDOUT))])
        told = happened(self.client, b"".join(spdy.data(1, SUCCESS, True)))
        self.assertEqual(told, [StreamData(ERROR, SUCCESS), StreamClosed(ERROR), PeerDone()])

    def test_one_at_a_time(self) -> None:
        """Streams are opened in kubectl's order, each after the reply to the previous one."""
        for protocol, names in (
            (V4, ["error", "stdin", "stdout", "resize"]),
            (V3, ["error", "stdin", "stdout", "resize"]),
            (V2, ["error", "stdin", "stdout"]),
            (V1, ["error", "stdin", "stdout"]),
        ):
            self.start(protocol)
            for number, name in enumerate(names):
                stream_id = 2 * number + 1
                expected = SynStream(stream_id, ((b"streamtype", name.encode()),))
                self.assertEqual(self.sent(), [expected])
                self.assertFalse(self.client.settle())
                found = self.reply(stream_id)
            self.assertEqual(found, [Ready()])
            self.assertTrue(self.client.settle())
            self.assertEqual(self.sent(), [])

    def test_talk(self) -> None:
        """Input, sizes and the end of input are sent; output is received."""
        self.up()
        self.client.send(STDIN, b"ls")
        self.client.send(RESIZE, b"{}")
        self.client.end(STDIN)
        self.client.end(STDIN)
        self.client.send(STDIN, b"late")
        expected = [Data(3, b"ls"), Data(7, b"{}"), Data(3, b"", True)]
        self.assertEqual(self.sent(), expected)
        self.assertEqual(happened(self.client, data(5, b"out")), [StreamData(STDOUT, b"out")])

    def test_output_before_the_last_stream(self) -> None:
        """Output that arrives before the last reply is delivered once all streams are open."""
        self.reply(1, 3, 5)
        self.assertEqual(happened(self.client, data(5, b"login: ")), [])
        self.assertEqual(self.reply(7), [Ready(), StreamData(STDOUT, b"login: ")])

    def test_too_much_too_soon(self) -> None:
        """Too much output before the last reply raises RemoteProtocolError."""
        self.reply(1, 3, 5)
        with self.assertRaises(RemoteProtocolError):
            happened(self.client, data(5, bytes(MAX_BUFFERED_BYTES + 1)))

    def test_no_sizes(self) -> None:
        """A server may refuse the resize stream."""
        self.reply(1, 3, 5)
        self.sent()
        self.assertEqual(happened(self.client, spdy.rst_stream(7, 3)), [Ready()])
        self.client.send(RESIZE, b"{}")
        self.assertEqual(self.sent(), [])

    def test_ended_before_the_last_stream(self) -> None:
        """Resets of accepted streams by a server that has already ended are no refusal."""
        self.reply(1, 3)
        ended = spdy.rst_stream(3, 5) + data(1, SUCCESS, True)
        self.assertEqual(happened(self.client, ended), [])
        self.assertEqual(self.reply(5), [])
        self.assertEqual(happened(self.client, data(5, b"", True))[0], Ready())

    def test_refused(self) -> None:
        """A refusal of any other stream raises RemoteProtocolError."""
        for count, name in enumerate(("error", "stdin", "stdout")):
            self.start()
            self.reply(*range(1, 2 * count, 2))
            with self.assertRaises(RemoteProtocolError) as caught:
                happened(self.client, spdy.rst_stream(2 * count + 1, 3))
            self.assertEqual(str(caught.exception), f"the server refused the stream {name}")

    def test_servers_end(self) -> None:
        """The session ends when both status and output have ended."""
        self.up()
        found = happened(self.client, data(5, b"bye", True) + data(1, SUCCESS, True))
        self.assertEqual(
            found,
            [
                StreamData(STDOUT, b"bye"),
                StreamClosed(STDOUT),
                StreamData(ERROR, SUCCESS),
                StreamClosed(ERROR),
                PeerDone(),
            ],
        )
        self.client.leave()
        self.client.leave()
        self.assertEqual(
            self.sent(), [*(RstStream(number, 5) for number in (1, 3, 5, 7)), GoAway(0, 0)]
        )

    def test_over_before_it_began(self) -> None:
        """A session may end before its last stream is open."""
        self.reply(1, 3, 5)
        found = happened(self.client, data(1, SUCCESS, True) + data(5, b"", True))
        self.assertEqual(found[0], Ready())
        self.assertEqual(found[-1], PeerDone())
        self.assertIn(StreamData(ERROR, SUCCESS), found)

    def test_resets(self) -> None:
        """If a server resets all streams, V4 lacks its status, but V1 and V2 count it as empty."""
        for protocol, told in ((V4, False), (V2, True), (V1, True)):
            self.start(protocol)
            self.reply(*((1, 3, 5, 7) if protocol == V4 else (1, 3, 5)))
            found = happened(self.client, spdy.rst_stream(1, 5) + spdy.rst_stream(5, 5))
            self.assertEqual(StreamClosed(ERROR) in found, told)
            self.assertEqual(found[-1], PeerDone())

    def test_input_refused_later(self) -> None:
        """If the server resets stdin, the session goes on without input."""
        self.up()
        self.assertEqual(happened(self.client, spdy.rst_stream(3, 5)), [StreamClosed(STDIN)])
        self.client.send(STDIN, b"x")
        self.client.end(STDIN)
        self.assertEqual(self.sent(), [])

    def test_servers_word(self) -> None:
        """A GOAWAY of the server ends the session, even before its start."""
        self.assertEqual(happened(self.client, spdy.go_away(0)), [PeerDone()])
        self.start()
        self.up()
        self.assertEqual(happened(self.client, spdy.go_away(7)), [PeerDone()])

    def test_servers_streams(self) -> None:
        """A stream opened by the server is reset."""
        self.up()
        self.assertEqual(happened(self.client, self.server.syn_stream(2, [])), [])
        self.assertEqual(self.sent(), [RstStream(2, 3)])


class WholeTests(SynchronousTestCase):
    """Our client and server together."""

    @settings(max_examples=60, deadline=None)
    @given(
        st.sampled_from(SPDY_PROTOCOLS),
        st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=50)), max_size=8),
        st.integers(1, 60),
    )
    def test_conversation(self, protocol: str, said: list[tuple[bool, bytes]], split: int) -> None:
        """Input, output and ending arrive on any split."""
        client, server = ClientStreams(protocol), ServerStreams(protocol)
        heard: dict[Any, list[Any]] = {client: [], server: []}

        def pump() -> None:
            moved = True
            while moved:
                moved = False
                for one, other in ((client, server), (server, client)):
                    sent = one.data_to_send()
                    for start in range(0, len(sent), split):
                        heard[other] += happened(other, sent[start : start + split])
                        moved = True

        client.start()
        pump()
        for typed, text in said:
            if typed:
                client.send(STDIN, text)
            else:
                server.send(STDOUT, text)
        client.end(STDIN)
        pump()
        server.finish(encode_ending(Ending(COMPLETED), protocol))
        pump()
        client.leave()
        pump()
        typed_text = b"".join(text for typed, text in said if typed)
        printed = b"".join(text for typed, text in said if not typed)
        to_server, told_server = by_channel(heard[server])
        to_client, told_client = by_channel(heard[client])
        self.assertEqual(to_server.get(STDIN, b""), typed_text)
        self.assertEqual(told_server, [Ready(), StreamClosed(STDIN), PeerDone()])
        self.assertEqual(to_client.get(STDOUT, b""), printed)
        self.assertEqual(to_client.get(ERROR, b""), SUCCESS if protocol == V4 else b"")
        self.assertEqual((told_client[0], told_client[-1]), (Ready(), PeerDone()))
        self.assertIn(StreamClosed(ERROR), told_client)
