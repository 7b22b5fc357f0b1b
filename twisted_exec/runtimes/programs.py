"""
Short-lived programs, with limits on time and output.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from twisted_exec.api.status import ServiceUnavailable, message_of
from twisted_exec.runtimes.lines.command_endpoint import last_line

_MAX_BYTES = 64 << 10


def run_program(
    reactor: Any,
    words: Sequence[str],
    *,
    path: str,
    marker: tuple[str, str],
    seconds: float,
) -> Deferred[bytes]:
    """
    Run a program without input.

    :param path: search path for the program.
    :param marker: environment variable by which a later runtime finds it.
    :param seconds: time after which it is killed.
    :return: fires with its output; fails with :class:`ServiceUnavailable` and its last line if it
        did not end with exit code 0.
    """
    program = _Program(words[0])
    executable = shutil.which(words[0], path=path) or words[0]
    environment = {"PATH": path, "LANG": "C.UTF-8", marker[0]: marker[1]}
    reactor.spawnProcess(program, executable, list(words), env=environment, path="/")
    patience = reactor.callLater(seconds, program.give_up, seconds)

    def over(outcome: Any) -> Any:
        if patience.active():
            patience.cancel()
        return outcome

    return program.done.addBoth(over)


class _Program(ProcessProtocol):
    transport: Any

    def __init__(self, name: str) -> None:
        self._name = name
        self._printed = bytearray()
        self._late = ""
        self.done: Deferred[bytes] = Deferred(lambda _: self._kill())

    def connectionMade(self) -> None:
        self.transport.closeStdin()

    def childDataReceived(self, child_fd: int, data: bytes) -> None:
        self._printed += data[: _MAX_BYTES - len(self._printed)]

    def give_up(self, seconds: float) -> None:
        self._late = f"it took more than {seconds:g} s"
        self._kill()

    def _kill(self) -> None:
        try:
            self.transport.signalProcess("KILL")
        except ProcessExitedAlready:
            pass

    def processEnded(self, reason: Failure) -> None:
        if self.done.called:
            return
        printed = bytes(self._printed)
        if reason.check(ProcessDone):
            self.done.callback(printed)
        else:
            why = self._late or last_line(printed) or message_of(reason.value)
            self.done.errback(ServiceUnavailable(f"{self._name}: {why}"))
