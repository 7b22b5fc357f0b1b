"""Credentials of a request: taken out of it once, checked, and kept for reviews of its session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Any

from twisted.web.http_headers import Headers
from twisted.web.iweb import IRequest
from zope.interface import alsoProvides, implementer

from twisted_exec.api.status import Unauthorized
from twisted_exec.auth.interfaces import (
    IMPERSONATION_HEADERS,
    LONGEST_TOKEN_BYTES,
    NO_CREDENTIALS,
    IAuthenticator,
    IProxyAuthenticator,
    PresentedCredentials,
    User,
)
from twisted_exec.program.tasks import as_deferred
from twisted_exec.streaming.http.upgrade_server import header_pairs
from twisted_exec.streaming.interfaces import IDENTITY_HEADERS
from twisted_exec.tls.files import Replaceable
from twisted_exec.tls.server import PeerCertificate, peer_certificate
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.upgrade import HeaderSet, subprotocol_token

NO_HEADERS = HeaderSet()
"""Of an authenticator that reads the client certificate or the bearer token only."""


class CredentialHeaders:
    """
    The registry of one server: which headers are credentials.

    It is a container of header names: ``b"X-Remote-User" in registry``.

    :param impersonation: whether the server reads the headers of impersonation.
    :raises TypeError: the authenticator does not declare its headers.
    """

    def __init__(self, authenticator: IAuthenticator, *, impersonation: bool) -> None:
        check_declared(authenticator)
        self._authenticator = authenticator
        self._more = IMPERSONATION_HEADERS if impersonation else NO_HEADERS

    def __contains__(self, name: object) -> bool:
        return name in self.current()

    def current(self) -> HeaderSet:
        """Return the headers that are credentials now."""
        declared: HeaderSet = self._authenticator.credential_headers
        return IDENTITY_HEADERS | declared

    def take_from(self, request: Any) -> PresentedCredentials:
        """
        Take the credentials out of a request; a second call returns the same.

        So neither a handler nor the next hop can believe an unverified header.
        """
        if request.credentials is None:
            request.credentials = self._taken(request)
        credentials: PresentedCredentials = request.credentials
        return credentials

    def _taken(self, request: Any) -> PresentedCredentials:
        declared: HeaderSet = self._authenticator.credential_headers
        credentials = presented(request, declared | self._more)
        removed, headers = IDENTITY_HEADERS | declared, request.requestHeaders
        for name in [name for name, _ in headers.getAllRawHeaders() if name in removed]:
            headers.removeHeader(name)
        return credentials


def check_declared(authenticator: IAuthenticator) -> None:
    """
    Make sure that an authenticator says which headers it reads.

    :raises TypeError: it does not.
    """
    if not hasattr(type(authenticator), "credential_headers") and not hasattr(
        authenticator, "credential_headers"
    ):
        raise TypeError(
            f"{type(authenticator).__qualname__} has no credential_headers: declare the headers that "
            "it reads as a HeaderSet"
        )


def presented(request: IRequest, declared: HeaderSet) -> PresentedCredentials:
    """
    Read the credentials of a request without removing them.

    :param declared: the headers to keep; the bearer token is read in any case.
    """
    lines = request.requestHeaders.getRawHeaders(b"authorization", [])
    token, problem = None, ""
    try:
        token = _bearer_token(request)
    except Unauthorized as error:
        problem = error.message
    headers = Headers()
    for name, values in request.requestHeaders.getAllRawHeaders():
        if name in declared:
            headers.setRawHeaders(name, values)
    channel = getattr(request, "channel", None)
    client = getattr(request, "getClientAddress", lambda: None)()
    return PresentedCredentials(
        peer_certificate(getattr(channel, "transport", None)),
        token,
        problem,
        any(_token_of(line) for line in lines),
        headers if any(True for _ in headers.getAllRawHeaders()) else NO_CREDENTIALS.headers,
        str(getattr(client, "host", "")),
    )


def _bearer_token(request: IRequest) -> bytes | None:
    lines = set(request.requestHeaders.getRawHeaders(b"Authorization", []))
    if len(lines) > 1:
        raise Unauthorized("more than one Authorization header")
    token = _token_of(lines.pop()) if lines else b""
    if not token:
        try:
            token = subprotocol_token(header_pairs(request.requestHeaders)) or b""
        except RemoteProtocolError as problem:
            raise Unauthorized(str(problem)) from None
    if len(token) > LONGEST_TOKEN_BYTES:
        raise Unauthorized("the bearer token is too long")
    return token or None


def _token_of(authorization: bytes) -> bytes:
    scheme, _, token = authorization.strip().partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def files_of(parts: Iterable[object]) -> list[Replaceable]:
    """
    Return the files of those authenticators and authorizers that have some.

    An authenticator or authorizer that decides by files has a method ``files``.
    """
    return [each for part in parts for each in getattr(part, "files", list)() if each.paths]


@implementer(IAuthenticator)
class UnionAuthenticator:
    """
    Asks authenticators in order; the first that knows the user wins, and a failure ends the search.

    :raises TypeError: an authenticator does not declare its headers.
    """

    def __init__(self, authenticators: Sequence[IAuthenticator]) -> None:
        self._authenticators = tuple(authenticators)
        for each in self._authenticators:
            check_declared(each)
        self._proxies = [
            IProxyAuthenticator(each)
            for each in self._authenticators
            if IProxyAuthenticator.providedBy(each)
        ]
        if self._proxies:
            alsoProvides(self, IProxyAuthenticator)

    @property
    def credential_headers(self) -> HeaderSet:
        return reduce(or_, (each.credential_headers for each in self._authenticators), NO_HEADERS)

    @as_deferred
    async def authenticate(self, credentials: PresentedCredentials) -> User | None:
        for authenticator in self._authenticators:
            user = await authenticator.authenticate(credentials)
            if user is not None:
                return user
        return None

    def files(self) -> list[Replaceable]:
        return files_of(self._authenticators)

    def proxy_problem(self, certificate: PeerCertificate) -> str:
        problems = [each.proxy_problem(certificate) for each in self._proxies]
        return problems[0] if all(problems) else ""
