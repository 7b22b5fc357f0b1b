"""Tests for :mod:`twisted_exec.tls.spares`, with real connections."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from cryptography import x509
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.chain import until
from tests.tls.support import (
    LoopbackCase,
    Recorders,
    authority,
    client_identity,
    reactor,
    server_identity,
)
from twisted_exec.tls import spares as module
from twisted_exec.tls.client import ClientCredentials
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.tls.server import peer_certificate
from twisted_exec.tls.spares import IDLE_SECONDS, PAUSE_SECONDS, SpareConnections, SparingEndpoint


class SpareTests(LoopbackCase):
    """One spare connection to each peer in use."""

    def setUp(self) -> None:
        super().setUp()
        self.clock = Clock()
        self.spares = SpareConnections(self.clock)
        self.addCleanup(lambda: self.spares.close())
        self.accepted = self.recorders()
        user = client_identity("apiserver")
        self.ca = self.write("ca.crt", authority("serving").certificate_pem)
        self.certificate = self.write("client.crt", user.certificate_pem)
        self.key = self.write("client.key", user.key_pem)
        self.credentials = ClientCredentials(
            ca=self.ca, certificate=self.certificate, key=self.key, clock=self.clock
        )

    async def peer(self, accepted: Recorders | None = None) -> SparingEndpoint:
        """An endpoint to a server of its own."""
        users = self.write("users.crt", authority("users").certificate_pem)
        tls = self.server_tls(client_cas=[users])
        port = await self.listen(accepted or self.accepted, tls)
        settings = self.credentials.to("localhost")
        inner = client_endpoint(reactor, "127.0.0.1", port.getHost().port, settings)
        return self.spares.endpoint(port.getHost().port, inner, settings)

    async def spare(self, endpoint: SparingEndpoint, accepted: Recorders | None = None) -> Any:
        """Make a spare connection; its end at the peer."""
        coming = (accepted or self.accepted).next()
        before = len(self.spares)
        endpoint.replenish()
        self.clock.advance(PAUSE_SECONDS)
        peer = await coming
        await until(lambda: len(self.spares) > before)
        await self.settled(peer)
        return peer

    async def settled(self, peer: Any) -> None:
        """Let what the peer sends behind the handshake arrive, which are session tickets."""
        await until(lambda: not peer.transport.is_shaking)
        turns = iter((False, False, True))
        await until(lambda: next(turns))

    async def test_used_once(self) -> None:
        """The spare connection is taken, with our certificate, and then there is none."""
        endpoint = await self.peer()
        peer = await self.spare(endpoint)
        user = self.recorders()
        taken = endpoint.take(user)
        taken.transport.write(b"GET / HTTP/1.1\r\n\r\n")
        self.assertEqual(await peer.has(18), b"GET / HTTP/1.1\r\n\r\n")
        certificate = peer_certificate(peer.transport)
        self.assertEqual(certificate and certificate.common_name, "apiserver")
        peer.transport.write(b"answer")
        self.assertEqual(await taken.has(6), b"answer")
        self.assertIsNone(endpoint.take(user))
        self.clock.advance(IDLE_SECONDS + 1)
        self.assertFalse(taken.lost.called)
        self.assertEqual(len(self.accepted.made), 1)

    async def test_nothing_without_openings(self) -> None:
        """An endpoint makes no connection by itself, and connecting makes no spare one."""
        endpoint = await self.peer()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        coming = self.accepted.next()
        await endpoint.connect(self.recorders())
        await coming
        self.assertEqual((self.clock.getDelayedCalls(), len(self.spares)), ([], 0))

    async def test_many_openings(self) -> None:
        """While one opening follows the other, no spare connection is made."""
        endpoint = await self.peer()
        for _ in range(3):
            endpoint.replenish()
            self.clock.advance(PAUSE_SECONDS * 0.6)
            self.assertIsNone(endpoint.take(self.recorders()))  # the next opening begins
            self.clock.advance(PAUSE_SECONDS * 0.6)
        self.assertEqual(len(self.accepted.made), 0)
        coming = self.accepted.next()
        self.clock.advance(PAUSE_SECONDS)
        await coming

    async def test_one_for_each_peer(self) -> None:
        """Further openings make no second spare connection to a peer."""
        endpoint = await self.peer()
        await self.spare(endpoint)
        again = self.spares.endpoint(endpoint.peer, endpoint, endpoint.tls)
        for each in (endpoint, again):
            each.replenish()
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)  # it is closed when idle
        other = self.recorders()
        await self.spare(await self.peer(other), other)
        self.assertEqual((len(self.spares), len(self.accepted.made)), (2, 1))
        self.assertIsNotNone(again.take(self.recorders()))
        self.assertIsNone(endpoint.take(self.recorders()))

    async def test_most(self) -> None:
        """Beyond the limit of all peers the oldest spare connection is closed."""
        self.spares = SpareConnections(self.clock, most=1)
        first = await self.peer()
        oldest = await self.spare(first)
        accepted = self.recorders()
        second, coming = await self.peer(accepted), accepted.next()
        second.replenish()
        self.clock.advance(PAUSE_SECONDS)
        await oldest.lost
        await self.settled(await coming)
        self.assertIsNone(first.take(self.recorders()))
        self.assertIsNotNone(second.take(self.recorders()))

    async def test_idle(self) -> None:
        """A spare connection that nobody takes is closed after a minute, and not replaced."""
        endpoint = await self.peer()
        peer = await self.spare(endpoint)
        self.clock.pump([1] * int(IDLE_SECONDS - 1))
        self.assertEqual(len(self.spares), 1)
        self.clock.advance(1)
        await peer.lost
        self.assertEqual((len(self.spares), self.clock.getDelayedCalls()), (0, []))

    async def test_closed_by_the_peer(self) -> None:
        """A spare connection that the peer closes is not used; there is no error."""
        endpoint = await self.peer()
        peer = await self.spare(endpoint)
        peer.transport.loseConnection()
        await peer.lost
        await until(lambda: not len(self.spares))
        self.assertIsNone(endpoint.take(self.recorders()))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    async def test_closed_in_this_turn(self) -> None:
        """Nor is one used whose end has arrived but was not read yet."""
        endpoint = await self.peer()
        peer = await self.spare(endpoint)
        # Both ends are in this process, and the reactor does not run in between.
        peer.transport.loseConnection()
        peer.transport.doWrite()
        self.assertIsNone(endpoint.take(self.recorders()))
        await peer.lost
        self.assertEqual(len(self.spares), 0)

    async def test_peer_that_speaks_first(self) -> None:
        """Nor one on which the peer has sent anything, such as that it closes the connection."""
        endpoint = await self.peer()
        peer = await self.spare(endpoint)
        peer.transport.write(b"HTTP/1.1 421 Misdirected Request\r\n\r\n")
        await peer.lost
        self.assertIsNone(endpoint.take(self.recorders()))

    async def test_ca_changed(self) -> None:
        """A spare connection from before a change of the CA is closed within a second, unused."""
        endpoint = await self.peer()
        peer = await self.spare(endpoint)
        self.write("ca.crt", authority("another").certificate_pem)
        self.clock.advance(1)
        await peer.lost
        self.assertIsNone(endpoint.take(self.recorders()))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    async def test_certificate_changed(self) -> None:
        """Likewise from before a change of our certificate; one with the new one is used."""
        endpoint = await self.peer()
        peer = await self.spare(endpoint)
        user = client_identity("another")
        self.write("client.key", user.key_pem)
        self.write("client.crt", user.certificate_pem)
        self.clock.advance(1)
        await peer.lost
        self.assertIsNone(endpoint.take(self.recorders()))
        peer = await self.spare(endpoint)
        self.assertIsNotNone(endpoint.take(self.recorders()))
        certificate = peer_certificate(peer.transport)
        self.assertEqual(certificate and certificate.common_name, "another")

    async def test_other_settings(self) -> None:
        """An endpoint to the same peer with another name, CA or certificate does not take it."""
        endpoint = await self.peer()
        user = client_identity("another")
        ours = {"certificate_pem": user.certificate_pem, "key_pem": user.key_pem}
        mine = client_identity("apiserver")
        same = {"certificate_pem": mine.certificate_pem, "key_pem": mine.key_pem}
        for settings, is_taken in (
            (self.client_tls(**ours), False),
            (self.client_tls(ca_pem=authority("another").certificate_pem, **same), False),
            (self.client_tls("other.test", **same), False),
            (self.client_tls(**same), True),
        ):
            await self.spare(endpoint)
            other = self.spares.endpoint(endpoint.peer, endpoint, settings)
            taken = other.take(self.recorders())
            self.assertEqual(taken is not None, is_taken)

    async def test_certificate_of_the_peer_expired(self) -> None:
        """A spare connection whose peer's certificate has expired meanwhile is not used."""
        endpoint = await self.peer()
        peer = await self.spare(endpoint)
        shown = server_identity("localhost", "127.0.0.1").certificate_pem
        with patch.object(module, "datetime") as time:
            time.now.return_value = x509.load_pem_x509_certificate(shown).not_valid_after_utc
            self.assertIsNone(endpoint.take(self.recorders()))
        await peer.lost

    async def test_close(self) -> None:
        """A program that stops closes all spare connections, and makes no others."""
        endpoint = await self.peer()
        peer = await self.spare(endpoint)
        self.spares.close()
        await peer.lost
        endpoint.replenish()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    async def test_close_while_connecting(self) -> None:
        """A connection that is being made is given up, too."""
        endpoint = await self.peer()
        endpoint.replenish()
        self.spares.close()
        self.assertEqual((self.clock.getDelayedCalls(), len(self.spares)), ([], 0))

    async def test_no_peer(self) -> None:
        """That no spare connection can be made is no error; later ones are tried."""
        settings = self.credentials.to("localhost")
        attempt: Deferred[Any] = Deferred()

        class Nowhere:
            def connect(self, factory: object) -> Deferred[Any]:
                return attempt

        endpoint = self.spares.endpoint("nowhere", Nowhere(), settings)  # type: ignore[arg-type]
        endpoint.replenish()
        self.clock.advance(PAUSE_SECONDS)
        attempt.errback(OSError("nobody listens"))
        self.assertEqual((self.clock.getDelayedCalls(), len(self.spares)), ([], 0))
        endpoint.replenish()
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
