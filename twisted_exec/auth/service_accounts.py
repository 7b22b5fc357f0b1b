"""
Tokens of ServiceAccounts: made here, and known again.

A token is a JWT whose claims are those of Kubernetes, so that whoever can verify its tokens can
verify ours.  Nothing about it is kept: it is good while its signature is one of our keys',
its time is not over, and its ServiceAccount, and the object that it is bound to, are still the
ones that it was made for.  So it is void at once when one of them is deleted, and another of the
same name does not bring it back.

Sources: ``pkg/serviceaccount/{claims,jwt}.go`` and
``pkg/registry/core/serviceaccount/storage/token.go`` of Kubernetes.
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
from twisted_exec.auth.groups import SERVICE_ACCOUNT_PREFIX, with_authenticated
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.jose.jwt import InvalidToken, claimed, claims_of, signed
from twisted_exec.auth.jose.keys import ALGORITHMS, SigningKey, VerifyingKey, pem_keys, signing_key
from twisted_exec.auth.tokens import IAudienceAuthenticator, Known
from twisted_exec.auth.x509 import CREDENTIAL_ID
from twisted_exec.tls.files import Reloading

Object = Mapping[str, Any]


class Look(Protocol):
    """Reads an object, as a store does."""

    def __call__(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Any]:
        """
        :param stale: content with what is at hand, which others may have changed.
        :return: fires with the object; fails with :class:`NotFound`.
        """


BOUND: Mapping[str, Kind] = {"secret": SECRETS, "node": NODES}
"""What a token can be bound to, by the claim that says so."""

LEEWAY_SECONDS = 60.0
"""By how much clocks of servers may differ, as in Kubernetes."""

_CLAIM, _ACCOUNT = "kubernetes.io", "serviceaccount"
_EVERYONE = "system:serviceaccounts"
_NODE = ("authentication.kubernetes.io/node-name", "authentication.kubernetes.io/node-uid")
"""Extra keys under which Kubernetes tells which Node a token is bound to."""


class AccountKeys:
    """
    The keys of tokens, read again when their files change.

    :param key_files: PEM files of keys whose tokens are good; the signing key's are
        in any case.
    :param signing_key_file: PEM file of the private key of new tokens; empty when none are made.
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

        :raises TLSConfigError: one is missing, holds no key, or one that is too weak.
        """
        for each in self._known:
            each.load()
        if self._signing is not None:
            self._signing.load()

    def signing(self) -> SigningKey | None:
        """The key of new tokens, if there is one."""
        return None if self._signing is None else self._signing.get()

    def verifying(self) -> tuple[VerifyingKey, ...]:
        """The keys whose tokens are good, each once, that of new tokens first."""
        own = self.signing()
        keys = [own.public] if own is not None else []
        keys += [key for each in self._known for key in each.get()]
        found: dict[str, VerifyingKey] = {}
        for key in keys:
            found.setdefault(key.kid, key)
        return tuple(found.values())


def _known_keys(path: str, content: bytes) -> tuple[VerifyingKey, ...]:
    return pem_keys(content, f"service account key file {path!r}")


def _own_key(path: str, content: bytes) -> SigningKey:
    return signing_key(content, f"service account signing key {path!r}")


class TokenIssuer:
    """
    Makes tokens.

    :param issuer: what they are issued by.
    :param audiences: for whom they are unless someone else is named.
    :param now: seconds since the epoch.
    :param longest_seconds: how long a token is good at most; 0 for any time.
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
        A token.

        :param account: the ServiceAccount.
        :param seconds: for how long it is good.
        :param bound: a claim of :data:`BOUND`, and the object that must be there.
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
    """What the user is called that a ServiceAccount is."""
    return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


@implementer(IAudienceAuthenticator)
class ServiceAccountAuthenticator:
    """
    Knows programs by tokens of ServiceAccounts.

    A token that one of our issuers is said to have issued is ours to judge: when it is not
    good it is refused, and nobody else is asked.

    :param issuers: whose tokens are good; those of the first are made here.
    :param audiences: who we are.
    :param look: reads ServiceAccounts, and what tokens are bound to.
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

    def authenticate_token(self, token: bytes) -> Deferred[User | None]:
        """As :meth:`ITokenAuthenticator.authenticate_token`, for who we are."""
        known = self.authenticate_for(token, self._audiences)
        return known.addCallback(lambda found: None if found is None else found.user)

    def authenticate_for(self, token: bytes, audiences: Sequence[str]) -> Deferred[Known | None]:
        """As :meth:`IAudienceAuthenticator.authenticate_for`."""
        return Deferred.fromCoroutine(self._authenticate(token, audiences))

    async def _authenticate(self, token: bytes, audiences: Sequence[str]) -> Known | None:
        said = claimed(token)
        if said is None or said.issuer not in self._issuers:
            return None
        try:
            claims = claims_of(
                token,
                self._keys.verifying(),
                ALGORITHMS,
                issuer=said.issuer,
                audiences=audiences,
                now=self._now(),
                leeway_seconds=LEEWAY_SECONDS,
            )
            user = await self._user(claims)
        except InvalidToken as problem:
            raise Unauthorized(f"the service account token is refused: {problem}") from None
        meant = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        return Known(user, tuple(each for each in audiences if each in meant))

    async def _user(self, claims: Object) -> User:
        """
        Whom verified claims name, if all that they are about is there.

        :raises InvalidToken: it is not.
        """
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
                told = await self._there(kind, namespace, private[claim])
                if kind is NODES:
                    extra |= {key: (value,) for key, value in zip(_NODE, told, strict=True)}
        groups = with_authenticated(user, (_EVERYONE, f"{_EVERYONE}:{namespace}"))
        jti = claims.get("jti")
        if isinstance(jti, str) and jti:
            extra[CREDENTIAL_ID] = (f"JTI={jti}",)
        return User(user, groups, uid, extra)

    async def _there(self, kind: Kind, namespace: str, told: object) -> tuple[str, str]:
        """
        Name and uid of an object that a token is about.

        :raises InvalidToken: it is not there, or it is another one of this name.
        """
        name, uid = (
            (told.get("name"), told.get("uid")) if isinstance(told, Mapping) else (None, None)
        )
        if not isinstance(name, str) or not isinstance(uid, str) or not name:
            raise InvalidToken(f"it names no {kind.singular}")
        namespace = namespace if kind.resource.namespaced else ""
        # What is at hand is enough to say yes: deletions are told at once.  It may not have what was
        # only just made.
        for stale in (True, False):
            try:
                found = await self._look(kind.resource, namespace, name, stale=stale)
            except NotFound:
                continue
            metadata = found["metadata"]
            if metadata["uid"] == uid and "deletionTimestamp" not in metadata:
                return name, uid
        raise InvalidToken(f"its {kind.singular} has been deleted")
