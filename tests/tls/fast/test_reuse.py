"""Tests for :mod:`twisted_exec.tls.fast.reuse`, with real connections."""

from __future__ import annotations

import itertools
import random
from array import array
from fcntl import ioctl
from termios import FIONREAD
from typing import Any

from OpenSSL import SSL
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IProtocol

from tests.chain import until
from tests.tls.fast import test_transport
from tests.tls.support import LoopbackCase, Recorder, reactor
from tests.wire.test_blocks import HOSTILE
from twisted_exec.streaming.transports import has_unread, swap_protocol
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.fast import descriptor
from twisted_exec.tls.fast.descriptor import TLSOnDescriptor
from twisted_exec.tls.fast.reuse import CarriedStream, ReusedTLS, acceptance, is_quiet, offer
from twisted_exec.tls.server import ServerTLS
from twisted_exec.wire.blocks import Mark, head

END, READY = Mark.END.value, Mark.READY.value


def waiting(transport: Any) -> int:
    """How many bytes have arrived that are not read."""
    count = array("i", [0])
    ioctl(transport.fileno(), FIONREAD, count)
    return count[0]


class Side:
    """
    One end of a connection, and its sessions.

    :ivar next: fires with the protocol that has the connection after the session.
    """

    def __init__(self, first: Recorder, *, is_server: bool) -> None:
        self.session, self.is_server, self.keeps = first, is_server, True
        self.marks: list[Mark] = []
        self.idle: Recorder | None = None
        self.next: Deferred[Recorder] = Deferred()

    def carry(self, early: bytes = b"") -> bytes:
        """Carry a session with the present protocol."""
        self.next = Deferred()
        session = CarriedStream(self._following, is_server=self.is_server)
        data: bytes = self.session.transport.carry(session, early)
        return data

    def _following(self, transport: TLSOnDescriptor, mark: Mark) -> IProtocol | None:
        self.marks.append(mark)
        if not self.keeps:
            return None
        recorder = Recorder()
        recorder.made.addCallback(self._found)
        return recorder

    def _found(self, recorder: Recorder) -> None:
        self.idle = recorder
        self.next.callback(recorder)

    async def begin(self, early: bytes = b"") -> None:
        """Wait for the end of the session, and begin another one with a protocol of its own."""
        idle = await self.next
        if not self.is_server and self.marks[-1] is Mark.END:
            await idle.has(3)
            assert idle.received == READY, idle.received
        self.session, self.idle = Recorder(), None
        swap_protocol(idle.transport, self.session)
        self.session.makeConnection(idle.transport)
        self.carry(early)


class CarriedCase(LoopbackCase):
    """Both ends of a connection that carries sessions."""

    async def shaken(self) -> tuple[Recorder, Recorder]:
        """The server's and the client's end, after the handshake of both."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        await until(lambda: not server.transport.is_shaking)
        return server, client

    async def sides(self) -> tuple[Side, Side]:
        """The server's side and the client's."""
        server, client = await self.shaken()
        both = Side(server, is_server=True), Side(client, is_server=False)
        for each in both:
            each.carry()
            self.addCleanup(self.end, each)
        return both

    async def end(self, side: Side) -> None:
        """End a connection, and wait for its loss."""
        if not side.session.lost.called:
            side.session.transport.abortConnection()
            await side.session.lost
        if side.idle is not None and not side.idle.lost.called:
            side.idle.transport.abortConnection()
            await side.idle.lost

    async def next(self, server: Side, client: Side) -> None:
        """Begin the next session, whose bytes pass as they are."""
        await server.begin()
        await client.begin()
        await self.passes(server, client)

    async def passes(self, server: Side, client: Side) -> None:
        """Bytes that look like frames pass in both directions, each as a write of its own."""
        whole = b"".join(HOSTILE)
        for each in HOSTILE:
            server.session.transport.write(each)
            client.session.transport.write(each)
        before = server.session.received, client.session.received
        self.assertEqual(await server.session.has(len(before[0] + whole)), before[0] + whole)
        self.assertEqual(await client.session.has(len(before[1] + whole)), before[1] + whole)


class QuietTests(CarriedCase):
    """Tests for :func:`is_quiet`."""

    async def test_open(self) -> None:
        """An open connection is quiet until something arrives."""
        server, client = await self.shaken()
        self.assertTrue(is_quiet(server.transport))
        server.transport.pauseProducing()
        client.transport.write(b"x")
        await until(lambda: waiting(server.transport) > 0)
        self.assertFalse(is_quiet(server.transport))

    async def test_lost(self) -> None:
        """A lost connection is not quiet, nor is a transport whose connection another one has."""
        server, client = await self.sides()
        carried = server.session.transport
        client.session.transport.loseConnection()
        after = await server.next
        self.assertTrue(is_quiet(after.transport))
        self.assertFalse(is_quiet(carried))
        after.transport.abortConnection()
        await after.lost
        self.assertFalse(is_quiet(after.transport))


class SessionTests(CarriedCase):
    """Sessions that end in order, and the next one over the same connection."""

    async def test_client_ends(self) -> None:
        """The client ends the session; the server answers that it is ready."""
        server, client = await self.sides()
        await self.passes(server, client)
        client.session.transport.loseConnection()
        for each in (server, client):
            self.assertIsInstance(await each.session.lost, ConnectionDone)
        await self.next(server, client)
        self.assertEqual((server.marks, client.marks), ([Mark.END], [Mark.READY]))

    async def test_server_ends(self) -> None:
        """The server ends the session, and is ready when it has read the client's mark."""
        server, client = await self.sides()
        await self.passes(server, client)
        server.session.transport.loseConnection()
        for each in (server, client):
            self.assertIsInstance(await each.session.lost, ConnectionDone)
        await self.next(server, client)
        self.assertEqual((server.marks, client.marks), ([Mark.END], [Mark.END]))

    async def test_both_end(self) -> None:
        """Both sides end the session before they know of each other."""
        server, client = await self.sides()
        for each in (server, client):
            each.session.transport.loseConnection()
        await self.next(server, client)
        self.assertEqual(server.marks, [Mark.END])

    async def test_in_every_order(self) -> None:
        """Each order of ends is followed by each other one, over one connection."""
        server, client = await self.sides()
        handles = [side.session.transport.getHandle() for side in (server, client)]
        addresses = [side.session.transport.getPeer() for side in (server, client)]
        for ending in itertools.chain(*itertools.product(((0,), (1,), (0, 1), (1, 0)), repeat=2)):
            for number in ending:
                side = (server, client)[number]
                side.session.transport.write(b"last words")
                side.session.transport.loseConnection()
            await self.next(server, client)
        transports = [side.session.transport for side in (server, client)]
        self.assertEqual([each.getHandle() for each in transports], handles)
        self.assertEqual([each.getPeer() for each in transports], addresses)
        self.assertEqual(transports[0].getPeer(), transports[1].getHost())
        self.assertGreater(transports[0].age_seconds, 0)

    async def test_everything_before_the_end(self) -> None:
        """What was written before the end arrives, however much it is and whoever ends."""
        self.patch(descriptor, "PLAIN_BYTES", 1 << 30)
        server, client = await self.sides()
        chance = random.Random(67)
        sizes = [1, 3, 16_380, 16_381, 16_382, 16_384, 70_000, 1 << 20, (1 << 24) + 7]
        for size in sizes:
            sent = chance.randbytes(size)
            for writer, reader in ((server, client), (client, server)):
                before = len(reader.session.received)
                reader.session.transport.pauseProducing()
                writer.session.transport.write(b"")
                writer.session.transport.write(sent)
                writer.session.transport.write(b"!")
                writer.session.transport.loseConnection()
                reader.session.transport.resumeProducing()
                self.assertIsInstance(await reader.session.lost, ConnectionDone)
                received = reader.session.received[before:]
                self.assertEqual((len(received), received == sent + b"!"), (size + 1, True))
                await self.next(server, client)

    async def test_paused(self) -> None:
        """A paused protocol gets its bytes, and then the end, when it goes on."""
        server, client = await self.sides()
        server.session.transport.pauseProducing()
        client.session.transport.write(b"x" * 500_000)
        client.session.transport.loseConnection()
        await client.session.made
        self.assertFalse(server.session.lost.called)
        server.session.transport.resumeProducing()
        await server.session.lost
        self.assertEqual(server.session.received, b"x" * 500_000)
        await self.next(server, client)

    async def test_written_too_late(self) -> None:
        """What is written behind the peer's end belongs to no session."""
        server, client = await self.sides()
        old = server.session.transport
        client.session.transport.loseConnection()
        await server.session.lost
        old.write(b"too late")
        await self.next(server, client)

    async def test_former_transport(self) -> None:
        """Nothing that still has the transport of a session reaches the next one."""
        server, client = await self.sides()
        former = [side.session.transport for side in (server, client)]
        client.session.transport.loseConnection()
        await server.begin()
        await client.begin()
        for each in former:
            for act in (
                lambda one: one.write(b"former"),
                lambda one: one.write(b"former" * 10_000),
                lambda one: one.writeSequence([b"for", b"mer"]),
                lambda one: one.pauseProducing(),
                lambda one: one.resumeProducing(),
                lambda one: one.loseConnection(),
                lambda one: one.abortConnection(),
                lambda one: one.unregisterProducer(),
                lambda one: one.connectionLost(None),
            ):
                act(each)
        await self.passes(server, client)
        self.assertEqual([side.session.lost.called for side in (server, client)], [False, False])

    async def test_ends_with_the_answer(self) -> None:
        """A session whose first bytes and mark came with the answer gets the bytes and ends."""
        server, client = await self.shaken()
        sides = Side(server, is_server=True), Side(client, is_server=False)
        for each in sides:
            self.addCleanup(self.end, each)
        server.transport.pauseProducing()
        sides[0].carry()
        server.transport.write(b"greeting")
        server.transport.loseConnection()
        self.assertEqual(await client.has(14), head(8) + b"greeting" + END)
        self.assertEqual(sides[1].carry(client.received), b"greeting")
        server.transport.resumeProducing()
        self.assertIsInstance(await client.lost, ConnectionDone)
        await self.next(*sides)

    async def test_not_kept(self) -> None:
        """If one end does not keep the connection, it is closed in order."""
        for number in (0, 1):
            for ends in (0, 1):
                sides = await self.sides()
                sides[number].keeps = False
                sides[ends].session.transport.loseConnection()
                for each in sides:
                    self.assertIsInstance(await each.session.lost, ConnectionDone)
                other = await sides[1 - number].next if not (number == 0 and ends == 1) else None
                if other is not None:
                    self.assertIsInstance(await other.lost, ConnectionDone)


class PlainTests(CarriedCase):
    """A session that carries much goes on without blocks, and the connection ends with it."""

    LONG = b"x" * 100_000

    def setUp(self) -> None:
        super().setUp()
        self.patch(descriptor, "PLAIN_BYTES", 2 * len(self.LONG))

    async def over(self, *sides: Side) -> None:
        """The session is over in order, and so is the connection."""
        for side in sides:
            self.assertIsInstance(await side.session.lost, ConnectionDone)
            self.assertEqual((side.marks, side.idle), ([], None))

    async def test_passes(self) -> None:
        """Bytes pass in both directions before and behind the change, whoever writes much and whoever ends."""
        for many, ends in itertools.product((0, 1), repeat=2):
            sides = await self.sides()
            await self.passes(*sides)
            reader = sides[1 - many].session
            before = reader.received
            for _ in range(3):
                sides[many].session.transport.write(self.LONG)
            whole = before + 3 * self.LONG
            self.assertEqual((await reader.has(len(whole))) == whole, True)
            await self.passes(*sides)
            sides[ends].session.transport.write(b"last")
            sides[ends].session.transport.loseConnection()
            await self.over(*sides)
            self.assertTrue(sides[1 - ends].session.received.endswith(b"last"))

    async def test_both_many(self) -> None:
        """Both sides may change at the same time."""
        sides = await self.sides()
        for side in sides:
            for _ in range(4):
                side.session.transport.write(self.LONG)
        for side in sides:
            await side.session.has(4 * len(self.LONG))
        await self.passes(*sides)
        sides[0].session.transport.loseConnection()
        await self.over(*sides)

    async def test_ends_meanwhile(self) -> None:
        """A side that has ended its session before it reads of the change gets the rest, and the end."""
        for many in (0, 1):
            sides = await self.sides()
            writer, other = sides[many].session, sides[1 - many].session
            for _ in range(4):
                writer.transport.write(self.LONG)
            other.transport.write(b"last")
            other.transport.loseConnection()
            await self.over(*sides)
            self.assertEqual(writer.received, b"last")

    async def test_both_end(self) -> None:
        """Both sides may end behind the change, before they know of each other."""
        sides = await self.sides()
        for _ in range(2):
            sides[0].session.transport.write(self.LONG)
        for side in sides:
            side.session.transport.loseConnection()
        await self.over(*sides)


class ViolationTests(CarriedCase):
    """A peer that does not keep to the order loses the connection, and the session is lost."""

    async def raw(self, *, is_server: bool) -> tuple[Side, Recorder]:
        """A side, and a peer that writes what it likes."""
        server, client = await self.shaken()
        side = Side(server if is_server else client, is_server=is_server)
        side.carry()
        return side, client if is_server else server

    async def lost(self, side: Side, peer: Recorder) -> None:
        """The session and the connection are lost, and nothing follows."""
        reason = await side.session.lost
        self.assertNotIsInstance(reason, ConnectionDone)
        await peer.lost
        self.assertFalse(side.next.called)

    async def test_behind_the_mark(self) -> None:
        """One byte behind the end mark ends the connection."""
        for is_server in (True, False):
            for more in (b"\0", END, b"GET /exec HTTP/1.1\r\n\r\n"):
                side, peer = await self.raw(is_server=is_server)
                peer.transport.write(head(2) + b"hi" + END + more)
                await self.lost(side, peer)

    async def test_behind_the_mark_later(self) -> None:
        """Nor does a server go on if more arrives after the mark, before it is ready."""
        self.patch(descriptor, "PLAIN_BYTES", 1 << 30)
        for ends_first in (True, False):
            side, peer = await self.raw(is_server=True)
            peer.transport.pauseProducing()
            side.session.transport.write(b"x" * (16 << 20))  # more than the sockets take
            if ends_first:
                side.session.transport.loseConnection()
            peer.transport.write(END)
            await until(lambda s=side: s.session.transport not in reactor.getReaders())
            peer.transport.write(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda s=side: has_unread(s.session.transport))
            peer.transport.resumeProducing()
            await side.session.lost
            await peer.lost
            self.assertEqual((side.marks, side.next.called), ([], False))
            self.assertTrue(peer.received.endswith(b"x" + END))

    async def test_ready_too_early(self) -> None:
        """Nobody is ready for the next session before the other side has ended this one."""
        for is_server in (True, False):
            side, peer = await self.raw(is_server=is_server)
            peer.transport.write(READY)
            await self.lost(side, peer)

    async def test_ready_from_a_client(self) -> None:
        """Only a server says that it is ready."""
        side, peer = await self.raw(is_server=True)
        side.session.transport.loseConnection()
        await peer.has(3)
        peer.transport.write(READY)
        await self.lost(side, peer)

    async def test_cut_anywhere(self) -> None:
        """A connection that is closed before the whole mark is a lost one, also within a length."""
        whole = head(5) + b"hello" + END
        for is_server in (True, False):
            for size in range(len(whole)):
                for close in ("loseConnection", "abortConnection"):
                    side, peer = await self.raw(is_server=is_server)
                    peer.transport.write(whole[:size])
                    getattr(peer.transport, close)()
                    await self.lost(side, peer)
                    self.assertIn(side.session.received, (b"", whole[3:size][:5]))

    async def test_tiny_blocks(self) -> None:
        """A peer that sends tiny blocks gets one record read in a turn; others many."""
        for block, together in ((b"\0\0\1x" * 4096, False), (head(16_381) + bytes(16_381), True)):
            side, peer = await self.raw(is_server=True)
            sizes: list[int] = []
            received = side.session.dataReceived

            def counted(data: bytes, sizes: Any = sizes, received: Any = received) -> None:
                sizes.append(len(data))
                received(data)

            side.session.dataReceived = counted  # type: ignore[method-assign]
            side.session.transport.pauseProducing()
            for _ in range(6):
                peer.transport.write(block)
            whole = 6 * len(block)
            await until(lambda s=side, whole=whole: waiting(s.session.transport) > whole)
            side.session.transport.resumeProducing()
            payload = len(block) // 4 if not together else 16_381
            await side.session.has(6 * payload)
            self.assertEqual(sizes, [6 * payload] if together else [payload] * 6)
            peer.transport.abortConnection()
            await side.session.lost

    async def test_aborted(self) -> None:
        """A session that is aborted ends the connection."""
        for number in (0, 1):
            sides = await self.sides()
            await self.passes(*sides)
            sides[number].session.transport.abortConnection()
            for each in sides:
                self.assertNotIsInstance(await each.session.lost, ConnectionDone)
                self.assertFalse(each.next.called)

    async def test_never_ends(self) -> None:
        """A peer that does not end its side loses the connection after the time for closing."""
        self.patch(descriptor, "LINGER_SECONDS", 0.01)
        for is_server in (True, False):
            side, peer = await self.raw(is_server=is_server)
            side.session.transport.loseConnection()
            await peer.has(3)
            peer.transport.write(head(5) + b"still")
            self.assertIsInstance(await side.session.lost, ConnectionLost)
            self.assertFalse(side.next.called)
            await peer.lost

    async def test_two_answers(self) -> None:
        """A server that says twice that it is ready ends the connection."""
        for ends, answer in ((b"", READY + READY), (b"", READY + b"HTTP/1.1 101 \r\n\r\n")):
            side, peer = await self.raw(is_server=False)
            side.session.transport.loseConnection()
            await peer.has(3)
            peer.transport.write(ends + answer)
            await self.lost(side, peer)


class ProofTests(LoopbackCase):
    """Only the two ends of one connection know its values."""

    async def test_values(self) -> None:
        """Both ends know both; they differ, also from those of another connection."""
        first = await self.pair(self.server_tls(), self.client_tls())
        second = await self.pair(self.server_tls(), self.client_tls())
        values = [(offer(end.transport), acceptance(end.transport)) for end in (*first, *second)]
        self.assertEqual((values[0], values[2]), (values[1], values[3]))
        self.assertEqual(len({*values[0], *values[2]}), 4)

    async def test_once(self) -> None:
        """OpenSSL is asked once for each connection."""
        _, client = await self.pair(self.server_tls(), self.client_tls())
        value = offer(client.transport)
        self.patch(SSL.Connection, "export_keying_material", None)
        self.assertEqual(offer(client.transport), value)
        self.assertTrue(acceptance(client.transport))

    async def test_none(self) -> None:
        """Without TLS, and after the end, there is none."""
        plain = await self.pair(None, None)
        self.assertEqual(offer(plain[0].transport), b"")
        server, client = await self.pair(self.server_tls(), self.client_tls())
        client.transport.loseConnection()
        await server.lost
        self.assertEqual(acceptance(server.transport), b"")


class CarriedStreamTests(CarriedCase, test_transport.StreamTLSTests):
    """What holds for a TLS stream holds for one that is carried as a session."""

    async def pair(
        self, server: ServerTLS | None, client: ClientTLS | None
    ) -> tuple[Recorder, Recorder]:
        both = await super().pair(server, client)
        if server is not None and client is not None:
            for end, is_server in zip(both, (True, False), strict=True):
                if isinstance(end.transport, TLSOnDescriptor):
                    side = Side(end, is_server=is_server)
                    side.carry()
                    self.addCleanup(self.end, side)
        return both


class SecondStreamTests(CarriedCase, test_transport.StreamTLSTests):
    """The same for the second session of a connection."""

    async def pair(
        self, server: ServerTLS | None, client: ClientTLS | None
    ) -> tuple[Recorder, Recorder]:
        both = await super().pair(server, client)
        if server is None or not isinstance(both[0].transport, TLSOnDescriptor):
            return both
        await until(lambda: not both[0].transport.is_shaking)
        sides = Side(both[0], is_server=True), Side(both[1], is_server=False)
        for each in sides:
            each.carry()
        both[1].transport.loseConnection()
        for each in sides:
            await each.begin()
            self.addCleanup(self.end, each)
            self.assertIsInstance(each.session.transport, ReusedTLS)
        return sides[0].session, sides[1].session
