"""
Tests for :mod:`twisted_exec.runtimes.options`, and for the service that :mod:`twisted_exec.runtimes.tap` makes of them.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from typing import Any

from twisted.application.service import IService
from twisted.trial.unittest import SynchronousTestCase

from tests.taps import refusal
from twisted_exec.iri.target import MutualTLS
from twisted_exec.runtimes.options import Options, settings
from twisted_exec.runtimes.tap import makeService

CONFIG = """
classes:
- {name: shell, driver: pty, command: [/bin/sh], same_user: true, capabilities: {cpu: 1, memory: 1Mi}}
"""


class OptionsTests(SynchronousTestCase):
    """The command line."""

    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.config = os.path.join(self.directory, "runtime.yaml")
        with open(self.config, "w") as file:
            file.write(CONFIG)
        self.least = [f"--classes={self.config}", "--iri-listen=unix:///run/x/iri.sock"]

    def options(self, *more: str) -> Options:
        options = Options()
        options.parseOptions([*self.least, *more])
        return options

    def refusal(self, *arguments: str) -> str:
        """See :func:`tests.taps.refusal`."""

        def make() -> None:
            options = Options()
            options.parseOptions(list(arguments))
            makeService(options)

        return refusal(self, "exec-runtime", make)

    def test_defaults(self) -> None:
        """Optional settings have sensible defaults; paths become absolute."""
        result = settings(self.options())
        self.assertEqual([each.name for each in result.classes], ["shell"])
        self.assertEqual(result.state_directory, os.path.abspath("exec-runtime-state"))
        self.assertEqual((result.streaming.address, result.streaming.base_url), ("", ""))
        self.assertEqual((result.iri_tls, result.drain_seconds), (None, 1.5))
        self.assertEqual(result.resume_seconds, 60)

    def test_config(self) -> None:
        """
        ``--config`` names a TOML file with options; any other file has the classes, as in earlier
        releases.
        """
        path = os.path.join(self.directory, "runtime.toml")
        with open(path, "w") as file:
            file.write(f'classes = "{self.config}"\niri-listen = "{self.least[1][13:]}"\n')
        for arguments in ([f"--config={path}"], [f"--config={self.config}", self.least[1]]):
            options = Options()
            options.parseOptions(arguments)
            result = settings(options)
            self.assertEqual([each.name for each in result.classes], ["shell"])
            self.assertEqual(result.iri_target, "unix:///run/x/iri.sock")

    def test_everything(self) -> None:
        """All options reach the service."""
        result = settings(
            self.options(
                "--state-dir=/state",
                "--streaming-listen=tcp:0",
                "--base-url=https://h.example:1/",
                "--tls-cert-file=/c",
                "--tls-private-key-file=/k",
                "--iri-listen=dns:///h.example:1",
                "--iri-ca-file=/ca",
                "--iri-cert-file=/ic",
                "--iri-private-key-file=/ik",
                "--iri-client-names=a, b",
                "--drain-seconds=0.5",
                "--resume-seconds=0",
                "--rejoin-seconds=7",
                "--allow-uid=1234",
                "--allow-uid=nobody",
            )
        )
        self.assertEqual(result.state_directory, "/state")
        self.assertEqual((result.streaming.certificate, result.streaming.key), ("/c", "/k"))
        self.assertEqual(result.streaming.base_url, "https://h.example:1/")
        self.assertEqual(result.iri_tls, MutualTLS("/ca", "/ic", "/ik", frozenset({"a", "b"})))
        self.assertEqual(list(result.allowed_uids), [1234, pwd.getpwnam("nobody").pw_uid])
        self.assertEqual((result.drain_seconds, result.resume_seconds), (0.5, 0))
        self.assertEqual(result.rejoin_seconds, 7)

    def test_service(self) -> None:
        """A service comes out, and nothing was opened to make it."""
        before = sorted(os.listdir(self.directory))
        service: Any = makeService(self.options(f"--state-dir={self.directory}/state"))
        self.assertTrue(IService.providedBy(service))
        self.assertEqual(sorted(os.listdir(self.directory)), before)

    def test_refusals(self) -> None:
        """Missing and wrong options are reported."""
        for more, message in (
            (["--classes=", "--iri-listen=unix:///x"], "--classes is missing"),
            ([self.least[0]], "--iri-listen is missing"),
            ([*self.least, "--tls-cert-file=/c"], "--tls-cert-file and --tls-private-key-file go"),
            ([*self.least, "--base-url=host"], "is not a URL"),
            ([*self.least, "--iri-revision=v2"], "there are ironcore, onmetal"),
            ([*self.least, "--drain-seconds=-1"], "--drain-seconds: '-1' is no number of seconds"),
            ([*self.least, "--drain-seconds=x"], "'x'"),
            ([*self.least, "--resume-seconds=1.5"], "--resume-seconds: '1.5' is no whole number"),
            ([*self.least, "--rejoin-seconds=-1"], "--rejoin-seconds: '-1' is no whole number"),
            ([*self.least, "--allow-uid=no-such-user"], "there is no user 'no-such-user'"),
            ([*self.least, "--iri-ca-file=/ca"], "--iri-ca-file, --iri-cert-file and"),
            (
                [
                    *self.least,
                    "--iri-ca-file=/a",
                    "--iri-cert-file=/c",
                    "--iri-private-key-file=/k",
                ],
                "--iri-client-names is missing",
            ),
            ([*self.least, "--allow-uid=54321"], "--allow-uid needs --streaming-listen"),
            ([*self.least, "--streaming-listen=unix:relative"], "must be absolute"),
            ([*self.least, "--no-such-option"], "no-such-option"),
            ([self.least[0], "--iri-listen=tcp:1"], "is neither unix:///absolute/path nor"),
            ([self.least[0], "--iri-listen=dns:///h:1"], "TCP needs mutual TLS"),
            (["--classes=/nonexistent", self.least[1]], "cannot read /nonexistent"),
        ):
            self.assertIn(message, self.refusal(*more))

    def test_bad_config(self) -> None:
        """The message has the place in the file."""
        with open(self.config, "a") as file:
            file.write("- {name: y, driver: xen}\n")
        self.assertIn("classes[1] (y): capabilities.cpu is missing", self.refusal(*self.least))
