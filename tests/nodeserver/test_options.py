"""Tests for :mod:`twisted_exec.nodeserver.options`."""

from __future__ import annotations

import os
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.nodeserver.options import ServerOptions


class Options(ServerOptions):
    """As a program has them."""

    program = "exec-nodeserver"
    environ: dict[str, str] = {}


GIVEN = {"tls-cert-file": "/c", "tls-private-key-file": "/k", "client-ca-file": "/ca"}


class OptionsTests(SynchronousTestCase):
    """Options of the server."""

    def read(self, environ: dict[str, str] | None = None, **arguments: Any) -> Options:
        options = Options()
        options.environ = environ or {}
        named = {name.replace("_", "-"): value for name, value in arguments.items()}
        words = {**GIVEN, **named}
        options.parseOptions([f"--{name}={value}" for name, value in words.items() if value])
        return options

    def refused(self, **more: Any) -> str:
        with self.assertRaises(SystemExit) as caught:
            self.read(**more)
        return str(caught.exception)

    def test_certificate(self) -> None:
        """Without a serving certificate it does not start, and says what would help."""
        message = self.refused(tls_cert_file="", tls_private_key_file="")
        self.assertIn("--tls-cert-file is missing: the serving certificate", message)
        self.assertIn("--cert-dir", message)
        message = self.refused(tls_private_key_file="")
        self.assertIn("--tls-private-key-file is missing: certificate and key", message)
        message = self.refused(cert_dir="/d")
        self.assertIn("--cert-dir and --tls-cert-file exclude each other", message)

    def test_environment(self) -> None:
        """Kosmos's variables say where they are, when options do not."""
        none = {"tls_cert_file": "", "tls_private_key_file": ""}
        where = {"APISERVER_CERT_LOCATION": "/e.crt", "APISERVER_KEY_LOCATION": "/e.key"}
        server_settings = self.read(where, **none).server()
        self.assertEqual((server_settings.certificate, server_settings.key), ("/e.crt", "/e.key"))
        self.assertEqual(self.read(where).server().certificate, "/c")
        self.assertEqual(self.read(where, **none, cert_dir="/d").server().certificate, "")
        told_half = self.refused(environ={"APISERVER_CERT_LOCATION": "/e.crt"}, **none)
        self.assertIn("(or APISERVER_KEY_LOCATION) is missing", told_half)

    def test_clients(self) -> None:
        """The CA of clients is required; their names are optional."""
        self.assertIn("--client-ca-file is missing", self.refused(client_ca_file=""))
        self.assertEqual(self.read().server().client_names, frozenset())
        server_settings = self.read(client_allowed_names="kube-apiserver, other,").server()
        self.assertEqual(server_settings.client_names, {"kube-apiserver", "other"})

    def test_numbers(self) -> None:
        """Numbers are numbers that can be meant."""
        limits = self.read(max_sessions="7").server().sessions
        assert limits is not None
        self.assertEqual((limits.total, limits.per_user), (7, 7))
        for wrong in ("0", "-1", "many", "1000000", "\N{SUPERSCRIPT TWO}"):
            self.assertIn("--max-sessions:", self.refused(max_sessions=wrong))
        self.assertIn("--drain-seconds:", self.refused(drain_seconds="soon"))

    def test_idle(self) -> None:
        """The idle timeout is at most a week, or none."""
        self.assertEqual(self.read().server().stream_idle_seconds, 4 * 3600)
        self.assertEqual(self.read(stream_idle_seconds="0").server().stream_idle_seconds, 0)
        self.assertEqual(self.read(stream_idle_seconds="90.5").server().stream_idle_seconds, 90.5)
        for wrong in ("0.5", "-1", "nan", "inf", "700000", "long"):
            message = self.refused(stream_idle_seconds=wrong)
            self.assertIn("--stream-idle-seconds: ", message)
            self.assertIn("is neither 0 nor a number of seconds from 1 to 604800", message)

    def test_defaults(self) -> None:
        """It listens where kubelets do, and answers probes on this host only."""
        server_settings = self.read().server()
        self.assertEqual(server_settings.listen, "tcp:10250")
        self.assertEqual(server_settings.health_listen, "tcp:10248:interface=127.0.0.1")
        self.assertEqual(os.fspath(server_settings.client_ca), "/ca")
