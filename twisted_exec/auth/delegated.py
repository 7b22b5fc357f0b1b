"""
Authentication and authorization by reviews of an API server.

Answers are cached for 10 seconds at most. Source: the webhook authenticator and authorizer of
``k8s.io/apiserver/plugin/pkg``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from zope.interface import implementer

from twisted_exec.api import kinds
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    APIError,
    InternalError,
    ServiceUnavailable,
    Unauthorized,
    one_line,
)
from twisted_exec.api.users import SERVICE_ACCOUNT_PREFIX, with_authenticated
from twisted_exec.auth import jwt
from twisted_exec.auth.cache import AnswerCache
from twisted_exec.auth.credentials import NO_HEADERS
from twisted_exec.auth.interfaces import (
    Decision,
    IAuthenticator,
    IAuthorizer,
    PresentedCredentials,
    User,
)
from twisted_exec.auth.rules import Attributes
from twisted_exec.auth.service_accounts import LEEWAY_SECONDS
from twisted_exec.auth.tokens import BearerAuthenticator, ITokenAuthenticator
from twisted_exec.control.backoff import Backoff
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.program.tasks import as_deferred
from twisted_exec.tls.deadlines import Late, Progress, limited
from twisted_exec.tls.files import Replaceable

MAX_CACHE_SECONDS = 10.0
AT_ONCE = 100
"""Concurrent reviews of one kind."""
_MAX_CACHED_SPEC_BYTES = 10_000
_Result = TypeVar("_Result")


class _Reviews:
    def __init__(self, client: IKubeClient, clock: IReactorTime, retry_seconds: float) -> None:
        self._client, self._clock, self._retry_seconds = client, clock, retry_seconds
        self._turns = DeferredSemaphore(AT_ONCE)
        self._answers = Progress(clock)

    async def ask(self, resource: Resource, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        review = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": dict(spec)}
        deadline = self._clock.seconds() + self._retry_seconds
        backoff = Backoff()
        while True:
            try:
                return await self._post(resource, review, deadline)
            except APIError as problem:
                pause = backoff.pause()
                if not problem.may_pass or self._clock.seconds() + pause >= deadline:
                    raise _explained(resource, problem) from None
            await deferLater(self._clock, pause)

    async def _post(
        self, resource: Resource, review: dict[str, Any], deadline: float
    ) -> Mapping[str, Any]:
        try:
            await self._limited(self._turns.acquire(), deadline)
        except Late:
            raise ServiceUnavailable("too many are being made") from None
        try:
            answer = await self._limited(self._client.create(resource, review), deadline)
            self._answers.note()
        except Late:
            raise ServiceUnavailable("no answer in time") from None
        finally:
            self._turns.release()
        status = answer.get("status") if isinstance(answer, Mapping) else None
        if not isinstance(status, Mapping):
            raise InternalError("the answer has no status")
        return status

    def _limited(self, result: Deferred[_Result], deadline: float) -> Deferred[_Result]:
        left = max(0.001, deadline - self._clock.seconds())
        return limited(result, self._clock, self._retry_seconds, [self._answers], left)


def _explained(resource: Resource, problem: APIError) -> APIError:
    """
    Return the error for the user whose request needed the review; a 401 or 403 would blame the
    user.
    """
    if problem.code in (401, 403):
        return InternalError(
            f"this server may not ask for a {resource.kind}: its credentials need the "
            "cluster role system:auth-delegator"
        )
    if problem.may_pass:
        return ServiceUnavailable(
            f"the {resource.kind} could not be made: {problem.message}",
            retry_after_seconds=problem.retry_after_seconds or 1,
        )
    return InternalError(f"the {resource.kind} could not be made: {problem.message}")


class _Configuration:
    paths = ("kubeconfig",)

    def __init__(self, client: IKubeClient, forget: Callable[[], None]) -> None:
        self._client, self._forget, self._version = client, forget, 0

    def look(self) -> int:
        version: int = self._client.look()
        if version != self._version:
            self._version = version
            self._forget()
        return version


@implementer(IAuthenticator, ITokenAuthenticator)
class DelegatedAuthenticator:
    """
    Authenticates bearer tokens by TokenReviews.

    :param audiences: if given, tokens must be for one of them.
    :param cache_seconds: at most 10.
    :param retry_seconds: time limit for one review, longer while the API server answers others.
    """

    credential_headers = NO_HEADERS

    def __init__(
        self,
        client: IKubeClient,
        clock: IReactorTime,
        *,
        audiences: Sequence[str] = (),
        cache_seconds: float = MAX_CACHE_SECONDS,
        retry_seconds: float = 5.0,
        cache_size: int = 8192,
    ) -> None:
        self._reviews = _Reviews(client, clock, retry_seconds)
        self._audiences = tuple(audiences)
        keep = min(cache_seconds, MAX_CACHE_SECONDS)
        self._cache: AnswerCache[User | str] = AnswerCache(clock, lambda _: keep, cache_size)
        self._secret = secrets.token_bytes(32)
        self._configuration = _Configuration(client, self._cache.clear)

    def files(self) -> list[Replaceable]:
        return [self._configuration]

    def authenticate(self, credentials: PresentedCredentials) -> Deferred[User | None]:
        return BearerAuthenticator([self]).authenticate(credentials)

    @as_deferred
    async def authenticate_token(self, token: bytes) -> User | None:
        """As :meth:`ITokenAuthenticator.authenticate_token`; an unknown token is an error."""
        # Keyed by HMAC: neither tokens nor digests that a guess could be tested against are stored.
        key = hmac.digest(self._secret, token, "sha256")
        answer = await self._cache.get(key, lambda: self._review(token))
        if isinstance(answer, str):
            raise Unauthorized(answer)
        return answer

    async def _review(self, token: bytes) -> User | str:
        """Return the user, or why the token is refused."""
        try:
            text = token.decode("utf-8")
        except UnicodeDecodeError:
            return _refusal("it is not UTF-8")
        spec: dict[str, Any] = {"token": text}
        if self._audiences:
            spec["audiences"] = list(self._audiences)
        status = await self._reviews.ask(kinds.TOKENREVIEWS.resource, spec)
        if status.get("authenticated") is not True:
            error = status.get("error")
            # The text of another program: it must not carry the token into a log or to a page.
            return _refusal(error if isinstance(error, str) and text not in error else "")
        if not self._is_meant_for_us(status):
            return _refusal("it is for other audiences")
        user = _user(status.get("user"))
        if user is None:
            return _refusal("the TokenReview names no user")
        # A review does not say when the token ends; the token does, and the review vouches for it.
        claims = jwt.claimed(token)
        if claims is None:
            return user
        leeway = LEEWAY_SECONDS if user.name.startswith(SERVICE_ACCOUNT_PREFIX) else 0.0
        return replace(user, expires=claims.expires + leeway)

    def _is_meant_for_us(self, status: Mapping[str, Any]) -> bool:
        if not self._audiences:
            return True
        audiences = status.get("audiences")
        return isinstance(audiences, list) and bool(set(self._audiences) & set(map(str, audiences)))


def _refusal(why: str) -> str:
    because = f": {one_line(why)}" if why else ""
    return f"the API server does not accept this bearer token{because}; log in again, or get a new token"


def _user(info: object) -> User | None:
    if not isinstance(info, Mapping) or not info.get("username"):
        return None
    name, extra = info["username"], info.get("extra") or {}
    if not isinstance(name, str) or not isinstance(extra, Mapping):
        raise InternalError("the TokenReview's user cannot be read")
    return User(
        name,
        with_authenticated(name, _texts(info.get("groups"))),
        uid=str(info.get("uid") or ""),
        extra={str(key): _texts(values) for key, values in extra.items()},
    )


def _texts(value: object) -> tuple[str, ...]:
    value = value or []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InternalError("the TokenReview's user cannot be read")
    return tuple(value)


@implementer(IAuthorizer)
class DelegatedAuthorizer:
    """
    Authorizes by SubjectAccessReviews.

    :param allow_seconds: lifetime of a cached permission; at most 10.
    :param deny_seconds: the same of a denial.
    :param retry_seconds: time limit for one review, longer while the API server answers others.
    """

    def __init__(
        self,
        client: IKubeClient,
        clock: IReactorTime,
        *,
        allow_seconds: float = MAX_CACHE_SECONDS,
        deny_seconds: float = MAX_CACHE_SECONDS,
        retry_seconds: float = 5.0,
        cache_size: int = 8192,
    ) -> None:
        self._reviews = _Reviews(client, clock, retry_seconds)
        allow = min(allow_seconds, MAX_CACHE_SECONDS)
        deny = min(deny_seconds, MAX_CACHE_SECONDS)
        self._cache: AnswerCache[Decision] = AnswerCache(
            clock, lambda decision: allow if decision.allowed else deny, cache_size
        )

        self._configuration = _Configuration(client, self.forget)

    def files(self) -> list[Replaceable]:
        return [self._configuration]

    def forget(self) -> None:
        """Forget all answers: permissions may have changed."""
        self._cache.clear()

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        spec = review_spec(attributes)
        text = json.dumps(spec, sort_keys=True).encode("ascii")
        if len(text) >= _MAX_CACHED_SPEC_BYTES:
            return Deferred.fromCoroutine(self._review(spec))
        return self._cache.get(hashlib.sha256(text).digest(), lambda: self._review(spec))

    async def _review(self, spec: Mapping[str, Any]) -> Decision:
        status = await self._reviews.ask(kinds.SUBJECTACCESSREVIEWS.resource, spec)
        allowed, denied = status.get("allowed") is True, status.get("denied") is True
        if allowed and denied:
            raise InternalError("the SubjectAccessReview says both allowed and denied")
        return Decision(allowed, str(status.get("reason") or ""))


def review_spec(attributes: Attributes) -> dict[str, Any]:
    """The ``spec`` of a SubjectAccessReview."""
    user = attributes.user
    spec: dict[str, Any] = {"user": user.name, "groups": list(user.groups)}
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra.items()}
    if attributes.resource:
        keys = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
        present = {key: getattr(attributes, key) for key in keys}
        spec["resourceAttributes"] = {key: value for key, value in present.items() if value}
    else:
        spec["nonResourceAttributes"] = {"path": attributes.path, "verb": attributes.verb}
    return spec
