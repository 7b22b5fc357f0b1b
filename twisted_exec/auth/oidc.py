"""
Users by OIDC ID token, as in kube-apiserver: issuers, their keys, and the mapping of claims.

Distributed claims (``_claim_names``) are not fetched: a token could name any URL. Unlike in
Kubernetes, no token gives a reserved name (``system:...``, ``DOMAIN:system:...``), as
``system:masters`` bypasses RBAC.

The keys of an issuer are cached, and count for some time while the issuer does not answer. A token
with an unknown key triggers an earlier fetch, but not often: any client can make such tokens.

Sources: ``k8s.io/apiserver/plugin/pkg/authenticator/token/oidc``, and for CEL expressions
``k8s.io/apiserver/pkg/authentication/cel``.
"""

from __future__ import annotations

import hmac
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import Interface, implementer

from twisted_exec.api import bodies
from twisted_exec.api.status import APIError, Unauthorized
from twisted_exec.api.users import with_authenticated
from twisted_exec.auth import jwt
from twisted_exec.auth.cache import AnswerCache
from twisted_exec.auth.cel import EvaluationFailed, Expressions, Missing
from twisted_exec.auth.credentials import NO_HEADERS
from twisted_exec.auth.expressions import Evaluator, TooManyEvaluations
from twisted_exec.auth.interfaces import IAuthenticator, PresentedCredentials, User
from twisted_exec.auth.jwt import (
    ALGORITHMS,
    InvalidToken,
    UnknownKey,
    VerifyingKey,
    jwks_keys,
    moment_of,
)
from twisted_exec.auth.tokens import BearerAuthenticator, ITokenAuthenticator
from twisted_exec.auth.x509 import CREDENTIAL_ID
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError, Material
from twisted_exec.kube.kubeconfig.environment import proxy_for
from twisted_exec.kube.transport import HTTPTransport, Request
from twisted_exec.program.libraries import install
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
        except (InvalidToken, Unpublished) as problem:
            self._log.info(
                "a token of {issuer} is refused: {why}", issuer=self._issuer.url, why=str(problem)
            )
            raise Unauthorized() from None
        return _Verdict(user, jwt.moment_of(claims, "exp") + LEEWAY_SECONDS)

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


CLAIMS, USER = "claims", "user"
"""The possible variables of an expression."""

_EXPRESSIONS = {about: Expressions((about,)) for about in (CLAIMS, USER)}
_MISSING = (
    "CEL expressions need the Python package cel-expr-python, which is not installed here: "
    + install("cel-expr-python")
)


@dataclass(frozen=True)
class Expression:
    """
    A CEL expression.

    :param field: its field in the configuration, for messages.
    :param about: its variable.
    """

    text: str
    field: str
    about: str = CLAIMS

    def check(self) -> None:
        """
        Check that the expression compiles.

        :raises ValueError: it does not, or the library is missing; the message is one line.
        """
        try:
            _EXPRESSIONS[self.about].check(self.text)
        except Missing:
            raise ValueError(_MISSING) from None
        except EvaluationFailed as error:
            raise ValueError(" ".join(str(error).split())[:200]) from None

    async def value(self, of: Mapping[str, Any], evaluator: Evaluator, subject: str) -> Any:
        """
        Return the value, as :meth:`.Evaluator.value` does.

        :param subject: whose token it is.
        :raises InvalidToken: the evaluation fails.
        """
        values = {self.about: dict(of)}
        try:
            return await evaluator.value(_EXPRESSIONS[self.about], self.text, values, subject)
        except (EvaluationFailed, Missing):
            raise InvalidToken(f"{self.field} cannot be evaluated about it") from None
        except TooManyEvaluations as problem:
            raise InvalidToken(f"{self.field} cannot be evaluated now: {problem}") from None


@dataclass(frozen=True)
class ValidationRule:
    """A condition; ``message`` is logged when it is false."""

    expression: Expression
    message: str = ""

    async def confirm(self, of: Mapping[str, Any], evaluator: Evaluator, subject: str) -> None:
        """
        Check that the condition is true.

        :raises InvalidToken: the condition is false, or cannot be evaluated.
        """
        if await self.expression.value(of, evaluator, subject) is not True:
            raise InvalidToken(self.message or f"{self.expression.field} is not true of it")


_LIMIT_URL = 2048
_LIMIT_ID = 256
_RESERVED = "system:"
_COMPONENT = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+:system:", re.IGNORECASE)


@dataclass(frozen=True)
class MappedClaim:
    """A claim whose value, with ``prefix`` before it, becomes a name."""

    name: str
    prefix: str = ""


@dataclass(frozen=True)
class Issuer:
    """
    One issuer of tokens, and the mapping of its claims.

    :param url: exactly the ``iss`` of its tokens; https.
    :param username: a claim or an expression with a string.
    :param groups: likewise, with a string or a list of strings.
    :param uid: likewise, with a string; empty for none.
    :param extra: by key, each a string or a list of strings.
    :param required: claims that must have these values.
    :param ca_pem: CA of its server's certificate; empty for the system's CAs.
    """

    url: str
    audiences: tuple[str, ...]
    username: MappedClaim | Expression
    groups: MappedClaim | Expression | None = None
    uid: str | Expression = ""
    extra: tuple[tuple[str, Expression], ...] = ()
    required: tuple[tuple[str, str], ...] = ()
    claim_rules: tuple[ValidationRule, ...] = ()
    user_rules: tuple[ValidationRule, ...] = ()
    algorithms: tuple[str, ...] = ALGORITHMS
    ca_pem: bytes = b""
    discovery_url: str = ""

    @property
    def discovery(self) -> str:
        """URL of the issuer's discovery document.  Source: OpenID Connect Discovery 1.0 §4."""
        return (
            self.discovery_url or f"{self.url.removesuffix('/')}/.well-known/openid-configuration"
        )


def checked_url(text: object, *, query: bool = False) -> str:
    """
    Check the https URL of a server.

    :param query: it may have a query.
    :raises ValueError: the reason why it is not acceptable.
    """
    if not isinstance(text, str) or not text:
        raise ValueError("is no URL")
    if len(text) > _LIMIT_URL:
        raise ValueError(f"is longer than {_LIMIT_URL} characters")
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise ValueError("has characters that no URL has")
    if not text.startswith("https://"):
        raise ValueError("does not begin with https://")
    try:
        url = urlsplit(text)
        usable = bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("has no host, or no valid port")
    if "@" in url.netloc or "#" in text or ("?" in text and not query):
        raise ValueError("has a user, a query or a fragment")
    return text


async def user_of(claims: Mapping[str, Any], issuer: Issuer, evaluator: Evaluator) -> User:
    """
    Map verified claims to a user.

    :raises InvalidToken: they name no valid user, or a rule does not hold.
    """
    token = _Claims(claims, f"{issuer.url} {claims.get('sub')}", evaluator)
    for name, value in issuer.required:
        if claims.get(name) != value:
            raise InvalidToken(f"its claim {name} has not the required value")
    for rule in issuer.claim_rules:
        await rule.confirm(claims, evaluator, token.subject)
    username = issuer.username
    by_email = isinstance(username, MappedClaim) and username.name == "email"
    if by_email and claims.get("email_verified", True) is not True:
        raise InvalidToken("its email is not verified")
    name = _name(await token.text(username), username)
    groups = [_name(each, issuer.groups) for each in await token.texts(issuer.groups) if each]
    uid = await token.text(MappedClaim(issuer.uid) if isinstance(issuer.uid, str) else issuer.uid)
    extra = {key: _printable(await token.texts(each), each) for key, each in issuer.extra}
    extra = {key: values for key, values in extra.items() if values}
    user_info = {"username": name, "uid": uid, "groups": groups, "extra": _lists(extra)}
    for rule in issuer.user_rules:
        await rule.confirm(user_info, evaluator, token.subject)
    expires = moment_of(claims, "exp") if "exp" in claims else math.inf
    extra |= _credential(claims)
    return User(name, with_authenticated(name, groups), uid, extra, expires=expires)


_Source = MappedClaim | Expression | None


def _told(source: _Source) -> str:
    return (
        f"its claim {source.name}"
        if isinstance(source, MappedClaim)
        else getattr(source, "field", "")
    )


@dataclass(frozen=True)
class _Claims:
    claims: Mapping[str, Any]
    subject: str
    evaluator: Evaluator

    async def value(self, source: _Source) -> Any:
        if isinstance(source, Expression):
            return await source.value(self.claims, self.evaluator, self.subject)
        return self.claims.get(source.name) if source is not None else None

    async def text(self, source: _Source) -> str:
        if source == MappedClaim(""):
            return ""
        value = await self.value(source)
        if not isinstance(value, str) or not value:
            raise InvalidToken(f"{_told(source)} is no text")
        return value

    async def texts(self, source: _Source) -> list[str]:
        value = await self.value(source)
        value = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise InvalidToken(f"{_told(source)} is neither a text nor a list of them")
        return value


def _name(value: str, source: _Source) -> str:
    """Check the name of a user or group, which every hop must be able to forward."""
    (name,) = _printable([value], source)
    name = source.prefix + name if isinstance(source, MappedClaim) else name
    if name != name.strip():
        raise InvalidToken(f"{_told(source)} has characters that no name has")
    if name.startswith(_RESERVED):
        raise InvalidToken(f"{_told(source)} has a name that begins with {_RESERVED}")
    if _COMPONENT.match(name):
        raise InvalidToken(f"{_told(source)} has a name that is a poollet's")
    return name


def _printable(values: Sequence[str], source: _Source) -> tuple[str, ...]:
    if not all(each.isprintable() for each in values):
        raise InvalidToken(f"{_told(source)} has characters that no name has")
    return tuple(each for each in values if each)


def _lists(extra: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {key: list(values) for key, values in extra.items()}


def _credential(claims: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The token's id, for the record; an id with odd characters is dropped, not refused."""
    token_id = claims.get("jti")
    if (
        not isinstance(token_id, str)
        or not token_id.isprintable()
        or not 0 < len(token_id) <= _LIMIT_ID
    ):
        return {}
    return {CREDENTIAL_ID: (f"JTI={token_id}",)}


LONGEST_SECONDS = 3600.0
"""Longest lifetime of cached keys."""
SHORTEST_SECONDS = 60.0
"""Shortest lifetime of cached keys."""
GRACE_SECONDS = 86400.0
"""Additional lifetime of cached keys while the issuer does not answer."""
PAUSE_SECONDS = 10.0
"""Pause after each fetch."""

_LIMIT_BYTES = 1 << 20
_TIMEOUT_SECONDS = 10.0
_MAX_AGE = re.compile(r"(?:^|,)\s*max-age=\"?(\d{1,9})\"?\s*(?:,|$)", re.IGNORECASE | re.ASCII)
_NOT_KEPT = re.compile(r"(?:^|,)\s*no-(?:store|cache)\s*(?:,|$)", re.IGNORECASE)


class Unpublished(Exception):
    """The issuer does not publish its keys; one line with the reason."""


class IKeyFetcher(Interface):
    """Fetches documents."""

    def fetch(url: str, ca_pem: bytes) -> Deferred[tuple[bytes, float]]:
        """
        Fetch a document.

        :param ca_pem: CAs of the server; empty for the system's.
        :return: fires with the document and its cache lifetime in seconds; fails with
            :class:`Unpublished`.
        """


@implementer(IKeyFetcher)
class HTTPSFetcher:
    """Fetches documents by HTTPS, on one connection each."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def fetch(self, url: str, ca_pem: bytes) -> Deferred[tuple[bytes, float]]:
        return Deferred.fromCoroutine(self._fetch(url, ca_pem))

    async def _fetch(self, url: str, ca_pem: bytes) -> tuple[bytes, float]:
        code, headers, document = await self._collect(url, ca_pem, "GET")
        if code != 200:
            raise Unpublished(f"{url} answered {code}")
        return document, kept_seconds(headers.get("cache-control", ""))

    @as_deferred
    async def post(self, url: str, ca_pem: bytes, form: Mapping[str, str]) -> tuple[int, bytes]:
        """Post a form; fires with the code and the document, or fails with :class:`Unpublished`."""
        code, _, document = await self._collect(
            url,
            ca_pem,
            "POST",
            body=urlencode(form).encode("ascii"),
            content_type="application/x-www-form-urlencoded",
            headers=[("Accept", "application/json")],
        )
        return code, document

    async def _collect(
        self, url: str, ca_pem: bytes, method: str, **request: Any
    ) -> tuple[int, Mapping[str, str], bytes]:
        parts = urlsplit(url)
        target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        try:
            config = ClientConfig(
                server=f"https://{parts.netloc}",
                ca=Material(data=ca_pem),
                proxy_url=proxy_for(parts, os.environ),
            )
            transport = HTTPTransport(config, self._reactor, peer="the identity provider")
            try:
                return await transport.collect(
                    Request(method, target, **request),
                    timeout_seconds=_TIMEOUT_SECONDS,
                    limit_bytes=_LIMIT_BYTES,
                )
            finally:
                await transport.close()
        except (APIError, KubeConfigError) as problem:
            raise Unpublished(str(problem)) from None


def kept_seconds(cache_control: str) -> float:
    """Return the cache lifetime by a ``Cache-Control`` header, within our own limits."""
    if _NOT_KEPT.search(cache_control):
        return SHORTEST_SECONDS
    max_age = _MAX_AGE.search(cache_control)
    return (
        min(max(float(max_age[1]), SHORTEST_SECONDS), LONGEST_SECONDS)
        if max_age
        else LONGEST_SECONDS
    )


class IssuerKeys:
    """The keys of one issuer."""

    _log = Logger()

    def __init__(self, issuer: Issuer, fetcher: IKeyFetcher, clock: IReactorTime) -> None:
        self._issuer, self._fetcher, self._clock = issuer, fetcher, clock
        self._keys: tuple[VerifyingKey, ...] = ()
        self._fresh_until = self._good_until = self._next_look = 0.0
        self._looking: Deferred[None] | None = None
        self._waiting: list[Deferred[None]] = []
        self._problem = ""

    async def known(self) -> tuple[VerifyingKey, ...]:
        """
        Return the current keys, one or more.

        :raises Unpublished: there are none.
        """
        if self._clock.seconds() >= self._fresh_until:
            await self._look()
        if not self._keys or self._clock.seconds() >= self._good_until:
            raise Unpublished(self._problem or "its keys cannot be had")
        return self._keys

    async def newer(self) -> tuple[VerifyingKey, ...]:
        """Fetch the keys again, unless that was done just now; errors as :meth:`known`."""
        await self._look()
        return await self.known()

    def close(self) -> None:
        """Stop fetching."""
        if self._looking is not None:
            self._looking.cancel()

    def _look(self) -> Deferred[None]:
        waiter: Deferred[None] = Deferred()
        if self._looking is None and self._clock.seconds() < self._next_look:
            waiter.callback(None)
            return waiter
        self._waiting.append(waiter)
        if self._looking is None:
            self._looking = Deferred.fromCoroutine(self._fetch())
            self._looking.addBoth(self._looked)
        return waiter

    def _looked(self, result: object) -> None:
        self._looking = None
        self._next_look = self._clock.seconds() + PAUSE_SECONDS
        if isinstance(result, Failure) and not result.check(CancelledError):
            self._failed(result)
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.called:
                waiter.callback(None)

    def _failed(self, failure: Failure) -> None:
        why = str(failure.value) if failure.check(Unpublished) else repr(failure.value)
        if why != self._problem:
            self._log.warn(
                "cannot fetch the keys of {issuer}, so its tokens are {what}: {why}",
                issuer=self._issuer.url,
                what="verified with cached keys" if self._keys else "refused",
                why=why,
            )
        self._problem = why

    async def _fetch(self) -> None:
        issuer = self._issuer
        document, _ = await self._fetcher.fetch(issuer.discovery, issuer.ca_pem)
        where = discovered_url(discovered(document, issuer.url), "jwks_uri", issuer.url)
        document, seconds = await self._fetcher.fetch(where, issuer.ca_pem)
        self._keys = _read(lambda: jwks_keys(document), where)
        self._fresh_until = self._clock.seconds() + seconds
        self._good_until = self._fresh_until + GRACE_SECONDS
        if self._problem:
            self._log.info("fetched the keys of {issuer} again", issuer=issuer.url)
        self._problem = ""


def _read(parse: Callable[[], Any], where: str) -> Any:
    try:
        return parse()
    except ValueError as problem:
        raise Unpublished(f"{where}: {problem}") from None


def discovered(document: bytes, issuer: str) -> Mapping[str, Any]:
    """
    Parse the discovery document of an issuer.

    :raises Unpublished: it is not such a document.
    """
    try:
        discovery = bodies.decode("application/json", document)
    except APIError:
        raise Unpublished(f"the discovery document of {issuer} is not a JSON object") from None
    if discovery.get("issuer") != issuer:
        raise Unpublished(f"the discovery document of {issuer} is that of another issuer")
    return discovery


def discovered_url(discovery: Mapping[str, Any], name: str, issuer: str) -> str:
    """
    Return a URL of a discovery document.

    :raises Unpublished: it is missing or not acceptable.
    """
    try:
        return checked_url(discovery.get(name), query=True)
    except ValueError as problem:
        raise Unpublished(f"the {name} of {issuer} {problem}") from None
