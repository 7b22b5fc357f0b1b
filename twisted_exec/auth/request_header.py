"""
Authentication of users whom a proxy with a client certificate names in headers.

The headers count only with a certificate of the *forwarding* CA and one of the operator's names. An
empty list of names would mean every certificate of that CA (GHSA-38jw-g2qx-4286), so it is refused
unless the caller allows it. Source: ``k8s.io/apiserver/pkg/authentication/request/headerrequest``.

:mod:`twisted_exec.auth.forwarded_user` writes these headers for the next hop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.web.http_headers import Headers
from zope.interface import implementer

from twisted_exec.api.status import Unauthorized, one_line
from twisted_exec.api.users import with_authenticated
from twisted_exec.auth.client_certificates import CertificateJudge
from twisted_exec.auth.interfaces import (
    IProxyAuthenticator,
    PresentedCredentials,
    User,
)
from twisted_exec.auth.x509 import certified_user
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Reloading
from twisted_exec.tls.server import PeerCertificate
from twisted_exec.wire.upgrade import HeaderSet

_USERS = 256


@dataclass(frozen=True)
class HeaderNames:
    """
    The headers in which proxies name the user.

    Several headers for the name or the UID are tried in order; all those for groups count.
    """

    user: tuple[str, ...] = ("X-Remote-User",)
    group: tuple[str, ...] = ("X-Remote-Group",)
    uid: tuple[str, ...] = ("X-Remote-Uid",)
    extra_prefix: tuple[str, ...] = ("X-Remote-Extra-",)

    @cached_property
    def headers(self) -> HeaderSet:
        """All these headers."""
        return HeaderSet.of(*self.user, *self.group, *self.uid, prefixes=self.extra_prefix)

    def user_of(self, headers: Headers) -> User | None:
        """
        Return the user that the headers of a trusted proxy name.

        :raises Unauthorized: they are malformed.
        """
        name = _first(headers, self.user)
        if not name:
            return None
        spelt = [group.encode("ascii") for group in self.group]
        groups = [_text(line) for each in spelt for line in headers.getRawHeaders(each, [])]
        all_groups = with_authenticated(name, groups)
        return User(name, all_groups, uid=_first(headers, self.uid), extra=self._extra(headers))

    def _extra(self, headers: Headers) -> dict[str, tuple[str, ...]]:
        extra: dict[str, tuple[str, ...]] = {}
        for raw, lines in headers.getAllRawHeaders():
            lowered = raw.lower()
            prefix = next(filter(lowered.startswith, self._prefixes), b"")
            if prefix:
                key = unquote(lowered[len(prefix) :].decode("latin-1"))
                values = tuple(_text(line) for line in lines)
                extra[key] = extra.get(key, ()) + values
        return extra

    @cached_property
    def _prefixes(self) -> tuple[bytes, ...]:
        return tuple(prefix.lower().encode("ascii") for prefix in self.extra_prefix)


@implementer(IProxyAuthenticator)
class RequestHeaderAuthenticator:
    """
    Authenticates users by the headers of a trusted proxy.

    :param ca: path of the forwarding CA, or its PEM.
    :param allowed_names: common names of trusted proxies.
    :param apart_from: path of the user CA, which must be another.
    :param any_name: trust any name; the list of names may be empty.
    :raises TLSConfigError: the names are not acceptable.
    """

    _log = Logger()

    def __init__(
        self,
        ca: str | bytes,
        allowed_names: Iterable[str],
        clock: IReactorTime,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        apart_from: str = "",
        *,
        names: HeaderNames | None = None,
        any_name: bool = False,
    ) -> None:
        self._allowed, self._any_name = frozenset(allowed_names), any_name
        self._names = names or HeaderNames()
        if (not self._allowed and not any_name) or "" in self._allowed:
            raise TLSConfigError(
                "request headers need the names of the proxies to trust: without any, "
                "whatever the forwarding CA signed could speak for everyone"
            )
        self._judge = CertificateJudge(ca, clock, now, apart_from)
        self._users: dict[object, User] = {}

    def load(self) -> None:
        """
        Read the CA file now.

        :raises TLSConfigError: it is unusable.
        """
        self._judge.load()

    def files(self) -> list[Reloading[Any]]:
        return self._judge.files()

    @property
    def credential_headers(self) -> HeaderSet:
        return self._names.headers

    def authenticate(self, credentials: PresentedCredentials) -> Deferred[User | None]:
        return maybeDeferred(self._user, credentials)

    def caller(self, peer: PeerCertificate | None) -> User | None:
        """Return the trusted proxy that has a certificate."""
        if peer is None or not self._is_named(peer):
            return None
        refusal = self._judge.refusal(peer)
        if refusal:
            self._log.debug("no proxy by certificate: {refusal}", refusal=refusal)
            return None
        return certified_user(peer)

    def proxy_problem(self, certificate: PeerCertificate) -> str:
        name = one_line(certificate.common_name)
        if not self._is_named(certificate):
            return f'the proxy "{name}" is not trusted any more: its name is not allowed'
        if self._judge.distrust(certificate):
            ca = one_line(certificate.authority)
            return f'the proxy "{name}" is not trusted any more: its CA "{ca}" was removed'
        return ""

    def _is_named(self, certificate: PeerCertificate) -> bool:
        return self._any_name or certificate.common_name in self._allowed

    def _user(self, credentials: PresentedCredentials) -> User | None:
        caller = self.caller(credentials.certificate)
        if caller is None:
            return None
        user = self._names.user_of(credentials.headers)
        return (
            None if user is None else self._shared_user(replace(user, forwarded_by=caller), caller)
        )

    def _shared_user(self, user: User, caller: User) -> User:
        extras = tuple(user.extra.items()), tuple(caller.extra.items())
        key = (user.name, user.groups, user.uid, caller.name, caller.groups, *extras)
        if len(self._users) >= _USERS:
            self._users.clear()
        return self._users.setdefault(key, user)


def _first(headers: Headers, names: Iterable[str]) -> str:
    return next((value for name in names if (value := _single(headers, name))), "")


def _single(headers: Headers, name: str) -> str:
    lines = {_text(line) for line in headers.getRawHeaders(name.encode("ascii"), [])}
    if len(lines) > 1:
        # A client may have smuggled one past the proxy: trust neither.
        raise Unauthorized(f"more than one {name} header")
    return lines.pop() if lines else ""


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise Unauthorized("an identity header is not UTF-8") from None
