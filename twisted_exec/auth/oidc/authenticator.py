"""
Authentication by OIDC ID token, as in kube-apiserver.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.status import ServiceUnavailable, Unauthorized
from twisted_exec.auth import jwt
from twisted_exec.auth.cache import AnswerCache
from twisted_exec.auth.credentials import NO_HEADERS
from twisted_exec.auth.expressions import Evaluator, TooManyEvaluations
from twisted_exec.auth.interfaces import IAuthenticator, PresentedCredentials, User
from twisted_exec.auth.jwt import InvalidToken, UnknownKey
from twisted_exec.auth.jwt_keys import VerifyingKey
from twisted_exec.auth.oidc.claims import Issuer
from twisted_exec.auth.oidc.keys import (
    PAUSE_SECONDS,
    HTTPSFetcher,
    IKeyFetcher,
    IssuerKeys,
    Unpublished,
)
from twisted_exec.auth.oidc.users import user_of
from twisted_exec.auth.tokens import BearerAuthenticator, ITokenAuthenticator
from twisted_exec.program.tasks import as_deferred
from twisted_exec.tls.files import Reloading

LEEWAY_SECONDS = 10.0
"""Tolerance for clock skew of an issuer."""
KEPT_SECONDS = 10.0
"""How long the user of a valid token is cached, at most."""


@dataclass(frozen=True)
class _Verdict:
    user: User
    until: float


class _Tokens:
    _log = Logger()

    def __init__(
        self,
        issuer: Issuer,
        fetcher: IKeyFetcher,
        evaluator: Evaluator,
        clock: IReactorTime,
        now: Callable[[], float],
    ) -> None:
        self._issuer, self._evaluator, self._now = issuer, evaluator, now
        self.keys = IssuerKeys(issuer, fetcher, clock)
        self._cache: AnswerCache[_Verdict] = AnswerCache(clock, self._kept_seconds)
        self._secret = secrets.token_bytes(32)

    async def user(self, token: bytes) -> User:
        # Keyed by HMAC: neither tokens nor digests that a guess could be tested against are stored.
        key = hmac.digest(self._secret, token, "sha256")
        verdict = await self._cache.get(key, lambda: self._judge(token))
        if verdict.until <= self._now():
            # The time of day has moved faster than the clock of the cache.
            verdict = await self._judge(token)
        return verdict.user

    def _kept_seconds(self, verdict: _Verdict) -> float:
        return max(0.0, min(KEPT_SECONDS, verdict.until - self._now()))

    async def _judge(self, token: bytes) -> _Verdict:
        try:
            claims = await self._claims(token)
            user = await user_of(claims, self._issuer, self._evaluator)
        except Unpublished:  # the log says why, without the details of every token
            raise ServiceUnavailable(
                "the keys of this token's issuer cannot be fetched now; try again later",
                retry_after_seconds=int(PAUSE_SECONDS),
            ) from None
        except TooManyEvaluations as problem:
            raise ServiceUnavailable(str(problem), retry_after_seconds=1) from None
        except InvalidToken as problem:
            self._log.info(
                "a token of {issuer} is refused: {why}", issuer=self._issuer.url, why=str(problem)
            )
            raise Unauthorized() from None
        # A session that ended before that could be opened again with the same token.
        expires = jwt.moment_of(claims, "exp") + LEEWAY_SECONDS
        return _Verdict(replace(user, expires=expires), expires)

    async def _claims(self, token: bytes) -> Mapping[str, Any]:
        try:
            return self._read(token, await self.keys.known())
        except UnknownKey:
            return self._read(token, await self.keys.newer())

    def _read(self, token: bytes, keys: Iterable[VerifyingKey]) -> Mapping[str, Any]:
        return jwt.claims_of(
            token,
            keys,
            self._issuer.algorithms,
            issuer=self._issuer.url,
            audiences=self._issuer.audiences,
            now=self._now(),
            leeway_seconds=LEEWAY_SECONDS,
        )


@implementer(IAuthenticator, ITokenAuthenticator)
class OIDCAuthenticator:
    """
    Authenticates users by the tokens of the configured issuers.

    :param issuers: read for each token, so that a changed file takes effect. Nothing is opened
        before :meth:`load` or the first token.
    :param now: time for validity checks, in seconds since 1970.
    """

    credential_headers = NO_HEADERS

    def __init__(
        self,
        issuers: Reloading[tuple[Issuer, ...]],
        reactor: Any,
        *,
        fetcher: IKeyFetcher | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._issuers, self._now = issuers, now
        self._clock: IReactorTime = reactor
        self._fetcher: IKeyFetcher = fetcher or HTTPSFetcher(reactor)
        self._evaluator = Evaluator(reactor)
        self._known: dict[Issuer, _Tokens] = {}

    def load(self) -> None:
        """
        Read the files now, and start to fetch keys, so that a wrong issuer shows in the log.

        :raises TLSConfigError: a file is unusable.
        """
        for issuer in self._issuers.load():
            asking = Deferred.fromCoroutine(self._tokens_of(issuer).keys.known())
            asking.addErrback(lambda failure: failure.trap(Unpublished))

    def files(self) -> list[Reloading[Any]]:
        """Return the configuration."""
        return [self._issuers]

    def close(self) -> None:
        """Stop fetching keys, and end the processes of costly expressions."""
        for tokens in self._known.values():
            tokens.keys.close()
        self._evaluator.close()

    def authenticate(self, credentials: PresentedCredentials) -> Deferred[User | None]:
        return BearerAuthenticator([self]).authenticate(credentials)

    @as_deferred
    async def authenticate_token(self, token: bytes) -> User | None:
        claims = jwt.claimed(token)
        if claims is None:
            return None
        for issuer in self._issuers.get():
            if issuer.url == claims.issuer:
                return await self._tokens_of(issuer).user(token)
        return None

    def _tokens_of(self, issuer: Issuer) -> _Tokens:
        if issuer not in self._known:
            # Drop the cached results of issuers that are no longer configured.
            for removed in self._known.keys() - set(self._issuers.get()):
                self._known.pop(removed).keys.close()
            self._known[issuer] = _Tokens(
                issuer, self._fetcher, self._evaluator, self._clock, self._now
            )
        return self._known[issuer]
