"""
Authentication by client certificate.

The common name is the user, and organizations are groups. Source:
``k8s.io/apiserver/pkg/authentication/request/x509``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.agents import reserved_problem
from twisted_exec.api.status import Unauthorized, one_line
from twisted_exec.api.users import with_authenticated
from twisted_exec.auth.agent_certificates import agent_of
from twisted_exec.auth.client_certificates import CertificateJudge
from twisted_exec.auth.credentials import NO_HEADERS
from twisted_exec.auth.interfaces import (
    IAuthenticator,
    PresentedCredentials,
    User,
)
from twisted_exec.tls.files import Reloading
from twisted_exec.tls.server import PeerCertificate

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
"""Kubernetes' extra key for the certificate that was used."""

_USERS_KEPT = 1024


@implementer(IAuthenticator)
class X509Authenticator:
    """
    Authenticates users by client certificate.

    :param client_ca: path of the user CA, or its PEM.
    :param apart_from: path of the proxies' CA, which must be another.
    """

    _log = Logger()
    credential_headers = NO_HEADERS

    def __init__(
        self,
        client_ca: str | bytes,
        clock: IReactorTime,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        apart_from: str = "",
    ) -> None:
        self._judge = CertificateJudge(client_ca, clock, now, apart_from)

    def load(self) -> None:
        """
        Read the CA file now.

        :raises TLSConfigError: it cannot be used.
        """
        self._judge.load()

    def files(self) -> list[Reloading[Any]]:
        return self._judge.files()

    def authenticate(self, credentials: PresentedCredentials) -> Deferred[User | None]:
        return maybeDeferred(self._user, credentials.certificate)

    def user(self, peer: PeerCertificate | None) -> User | None:
        """Return the user whom a certificate names, if it is valid under the CA, and may name that user."""
        try:
            return self._user(peer)
        except Unauthorized:
            return None

    def _user(self, peer: PeerCertificate | None) -> User | None:
        """
        Return the user whom a certificate names, if it is valid under the CA.

        :raises Unauthorized: it names an agent, and is not that of an agent.
        """
        if peer is None or not peer.common_name:
            return None
        verdict = self._judge.verdict(peer)
        if verdict.refusal:
            self._log.debug("no user by certificate: {refusal}", refusal=verdict.refusal)
            return None
        user = certified_user(peer, verdict.end)
        if reserved_problem(user) and agent_of(peer) is None:
            refuse_reserved(user)
        return user


def refuse_reserved(user: User) -> None:
    """
    Refuse a user whose name or group is reserved for agents, by another credential than their certificates.

    :raises Unauthorized: it is.
    """
    if problem := reserved_problem(user):
        raise Unauthorized(f'no user "{one_line(user.name)}": {problem}')


def is_certified_by(user: User, peer: PeerCertificate) -> bool:
    """Return whether a user was authenticated by this certificate."""
    return f"X509SHA256={peer.fingerprint}" in user.extra.get(CREDENTIAL_ID, ())


@lru_cache(maxsize=_USERS_KEPT)
def certified_user(peer: PeerCertificate, end: datetime | None = None) -> User:
    """
    Return the user that a verified certificate names.

    :param end: of the certificate's validity.
    """
    name = peer.common_name
    user = agent_of(peer) or User(name, with_authenticated(name, peer.organizations))
    return replace(
        user,
        extra={**user.extra, CREDENTIAL_ID: (f"X509SHA256={peer.fingerprint}",)},
        expires=math.inf if end is None else end.timestamp(),
    )
