"""
Tests for :mod:`twisted_exec.tls.private_files`.
"""

from __future__ import annotations

import os
import stat

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.private_files import write_in_order, write_private


class WriteTests(SynchronousTestCase):
    """Tests for :func:`write_private` and :func:`write_in_order`."""

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.makedirs(self.directory)

    def test_private(self) -> None:
        """A file is readable by its owner alone, whatever the umask."""
        path = os.path.join(self.directory, "key")
        before = os.umask(0)
        try:
            write_private(path, b"secret")
        finally:
            os.umask(before)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)

    def test_a_link_is_replaced_not_followed(self) -> None:
        """A symbolic link is replaced, and its target is not overwritten."""
        target = os.path.join(self.directory, "target")
        path = os.path.join(self.directory, "key")
        os.symlink(target, path)
        write_private(path, b"secret")
        self.assertFalse(os.path.exists(target))
        self.assertFalse(os.path.islink(path))

    def test_cannot_write(self) -> None:
        """A missing directory gives a one-line message and leaves no file behind."""
        with self.assertRaises(TLSConfigError) as caught:
            write_private("/nowhere/at/all/key", b"secret")
        self.assertEqual(
            str(caught.exception), 'cannot write "/nowhere/at/all/key": No such file or directory'
        )

    def test_not_over_a_directory(self) -> None:
        """A failed replacement removes the temporary file."""
        with self.assertRaises(TLSConfigError):
            write_private(self.directory, b"secret")
        self.assertEqual(
            [name for name in os.listdir(os.path.dirname(self.directory)) if name[0] == "."], []
        )

    def test_neither(self) -> None:
        """If the second of two files cannot be written, the first keeps its content."""
        path = os.path.join(self.directory, "key")
        write_private(path, b"old")
        with self.assertRaises(TLSConfigError) as caught:
            write_in_order((path, b"new"), ("/nowhere/at/all/crt", b"new"))
        self.assertIn('cannot write "/nowhere/at/all/crt"', str(caught.exception))
        with open(path, "rb") as stream:
            self.assertEqual(stream.read(), b"old")
        self.assertEqual(os.listdir(self.directory), ["key"])
