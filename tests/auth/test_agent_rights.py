"""
Tests for :mod:`twisted_exec.auth.agent_rights`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from twisted_exec.api.agents import PERSON_GROUPS
from twisted_exec.auth.agent_rights import AgentRights
from twisted_exec.auth.interfaces import Decision, IAuthorizer, IVisibility, User
from twisted_exec.auth.rules import Attributes

GROUP = "compute.ironcore.dev"
AGENT = User("agent:ada:bot", ("agents",), extra={PERSON_GROUPS: ("ops",)})
DRIVE = Attributes(AGENT, "drive", GROUP, "v1alpha1", "machines", "console", "lab", "vm")


@implementer(IVisibility)
class _Some:
    def sees(self, obj: Any) -> bool:
        return True


@implementer(IAuthorizer)
class Grants:
    """Allows what its users and groups are granted, and records who was asked about."""

    def __init__(self, **decisions: Decision) -> None:
        self.decisions = decisions
        self.asked: list[str] = []

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        user = attributes.user
        self.asked.append(user.name)
        for subject in (user.name, *user.groups):
            if subject in self.decisions:
                return succeed(self.decisions[subject])
        return succeed(Decision(False))


YES, NO = Decision(True), Decision(False)


class AgentRightsTests(SynchronousTestCase):
    """The rights of an agent."""

    def decide(self, grants: Grants, attributes: Attributes = DRIVE) -> Decision:
        return self.successResultOf(AgentRights(grants).authorize(attributes))

    def test_both(self) -> None:
        """An agent may what both the agent and its person may, who has the groups of the certificate."""
        self.assertTrue(self.decide(Grants(agents=YES, ada=YES)).allowed)
        self.assertTrue(self.decide(Grants(agents=YES, ops=YES)).allowed)
        for grants in (Grants(agents=YES), Grants(ada=YES), Grants(ops=YES), Grants()):
            self.assertFalse(self.decide(grants).allowed)
        refused = self.decide(Grants(agents=YES))
        self.assertIn('user "ada", whose agent it is, may not', refused.reason)
        self.assertEqual(refused.lacking, "ada")
        self.assertEqual(self.decide(Grants(ada=YES)).lacking, "")  # the agent lacks it

    def test_some_objects(self) -> None:
        """A person who sees only some objects lends none; the agent's own limit stays."""
        some = Decision(True, visibility=_Some())
        self.assertFalse(self.decide(Grants(agents=YES, ada=some)).allowed)
        self.assertEqual(self.decide(Grants(agents=some, ada=YES)), some)

    def test_others(self) -> None:
        """Other users are asked about once."""
        grants = Grants(ada=YES)
        self.assertTrue(self.decide(grants, replace(DRIVE, user=User("ada"))).allowed)
        self.assertEqual(grants.asked, ["ada"])

    def test_by_name_alone(self) -> None:
        """A user of such a name without a certificate, as in an access review, has no more rights."""
        named = replace(DRIVE, user=User("agent:ada:bot", ("agents",)))
        self.assertFalse(self.decide(Grants(agents=YES, ops=YES), named).allowed)

    def test_of_nobody(self) -> None:
        """Neither an agent of nobody nor the agent of an agent may do anything."""
        everybody = {"system:authenticated": YES, "agents": YES}
        for name in ("agent:", "agent:ada", "agent:agent:ada:bot:x", "agent:" * 5000):
            user = User(name, ("agents", "system:authenticated"))
            grants = Grants(**everybody)
            self.assertFalse(self.decide(grants, replace(DRIVE, user=user)).allowed)
            self.assertLessEqual(len(grants.asked), 1)

    def test_never(self) -> None:
        """Whatever its roles, an agent approves nothing, acts as nobody, and changes no rights."""
        csr = {"group": "certificates.k8s.io", "resource": "certificatesigningrequests"}
        rbac, console = "rbac.authorization.k8s.io", "console.twisted-exec.dev"
        requests = {"group": console, "resource": "consolerequests"}
        for attributes in (
            {"verb": "impersonate", "group": "", "resource": "users", "name": "ada"},
            {"verb": "patch", **requests, "subresource": "approval"},
            {"verb": "get", **requests, "subresource": "approval"},
            {"verb": "create", **csr},
            {"verb": "create", **csr, "subresource": "agentclient"},
            {"verb": "update", **csr, "subresource": "approval"},
            {"verb": "approve", "group": csr["group"], "resource": "signers"},
            {"verb": "create", "group": "", "resource": "serviceaccounts", "subresource": "token"},
            {"verb": "get", "group": "", "resource": "secrets"},
            {"verb": "create", "group": rbac, "resource": "rolebindings"},
            {"verb": "bind", "group": rbac, "resource": "clusterroles"},
            {"verb": "delete", "group": console, "resource": "consolepolicies"},
            {"verb": "get", "group": GROUP, "resource": "machinepools", "subresource": "proxy"},
            {"verb": "*", "group": "*", "resource": "*"},
            {"verb": "create", "group": "*", "resource": "*"},
        ):
            grants = Grants(agents=YES, ada=YES)
            asked = Attributes(AGENT, version="v1", **attributes)
            decision = self.decide(grants, asked)
            self.assertFalse(decision.allowed, attributes)
            self.assertIn("an agent may not approve", decision.reason)
            self.assertTrue(self.decide(grants, replace(asked, user=User("ada"))).allowed)
        for attributes in (
            {"verb": "get", "group": console, "resource": "consolepolicies"},
            {"verb": "create", **requests},
            {"verb": "patch", "group": GROUP, "resource": "machines"},
        ):
            asked = Attributes(AGENT, version="v1", **attributes)
            self.assertTrue(self.decide(Grants(agents=YES, ada=YES), asked).allowed, attributes)
