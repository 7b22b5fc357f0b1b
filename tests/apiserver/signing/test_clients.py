"""
Tests for :mod:`twisted_exec.apiserver.signing.clients`: whom a request makes known.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.signing.test_poollets import spec
from tests.contracts.signer import Denying, Signed, SignerContract
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.apiserver.signing.clients import Clients, person_problem
from twisted_exec.apiserver.signing.interfaces import CLIENT, ISigner
from twisted_exec.apiserver.signing.requests import RequestedSubject

USAGES = ("digital signature", "client auth")


class ClientsTests(SignerContract, SynchronousTestCase):
    """The contract, for people's certificates."""

    signed = Signed(CLIENT, "jane", ["dev"])

    def make_signer(self) -> ISigner:
        """As :meth:`SignerContract.make_signer`."""
        return Clients([IRONCORE], Denying())


class PersonTests(SynchronousTestCase):
    """Tests for :func:`person_problem`."""

    def problem(self, name: str, *groups: str, usages: tuple[str, ...] = USAGES) -> str:
        return person_problem(spec(CLIENT, *usages), RequestedSubject(name, groups, ()))

    def test_good(self) -> None:
        """A name, and groups or none."""
        self.assertEqual(self.problem("jane"), "")
        self.assertEqual(self.problem("jane", "dev", "ops"), "")
        for usages in (("client auth",), (*USAGES, "key encipherment")):
            self.assertEqual(self.problem("jane", usages=usages), "")

    def test_usages(self) -> None:
        """For clients, and for nothing else."""
        for usages in ((), ("digital signature",), (*USAGES, "server auth"), (*USAGES, "any")):
            self.assertIn("its usages must be client auth", self.problem("jane", usages=usages))

    def test_names(self) -> None:
        """Names that a certificate cannot have."""
        self.assertIn("one common name", self.problem(""))
        self.assertIn("one common name", self.problem("j" * 65))
        self.assertIn("organizations must have", self.problem("jane", "d" * 65))
        self.assertIn("organizations must have", self.problem("jane", ""))
        for names in (("ja\0ne",), ("jane", "dev\x1b[2J"), ("jane\x85",)):
            self.assertIn("control characters", self.problem(*names))
        named = RequestedSubject("jane", (), ("192.0.2.1",))
        self.assertIn("must have no", person_problem(spec(CLIENT, *USAGES), named))

    def test_whom_it_does_not_make(self) -> None:
        """Members of system:masters, and agents and node servers, which have a signer of their own."""
        self.assertIn(
            "membership in system:masters is never granted",
            self.problem("jane", "dev", "system:masters"),
        )
        self.assertIn("an agent's: twisted-exec.dev/agent signs", self.problem("agent:ada:bot"))
        self.assertIn("an agent's: twisted-exec.dev/agent signs", self.problem("jane", "agents"))
        self.assertIn("a node server's", self.problem("system:node:a"))
        self.assertIn("a node server's", self.problem("jane", "system:nodes"))
