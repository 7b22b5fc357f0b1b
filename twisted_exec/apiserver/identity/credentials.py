"""
Who is known to an API server, and by which credentials.

Client certificates always; bearer tokens as far as they are set up.  Each kind of token is an
:class:`~twisted_exec.auth.tokens.ITokenAuthenticator` of the auth room; here they are put in the
order in which they are asked, and nothing else knows which there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from twisted_exec.auth.bootstrap_tokens import BootstrapTokenAuthenticator
from twisted_exec.auth.credentials import UnionAuthenticator
from twisted_exec.auth.interfaces import IAuthenticator
from twisted_exec.auth.oidc.authenticator import OIDCAuthenticator
from twisted_exec.auth.oidc.configuration import Issuers
from twisted_exec.auth.service_accounts import AccountKeys, ServiceAccountAuthenticator, TokenIssuer
from twisted_exec.auth.tokens import (
    BearerAuthenticator,
    ITokenAuthenticator,
    TokenFileAuthenticator,
)
from twisted_exec.auth.x509 import X509Authenticator
from twisted_exec.storage.interfaces import IStorage


@dataclass(frozen=True)
class Accounts:
    """
    How tokens of ServiceAccounts are made and known.

    :param issuers: one or more; tokens are made in the name of the first.
    :param key_files: PEM files of keys whose tokens are good, besides the signing key's.
    :param signing_key_file: PEM file of the private key of new tokens; empty to make none.
    :param longest_seconds: how long a new token is good at most; 0 for any time.
    :param jwks_uri: where others find the keys; empty for where the first issuer is.
    """

    issuers: Sequence[str]
    key_files: Sequence[str] = ()
    signing_key_file: str = ""
    longest_seconds: int = 0
    jwks_uri: str = ""


@dataclass(frozen=True)
class Identities:
    """
    Who is known besides those with a certificate of the user CA.

    :param token_file: CSV as kube-apiserver's ``--token-auth-file``; empty for none.
    :param issuers: of OIDC id tokens.
    :param accounts: ``None`` when tokens of ServiceAccounts are nothing here.
    :param bootstrap_tokens: know those who are to become poollets by bootstrap tokens.
    :param api_audiences: who this server is to whom tokens are made out; by default the first
        issuer of ServiceAccounts' tokens.
    """

    token_file: str = ""
    issuers: Issuers = Issuers()
    accounts: Accounts | None = None
    bootstrap_tokens: bool = False
    api_audiences: Sequence[str] = ()

    @property
    def jwks_uri(self) -> str:
        """Where others find the keys of ServiceAccounts' tokens; empty for no place of its own."""
        return self.accounts.jwks_uri if self.accounts is not None else ""

    @property
    def audiences(self) -> tuple[str, ...]:
        """Who this server is; empty when nobody says so."""
        issuers = self.accounts.issuers[:1] if self.accounts is not None else ()
        return tuple(self.api_audiences) or tuple(issuers)


class Credentials:
    """
    The authenticators of one server.

    :param client_ca: path of the CA whose certificates are users (PEM).
    :param storage: where ServiceAccounts and Secrets are; not started yet.
    :param now: seconds since the epoch.
    :ivar tokens: knows whose a bearer token is.
    :ivar issuer: makes tokens of ServiceAccounts; ``None`` when they are nothing here.
    :ivar jwks_uri: where others find its keys; empty for where the issuer is.
    """

    def __init__(
        self,
        client_ca: str,
        identities: Identities,
        storage: IStorage,
        reactor: Any,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.client_ca = client_ca
        self._x509 = X509Authenticator(client_ca, reactor)
        keys = _account_keys(identities.accounts, reactor)
        self.issuer, self.jwks_uri = _issuer(identities, keys, now), identities.jwks_uri
        self._sources = list(_token_sources(identities, keys, storage, reactor, now))
        self.tokens = BearerAuthenticator(self._sources, identities.audiences)

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


def _account_keys(accounts: Accounts | None, reactor: Any) -> AccountKeys:
    if accounts is None:
        return AccountKeys((), "", reactor)
    return AccountKeys(accounts.key_files, accounts.signing_key_file, reactor)


def _issuer(
    identities: Identities, keys: AccountKeys, now: Callable[[], float]
) -> TokenIssuer | None:
    accounts = identities.accounts
    if accounts is None:
        return None
    longest = accounts.longest_seconds
    return TokenIssuer(accounts.issuers[0], identities.audiences, keys, now, longest)


def _token_sources(
    identities: Identities,
    keys: AccountKeys,
    storage: IStorage,
    reactor: Any,
    now: Callable[[], float],
) -> Iterator[ITokenAuthenticator]:
    """Whoever knows tokens, in the order in which they are asked."""
    if identities.token_file:
        yield TokenFileAuthenticator(identities.token_file, reactor)
    if identities.bootstrap_tokens:
        yield BootstrapTokenAuthenticator(storage.get, now)
    if identities.accounts is not None:
        who = (identities.accounts.issuers, identities.audiences)
        yield ServiceAccountAuthenticator(*who, keys, storage.get, now)
    if identities.issuers:
        own = identities.accounts.issuers if identities.accounts is not None else ()
        yield OIDCAuthenticator(identities.issuers.reloading(reactor, own), reactor)
