"""
Calls of the host's webhooks.

Mutating webhooks run one after another, each on the result of the previous; validating webhooks run
concurrently. Source:
``k8s.io/apiserver/pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go``.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api import patch
from twisted_exec.api.kinds import Object
from twisted_exec.api.status import APIError, BadRequest, Forbidden, GatewayTimeout, InternalError
from twisted_exec.apiserver.aggregated.admission.attributes import AdmissionAttributes
from twisted_exec.apiserver.aggregated.admission.cel import MatchConditions, Undecided
from twisted_exec.apiserver.aggregated.admission.matching import Matcher
from twisted_exec.apiserver.aggregated.admission.objects import FollowedKind
from twisted_exec.apiserver.aggregated.admission.review import (
    InvalidResponse,
    WebhookResponse,
    denial,
    read_response,
    review,
    version_of,
)
from twisted_exec.apiserver.aggregated.admission.webhook_configurations import (
    Webhook,
    webhooks_of,
)
from twisted_exec.apiserver.aggregated.admission.webhook_connections import (
    CallFailed,
    WebhookConnections,
)

_CLIENTS = "the server rejected our request due to an error in our request: "
"""Prefix of a refused patch, removed here: this patch is not the client's."""

REQUEST_SECONDS = 34.0
"""
Time limit of mutating admission for one request, and again of its validating admission; for a
delete and for a stream the limit of both together.
"""


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
        self.mark_observers()

    def mark_observers(self) -> None:
        """Mark the webhooks that have seen the object: they are to see the changed one."""
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


class _WebhookCache:
    def __init__(self, followed: FollowedKind) -> None:
        self._followed = followed
        self._generation = -1
        self._webhooks: Sequence[Webhook] = ()

    async def webhooks(self) -> Sequence[Webhook]:
        configurations = await self._followed.objects()
        if self._generation != self._followed.generation:
            self._webhooks = webhooks_of(configurations)
            self._generation = self._followed.generation
        return self._webhooks


class WebhookDispatcher:
    """Calls the host's webhooks."""

    _log = Logger()

    def __init__(
        self,
        mutating: FollowedKind,
        validating: FollowedKind,
        matcher: Matcher,
        conditions: MatchConditions,
        connections: WebhookConnections,
    ) -> None:
        self._mutating, self._validating = _WebhookCache(mutating), _WebhookCache(validating)
        self._matcher, self._conditions, self._connections = matcher, conditions, connections

    async def mutate(
        self, attributes: AdmissionAttributes, pass_: Reinvocation, deadline: RequestDeadline
    ) -> Object | None:
        """
        Return the object after mutation; ``None`` if the request has none.

        :raises APIError: a webhook denies the request, or no decision is possible.
        """
        if pass_.second and pass_.last != attributes.new:
            pass_.mark_observers()
        for hook in await self._mutating.webhooks():
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
            hook
            for hook in await self._validating.webhooks()
            if await self._is_due(hook, attributes)
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

    async def _is_due(self, hook: Webhook, attributes: AdmissionAttributes) -> bool:
        if not await self._matcher.matches(hook.criteria, attributes):
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
        hook: Webhook,
        attributes: AdmissionAttributes,
        deadline: RequestDeadline,
        *,
        mutating: bool,
    ) -> WebhookResponse | None:
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
        self,
        hook: Webhook,
        attributes: AdmissionAttributes,
        deadline: RequestDeadline,
        mutating: bool,
    ) -> WebhookResponse:
        if hook.callee is None:
            raise CallFailed(hook.problem)
        uid = str(uuid.uuid4())
        try:
            version = version_of(hook.versions)
        except InvalidResponse as why:
            raise CallFailed(f"could not create admission objects: {why}") from None
        body = review(uid, version, attributes)
        try:
            raw = await self._connections.post(hook.callee, body, deadline.within(hook.seconds))
        except CallFailed as why:
            raise CallFailed(f"failed to call webhook: {why}") from None
        try:
            return read_response(raw, uid, version, mutating=mutating)
        except InvalidResponse as why:
            raise CallFailed(f"received invalid webhook response: {why}") from None


def _patched(
    hook: Webhook, attributes: AdmissionAttributes, answer: WebhookResponse
) -> Object | None:
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
