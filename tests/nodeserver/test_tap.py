"""Tests for :mod:`twisted_exec.nodeserver.tap`, and for all options of the program together."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.application.service import IService
from twisted.trial.unittest import SynchronousTestCase

from tests.taps import refusal
from twisted_exec.nodeserver.options import Options
from twisted_exec.nodeserver.tap import makeService
from twisted_exec.program.service import ServiceWithCleanup

KUBECONFIG = """
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:6443'}}]
contexts: [{name: x, context: {cluster: c}}]
current-context: x
"""


class TapTests(SynchronousTestCase):
    """The command line."""

    def setUp(self) -> None:
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        (directory / "config").write_text(KUBECONFIG)
        (directory / "leaves.yaml").write_text(
            "leaves: [{name: one, kubeconfig: {file: config}, nodes: [{name: leaf-one}]}]"
        )
        self.directory = directory
        self.least = [
            f"--kubeconfig={directory / 'config'}",
            f"--leaves={directory / 'leaves.yaml'}",
            "--tls-cert-file=tls.crt",
            "--tls-private-key-file=tls.key",
            "--client-ca-file=ca.crt",
            "--node-address=10.0.0.7",
        ]

    def options(self, *more: str) -> Options:
        options = Options()
        options.parseOptions([*self.least, *more])
        return options

    def refusal(self, *arguments: str) -> str:
        """See :func:`tests.taps.refusal`."""
        return refusal(self, "exec-nodeserver", lambda: makeService(self.options(*arguments)))

    def test_service(self) -> None:
        """It makes a service, and opens nothing before that starts."""
        program = makeService(self.options())
        assert isinstance(program, ServiceWithCleanup)
        self.assertTrue(IService.providedBy(program))
        self.assertIsNone(program.served.address)

    def test_election(self) -> None:
        """Readiness includes the election of the leader that keeps the Nodes, if there is one."""
        for upkeep, is_probed in (("full", True), ("none", False)):
            program = makeService(self.options(f"--upkeep={upkeep}"))
            assert isinstance(program, ServiceWithCleanup)
            self.assertEqual("leader-election" in program.served.health.names, is_probed)

    def test_paths(self) -> None:
        """Files are found from wherever a daemon is."""
        settings = self.options().server()
        self.assertEqual(settings.certificate, os.path.abspath("tls.crt"))
        self.assertEqual(settings.client_ca, os.path.abspath("ca.crt"))

    def test_no_leaves(self) -> None:
        """A node server without leaves has nothing to do, and says what would help."""
        self.least = [word for word in self.least if not word.startswith("--leaves")]
        self.assertIn("give --leaves, --kosmos or --spaces", self.refusal())
        self.assertTrue(self.options("--kosmos").registry().kosmos)

    def test_spaces(self) -> None:
        """The options for Spaces are passed on, and invalid ones are refused."""
        chosen = (
            self.options("--spaces=default, kcp", "--space-selector=exec=yes").registry().spaces
        )
        assert chosen is not None
        self.assertEqual((chosen.providers, chosen.policy), (("default", "kcp"), "owned"))
        self.assertTrue(chosen.selector.matches({"exec": "yes"}))
        choice = self.options("--spaces=*", "--space-viewpoint=InCluster", "--space-pods=machines")
        chosen = choice.registry().spaces
        assert chosen is not None
        self.assertEqual((chosen.providers, chosen.viewpoint), ((), "InCluster"))
        self.assertIsNone(self.options().registry().spaces)
        for wrong, message in (
            (("--spaces=a.b",), "--spaces 'a.b': a lowercase RFC 1123 label"),
            (("--spaces=a,",), "--spaces ''"),
            (("--space-selector=a=b",), "--space-selector needs --spaces"),
            (("--spaces=*", "--space-selector=a in"), "--space-selector: "),
            (("--space-viewpoint=Both",), "'Both' is none of InCluster, External"),
            (("--space-pods=mine",), "'mine' is none of owned, same-name, machines"),
        ):
            self.assertIn(message, self.refusal(*wrong))

    def test_wrong_leaves(self) -> None:
        """An invalid file of leaves is reported before anything starts."""
        (self.directory / "leaves.yaml").write_text("leaves: [{name: one, kubekonfig: {}}]")
        self.assertIn("kubeconfig is missing", self.refusal())
        (self.directory / "leaves.yaml").unlink()
        self.assertIn("cannot read", self.refusal())

    def test_root_name(self) -> None:
        """The root's name must be a valid label value."""
        self.assertEqual(self.options("--root-name=eu").registry().root_name, "eu")
        for wrong in ("", "a b", "x" * 64):
            self.assertIn("--root-name", self.refusal(f"--root-name={wrong}"))

    def test_two_syncers(self) -> None:
        """Kosmos makes the Pods of its leaves itself: two who make them are refused."""
        message = self.refusal("--kosmos", "--sync-pods")
        self.assertIn("--sync-pods and --kosmos exclude each other", message)

    def test_port(self) -> None:
        """The port that is published is one."""
        self.assertEqual(self.options("--node-port=443").published(10250).port, 443)
        self.assertEqual(self.options().published(10250).port, 10250)
        for wrong in ("0", "65536", "http", "-1", "\N{SUPERSCRIPT TWO}"):
            message = self.refusal(f"--node-port={wrong}")
            self.assertIn(f"--node-port: {wrong!r} is not a port from 1 to 65535", message)

    def test_no_root(self) -> None:
        """An invalid kubeconfig is reported."""
        (self.directory / "config").write_text("clusters: 1")
        self.assertIn("config", self.refusal())
