"""
Tests for :mod:`twisted_exec.runtimes.machinebroker.options`, and for the service that :mod:`twisted_exec.runtimes.machinebroker.tap` makes of them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from twisted.application.service import IService
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.spaces.support import IMPORTED, Hub, kubeconfig
from tests.taps import refusal
from twisted_exec.api.dialects import IRONCORE, ONMETAL
from twisted_exec.runtimes.machinebroker.options import Options, settings
from twisted_exec.runtimes.machinebroker.tap import _target, makeService

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: x
clusters: [{name: x, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: x, user: {token: secret}}]
contexts: [{name: x, context: {cluster: x, user: x}}]
"""
LEAST = ("--namespace=ns", "--source-cluster-name=a", "--iri-listen=unix:///run/x/iri.sock")


class OptionsTests(SynchronousTestCase):
    """The command line."""

    def options(self, *arguments: str) -> Options:
        options = Options()
        options.parseOptions(list(arguments))
        return options

    def refusal(self, *arguments: str) -> str:
        """See :func:`tests.taps.refusal`."""
        return refusal(self, "exec-broker", lambda: makeService(self.options(*arguments)))

    def test_defaults(self) -> None:
        """Optional settings have sensible defaults."""
        result = settings(self.options(*LEAST))
        self.assertEqual((result.place.dialect, result.place.pool), (IRONCORE, ""))
        self.assertEqual((result.identity.source, result.identity.own), ("a", False))
        self.assertEqual((result.token_key, result.streaming.address), ("", ""))
        self.assertEqual(result.state_directory, os.path.abspath("exec-broker-state"))

    def test_everything(self) -> None:
        """All options reach the service."""
        result = settings(
            self.options(
                *LEAST,
                "--dialect=onmetal",
                "--machine-pool-selector=zone=n, disk=ssd",
                "--own-identity",
                "--token-key-file=/k",
                "--iri-revision=onmetal",
                "--streaming-listen=tcp:0:interface=127.0.0.1",
                "--base-url=http://127.0.0.1:20251",
                "--drain-seconds=1",
            )
        )
        self.assertEqual(result.place.dialect, ONMETAL)
        self.assertEqual(result.place.selector, {"zone": "n", "disk": "ssd"})
        self.assertTrue(result.identity.own)
        self.assertEqual((result.token_key, result.iri_revision), ("/k", "onmetal"))
        self.assertEqual(result.streaming.base_url, "http://127.0.0.1:20251")
        self.assertEqual(result.drain_seconds, 1.0)

    def test_space(self) -> None:
        """A target may be a Space, of whichever provider and viewpoint; what cannot be is refused."""
        for wrong, output in (
            (("--space=A",), "--space 'A': "),
            (("--provider=kcp",), "--provider needs --space"),
            (
                ("--space=a", "--space-viewpoint=Both"),
                "must be one of InCluster, External, not 'Both'",
            ),
        ):
            self.assertIn(output, self.refusal(*LEAST, *wrong))
        path = Path(self.mktemp())
        path.write_text(KUBECONFIG)
        options = self.options(*LEAST, f"--kubeconfig={path}", "--space=a", "--provider=kcp")
        self.assertTrue(IService.providedBy(makeService(options)))

    def test_imported_space(self) -> None:
        """The provider of an imported Space is its namespace, as for ``twisted-exec space``."""
        clock, hub = Clock(), Hub()
        hub.secret(kubeconfig(), namespace="team", own="theirs")
        hub.space(namespace="team", secret="theirs", spec=IMPORTED)
        path = Path(self.mktemp())
        path.write_text(KUBECONFIG)
        options = self.options(*LEAST, f"--kubeconfig={path}", "--space=one", "--provider=team")
        client: Any = hub.cluster.client()
        target = _target(options, client, clock)
        assert target is not None
        target.start()
        self.addCleanup(lambda: self.successResultOf(target.stop()))
        clock.advance(1)
        self.assertEqual(target.problem, "")
        self.assertEqual(target.config().server, "https://one.example")

    def test_own_identity_suffices(self) -> None:
        """A broker with its own identity needs no prefix for users."""
        options = self.options("--namespace=ns", "--own-identity", LEAST[2])
        self.assertEqual(settings(options).identity.source, "")

    def test_refused(self) -> None:
        """Missing and wrong options are reported in one line."""
        for arguments, word in (
            (LEAST[1:], "--namespace is missing"),
            (LEAST[:2], "--iri-listen is missing"),
            ((LEAST[0], LEAST[2]), "--source-cluster-name is missing"),
            (("--namespace=N S", *LEAST[1:]), "--namespace 'N S'"),
            ((*LEAST, "--source-cluster-name=system"), "--source-cluster-name: 'system'"),
            ((*LEAST, "--dialect=klingon"), "--dialect: there is no dialect"),
            ((*LEAST, "--iri-revision=x"), "--iri-revision"),
            ((*LEAST, "--machine-pool-name=-"), "--machine-pool-name '-'"),
            ((*LEAST, "--machine-pool-selector=x"), "--machine-pool-selector: 'x'"),
            ((*LEAST, "--machine-pool-selector==x"), "--machine-pool-selector"),
            ((*LEAST, "--machine-pool-name=p", "--machine-pool-selector=a=b"), "exclude"),
            ((*LEAST, "--base-url=http://10.0.0.1:1"), "on loopback only"),
            ((*LEAST, "--base-url=host"), "is not a URL"),
            ((*LEAST, "--kubeconfig=/nonexistent"), "/nonexistent"),
        ):
            self.assertIn(word, self.refusal(*arguments))

    def test_service(self) -> None:
        """A service, which opens nothing before it is started."""
        path = self.mktemp()
        Path(path).write_text(KUBECONFIG)
        before = {*os.listdir("/proc/self/fd"), *os.listdir("/proc/self/task")}
        service = makeService(self.options(*LEAST, f"--kubeconfig={path}"))
        self.assertTrue(IService.providedBy(service))
        after = {*os.listdir("/proc/self/fd"), *os.listdir("/proc/self/task")}
        self.assertEqual(after - before, set())  # what other tests have left may end meanwhile
