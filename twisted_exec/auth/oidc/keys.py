"""
The keys of an issuer, as it publishes them.

Two documents: the discovery document, which names the key set, and the key set.  Both come by
verified TLS, without redirects, bounded in size and time, and the first must name the issuer
itself.  They are asked for when they are needed and once for all who wait.

Keys count for as long as their answer says, for an hour at most; then they are fetched again, and
an issuer that does not answer then is believed a day longer by those that are at hand: to sign in
must not depend on two servers all the time, and a key that was withdrawn must not count for ever.
A token with an unknown key is a reason to look before, but strangers can make such tokens, so not
more often than every few seconds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import Interface, implementer

from twisted_exec.api import body
from twisted_exec.api.status import APIError
from twisted_exec.auth.jose.keys import VerifyingKey, jwks_keys
from twisted_exec.auth.oidc.issuer import Issuer, checked_url
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError, Material
from twisted_exec.kube.kubeconfig.environment import proxy_for
from twisted_exec.kube.transport.http import HTTPTransport, Request

LONGEST_SECONDS = 3600.0
"""How long keys count at most."""
SHORTEST_SECONDS = 60.0
"""... and at least, whatever the issuer says: each look costs it two requests."""
GRACE_SECONDS = 86400.0
"""How long they count beyond that while the issuer does not answer."""
PAUSE_SECONDS = 10.0
"""Between two looks that did not bring what was looked for."""

_LIMIT_BYTES = 1 << 20
_TIMEOUT_SECONDS = 10.0
_MAX_AGE = re.compile(r"(?:^|,)\s*max-age=\"?(\d{1,9})\"?\s*(?:,|$)", re.IGNORECASE | re.ASCII)
_NOT_KEPT = re.compile(r"(?:^|,)\s*no-(?:store|cache)\s*(?:,|$)", re.IGNORECASE)


class Unpublished(Exception):
    """An issuer's keys cannot be had; one line says why."""


class IKeyFetcher(Interface):
    """Fetches documents."""

    def fetch(url: str, ca_pem: bytes) -> Deferred[tuple[bytes, float]]:
        """
        :param ca_pem: whom to believe; empty for the system's CAs.
        :return: fires with a document and the seconds that it may be kept; fails with
            :class:`Unpublished`.
        """


@implementer(IKeyFetcher)
class HTTPSFetcher:
    """Fetches documents by HTTPS, each with a connection of its own."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def fetch(self, url: str, ca_pem: bytes) -> Deferred[tuple[bytes, float]]:
        """As :meth:`IKeyFetcher.fetch`."""
        return Deferred.fromCoroutine(self._fetch(url, ca_pem))

    async def _fetch(self, url: str, ca_pem: bytes) -> tuple[bytes, float]:
        parts = urlsplit(url)
        target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        try:
            config = ClientConfig(
                server=f"https://{parts.netloc}",
                ca=Material(data=ca_pem),
                proxy_url=proxy_for(parts, os.environ),
            )
            transport = HTTPTransport(config, self._reactor, peer="the identity provider")
            try:
                code, headers, document = await transport.collect(
                    Request("GET", target),
                    timeout_seconds=_TIMEOUT_SECONDS,
                    limit_bytes=_LIMIT_BYTES,
                )
            finally:
                await transport.close()
        except (APIError, KubeConfigError) as problem:
            raise Unpublished(str(problem)) from None
        if code != 200:
            raise Unpublished(f"{url} answered {code}")
        return document, kept_seconds(headers.get("cache-control", ""))


def kept_seconds(cache_control: str) -> float:
    """For how long an answer with this header may be kept, within our own bounds."""
    if _NOT_KEPT.search(cache_control):
        return SHORTEST_SECONDS
    told = _MAX_AGE.search(cache_control)
    return min(max(float(told[1]), SHORTEST_SECONDS), LONGEST_SECONDS) if told else LONGEST_SECONDS


class IssuerKeys:
    """
    The keys of one issuer.

    :param clock: ages them.
    """

    _log = Logger()

    def __init__(self, issuer: Issuer, fetcher: IKeyFetcher, clock: IReactorTime) -> None:
        self._issuer, self._fetcher, self._clock = issuer, fetcher, clock
        self._keys: tuple[VerifyingKey, ...] = ()
        self._fresh_until = self._good_until = self._next_look = 0.0
        self._looking: Deferred[None] | None = None
        self._waiting: list[Deferred[None]] = []
        self._problem = ""

    async def known(self) -> tuple[VerifyingKey, ...]:
        """
        The keys as they are now, one or more.

        :raises Unpublished: there are none, and could not be had.
        """
        if self._clock.seconds() >= self._fresh_until:
            await self._look()
        if not self._keys or self._clock.seconds() >= self._good_until:
            raise Unpublished(self._problem or "its keys cannot be had")
        return self._keys

    async def newer(self) -> tuple[VerifyingKey, ...]:
        """
        The keys after another look, unless that was just now.

        :raises Unpublished: as :meth:`known`.
        """
        await self._look()
        return await self.known()

    def close(self) -> None:
        """Look no further; whoever waits is told what is known."""
        if self._looking is not None:
            self._looking.cancel()

    def _look(self) -> Deferred[None]:
        """Fetch the keys, once for all who wait; fires, and never fails, when that is over."""
        waiter: Deferred[None] = Deferred()
        if self._looking is None and self._clock.seconds() < self._next_look:
            waiter.callback(None)
            return waiter
        self._waiting.append(waiter)
        if self._looking is None:
            self._looking = Deferred.fromCoroutine(self._fetch())
            self._looking.addBoth(self._looked)
        return waiter

    def _looked(self, result: object) -> None:
        self._looking = None
        self._next_look = self._clock.seconds() + PAUSE_SECONDS
        if isinstance(result, Failure) and not result.check(CancelledError):
            self._failed(result)
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.called:
                waiter.callback(None)

    def _failed(self, failure: Failure) -> None:
        why = str(failure.value) if failure.check(Unpublished) else repr(failure.value)
        if why != self._problem:
            self._log.warn(
                "keys of {issuer} cannot be had, so its tokens are {what}: {why}",
                issuer=self._issuer.url,
                what="judged by those at hand" if self._keys else "refused",
                why=why,
            )
        self._problem = why

    async def _fetch(self) -> None:
        issuer = self._issuer
        document, _ = await self._fetcher.fetch(issuer.discovery, issuer.ca_pem)
        where = _key_set_url(document, issuer.url)
        document, seconds = await self._fetcher.fetch(where, issuer.ca_pem)
        self._keys = _read(lambda: jwks_keys(document), where)
        self._fresh_until = self._clock.seconds() + seconds
        self._good_until = self._fresh_until + GRACE_SECONDS
        if self._problem:
            self._log.info("keys of {issuer} can be had again", issuer=issuer.url)
        self._problem = ""


def _read(parse: Callable[[], Any], where: str) -> Any:
    try:
        return parse()
    except ValueError as problem:
        raise Unpublished(f"{where}: {problem}") from None


def _key_set_url(document: bytes, issuer: str) -> str:
    """
    Where a discovery document says that the keys are.

    :raises Unpublished: it is another issuer's, or names no place that may be asked.
    """
    try:
        told = body.decode("application/json", document)
    except APIError:
        raise Unpublished(f"the discovery document of {issuer} is not a JSON object") from None
    if told.get("issuer") != issuer:
        raise Unpublished(f"the discovery document of {issuer} is that of another issuer")
    try:
        return checked_url(told.get("jwks_uri"), query=True)
    except ValueError as problem:
        raise Unpublished(f"the jwks_uri of {issuer} {problem}") from None
