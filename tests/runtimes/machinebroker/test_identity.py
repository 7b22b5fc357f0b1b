"""
Tests for :mod:`twisted_exec.runtimes.machinebroker.objects`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import Forbidden
from twisted_exec.kube.kubeconfig.client_config import ImpersonatedUser
from twisted_exec.runtimes.machinebroker.objects import MAX_USER, BrokerIdentity, cluster_name


class IdentityTests(SynchronousTestCase):
    """Identities in the target."""

    def test_prefix(self) -> None:
        """A user is known by where they come from; nested clusters add up."""
        self.assertEqual(BrokerIdentity("a").acting_as("jane"), ImpersonatedUser(user="a:jane"))
        self.assertEqual(BrokerIdentity("b").acting_as("a:jane"), ImpersonatedUser(user="b:a:jane"))

    def test_refused(self) -> None:
        """Unknown users, components of Kubernetes, and names that no header can carry are refused."""
        for user in (
            "",
            "system:admin",
            "system:serviceaccount:default:ci",
            "jane\r\nX-Remote-User: root",
            "jane ",
            "x" * (MAX_USER + 1),
        ):
            self.assertRaises(Forbidden, BrokerIdentity("a").acting_as, user)

    def test_own(self) -> None:
        """With its own identity it asks for itself, whoever they are."""
        for user in ("", "jane", "system:admin"):
            self.assertFalse(BrokerIdentity("a", own=True).acting_as(user))

    def test_cluster_names(self) -> None:
        """A cluster's name can be separated from the user's, and is not a prefix of Kubernetes."""
        for good in ("a", "site-a", "site-a.example"):
            self.assertEqual(cluster_name(good), good)
        for bad in ("", "system", "a:b", "A", "-a", "a" * 64, "a b"):
            self.assertRaises(ValueError, cluster_name, bad)
