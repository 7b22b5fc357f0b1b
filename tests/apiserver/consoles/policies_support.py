"""
An API server in memory with ConsolePolicies and ConsoleRequests.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from tests.apiserver.support import MACHINES, MERGE, RBAC, APITestCase
from twisted_exec.api.kinds import Object
from twisted_exec.api.status import Forbidden
from twisted_exec.api.users import User
from twisted_exec.apiserver.consoles.policies import ConsolePolicies
from twisted_exec.apiserver.interfaces import Applicant
from twisted_exec.wire.session_terms import Right, Terms

COMPUTE = "compute.ironcore.dev"
GROUP = "/apis/console.twisted-exec.dev/v1alpha1/namespaces/default"
POLICIES = f"{GROUP}/consolepolicies"
REQUESTS = f"{GROUP}/consolerequests"


def policy(name: str = "p", **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": spec}


class PolicyTestCase(APITestCase):
    """A namespace with a machine, jane who may use consoles, and bob who may approve."""

    def setUp(self) -> None:
        super().setUp()
        self.make_pool("pool-a")
        self.machine = self.make_machine("vm-1")
        self.bind("jane", "edit")
        self.bind("bob", "admin")
        self.may_drive("bob")

    def may_drive(self, user: str) -> None:
        """Let a user drive consoles, by a role of their own."""
        rule = {"verbs": ["drive"], "apiGroups": [COMPUTE], "resources": ["machines/console"]}
        role = {"metadata": {"name": f"{user}-drives"}, "rules": [rule]}
        self.answer("POST", f"{RBAC}/clusterroles", role, code=201)
        self.bind(user, f"{user}-drives")

    def make_policy(self, name: str = "p", **spec: Any) -> Object:
        made: Object = self.answer("POST", POLICIES, policy(name, **spec), code=201)
        return made

    @property
    def policies(self) -> ConsolePolicies:
        """The server's policies."""
        (policies,) = (each for each in self.parts.followers if isinstance(each, ConsolePolicies))
        return policies

    def applicant(self, user: str = "jane", **more: Any) -> Applicant:
        facts = {"session": "s-1", "since": self.clock.seconds(), **more}
        return Applicant(User(user), **facts)

    async def open(
        self,
        applicant: Applicant | None = None,
        right: Right = Right.DRIVE,
        policies: ConsolePolicies | None = None,
    ) -> Terms:
        """Open a session at the machine, as servers do; return its terms."""
        policies = policies or self.policies
        admitted = await policies.open(applicant or self.applicant(), self.machine, right)
        reservation = admitted.reservation
        if reservation is not None:
            try:
                await reservation.use()
            except BaseException as problem:
                reservation.not_opened(problem)
                raise
            reservation.opened()
        terms: Terms = admitted.terms
        return terms

    def opened(self, applicant: Applicant | None = None, right: Right = Right.DRIVE) -> Terms:
        """Return the terms of a session at the machine."""
        terms: Terms = self.successResultOf(Deferred.fromCoroutine(self.open(applicant, right)))
        return terms

    def not_opened(self, applicant: Applicant | None = None, right: Right = Right.DRIVE) -> str:
        """Return the message of a session that policies refuse."""
        return self.refusal(applicant, right).message

    def refusal(self, applicant: Applicant | None = None, right: Right = Right.DRIVE) -> Forbidden:
        """Return the error of a session that policies refuse."""
        made = Deferred.fromCoroutine(self.open(applicant, right))
        refusal = self.failureResultOf(made, Forbidden).value
        assert isinstance(refusal, Forbidden)
        return refusal

    def causes(self, applicant: Applicant | None = None) -> list[str]:
        """Return the reasons of the causes of a refusal."""
        return [each["reason"] for each in self.refusal(applicant).details["causes"]]

    def reviewed(self, applicant: Applicant | None = None, right: Right = Right.DRIVE) -> Terms:
        """Return the terms of an open session."""
        uid = self.machine["metadata"]["uid"]
        return self.policies.review(applicant or self.applicant(), uid, right)

    def ended(self, applicant: Applicant | None = None) -> str:
        """Return the message with which policies end an open session."""
        with self.assertRaises(Forbidden) as caught:
            self.reviewed(applicant)
        return caught.exception.message

    def label(self, user: str = "admin", code: int = 200, **labels: str | None) -> Any:
        """Change labels of the machine."""
        patch = {"metadata": {"labels": labels}}
        path = f"{MACHINES}/vm-1"
        made = self.answer("PATCH", path, patch, code=code, user=user, content_type=MERGE)
        if code == 200:
            self.machine = made
        return made

    def request(self, name: str = "r", user: str = "jane", **spec: Any) -> Object:
        """A ConsoleRequest, stored."""
        body = {"metadata": {"name": name}, "spec": {"machine": "vm-1", **spec}}
        made: Object = self.answer("POST", REQUESTS, body, user=user, code=201)
        return made

    def decide(
        self, name: str = "r", user: str = "bob", code: int = 200, headers: Any = (), **status: Any
    ) -> Any:
        """Approve a request, as users do with kubectl patch."""
        return self.answer(
            "PATCH",
            f"{REQUESTS}/{name}/approval",
            {"status": status or {"approved": True}},
            code=code,
            user=user,
            content_type=MERGE,
            headers=headers,
        )
