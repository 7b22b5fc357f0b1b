"""Tests for :mod:`twisted_exec.kube.following`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.kube.following import FollowedConfig
from twisted_exec.kube.kubeconfig import KubeConfigError


def kubeconfig(server: str) -> str:
    """A kubeconfig for one server."""
    return json.dumps(
        {
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
            "clusters": [{"name": "it", "cluster": {"server": server}}],
            "users": [{"name": "me", "user": {}}],
        }
    )


class FollowedConfigTests(SynchronousTestCase):
    """Tests for :class:`FollowedConfig`."""

    def setUp(self) -> None:
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        self.path = directory / "config"
        self.replace(kubeconfig("https://one:6443"))

    def replace(self, content: str) -> None:
        """As those who renew credentials do: another file takes its place."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(content)
        os.replace(fresh, self.path)

    def test_unchanged(self) -> None:
        """The same files give the very same configuration."""
        followed = FollowedConfig(str(self.path))
        self.assertIs(followed.current(), followed.current())

    def test_replaced(self) -> None:
        """A file that is replaced counts from the next look."""
        followed = FollowedConfig(str(self.path))
        self.assertEqual(followed.current().server, "https://one:6443")
        self.replace(kubeconfig("https://two:6443"))
        self.assertEqual(followed.current().server, "https://two:6443")

    def test_half_written(self) -> None:
        """What makes no sense changes nothing, and is mended by the next write."""
        followed = FollowedConfig(str(self.path))
        self.replace("{half")
        self.assertEqual(followed.current().server, "https://one:6443")
        os.unlink(self.path)
        self.assertEqual(followed.current().server, "https://one:6443")
        self.replace(kubeconfig("https://two:6443"))
        self.assertEqual(followed.current().server, "https://two:6443")

    def test_listed(self) -> None:
        """Files of KUBECONFIG are followed, also one that comes later."""
        later = self.path.with_name("first")
        environ = {"KUBECONFIG": f"{later}:{self.path}"}
        followed = FollowedConfig(environ=environ)
        later.write_text(kubeconfig("https://first:6443"))
        self.assertEqual(followed.current().server, "https://first:6443")

    def test_nothing_to_follow(self) -> None:
        """At the start there must be something to use."""
        with self.assertRaises(KubeConfigError):
            FollowedConfig(str(self.path.with_name("nowhere")))
