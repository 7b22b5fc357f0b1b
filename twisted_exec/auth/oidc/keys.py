"""
The keys of an OIDC issuer, fetched from its discovery document.

They are cached, and count for some time while the issuer does not answer. A token with an unknown
key triggers an earlier fetch, but not often: any client can make such tokens.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import Interface, implementer

from twisted_exec.api import bodies
from twisted_exec.api.status import APIError
from twisted_exec.auth.jwt_keys import VerifyingKey, jwks_keys
from twisted_exec.auth.oidc.claims import Issuer, checked_url
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError, Material
from twisted_exec.kube.kubeconfig.environment import proxy_for
from twisted_exec.kube.transport import HTTPTransport, Request
from twisted_exec.program.tasks import as_deferred

LONGEST_SECONDS = 3600.0
"""Longest lifetime of cached keys."""
SHORTEST_SECONDS = 60.0
"""Shortest lifetime of cached keys."""
GRACE_SECONDS = 86400.0
"""Additional lifetime of cached keys while the issuer does not answer."""
PAUSE_SECONDS = 10.0
"""Pause after each fetch."""

_LIMIT_BYTES = 1 << 20
_TIMEOUT_SECONDS = 10.0
_MAX_AGE = re.compile(r"(?:^|,)\s*max-age=\"?(\d{1,9})\"?\s*(?:,|$)", re.IGNORECASE | re.ASCII)
_NOT_KEPT = re.compile(r"(?:^|,)\s*no-(?:store|cache)\s*(?:,|$)", re.IGNORECASE)


class Unpublished(Exception):
    """The issuer does not publish its keys; one line with the reason."""


class IKeyFetcher(Interface):
    """Fetches documents."""

    def fetch(url: str, ca_pem: bytes) -> Deferred[tuple[bytes, float]]:
        """
        Fetch a document.

        :param ca_pem: CAs of the server; empty for the system's.
        :return: fires with the document and its cache lifetime in seconds; fails with
            :class:`Unpublished`.
        """


@implementer(IKeyFetcher)
class HTTPSFetcher:
    """Fetches documents by HTTPS, on one connection each."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def fetch(self, url: str, ca_pem: bytes) -> Deferred[tuple[bytes, float]]:
        return Deferred.fromCoroutine(self._fetch(url, ca_pem))

    async def _fetch(self, url: str, ca_pem: bytes) -> tuple[bytes, float]:
        code, headers, document = await self._collect(url, ca_pem, "GET")
        if code != 200:
            raise Unpublished(f"{url} answered {code}")
        return document, kept_seconds(headers.get("cache-control", ""))

    @as_deferred
    async def post(self, url: str, ca_pem: bytes, form: Mapping[str, str]) -> tuple[int, bytes]:
        """Post a form; fires with the code and the document, or fails with :class:`Unpublished`."""
        code, _, document = await self._collect(
            url,
            ca_pem,
            "POST",
            body=urlencode(form).encode("ascii"),
            content_type="application/x-www-form-urlencoded",
            headers=[("Accept", "application/json")],
        )
        return code, document

    async def _collect(
        self, url: str, ca_pem: bytes, method: str, **request: Any
    ) -> tuple[int, Mapping[str, str], bytes]:
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
                return await transport.collect(
                    Request(method, target, **request),
                    timeout_seconds=_TIMEOUT_SECONDS,
                    limit_bytes=_LIMIT_BYTES,
                )
            finally:
                await transport.close()
        except (APIError, KubeConfigError) as problem:
            raise Unpublished(str(problem)) from None


def kept_seconds(cache_control: str) -> float:
    """Return the cache lifetime by a ``Cache-Control`` header, within our own limits."""
    if _NOT_KEPT.search(cache_control):
        return SHORTEST_SECONDS
    max_age = _MAX_AGE.search(cache_control)
    return (
        min(max(float(max_age[1]), SHORTEST_SECONDS), LONGEST_SECONDS)
        if max_age
        else LONGEST_SECONDS
    )


class IssuerKeys:
    """The keys of one issuer."""

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
        Return the current keys, one or more.

        :raises Unpublished: there are none.
        """
        if self._clock.seconds() >= self._fresh_until:
            await self._look()
        if not self._keys or self._clock.seconds() >= self._good_until:
            raise Unpublished(self._problem or "its keys cannot be had")
        return self._keys

    async def newer(self) -> tuple[VerifyingKey, ...]:
        """
        Fetch the keys again, unless that was done just now.

        :raises Unpublished: the last fetch failed, so there may be a key that is not known here.
        """
        await self._look()
        if self._problem:
            raise Unpublished(self._problem)
        return await self.known()

    def close(self) -> None:
        """Stop fetching."""
        if self._looking is not None:
            self._looking.cancel()

    def _look(self) -> Deferred[None]:
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
                "cannot fetch the keys of {issuer}, so its tokens are {what}: {why}",
                issuer=self._issuer.url,
                what="verified with cached keys" if self._keys else "not accepted",
                why=why,
            )
        self._problem = why

    async def _fetch(self) -> None:
        issuer = self._issuer
        document, _ = await self._fetcher.fetch(issuer.discovery, issuer.ca_pem)
        where = discovered_url(discovered(document, issuer.url), "jwks_uri", issuer.url)
        document, seconds = await self._fetcher.fetch(where, issuer.ca_pem)
        self._keys = _read(lambda: jwks_keys(document), where)
        self._fresh_until = self._clock.seconds() + seconds
        self._good_until = self._fresh_until + GRACE_SECONDS
        if self._problem:
            self._log.info("fetched the keys of {issuer} again", issuer=issuer.url)
        self._problem = ""


def _read(parse: Callable[[], Any], where: str) -> Any:
    try:
        return parse()
    except ValueError as problem:
        raise Unpublished(f"{where}: {problem}") from None


def discovered(document: bytes, issuer: str) -> Mapping[str, Any]:
    """
    Parse the discovery document of an issuer.

    :raises Unpublished: it is not such a document.
    """
    try:
        discovery = bodies.decode("application/json", document)
    except APIError:
        raise Unpublished(f"the discovery document of {issuer} is not a JSON object") from None
    if discovery.get("issuer") != issuer:
        raise Unpublished(f"the discovery document of {issuer} is that of another issuer")
    return discovery


def discovered_url(discovery: Mapping[str, Any], name: str, issuer: str) -> str:
    """
    Return a URL of a discovery document.

    :raises Unpublished: it is missing or not acceptable.
    """
    try:
        return checked_url(discovery.get(name), query=True)
    except ValueError as problem:
        raise Unpublished(f"the {name} of {issuer} {problem}") from None
