"""Authentication of an API server's users: certificates, tokens, and what an application adds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from zope.interface import implementer

from twisted_exec.api.status import Unauthorized
from twisted_exec.auth.bootstrap_tokens import BootstrapTokenAuthenticator
from twisted_exec.auth.credentials import UnionAuthenticator
from twisted_exec.auth.interfaces import (
    LONGEST_TOKEN_BYTES,
    NO_CREDENTIALS,
    IAuthenticator,
    PresentedCredentials,
    User,
)
from twisted_exec.auth.oidc.authenticator import OIDCAuthenticator
from twisted_exec.auth.oidc.configuration import Issuers
from twisted_exec.auth.service_accounts import AccountKeys, ServiceAccountAuthenticator, TokenIssuer
from twisted_exec.auth.token_file import TokenFileAuthenticator
from twisted_exec.auth.tokens import BearerAuthenticator, ITokenAuthenticator, Known
from twisted_exec.auth.x509 import X509Authenticator, is_certified_by, refuse_reserved
from twisted_exec.program.tasks import as_deferred
from twisted_exec.storage.interfaces import IStorage


@dataclass(frozen=True)
class Accounts:
    """
    Configuration of ServiceAccount tokens.

    :param issuers: one or more; the first issues new tokens.
    :param signing_key_file: path of the private key for new tokens; empty to issue none.
    :param longest_seconds: longest lifetime of a new token; 0 for no limit.
    :param jwks_uri: external URL of the keys; empty for the first issuer's.
    """

    issuers: Sequence[str]
    key_files: Sequence[str] = ()
    signing_key_file: str = ""
    longest_seconds: int = 0
    jwks_uri: str = ""


@dataclass(frozen=True)
class Identities:
    """
    Configured credentials besides certificates of the user CA.

    :param token_file: CSV as kube-apiserver's ``--token-auth-file``; empty for none.
    :param api_audiences: of this server; by default the first issuer of ServiceAccount tokens.
    :param authenticators: of the application; asked before certificates and tokens, and for each
        TokenReview with its token alone. They may have ``load()``, which is called at the start,
        ``close()``, and ``files()``, which returns the files that decide about users.
    :param accounts: ``None`` without ServiceAccount tokens.
    :param bootstrap_tokens: accept bootstrap tokens, such as those of future poollets.
    """

    token_file: str = ""
    issuers: Issuers = Issuers()
    accounts: Accounts | None = None
    bootstrap_tokens: bool = False
    api_audiences: Sequence[str] = ()
    authenticators: Sequence[IAuthenticator] = ()

    @property
    def jwks_uri(self) -> str:
        """External URL of the keys of ServiceAccount tokens."""
        return self.accounts.jwks_uri if self.accounts is not None else ""

    @property
    def audiences(self) -> tuple[str, ...]:
        """The audiences of this server; empty if not configured."""
        issuers = self.accounts.issuers[:1] if self.accounts is not None else ()
        return tuple(self.api_audiences) or tuple(issuers)


class ServerAuthenticators:
    """
    The authenticators of one server.

    :param storage: holds ServiceAccounts and Secrets; not started yet.
    :param now: seconds since the epoch.
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
        self._own = tuple(identities.authenticators)
        self._x509 = X509Authenticator(client_ca, reactor)
        keys = _account_keys(identities.accounts, reactor)
        self.issuer, self.jwks_uri = _issuer(identities, keys, now), identities.jwks_uri
        self._sources = list(_token_sources(identities, keys, storage, reactor, now))
        self._bearer = BearerAuthenticator(self._sources, identities.audiences)
        own_tokens = [_OwnTokens(each) for each in self._own]
        self.tokens = _UserTokens([*own_tokens, *self._sources], identities.audiences)
        """For TokenReviews: the application's authenticators get the token and nothing else."""

    def authenticator(self) -> IAuthenticator:
        """Return an authenticator of requests, which asks those of the application first."""
        return _Users([*self._own, self._x509, self._bearer])

    def load(self) -> None:
        """
        Read the files now.

        :raises TLSConfigError: a file is unusable.
        """
        for each in (*self._own, self._x509, *self._sources):
            load = getattr(each, "load", None)  # not every one has files
            if load is not None:
                load()

    def close(self) -> None:
        """Close connections, such as those to OIDC issuers."""
        for each in (*self._own, *self._sources):
            close = getattr(each, "close", None)
            if close is not None:
                close()


class _Users(UnionAuthenticator):
    """The users of requests, of whom only a certificate names agents."""

    @as_deferred
    async def authenticate(self, credentials: PresentedCredentials) -> User | None:
        user: User | None = await super().authenticate(credentials)
        certificate = credentials.certificate
        # The authenticator of certificates has checked those.
        if user is not None and not (certificate and is_certified_by(user, certificate)):
            refuse_reserved(user)
        return user


class _UserTokens(BearerAuthenticator):
    """The users of tokens, none of whom is an agent."""

    async def _ask_for(self, token: bytes, audiences: tuple[str, ...]) -> Known | None:
        known = await super()._ask_for(token, audiences)
        if known is not None:
            refuse_reserved(known.user)
        return known


@implementer(ITokenAuthenticator)
class _OwnTokens:
    """The bearer tokens of an application's authenticator, for TokenReviews."""

    def __init__(self, authenticator: IAuthenticator) -> None:
        self._authenticator = authenticator

    @as_deferred
    async def authenticate_token(self, token: bytes) -> User | None:
        if len(token) > LONGEST_TOKEN_BYTES:  # no request could carry it
            return None
        presented = PresentedCredentials(token=token, token_in_header=True)
        user: User | None = await self._authenticator.authenticate(presented)
        if user is None or await self._is_known_without_token():
            return None
        return user

    async def _is_known_without_token(self) -> bool:
        """Return whether the authenticator knows a user of nothing: then a token proves nothing."""
        try:
            return await self._authenticator.authenticate(NO_CREDENTIALS) is not None
        except Unauthorized:
            return False


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
