"""
Users whom a trusted proxy has authenticated: request headers over a client certificate.

``X-Remote-User`` is worth what its sender is worth.  It counts only when
the connection's certificate comes from the *forwarding* CA, which signs nothing else,
and carries one of the names that the operator listed.  An empty list would mean "anyone
whom that CA ever signed" (GHSA-38jw-g2qx-4286), so it is refused.
Source: ``k8s.io/apiserver/pkg/authentication/request/headerrequest``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import unquote

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.web.http_headers import Headers
from twisted.web.iweb import IRequest
from zope.interface import implementer

from twisted_exec.api.status import Unauthorized
from twisted_exec.auth.groups import with_authenticated
from twisted_exec.auth.interfaces import IAuthenticator, User
from twisted_exec.auth.x509 import CertificateJudge, certified_user, request_certificate
from twisted_exec.tls.errors import TLSConfigError

_USER, _GROUP, _UID = b"X-Remote-User", b"X-Remote-Group", b"X-Remote-Uid"
_EXTRA_PREFIX = b"x-remote-extra-"


@dataclass(frozen=True)
class ForwardedIdentity:
    """
    Whom a proxy speaks for, and which proxy it is.

    :param user: the person, as the headers say.
    :param caller: the proxy, as its certificate says.
    """

    user: User
    caller: User


@implementer(IAuthenticator)
class RequestHeaderAuthenticator:
    """
    Knows users by what a trusted proxy says in its headers.

    :param ca: path of the forwarding CA.
    :param allowed_names: common names of the proxies to trust, one or more.
    :param apart_from: path of the user CA, which must be another; empty when there is none.
    :raises TLSConfigError: no name is given.
    """

    _log = Logger()

    def __init__(
        self,
        ca: str,
        allowed_names: Iterable[str],
        clock: IReactorTime,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        apart_from: str = "",
    ) -> None:
        self._allowed = frozenset(allowed_names)
        if not self._allowed or "" in self._allowed:
            raise TLSConfigError(
                "request headers need the names of the proxies to trust: without any, "
                "whatever the forwarding CA signed could speak for everyone"
            )
        self._judge = CertificateJudge(ca, clock, now, apart_from)

    def load(self) -> None:
        """
        Read the CA file now.

        :raises TLSConfigError: it cannot be used.
        """
        self._judge.load()

    def authenticate(self, request: IRequest) -> Deferred[User | None]:
        """As :meth:`IAuthenticator.authenticate`."""
        found = self.authenticate_proxy(request)
        return found.addCallback(lambda identity: identity.user if identity else None)

    def authenticate_proxy(self, request: IRequest) -> Deferred[ForwardedIdentity | None]:
        """
        Like ``authenticate``, and tells the proxy as well.

        :return: fires with ``None`` when the request is not a trusted proxy's or
            forwards nobody; fails with :class:`Unauthorized` when a trusted proxy's
            headers cannot be read.
        """
        return maybeDeferred(self._identity, request)

    def caller(self, request: IRequest) -> User | None:
        """The trusted proxy that sent a request, whomever it speaks for."""
        peer = request_certificate(request)
        if peer is None or peer.common_name not in self._allowed:
            return None
        refusal = self._judge.refusal(peer)
        if refusal:
            self._log.debug("no proxy by certificate: {refusal}", refusal=refusal)
            return None
        return certified_user(peer)

    def _identity(self, request: IRequest) -> ForwardedIdentity | None:
        caller = self.caller(request)
        if caller is None:
            return None
        headers = request.requestHeaders
        name = _single(headers, _USER)
        if not name:
            return None
        groups = [_text(line) for line in headers.getRawHeaders(_GROUP, [])]
        user = User(
            name,
            with_authenticated(name, groups),
            uid=_single(headers, _UID),
            extra=_extra(headers),
        )
        return ForwardedIdentity(user, caller)


def _single(headers: Headers, name: bytes) -> str:
    lines = {_text(line) for line in headers.getRawHeaders(name, [])}
    if len(lines) > 1:
        # One of them may have slipped past the proxy: trust neither.
        raise Unauthorized(f"more than one {name.decode('ascii')} header")
    return lines.pop() if lines else ""


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise Unauthorized("an identity header is not UTF-8") from None


def _extra(headers: Headers) -> dict[str, tuple[str, ...]]:
    extra: dict[str, tuple[str, ...]] = {}
    for name, lines in headers.getAllRawHeaders():
        if name.lower().startswith(_EXTRA_PREFIX):
            key = unquote(name.lower()[len(_EXTRA_PREFIX) :].decode("latin-1"))
            values = tuple(_text(line) for line in lines)
            extra[key] = extra.get(key, ()) + values
    return extra
