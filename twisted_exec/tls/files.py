"""
Files that may be replaced while the program runs.

A :class:`Reloading` value is parsed again when one of its files changes. After an error the last
good value stays in use.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.tls.errors import TLSConfigError

_MAX_BYTES = 4 << 20
_LOOK_EVERY_SECONDS = 1.0
_KEY = b"PRIVATE KEY-----"

_log = Logger()

T = TypeVar("T")
_Stamp = tuple[tuple[int, int, int, int], ...]


def read_file(path: str, what: str = "file") -> bytes:
    """
    Return the content of a small regular file.

    :param what: name of the content, for the error.
    :raises TLSConfigError: it cannot be read, is not a regular file, or is too large.
    """
    try:
        with open(path, "rb", opener=regular) as stream:
            mode = os.fstat(stream.fileno()).st_mode
            content = stream.read(_MAX_BYTES + 1)
        if _KEY in content:
            warn_if_public(path, mode)
    except (OSError, ValueError) as problem:
        raise TLSConfigError(f"cannot read {what} {path!r}: {_why(problem)}") from None
    if len(content) > _MAX_BYTES:
        raise TLSConfigError(f"{what} {path!r} is larger than {_MAX_BYTES >> 20} MiB")
    return content


@lru_cache(maxsize=256)  # once for each file
def warn_if_public(path: str, mode: int) -> None:
    """
    Log a warning if others on the host may read or write a file with secrets.

    The file is used nevertheless: Kubernetes mounts Secrets with mode 0644.
    """
    if mode & 0o007:
        _log.warn(
            "{path!r} can be {how} by every user of this host (mode {mode:o}); "
            "type: chmod 600 {quoted}",
            path=path,
            quoted=shlex.quote(path),
            how="written" if mode & 0o002 else "read",
            mode=stat.S_IMODE(mode),
        )


def regular(path: str, flags: int) -> int:
    """
    Open a regular file: an ``opener`` for :func:`open`, which would wait for the writer of a FIFO.

    ``/dev/null`` counts as an empty one.

    :raises OSError: it is not one, or cannot be opened.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) or os.path.samestat(found, os.stat(os.devnull)):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "it is not a regular file", path)


def write_problem(path: str, status: os.stat_result) -> str:
    """Return a sentence if other users may write a regular file, with the remedy; or an empty string."""
    if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"other users can write {path}; type: chmod go-w {shlex.quote(path)}"
    return ""


def owner_only(path: str, flags: int) -> int:
    """
    Open a file so that only its owner can use it when it is created: an ``opener`` for
    :func:`open`.
    """
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _why(problem: Exception) -> str:
    if isinstance(problem, OSError) and problem.errno is not None:
        hint = " (check the path)" if problem.errno == errno.ENOENT else ""
        return f"{problem.strerror}{hint}"
    return str(problem)


class Replaceable(Protocol):
    """A source of a value that may change while the program runs."""

    @property
    def paths(self) -> Sequence[str]:
        """Return the files, or a word for another source."""

    def look(self) -> int:
        """Return a number that differs from an earlier one if there is a new value."""


class Reloading(Generic[T]):
    """
    A value parsed from files, and parsed again when the files change.

    Nothing is opened before :meth:`load` or :meth:`get`.

    :param parse: gets the content of each file as bytes and returns the value; raises ``ValueError``
        or :class:`TLSConfigError`, with a message that quotes no secret.  Of another error only the
        type is told.
    :param clock: :meth:`get` checks the files at most once a second after the first value.
    """

    _log = Logger()

    def __init__(self, paths: Sequence[str], parse: Callable[..., T], clock: IReactorTime) -> None:
        self.paths = tuple(paths)
        self._parse = parse
        self._clock = clock
        self._value: list[T] = []
        self._seen: _Stamp | None = None
        self._complained: str = ""
        self._next_look = 0.0
        self._loads = 0

    def load(self) -> T:
        """
        Read the files now.

        :raises TLSConfigError: they cannot be used. The last good value stays in use.
        """
        self._next_look = self._clock.seconds() + _LOOK_EVERY_SECONDS
        stamp = self._stamp()
        contents = [read_file(path) for path in self.paths]
        try:
            value = self._parse(*contents)
        except TLSConfigError:
            raise
        except Exception as problem:
            # Other errors may quote a line with a secret.
            why = problem if isinstance(problem, ValueError) else f"a {type(problem).__name__}"
            names = ", ".join(map(repr, self.paths))
            raise TLSConfigError(f"cannot use {names}: {why}") from None
        self._value = [value]
        self._loads += 1
        # The stamp comes before the read, so a change during the read is seen at the next check.
        self._seen = stamp
        self._complained = ""
        return value

    def get(self) -> T:
        """
        Return the value of the current files, or the last good one.

        :raises TLSConfigError: the files were never valid.
        """
        if not self._value:
            return self.load()
        if self._clock.seconds() >= self._next_look:
            self._look()
        return self._value[0]

    def look(self) -> int:
        """Read the files if they have changed, without the limit of :meth:`get`."""
        if self._value:
            self._look()
        return self._loads

    def _look(self) -> None:
        self._next_look = self._clock.seconds() + _LOOK_EVERY_SECONDS
        try:
            if self._stamp() != self._seen:
                self.load()
                self._log.info("reloaded {paths}", paths=", ".join(self.paths))
        # Certificate and key are two files that cannot be replaced atomically together: a reader
        # may see a new certificate with an old key.
        except TLSConfigError as problem:
            if str(problem) != self._complained:
                self._complained = str(problem)
                self._log.warn("keeping what was loaded before: {problem}", problem=problem)

    def _stamp(self) -> _Stamp:
        stamps = []
        for path in self.paths:
            try:
                entry = os.stat(path)
            except (OSError, ValueError) as problem:
                raise TLSConfigError(f"cannot read {path!r}: {_why(problem)}") from None
            stamps.append((entry.st_dev, entry.st_ino, entry.st_mtime_ns, entry.st_size))
        return tuple(stamps)
