"""
The page as an API server serves it: for anyone, with a login at OIDC issuers.

The login is the authorization code flow with PKCE (RFC 7636). This server exchanges the code for
the ID token, because most issuers let no page of another origin read their answer. Neither code nor
token is stored here.

Requests need no authentication, so their URLs come only from the configured issuers and their
discovery documents, over verified TLS and without redirects, and few requests are sent at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api import bodies
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    BadRequest,
    NotFound,
    RequestEntityTooLarge,
    TooManyRequests,
    UnsupportedMediaType,
)
from twisted_exec.auth.dispatcher import GatedRoutes
from twisted_exec.auth.oidc.claims import Issuer
from twisted_exec.auth.oidc.keys import (
    PAUSE_SECONDS,
    SHORTEST_SECONDS,
    Unpublished,
    discovered,
    discovered_url,
)
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.cross_site import refuse_other_sites
from twisted_exec.streaming.http.responses import respond_json
from twisted_exec.streaming.http.site import Request
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file
from twisted_exec.web.static import Page, protect

SCOPES = ("openid", "email", "profile")

_LIMIT_BYTES = 16 << 10
_LIMIT_TEXT = 8 << 10
_LIMIT_REASON = 300
_AT_ONCE = 16
"""Requests to issuers at once, for all pages together."""
_AT_ONCE_OF_HOST = 8
"""
Requests to issuers at once for pages on one host, which could otherwise keep all others from
logging in.
"""
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
_FIELDS = ("issuer", "code", "verifier", "redirectUri")


class IFetcher(Protocol):
    """Sends requests to issuers, as :class:`~twisted_exec.auth.oidc.keys.HTTPSFetcher` does."""

    def fetch(self, url: str, ca_pem: bytes) -> Deferred[tuple[bytes, float]]:
        """Fetch a document; fires with it and its cache lifetime in seconds."""

    def post(self, url: str, ca_pem: bytes, form: Mapping[str, str]) -> Deferred[tuple[int, bytes]]:
        """Post a form; fires with the code and the document."""


@dataclass(frozen=True)
class WebClient:
    """
    The page as a client of the issuers.

    :param client_id: registered at the issuer, with the page's address as redirect URI.
    :param secret_file: path of the client's secret; empty for a public client.
    """

    client_id: str
    scopes: Sequence[str] = SCOPES
    secret_file: str = ""


@dataclass(frozen=True)
class _Endpoints:
    until: float
    authorization: str = ""
    token: str = ""
    problem: str = ""


class IssuerLogin:
    """
    Serves ``/console/oidc/``.

    :param issuers: returns the configured issuers.
    :param allowed_origins: other sites whose pages may send requests.
    """

    _log = Logger()

    def __init__(
        self,
        client: WebClient,
        issuers: Callable[[], Sequence[Issuer]],
        fetcher: IFetcher,
        clock: IReactorTime,
        allowed_origins: Collection[bytes] = (),
    ) -> None:
        self._client, self._read_issuers, self._fetcher = client, issuers, fetcher
        self._clock, self._allowed = clock, allowed_origins
        self._discovered: dict[Issuer, _Endpoints] = {}
        self._sending: Counter[str] = Counter()

    def offers(self) -> list[dict[str, Any]]:
        """Return the issuers for ``config.json``."""
        return [
            {
                "name": urlsplit(issuer.url).hostname,
                "issuer": issuer.url,
                "clientId": self._client.client_id,
                "scopes": list(self._client.scopes),
            }
            for issuer in self._issuers()
        ]

    def add_to(self, routes: GatedRoutes) -> None:
        """Add the routes, which are open to anyone."""
        routes.add(["GET"], "/console/oidc/authorization", self._authorization, is_open=True)
        routes.add(["POST"], "/console/oidc/token", self._token, is_open=True)

    def _issuers(self) -> list[Issuer]:
        try:
            issuers = self._read_issuers()
        except TLSConfigError as problem:  # replaced after the start, before the first page
            self._log.warn("the web console offers no login: {problem}", problem=str(problem))
            return []
        return [each for each in issuers if self._client.client_id in each.audiences]

    def _issuer(self, url: str) -> Issuer:
        for issuer in self._issuers():
            if issuer.url == url:
                return issuer
        raise NotFound("issuers", url[:_LIMIT_REASON])

    async def _authorization(self, context: RequestContext) -> None:
        protect(context.request.responseHeaders)
        url = (context.request.args or {}).get(b"issuer", [b""])[0]
        issuer = self._issuer(url.decode("utf-8", "replace"))
        endpoints = await self._endpoints(issuer, context.request.client_host)
        context.request.setHeader(b"Cache-Control", b"no-store")
        respond_json(context.request, 200, {"endpoint": endpoints.authorization})

    async def _token(self, context: RequestContext) -> None:
        request = context.request
        protect(request.responseHeaders)
        refuse_other_sites(request, self._allowed)
        fields = _fields(request)
        issuer = self._issuer(fields["issuer"])
        endpoints = await self._endpoints(issuer, request.client_host)
        token = await self._exchange(issuer, endpoints.token, fields, request.client_host)
        request.setHeader(b"Cache-Control", b"no-store")
        respond_json(request, 200, {"token": token})

    async def _endpoints(self, issuer: Issuer, host: str) -> _Endpoints:
        cached = self._discovered.get(issuer)
        if cached is None or self._clock.seconds() >= cached.until:
            cached = self._discovered[issuer] = await self._discover(issuer, host)
        if cached.problem:
            raise BadGateway(f"the identity provider cannot be used: {cached.problem}")
        return cached

    async def _discover(self, issuer: Issuer, host: str) -> _Endpoints:
        try:
            document, seconds = await self._limited(
                host, lambda: self._fetcher.fetch(issuer.discovery, issuer.ca_pem)
            )
            discovery = discovered(document, issuer.url)
            authorization, token = (
                discovered_url(discovery, f"{name}_endpoint", issuer.url)
                for name in ("authorization", "token")
            )
        except Unpublished as problem:
            self._log.warn("no login at {url}: {problem}", url=issuer.url, problem=str(problem))
            until = self._clock.seconds() + PAUSE_SECONDS
            return _Endpoints(until, problem=str(problem))
        until = self._clock.seconds() + max(seconds, SHORTEST_SECONDS)
        return _Endpoints(until, authorization, token)

    async def _exchange(
        self, issuer: Issuer, url: str, fields: Mapping[str, str], host: str
    ) -> str:
        """
        Exchange a code for the ID token.

        :raises BadRequest: the issuer refuses the login.
        :raises BadGateway: the issuer cannot be used.
        """
        form = {
            "grant_type": "authorization_code",
            "code": fields["code"],
            "redirect_uri": fields["redirectUri"],
            "client_id": self._client.client_id,
            "code_verifier": fields["verifier"],
            **self._secret(),
        }
        try:
            code, document = await self._limited(
                host, lambda: self._fetcher.post(url, issuer.ca_pem, form)
            )
        except Unpublished as problem:
            raise BadGateway(f"the identity provider cannot be used: {problem}") from None
        try:
            response = bodies.decode("application/json", document)
        except APIError:
            response = {}
        if code != 200:
            reason = _reason(response) or f"it answered {code}"
            kind = BadRequest if code in (400, 401, 403) else BadGateway
            raise kind(f"the identity provider refuses the login: {reason}")
        token = response.get("id_token")
        if not isinstance(token, str) or not token.isascii() or not token:
            raise BadGateway("the identity provider sent no ID token: see --oidc-web-scopes")
        return token

    def _secret(self) -> dict[str, str]:
        if not self._client.secret_file:
            return {}
        try:
            secret = read_file(self._client.secret_file).decode("utf-8").strip()
        except (TLSConfigError, UnicodeDecodeError) as problem:
            self._log.error("--oidc-web-client-secret-file: {problem}", problem=str(problem))
            raise BadGateway("the server cannot read its client secret, see its log") from None
        return {"client_secret": secret}

    async def _limited(self, host: str, send: Callable[[], Deferred[Any]]) -> Any:
        if self._sending.total() >= _AT_ONCE or self._sending[host] >= _AT_ONCE_OF_HOST:
            raise TooManyRequests("too many people log in at this moment, please try again")
        self._sending[host] += 1
        try:
            return await send()
        finally:
            self._sending[host] -= 1
            if not self._sending[host]:
                del self._sending[host]


def _fields(request: Request) -> dict[str, str]:
    content_type = request.getHeader(b"content-type") or b""
    if content_type.partition(b";")[0].strip().lower() != b"application/json":
        raise UnsupportedMediaType("the body must be application/json")
    raw = request.content.getvalue()
    if len(raw) > _LIMIT_BYTES:
        raise RequestEntityTooLarge(f"the body has more than {_LIMIT_BYTES} bytes")
    document = bodies.decode("application/json", raw)
    fields: dict[str, str] = {}
    for name in _FIELDS:
        value = document.get(name)
        if not isinstance(value, str) or not 0 < len(value) <= _LIMIT_TEXT:
            raise BadRequest(f"{name} is not a text of 1 to {_LIMIT_TEXT} characters")
        fields[name] = value
    if not _VERIFIER.fullmatch(fields["verifier"]):
        raise BadRequest("verifier is not one of RFC 7636")
    origin = (request.getHeader(b"origin") or b"").decode("latin-1")
    if origin and not fields["redirectUri"].startswith(f"{origin}/"):
        raise BadRequest("redirectUri is not an address of this page")
    return fields


def _reason(response: Mapping[str, Any]) -> str:
    texts = [response.get(name) for name in ("error", "error_description")]
    line = ": ".join(text for text in texts if isinstance(text, str) and text)
    return "".join(mark if mark.isprintable() else " " for mark in line)[:_LIMIT_REASON]


class HostedPage:
    """The page, its configuration and its login."""

    def __init__(self, version: str, login: IssuerLogin | None = None) -> None:
        self._login = login
        self._page = Page(self._config, version)

    def add_to(self, routes: GatedRoutes) -> None:
        """Add the routes."""
        self._page.add_to(routes)
        if self._login is not None:
            self._login.add_to(routes)

    def _config(self) -> dict[str, Any]:
        issuers = [] if self._login is None else self._login.offers()
        ways = ["oidc", "token", "certificate"] if issuers else ["token", "certificate"]
        return {"local": False, "login": ways, "oidc": issuers, "cluster": ""}
