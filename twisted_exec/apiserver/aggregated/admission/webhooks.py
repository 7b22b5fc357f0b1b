"""
The host's webhooks: which are asked, in which order, and what their answers do.

Those that change objects are asked one after another, each seeing what the ones before have
made of it; when one has changed something, those before it that want to see that are asked once
more.  Those that only decide are asked at the same time, about what would be stored.  A webhook that
cannot be asked refuses, unless its ``failurePolicy`` is ``Ignore``; one that says no always does.
Source: ``k8s.io/apiserver/pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go``.
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
from twisted_exec.apiserver.aggregated.admission.calls import CallFailed, Calls
from twisted_exec.apiserver.aggregated.admission.cel import Conditions, Undecided
from twisted_exec.apiserver.aggregated.admission.hooks import Hook, hooks_of
from twisted_exec.apiserver.aggregated.admission.matching import Asked, Reach
from twisted_exec.apiserver.aggregated.admission.review import (
    Answer,
    InvalidAnswer,
    denial,
    read_answer,
    review,
    version_of,
)
from twisted_exec.apiserver.aggregated.admission.sources import Followed, HostNamespaces

_CLIENTS = "the server rejected our request due to an error in our request: "
"""How a refusal of a patch begins; it is not the client's this time."""

REQUEST_SECONDS = 34.0
"""For everything that is asked about one request, as kube-apiserver has it."""


@dataclass
class Reinvocation:
    """
    What the first pass over those that change objects means for a second.

    :ivar wanted: something was changed; there is to be a second pass.
    :ivar second: this is it.
    :ivar seen: webhooks that want to see later changes, and have not yet.
    :ivar again: those of them that a later change has made due.
    """

    wanted: bool = False
    second: bool = False
    seen: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)
    last: Object | None = None

    def changed(self) -> None:
        """Something was changed: who has seen it before is due again."""
        self.wanted = True
        self.due()

    def due(self) -> None:
        """Those who have seen the object before are to see it again."""
        self.again |= self.seen
        self.seen = set()


class Deadline:
    """When everything about one request must be over."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock, self._at = clock, clock.seconds() + REQUEST_SECONDS

    def within(self, seconds: float) -> float:
        """
        How long something may take that would take ``seconds`` at most.

        :raises GatewayTimeout: the time is over.
        """
        left = self._at - self._clock.seconds()
        if left <= 0:
            raise GatewayTimeout("request did not complete within requested timeout")
        return min(seconds, left)


class Matching:
    """Whether something of the host is about a request."""

    def __init__(self, namespaces: HostNamespaces) -> None:
        self.namespaces = namespaces

    async def is_about(self, reach: Reach, asked: Asked) -> bool:
        """
        :raises APIError: its namespace is not known, or nobody can tell.
        """
        if not reach.names(asked):
            return False
        if reach.problem:
            raise InternalError(reach.problem)
        if not reach.asks_namespace(asked):
            return True
        return reach.fits_namespace(await self.namespaces.labels(asked.namespace))


class _Kept:
    """The webhooks of one kind of configuration, read anew when these have changed."""

    def __init__(self, followed: Followed) -> None:
        self._followed = followed
        self._generation = -1
        self._hooks: Sequence[Hook] = ()

    async def hooks(self) -> Sequence[Hook]:
        """
        :raises ServiceUnavailable: nobody knows yet.
        """
        configurations = await self._followed.objects()
        if self._generation != self._followed.generation:
            self._hooks = hooks_of(configurations)
            self._generation = self._followed.generation
        return self._hooks


class Webhooks:
    """
    Asks the host's webhooks.

    :param mutating: MutatingWebhookConfigurations.
    :param validating: ValidatingWebhookConfigurations.
    """

    _log = Logger()

    def __init__(
        self,
        mutating: Followed,
        validating: Followed,
        matching: Matching,
        conditions: Conditions,
        calls: Calls,
    ) -> None:
        self._mutating, self._validating = _Kept(mutating), _Kept(validating)
        self._matching, self._conditions, self._calls = matching, conditions, calls

    async def mutate(self, asked: Asked, pass_: Reinvocation, deadline: Deadline) -> Object | None:
        """
        The object as the webhooks want it.

        :raises APIError: one refuses, or cannot be asked.
        """
        if pass_.second and pass_.last != asked.new:
            pass_.due()
        for hook in await self._mutating.hooks():
            if not await self._is_due(hook, asked):
                continue
            # A webhook that was not about the object at first is not asked in the second pass.
            if pass_.second and hook.uid not in pass_.again:
                continue
            answer = await self._asked(hook, asked, deadline, mutating=True)
            new = asked.new if answer is None else _patched(hook, asked, answer)
            if new != asked.new:
                asked = replace(asked, new=new)
                pass_.changed()
            if hook.reinvoked:
                pass_.seen.add(hook.uid)
        pass_.last = asked.new
        return asked.new

    async def validate(self, asked: Asked, deadline: Deadline) -> None:
        """
        :raises APIError: one refuses, or cannot be asked; of several the first.
        """
        due = [hook for hook in await self._validating.hooks() if await self._is_due(hook, asked)]
        asking = [
            Deferred.fromCoroutine(self._asked(hook, asked, deadline, mutating=False))
            for hook in due
        ]
        # All have their say, whatever the others answer.
        outcomes = await DeferredList(asking, consumeErrors=True)
        for _, outcome in outcomes:
            if isinstance(outcome, Failure):
                outcome.raiseException()

    async def _is_due(self, hook: Hook, asked: Asked) -> bool:
        if not await self._matching.is_about(hook.reach, asked):
            return False
        try:
            return self._conditions.hold(hook.conditions, asked)
        except Undecided as why:
            if hook.ignores_failures:
                self._log.warn(
                    "admission webhook {name} is not asked: {why}", name=hook.name, why=str(why)
                )
                return False
            raise Forbidden(
                f'{asked.qualified} "{asked.name}" is forbidden: {why} (matchConditions of '
                f'admission webhook "{hook.name}")',
                details={"name": asked.name, "group": asked.group, "kind": asked.plural},
            ) from None

    async def _asked(
        self, hook: Hook, asked: Asked, deadline: Deadline, *, mutating: bool
    ) -> Answer | None:
        """
        What a webhook says; ``None``: it cannot be asked, which does not matter.

        :raises APIError: it refuses.
        """
        if asked.dry_run and not hook.dry_run:
            raise BadRequest(f'admission webhook "{hook.name}" does not support dry run')
        try:
            answer = await self._answer(hook, asked, deadline, mutating)
        except CallFailed as why:
            told = f'failed calling webhook "{hook.name}": {why}'
            if not hook.ignores_failures:
                self._log.warn("{why}, failing closed", why=told)
                raise _internal(told) from None
            self._log.warn("{why}, failing open", why=told)
            deadline.within(0)
            return None
        for key, value in answer.annotations.items():
            self._log.info(
                "admission webhook {name} notes of {operation} {resource} {namespace}/{object}: "
                "{key}={value}",
                name=hook.name,
                operation=asked.operation,
                resource=asked.qualified,
                namespace=asked.namespace,
                object=asked.name,
                key=key,
                value=value,
            )
        for warning in answer.warnings:
            asked.warn(warning)
        if not answer.allowed:
            raise denial(hook.name, answer.status)
        return answer

    async def _answer(self, hook: Hook, asked: Asked, deadline: Deadline, mutating: bool) -> Answer:
        if hook.callee is None:
            raise CallFailed(hook.problem)
        uid = str(uuid.uuid4())
        try:
            version = version_of(hook.versions)
        except InvalidAnswer as why:
            raise CallFailed(f"could not create admission objects: {why}") from None
        body = review(uid, version, asked)
        try:
            raw = await self._calls.ask(hook.callee, body, deadline.within(hook.seconds))
        except CallFailed as why:
            raise CallFailed(f"failed to call webhook: {why}") from None
        try:
            return read_answer(raw, uid, version, mutating=mutating)
        except InvalidAnswer as why:
            raise CallFailed(f"received invalid webhook response: {why}") from None


def _patched(hook: Hook, asked: Asked, answer: Answer) -> Object | None:
    """
    :raises InternalError: the patch cannot be carried out.
    """
    if not answer.patch:
        return asked.new
    if asked.new is None:
        raise _internal(
            f'admission webhook "{hook.name}" attempted to modify the object, which is not '
            "supported for this operation"
        )
    try:
        new = patch.json_patch(asked.new, answer.patch)
    except APIError as error:
        why = error.message.removeprefix(_CLIENTS)
    else:
        if isinstance(new, dict) and isinstance(new.get("metadata", {}), dict):
            return new
        why = "it leaves no object"
    raise _internal(f'the patch of admission webhook "{hook.name}" cannot be carried out: {why}')


def _internal(told: str) -> InternalError:
    """As Kubernetes words what is none of the client's faults."""
    return InternalError(
        f"Internal error occurred: {told}", details={"causes": [{"message": told}]}
    )
