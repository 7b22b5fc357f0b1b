"""
Tokens of ServiceAccounts: their keys, issue and authentication.

A token is a JWT with Kubernetes' claims. Source: ``pkg/serviceaccount/{claims,jwt}.go`` of
Kubernetes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.api.kinds import NODES, SECRETS, SERVICEACCOUNTS
from twisted_exec.api.kinds.kind import Kind
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import NotFound, Unauthorized
from twisted_exec.api.users import SERVICE_ACCOUNT_PREFIX, with_authenticated
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.jwt import InvalidToken, claimed, claims_of, moment_of, signed
from twisted_exec.auth.jwt_keys import ALGORITHMS, SigningKey, VerifyingKey, pem_keys, signing_key
from twisted_exec.auth.tokens import IAudienceAuthenticator, Known
from twisted_exec.auth.x509 import CREDENTIAL_ID
from twisted_exec.program.tasks import as_deferred
from twisted_exec.tls.files import Reloading

Object = Mapping[str, Any]

BOUND: Mapping[str, Kind] = {"secret": SECRETS, "node": NODES}
"""Kinds that tokens can be bound to, by claim."""

LEEWAY_SECONDS = 60.0
"""Tolerance for clock skew between servers, as in Kubernetes."""

_CLAIM, _ACCOUNT = "kubernetes.io", "serviceaccount"
_EVERYONE = "system:serviceaccounts"
_NODE = ("authentication.kubernetes.io/node-name", "authentication.kubernetes.io/node-uid")
"""Kubernetes' extra keys for the Node that a token is bound to."""


class Look(Protocol):
    """Reads an object from a store."""

    def __call__(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Any]:
        """
        Return an object; fails with :class:`NotFound`.

        :param stale: accept a cached object.
        """


class AccountKeys:
    """
    The keys of tokens, read again when their files change.

    :param signing_key_file: path of the private key for new tokens; empty to issue none.
    """

    def __init__(
        self, key_files: Sequence[str], signing_key_file: str, clock: IReactorTime
    ) -> None:
        self._known = [
            Reloading([path], partial(_known_keys, path), clock)
            for path in dict.fromkeys(key_files)
        ]
        self._signing: Reloading[SigningKey] | None = None
        if signing_key_file:
            parse = partial(_own_key, signing_key_file)
            self._signing = Reloading([signing_key_file], parse, clock)

    def load(self) -> None:
        """
        Read the files now.

        :raises TLSConfigError: a file is unusable.
        """
        for each in self._known:
            each.load()
        if self._signing is not None:
            self._signing.load()

    def files(self) -> list[Reloading[Any]]:
        """Return the files."""
        own = [] if self._signing is None else [self._signing]
        return [*own, *self._known]

    def signing(self) -> SigningKey | None:
        """The key of new tokens, if there is one."""
        return None if self._signing is None else self._signing.get()

    def verifying(self) -> tuple[VerifyingKey, ...]:
        """Keys of accepted tokens, each once, the signing key first."""
        own = self.signing()
        keys = [own.public] if own is not None else []
        keys += [key for each in self._known for key in each.get()]
        by_id: dict[str, VerifyingKey] = {}
        for key in keys:
            by_id.setdefault(key.kid, key)
        return tuple(by_id.values())


def _known_keys(path: str, content: bytes) -> tuple[VerifyingKey, ...]:
    return pem_keys(content, f"service account key file {path!r}")


def _own_key(path: str, content: bytes) -> SigningKey:
    return signing_key(content, f"service account signing key {path!r}")


class TokenIssuer:
    """
    Issues tokens of ServiceAccounts.

    :param longest_seconds: longest lifetime of a token; 0 for no limit.
    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        issuer: str,
        audiences: Sequence[str],
        keys: AccountKeys,
        now: Callable[[], float],
        longest_seconds: int = 0,
    ) -> None:
        self.issuer, self.audiences, self.keys = issuer, tuple(audiences), keys
        self.now, self.longest_seconds = now, longest_seconds

    def issue(
        self,
        account: Object,
        key: SigningKey,
        audiences: Sequence[str],
        seconds: int,
        bound: tuple[str, Object] | None = None,
    ) -> str:
        """
        Issue a token.

        :param bound: a claim of :data:`BOUND`, and the object to bind to.
        :param seconds: lifetime of the token.
        """
        now, metadata = int(self.now()), account["metadata"]
        private: dict[str, Any] = {
            "namespace": metadata["namespace"],
            _ACCOUNT: _reference(account),
        }
        if bound is not None:
            private[bound[0]] = _reference(bound[1])
        claims = {
            "aud": list(audiences),
            "exp": now + seconds,
            "iat": now,
            "iss": self.issuer,
            "jti": str(uuid.uuid4()),
            _CLAIM: private,
            "nbf": now,
            "sub": user_name(metadata["namespace"], metadata["name"]),
        }
        return signed(claims, key)


def _reference(obj: Object) -> dict[str, str]:
    return {"name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"]}


def user_name(namespace: str, name: str) -> str:
    """The user name of a ServiceAccount."""
    return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


@implementer(IAudienceAuthenticator)
class ServiceAccountAuthenticator:
    """
    Authenticates programs by ServiceAccount tokens.

    A token that claims one of our issuers is decided here: no later authenticator gets an invalid
    one.

    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        issuers: Collection[str],
        audiences: Sequence[str],
        keys: AccountKeys,
        look: Look,
        now: Callable[[], float],
    ) -> None:
        self._issuers, self._audiences, self._keys = frozenset(issuers), tuple(audiences), keys
        self._look, self._now = look, now

    def load(self) -> None:
        """As :meth:`AccountKeys.load`."""
        self._keys.load()

    def files(self) -> list[Reloading[Any]]:
        return self._keys.files()

    def authenticate_token(self, token: bytes) -> Deferred[User | None]:
        answer = self.authenticate_for(token, self._audiences)
        return answer.addCallback(lambda identity: None if identity is None else identity.user)

    @as_deferred
    async def authenticate_for(self, token: bytes, audiences: Sequence[str]) -> Known | None:
        unverified = claimed(token)
        if unverified is None or unverified.issuer not in self._issuers:
            return None
        try:
            claims = claims_of(
                token,
                self._keys.verifying(),
                ALGORITHMS,
                issuer=unverified.issuer,
                audiences=audiences,
                now=self._now(),
                leeway_seconds=LEEWAY_SECONDS,
            )
            user = await self._user(claims)
        except InvalidToken as problem:
            raise Unauthorized(f"the service account token is refused: {problem}") from None
        token_audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        return Known(user, tuple(each for each in audiences if each in token_audiences))

    async def _user(self, claims: Object) -> User:
        private = claims.get(_CLAIM)
        if not isinstance(private, Mapping) or not isinstance(private.get("namespace"), str):
            raise InvalidToken("it is of no service account")
        namespace = private["namespace"]
        name, uid = await self._there(SERVICEACCOUNTS, namespace, private.get(_ACCOUNT))
        user = user_name(namespace, name)
        if claims.get("sub") != user:
            raise InvalidToken("its subject is another")
        if "pod" in private:
            raise InvalidToken("it is bound to what this server does not have")
        extra: dict[str, tuple[str, ...]] = {}
        for claim, kind in BOUND.items():
            if claim in private:
                node = await self._there(kind, namespace, private[claim])
                if kind is NODES:
                    extra |= {key: (value,) for key, value in zip(_NODE, node, strict=True)}
        groups = with_authenticated(user, (_EVERYONE, f"{_EVERYONE}:{namespace}"))
        jti = claims.get("jti")
        if isinstance(jti, str) and jti:
            extra[CREDENTIAL_ID] = (f"JTI={jti}",)
        # A session that ended before that could be opened again with the same token.
        expires = moment_of(claims, "exp") + LEEWAY_SECONDS
        return User(user, groups, uid, extra, expires=expires)

    async def _there(self, kind: Kind, namespace: str, reference: object) -> tuple[str, str]:
        name, uid = (
            (reference.get("name"), reference.get("uid"))
            if isinstance(reference, Mapping)
            else (None, None)
        )
        if not isinstance(name, str) or not isinstance(uid, str) or not name:
            raise InvalidToken(f"it names no {kind.singular}")
        namespace = namespace if kind.resource.namespaced else ""
        # A cached object is enough to accept: deletions arrive at once.  A new object may be missing
        # in the cache, so an uncached read follows.
        for stale in (True, False):
            try:
                obj = await self._look(kind.resource, namespace, name, stale=stale)
            except NotFound:
                continue
            metadata = obj["metadata"]
            if metadata["uid"] == uid and "deletionTimestamp" not in metadata:
                return name, uid
        raise InvalidToken(f"its {kind.singular} has been deleted")
