"""
Tests for :mod:`twisted_exec.cli.web.program`; the whole run is in the test of the process.
"""

from __future__ import annotations

import json
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.commands.registry import make_parser
from twisted_exec.cli.web.program import chosen_context, follow_config


class FollowConfigTests(SynchronousTestCase):
    """A kubeconfig that changes while the page is open."""

    def setUp(self) -> None:
        self.path = Path(self.mktemp()).absolute()

    def write(self, current: str, server: str = "https://lab:6443") -> None:
        servers = {"lab": server, "production": "https://production:6443"}
        document = {
            "current-context": current,
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": "me"}} for name in servers
            ],
            "clusters": [
                {"name": name, "cluster": {"server": url}} for name, url in servers.items()
            ],
            "users": [{"name": "me", "user": {}}],
        }
        self.path.write_text(json.dumps(document))

    def test_other_context(self) -> None:
        """Another current context does not take the page to another cluster; a moved server does."""
        self.write("lab")
        options = make_parser().parse_args(["web", "--kubeconfig", str(self.path), "--as", "ann"])
        followed = follow_config(options, chosen_context(options))
        self.write("production")
        self.assertEqual(followed.current().server, "https://lab:6443")
        self.write("production", "https://moved-to-another-name:6443")
        config = followed.current()
        self.assertEqual(config.server, "https://moved-to-another-name:6443")
        self.assertEqual(config.impersonate.user, "ann")
