"""
Agents of people at a whole API server: their certificates, rights and sessions.
"""

from __future__ import annotations

from urllib.parse import parse_qs

from tests.apiserver.agents import BINDINGS, STDIN, AgentCase
from twisted_exec.api import kinds
from twisted_exec.api.agents import PERSON_GROUPS
from twisted_exec.api.missing_right import NEVER_ALLOWED, missing_right
from twisted_exec.api.status import APIError
from twisted_exec.streaming.interfaces import REVOKED
from twisted_exec.wire.session_terms import TERMS_HEADER


class AgentTests(AgentCase):
    """What an agent is, and may do."""

    async def test_identity(self) -> None:
        """The server knows the agent by name, with the group of agents, and the groups of its person beside it."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await self.agent.create(kinds.SELFSUBJECTREVIEWS.resource, review)
        info = answer["status"]["userInfo"]
        self.assertEqual(info["username"], "agent:jane:bot")
        self.assertEqual(info["groups"], ["agents", "system:authenticated"])
        self.assertEqual(info["extra"][PERSON_GROUPS], ["dev"])

    async def test_session(self) -> None:
        """Poollets learn who the agent is, and that it yields; audit names it."""
        await self.open(user="bot", query=STDIN)
        headers = self.poollet_.requests[-1][2]
        (text,) = headers[TERMS_HEADER.lower()]
        self.assertEqual(parse_qs(text)["yields"], ["1"])
        self.assertEqual(headers["x-remote-user"], ["agent:jane:bot"])
        self.assertEqual(headers["x-remote-group"], ["agents", "system:authenticated"])
        begun = [each for each in self.audit if each["event"] == "start"]
        self.assertEqual({each["user"] for each in begun}, {"agent:jane:bot"})

    async def test_person_loses_rights(self) -> None:
        """The agent's session ends when the person's right is withdrawn, and so do the agent's other rights."""
        await self.open(user="bot", query=STDIN)
        (session,) = self.server._parts.sessions.live()
        await self.agent.list(kinds.MACHINES.resource, "default")
        await self.admin.delete(BINDINGS, "dev-edit", "default")
        await self.until(lambda: session.ending)
        assert session.ending is not None
        self.assertEqual(session.ending.reason, REVOKED)
        self.assertIn('user "jane", whose agent it is, may not', session.ending.message)
        listing = self.agent.list(kinds.MACHINES.resource, "default")
        self.assertIn('user "jane", whose agent', await self.refusal(listing))

    async def test_agents_lose_rights(self) -> None:
        """The sessions of all agents end when the role of agents is withdrawn; those of people continue."""
        await self.open(user="bot", query=STDIN)
        await self.open(user="jane", query=STDIN)
        agents, people = self.server._parts.sessions.live()
        await self.admin.delete(BINDINGS, "agents", "default")
        await self.until(lambda: agents.ending)
        self.assertIsNone(people.ending)

    async def test_no_policy(self) -> None:
        """The sessions of agents end with the last policy for them; then they observe, and change no machine."""
        await self.open(user="bot", query=STDIN)
        await self.open(user="jane", query=STDIN)
        agents, people = self.server._parts.sessions.live()
        await self.admin.delete(kinds.CONSOLEPOLICIES.resource, "agents", "default")
        await self.until(lambda: agents.ending)
        assert agents.ending is not None
        self.assertEqual(agents.ending.reason, REVOKED)
        self.assertIn("may only observe where no ConsolePolicy", agents.ending.message)
        self.assertIsNone(people.ending)
        self.assertIn(
            "may only observe where no ConsolePolicy",
            await self.refused(403, user="bot", query=STDIN),
        )
        off = self.agent.patch(kinds.MACHINES.resource, "vm", {"spec": {"power": "Off"}}, "default")
        self.assertIn("may only observe where no ConsolePolicy", await self.refusal(off))
        await self.open(user="bot", query="?stdout=true&tty=true")

    async def test_no_more_than_the_person(self) -> None:
        """A role for agents gives an agent nothing that its person lacks."""
        creating = self.agent.create(kinds.NAMESPACES.resource, {"metadata": {"name": "n"}})
        await self.refusal(creating)
        machinery = self.agent.list(kinds.CONSOLEPOLICIES.resource, "kube-system")
        await self.refusal(machinery)

    async def test_renews_itself(self) -> None:
        """An agent gets no certificate: neither another of its own, nor one of another agent."""
        for name in ("agent:jane:bot", "agent:jane:other", "agent:agent:jane:bot:x"):
            message = await self.refusal(self.ask(self.agent, name))
            self.assertIn("an agent may not approve", message)

    async def test_approves_itself(self) -> None:
        """An agent that may write everything in its namespace still approves no request."""
        requests = kinds.CONSOLEREQUESTS.resource
        body = {"metadata": {"name": "r"}, "spec": {"machine": "vm"}}
        made = await self.agent.create(requests, body, "default")
        self.assertEqual(made["spec"]["user"], "agent:jane:bot")
        patch = {"status": {"approved": True}}
        approving = self.agent.patch(requests, "r", patch, "default", subresource="approval")
        self.assertIn("an agent may not approve", await self.refusal(approving))

    async def test_who_lacks_the_right(self) -> None:
        """A refusal names who of the two lacks the right, and for what no agent may do that no role helps."""
        policies, machines = kinds.CONSOLEPOLICIES.resource, kinds.MACHINES.resource
        await self.admin.delete(BINDINGS, "dev-edit", "default")
        for namespace, user in (("other", "agent:jane:bot"), ("default", "jane")):
            with self.assertRaises(APIError) as caught:
                await self.agent.list(machines, namespace)
            right = missing_right(caught.exception)
            assert right is not None
            self.assertEqual((right.user, right.verb), (user, "list"))
        with self.assertRaises(APIError) as caught:
            await self.agent.create(policies, {"metadata": {"name": "p"}, "spec": {}}, "default")
        self.assertEqual([each["reason"] for each in caught.exception.causes], [NEVER_ALLOWED])

    async def test_impersonates(self) -> None:
        """An agent acts as nobody else, and not as its person."""
        headers = [(b"Impersonate-User", b"jane")]
        message = await self.refused(
            403, user="bot", method=b"GET", path="/api", headers=headers, query=""
        )
        self.assertIn("an agent may not approve, impersonate", message)
