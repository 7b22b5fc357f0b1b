"""
Tests for :mod:`twisted_exec.apiserver.serving.watches.streams`: messages on a WebSocket. Those of lines on a
response are in ``test_watches``.
"""

from __future__ import annotations

import json
from typing import Any

from tests.apiserver.support import MACHINES, MERGE, APITestCase
from tests.streaming.frames import CloseConnection, Peer, Ping, Pong, TextMessage, handshake
from twisted_exec.apiserver.serving.request_limits import RequestLimits

ADMIN = b"Authorization: Bearer admin"


class SocketTests(APITestCase):
    """Watches over a WebSocket."""

    limits = RequestLimits(long_per_user=3)

    def open(self, query: str = "", *lines: bytes, protocols: bytes = b"") -> Peer:
        peer = Peer(
            self.server,
            lines=(ADMIN, *lines),
            path=MACHINES.encode(),
            query=f"?watch=1{query}".encode(),
            protocols=protocols,
        )
        self.addCleanup(self.leave, peer)
        return peer

    def leave(self, peer: Peer) -> None:
        if not peer.client.closed:
            peer.client.lose()

    def told(self, peer: Peer) -> list[tuple[str, str]]:
        """Type and name of each event, which is one message of text."""
        events: list[Any] = peer.events()
        self.assertTrue(all(isinstance(event, TextMessage) for event in events), events)
        changes = [json.loads(event.data) for event in events]
        return [(each["type"], each["object"]["metadata"]["name"]) for each in changes]

    def test_events(self) -> None:
        """Each event is one message: what there is, what happened, what happens."""
        self.make_machine("a")
        version = self.storage.version()
        self.make_machine("b")
        everything, since = self.open(), self.open(f"&resourceVersion={version}")
        self.assertTrue(everything.head.startswith(b"HTTP/1.1 101 "))
        self.make_machine("c")
        self.assertEqual(self.told(everything), [("ADDED", name) for name in "abc"])
        self.assertEqual(self.told(since), [("ADDED", name) for name in "bc"])

    def test_large(self) -> None:
        """An object may be larger than anything that a client may say."""
        peer = self.open()
        large = {"a": "x" * (100 << 10), "b": "x" * (100 << 10)}
        self.make_machine("a")
        patch = {"metadata": {"annotations": large}}
        self.answer("PATCH", f"{MACHINES}/a", patch, content_type=MERGE)
        self.make_machine("b")
        self.assertEqual(self.told(peer), [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b")])
        self.assertEqual(self.told(self.open()), [("ADDED", "a"), ("ADDED", "b")])

    def test_subprotocol(self) -> None:
        """A browser that offers one gets it; its token is none, and is not told back."""
        token = b"base64url.bearer.authorization.k8s.io.YWRtaW4"
        peer = self.open(protocols=token + b", base64.binary.k8s.io")
        self.assertIn(b"Sec-WebSocket-Protocol: base64.binary.k8s.io\r\n", peer.head + b"\r\n")
        self.assertNotIn(b"YWRtaW4", peer.head)

    def test_time_is_over(self) -> None:
        """The server closes in good order when the watch's time is over."""
        peer = self.open("&timeoutSeconds=5&allowWatchBookmarks=1")
        self.clock.advance(5)
        bookmark, close = peer.events()
        self.assertEqual(json.loads(bookmark.data)["type"], "BOOKMARK")
        self.assertEqual((type(close), close.code), (CloseConnection, 1000))

    def test_refused_in_the_stream(self) -> None:
        """An error of the event cache is an event here too."""
        peer = self.open(f"&resourceVersion={self.storage.version() + 5}")
        error, close = peer.events()
        self.assertEqual(json.loads(error.data)["object"]["code"], 504)
        self.assertEqual(close.code, 1000)

    def test_client_closes(self) -> None:
        """A closing client gets a close frame, and nothing is left of its watch."""
        timers = len(self.clock.getDelayedCalls())
        peer = self.open("&allowWatchBookmarks=1")
        peer.say(CloseConnection(1000))
        self.assertEqual([type(event) for event in peer.events()], [CloseConnection])
        peer.client.lose()
        self.assertEqual(len(self.clock.getDelayedCalls()), timers)
        self.make_machine("a")

    def test_client_leaves(self) -> None:
        """A client that disconnects without closing leaves nothing of its watch, either."""
        timers = len(self.clock.getDelayedCalls())
        self.open("&allowWatchBookmarks=1").client.lose()
        self.assertEqual(len(self.clock.getDelayedCalls()), timers)
        self.make_machine("a")

    def test_client_talks(self) -> None:
        """Messages of the client are ignored; its pings are answered."""
        peer = self.open()
        peer.send(b"hello")
        peer.say(Ping(b"?"))
        self.assertEqual([type(event) for event in peer.events()], [Pong])
        self.make_machine("a")
        self.assertEqual(self.told(peer), [("ADDED", "a")])

    def test_client_does_not_read(self) -> None:
        """
        The buffer for a client that does not read is limited; when it reads, it gets the rest.
        """
        peer = self.open()
        peer.client.transport.producer.pauseProducing()
        self.make_machine("a")
        self.assertEqual(self.told(peer), [])
        self.assertGreater(len(self.server.site.unread), 0)
        peer.client.transport.producer.resumeProducing()
        self.assertEqual(self.told(peer), [("ADDED", "a")])
        peer.client.transport.producer.pauseProducing()
        for number in range(8):
            self.make_machine(f"m{number}", efiVars=[{"name": "x", "value": "x" * (600 << 10)}])
        self.assertTrue(peer.client.aborted)
        self.assertEqual(len(self.server.site.unread), 0)

    def test_server_stops(self) -> None:
        """A server that stops ends these watches as well."""
        peer = self.open()
        for watches in self.parts.watches:
            watches.end_all()
        (close,) = peer.events()
        self.assertEqual(close.code, 1000)

    def test_no_handshake(self) -> None:
        """A handshake that is not complete is refused."""
        client = self.server.connect()
        path = f"{MACHINES}?watch=1".encode()
        client.send(handshake(ADMIN, path=path).replace(b"Version: 13", b"Version: 7"))
        (response,) = client.responses()
        self.assertEqual(response.code, 400)
        self.assertIn("Sec-WebSocket-Version must be 13", response.json()["message"])

    def test_not_for_everyone(self) -> None:
        """Without permission the request is refused before the upgrade."""
        for user, code in ((b"bob", 403), (b"nobody", 401)):
            client = self.server.connect()
            known = b"Authorization: Bearer " + user
            client.send(handshake(known, path=f"{MACHINES}?watch=1".encode()))
            (response,) = client.responses()
            self.assertEqual(response.code, code)

    def test_too_many(self) -> None:
        """Watches over WebSockets count toward the limit of watches."""
        peers = [self.open() for _ in range(3)]
        client = self.server.connect()
        client.send(handshake(ADMIN, path=f"{MACHINES}?watch=1".encode()))
        (response,) = client.responses()
        self.assertEqual(response.code, 429)
        for peer in peers:
            peer.client.lose()
        self.assertTrue(self.open().head.startswith(b"HTTP/1.1 101 "))
