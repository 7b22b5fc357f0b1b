"""
Tests for :mod:`twisted_exec.apiserver.tap`, and for the program as a process.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.test_options import arguments
from tests.chain import pki
from tests.tiers import PROGRAMS
from twisted_exec.apiserver.options import Options
from twisted_exec.apiserver.tap import makeService

_TWISTD = "from twisted.scripts.twistd import run; run()"


class TapTests(SynchronousTestCase):
    """Tests for :func:`makeService`."""

    def test_nothing_is_opened(self) -> None:
        """Making the service opens nothing."""
        options = Options()
        options.parseOptions(
            arguments(storage="sqlite:/nonexistent/x", preferred_address_types="InternalIP")
        )
        self.assertFalse(makeService(options).running)


class ProgramTests(SynchronousTestCase):
    """``twistd exec-apiserver`` that cannot start: one line, exit code 1, no traceback."""

    starts = PROGRAMS

    def run_program(self, words: list[str]) -> tuple[int, str]:
        root = str(Path(__file__).parents[2])
        done = subprocess.run(
            [sys.executable, "-c", _TWISTD, "-n", "--pidfile=", "exec-apiserver", *words],
            capture_output=True,
            timeout=600,
            check=False,
            cwd=self.mktemp_directory(),
            env={**os.environ, "PYTHONPATH": root},
        )
        told = (done.stdout + done.stderr).decode()
        self.assertNotIn("Traceback", told)
        return done.returncode, told

    def mktemp_directory(self) -> str:
        path = self.mktemp()
        os.makedirs(path)
        return path

    def good(self, **more: str) -> list[str]:
        made = pki()
        serving, forwarding = made.pair("apiserver"), made.pair("apiserver-forwarding")
        return arguments(
            **{
                "tls_cert_file": serving.certificate,
                "tls_private_key_file": serving.key,
                "client_ca_file": made.client_ca,
                "machinepoollet_client_certificate": forwarding.certificate,
                "machinepoollet_client_key": forwarding.key,
                "machinepoollet_certificate_authority": made.serving_ca,
                "storage": "memory",
                "listen": "tcp:0:interface=127.0.0.1",
                **more,
            }
        )

    def test_options(self) -> None:
        """A missing option is one line on standard error."""
        code, told = self.run_program([])
        self.assertEqual(code, 1)
        self.assertEqual(len(told.splitlines()), 1, told)

    def test_missing_certificate(self) -> None:
        """A certificate that is not there is named."""
        code, told = self.run_program(self.good(tls_cert_file="/nonexistent/tls.crt"))
        self.assertEqual(code, 1)
        self.assertIn("/nonexistent/tls.crt", told)

    def test_port_in_use(self) -> None:
        """A port in use is named."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            code, told = self.run_program(self.good(listen=f"tcp:{port}:interface=127.0.0.1"))
        self.assertEqual(code, 1)
        self.assertIn(str(port), told)

    def test_not_a_store(self) -> None:
        """A file that is no store is named and left alone."""
        path = os.path.abspath(self.mktemp())
        Path(path).write_bytes(b"my notes")
        code, told = self.run_program(self.good(storage=f"sqlite:{path}"))
        self.assertEqual(code, 1)
        self.assertIn(path, told)
        self.assertEqual(Path(path).read_bytes(), b"my notes")
