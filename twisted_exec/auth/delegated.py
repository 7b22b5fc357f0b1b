"""
Asking an API server who someone is and whether they may.

A TokenReview tells whose a token is, a SubjectAccessReview whether a user may.  Answers count
for 10 seconds at most, yes and no alike; an API server that cannot be asked is an
error, never a yes.  Source: the webhook authenticator and authorizer of
``k8s.io/apiserver/plugin/pkg``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredSemaphore, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from zope.interface import implementer

from twisted_exec.api import kinds
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, InternalError, ServiceUnavailable
from twisted_exec.auth.cache import AnswerCache
from twisted_exec.auth.credentials import NO_HEADERS, PresentedCredentials
from twisted_exec.auth.groups import with_authenticated
from twisted_exec.auth.interfaces import (
    Attributes,
    Decision,
    IAuthenticator,
    IAuthorizer,
    User,
)
from twisted_exec.auth.tokens import BearerAuthenticator, ITokenAuthenticator
from twisted_exec.kube.interfaces import IKubeClient

MAX_CACHE_SECONDS = 10.0
AT_ONCE = 100
"""Reviews of one kind that are being made at the same time: each is a connection to the API server, and
whoever invents tokens makes us ask.  Who is asked about is not who may, so one does not hold up the
other."""
_MAX_CACHED_SPEC_BYTES = 10_000
_FIRST_PAUSE_SECONDS = 0.5
_PAUSE_FACTOR = 1.5
_JITTER = 0.2


class _Reviews:
    """POSTs reviews, and tries again while trying may help."""

    def __init__(self, client: IKubeClient, clock: IReactorTime, retry_seconds: float) -> None:
        self._client, self._clock, self._retry_seconds = client, clock, retry_seconds
        self._turns = DeferredSemaphore(AT_ONCE)

    async def ask(self, resource: Resource, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """
        The ``status`` of a review.

        :raises APIError: it could not be had within the total time for trying.
        """
        review = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": dict(spec)}
        deadline = self._clock.seconds() + self._retry_seconds
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return await self._post(resource, review, deadline)
            except APIError as problem:
                wait = pause * (1 + random.random() * _JITTER)
                if not _may_pass(problem) or self._clock.seconds() + wait >= deadline:
                    raise _told(resource, problem) from None
            await deferLater(self._clock, wait)
            pause *= _PAUSE_FACTOR

    async def _post(
        self, resource: Resource, review: dict[str, Any], deadline: float
    ) -> Mapping[str, Any]:
        try:
            await self._turns.acquire().addTimeout(self._left(deadline), self._clock)
        except TimeoutError:
            raise ServiceUnavailable("too many are being made") from None
        try:
            asking = self._client.create(resource, review)
            answer = await asking.addTimeout(self._left(deadline), self._clock)
        except TimeoutError:
            raise ServiceUnavailable("no answer in time") from None
        finally:
            self._turns.release()
        status = answer.get("status") if isinstance(answer, Mapping) else None
        if not isinstance(status, Mapping):
            raise InternalError("the answer has no status")
        return status

    def _left(self, deadline: float) -> float:
        return max(0.001, deadline - self._clock.seconds())


def _may_pass(problem: APIError) -> bool:
    return problem.code == 429 or (problem.code >= 500 and problem.code != 501)


def _told(resource: Resource, problem: APIError) -> APIError:
    """For the user whose request this was: not their fault, and not their 401 or 403."""
    if problem.code in (401, 403):
        return InternalError(
            f"this server may not ask for a {resource.kind}: its credentials need the "
            "cluster role system:auth-delegator"
        )
    if _may_pass(problem):
        return ServiceUnavailable(
            f"the {resource.kind} could not be made: {problem.message}", retry_after_seconds=1
        )
    return InternalError(f"the {resource.kind} could not be made: {problem.message}")


@implementer(IAuthenticator, ITokenAuthenticator)
class DelegatedAuthenticator:
    """
    Knows users by bearer token, by asking an API server.

    :param client: its credentials may create tokenreviews.
    :param audiences: when given, only tokens meant for one of them are valid.
    :param cache_seconds: 10 or less.
    :param retry_seconds: how long one question may be tried, in all.
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
        self._cache: AnswerCache[User | None] = AnswerCache(clock, lambda _: keep, cache_size)
        self._secret = secrets.token_bytes(32)

    def authenticate(self, credentials: PresentedCredentials) -> Deferred[User | None]:
        """As :meth:`IAuthenticator.authenticate`."""
        return BearerAuthenticator([self]).authenticate(credentials)

    def authenticate_token(self, token: bytes) -> Deferred[User | None]:
        """As :meth:`ITokenAuthenticator.authenticate_token`."""
        # Keyed by HMAC: neither tokens nor anything they can be tested by is kept.
        key = hmac.digest(self._secret, token, "sha256")
        return self._cache.get(key, lambda: self._review(token))

    async def _review(self, token: bytes) -> User | None:
        try:
            spec: dict[str, Any] = {"token": token.decode("utf-8")}
        except UnicodeDecodeError:
            return None
        if self._audiences:
            spec["audiences"] = list(self._audiences)
        status = await self._reviews.ask(kinds.TOKENREVIEWS.resource, spec)
        if status.get("authenticated") is not True or not self._is_meant_for_us(status):
            return None
        return _user(status.get("user"))

    def _is_meant_for_us(self, status: Mapping[str, Any]) -> bool:
        if not self._audiences:
            return True
        told = status.get("audiences")
        return isinstance(told, list) and bool(set(self._audiences) & set(map(str, told)))


def _user(info: object) -> User | None:
    """
    A review's ``status.user``; ``None`` when it names nobody.

    :raises InternalError: it is not what a user looks like.
    """
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
    Decides by asking an API server.

    :param client: its credentials may create subjectaccessreviews.
    :param allow_seconds: how long a yes counts; 10 or less.
    :param deny_seconds: how long a no counts; 10 or less.
    :param retry_seconds: how long one question may be tried, in all.
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

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        """As :meth:`IAuthorizer.authorize`."""
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
    """The ``spec`` of a SubjectAccessReview for some attributes."""
    user = attributes.user
    spec: dict[str, Any] = {"user": user.name, "groups": list(user.groups)}
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra.items()}
    if attributes.resource:
        asked = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
        given = {key: getattr(attributes, key) for key in asked}
        spec["resourceAttributes"] = {key: value for key, value in given.items() if value}
    else:
        spec["nonResourceAttributes"] = {"path": attributes.path, "verb": attributes.verb}
    return spec
