"""
Tests for :mod:`twisted_exec.streaming.remotecommand.spdy_carrier`: a console as a SPDY client has
it.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from zope.interface import implementer

from tests.audits import AuditList
from tests.contracts.attachment import ContractUser, EndOfInputContract
from tests.streaming.remotecommand.serving import ServeTestCase, Serving
from tests.streaming.spdy_peer import SPDYPeer, handshake
from tests.streaming.users import SPDYUser
from tests.wire.test_spdy_frames import CAPTURES
from twisted_exec.program.audit import Trail
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    IDLE,
    LINE_LOST,
    Ending,
    IAttachmentTransport,
    ITermsAttachment,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.carriers import StreamLimits
from twisted_exec.streaming.remotecommand.serving import serve
from twisted_exec.streaming.remotecommand.spdy_carrier import UNREAD_BYTES
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.subject import Subject
from twisted_exec.testing.console import EchoAttachment, RecordingAttachment
from twisted_exec.testing.network import MemoryServer
from twisted_exec.wire import spdy
from twisted_exec.wire.session_terms import Terms
from twisted_exec.wire.spdy import RstStream, SynReply

SUCCESS = b'{"metadata":{},"status":"Success"}'
TERMINAL = ("error", "stdin", "stdout", "resize")


class SPDYTestCase(ServeTestCase):
    """A console, served in memory to a client that speaks SPDY."""

    def begin(self, *names: str, **more: Any) -> SPDYPeer:
        """A session that is up."""
        peer = SPDYPeer(self.server, **more)
        peer.open(*(names or TERMINAL))
        self.assertEqual(self.attachment.attachments, 1)
        self.assertEqual(peer.said(), [])
        return peer


class HandshakeTests(SPDYTestCase):
    """From a request to a console."""

    def test_answer(self) -> None:
        """The 101 names the version that was chosen, and the session."""
        peer = SPDYPeer(self.server)
        lines = peer.head.split(b"\r\n")
        self.assertEqual(lines[0], b"HTTP/1.1 101 Switching Protocols")
        for line in (
            b"Connection: Upgrade",
            b"Upgrade: SPDY/3.1",
            b"X-Stream-Protocol-Version: v4.channel.k8s.io",
            b"Audit-Id: s-1",
        ):
            self.assertIn(line, lines)

    def test_versions(self) -> None:
        """The client's first supported version is chosen, from repeated lines and joined ones."""
        for offers, chosen in (
            ((b"v4.channel.k8s.io",), b"v4.channel.k8s.io"),
            ((b"v5.channel.k8s.io, v3.channel.k8s.io,v4.channel.k8s.io",), b"v3.channel.k8s.io"),
            ((b"x", b"v2.channel.k8s.io", b"v4.channel.k8s.io"), b"v2.channel.k8s.io"),
            ((b"channel.k8s.io",), b"channel.k8s.io"),
        ):
            peer = SPDYPeer(self.server, offers=offers)
            line = b"X-Stream-Protocol-Version: " + chosen
            self.assertIn(line, peer.head.split(b"\r\n"))

    def test_get(self) -> None:
        """Older clients ask with GET."""
        client = self.server.connect()
        client.send(handshake().replace(b"POST", b"GET"))
        self.assertIn(b"101 Switching", client.received())

    def refused(self, request: bytes) -> tuple[int, str, bytes]:
        client = self.server.connect()
        client.send(request)
        raw = client.received()
        head, _, body = raw.partition(b"\r\n\r\n")
        status = json.loads(body)
        self.assertEqual(status["kind"], "Status")
        self.assertEqual(self.attachment.attachments, 0)
        return status["code"], status["message"], head

    def test_nothing_in_common(self) -> None:
        """A client without a common protocol gets the supported ones, one per line."""
        code, message, head = self.refused(handshake(offers=(b"v5.channel.k8s.io", b"v9")))
        ours = ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"]
        self.assertEqual(code, 403)
        self.assertEqual(
            message,
            f"no stream protocol in common; this server speaks {', '.join(ours[:3])} and {ours[3]}",
        )
        accepted = [
            line.partition(b": ")[2].decode()
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"x-accepted-stream-protocol-versions:")
        ]
        self.assertEqual(accepted, ours)

    def test_nothing_offered(self) -> None:
        """A client that offers no protocol gets the supported ones too."""
        for offers in ((), (b"",), (b" , ",)):
            code, message, _ = self.refused(handshake(offers=offers))
            self.assertEqual(code, 400)
            self.assertIn("the request has no X-Stream-Protocol-Version header", message)

    def test_early(self) -> None:
        """Frames behind the request are read."""
        writer, client = spdy.FrameWriter(), self.server.connect()
        opening = b"".join(
            writer.syn_stream(2 * number + 1, [(b"streamtype", name.encode())])
            for number, name in enumerate(TERMINAL)
        )
        client.send(handshake() + opening[:20])
        client.send(opening[20:])
        self.assertEqual(self.attachment.attachments, 1)


@implementer(ITermsAttachment)
class TermsAttachment(RecordingAttachment):
    """Records what it learns about the terms of its session."""

    def __init__(self) -> None:
        super().__init__()
        self.terms: list[Terms] = []
        self.bytes_to_machine = 0

    def admit(self, terms: Terms) -> None:
        """Any session is admitted."""

    def attached(self, transport: IAttachmentTransport) -> None:
        super().attached(transport)
        self.terms.append(transport.terms)

    def terms_changed(self, terms: Terms) -> None:
        assert self.attachments, "called before attached"
        assert not self.detached_with, "called after detached"
        self.terms.append(terms)


class BeginningTests(SPDYTestCase):
    """Attaching the attachment."""

    def test_replies(self) -> None:
        """Every stream is answered at once; output and error streams suffice to begin."""
        peer = SPDYPeer(self.server)
        for number, name in enumerate(TERMINAL):
            self.assertEqual(self.attachment.attachments, 1 if number == 3 else 0)
            peer.open(name)
            self.assertEqual(peer.frames(), [SynReply(2 * number + 1)])
        transport = self.attachment.transport
        self.assertEqual((transport.session, transport.user), ("s-1", "ann"))
        self.assertTrue(IAttachmentTransport.providedBy(transport))
        self.assertEqual(self.clock.getDelayedCalls()[0].getTime(), 30)  # the pings'

    def test_asked_for(self) -> None:
        """If the query names the streams, the attachment begins when all are open."""
        peer = SPDYPeer(self.server, query=b"?stdin=true&stdout=true&stderr=true")
        peer.open("error", "stdout", "stderr")
        self.assertEqual(self.attachment.attachments, 0)
        peer.open("stdin")
        self.assertEqual(self.attachment.attachments, 1)

    def test_terms_before(self) -> None:
        """Terms that change before the streams are open are those that the attachment begins with."""
        self.attach(TermsAttachment())
        peer = SPDYPeer(self.server)
        assert self.serving.server is not None
        self.serving.server.hold_to(Terms(idle_seconds=20))
        peer.open("error", "stdin", "stdout")
        self.assertEqual(self.attachment.terms, [Terms(idle_seconds=20)])
        self.clock.advance(10)
        self.serving.server.hold_to(Terms(idle_seconds=5))
        self.assertEqual(self.attachment.detached_with, [IDLE])

    def test_early_input(self) -> None:
        """Input before the output stream is open is buffered, and delivered first."""
        peer = SPDYPeer(self.server)
        peer.open("error", "stdin", "resize")
        peer.send("resize", b'{"Width":80,"Height":24}')
        peer.send("stdin", b"ls\n")
        self.assertEqual(self.attachment.received, b"")
        peer.open("stdout")
        self.assertEqual(self.attachment.received, b"ls\n")
        self.assertEqual(self.attachment.sizes, [TerminalSize(80, 24)])

    def test_without_output(self) -> None:
        """A client that opens no output stream is attached after 30 s."""
        peer = SPDYPeer(self.server)
        peer.open("error", "stdin")
        peer.send("stdin", b"reboot\n")
        self.clock.advance(29)
        self.assertEqual(self.attachment.attachments, 0)
        self.clock.advance(1)
        self.assertEqual((self.attachment.attachments, self.attachment.received), (1, b"reboot\n"))
        self.attachment.transport.write(b"for nobody")
        self.attachment.transport.end(Ending(COMPLETED))
        self.assertEqual(peer.said(), [("error", SUCCESS), "end error", "reset stdin"])

    def test_output_only(self) -> None:
        """A client that asks for output only is attached when that stream is open."""
        peer = self.begin("error", "stdout", query=b"?stdout=true")
        self.attachment.transport.write(b"hello")
        self.assertEqual(peer.said(), [("stdout", b"hello")])

    def test_24_nothing_opened(self) -> None:
        """A client that opens no streams is disconnected after a while and is never attached."""
        peer = SPDYPeer(self.server)
        self.clock.advance(30)
        self.assertTrue(peer.client.aborted)
        self.assertEqual(self.attachment.attachments, 0)
        why = "the streams were not opened within 30 s"
        self.assertEqual(self.attachment.detached_with, [why])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_leaves_before(self) -> None:
        """A client that disconnects before its streams are open is never attached."""
        peer = SPDYPeer(self.server)
        peer.open("error")
        peer.client.lose()
        self.assertEqual(self.attachment.attachments, 0)
        self.assertEqual(self.attachment.detached_with, ["connection closed"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_says_so_before(self) -> None:
        """A GOAWAY before the streams are open ends the connection."""
        peer = SPDYPeer(self.server)
        peer.open("error")
        peer.raw(spdy.go_away(0))
        self.assertEqual(self.attachment.detached_with, ["client closed"])
        self.assertTrue(peer.client.closed)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_twice(self) -> None:
        """A second stream of the same kind is refused."""
        peer = self.begin()
        peer.open("stdout")
        self.assertEqual(peer.frames(), [RstStream(9, 5)])


class TalkTests(SPDYTestCase):
    """Input, output, sizes."""

    def test_answers_nobody_reads(self) -> None:
        """A client that provokes answers but does not read is disconnected."""
        peer = self.begin()
        flow = peer.client.transport.producer
        bad = peer.writer.syn_stream(1, [])
        peer.raw(bad)
        for _ in range(3):
            flow.pauseProducing()
            for _ in range(UNREAD_BYTES // 20):
                peer.raw(peer.writer.syn_stream(1, []))
            self.assertFalse(peer.client.closed)
            flow.resumeProducing()
        flow.pauseProducing()
        while not peer.client.closed:
            peer.raw(peer.writer.syn_stream(1, []))
        self.assertTrue(peer.client.aborted)
        self.assertEqual(self.attachment.detached_with, ["the peer reads no answers"])


class EndTests(SPDYTestCase):
    """Ends of a session."""

    def test_text(self) -> None:
        """Before version 4 the status is a text, or empty for success."""
        for ending, told in (
            (Ending(COMPLETED), []),
            (Ending(LINE_LOST, "gone"), [("error", b"gone")]),
        ):
            for offer in (b"v3.channel.k8s.io", b"v2.channel.k8s.io", b"channel.k8s.io"):
                self.setUp()
                peer = self.begin("error", "stdout", offers=(offer,))
                self.attachment.transport.end(ending)
                said = [*told, "end error", "end stdout"]
                if told and offer == b"channel.k8s.io":
                    said.remove("end stdout")  # which would be success
                self.assertEqual(peer.said(), said)

    def test_late_stream(self) -> None:
        """A stream that comes behind the end is answered; kubectl waits for that for 30 s."""
        peer = self.begin("error", "stdin", "stdout")
        self.attachment.transport.end(Ending(COMPLETED))
        peer.said()
        peer.open("resize")
        self.assertEqual(peer.frames(), [SynReply(7), RstStream(7, 5)])

    def test_client_leaves(self) -> None:
        """A client may leave first: kubectl resets its streams, and goes."""
        peer = self.begin()
        peer.raw(b"".join(spdy.rst_stream(number, 5) for number in (1, 3, 5, 7)))
        self.attachment.transport.write(b"nobody is there")
        peer.raw(spdy.go_away(0))
        self.assertEqual(peer.said(), ["go away 0"])
        self.assertEqual(self.attachment.detached_with, ["client closed"])
        self.assertEqual(self.attachment.input_ends, 1)
        self.assertTrue(peer.client.closed)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_echo(self) -> None:
        """A whole session: input, its echo, the input's end, success."""
        self.attach(EchoAttachment())
        peer = self.begin("error", "stdin", "stdout", "stderr")
        peer.send("stdin", b"hi", fin=True)
        self.assertEqual(
            peer.said(),
            [
                ("stdout", b"hi"),
                ("error", SUCCESS),
                "end error",
                "reset stdin",
                "end stdout",
                "end stderr",
            ],
        )


class Recorded(Serving):
    """Keeps records of its sessions."""

    def __init__(self, clock: Clock, attachment: RecordingAttachment) -> None:
        super().__init__(clock, attachment, StreamLimits())
        self.records = AuditList()
        self.sessions = Sessions(Trail(self.records, "runtime", clock))

    async def dispatch(self, request: Request) -> None:
        record = self.sessions.open(Subject(session="s-1", user="ann"))
        self.server = serve(
            request, self.attachment, session="s-1", user="ann", clock=self.clock, entry=record
        )


class RecordTests(SPDYTestCase):
    """The hop's record of a session."""

    def setUp(self) -> None:
        super().setUp()
        self.recorded = Recorded(self.clock, self.attachment)
        self.server = MemoryServer(self.recorded, self.clock)

    def test_ended_by_the_hop(self) -> None:
        """The hop may end a session, and the client gets the reason."""
        peer = self.begin()
        self.recorded.sessions.end(lambda _: True, Ending(LINE_LOST, "gone"))
        self.assertIn(b'"message":"gone"', peer.said()[0][1])
        peer.client.lose()
        self.recorded.records.check_pairs()
        self.assertEqual(self.recorded.records.ends(), [(LINE_LOST, None)])

    def test_ended_before_it_began(self) -> None:
        """Ending before the streams are open ends each stream as it opens."""
        peer = SPDYPeer(self.server)
        self.recorded.sessions.end(lambda _: True, Ending(LINE_LOST, "gone"))
        peer.open("error", "stdout")
        self.assertEqual(self.attachment.attachments, 0)
        (_, status), *ends = peer.said()
        self.assertIn(b'"message":"gone"', status)
        self.assertEqual(ends, ["end error", "end stdout"])
        self.clock.advance(15)
        self.assertTrue(peer.client.closed)
        self.assertEqual(self.recorded.records.ends(), [(LINE_LOST, None)])
        self.assertEqual(len(self.recorded.sessions), 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_never_opened(self) -> None:
        """A client that opens no streams has an audit start and end."""
        SPDYPeer(self.server)
        self.assertEqual(len(self.recorded.sessions), 1)
        self.clock.advance(30)
        self.assertEqual(len(self.recorded.sessions), 0)
        self.recorded.records.check_pairs()


class ViolationTests(SPDYTestCase):
    """Clients that break the protocol."""

    def test_violations(self) -> None:
        """
        A protocol violation is answered with a status and a GOAWAY; the attachment ends at once.
        """
        for data in (
            b"\x80\x03\0\x05\0\0\0\0",  # an unknown frame type
            b"\x80\x02\0\x01\0\0\0\0",  # another version
            b"\x80\x03\0\x01\0\xff\xff\xff",  # longer than any
            b"\0\0\0\0\0\0\0\1x",  # stream 0
            b"\x80\x03\0\x08\0\0\0\x08\0\0\0\1\xff\xff\xff\xff",  # not compressed
        ):
            self.setUp()
            peer = self.begin("error", "stdin", "stdout")
            peer.raw(data)
            (name, status), *ends = peer.said()
            self.assertEqual(name, "error")
            self.assertIn("the client broke the protocol: ", json.loads(status)["message"])
            self.assertEqual(ends, ["end error", "reset stdin", "end stdout", "go away 1"])
            (why,) = self.attachment.detached_with
            self.assertIn("protocol error: ", why)
            self.assertTrue(peer.client.closed)
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_before_the_beginning(self) -> None:
        """A violation before any stream is open is answered with a GOAWAY."""
        peer = SPDYPeer(self.server)
        peer.raw(b"\xff" * 8)
        self.assertEqual(peer.said(), ["go away 1"])
        self.assertTrue(peer.client.closed)
        self.assertEqual(len(self.attachment.detached_with), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.binary(min_size=1, max_size=64), max_size=6), st.booleans())
    def test_anything(self, chunks: list[bytes], begun: bool) -> None:
        """No input raises an error, and the attachment ends exactly once."""
        self.setUp()
        peer = SPDYPeer(self.server)
        if begun:
            peer.open(*TERMINAL)
        for chunk in chunks:
            if not peer.client.closed:
                peer.raw(chunk)
        if not peer.client.closed:
            peer.client.lose()
        self.assertEqual(len(self.attachment.detached_with), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class CaptureTests(SPDYTestCase):
    """Recorded sessions of real kubectls, byte for byte."""

    def played(self, name: str, split: int) -> RecordingAttachment:
        items = json.loads((CAPTURES / name).read_text())["items"]
        sent = b"".join(bytes.fromhex(each["hex"]) for each in items if each["dir"] == "C")
        self.setUp()
        client = self.server.connect()
        for start in range(0, len(sent), split):
            if not client.closed:
                client.send(sent[start : start + split])
        if not client.closed:
            client.lose()
        return self.attachment

    def test_every_split(self) -> None:
        """Whatever the split, the attachment gets the same input, sizes and end."""
        for path in sorted(CAPTURES.glob("spdy-*-exec-*.json")):
            whole = self.played(path.name, 1 << 20)
            self.assertEqual(whole.attachments, 1)
            self.assertEqual(bool(whole.received), "stdin" in path.name or "tty" in path.name)
            self.assertEqual(bool(whole.sizes), "tty" in path.name)
            for split in [*range(1, 32), 100, 537, 538, 600]:
                cut = self.played(path.name, split)
                for name in ("received", "sizes", "input_ends", "detached_with"):
                    self.assertEqual(getattr(cut, name), getattr(whole, name), (path.name, split))


class ContractTests(EndOfInputContract, SPDYTestCase):
    """The contract of an attachment's transport."""

    def new_user(self, query: bytes = b"") -> ContractUser:
        return SPDYUser(self.server, query)
