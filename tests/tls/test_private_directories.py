"""
Tests for :mod:`twisted_exec.tls.private_directories`.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
from typing import Any
from unittest import mock

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.tls.errors import DirectoryError
from twisted_exec.tls.private_directories import private_directory, runtime_directory


class PrivateDirectoryTests(SynchronousTestCase):
    """Tests for :func:`private_directory`."""

    def setUp(self) -> None:
        self.root = os.path.abspath(self.mktemp())
        os.makedirs(self.root, 0o700)
        self.path = os.path.join(self.root, "state")

    def refusal(self) -> str:
        with self.assertRaises(DirectoryError) as caught:
            private_directory(self.path)
        return str(caught.exception)

    def test_made(self) -> None:
        """A missing directory is created as private; the second call finds it."""
        before = os.umask(0)
        try:
            private_directory(self.path)
        finally:
            os.umask(before)
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o700)
        self.assertEqual(private_directory(self.path), self.path)

    def test_parents(self) -> None:
        """Missing parents are created as private too."""
        before = os.umask(0)
        try:
            private_directory(os.path.join(self.path, "a", "b"))
        finally:
            os.umask(before)
        for path in (self.path, os.path.join(self.path, "a")):
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o700)

    def test_link(self) -> None:
        """A symbolic link is refused, whatever it points to."""
        os.mkdir(os.path.join(self.root, "real"), 0o700)
        os.symlink("real", self.path)
        self.assertIn("symbolic link", self.refusal())

    def test_dangling_link(self) -> None:
        """A dangling symbolic link is refused."""
        os.symlink("nowhere", self.path)
        self.assertIn("symbolic link", self.refusal())

    def test_file(self) -> None:
        """A file is no directory."""
        with open(self.path, "w"):
            pass
        self.assertIn("is not a directory", self.refusal())

    def test_open_and_used(self) -> None:
        """A directory that others could have put things into is refused."""
        os.mkdir(self.path)
        os.chmod(self.path, 0o755)
        with open(os.path.join(self.path, "planted"), "w"):
            pass
        refusal = self.refusal()
        self.assertIn("is open to other users (mode 755): if all files in it are yours", refusal)
        self.assertIn(f"type: chmod 700 {os.path.abspath(self.path)}; otherwise name", refusal)

    def test_open_and_empty(self) -> None:
        """An empty directory with open permissions is made private, and the log says so."""
        os.mkdir(self.path)
        os.chmod(self.path, 0o755)
        with capturedLogs() as events:
            private_directory(self.path)
            private_directory(self.path)
        lines = [formatEvent(event) for event in events]
        self.assertEqual(
            lines,
            [
                f"directory {self.path!r} was empty and open to other users: its mode is 700 now, not 755"
            ],
        )
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o700)

    def test_another_user(self) -> None:
        """A directory of another user is refused, even when it is private."""
        os.mkdir(self.path, 0o700)
        with mock.patch("os.geteuid", lambda: os.getuid() + 1):
            self.assertIn(f"belongs to user id {os.getuid()}", self.refusal())

    def test_cannot_be_made(self) -> None:
        """If the directory cannot be created, the message is one line."""
        self.path = "/proc/nowhere/state"
        self.assertIn("cannot use directory '/proc/nowhere/state'", self.refusal())


class RuntimeDirectoryTests(SynchronousTestCase):
    """Tests for :func:`runtime_directory`."""

    def setUp(self) -> None:
        self.home = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.home)

    def directory(self, home: str, key: str = "") -> str:
        with mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": home}):
            made = runtime_directory(key)
        self.addCleanup(shutil.rmtree, made, ignore_errors=True)
        self.assertEqual(stat.S_IMODE(os.stat(made).st_mode), 0o700)
        return made

    def test_xdg(self) -> None:
        """``$XDG_RUNTIME_DIR`` is used when it is private."""
        self.assertEqual(os.path.dirname(self.directory(self.home)), self.home)

    def test_xdg_is_not_private(self) -> None:
        """A runtime directory that others can enter is not used."""
        os.chmod(self.home, 0o755)
        self.assertNotEqual(os.path.dirname(self.directory(self.home)), self.home)

    def test_unit(self) -> None:
        """The directory of a systemd unit is used, also if others may enter it, but not write."""
        os.chmod(self.home, 0o711)
        with mock.patch.dict(os.environ, {"RUNTIME_DIRECTORY": f"{self.home}:/run/other"}):
            self.assertEqual(os.path.dirname(self.directory("")), self.home)
            os.chmod(self.home, 0o733)
            self.assertNotEqual(os.path.dirname(self.directory("")), self.home)

    def test_xdg_is_too_long(self) -> None:
        """A long runtime directory is not used."""
        long = os.path.join(self.home, "x" * 60)
        os.mkdir(long, 0o700)
        self.assertNotEqual(os.path.dirname(self.directory(long)), long)

    def test_odd_values(self) -> None:
        """Relative, missing and empty values are not used."""
        for odd in ("", "relative", "/nowhere", "\udcff"):
            self.directory(odd)

    def test_room(self) -> None:
        """A socket with a name of 47 bytes can be bound in it."""
        path = os.path.join(self.directory(self.home, "/some/state"), "s" * 47)
        with socket.socket(socket.AF_UNIX) as plug:
            plug.bind(path)

    def test_new_each_time(self) -> None:
        """Without a key, each call returns a new directory."""
        self.assertNotEqual(self.directory(self.home), self.directory(self.home))

    def test_found_again(self) -> None:
        """Equal keys give the same directory, different keys different ones."""
        one, again, other = (
            self.directory(self.home, key) for key in ("/a/state", "/a/./state", "/b/state")
        )
        self.assertEqual(one, again)
        self.assertNotEqual(one, other)

    def test_squatted(self) -> None:
        """A directory name that is already taken is left alone, and another name is used."""
        first = self.directory(self.home, "/a/state")
        os.rmdir(first)
        os.symlink("/nowhere", first)
        self.addCleanup(os.unlink, first)
        self.assertNotEqual(self.directory(self.home, "/a/state"), first)

    def test_nowhere(self) -> None:
        """If no directory can be created, the message names XDG_RUNTIME_DIR as remedy."""

        def refuse(*args: Any, **more: Any) -> str:
            raise PermissionError(13, "no")

        with mock.patch("tempfile.mkdtemp", refuse), self.assertRaises(DirectoryError) as caught:
            runtime_directory()
        self.assertIn("set XDG_RUNTIME_DIR", str(caught.exception))
