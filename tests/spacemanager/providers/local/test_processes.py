"""Tests for :mod:`twisted_exec.spacemanager.providers.local.processes`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.spacemanager.providers.local.processes import environment


class EnvironmentTests(SynchronousTestCase):
    """Tests for :func:`environment`."""

    def test_nothing_of_ours(self) -> None:
        """The manager's own variables are not passed on to a space."""
        ours = {"NOTIFY_SOCKET": "@x", "KUBECONFIG": "/k", "PATH": "/bin", "LC_ALL": "C"}
        found = environment(ours)
        self.assertEqual(sorted(found), ["LC_ALL", "PATH", "PYTHONPATH"])
