"""
The host key of an SSH server that each user runs for themselves.

The key and its line for ``known_hosts`` are files of the user, made when they are first needed.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

HOST = "twisted-exec-console"
"""The server's name in ``known_hosts``, for ssh's ``HostKeyAlias``: all machines have the same server."""

_KEY, _KNOWN_HOSTS = "host_ed25519", "known_hosts"


class HostKeyError(Exception):
    """The key cannot be used; the message is for the user."""


@dataclass(frozen=True)
class HostKey:
    """
    A user's host key.

    :param known_hosts: path of the file that ssh verifies it with.
    """

    private: Ed25519PrivateKey
    known_hosts: str


def user_directory() -> str:
    """Return the directory of the user's key, by the XDG Base Directory Specification."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "twisted-exec", "ssh")


def host_key(directory: str) -> HostKey:
    """
    Return the key in a directory, and make both if they do not exist.

    :raises HostKeyError: the key cannot be read or made, or is not the user's alone.
    """
    path = os.path.join(directory, _KEY)
    known_hosts = os.path.join(directory, _KNOWN_HOSTS)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        if not os.path.lexists(path):
            _make(path)
        private = _read(path)
        public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        _keep(known_hosts, b"%s %s\n" % (HOST.encode(), public))
    except OSError as error:
        raise HostKeyError(
            f"cannot keep the host key for ssh in {directory}: {error.strerror}"
        ) from None
    return HostKey(private, known_hosts)


def _read(path: str) -> Ed25519PrivateKey:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise HostKeyError(f"{path} is not a file of yours: delete it")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise HostKeyError(
                f"other users can read the host key {path}: delete it, and ssh gets a new one"
            )
        text = file.read(1 << 16)
    try:
        private = load_pem_private_key(text, None)
    except (ValueError, TypeError):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise HostKeyError(f"{path} has no Ed25519 key: delete it, and ssh gets a new one")
    return private


def _make(path: str) -> None:
    """Make a key, unless another process is faster."""
    private = Ed25519PrivateKey.generate()
    text = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    new = _new_file(path, text)
    try:
        with suppress(FileExistsError):
            os.link(new, path)
    finally:
        os.unlink(new)


def _keep(path: str, text: bytes) -> None:
    """Write a file if it has another text."""
    with suppress(OSError), open(path, "rb") as file:
        if file.read(len(text) + 1) == text:
            return
    os.replace(_new_file(path, text), path)


def _new_file(path: str, text: bytes) -> str:
    new = f"{path}.{secrets.token_hex(8)}"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    return new
