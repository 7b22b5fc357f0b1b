"""
Tests for :mod:`twisted_exec.apiserver.aggregated.options`.
"""

from __future__ import annotations

import os

from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.test_options import arguments
from twisted_exec.apiserver.aggregated.control_plane import Aggregated
from twisted_exec.apiserver.aggregated.trust import RequestHeaderOverrides
from twisted_exec.apiserver.options import Options, settings
from twisted_exec.apiserver.settings import Settings
from twisted_exec.apiserver.tap import makeService
from twisted_exec.kube.client import KubeClient

KUBECONFIG = """
clusters: [{name: c, cluster: {server: "https://host:6443"}}]
contexts: [{name: one, context: {cluster: c}}, {name: two, context: {cluster: c}}]
current-context: one
"""


class OptionsTests(SynchronousTestCase):
    """Options of a server behind a host."""

    def setUp(self) -> None:
        self.kubeconfig = os.path.abspath(self.mktemp())
        with open(self.kubeconfig, "w") as stream:
            stream.write(KUBECONFIG)

    def words(self, *more: str, **options: str) -> list[str]:
        told = arguments(client_ca_file="", **options)
        return [*told, "--aggregated", f"--kubeconfig={self.kubeconfig}", *more]

    def parsed(self, words: list[str]) -> Options:
        options = Options()
        options.parseOptions(words)
        return options

    def refused(self, words: list[str]) -> str:
        with self.assertRaises(SystemExit) as caught:
            self.parsed(words)
        return str(caught.exception.code)

    def told(self, words: list[str]) -> Settings:
        return settings(self.parsed(words))

    def host(self, words: list[str]) -> Aggregated:
        aggregated = self.told(words).aggregated
        assert aggregated is not None
        return aggregated

    def test_alone(self) -> None:
        """A server is standalone by default."""
        self.assertIsNone(self.told(arguments()).aggregated)
        for name in ("kubeconfig", "context", "requestheader-allowed-names"):
            told = self.refused([*arguments(), f"--{name}=x"])
            self.assertIn(f"--{name} needs --aggregated: there is no host", told)

    def test_host(self) -> None:
        """The host is where the kubeconfig says."""
        client = self.host(self.words("--context=two")).host(object())
        assert isinstance(client, KubeClient)
        self.assertEqual(client.config.server, "https://host:6443")
        self.assertIn('"two"', client.config.source)

    def test_overrides(self) -> None:
        """Overrides of the host's ConfigMap, named as kube's options."""
        self.assertEqual(self.host(self.words()).overrides, RequestHeaderOverrides())
        words = self.words(
            "--requestheader-allowed-names=a, b,",
            "--requestheader-username-headers=X-User",
            "--requestheader-group-headers=X-Group",
            "--requestheader-uid-headers=X-Uid",
            "--requestheader-extra-headers-prefix=X-More-",
        )
        expected = RequestHeaderOverrides(
            ("a", "b"), ("X-User",), ("X-Group",), ("X-Uid",), ("X-More-",)
        )
        self.assertEqual(self.host(words).overrides, expected)

    def test_bad_overrides(self) -> None:
        """Invalid header names, and empty lists, are refused with the option's name."""
        for option, told in [
            ("requestheader-allowed-names=", "--requestheader-allowed-names: give one or more"),
            ("requestheader-uid-headers=,", "--requestheader-uid-headers: give one or more"),
            ("requestheader-group-headers=X Y", "no header can be called 'X Y'"),
            ("requestheader-username-headers=Ä", "no header can be called 'Ä'"),
        ]:
            self.assertIn(told, self.refused(self.words(f"--{option}")))

    def test_pods(self) -> None:
        """Pods are the host's."""
        self.assertFalse(self.told(self.words()).pods_view)
        self.assertIn("Pods are the host's", self.refused(self.words("--pods-view")))
        self.assertFalse(self.told(self.words("--no-pods-view")).pods_view)

    def test_of_servers_alone(self) -> None:
        """Options that concern only standalone servers are refused."""
        for option, why in [
            ("client-ca-file=x", "says who is known"),
            ("token-auth-file=x", "says who is known"),
            ("oidc-issuer-url=https://x", "says who is known"),
            ("authentication-config=x", "says who is known"),
            ("enable-bootstrap-token-auth", "says who is known"),
            ("api-audiences=x", "says who is known"),
            ("service-account-issuer=x", "says who is known"),
            ("service-account-key-file=x", "says who is known"),
            ("cluster-signing-cert-file=x", "signs certificates"),
            ("cluster-signing-kube-apiserver-client-key-file=x", "signs certificates"),
        ]:
            name = option.partition("=")[0]
            told = self.refused(self.words(f"--{option}"))
            self.assertIn(f"--{name} cannot go with --aggregated: behind a host, that {why}", told)

    def test_bad_kubeconfig(self) -> None:
        """A kubeconfig that cannot be used is one line."""
        for name, told in (
            ("--context=three", 'no context "three"'),
            ("--kubeconfig=/x", "/x does not exist"),
        ):
            with self.assertRaises(SystemExit) as caught:
                makeService(self.parsed(self.words(name)))
            line = str(caught.exception.code)
            self.assertTrue(line.startswith("exec-apiserver: "), line)
            self.assertIn(told, line)
