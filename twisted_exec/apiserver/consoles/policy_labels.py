"""
Admission of labels that take a machine out of a ConsolePolicy.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEPOLICIES
from twisted_exec.api.status import (
    Forbidden,
)
from twisted_exec.apiserver.consoles.policies import ConsolePolicies
from twisted_exec.apiserver.consoles.policy_evaluation import ParsedPolicy
from twisted_exec.apiserver.interfaces import UPDATE, Change, IAdmission
from twisted_exec.apiserver.serving.target import RequestTarget, attributes_of
from twisted_exec.auth.interfaces import IAuthorizer


@implementer(IAdmission)
class PolicyLabels:
    """Requires the right to ``update`` a policy for labels that take a machine out of it."""

    def __init__(
        self, policies: ConsolePolicies, dialects: Sequence[Dialect], authorizer: IAuthorizer
    ) -> None:
        self._policies, self._authorizer = policies, authorizer
        self._machines = frozenset(each.workload for each in dialects)

    def admit(self, change: Change) -> Deferred[None]:
        if change.operation != UPDATE or change.kind.resource not in self._machines:
            return succeed(None)
        assert change.new is not None and change.old is not None
        before, after = (each["metadata"].get("labels", {}) for each in (change.old, change.new))
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
