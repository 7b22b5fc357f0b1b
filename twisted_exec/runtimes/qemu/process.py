"""
QEMU processes, which end with the runtime or outlive it.

A :class:`ChildProcess` has a pseudo-terminal; a :class:`DetachedProcess` prints into a file,
so no hangup reaches it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IReactorTime, IReadDescriptor
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.runtimes.processes import Leader, leader, read_process
from twisted_exec.runtimes.terminals import read_rest

PATH = "/usr/local/bin:/usr/bin:/bin"

_MAX_COMPLAINT_BYTES = 4096
_MAX_LOG_BYTES = 1 << 20
_COMPLAINT = re.compile(r"qemu[^:\s]*: (?!warning: )")


def _last_complaint(printed: bytes) -> str:
    text = printed[-_MAX_COMPLAINT_BYTES:].decode("utf-8", "replace")
    errors = [line for line in text.splitlines() if _COMPLAINT.match(line)]
    return "".join(char for char in errors[-1] if char.isprintable()) if errors else ""


@dataclass
class ProcessExit:
    """The end of one QEMU process."""

    is_off: bool = False
    by_guest: bool = False
    why: str = ""
    _waiting: list[Deferred[None]] = field(default_factory=list)

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(None)

    async def wait(self, seconds: float, clock: IReactorTime) -> None:
        """Wait until the process has ended or :meth:`wake` is called, at most this long."""
        if self.is_off:
            return
        waiter: Deferred[None] = Deferred()
        self._waiting.append(waiter)
        try:
            await waiter.addTimeout(seconds, clock)
        except TimeoutError:
            pass
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)


class ChildProcess(ProcessProtocol):
    """A QEMU that ends with the runtime."""

    transport: Any

    def __init__(self, exited: Callable[[], None]) -> None:
        self._exited = exited
        self._printed: deque[bytes] = deque(maxlen=16)
        self._signal: int | None = None

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], reactor: Any
    ) -> Leader | None:
        """Start QEMU; return its process, or ``None`` if it has ended already."""
        # The hangup alone is not enough: on a busy host QEMU 7.2 with ``-icount`` was seen to wait
        # for its own threads forever.
        setpriv = shutil.which("setpriv", path=PATH)
        words = [setpriv, "--pdeathsig", "KILL", *words] if setpriv else list(words)
        transport = reactor.spawnProcess(
            self, words[0], words, env=dict(environment), path="/", usePTY=True
        )
        return leader(transport.pid) if transport.pid else None

    def childDataReceived(self, child_fd: int, data: bytes) -> None:
        self._printed.append(data[-_MAX_COMPLAINT_BYTES:])

    def complaint(self) -> str:
        """Return QEMU's last error message, or the signal that ended QEMU, or nothing."""
        error = _last_complaint(b"".join(self._printed))
        return error or (f"signal {self._signal}" if self._signal else "")

    def processExited(self, reason: Failure) -> None:
        # Read the rest of the terminal now: ``exited`` uses the message.
        if self.transport.connected:
            self._printed.extend(read_rest(self.transport.fd))
        self._signal = getattr(reason.value, "signal", None)
        self._exited()

    def close(self) -> None:
        if self.transport is not None and self.transport.connected:
            self.transport.connectionLost(Failure(ConnectionDone()))


class DetachedProcess:
    """
    A QEMU that outlives the runtime.

    :param inherited: a descriptor that QEMU keeps open.
    """

    def __init__(self, exited: Callable[[], None], log: str, inherited: int | None = None) -> None:
        self._exited = exited
        self._log = log
        self._inherited = inherited
        self._watch: _Watch | None = None

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], reactor: Any
    ) -> Leader | None:
        """Start QEMU; return its process, or ``None`` if it has ended already."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        devnull = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        log = os.open(self._log, flags, 0o600)
        more = {} if self._inherited is None else {3: self._inherited}
        try:
            transport = reactor.spawnProcess(
                _Child(),
                shutil.which("setsid", path=PATH) or "setsid",
                ["setsid", *words],
                env=dict(environment),
                path="/",
                childFDs={0: devnull, 1: log, 2: log, **more},
            )
        finally:
            os.close(devnull)
            os.close(log)
        process = leader(transport.pid) if transport.pid else None
        if process is None:
            self._exited()
        else:
            self.adopt(process, reactor)
        return process

    def adopt(self, process: Leader, reactor: Any) -> None:
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:
            self._exited()
            return
        current = read_process(process.pid)
        # The number may have been reused before pidfd_open(2), which takes any process.
        if current is None or current.start != process.start:
            os.close(descriptor)
            self._exited()
            return
        self._watch = _Watch(descriptor, self._exited, reactor)

    def complaint(self) -> str:
        try:
            with open(self._log, "rb") as file:
                file.seek(max(0, os.path.getsize(self._log) - _MAX_COMPLAINT_BYTES))
                return _last_complaint(file.read(_MAX_COMPLAINT_BYTES))
        except OSError:
            return ""

    def trim_log(self) -> None:
        """Truncate a large log: a guest can make QEMU print at any rate."""
        try:
            if os.path.getsize(self._log) > _MAX_LOG_BYTES:
                os.truncate(self._log, 0)
        except OSError:
            pass  # there is no log yet

    def close(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None


class _Child(ProcessProtocol):
    def processExited(self, reason: Failure) -> None:
        """Do nothing: the process descriptor reports the end."""


@implementer(IReadDescriptor)
class _Watch:
    def __init__(self, descriptor: int, ended: Callable[[], None], reactor: Any) -> None:
        self._descriptor = descriptor
        self._ended = ended
        self._reactor = reactor
        reactor.addReader(self)

    def fileno(self) -> int:
        return self._descriptor

    def logPrefix(self) -> str:
        return "end of QEMU"

    def doRead(self) -> None:
        self.stop()
        self._ended()

    def connectionLost(self, reason: Failure) -> None:
        self.stop()

    def stop(self) -> None:
        if self._descriptor >= 0:
            self._reactor.removeReader(self)
            os.close(self._descriptor)
            self._descriptor = -1
