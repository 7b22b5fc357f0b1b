"""
Tests for :mod:`twisted_exec.poollet.options`, and for the service that :mod:`twisted_exec.poollet.tap` makes of them.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from twisted.application.service import IService
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import IRONCORE, SPHERIC
from twisted_exec.poollet.allowed_hosts import AllowedHost
from twisted_exec.poollet.options import Options, settings
from twisted_exec.poollet.tap import PoolletProgram, makeService

KUBECONFIG = """
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:6443'}}]
contexts: [{name: x, context: {cluster: c}}]
current-context: x
"""


class OptionsTests(SynchronousTestCase):
    """The command line."""

    def setUp(self) -> None:
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        (directory / "config").write_text(KUBECONFIG)
        self.directory = directory
        self.least = [
            f"--kubeconfig={directory / 'config'}",
            "--machine-pool-name=pool-a",
            "--machine-runtime-endpoint=unix:///run/x.sock",
            "--tls-cert-file=tls.crt",
            "--tls-private-key-file=tls.key",
        ]

    def options(self, *more: str) -> Options:
        options = Options()
        options.parseOptions([*self.least, *more])
        return options

    def refusal(self, *arguments: str) -> str:
        """Return the refusal of a command line: one line and exit code 1."""
        self.patch(__import__("sys"), "stdout", io.StringIO())
        with self.assertRaises(SystemExit) as caught:
            options = Options()
            options.parseOptions(list(arguments))
            makeService(options)
        message = str(caught.exception.code)
        self.assertTrue(message.startswith("exec-poollet: "), message)
        self.assertNotIn("\n", message)
        return message

    def test_dialect(self) -> None:
        """The dialect determines the runtime's API revision, unless an option does."""
        self.assertEqual(settings(self.options()).dialect, IRONCORE)
        options = self.options("--dialect=spheric")
        self.assertEqual(settings(options).dialect, SPHERIC)
        program = makeService(options)
        # The program has not been started, so no runtime sees the revision.
        self.assertEqual(program._runtime.revision.name, "spheric")
        self.assertIn("choose one of ironcore,", self.refusal(*self.least, "--dialect=x"))

    def test_bootstrap(self) -> None:
        """A bootstrap kubeconfig needs --cert-dir and excludes --kubeconfig."""
        rest = self.least[1:]
        first = f"--bootstrap-kubeconfig={self.directory / 'config'}"
        message = self.refusal(*self.least, first)
        self.assertIn("--bootstrap-kubeconfig and --kubeconfig exclude each other", message)
        message = self.refusal(first, *rest)
        self.assertIn("--bootstrap-kubeconfig needs --cert-dir", message)
        directory = f"--cert-dir={self.directory / 'certificates'}"
        message = self.refusal("--bootstrap-kubeconfig=/nonexistent", directory, *rest[:2])
        self.assertIn("/nonexistent", message)
        options = Options()
        options.parseOptions([first, directory, *rest[:2]])
        makeService(options)
        self.assertFalse((self.directory / "certificates").exists())

    def test_defaults(self) -> None:
        """Options have sensible defaults; paths become absolute."""
        parsed = settings(self.options())
        self.assertEqual((parsed.pool, parsed.provider_id), ("pool-a", "twisted-exec://pool-a"))
        self.assertEqual((parsed.listen, parsed.drain_seconds), ("tcp:20250", 1.5))
        self.assertEqual(parsed.certificate, os.path.abspath("tls.crt"))
        self.assertEqual(
            (parsed.client_ca, parsed.requestheader_ca, parsed.runtime_ca), ("", "", "")
        )
        self.assertEqual(list(parsed.addresses), [])

    def test_everything(self) -> None:
        """Lists are given with commas or by repeating."""
        parsed = settings(
            self.options(
                "--provider-id=x://y",
                "--listen=tcp:0:interface=127.0.0.1",
                "--client-ca-file=/ca",
                "--requestheader-client-ca-file=/rca",
                "--requestheader-allowed-names=a, b",
                "--addresses=InternalIP=10.0.0.1,Hostname=h",
                "--addresses=ExternalDNS=d",
                "--pool-proxy-suffices=one",
                "--pool-proxy-suffices=two",
                "--runtime-ca-file=/runtime",
                "--runtime-uid=root",
                "--runtime-uid=1234",
                "--drain-seconds=0.5",
            )
        )
        self.assertEqual(list(parsed.requestheader_names), ["a", "b"])
        self.assertEqual(
            list(parsed.addresses),
            [("InternalIP", "10.0.0.1"), ("Hostname", "h"), ("ExternalDNS", "d")],
        )
        self.assertEqual(list(parsed.pool_proxy_suffices), ["one", "two"])
        self.assertEqual(list(parsed.trusted_uids), [0, 1234])
        self.assertEqual((parsed.runtime_ca, parsed.drain_seconds), ("/runtime", 0.5))
        self.assertTrue(parsed.runtime.startswith("unix:///"), parsed.runtime)

    def test_service(self) -> None:
        """Creating the service opens no files: the certificates need not exist yet."""
        service: Any = makeService(self.options("--audit-log=/nonexistent/audit.log"))
        self.assertTrue(IService.providedBy(service))
        self.assertIsInstance(service, PoolletProgram)
        self.assertIsNone(service.poollet.address)

    def test_missing(self) -> None:
        """A missing required option is named."""
        for number in range(1, len(self.least)):
            name = self.least[number].partition("=")[0]
            arguments = self.least[:number] + self.least[number + 1 :]
            self.assertIn(f"{name} is missing", self.refusal(*arguments))

    def test_senseless(self) -> None:
        """Invalid values are refused with the valid ones."""
        for argument, message in (
            ("--addresses=10.0.0.1", "is not TYPE=ADDRESS"),
            ("--iri-revision=v2", "there are ironcore, onmetal, onmetal-0.1,"),
            ("--addresses=IP=10.0.0.1", "Hostname"),
            ("--drain-seconds=soon", "--drain-seconds: 'soon' is no number of seconds from 0 to"),
            ("--machine-pool-name=Pool A", "--machine-pool-name 'Pool A': lower case letters"),
            ("--runtime-uid=nobody-of-this-name", "there is no user"),
            ("--drain-seconds=-1", "from 0 to 3600"),
            ("--requestheader-client-ca-file=/ca", "go together"),
            ("--requestheader-allowed-names=a", "go together"),
            ("--machine-runtime-ca-file=/ca", "go together"),
            ("--machine-runtime-endpoint=unix:relative", "must be absolute"),
            ("--machine-runtime-endpoint=dns:///host:1", "mutual TLS"),
            ("--kubeconfig=/nonexistent/config", "/nonexistent/config does not exist"),
            ("--context=other", 'no context "other"'),
            ("--no-such-option", "no-such-option"),
        ):
            self.assertIn(message, self.refusal(*self.least, argument), argument)

    def test_places_and_fields(self) -> None:
        """Allowed hosts and downward API fields, given once or repeatedly."""
        parsed = settings(
            self.options(
                "--exec-url-allowed=a.example:1,10.0.0.1",
                "--exec-url-allowed=b.example",
                "--machine-downward-api-label=team=metadata.labels['team']",
                "--machine-downward-api-annotation=ns=metadata.namespace",
                "--nic-downward-api-label=n=metadata.name",
            )
        )
        expected = [AllowedHost("a.example", 1), AllowedHost("10.0.0.1"), AllowedHost("b.example")]
        self.assertEqual(list(parsed.exec_allowed), expected)
        self.assertEqual(parsed.downward.labels, {"team": "metadata.labels['team']"})
        self.assertEqual(parsed.downward.annotations, {"ns": "metadata.namespace"})
        assert parsed.about is not None
        self.assertEqual(parsed.about.interface.labels, {"n": "metadata.name"})
        for wrong, why in (
            ("--exec-url-allowed=https://x", "is not HOST or HOST:PORT"),
            ("--machine-downward-api-label=x", "is not NAME=FIELDPATH"),
            ("--machine-downward-api-label=x=spec.power", "is none of metadata.name"),
        ):
            self.assertIn(why, self.refusal(*self.least, wrong))

    def test_certificate_directory(self) -> None:
        """--cert-dir replaces the two files and excludes them."""
        least = self.least[:3]
        options = Options()
        options.parseOptions([*least, "--cert-dir=certs"])
        parsed = settings(options)
        self.assertEqual(parsed.certificate_directory, os.path.abspath("certs"))
        self.assertEqual((parsed.certificate, parsed.key), ("", ""))
        self.assertEqual(parsed.signer, "twisted-exec.dev/poollet-serving")
        self.assertIn("exclude each other", self.refusal(*self.least, "--cert-dir=certs"))
        self.assertIn(
            "required options are missing: --tls-cert-file, --tls-private-key-file",
            self.refusal(*least),
        )
