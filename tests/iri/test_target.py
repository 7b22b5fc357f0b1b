"""
Tests for :mod:`twisted_exec.iri.target`.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.iri import target as target_module
from twisted_exec.iri.target import (
    MutualTLS,
    RuntimeAddress,
    TargetError,
    check_socket,
    parse_target,
)


class ParseTests(SynchronousTestCase):
    """Tests for :func:`parse_target`."""

    def test_forms(self) -> None:
        """``unix:`` and ``dns:`` targets are parsed and formatted as in gRPC."""
        for text, target in (
            ("unix:///run/iri.sock", RuntimeAddress(path="/run/iri.sock")),
            ("dns:///host.example:8443", RuntimeAddress(host="host.example", port=8443)),
            ("dns:///[::1]:0", RuntimeAddress(host="::1", port=0)),
        ):
            self.assertEqual(parse_target(text), target)
            self.assertEqual(str(target), text)
        self.assertEqual(parse_target("unix:/run/iri.sock"), RuntimeAddress(path="/run/iri.sock"))

    def test_refused(self) -> None:
        """Any other target is refused in one line that quotes it."""
        for text in (
            "",
            "unix:",
            "unix://run/iri.sock",
            "unix-abstract:x",
            "dns:///host",
            "dns:///:8443",
            "dns:///host:99999",
            "dns:///host:" + "1" * 5000,
            "dns:///host:http",
            "tcp:8443",
            "unix:///" + "x" * 107,
        ):
            with self.assertRaises(TargetError) as caught:
                parse_target(text)
            self.assertIn(repr(text), str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))


class SocketTests(SynchronousTestCase):
    """Tests for :func:`check_socket`."""

    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.path = os.path.join(self.directory, "s")

    def listen(self) -> None:
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(self.path)

    def test_own(self) -> None:
        """A socket of this user in a private directory is accepted."""
        self.listen()
        check_socket(self.path, {os.getuid()})

    def test_missing(self) -> None:
        """A missing socket raises FileNotFoundError, not TargetError."""
        with self.assertRaises(FileNotFoundError):
            check_socket(self.path, {os.getuid()})

    def test_unusable_path(self) -> None:
        """A path that cannot be followed is refused."""
        with open(self.path, "w"):
            pass
        with self.assertRaises(TargetError) as caught:
            check_socket(f"{self.path}/s", {os.getuid()})
        self.assertIn("/s/s cannot be used: Not a directory", str(caught.exception))

    def test_no_socket(self) -> None:
        """A regular file is refused."""
        with open(self.path, "w"):
            pass
        with self.assertRaises(TargetError):
            check_socket(self.path, {os.getuid()})

    def test_shared_directory(self) -> None:
        """A socket in a shared directory is refused, even if the directory is sticky."""
        self.listen()
        for mode, remedy in (
            (0o777, f"type: chmod go-w {self.directory}; or choose another path"),
            (0o1777, "choose a path in a directory that only its owner can write"),
        ):
            os.chmod(self.directory, mode)
            with self.assertRaises(TargetError) as caught:
                check_socket(self.path, {os.getuid()})
            told = f"{self.directory} can be written by other users (mode {mode:o}); {remedy}"
            self.assertEqual(str(caught.exception), told)

    def owned_by(self, uid: int, path: str) -> None:
        """
        Make ``lstat`` report ``uid`` as the owner of ``path``; only root could change the owner.
        """

        def lstat(asked: str) -> os.stat_result:
            found = os.stat(asked, follow_symlinks=False)
            owner = uid if os.path.samefile(asked, path) else found.st_uid
            return os.stat_result([*found[:4], owner, *found[5:10]])

        self.patch(target_module, "os", _With(os, lstat=lstat))

    def test_stranger(self) -> None:
        """A socket of another user is refused unless that user is allowed."""
        self.listen()
        self.owned_by(12345, self.path)
        with self.assertRaises(TargetError) as caught:
            check_socket(self.path, {os.getuid()})
        self.assertIn("belongs to user 12345", str(caught.exception))
        check_socket(self.path, {os.getuid(), 12345})

    def test_strangers_directory(self) -> None:
        """A socket in another user's directory is refused, because its owner could replace it."""
        self.listen()
        self.owned_by(12345, self.directory)
        with self.assertRaises(TargetError) as caught:
            check_socket(self.path, {os.getuid()})
        self.assertIn(f"{self.directory} belongs to user 12345", str(caught.exception))
        check_socket(self.path, {os.getuid(), 12345})


class _With:
    """A module with some names replaced."""

    def __init__(self, module: Any, **names: Any) -> None:
        self.__dict__.update(names)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class FilesTests(SynchronousTestCase):
    """Tests for :class:`MutualTLS`."""

    def test_missing(self) -> None:
        """The error for a missing file names it."""
        with self.assertRaises(TargetError) as caught:
            MutualTLS("/nonexistent/ca.crt", "/c", "/k").read()
        self.assertEqual(
            str(caught.exception), "cannot read /nonexistent/ca.crt: No such file or directory"
        )
