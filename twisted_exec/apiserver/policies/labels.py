"""
Admission of labels: users who edit machines cannot take them out of ConsolePolicies.

A policy selects machines by labels, and users with the role ``edit`` may change labels.  So a change
of labels after which a policy no longer selects the machine needs permission to ``update`` that
policy.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEPOLICIES
from twisted_exec.api.status import Forbidden
from twisted_exec.apiserver.interfaces import UPDATE, Change, IAdmission
from twisted_exec.apiserver.policies.evaluation import Policy
from twisted_exec.apiserver.policies.index import ConsolePolicies
from twisted_exec.auth.interfaces import Attributes, IAuthorizer


@implementer(IAdmission)
class PolicyLabels:
    """Refuses changes of labels that take a machine out of a policy."""

    def __init__(
        self, policies: ConsolePolicies, dialects: Sequence[Dialect], authorizer: IAuthorizer
    ) -> None:
        self._policies, self._authorizer = policies, authorizer
        self._machines = frozenset(each.workload for each in dialects)

    def admit(self, change: Change) -> Deferred[None]:
        """As :meth:`IAdmission.admit`."""
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

    async def _may_update(self, change: Change, policy: Policy) -> bool:
        resource = CONSOLEPOLICIES.resource
        attributes = Attributes(
            change.user,
            "update",
            resource.group,
            resource.version,
            resource.plural,
            namespace=policy.namespace,
            name=policy.name,
        )
        return bool((await self._authorizer.authorize(attributes)).allows_everything)
