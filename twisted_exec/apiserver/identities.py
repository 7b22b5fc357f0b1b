"""
Who is known to an API server, and by which credentials.

Client certificates always; bearer tokens as far as they are set up.  Each kind of token is an
:class:`~twisted_exec.auth.tokens.ITokenAuthenticator` of the auth room; here they are put in the
order in which they are asked, and nothing else knows which there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from twisted_exec.auth.interfaces import IAuthenticator
from twisted_exec.auth.oidc import OIDCAuthenticator
from twisted_exec.auth.oidc_config import Issuers
from twisted_exec.auth.tokens import (
    BearerAuthenticator,
    ITokenAuthenticator,
    TokenFileAuthenticator,
)
from twisted_exec.auth.union import UnionAuthenticator
from twisted_exec.auth.x509 import X509Authenticator
from twisted_exec.storage.interfaces import IStorage


@dataclass(frozen=True)
class Identities:
    """
    Who is known besides those with a certificate of the user CA.

    :param token_file: CSV as kube-apiserver's ``--token-auth-file``; empty for none.
    :param issuers: of OIDC id tokens.
    """

    token_file: str = ""
    issuers: Issuers = Issuers()


class Credentials:
    """
    The authenticators of one server.

    :param client_ca: path of the CA whose certificates are users (PEM).
    :param storage: where ServiceAccounts and Secrets are; not started yet.
    :ivar tokens: knows whose a bearer token is.
    """

    def __init__(
        self, client_ca: str, identities: Identities, storage: IStorage, reactor: Any
    ) -> None:
        self.client_ca = client_ca
        self._x509 = X509Authenticator(client_ca, reactor)
        self._sources = list(_token_sources(identities, storage, reactor))
        self.tokens = BearerAuthenticator(self._sources)

    def authenticator(self) -> IAuthenticator:
        """Of requests: by certificate first, then by token."""
        return UnionAuthenticator([self._x509, self.tokens])

    def load(self) -> None:
        """
        Read the files now.

        :raises TLSConfigError: one cannot be used.
        """
        self._x509.load()
        for source in self._sources:
            load = getattr(source, "load", None)  # not every kind has files
            if load is not None:
                load()

    def close(self) -> None:
        """Ask nobody else any more."""
        for source in self._sources:
            close = getattr(source, "close", None)
            if close is not None:
                close()


def _token_sources(
    identities: Identities, storage: IStorage, reactor: Any
) -> Iterator[ITokenAuthenticator]:
    """Whoever knows tokens, in the order in which they are asked."""
    if identities.token_file:
        yield TokenFileAuthenticator(identities.token_file, reactor)
    if identities.issuers:
        yield OIDCAuthenticator(identities.issuers.reloading(reactor), reactor)
