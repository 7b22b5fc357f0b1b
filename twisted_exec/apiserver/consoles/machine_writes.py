"""
Admission of writes of machines: by agents, of labels that take a machine out of a policy, and of power.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from twisted_exec.api.agents import is_agent
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEPOLICIES, Object
from twisted_exec.api.kinds.events import NORMAL
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    Forbidden,
)
from twisted_exec.apiserver.consoles.policies import ConsolePolicies
from twisted_exec.apiserver.consoles.policy_evaluation import ParsedPolicy, check_agent
from twisted_exec.apiserver.interfaces import UPDATE, Change, IAdmission
from twisted_exec.apiserver.serving.target import RequestTarget, attributes_of
from twisted_exec.auth.interfaces import IAuthorizer
from twisted_exec.kube.recorder import Recorder
from twisted_exec.program.tasks import as_deferred
from twisted_exec.wire.session_terms import Right

POWER_CHANGED = "PowerChanged"


@implementer(IAdmission)
class PowerChanges(Service):
    """
    Admits each write, and records an Event about a write that changes ``spec.power``.

    The write may still fail, or be tried again after a conflict, so the message says what the user has asked for.

    :param machines: the kinds of machines.
    :param recorder: it is stopped with this service.
    """

    def __init__(self, machines: Collection[Resource], recorder: Recorder) -> None:
        self._machines, self._recorder = machines, recorder

    def startService(self) -> None:
        super().startService()
        self._recorder.start()

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        return self._recorder.stop()

    def admit(self, change: Change) -> Deferred[None]:
        is_of_machine = change.kind.resource in self._machines and not change.subresource
        if change.operation == UPDATE and is_of_machine and not change.dry_run:
            power = _power(change.new)
            if power != _power(change.old):
                message = f"{change.user.name} has asked to power the machine {power.lower()}"
                resource = change.kind.resource
                self._recorder.record(change.obj, NORMAL, POWER_CHANGED, message, resource=resource)
        return succeed(None)


def _power(machine: Object | None) -> str:
    return (machine or {}).get("spec", {}).get("power") or "On"


@implementer(IAdmission)
class AgentChanges:
    """
    Requires a ConsolePolicy with subjects that covers an agent at the machine that it writes.

    :param machines: the kinds of machines.
    """

    def __init__(self, policies: ConsolePolicies, machines: Collection[Resource]) -> None:
        self._policies, self._machines = policies, machines

    @as_deferred
    async def admit(self, change: Change) -> None:
        user = change.user
        if not is_agent(user.name) or change.kind.resource not in self._machines:
            return
        for machine in (change.old, change.new):  # new labels may lead out of a policy
            if machine is not None:
                policies = self._policies.binding(machine, user, Right.DRIVE)
                check_agent(policies, user, machine)


@implementer(IAdmission)
class PolicyLabels:
    """Requires the right to ``update`` a policy for labels that take a machine out of it."""

    def __init__(
        self, policies: ConsolePolicies, dialects: Sequence[Dialect], authorizer: IAuthorizer
    ) -> None:
        self._policies, self._authorizer = policies, authorizer
        self._machines = frozenset(dialect.workload for dialect in dialects)

    def admit(self, change: Change) -> Deferred[None]:
        if change.operation != UPDATE or change.kind.resource not in self._machines:
            return succeed(None)
        assert change.new is not None and change.old is not None
        before, after = (
            machine["metadata"].get("labels", {}) for machine in (change.old, change.new)
        )
        if before == after:
            return succeed(None)
        return Deferred.fromCoroutine(self._check(change))

    async def _check(self, change: Change) -> None:
        assert change.new is not None and change.old is not None
        remaining = {policy.name for policy in self._policies.selecting(change.new)}
        for policy in self._policies.selecting(change.old):
            if policy.name not in remaining and not await self._may_update(change, policy):
                machine = change.old["metadata"]["name"]
                plural = change.kind.resource.qualified
                raise Forbidden(
                    f'{plural} "{machine}" is forbidden: without these labels {policy} would not '
                    f'apply to it any more, and user "{change.user.name}" cannot update that policy'
                )

    async def _may_update(self, change: Change, policy: ParsedPolicy) -> bool:
        target = RequestTarget(CONSOLEPOLICIES, policy.namespace, policy.name)
        updating = attributes_of(change.user, "update", target)
        return bool((await self._authorizer.authorize(updating)).allows_everything)
