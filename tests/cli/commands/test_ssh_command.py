"""
Tests for ``twisted-exec ssh known-hosts``.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from twisted_exec.cli.main import main


class KnownHostsTests(SynchronousTestCase):
    """The lines by which ssh verifies a door."""

    skip = needs.conch()

    def run_command(self, *arguments: str) -> tuple[int, str, str]:
        """Return the exit code, standard output and standard error."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(["ssh", "known-hosts", *arguments])
            except SystemExit as exit_:
                code = int(exit_.code or 0)
        return code, out.getvalue(), err.getvalue()

    def test_lines(self) -> None:
        """A line has the names with their ports, and the key."""
        private = Ed25519PrivateKey.generate()
        path = Path(self.mktemp())
        path.touch(0o600)
        path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
        printed = self.run_command(
            "gate.example.org", "gate.example.org:2222", "[2001:db8::7]:2222", f"--host-key={path}"
        )
        names = "gate.example.org,[gate.example.org]:2222,[2001:db8::7]:2222"
        self.assertEqual(printed, (0, f"{names} {public}\n", ""))

    def test_mistakes(self) -> None:
        """A name that is none, and a file that has no key, are refused in one line."""
        for arguments, why in (
            (["gate example"], '"gate example" is no HOST or HOST:PORT'),
            (["gate:0"], "is no HOST or HOST:PORT"),
            (["gate:65536"], "is no HOST or HOST:PORT"),
            (["gate\n@cert-authority"], "is no HOST or HOST:PORT"),
            (["gate"], "there is no host key"),
            (["gate", "--host-key=none"], "none"),
        ):
            code, printed, told = self.run_command(*arguments)
            self.assertNotEqual(code, 0)
            self.assertEqual(printed, "")
            self.assertIn(why, " ".join(told.split()))
