"""
Addresses of machine runtimes: gRPC targets, and the files of mutual TLS.

Two forms of gRPC's ``doc/naming.md`` are supported: ``unix:///absolute/path`` (also
``unix:/absolute/path``) and ``dns:///host:port``.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Collection
from dataclasses import dataclass

from OpenSSL import SSL
from twisted.logger import Logger

from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import regular

_SUN_PATH_BYTES = 107  # struct sockaddr_un, less the closing NUL


class TargetError(ValueError):
    """The target cannot be used; the message is one line that says why."""


@dataclass(frozen=True)
class RuntimeAddress:
    """
    An address to listen at or to connect to.

    :param port: 0 is any free port, for listening only.
    """

    path: str = ""
    host: str = ""
    port: int = 0

    @property
    def is_unix(self) -> bool:
        return bool(self.path)

    @property
    def address(self) -> str:
        """``host:port`` with an IPv6 address in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"unix://{self.path}" if self.is_unix else f"dns:///{self.address}"


def parse_target(text: str) -> RuntimeAddress:
    """
    Read a gRPC target.

    :raises TargetError: it has neither form, or the path is too long for a socket.
    """
    if text.startswith("unix:"):
        # gRPC's naming.md permits unix:/path, too.
        path = text.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/"):
            raise TargetError(f"{text!r}: the path of a UNIX socket must be absolute")
        if len(os.fsencode(path)) > _SUN_PATH_BYTES:
            raise TargetError(
                f"{text!r}: the path of a UNIX socket has at most {_SUN_PATH_BYTES} bytes"
            )
        return RuntimeAddress(path=path)
    if text.startswith("dns:///"):
        host, colon, port = text.removeprefix("dns:///").rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        is_number = port.isascii() and port.isdigit() and len(port) <= 5
        if colon and host and is_number and int(port) <= 65535:
            return RuntimeAddress(host=host, port=int(port))
    raise TargetError(f"{text!r} is neither unix:///absolute/path nor dns:///host:port")


def target_text(text: str) -> str:
    """
    Check an option's value: a gRPC target.

    :raises TargetError: as of :func:`parse_target`.
    """
    parse_target(text)
    return text


@dataclass(frozen=True)
class MutualTLS:
    """
    PEM files for TCP, where both sides present a certificate.

    :param ca: CA of the other side's certificate.
    :param client_names: common names of clients that a server accepts; empty for every client with
        a certificate of the CA.
    """

    ca: str
    certificate: str
    key: str
    client_names: frozenset[str] = frozenset()

    def read(self) -> tuple[bytes, bytes, bytes]:
        """
        Return CA, certificate and key as PEM.

        :raises TargetError: a file cannot be read.
        """
        contents = []
        for path in (self.ca, self.certificate, self.key):
            try:
                with open(path, "rb", opener=regular) as file:
                    contents.append(file.read())
            except OSError as error:
                raise TargetError(f"cannot read {path}: {error.strerror}") from None
        return contents[0], contents[1], contents[2]

    def stamp(self) -> tuple[object, ...]:
        try:
            stats = [os.stat(path) for path in (self.ca, self.certificate, self.key)]
        except OSError:
            return ()
        return tuple((entry.st_ino, entry.st_mtime_ns, entry.st_size) for entry in stats)


class ReloadingTLS:
    """The contents of the files of :class:`MutualTLS`, as they last fitted together."""

    _log = Logger()

    def __init__(self, files: MutualTLS) -> None:
        self._files = files
        self._seen: tuple[object, ...] = ()
        self._good: tuple[bytes, bytes, bytes] | None = None

    def current(self) -> tuple[bytes, bytes, bytes]:
        """
        Return CA, certificate and key as PEM; the identical tuple until they change.

        :raises TargetError: they were never valid.
        """
        stamp = self._files.stamp()
        if self._good is None or (stamp and stamp != self._seen):
            self._seen = stamp
            try:
                self._good = self._read()
            except TargetError as problem:
                if self._good is None:
                    raise
                self._log.warn("keeping the certificate from before: {problem}", problem=problem)
        return self._good

    def _read(self) -> tuple[bytes, bytes, bytes]:
        files = self._files
        ca, certificate, key = pems = files.read()
        try:
            pem.certificates(ca, f"CA {files.ca!r}")
            context = pem.new_context(SSL.TLS_METHOD)
            names = f"certificate {files.certificate!r}", f"private key {files.key!r}"
            pem.use_certificate(context, certificate, key, *names)
        except TLSConfigError as problem:
            raise TargetError(str(problem)) from None
        return pems


def check_socket(path: str, trusted_uids: Collection[int]) -> None:
    """
    Check that a UNIX socket is the runtime's and cannot be replaced by other users.

    grpcio gives no access to the peer's credentials, so trusted users must own the socket and every
    directory above it.

    :param trusted_uids: users that may own it, besides root.
    :raises TargetError: it is not a socket, belongs to another user, or others could replace it.
        :class:`FileNotFoundError` is passed on: there is no listener.
    """
    trusted = {0, *trusted_uids}
    entry = _entry(path)
    if not stat.S_ISSOCK(entry.st_mode):
        raise TargetError(f"{path} is not a socket")
    if entry.st_uid not in trusted:
        raise TargetError(f"{path} belongs to user {entry.st_uid}, who is not trusted")
    check_directory(os.path.dirname(path), trusted, sticky=False)


def _entry(path: str) -> os.stat_result:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TargetError(f"{path} cannot be used: {error.strerror}") from None


def check_directory(path: str, trusted_uids: Collection[int], *, sticky: bool) -> None:
    """
    Check that only trusted users can change the target of a path.

    :param sticky: whether ``path`` itself may be a sticky directory that all may write, such as
        ``/tmp``. Directories above it always may be.
    :raises TargetError: another user owns or may write it, or a directory above it.
    """
    trusted = {0, *trusted_uids}
    folder = os.path.realpath(path)
    while True:
        entry = _entry(folder)
        if entry.st_uid not in trusted:
            raise TargetError(f"{folder} belongs to user {entry.st_uid}, who is not trusted")
        shared = entry.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if shared and not (sticky and entry.st_mode & stat.S_ISVTX):
            remedy = f"type: chmod go-w {shlex.quote(folder)}; or choose another path"
            if entry.st_mode & stat.S_ISVTX:  # such as /tmp, which other programs need as it is
                remedy = "choose a path in a directory that only its owner can write"
            mode = stat.S_IMODE(entry.st_mode)
            raise TargetError(f"{folder} can be written by other users (mode {mode:o}); {remedy}")
        if folder == "/":
            return
        folder, sticky = os.path.dirname(folder), True
