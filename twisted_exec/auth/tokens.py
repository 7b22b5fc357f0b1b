"""
Authentication by bearer tokens: of files, of ServiceAccounts, and bootstrap tokens.

Tokens of a file are looked up as their SHA-256, so that the timing of a look-up reveals nothing
about existing tokens. The id in a bootstrap token is public; the other part is compared in constant
time.

The token of a ServiceAccount is a JWT with Kubernetes' claims. Source:
``pkg/serviceaccount/{claims,jwt}.go`` of Kubernetes.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import hmac
import io
import math
import os
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from zope.interface import Interface, implementer

from twisted_exec.api.kinds import NODES, SECRETS, SERVICEACCOUNTS
from twisted_exec.api.kinds.bootstrap_tokens import (
    AUTHENTICATION,
    GROUP,
    ID,
    NAMESPACE,
    PREFIX,
    SECRET,
    SECRET_TYPE,
    USER_PREFIX,
    expires,
    extra_groups,
    is_expired,
    parts_of,
)
from twisted_exec.api.kinds.kind import Kind
from twisted_exec.api.kinds.secrets import values_of
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import NotFound, Unauthorized
from twisted_exec.api.users import SERVICE_ACCOUNT_PREFIX, with_authenticated
from twisted_exec.auth.credentials import NO_HEADERS, files_of
from twisted_exec.auth.interfaces import IAuthenticator, PresentedCredentials, User
from twisted_exec.auth.jwt import (
    ALGORITHMS,
    InvalidToken,
    SigningKey,
    VerifyingKey,
    claimed,
    claims_of,
    moment_of,
    pem_keys,
    signed,
    signing_key,
)
from twisted_exec.auth.x509 import CREDENTIAL_ID
from twisted_exec.program.tasks import as_deferred
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Reloading, Replaceable, warn_if_public


class ITokenAuthenticator(Interface):
    """Authenticates bearer tokens."""

    def authenticate_token(token: bytes) -> Deferred[User | None]:
        """
        Authenticate a token.

        :return: fires with the user, or with ``None`` if the token is unknown here; fails with an
            :class:`~twisted_exec.api.status.APIError` otherwise.
        """


@dataclass(frozen=True)
class Known:
    """
    The user of a token.

    :param audiences: those of the requested audiences that it is for.
    """

    user: User
    audiences: tuple[str, ...] = ()


class IAudienceAuthenticator(ITokenAuthenticator):
    """Authenticates bearer tokens that have audiences."""

    def authenticate_for(token: bytes, audiences: Sequence[str]) -> Deferred[Known | None]:
        """
        As :meth:`ITokenAuthenticator.authenticate_token`, for tokens with one of these audiences.
        """


@implementer(IAuthenticator, IAudienceAuthenticator)
class BearerAuthenticator:
    """
    Authenticates users by ``Authorization: Bearer``.

    :param sources: tried in order until one knows the token.
    :param audiences: this server's audiences, which tokens without audiences are for.
    """

    credential_headers = NO_HEADERS

    def __init__(
        self, sources: Sequence[ITokenAuthenticator], audiences: Sequence[str] = ()
    ) -> None:
        self._sources, self._audiences = tuple(sources), tuple(audiences)

    def files(self) -> list[Replaceable]:
        return files_of(self._sources)

    @as_deferred
    async def authenticate(self, credentials: PresentedCredentials) -> User | None:
        """As :meth:`IAuthenticator.authenticate`: an unknown token is an error."""
        token = credentials.bearer_token()
        if token is None:
            return None
        user = await self.authenticate_token(token)
        if user is None:
            raise Unauthorized()
        return user

    @as_deferred
    async def authenticate_token(self, token: bytes) -> User | None:
        for source in self._sources:
            user = await source.authenticate_token(token)
            if user is not None:
                return user
        return None

    def authenticate_for(self, token: bytes, audiences: Sequence[str]) -> Deferred[Known | None]:
        """As :meth:`IAudienceAuthenticator.authenticate_for`; no audiences mean this server's."""
        return Deferred.fromCoroutine(self._ask_for(token, tuple(audiences) or self._audiences))

    async def _ask_for(self, token: bytes, audiences: tuple[str, ...]) -> Known | None:
        ours = tuple(each for each in audiences if each in self._audiences)
        for source in self._sources:
            if IAudienceAuthenticator.providedBy(source):
                answer: Known | None = await source.authenticate_for(token, audiences)
                if answer is not None:
                    return answer
            elif ours or not self._audiences:
                user = await source.authenticate_token(token)
                if user is not None:
                    return Known(user, ours)
        return None


@implementer(IAuthenticator, ITokenAuthenticator)
class TokenFileAuthenticator:
    """
    Authenticates users by a token file in the format of kube-apiserver's ``--token-auth-file``.

    Lines of ``token,user,uid,"group1,group2"``; groups are optional.

    :param path: not opened before :meth:`load` or the first token.
    """

    credential_headers = NO_HEADERS

    def __init__(self, path: str, clock: IReactorTime) -> None:
        self._path = path
        self._users = Reloading([path], self._parse, clock)

    def load(self) -> None:
        """
        Read the file now.

        :raises TLSConfigError: it is unusable; the message does not quote it.
        """
        self._users.load()

    def files(self) -> list[Replaceable]:
        return [self._users]

    def authenticate(self, credentials: PresentedCredentials) -> Deferred[User | None]:
        return BearerAuthenticator([self]).authenticate(credentials)

    def authenticate_token(self, token: bytes) -> Deferred[User | None]:
        return maybeDeferred(lambda: succeed(self._users.get().get(_digest(token))))

    def _parse(self, content: bytes) -> Mapping[bytes, User]:
        users: dict[bytes, User] = {}
        try:
            rows = csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True)
            for number, row in enumerate(rows, 1):
                if row:
                    token, user = _row(row, f"token file {self._path!r}, record {number}")
                    users[_digest(token)] = user
        except (csv.Error, UnicodeDecodeError):
            raise TLSConfigError(f"token file {self._path!r} is not CSV in UTF-8") from None
        with contextlib.suppress(OSError):  # it was read just now
            warn_if_public(self._path, os.stat(self._path).st_mode)
        return users


def _row(row: Sequence[str], where: str) -> tuple[bytes, User]:
    if len(row) < 3:
        raise TLSConfigError(f"{where}: expected token,user,uid and perhaps groups")
    token, name, uid = (column.strip() for column in row[:3])
    if not token or not name:
        raise TLSConfigError(f"{where}: the token or the user is empty")
    groups = [group.strip() for group in row[3].split(",")] if len(row) > 3 else []
    return token.encode("utf-8"), User(name, with_authenticated(name, groups), uid=uid)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


Object = Mapping[str, Any]


class Look(Protocol):
    """Reads an object from a store."""

    def __call__(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Any]:
        """
        Return an object; fails with :class:`NotFound`.

        :param stale: accept a cached object.
        """


BOUND: Mapping[str, Kind] = {"secret": SECRETS, "node": NODES}
"""Kinds that tokens can be bound to, by claim."""

LEEWAY_SECONDS = 60.0
"""Tolerance for clock skew between servers, as in Kubernetes."""

_CLAIM, _ACCOUNT = "kubernetes.io", "serviceaccount"
_EVERYONE = "system:serviceaccounts"
_NODE = ("authentication.kubernetes.io/node-name", "authentication.kubernetes.io/node-uid")
"""Kubernetes' extra keys for the Node that a token is bound to."""


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
        return User(user, groups, uid, extra, expires=moment_of(claims, "exp"))

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


@implementer(ITokenAuthenticator)
class BootstrapTokenAuthenticator:
    """
    Authenticates users by bootstrap token.

    :param now: seconds since the epoch.
    """

    def __init__(self, look: Look, now: Callable[[], float]) -> None:
        self._look, self._now = look, now

    @as_deferred
    async def authenticate_token(self, token: bytes) -> User | None:
        parts = parts_of(token)
        if parts is None:
            return None
        try:
            # Any client can cause this read, so a stale one has to do; an early client retries.
            secret = await self._look(
                SECRETS.resource, NAMESPACE, f"{PREFIX}{parts[0]}", stale=True
            )
        except NotFound:
            return None
        return user_of(secret, *parts, self._now())


def user_of(
    secret: Mapping[str, Any], token_id: str, token_secret: bytes, now: float
) -> User | None:
    """
    Return the user of a bootstrap token, or ``None`` if it is not valid for authentication now.
    """
    values = values_of(secret)
    if secret.get("type") != SECRET_TYPE or "deletionTimestamp" in secret["metadata"]:
        return None
    if not hmac.compare_digest(values.get(SECRET, b""), token_secret):
        return None
    if values.get(ID) != token_id.encode() or values.get(AUTHENTICATION) != b"true":
        return None
    if is_expired(values, now):
        return None
    try:
        groups, end = (GROUP, *extra_groups(values)), expires(values)
    except ValueError:
        return None
    name = f"{USER_PREFIX}{token_id}"
    end = math.inf if end is None else end
    return User(name, with_authenticated(name, groups), expires=end)
