"""
Tests for :mod:`twisted_exec.cli.options`.
"""

from __future__ import annotations

import json
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.commands.registry import make_parser
from twisted_exec.cli.console.options import parse_options
from twisted_exec.cli.options import chosen_context, config_of, follow_config
from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    ImpersonatedUser,
    KubeConfigError,
)


class ClusterOptionsTests(SynchronousTestCase):
    """The options override parts of a kubeconfig."""

    def config(self, *words: str) -> ClientConfig:
        path = self.mktemp()
        with open(path, "w") as stream:
            stream.write(
                "current-context: x\n"
                "clusters: [{name: c, cluster: {server: 'https://a', tls-server-name: n}},"
                " {name: d, cluster: {server: 'https://d'}}]\n"
                "users: [{name: u, user: {token: t, as: root}}, {name: v, user: {token: v}}]\n"
                "contexts: [{name: x, context: {cluster: c, user: u, namespace: lab}},"
                " {name: y, context: {cluster: d}}]\n"
            )
        return config_of(parse_options(["vm", "--kubeconfig", path, *words]))

    def test_none(self) -> None:
        """Without options, the file is used as it is."""
        config = self.config()
        self.assertEqual(
            (config.server, config.tls_server_name, config.namespace), ("https://a", "n", "lab")
        )
        self.assertEqual((config.token, config.impersonate), ("t", ImpersonatedUser("root")))

    def test_choices(self) -> None:
        """Options select another context, cluster, user or namespace."""
        self.assertEqual(self.config("--context", "y").server, "https://d")
        config = self.config("--cluster", "d", "--user", "v", "-n", "other")
        self.assertEqual(
            (config.server, config.token, config.namespace), ("https://d", "v", "other")
        )

    def test_server(self) -> None:
        """Options set the server's address and how its certificate is verified."""
        config = self.config("-s", "https://b:1", "--insecure-skip-tls-verify")
        self.assertEqual((config.server, config.tls_server_name), ("https://b:1", ""))
        self.assertTrue(config.insecure_skip_tls_verify)
        self.assertEqual(self.config("--tls-server-name", "m").tls_server_name, "m")
        with self.assertRaises(KubeConfigError) as caught:
            self.config("--certificate-authority", "/nonexistent")
        self.assertIn("certificate-authority: /nonexistent: No such", str(caught.exception))

    def test_blame(self) -> None:
        """An error that an option causes blames the option; other errors blame the file."""
        for words, told in (
            (("--server", "foo"), 'server "foo" is not an https:// URL (cluster "c" of '),
            (("--user", "v", "--as-group", "g"), "as is missing"),
        ):
            with self.assertRaises(KubeConfigError) as caught:
                self.config(*words)
            message = str(caught.exception)
            self.assertTrue(message.startswith(f"with the options given, {told}"), message)
        with self.assertRaises(KubeConfigError) as caught:
            self.config("--context", "z")
        self.assertNotIn("options given", str(caught.exception))

    def test_identity(self) -> None:
        """Options set the credentials and the impersonated user."""
        config = self.config(
            *("--token", "mine", "--as", "jane", "--as-uid", "7"),
            *("--as-group", "dev", "--as-group", "ops"),
        )
        self.assertEqual(config.token, "mine")
        self.assertEqual(config.impersonate, ImpersonatedUser("jane", "7", ("dev", "ops")))
        with self.assertRaises(KubeConfigError):
            self.config("--username", "u", "--password", "p")  # beside the file's token
        config = self.config("--cluster", "c", "--user", "v", "--as-group", "g", "--as", "x")
        self.assertEqual(config.impersonate.groups, ("g",))
        with self.assertRaises(KubeConfigError) as caught:
            self.config("--client-key", "/nonexistent")
        self.assertIn("client-key: /nonexistent", str(caught.exception))


class FollowConfigTests(SynchronousTestCase):
    """A kubeconfig that changes while a program runs."""

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
        """Another current context does not take the program to another cluster; a moved server does."""
        self.write("lab")
        options = make_parser().parse_args(["web", "--kubeconfig", str(self.path), "--as", "ann"])
        followed = follow_config(options, chosen_context(options))
        self.write("production")
        self.assertEqual(followed.current().server, "https://lab:6443")
        self.write("production", "https://moved-to-another-name:6443")
        config = followed.current()
        self.assertEqual(config.server, "https://moved-to-another-name:6443")
        self.assertEqual(config.impersonate.user, "ann")
