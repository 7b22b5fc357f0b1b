"""
Tests for ``twisted_exec.ssh.host_keys``.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.ssh.host_keys import HOST, HostKeyError, host_key, user_directory


class HostKeyTests(SynchronousTestCase):
    """A user's host key."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp()) / "twisted-exec" / "ssh"

    def private_file(self) -> Path:
        [path] = [each for each in self.directory.iterdir() if each.name != "known_hosts"]
        return path

    def test_kept(self) -> None:
        """The key is made once; only its user can read it, and ssh finds it in known_hosts."""
        first, second = host_key(str(self.directory)), host_key(str(self.directory))
        encoded = [
            each.private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
            for each in (first, second)
        ]
        self.assertEqual(encoded[0], encoded[1])
        line = Path(first.known_hosts).read_bytes()
        self.assertEqual(line, f"{HOST} ".encode() + encoded[0] + b"\n")
        for path in (self.directory, self.private_file()):
            self.assertEqual(stat.S_IMODE(path.stat().st_mode) & 0o077, 0, path)
        self.assertEqual(len(list(self.directory.iterdir())), 2)

    def test_known_hosts_again(self) -> None:
        """A known_hosts that is missing or wrong is written again."""
        key = host_key(str(self.directory))
        line = Path(key.known_hosts).read_bytes()
        for wrong in (b"", b"web-1 ssh-rsa AAAA\n", line + line):
            Path(key.known_hosts).write_bytes(wrong)
            host_key(str(self.directory))
            self.assertEqual(Path(key.known_hosts).read_bytes(), line)

    def test_readable(self) -> None:
        """A key that others can read is refused."""
        host_key(str(self.directory))
        self.private_file().chmod(0o640)
        with self.assertRaisesRegex(HostKeyError, "other users can read the host key .* delete it"):
            host_key(str(self.directory))

    def test_no_key(self) -> None:
        """A file without a key is refused, and a link is."""
        host_key(str(self.directory))
        path = self.private_file()
        path.write_bytes(b"-----BEGIN PRIVATE KEY-----\n")
        with self.assertRaisesRegex(HostKeyError, "has no Ed25519 key"):
            host_key(str(self.directory))
        path.unlink()
        path.symlink_to("/nonexistent")
        with self.assertRaisesRegex(HostKeyError, "cannot keep the host key for ssh"):
            host_key(str(self.directory))

    def test_no_directory(self) -> None:
        """The message names a directory that cannot be made."""
        self.directory.parent.parent.mkdir()
        self.directory.parent.write_bytes(b"")
        with self.assertRaisesRegex(HostKeyError, f"in {self.directory}: Not a directory"):
            host_key(str(self.directory))

    def test_user_directory(self) -> None:
        """The directory is below XDG_STATE_HOME, or in the home directory if that is no absolute path."""
        self.patch(os, "environ", {"HOME": "/home/ada", "XDG_STATE_HOME": "/state"})
        self.assertEqual(user_directory(), "/state/twisted-exec/ssh")
        for value in ("", "state"):
            self.patch(os, "environ", {"HOME": "/home/ada", "XDG_STATE_HOME": value})
            self.assertEqual(user_directory(), "/home/ada/.local/state/twisted-exec/ssh")
