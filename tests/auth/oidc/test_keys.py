"""
Tests for :mod:`twisted_exec.auth.oidc.keys`.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Coroutine
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from tests.auth import forge
from tests.auth.provider import DISCOVERY, KEYS, Provider
from tests.tls.support import authority
from twisted_exec.auth.oidc.claims import Issuer, MappedClaim
from twisted_exec.auth.oidc.keys import (
    GRACE_SECONDS,
    LONGEST_SECONDS,
    PAUSE_SECONDS,
    SHORTEST_SECONDS,
    HTTPSFetcher,
    IKeyFetcher,
    IssuerKeys,
    Unpublished,
    kept_seconds,
)

reactor: Any = _reactor
URL = "https://issuer.example"
ISSUER = Issuer(URL, ("exec",), MappedClaim("sub"), ca_pem=b"ca")
DOCUMENT = {"issuer": URL, "jwks_uri": "https://keys.example/k?p=1"}


@implementer(IKeyFetcher)
class Fetcher:
    """A fetcher whose answers the test supplies."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes]] = []
        self.open: list[Deferred[tuple[bytes, float]]] = []

    def fetch(self, url: str, ca_pem: bytes) -> Deferred[tuple[bytes, float]]:
        self.asked.append((url, ca_pem))
        self.open.append(Deferred())
        return self.open[-1]

    def answer(self, document: object, seconds: float = 600) -> None:
        raw = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.open.pop(0).callback((raw, seconds))

    def fail(self, why: str) -> None:
        self.open.pop(0).errback(Unpublished(why))

    def publish(self, *kids: str, seconds: float = 600) -> None:
        """Both documents, with a key of each name."""
        self.answer(DOCUMENT)
        self.answer(forge.jwks(*[forge.jwk(forge.rsa_key(), kid) for kid in kids]), seconds)


class IssuerKeysTests(SynchronousTestCase):
    """Tests for :class:`IssuerKeys`."""

    def setUp(self) -> None:
        self.clock, self.fetcher = Clock(), Fetcher()
        self.keys = IssuerKeys(ISSUER, self.fetcher, self.clock)

    def kids(self, asking: Coroutine[Any, Any, Any]) -> Deferred[list[str]]:
        return Deferred.fromCoroutine(asking).addCallback(lambda found: [key.kid for key in found])

    def known(self, *kids: str, seconds: float = 600) -> None:
        """The issuer has published these keys."""
        asking = self.kids(self.keys.known())
        self.fetcher.publish(*kids, seconds=seconds)
        self.assertEqual(self.successResultOf(asking), list(kids))

    def test_two_documents(self) -> None:
        """The keys are where the discovery document says."""
        self.known("a", "b")
        self.assertEqual(
            self.fetcher.asked,
            [(ISSUER.discovery, b"ca"), ("https://keys.example/k?p=1", b"ca")],
        )

    def test_kept(self) -> None:
        """Keys are fetched again only once they are no longer fresh."""
        self.known("a")
        self.clock.advance(599)
        self.assertEqual(self.successResultOf(self.kids(self.keys.known())), ["a"])
        self.clock.advance(1)
        asking = self.kids(self.keys.known())
        self.assertNoResult(asking)
        self.fetcher.publish("b")
        self.assertEqual(self.successResultOf(asking), ["b"])

    def test_once_for_all(self) -> None:
        """
        Concurrent requests share one fetch, and cancelling a request does not affect the others.
        """
        asking = [self.kids(self.keys.known()) for _ in range(50)]
        asking[0].cancel()
        self.failureResultOf(asking[0])
        self.fetcher.publish("a")
        for each in asking[1:]:
            self.assertEqual(self.successResultOf(each), ["a"])
        self.assertEqual(len(self.fetcher.asked), 2)

    def test_down_at_first(self) -> None:
        """An issuer that is down is logged once, retried after a pause, and recovers."""
        for _ in range(3):
            asking = self.kids(self.keys.known())
            self.fetcher.fail("cannot reach the identity provider")
            self.failureResultOf(asking, Unpublished)
            self.clock.advance(PAUSE_SECONDS - 1)
            self.failureResultOf(self.kids(self.keys.known()), Unpublished)
            self.clock.advance(1)
        self.assertEqual(len(self.fetcher.asked), 3)
        self.known("a")

    def test_down_later(self) -> None:
        """While the issuer is down, its keys stay valid for one more day."""
        self.known("a")
        for passed in (600, GRACE_SECONDS - 1):
            self.clock.advance(passed if passed == 600 else passed - self.clock.seconds() + 600)
            asking = self.kids(self.keys.known())
            self.fetcher.fail("cannot reach it")
            self.assertEqual(self.successResultOf(asking), ["a"])
        self.clock.advance(PAUSE_SECONDS + 1)
        asking = self.kids(self.keys.known())
        self.fetcher.fail("cannot reach it")
        self.failureResultOf(asking, Unpublished)

    def test_newer(self) -> None:
        """Another fetch can be requested, but at most every few seconds."""
        self.known("a")
        self.assertEqual(self.successResultOf(self.kids(self.keys.newer())), ["a"])
        self.clock.advance(PAUSE_SECONDS)
        asking = self.kids(self.keys.newer())
        self.fetcher.publish("b")
        self.assertEqual(self.successResultOf(asking), ["b"])
        for _ in range(100):
            self.assertEqual(self.successResultOf(self.kids(self.keys.newer())), ["b"])
        self.assertEqual(len(self.fetcher.asked), 4)

    def test_newer_while_down(self) -> None:
        """While the issuer is down, nobody knows whether there is a newer key."""
        self.known("a")
        self.clock.advance(PAUSE_SECONDS)
        asking = self.kids(self.keys.newer())
        self.fetcher.fail("cannot reach it")
        self.failureResultOf(asking, Unpublished)
        self.failureResultOf(self.kids(self.keys.newer()), Unpublished)
        self.assertEqual(self.successResultOf(self.kids(self.keys.known())), ["a"])

    def test_other_issuer(self) -> None:
        """A discovery document of another issuer is refused."""
        for told in ({**DOCUMENT, "issuer": f"{URL}/"}, {"jwks_uri": URL}, [], b"<html>"):
            asking = self.kids(self.keys.known())
            self.fetcher.answer(told)
            why = str(self.failureResultOf(asking, Unpublished).value)
            self.assertIn(f"the discovery document of {URL} is", why)
            self.clock.advance(PAUSE_SECONDS)
        self.assertEqual({url for url, _ in self.fetcher.asked}, {ISSUER.discovery})

    def test_key_set_elsewhere(self) -> None:
        """Keys are fetched by https only."""
        for url in (None, 5, "http://keys.example", "file:///etc/passwd", "https://a@b/", "//x"):
            asking = self.kids(self.keys.known())
            self.fetcher.answer({**DOCUMENT, "jwks_uri": url})
            why = str(self.failureResultOf(asking, Unpublished).value)
            self.assertIn(f"the jwks_uri of {URL}", why)
            self.clock.advance(PAUSE_SECONDS)

    def test_no_keys(self) -> None:
        """An invalid key set does not replace the current keys."""
        self.known("a")
        self.clock.advance(600)
        asking = self.kids(self.keys.known())
        self.fetcher.answer(DOCUMENT)
        self.fetcher.answer({"keys": []})
        self.assertEqual(self.successResultOf(asking), ["a"])

    def test_close(self) -> None:
        """Closing cancels a fetch."""
        asking = self.kids(self.keys.known())
        self.keys.close()
        self.failureResultOf(asking, Unpublished)


class KeptSecondsTests(SynchronousTestCase):
    """Tests for :func:`kept_seconds`."""

    def test_bounds(self) -> None:
        """The issuer's cache lifetime counts, between a minute and an hour."""
        for header, expected in (
            ("", LONGEST_SECONDS),
            ("public", LONGEST_SECONDS),
            ("max-age=600", 600),
            ('public, Max-Age="600", must-revalidate', 600),
            ("max-age=86400", LONGEST_SECONDS),
            ("max-age=99999999999999999", LONGEST_SECONDS),
            ("max-age=0", SHORTEST_SECONDS),
            ("max-age=600, no-store", SHORTEST_SECONDS),
            ("no-cache", SHORTEST_SECONDS),
            ("s-maxage=1", LONGEST_SECONDS),
        ):
            self.assertEqual(kept_seconds(header), expected, header)


class HTTPSFetcherTests(TestCase):
    """Tests for :class:`HTTPSFetcher`, with a real provider."""

    async def setUp(self) -> None:
        self.provider = Provider()
        self.addCleanup(lambda: Deferred.fromCoroutine(self.provider.stop()))
        await self.provider.listen(reactor, self.mktemp())
        self.fetcher = HTTPSFetcher(reactor)

    async def why(self, url: str, ca_pem: bytes | None = None) -> str:
        ca_pem = self.provider.ca_pem if ca_pem is None else ca_pem
        with self.assertRaises(Unpublished) as caught:
            await self.fetcher.fetch(url, ca_pem)
        return str(caught.exception)

    def test_door(self) -> None:
        """The class implements IKeyFetcher."""
        verifyObject(IKeyFetcher, self.fetcher)

    async def test_fetch(self) -> None:
        """A document comes with the time that it may be kept."""
        self.provider.answers[KEYS] = (200, {"Cache-Control": "max-age=120"}, b"keys")
        found = await self.fetcher.fetch(self.provider.url + KEYS, self.provider.ca_pem)
        self.assertEqual(found, (b"keys", 120.0))

    async def test_whole(self) -> None:
        """Keys of a real provider are fetched by way of its discovery document."""
        issuer = Issuer(
            self.provider.url, ("exec",), MappedClaim("sub"), ca_pem=self.provider.ca_pem
        )
        keys = await IssuerKeys(issuer, self.fetcher, reactor).known()
        self.assertEqual([key.kid for key in keys], ["k1"])
        self.assertEqual(self.provider.asked, [DISCOVERY, KEYS])

    async def test_stranger(self) -> None:
        """A server with an untrusted certificate gets no request."""
        self.assertIn(
            "cannot reach the identity provider",
            await self.why(self.provider.url, authority("users").certificate_pem),
        )
        self.assertIn("cannot reach", await self.why(self.provider.url, b""))
        other = self.provider.url.replace("localhost", "127.0.0.1")
        self.assertIn('not valid for "127.0.0.1"', await self.why(other))
        self.assertEqual(self.provider.asked, [])

    async def test_redirect(self) -> None:
        """A redirect is not followed."""
        for code in (301, 302, 307):
            target = {"Location": f"{self.provider.url}{KEYS}"}
            self.provider.answers[DISCOVERY] = (code, target, b"")
            self.assertIn(f"answered {code}", await self.why(self.provider.url + DISCOVERY))
        self.assertNotIn(KEYS, self.provider.asked)

    async def test_oversized(self) -> None:
        """A response that is too large is an error."""
        self.provider.answers[KEYS] = (200, {}, b"x" * (2 << 20))
        self.assertIn("larger than", await self.why(self.provider.url + KEYS))

    async def test_gone(self) -> None:
        """A refused connection is reported with the address."""
        url = self.provider.url
        await self.provider.stop()
        self.assertIn(f"cannot reach the identity provider {url}", await self.why(url))

    async def test_silent(self) -> None:
        """A server that accepts the request and does not answer runs into the time limit."""
        self.provider.silent.add(KEYS)
        asking = self.fetcher.fetch(self.provider.url + KEYS, self.provider.ca_pem)
        asking.cancel()
        await self.assertFailure(asking, Exception)

    async def test_given_up(self) -> None:
        """A fetch can be cancelled at any time, and no error is logged."""
        for turns in range(24):
            asking = self.fetcher.fetch(self.provider.url + KEYS, self.provider.ca_pem)
            for _ in range(turns):
                await deferLater(reactor, 0)
            asking.cancel()
            try:
                await asking
            except (CancelledError, Unpublished):
                continue
        gc.collect()
        self.assertEqual(self.flushLoggedErrors(), [])
