"""
Authentication behind a host: the proxy's headers, client certificates, bearer tokens.
"""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.apiserver.aggregated.trust import HostTrust, ProxyTrust
from twisted_exec.auth.credentials import files_of
from twisted_exec.auth.interfaces import (
    IAuthenticator,
    IProxyAuthenticator,
    PresentedCredentials,
    User,
)
from twisted_exec.auth.request_header import RequestHeaderAuthenticator
from twisted_exec.auth.x509 import X509Authenticator
from twisted_exec.program.tasks import as_deferred
from twisted_exec.tls.files import Replaceable
from twisted_exec.tls.server import PeerCertificate
from twisted_exec.wire.upgrade import HeaderSet


@implementer(IProxyAuthenticator)
class HostAuthenticator:
    """Authenticates by the proxy's headers, client certificate or token."""

    def __init__(self, trust: HostTrust, tokens: IAuthenticator, clock: IReactorTime) -> None:
        self._trust, self._tokens, self._clock = trust, tokens, clock
        self._believed: ProxyTrust | None = None

    def _understood(self) -> None:
        trust = self._trust.current
        if trust is not self._believed:
            self._believed, ca = trust, trust.client_ca
            self._users = X509Authenticator(ca, self._clock) if ca else None
            self._proxies = RequestHeaderAuthenticator(
                trust.proxy_ca,
                trust.names,
                self._clock,
                names=trust.headers,
                any_name=not trust.names,
            )

    @property
    def credential_headers(self) -> HeaderSet:
        return self._trust.headers.headers

    def files(self) -> list[Replaceable]:
        return files_of([self._tokens])

    @as_deferred
    async def authenticate(self, credentials: PresentedCredentials) -> User | None:
        self._understood()
        users, proxies = self._users, self._proxies
        user = await proxies.authenticate(credentials)
        if user is None and users is not None:
            user = await users.authenticate(credentials)
        return user if user is not None else await self._tokens.authenticate(credentials)

    def proxy_problem(self, certificate: PeerCertificate) -> str:
        self._understood()
        return self._proxies.proxy_problem(certificate)
