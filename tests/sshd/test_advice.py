"""
Tests for :mod:`twisted_exec.sshd.advice` and :mod:`twisted_exec.cli.ssh.advice`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import DEFAULT
from twisted_exec.api.kinds import SPACES
from twisted_exec.api.missing_right import MissingRight
from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.status import BadGateway, NotFound
from twisted_exec.cli.explanations import ask_for_role, explain
from twisted_exec.cli.ssh.advice import SSH_HOSTS
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.sshd.advice import DoorAdvice

GATE = DoorAdvice("")


class AdviceTests(SynchronousTestCase):
    """Remedies are those of the program that the user has."""

    def test_machines(self) -> None:
        """Another namespace, and what is in it."""
        self.assertEqual(GATE.machine_in("vm", "lab"), "ssh lab/vm@GATE")
        self.assertEqual(DoorAdvice("site").machine_in("vm", "lab"), "ssh site/lab/vm@GATE")
        self.assertEqual(SSH_HOSTS.machine_in("vm", "lab"), "ssh vm.lab.console")
        self.assertEqual(
            DoorAdvice("site").list_machines(DEFAULT, "lab"),
            "ssh GATE list site/lab shows the machines there",
        )

    def test_watching(self) -> None:
        """The smaller role is for a session without a terminal."""
        right = MissingRight("ada", "create", DEFAULT.group, "machines", "exec", "lab")
        for way in (GATE, SSH_HOSTS):
            self.assertIn("(console-observer suffices for ssh -T)", ask_for_role(right, advice=way))

    def test_unreachable(self) -> None:
        """A server that cannot be reached is a matter of the operator, who has the kubeconfig."""
        config = ClientConfig("https://api.example.org")
        message = f"cannot reach {config.server}: connection refused"
        error = because(
            Obstacle.SERVER_UNREACHABLE, because(Obstacle.CONNECTION_REFUSED, BadGateway(message))
        )
        self.assertEqual(
            explain(error, "lab", config, GATE), f"{message}; tell the operator of the ssh door"
        )

    def test_space(self) -> None:
        """A Space that does not exist."""
        resource = SPACES.resource
        line = explain(NotFound(resource.plural, "x", resource.group), "", None, GATE)
        self.assertTrue(
            line.endswith("; the user name of ssh is NAME, NAMESPACE/NAME or SPACE/NAMESPACE/NAME"),
            line,
        )
