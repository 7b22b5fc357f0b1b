"""
Tests for :mod:`twisted_exec.apiserver.signing.agents`: whose agents are signed, and how they are named.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.contracts.signer import Denying, Signed, SignerContract
from twisted_exec.api.agents import LONGEST_SECONDS
from twisted_exec.api.kinds import Object
from twisted_exec.api.status import Forbidden
from twisted_exec.apiserver.signing.agents import AgentClient, check_requester
from twisted_exec.apiserver.signing.interfaces import AGENT, ISigner
from twisted_exec.apiserver.signing.requests import subject_of
from twisted_exec.auth.interfaces import Decision, IAuthorizer, User
from twisted_exec.auth.rules import Attributes


@implementer(IAuthorizer)
class Asked:
    """Allows everything, and records who was asked about, and for what."""

    def __init__(self) -> None:
        self.questions: list[tuple[User, str]] = []

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        asked = f"{attributes.verb} {attributes.resource}/{attributes.subresource}"
        self.questions.append((attributes.user, asked))
        return succeed(Decision(True))


class AgentClientTests(SignerContract, SynchronousTestCase):
    """The contract, for certificates of agents."""

    signed = Signed(AGENT, "agent:ada:bot")

    def make_signer(self) -> ISigner:
        return AgentClient(Denying())

    def csr(
        self, usages: Sequence[str] | None = None, user: str = "ada", *groups: str
    ) -> dict[str, Any]:
        made = super().csr(usages, user)
        made["spec"]["groups"] = list(groups)
        return made

    def problem(self, name: str, user: str = "ada", groups: Sequence[str] = (), **more: Any) -> str:
        """Return why a request for a name is not signed."""
        self.signed = Signed(AGENT, name, groups)
        csr = self.csr(None, user, *more.pop("of", ()))
        csr["spec"].update(more)
        return str(self.make_signer().shape_problem(csr, self.request()))

    def test_named_after_its_requester(self) -> None:
        """The name is that of the requester's agent, whatever colons are in it."""
        self.assertEqual(self.problem("agent:ada:bot"), "")
        self.assertEqual(self.problem("agent:oidc:ada:bot", "oidc:ada"), "")
        for name in (
            "agent:eve:bot",
            "agent:ada:b:bot",
            "ada:bot",
            "eve",
            "agent:ada",
            "agent::bot",
        ):
            self.assertIn("its common name must be agent:ada:NAME", self.problem(name))
        self.assertIn("must be agent:ada:b:NAME", self.problem("agent:ada:bot", "ada:b"))
        for name in ("agent:ada:", "agent:ada:Bot", "system:masters:B"):
            self.assertIn("lower-case letters", self.problem(name))

    def test_group(self) -> None:
        """The group of agents may be in the request, and no other."""
        self.assertEqual(self.problem("agent:ada:bot", groups=["agents"]), "")
        for groups in (["ops"], ["agents", "ops"], ["agents", "agents"], ["system:masters"]):
            refused = self.problem("agent:ada:bot", groups=groups)
            self.assertIn("its organization must be agents", refused)
        self.assertEqual(list(self.make_signer().organizations(subject_of(self.request()))), [])

    def test_requesters(self) -> None:
        """Neither agents nor components have agents, not even if people approve the request."""
        for user in ("agent:ada:bot", "system:serviceaccount:a:b", "system:node:a", ""):
            name = f"agent:{user}:x"
            self.assertRegex(self.problem(name, user), "has no agents")
            with self.assertRaises(Forbidden):
                check_requester({"metadata": {}, "spec": {"signerName": AGENT}}, User(user))
        impersonated = User("ada", impersonated_by=User("eve"))
        with self.assertRaises(Forbidden) as caught:
            check_requester(
                {"metadata": {"name": "r"}, "spec": {"signerName": AGENT}}, impersonated
            )
        self.assertIn('"r" is forbidden: an impersonated user', caught.exception.message)
        check_requester({"metadata": {}, "spec": {"signerName": "example.org/x"}}, impersonated)
        check_requester({"metadata": {}, "spec": {"signerName": AGENT}}, User("ada"))

    def test_too_many_groups(self) -> None:
        """A requester with more groups than a certificate can have is refused with the reason."""
        many = [f"group-{number}" for number in range(1000)]
        self.assertIn("too many groups", self.problem("agent:ada:bot", of=many))

    def test_person(self) -> None:
        """The certificate has the person's groups and UID in a URI."""
        csr: Object = self.csr(None, "ada", "ops", "system:authenticated")
        csr["spec"]["uid"] = "7"
        csr["spec"]["request"] = b64encode(self.request().public_bytes(Encoding.PEM)).decode()
        (uri,) = self.make_signer().uris(csr)
        self.assertEqual(uri, "twisted-exec://agent?person=ada&label=bot&uid=7&group=ops")

    def test_allowed(self) -> None:
        """The server approves for users with the right, which is asked for the requester."""
        authorizer = Asked()
        signer = AgentClient(authorizer)
        csr = self.csr(None, "ada", "ops")
        refusal = signer.refusal(csr, subject_of(self.request()))
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(refusal)), "")
        asked = "create certificatesigningrequests/agentclient"
        self.assertEqual(authorizer.questions, [(User("ada", ("ops",)), asked)])

    def test_life(self) -> None:
        """The longest life is eight hours."""
        self.assertEqual(self.make_signer().longest_seconds, LONGEST_SECONDS)
        self.assertEqual(LONGEST_SECONDS, 8 * 3600)

    def test_names(self) -> None:
        """A request may not bring the URI of a person itself."""
        uri = x509.UniformResourceIdentifier("twisted-exec://agent?person=eve&label=bot")
        request = self.request(extension=x509.SubjectAlternativeName([uri]))
        problem = self.make_signer().shape_problem(self.csr(), request)
        self.assertIn("no subject alternative names", problem)
