"""
The rights of agents: what both the agent and its person may do, without what would lift the limits of the agent.
"""

from __future__ import annotations

from dataclasses import replace

from zope.interface import implementer

from twisted_exec.api.agents import is_agent, person_behind
from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS, CONSOLEPOLICIES
from twisted_exec.api.kinds.subjects import GROUP as RBAC
from twisted_exec.auth.credentials import files_of
from twisted_exec.auth.interfaces import Decision, IAuthorizer
from twisted_exec.auth.rules import Attributes
from twisted_exec.program.tasks import as_deferred
from twisted_exec.tls.files import Replaceable

_NEVER = "an agent may not approve, impersonate, read Secrets, or change rights and policies"
_READS = ("get", "list", "watch")
_VERBS = ("impersonate", "approve", "sign", "bind", "escalate", "*")
_SUBRESOURCES = ("approval", "token", "proxy")


@implementer(IAuthorizer)
class AgentRights:
    """
    Decides about agents, and passes everything else on.

    :param authorizer: decides about the agent, and about its person.
    """

    def __init__(self, authorizer: IAuthorizer) -> None:
        self._authorizer = authorizer

    def files(self) -> list[Replaceable]:
        return files_of([self._authorizer])

    @as_deferred
    async def authorize(self, attributes: Attributes) -> Decision:
        if not is_agent(attributes.user.name):
            decision: Decision = await self._authorizer.authorize(attributes)
            return decision
        if _lifts_limits(attributes):
            return Decision(False, _NEVER, never=True)
        decision = await self._authorizer.authorize(attributes)
        if not decision.allowed:
            return decision
        person = person_behind(attributes.user)
        # The person of an agent is no agent, so this asks once.
        if not person.name or is_agent(person.name):
            return Decision(False, "the agent is of no person", never=True)
        theirs = await self._authorizer.authorize(replace(attributes, user=person))
        if theirs.allows_everything:
            return decision
        return Decision(
            False,
            f'user "{person.name}", whose agent it is, may not',
            hidden=theirs.hidden,
            lacking=person.name,
        )


def _lifts_limits(attributes: Attributes) -> bool:
    """Return whether a request could give the agent, or another user in its name, more rights than those of agents."""
    if attributes.verb in _VERBS or attributes.subresource in _SUBRESOURCES:
        return True
    group, resource = attributes.group, attributes.resource
    if resource == "*" or (group, resource) == ("", "secrets"):
        return True
    if attributes.verb in _READS:
        return False
    if group == RBAC:
        return True
    return any(
        (group, resource) == (each.resource.group, each.resource.plural)
        for each in (CERTIFICATESIGNINGREQUESTS, CONSOLEPOLICIES)
    )
