"""
Short-lived programs, whose output a driver reads.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ProcessDone, ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from twisted_exec.api.display import shortened
from twisted_exec.api.status import ServiceUnavailable, message_of
from twisted_exec.program.process_groups import kill_group, leading
from twisted_exec.program.tasks import as_deferred

_MAX_COMPLAINT = 200

_MAX_BYTES = 64 << 10


def last_line(printed: bytes) -> str:
    """Return the last line with printable text, without control characters."""
    for line in reversed(printed.decode("utf-8", "replace").splitlines()):
        words = "".join(char for char in line if char.isprintable()).strip()
        if words:
            return shortened(words.rstrip("."), _MAX_COMPLAINT)
    return ""


@as_deferred
async def run_program(
    reactor: Any,
    words: Sequence[str],
    *,
    path: str,
    marker: tuple[str, str],
    seconds: float,
) -> bytes:
    """
    Run a program without input.

    :param marker: name and value of an environment variable by which a later runtime finds the
        program.
    :return: fires when the program has ended, also after a cancellation, which kills it. The result
        is the first 64 KiB of its output; fails with :class:`ServiceUnavailable` and a reason if it
        did not end with exit code 0.
    """
    program = _Program(words[0])
    executable = shutil.which(words[0], path=path)
    if executable is None:
        missing = os.strerror(errno.ENOENT)
        raise ServiceUnavailable(f"{words[0]} cannot be started: {missing}")
    command = leading([executable, *words[1:]])
    # In English: callers compare what a program prints, such as virsh's states.
    environment = {"PATH": path, "LANG": "C.UTF-8", marker[0]: marker[1]}
    try:
        reactor.spawnProcess(program, command[0], command, env=environment, path="/")
    except OSError as error:
        raise ServiceUnavailable(f"{words[0]} cannot be started: {error.strerror}") from None
    patience = reactor.callLater(seconds, program.give_up, seconds)
    try:
        return await program.done
    except CancelledError:
        await program.ended
        raise
    finally:
        if patience.active():
            patience.cancel()


class _Program(ProcessProtocol):
    transport: Any

    def __init__(self, name: str) -> None:
        self._name = name
        self._printed = bytearray()
        self._pid = 0
        self._late = ""
        self.done: Deferred[bytes] = Deferred(lambda _: self._kill())
        self.ended: Deferred[None] = Deferred()

    def connectionMade(self) -> None:
        self._pid = self.transport.pid
        self.transport.closeStdin()

    def childDataReceived(self, child_fd: int, data: bytes) -> None:
        self._printed += data[: _MAX_BYTES - len(self._printed)]

    def give_up(self, seconds: float) -> None:
        self._late = f"it took more than {seconds:g} s"
        self._kill()

    def _kill(self) -> None:
        kill_group(self._pid)
        try:
            self.transport.signalProcess("KILL")  # it may not lead its group yet
        except ProcessExitedAlready:
            pass
        self.transport.loseConnection()  # do not wait for a child that has left the group

    def processEnded(self, reason: Failure) -> None:
        self.ended.callback(None)
        if self.done.called:
            return
        printed = bytes(self._printed)
        if reason.check(ProcessDone):
            self.done.callback(printed)
        else:
            why = self._late or last_line(printed) or message_of(reason.value)
            self.done.errback(ServiceUnavailable(f"{self._name}: {why}"))
