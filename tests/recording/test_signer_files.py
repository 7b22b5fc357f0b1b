"""
Tests for :mod:`twisted_exec.recording.signer_files`.
"""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.recording.signatures import UnusableCertificate
from twisted_exec.recording.signer_files import SignerFiles

from .support import authority, when


class SignerFilesTests(SynchronousTestCase):
    """The files of one recorder."""

    def setUp(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        self.certificate, self.key = directory / "recorder.crt", directory / "recorder.key"
        self.issue("metal-a")
        self.warnings: list[str] = []
        paths = str(self.certificate), str(self.key)
        self.signer = SignerFiles(*paths, self.warnings.append)

    def issue(self, name: str) -> None:
        """Replace the files."""
        issued = authority("a").issue_recorder(name, now=when())
        for path, content in (
            (self.certificate, issued.certificate_pem),
            (self.key, issued.key_pem),
        ):
            path.with_suffix(".new").write_bytes(content)
            path.with_suffix(".new").chmod(0o600)
            os.replace(path.with_suffix(".new"), path)

    def refusal(self, signer: SignerFiles) -> str:
        return str(self.assertRaises(UnusableCertificate, signer))

    def test_read_once(self) -> None:
        """Files that have not changed are not read again."""
        self.assertIs(self.signer(), self.signer())

    def test_replaced(self) -> None:
        """New files are used at once."""
        before = self.signer()
        self.issue("metal-b")
        self.assertIsNot(self.signer(), before)

    def test_warned_once(self) -> None:
        """The same problem is one line of the log, until the files can be used again."""
        for expected in (1, 2):
            self.certificate.unlink()
            for _ in range(3):
                self.refusal(self.signer)
            self.assertEqual(len(self.warnings), expected)
            self.issue("metal-b")
            self.signer()

    def test_none(self) -> None:
        """Without files the message names the option."""
        self.assertIn("--recorder-certificate", self.refusal(SignerFiles()))

    def test_unusable(self) -> None:
        """The log has the path of a file that cannot be used; users do not read it."""
        for break_it in (lambda: self.key.write_bytes(b"no key"), self.certificate.unlink):
            break_it()
            told = self.refusal(self.signer)
            self.assertNotIn(str(self.key.parent), told)
            self.assertIn("the log of its program says why", told)
            self.assertIn(str(self.key.parent), self.warnings.pop())
