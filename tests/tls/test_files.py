"""
Tests for :mod:`twisted_exec.tls.files`.
"""

from __future__ import annotations

import os

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, eventAsText
from twisted.trial.unittest import SynchronousTestCase

from tests.tls.support import client_identity, write
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Reloading, read_file


class ReadFileTests(SynchronousTestCase):
    """Tests for :func:`read_file`."""

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.makedirs(self.directory)

    def refusal(self, path: str) -> str:
        with self.assertRaises(TLSConfigError) as caught:
            read_file(path, "certificate")
        return str(caught.exception)

    def test_content(self) -> None:
        """The whole content comes back."""
        self.assertEqual(read_file(write(self.directory, "a", b"text")), b"text")

    def test_missing(self) -> None:
        """A missing file is named, with what it was for."""
        self.assertEqual(
            self.refusal("/nowhere/tls.crt"),
            "cannot read certificate '/nowhere/tls.crt': "
            "No such file or directory (check the path)",
        )

    def test_directory(self) -> None:
        """A directory is no file, and is closed again."""
        before = os.listdir("/proc/self/fd")
        self.assertIn("Is a directory", self.refusal(self.directory))
        self.assertEqual(os.listdir("/proc/self/fd"), before)

    def test_fifo(self) -> None:
        """A FIFO is refused instead of waited for."""
        path = os.path.join(self.directory, "fifo")
        os.mkfifo(path)
        self.assertIn("is not a regular file", self.refusal(path))

    def test_null(self) -> None:
        """``/dev/null`` is an empty file, which ``KUBECONFIG`` often names."""
        self.assertEqual(read_file(os.devnull), b"")

    def test_too_large(self) -> None:
        """A file that cannot be a certificate is not read to its end."""
        path = os.path.join(self.directory, "large")
        with open(path, "wb") as stream:
            stream.truncate(1 << 40)
        self.assertIn("larger than 4 MiB", self.refusal(path))

    def test_public_key(self) -> None:
        """A private key that every user can read is used, and one warning names the remedy."""
        issued, path = client_identity("jane"), os.path.join(self.directory, "tls.key")
        for content, mode, count in (
            (issued.key_pem, 0o644, 1),
            (issued.key_pem, 0o640, 0),
            (issued.key_pem, 0o600, 0),
            (issued.certificate_pem, 0o644, 0),
        ):
            path += "x"
            with open(path, "wb") as stream:
                stream.write(content)
            os.chmod(path, mode)
            with capturedLogs() as events:
                for _ in range(2):
                    self.assertEqual(read_file(path), content)
            lines = [eventAsText(event, includeTimestamp=False) for event in events]
            self.assertEqual(len(lines), count, lines)
            if lines:
                remedy = (
                    f"{path!r} can be read by every user of this host (mode 644); type: chmod 600 "
                )
                self.assertIn(remedy, lines[0])

    def test_nul(self) -> None:
        """A path with a NUL byte is refused like any other."""
        self.assertIn("null byte", self.refusal("tls\0.crt"))


class ReloadingTests(SynchronousTestCase):
    """Tests for :class:`Reloading`."""

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.makedirs(self.directory)
        self.clock = Clock()
        self.path = write(self.directory, "value", b"1")
        self.parsed = 0
        self.reloading = Reloading([self.path], self.parse, self.clock)

    def parse(self, content: bytes) -> int:
        self.parsed += 1
        try:
            return int(content)
        except ValueError:
            raise TLSConfigError(f"not a number: {content!r}") from None

    def test_nothing_before_it_is_wanted(self) -> None:
        """The file is not opened when the value is made."""
        self.assertEqual(self.parsed, 0)

    def test_changed(self) -> None:
        """A changed file is read again, a second later."""
        self.assertEqual(self.reloading.get(), 1)
        write(self.directory, "value", b"2")
        self.assertEqual(self.reloading.get(), 1)
        self.clock.advance(1)
        self.assertEqual(self.reloading.get(), 2)

    def test_unchanged(self) -> None:
        """A file that did not change is parsed once."""
        for _ in range(10):
            self.reloading.get()
            self.clock.advance(1)
        self.assertEqual(self.parsed, 1)

    def test_look(self) -> None:
        """A look reads changed files at once, and counts the values so far."""
        self.assertEqual((self.reloading.look(), self.parsed), (0, 0))  # not wanted yet
        self.reloading.load()
        self.assertEqual(self.reloading.look(), 1)
        write(self.directory, "value", b"22")
        self.assertEqual(self.reloading.look(), 2)
        self.assertEqual((self.reloading.get(), self.parsed), (22, 2))
        write(self.directory, "value", b"half")
        self.assertEqual((self.reloading.look(), self.reloading.get()), (2, 22))

    def test_broken_keeps_the_last(self) -> None:
        """While the file's content is invalid, the last valid value stays in use."""
        self.reloading.get()
        write(self.directory, "value", b"half")
        self.clock.advance(1)
        self.assertEqual(self.reloading.get(), 1)
        write(self.directory, "value", b"3")
        self.clock.advance(1)
        self.assertEqual(self.reloading.get(), 3)

    def test_removed_keeps_the_last(self) -> None:
        """If the file is removed, the last value stays in use."""
        self.reloading.get()
        os.unlink(self.path)
        self.clock.advance(1)
        self.assertEqual(self.reloading.get(), 1)

    def test_broken_from_the_start(self) -> None:
        """Without any good value the error is raised."""
        write(self.directory, "value", b"")
        with self.assertRaises(TLSConfigError):
            self.reloading.get()

    def test_value_error(self) -> None:
        """A ``ValueError`` of the parser is an unusable file, too, and its message names the file."""
        write(self.directory, "value", b"half")
        reloading = Reloading([self.path], int, self.clock)
        problem = self.assertRaises(TLSConfigError, reloading.load)
        self.assertIn(f"cannot use {self.path!r}: invalid literal", str(problem))
        write(self.directory, "value", b"1")
        self.assertEqual(reloading.get(), 1)
        write(self.directory, "value", b"half")
        self.clock.advance(1)
        self.assertEqual(reloading.get(), 1)

    def test_other_error(self) -> None:
        """Another error of the parser may quote the content, so only its type is told."""
        write(self.directory, "value", b"the secret")
        reloading = Reloading([self.path], {}.__getitem__, self.clock)
        problem = self.assertRaises(TLSConfigError, reloading.load)
        self.assertEqual(str(problem), f"cannot use {self.path!r}: a KeyError")

    def test_load_looks_at_once(self) -> None:
        """An explicit load does not wait, and raises what is wrong."""
        self.reloading.get()
        write(self.directory, "value", b"4")
        self.assertEqual(self.reloading.load(), 4)
        write(self.directory, "value", b"x")
        with self.assertRaises(TLSConfigError):
            self.reloading.load()
        self.assertEqual(self.reloading.get(), 4)
