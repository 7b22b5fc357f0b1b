"""
Tests for :mod:`twisted_exec.journal.file_access`.
"""

from __future__ import annotations

import errno
import os

from twisted.trial.unittest import SynchronousTestCase

from tests.journal.support import FailingLayer
from twisted_exec.journal.file_access import (
    ForeignFile,
    is_passing,
    opened,
    read_output,
    replace_file,
)
from twisted_exec.journal.records import Damaged


class ShortLayer(FailingLayer):
    """A full disk that takes a part of what is written."""

    def write(self, descriptor: int, data: bytes) -> int:
        return os.write(descriptor, data[:2])


class FileAccessTests(SynchronousTestCase):
    """Tests for opening and reading."""

    def setUp(self) -> None:
        self.path = os.path.abspath(self.mktemp())
        with open(self.path, "wb") as file:
            file.write(b"output")

    def test_read(self) -> None:
        """A part of a file is read at its position."""
        with opened(os, self.path) as descriptor:
            self.assertEqual(read_output(os, descriptor, 3, 2), b"tpu")
        self.assertRaises(OSError, os.fstat, descriptor)

    def test_foreign(self) -> None:
        """Links, directories and FIFOs are refused, and nothing waits for the writer of a FIFO."""
        other = os.path.abspath(self.mktemp())
        for make in (lambda: os.symlink(self.path, other), lambda: os.mkfifo(other)):
            make()
            with self.assertRaises(ForeignFile), opened(os, other):
                self.fail("it was opened")
            os.unlink(other)
        os.mkdir(other)
        with self.assertRaises(ForeignFile), opened(os, other):
            self.fail("it was opened")

    def test_replace_file(self) -> None:
        """A disk that becomes full leaves the old content; a file is never empty or cut."""
        layer = FailingLayer()
        layer.takes_names, layer.error = True, errno.ENOSPC
        self.assertRaises(OSError, replace_file, layer, self.path, b"new")
        self.assertRaises(OSError, replace_file, ShortLayer(), self.path, b"new")
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), b"output")
        layer.error = 0
        replace_file(layer, self.path, b"new")
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), b"new")
        self.assertFalse(os.path.exists(f"{self.path}.new"))

    def test_errors(self) -> None:
        """An error of the disk is damage; others pass, or not."""
        layer = FailingLayer()
        layer.bad_at = 2
        with opened(layer, self.path) as descriptor:
            self.assertRaises(Damaged, read_output, layer, descriptor, 3, 2)
        self.assertTrue(is_passing(OSError(errno.EMFILE, "too many open files")))
        self.assertFalse(is_passing(OSError(errno.ENOENT, "no such file")))
