"""
Admission of writes of machines by agents, such as of their power.
"""

from __future__ import annotations

from collections.abc import Collection

from zope.interface import implementer

from twisted_exec.api.agents import is_agent
from twisted_exec.api.resource import Resource
from twisted_exec.apiserver.consoles.policies import ConsolePolicies
from twisted_exec.apiserver.consoles.policy_evaluation import check_agent
from twisted_exec.apiserver.interfaces import Change, IAdmission
from twisted_exec.program.tasks import as_deferred
from twisted_exec.wire.session_terms import Right


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
