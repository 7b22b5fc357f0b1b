"""
PEM files that may be replaced while the program runs.

A :class:`Reloading` value is parsed from one or more files, and parsed again
when one of them has changed.  Certificate and key are two files and cannot be
replaced together: whoever looks in between sees a pair that does not match.
So whatever cannot be parsed leaves the last good value in force, is logged
once, and is tried again a second later.

When certificates in files end.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

from cryptography import x509
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError

_MAX_BYTES = 4 << 20
_LOOK_EVERY_SECONDS = 1.0

T = TypeVar("T")
_Stamp = tuple[tuple[int, int, int, int], ...]


def read_file(path: str, what: str = "file") -> bytes:
    """
    The content of a small regular file.

    :param what: what the file holds, for the error.
    :raises TLSConfigError: missing, unreadable, not a regular file, or larger
        than 4 MiB.
    """
    try:
        # A FIFO would block the reactor in open(); nobody means one here.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise TLSConfigError(f"{what} {path!r} is not a regular file")
            content = stream.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as problem:
        raise TLSConfigError(f"cannot read {what} {path!r}: {_why(problem)}") from None
    if len(content) > _MAX_BYTES:
        raise TLSConfigError(f"{what} {path!r} is larger than {_MAX_BYTES >> 20} MiB")
    return content


def _why(problem: Exception) -> str:
    if isinstance(problem, OSError) and problem.errno is not None:
        hint = " (check the path)" if problem.errno == errno.ENOENT else ""
        return f"{os.strerror(problem.errno)}{hint}"
    return str(problem)


class Reloading(Generic[T]):
    """
    A value made from files, made anew when the files change.

    Nothing is opened before the first :meth:`load` or :meth:`get`.

    :param paths: the files, in the order in which ``parse`` wants their contents.
    :param parse: makes the value; raises :class:`TLSConfigError`.
    :param clock: files are looked at once a second of this clock at most.
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

    def load(self) -> T:
        """
        Read the files now, whatever the time.

        :raises TLSConfigError: they cannot be used.  The last good value stays.
        """
        self._next_look = self._clock.seconds() + _LOOK_EVERY_SECONDS
        stamp = self._stamp()
        value = self._parse(*(read_file(path) for path in self.paths))
        self._value = [value]
        # Stamped before reading: a change during the reading shows next time.
        self._seen = stamp
        self._complained = ""
        return value

    def get(self) -> T:
        """
        The value of the files as they are, or as they last made sense.

        :raises TLSConfigError: they never made sense.
        """
        if not self._value:
            return self.load()
        if self._clock.seconds() >= self._next_look:
            self._look()
        return self._value[0]

    def _look(self) -> None:
        self._next_look = self._clock.seconds() + _LOOK_EVERY_SECONDS
        try:
            if self._stamp() != self._seen:
                self.load()
                self._log.info("reloaded {paths}", paths=", ".join(self.paths))
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


class Expiry:
    """
    The ends of some certificates.

    Of a server's or a client's that of the certificate itself, which comes first in its file; of CAs that
    of the one that is good for longest.

    :param files: paths, by the names to tell them by.
    :param readers: functions that return PEM data kept elsewhere, by name.
    """

    def __init__(
        self,
        files: Mapping[str, str],
        readers: Mapping[str, Callable[[], bytes]] | None = None,
    ) -> None:
        self._ways: dict[str, Callable[[], bytes]] = {
            name: partial(read_file, path) for name, path in files.items()
        }
        self._ways |= readers or {}

    def ends(self) -> dict[str, float]:
        """
        The end of each, in seconds since the epoch, as its file is now.

        What cannot be read, or is not there, is left out.
        """
        ends = {}
        for name, read in self._ways.items():
            try:
                ends[name] = _end(read(), name)
            except TLSConfigError:
                continue  # whoever uses it complains
        return ends


def _end(content: bytes, what: str) -> float:
    chain = pem.certificates(content, what)
    counted = chain if all(map(_is_ca, chain)) else chain[:1]
    return _latest(counted)


def _latest(certificates: Sequence[x509.Certificate]) -> float:
    return max(each.not_valid_after_utc.timestamp() for each in certificates)


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False
