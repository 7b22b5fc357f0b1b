"""
Calls of the host's webhooks.

Mutating webhooks run one after another, each on the result of the previous; validating webhooks run
concurrently. Source:
``k8s.io/apiserver/pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go``.

Redirects are not followed: they would send objects elsewhere.
"""

from __future__ import annotations

import math
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred, DeferredList, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api import patch
from twisted_exec.api.kinds import Object
from twisted_exec.api.status import APIError, BadRequest, Forbidden, GatewayTimeout, InternalError
from twisted_exec.apiserver.aggregated.admission.cel import MatchConditions, Undecided
from twisted_exec.apiserver.aggregated.admission.matching import (
    AdmissionAttributes,
    Callee,
    Hook,
    Reach,
    hooks_of,
)
from twisted_exec.apiserver.aggregated.admission.objects import FollowedKind, HostNamespaces
from twisted_exec.apiserver.aggregated.admission.review import (
    Answer,
    InvalidAnswer,
    denial,
    read_answer,
    review,
    version_of,
)
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.transport import HTTPTransport, Request

_CLIENTS = "the server rejected our request due to an error in our request: "
"""Prefix of a refused patch, removed here: this patch is not the client's."""

REQUEST_SECONDS = 34.0
"""
Time limit of mutating admission for one request, and again of its validating admission; for a
delete and for a stream the limit of both together.
"""

MAX_ANSWER_BYTES = 4 << 20
"""Room for a patch of the largest object."""

_KEPT = 200
_AGENT = "exec-apiserver-admission"


@dataclass
class Reinvocation:
    """
    State of mutating admission that decides about a second pass.

    :ivar observers: reinvocable webhooks that have seen the current object.
    :ivar again: those of them that must see a later change.
    """

    again_due: bool = False
    second: bool = False
    observers: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)
    last: Object | None = None

    def changed(self) -> None:
        """Record a change."""
        self.again_due = True
        self.due()

    def due(self) -> None:
        self.again |= self.observers
        self.observers = set()


class RequestDeadline:
    """The time limit for mutating or validating admission of one request."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock, self._at = clock, clock.seconds() + REQUEST_SECONDS

    def within(self, seconds: float) -> float:
        """
        Limit a time-out of ``seconds`` to the remaining time.

        :raises GatewayTimeout: no time is left.
        """
        left = self._at - self._clock.seconds()
        if left <= 0:
            raise GatewayTimeout("request did not complete within requested timeout")
        return min(seconds, left)


class Matching:
    """Matches requests, with the labels of the host's namespaces."""

    def __init__(self, namespaces: HostNamespaces) -> None:
        self.namespaces = namespaces

    async def is_about(self, reach: Reach, attributes: AdmissionAttributes) -> bool:
        """
        Return whether a request matches.

        :raises APIError: that cannot be decided.
        """
        if not reach.names(attributes):
            return False
        if reach.problem:
            raise InternalError(reach.problem)
        if not reach.asks_namespace(attributes):
            return True
        return reach.fits_namespace(await self.namespaces.labels(attributes.namespace))


class _WebhookCache:
    def __init__(self, followed: FollowedKind) -> None:
        self._followed = followed
        self._generation = -1
        self._hooks: Sequence[Hook] = ()

    async def hooks(self) -> Sequence[Hook]:
        configurations = await self._followed.objects()
        if self._generation != self._followed.generation:
            self._hooks = hooks_of(configurations)
            self._generation = self._followed.generation
        return self._hooks


class Webhooks:
    """Calls the host's webhooks."""

    _log = Logger()

    def __init__(
        self,
        mutating: FollowedKind,
        validating: FollowedKind,
        matching: Matching,
        conditions: MatchConditions,
        calls: Calls,
    ) -> None:
        self._mutating, self._validating = _WebhookCache(mutating), _WebhookCache(validating)
        self._matching, self._conditions, self._calls = matching, conditions, calls

    async def mutate(
        self, attributes: AdmissionAttributes, pass_: Reinvocation, deadline: RequestDeadline
    ) -> Object | None:
        """
        Return the object after mutation; ``None`` if the request has none.

        :raises APIError: a webhook denies the request, or no decision is possible.
        """
        if pass_.second and pass_.last != attributes.new:
            pass_.due()
        for hook in await self._mutating.hooks():
            if not await self._is_due(hook, attributes):
                continue
            # A webhook that did not match at first is not called in the second pass.
            if pass_.second and hook.uid not in pass_.again:
                continue
            answer = await self._call(hook, attributes, deadline, mutating=True)
            new = attributes.new if answer is None else _patched(hook, attributes, answer)
            if new != attributes.new:
                attributes = replace(attributes, new=new)
                pass_.changed()
            if hook.reinvoked:
                pass_.observers.add(hook.uid)
        pass_.last = attributes.new
        return attributes.new

    async def validate(self, attributes: AdmissionAttributes, deadline: RequestDeadline) -> None:
        """
        Call the validating webhooks.

        :raises APIError: a webhook denies the request, or no decision is possible.
        """
        due = [
            hook for hook in await self._validating.hooks() if await self._is_due(hook, attributes)
        ]
        asking = [
            Deferred.fromCoroutine(self._call(hook, attributes, deadline, mutating=False))
            for hook in due
        ]
        # Wait for all: their warnings and annotations count even if one denies.
        outcomes = await DeferredList(asking, consumeErrors=True)
        for _, outcome in outcomes:
            if isinstance(outcome, Failure):
                outcome.raiseException()

    async def _is_due(self, hook: Hook, attributes: AdmissionAttributes) -> bool:
        if not await self._matching.is_about(hook.reach, attributes):
            return False
        try:
            return await self._conditions.hold(hook.conditions, attributes)
        except Undecided as why:
            if hook.ignores_failures:
                self._log.warn(
                    "admission webhook {name} is not called: {why}", name=hook.name, why=str(why)
                )
                return False
            raise Forbidden(
                f'{attributes.qualified} "{attributes.name}" is forbidden: {why} (matchConditions of '
                f'admission webhook "{hook.name}")',
                details={
                    "name": attributes.name,
                    "group": attributes.group,
                    "kind": attributes.plural,
                },
            ) from None

    async def _call(
        self,
        hook: Hook,
        attributes: AdmissionAttributes,
        deadline: RequestDeadline,
        *,
        mutating: bool,
    ) -> Answer | None:
        if attributes.dry_run and not hook.dry_run:
            raise BadRequest(f'admission webhook "{hook.name}" does not support dry run')
        try:
            answer = await self._answer(hook, attributes, deadline, mutating)
        except CallFailed as why:
            message = f'failed calling webhook "{hook.name}": {why}'
            if not hook.ignores_failures:
                self._log.warn("{why}, failing closed", why=message)
                raise _internal(message) from None
            self._log.warn("{why}, failing open", why=message)
            deadline.within(0)
            return None
        for key, value in answer.annotations.items():
            self._log.info(
                "admission webhook {name} annotates {operation} {resource} {namespace}/{object}: "
                "{key}={value}",
                name=hook.name,
                operation=attributes.operation,
                resource=attributes.qualified,
                namespace=attributes.namespace,
                object=attributes.name,
                key=key,
                value=value,
            )
        for warning in answer.warnings:
            attributes.warn(warning)
        if not answer.allowed:
            raise denial(hook.name, answer.status)
        return answer

    async def _answer(
        self, hook: Hook, attributes: AdmissionAttributes, deadline: RequestDeadline, mutating: bool
    ) -> Answer:
        if hook.callee is None:
            raise CallFailed(hook.problem)
        uid = str(uuid.uuid4())
        try:
            version = version_of(hook.versions)
        except InvalidAnswer as why:
            raise CallFailed(f"could not create admission objects: {why}") from None
        body = review(uid, version, attributes)
        try:
            raw = await self._calls.ask(hook.callee, body, deadline.within(hook.seconds))
        except CallFailed as why:
            raise CallFailed(f"failed to call webhook: {why}") from None
        try:
            return read_answer(raw, uid, version, mutating=mutating)
        except InvalidAnswer as why:
            raise CallFailed(f"received invalid webhook response: {why}") from None


def _patched(hook: Hook, attributes: AdmissionAttributes, answer: Answer) -> Object | None:
    if not answer.patch:
        return attributes.new
    if attributes.new is None:
        raise _internal(
            f'admission webhook "{hook.name}" attempted to modify the object, which is not '
            "supported for this operation"
        )
    try:
        new = patch.json_patch(attributes.new, answer.patch)
    except APIError as error:
        why = error.message.removeprefix(_CLIENTS)
    else:
        if isinstance(new, dict) and isinstance(new.get("metadata", {}), dict):
            return new
        why = "it leaves no object"
    raise _internal(f'the patch of admission webhook "{hook.name}" cannot be carried out: {why}')


def _internal(message: str) -> InternalError:
    return InternalError(
        f"Internal error occurred: {message}", details={"causes": [{"message": message}]}
    )


class CallFailed(Exception):
    """A webhook could not be reached or gave no usable response."""


class Calls:
    """Connections to webhooks, reused."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._kept: OrderedDict[Callee, HTTPTransport] = OrderedDict()

    def close(self) -> Deferred[None]:
        """Close idle connections."""
        transports, self._kept = list(self._kept.values()), OrderedDict()
        closing = gatherResults([each.close() for each in transports])
        return closing.addCallback(lambda _: None)

    async def ask(self, callee: Callee, body: bytes, seconds: float) -> bytes:
        """
        Send a review to a webhook.

        :param seconds: total time limit.
        :return: the body of the response.
        :raises CallFailed: there is no usable response.
        """
        target = f"{urlsplit(callee.url).path}?timeout={math.ceil(seconds)}s"
        try:
            code, _headers, answer = await self._to(callee).collect(
                Request("POST", target, body),
                timeout_seconds=seconds,
                limit_bytes=MAX_ANSWER_BYTES,
            )
        except APIError as error:
            raise CallFailed(error.message) from None
        if 300 <= code < 400:
            raise CallFailed(f"{callee.url} answered {code}; redirects are not followed")
        if not 200 <= code < 300:
            raise CallFailed(f"{callee.url} answered {code}")
        return answer

    def _to(self, callee: Callee) -> HTTPTransport:
        transport = self._kept.get(callee)
        if transport is None:
            transport = self._kept[callee] = self._new(callee)
            if len(self._kept) > _KEPT:
                _, oldest = self._kept.popitem(last=False)
                oldest.close()
        self._kept.move_to_end(callee)
        return transport

    def _new(self, callee: Callee) -> HTTPTransport:
        server = urlsplit(callee.url)
        config = ClientConfig(
            f"https://{server.netloc}",
            ca=Material(callee.ca),
            tls_server_name=callee.server_name,
        )
        return HTTPTransport(config, self._reactor, agent=_AGENT, peer="the webhook")
