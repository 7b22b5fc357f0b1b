"""
Tests for :mod:`twisted_exec.apiserver.serving.watches.watches`: many changes at about the same time.
"""

from __future__ import annotations

import json
import re

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.support import MACHINES, APITestCase, Watching
from tests.streaming.frames import Peer
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.apiserver.serving.encoding import PIECE_BYTES, object_json
from twisted_exec.apiserver.serving.query import ResponseForm
from twisted_exec.apiserver.serving.watches import converter
from twisted_exec.apiserver.serving.watches.streams import LineStream
from twisted_exec.program.turns import TURN_SECONDS
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request
from twisted_exec.testing.network import MemoryServer

FORMS = ("application/json", "application/json;as=Table;v=v1;g=meta.k8s.io")


def chunks(data: bytes) -> int:
    """Number of the chunks of a response, without its head."""
    return len(re.findall(rb'[0-9a-f]+\r\n\{"type"', data))


class BurstTests(APITestCase):
    """Changes that come while it is the turn of others."""

    def begin(self, more: str = "") -> Watching:
        watch = self.watch(f"{MACHINES}?watch=1&resourceVersion={self.storage.version()}{more}")
        watch.events()
        return watch

    def wait_for_turn(self) -> None:
        """Make one change, and let the turn in which it was sent end."""
        self.make_machine("first")
        self.clock.advance(TURN_SECONDS)

    def test_alone(self) -> None:
        """A single change is sent at once."""
        watches = [self.begin() for _ in range(3)]
        self.make_machine("a")
        for watch in watches:
            self.assertEqual(watch.names(), [("ADDED", "a")])
            self.assertEqual(watch.client.received(), b"")

    def test_together(self) -> None:
        """Changes that wait are sent in order, in one chunk for each watch."""
        watches = [self.begin(), self.begin(), self.begin("&labelSelector=!a")]
        self.wait_for_turn()
        for watch in watches:
            self.assertEqual(watch.names(), [("ADDED", "first")])
        for number in range(5):
            self.make_machine(f"vm-{number}")
        self.answer("DELETE", f"{MACHINES}/vm-0")
        for watch in watches:
            self.assertEqual(watch.client.received(), b"")
        self.clock.advance(TURN_SECONDS)
        told = [*(("ADDED", f"vm-{number}") for number in range(5)), ("DELETED", "vm-0")]
        for watch in watches:
            data = watch.client.received()
            self.assertEqual(chunks(data), 1)
            watch.client.transport.write(data)  # for the decoder
            self.assertEqual(watch.names(), told)
        self.assertEqual(len(self.server.site.unread), 0)

    def test_encoded_once(self) -> None:
        """Changes are encoded once for all watches of a form, though they wait."""
        encoded: list[str] = []

        def encode(kind: Kind, obj: Object, form: ResponseForm, now: float, **more: bool) -> bytes:
            encoded.append(form.shape)
            return object_json(kind, obj, form, now, **more)

        self.patch(converter, "object_json", encode)
        path = f"{MACHINES}?watch=1&resourceVersion={self.storage.version()}"
        watches = [self.watch(path, accept=accept) for accept in FORMS for _ in range(10)]
        self.wait_for_turn()
        encoded.clear()
        for number in range(20):
            self.make_machine(f"vm-{number}")
        self.clock.advance(TURN_SECONDS)
        self.assertEqual(encoded, [encoded[0]] * 20 + [encoded[-1]] * 20)
        for watch in watches:
            self.assertEqual(len(watch.events()), 21)

    def test_leaves_the_selection(self) -> None:
        """Each of the changes is seen through the selectors, and some not at all."""
        watch = self.begin("&fieldSelector=metadata.name%3Db")
        self.wait_for_turn()
        for name in "abc":
            self.make_machine(name)
        self.answer("DELETE", f"{MACHINES}/b")
        self.clock.advance(TURN_SECONDS)
        self.assertEqual(watch.names(), [("ADDED", "b"), ("DELETED", "b")])

    def test_bookmark(self) -> None:
        """A bookmark comes between the changes up to its version and the later ones."""
        watch = self.begin("&allowWatchBookmarks=1")
        self.clock.advance(60 - 1.5 * TURN_SECONDS)
        self.wait_for_turn()
        watch.events()
        self.make_machine("before")
        version = self.storage.version()
        self.clock.advance(0.5 * TURN_SECONDS)
        self.make_machine("after")
        self.assertEqual(watch.events(), [])
        self.clock.advance(0.5 * TURN_SECONDS)
        before, bookmark, after = watch.events()
        self.assertEqual(bookmark["type"], "BOOKMARK")
        self.assertEqual(bookmark["object"]["metadata"]["resourceVersion"], str(version))
        self.assertEqual(before["object"]["metadata"]["name"], "before")
        self.assertEqual(after["object"]["metadata"]["name"], "after")

    def test_large_ones(self) -> None:
        """Large changes are sent one by one, with the turns of others between them."""
        watches = [self.begin(), self.begin()]
        self.wait_for_turn()
        for number in range(3):
            values = [{"name": "x", "value": "x" * PIECE_BYTES}]
            self.make_machine(f"vm-{number}", efiVars=values)
        self.clock.advance(TURN_SECONDS)
        for watch in watches:
            data = watch.client.received()
            self.assertEqual((chunks(data), data.count(b'"type":"ADDED"')), (4, 4))

    def test_too_many(self) -> None:
        """Changes that wait for a watch's turn are limited, too."""
        watch = self.begin()
        self.wait_for_turn()
        for number in range(10):
            values = [{"name": "x", "value": "x" * (600 << 10)}]
            self.make_machine(f"vm-{number}", efiVars=values)
        self.assertTrue(watch.client.aborted)
        self.assertEqual(len(self.server.site.unread), 0)
        self.clock.advance(TURN_SECONDS)

    def test_left(self) -> None:
        """A client that leaves while changes wait leaves nothing behind."""
        watch, other = self.begin(), self.begin()
        self.wait_for_turn()
        self.make_machine("a")
        self.assertGreater(len(self.server.site.unread), 0)
        watch.client.lose()
        self.clock.advance(TURN_SECONDS)
        self.assertEqual(other.names(), [("ADDED", "first"), ("ADDED", "a")])
        self.assertEqual(len(self.server.site.unread), 0)

    def test_messages(self) -> None:
        """On a WebSocket each event is a message of its own, in a burst, too."""
        head = b"Authorization: Bearer admin"
        query = f"?watch=1&resourceVersion={self.storage.version()}".encode()
        peer = Peer(self.server, lines=(head,), path=MACHINES.encode(), query=query)
        self.addCleanup(peer.client.lose)
        self.wait_for_turn()
        for name in "ab":
            self.make_machine(name)
        self.clock.advance(TURN_SECONDS)
        events = [json.loads(event.data) for event in peer.events()]
        names = [event["object"]["metadata"]["name"] for event in events]
        self.assertEqual(names, ["first", "a", "b"])


class _Streaming(Dispatcher):
    stream: LineStream

    async def dispatch(self, request: Request) -> None:
        stream = self.stream = LineStream(request)
        stream.begin()
        await stream.done
        stream.end()


class SlowReaderTests(SynchronousTestCase):
    """Tests for :class:`LineStream`: a client that reads after a burst."""

    def test_pieces(self) -> None:
        """Lines that wait are sent in pieces of limited size, as fast as the client reads."""
        dispatcher = _Streaming()
        client = MemoryServer(dispatcher, Clock()).connect()
        self.addCleanup(client.lose)
        client.send(b"GET / HTTP/1.1\r\nHost: server\r\n\r\n")
        client.received()
        client.protocol.pauseProducing()
        for number in range(100):
            dispatcher.stream.send(b'{"type":"%03d%s"}\n' % (number, b"x" * 2000))
        write = client.transport.writeSequence

        def full(data: list[bytes]) -> None:
            write(data)
            client.protocol.pauseProducing()

        client.transport.writeSequence = full
        pieces = []
        while len(dispatcher.stream.unread):
            client.protocol.resumeProducing()
            pieces.append(client.received())
        self.assertTrue(all(len(piece) < PIECE_BYTES + 3000 for piece in pieces))
        self.assertEqual(len(pieces), 4)
        numbers = re.findall(rb'"type":"(\d+)', b"".join(pieces))
        self.assertEqual(numbers, [b"%03d" % number for number in range(100)])
