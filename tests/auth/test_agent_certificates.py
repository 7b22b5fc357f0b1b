"""
Tests for :mod:`twisted_exec.auth.agent_certificates`.
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography import x509
from twisted.trial.unittest import SynchronousTestCase

from tests.auth.test_x509 import certified, name_of
from tests.tls.support import client_identity
from twisted_exec.api.agents import PERSON_GROUPS, PERSON_UID
from twisted_exec.auth.agent_certificates import agent_of, person_uri
from twisted_exec.auth.interfaces import User
from twisted_exec.tls import pem
from twisted_exec.tls.pki.authority import Issued
from twisted_exec.tls.server import PeerCertificate

ADA = User("ada", ("ops", "a=b&c", "system:authenticated"), "7")


def agent_identity(
    name: str = "agent:ada:bot", uris: Sequence[str] = (person_uri(ADA, "bot"),), *groups: str
) -> Issued:
    """A certificate of the users' CA with these URIs."""
    names = [x509.UniformResourceIdentifier(uri) for uri in uris]
    return certified(name_of(name, *groups), names)


class AgentCertificateTests(SynchronousTestCase):
    """Certificates of agents, and those that claim to be."""

    def agent(self, issued: Issued) -> User | None:
        return agent_of(PeerCertificate(pem.certificates(issued.certificate_pem, "it")[0]))

    def test_agent(self) -> None:
        """The group is always that of agents; the groups and the UID are those of the person."""
        agent = self.agent(agent_identity())
        assert agent is not None
        self.assertEqual(agent.name, "agent:ada:bot")
        self.assertEqual(agent.groups, ("agents", "system:authenticated"))
        self.assertEqual(agent.uid, "")
        self.assertEqual(agent.extra, {PERSON_GROUPS: ("ops", "a=b&c"), PERSON_UID: ("7",)})

    def test_colons(self) -> None:
        """The name has one meaning also if the person's name has colons, or looks like an agent's label."""
        for person in ("oidc:ada", "ada:bot", "agents"):
            uri = person_uri(User(person), "x")
            self.assertIsNotNone(self.agent(agent_identity(f"agent:{person}:x", [uri])))
        # agent:ada:bot:x is the agent x of ada:bot, and of nobody else.
        self.assertIsNone(self.agent(agent_identity("agent:ada:bot:x", [person_uri(ADA, "x")])))

    def test_claims(self) -> None:
        """A certificate without the one right URI is not that of an agent."""
        good = person_uri(ADA, "bot")
        for issued in (
            client_identity("agent:ada:bot"),
            client_identity("agent:ada:bot", "agents"),
            agent_identity("ada"),
            agent_identity("agent:eve:bot"),
            agent_identity("agent:ada:bot", [good], "agents"),
            agent_identity("agent:ada:bot", [good], "system:masters"),
            agent_identity("agent:ada:bot", [good, good]),
            agent_identity("agent:ada:bot", [good.replace("twisted-exec", "spiffe")]),
            agent_identity("agent:ada:bot", ["twisted-exec://agent?person"]),
            agent_identity("agent:ada:bot", ["twisted-exec://agent?"]),
            agent_identity("agent:ada:bot", [good + "&group=g" * 2000]),
            agent_identity("agent:agent:a:b:x", [person_uri(User("agent:a:b"), "x")]),
            agent_identity("agent:ada:Bot", [person_uri(ADA, "Bot")]),
        ):
            self.assertIsNone(self.agent(issued))

    def test_repeated(self) -> None:
        """Of repeated fields the last one counts, and the name must be the same."""
        uri = person_uri(ADA, "bot") + "&person=eve"
        self.assertIsNone(self.agent(agent_identity("agent:ada:bot", [uri])))
