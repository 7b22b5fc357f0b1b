"""Tests for :mod:`twisted_exec.mcp.users`."""

from __future__ import annotations

from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.agents import PERSON_GROUPS
from twisted_exec.api.status import Forbidden
from twisted_exec.auth.interfaces import User
from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    ImpersonatedUser,
    KubeConfigError,
)
from twisted_exec.mcp.users import Caller, OwnLogin, caller_of

OWN = ClientConfig("https://api.example.org", token="own", source="the kubeconfig")


class CallerTests(SynchronousTestCase):
    """Whom the program acts as."""

    def test_user(self) -> None:
        """The user and the groups of the token, and nothing that the API server adds itself."""
        user = User("agent:ada:triage", ("agents", "system:authenticated"), uid="u")
        self.assertEqual(caller_of(user), Caller("agent:ada:triage", ("agents",)))

    def test_groups_of_person(self) -> None:
        """The groups in an agent's token are those of its person; a person keeps them as the own."""
        user = User("agent:ada:triage", ("dev", "agents", "ops", "system:authenticated"))
        caller = caller_of(user)
        self.assertEqual(caller, Caller("agent:ada:triage", ("agents",), ("dev", "ops")))
        self.assertEqual(caller_of(User("ada", ("dev",))), Caller("ada", ("dev",)))
        acting = OwnLogin(lambda: OWN).acting_as(caller).impersonate
        self.assertEqual(acting.groups, ("agents",))
        self.assertEqual(acting.extra, ((PERSON_GROUPS, ("dev", "ops")),))

    def test_half_an_agent(self) -> None:
        """A name of an agent without the group, and the group without the name, are refused with the reason."""
        for name, groups in (("agent:ada:triage", ()), ("agent:ada:triage", ("dev",))):
            with self.assertRaises(Forbidden) as caught:
                caller_of(User(name, groups))
            self.assertIn('not the group "agents"', caught.exception.message)
        with self.assertRaises(Forbidden) as caught:
            caller_of(User("ada", ("agents",)))
        self.assertIn("agent:PERSON:NAME", caught.exception.message)

    def test_person(self) -> None:
        """Agents take the turns of their person; other users are people of their own."""
        names = ("ada", "agent:ada:x", "agent:oidc:ada:x", "agent:", "agent::x")
        people = [Caller(each).person for each in names]
        self.assertEqual(people, ["ada", "ada", "oidc:ada", "agent:", "agent::x"])

    def test_reserved(self) -> None:
        """Nobody becomes a user or a group of Kubernetes itself."""
        for name, groups in (
            ("system:admin", ()),
            ("system:serviceaccount:a:b", ()),
            ("ada", ("system:masters",)),
            ("agent:ada:triage", ("agents", "system:nodes")),
            ("", ()),
            (" ada", ()),
            ("a\nb", ()),
            ("ada", ("a\r\nImpersonate-Group: system:masters",)),
            ("ada", tuple(f"g{at}" for at in range(100))),
        ):
            self.assertRaises(Forbidden, caller_of, User(name, groups))


class LoginTests(SynchronousTestCase):
    """The program's own credentials."""

    def test_impersonates(self) -> None:
        """Requests have the program's credentials, and name the user."""
        config = OwnLogin(lambda: OWN).acting_as(Caller("ada", ("dev",)))
        self.assertEqual(config.token, "own")
        self.assertEqual(config.impersonate, ImpersonatedUser("ada", groups=("dev",)))

    def test_unusable(self) -> None:
        """A kubeconfig without credentials, or that impersonates somebody, is refused."""
        for config in (
            replace(OWN, token=""),
            replace(OWN, impersonate=ImpersonatedUser("root")),
        ):
            self.assertRaises(KubeConfigError, OwnLogin, lambda config=config: config)
