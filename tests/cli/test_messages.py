"""
Tests for :mod:`twisted_exec.cli.messages`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.spaces import SPACES
from twisted_exec.api.status import (
    BadGateway,
    Forbidden,
    NotFound,
    TooManyRequests,
    Unauthorized,
)
from twisted_exec.cli.messages import explain, one_line
from twisted_exec.kube.kubeconfig.loader import KubeConfigError


class ExplainTests(SynchronousTestCase):
    """Tests for :func:`explain`."""

    def test_refusals(self) -> None:
        """Errors of an API server are explained in the user's terms."""
        self.assertEqual(explain(NotFound("machines", "vm")), 'machine "vm" not found')
        for plural, group in (
            ("machines", "compute.ironcore.dev"),
            ("instances", "core.spheric.cloud"),
        ):
            self.assertEqual(
                explain(NotFound(plural, "vm", group), "lab"),
                f'{plural[:-1]} "vm" not found in namespace "lab"',
            )
        space = NotFound(SPACES.plural, "lab", SPACES.group, 'there is no space "lab"')
        self.assertEqual(
            explain(space, "x"), 'there is no space "lab"; kubectl get spaces -A lists all'
        )
        pool = NotFound("machinepools", "p", "compute.ironcore.dev")
        self.assertEqual(explain(pool, "lab"), 'machinepool "p" not found')
        lost = NotFound("pools", "p", "x.y", 'pools.x.y "p" not found: machine vm was in it')
        self.assertEqual(explain(lost), 'pool "p" not found: machine vm was in it')
        self.assertEqual(explain(Forbidden("user ann may not")), "forbidden: user ann may not")
        missing = 'secrets "a" is forbidden: user "ann" cannot get secrets'
        self.assertEqual(explain(Forbidden(missing)), missing)
        self.assertEqual(
            explain(Unauthorized()), "the server does not accept these credentials: Unauthorized"
        )
        self.assertEqual(
            explain(TooManyRequests("runtime full", 3)), "runtime full; try again in 3 s"
        )
        self.assertEqual(explain(BadGateway("poollet down")), "poollet down")

    def test_others(self) -> None:
        """A kubeconfig error is shown as it is; an unexpected exception is an internal error."""
        self.assertEqual(explain(KubeConfigError("f: not YAML")), "f: not YAML")
        self.assertEqual(explain(ValueError("x")), "internal error: ValueError: x")


class OneLineTests(SynchronousTestCase):
    """Tests for :func:`one_line`."""

    def test_safe_for_a_terminal(self) -> None:
        """A server cannot move the cursor or add lines."""
        self.assertEqual(one_line("größe\r\n\x1b[2J ok\x07"), "größe ?[2J ok?")
