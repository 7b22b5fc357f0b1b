"""
QEMU as a process: one that ends with the runtime, or one that outlives it.

The first has a pseudo-terminal of its own, for two reasons: it leads a session then, so a ``^C``
at the runtime's terminal does not reach it; and its complaints can be read.  When the runtime is
killed it is hung up, and killed by the kernel (setpriv(1), PR_SET_PDEATHSIG): hung up alone,
QEMU with ``-icount`` on a busy host was seen to wait for itself for ever.

The second leads a session, too (``setsid``), but prints into a file, so that nothing hangs it up.  Its
end is told by a descriptor of the process (pidfd_open(2)), whether we started it or an
earlier runtime did.

Detection of KVM: see the kernel's ``virt/kvm/api.rst``.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.runtimes.processes import Leader, leader, read_process
from twisted_exec.runtimes.terminals import read_rest

DEVICE = "/dev/kvm"

# KVM_GET_API_VERSION, which has been 12 since Linux 2.6.22.
_GET_API_VERSION, _API_VERSION = 0xAE00, 12


def has_kvm(device: str = DEVICE) -> bool:
    """Return true if KVM responds; it may still fail to run a certain guest."""
    try:
        descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return fcntl.ioctl(descriptor, _GET_API_VERSION, 0) == _API_VERSION
    except OSError:
        return False
    finally:
        os.close(descriptor)


PATH = "/usr/local/bin:/usr/bin:/bin"

_MAX_COMPLAINT_BYTES = 4096
_MAX_LOG_BYTES = 1 << 20
_COMPLAINT = re.compile(r"qemu[^:\s]*: (?!warning: )")


def _last_complaint(printed: bytes) -> str:
    """The last line that is a complaint, not a mere warning; or empty."""
    text = printed[-_MAX_COMPLAINT_BYTES:].decode("utf-8", "replace")
    said = [line for line in text.splitlines() if _COMPLAINT.match(line)]
    return "".join(char for char in said[-1] if char.isprintable()) if said else ""


class ChildProcess(ProcessProtocol):
    """
    A QEMU that ends with us; keeps the last of what it prints.

    :param exited: called when it has ended.
    """

    transport: Any

    def __init__(self, exited: Callable[[], None]) -> None:
        self._exited = exited
        self._printed: deque[bytes] = deque(maxlen=16)
        self._signal: int | None = None

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], reactor: Any
    ) -> Leader | None:
        """Start it; :return: it, or ``None`` when it has ended already."""
        mortal = shutil.which("setpriv", path=PATH)
        words = [mortal, "--pdeathsig", "KILL", *words] if mortal else list(words)
        transport = reactor.spawnProcess(
            self, words[0], words, env=dict(environment), path="/", usePTY=True
        )
        return leader(transport.pid) if transport.pid else None

    def childDataReceived(self, child_fd: int, data: bytes) -> None:
        self._printed.append(data[-_MAX_COMPLAINT_BYTES:])

    def complaint(self) -> str:
        """Its last complaint, or the signal that ended it; or empty."""
        said = _last_complaint(b"".join(self._printed))
        return said or (f"signal {self._signal}" if self._signal else "")

    def processExited(self, reason: Failure) -> None:
        # Why it ended may be in its terminal still, and is asked for at once.
        if self.transport.connected:
            self._printed.extend(read_rest(self.transport.fd))
        self._signal = getattr(reason.value, "signal", None)
        self._exited()

    def close(self) -> None:
        """Let go of its terminal."""
        if self.transport is not None and self.transport.connected:
            self.transport.connectionLost(Failure(ConnectionDone()))


class DetachedProcess:
    """
    A QEMU that outlives us.

    :param exited: called when it has ended.
    :param log: path of the file that it prints into; of its own machine alone.
    """

    def __init__(self, exited: Callable[[], None], log: str) -> None:
        self._exited = exited
        self._log = log
        self._watch: _Watch | None = None

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], reactor: Any
    ) -> Leader | None:
        """
        Start it; :return: it, or ``None`` when it has ended already.

        :raises OSError: the file for its complaints cannot be made.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        log = os.open(self._log, flags, 0o600)
        try:
            transport = reactor.spawnProcess(
                _Child(),
                shutil.which("setsid", path=PATH) or "setsid",
                ["setsid", *words],
                env=dict(environment),
                path="/",
                childFDs={0: nothing, 1: log, 2: log},
            )
        finally:
            os.close(nothing)
            os.close(log)
        found = leader(transport.pid) if transport.pid else None
        if found is None:
            self._exited()
        else:
            self.adopt(found, reactor)
        return found

    def adopt(self, found: Leader, reactor: Any) -> None:
        """Hear of the end of a process that runs."""
        try:
            descriptor = os.pidfd_open(found.pid)
        except OSError:
            self._exited()
            return
        alive = read_process(found.pid)
        if alive is None or alive.start != found.start:
            os.close(descriptor)
            self._exited()
            return
        self._watch = _Watch(descriptor, self._exited, reactor)

    def complaint(self) -> str:
        """Its last complaint, or empty."""
        try:
            with open(self._log, "rb") as file:
                file.seek(max(0, os.path.getsize(self._log) - _MAX_COMPLAINT_BYTES))
                return _last_complaint(file.read(_MAX_COMPLAINT_BYTES))
        except OSError:
            return ""

    def trim_log(self) -> None:
        """What it printed long ago is not needed: a guest may make it print much."""
        try:
            if os.path.getsize(self._log) > _MAX_LOG_BYTES:
                os.truncate(self._log, 0)
        except OSError:
            pass  # there is none

    def close(self) -> None:
        """Hear of it no more."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None


class _Child(ProcessProtocol):
    """Nobody listens; Twisted sees to it that no zombie is left."""

    def processExited(self, reason: Failure) -> None:
        """The descriptor tells it."""


@implementer(IReadDescriptor)
class _Watch:
    """A process's descriptor; it becomes readable when the process ends."""

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
