"""
Keys with which clients resume their sessions.

A key is random, and it has a seal: an authentication code over the key, its holder and the
beginning of the session.  The seal lets a later process of the same runtime recognise the key.

A text in base64 (URL-safe, without padding) of::

    process   8 bytes   of the process that issued the key
    nonce    32 bytes   random
    epoch     8 bytes   of the oldest position that the session may read
    offset    8 bytes   of that position
    seal     32 bytes   HMAC-SHA256 of all this and the holder
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import os
import secrets
import stat
import struct
from dataclasses import dataclass

from twisted.logger import Logger

from twisted_exec.tls.files import owner_only
from twisted_exec.wire.resume import Position

_PROCESS_BYTES = 8
_NONCE_BYTES = 32
_SECRET_BYTES = 32
_HEAD = struct.Struct(f">{_PROCESS_BYTES}s{_NONCE_BYTES}s8sQ")
_SEAL_BYTES = 32

_log = Logger()


@dataclass(frozen=True)
class Holder:
    """
    The holder of a key, and the session that it resumes.

    :param machine: the machine's UID, or the runtime's id of a machine without one.
    :param session: the id of the session for which the key was issued.
    """

    user: str
    machine: str
    session: str

    def encode(self) -> bytes:
        """Return bytes that differ for different holders."""
        return json.dumps([self.user, self.machine, self.session]).encode("ascii")


class ResumeKeys:
    """Issues keys, and recognises those that an earlier process issued."""

    def __init__(self, secret: bytes = b"") -> None:
        self._secret = secret or secrets.token_bytes(_SECRET_BYTES)
        self._process = secrets.token_bytes(_PROCESS_BYTES)

    def issue(self, holder: Holder, oldest: Position) -> str:
        """Make a key."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        head = _HEAD.pack(self._process, nonce, bytes.fromhex(oldest.epoch), oldest.offset)
        return _to_text(head + self._seal(head, holder))

    def recognise(self, key: str, holder: Holder) -> Position | None:
        """
        Check a key of an earlier process.

        :return: the position of the oldest output that the session may read; ``None`` if no earlier
            process issued this key for this holder.
        """
        try:
            raw = base64.urlsafe_b64decode(key + "=" * (-len(key) % 4))
        except (ValueError, binascii.Error):
            return None
        if len(raw) != _HEAD.size + _SEAL_BYTES or _to_text(raw) != key:
            return None  # several texts decode to the same bytes, and a key must have one
        head, seal = raw[: _HEAD.size], raw[_HEAD.size :]
        if not hmac.compare_digest(self._seal(head, holder), seal):
            return None
        process, _, epoch, offset = _HEAD.unpack(head)
        # A seal is worth nothing in the process that issued the key: there a key that is not known
        # has been used, or its session is over.
        return None if process == self._process else Position(epoch.hex(), offset)

    def _seal(self, head: bytes, holder: Holder) -> bytes:
        return hmac.digest(self._secret, head + holder.encode(), "sha256")


def read_secret(path: str) -> bytes:
    """
    Read the secret of the seals, or create it.

    A file that others could read is replaced. If that fails, sessions end with this process.
    """
    try:
        return _read(path) or _create(path)
    except OSError as problem:
        _log.error(
            "sessions cannot be resumed after a restart: {path}: {why}",
            path=path,
            why=problem.strerror,
        )
        return secrets.token_bytes(_SECRET_BYTES)


def _read(path: str) -> bytes:
    try:
        # O_NONBLOCK: the path may be that of a FIFO, whose opening waits for a writer (fifo(7)).
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    try:
        status = os.fstat(descriptor)
        is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        secret = os.read(descriptor, _SECRET_BYTES + 1) if is_ours else b""
    finally:
        os.close(descriptor)
    if len(secret) == _SECRET_BYTES and not stat.S_IMODE(status.st_mode) & 0o077:
        return secret
    _log.warn("{path} is not a private file of {size} bytes", path=path, size=_SECRET_BYTES)
    return b""


def _create(path: str) -> bytes:
    secret = secrets.token_bytes(_SECRET_BYTES)
    with open(f"{path}.new", "wb", opener=owner_only) as file:
        os.fchmod(file.fileno(), 0o600)  # it may exist
        file.write(secret)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
    return secret


def _to_text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")
