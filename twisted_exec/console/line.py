"""The protocol of a console's line."""

from __future__ import annotations

from typing import Any
from typing import Protocol as Typing

from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import message_of
from twisted_exec.streaming.interfaces import COMPLETED, LINE_LOST, Ending


class LineUser(Typing):
    """What follows a line."""

    def printed(self, data: bytes) -> None: ...
    def noticed(self, text: bytes) -> None: ...
    def line_accepts(self, is_accepting: bool) -> None: ...
    def line_lost(self, number: int, ending: Ending, has_exited: bool) -> None: ...


@implementer(IPushProducer)
class Line(Protocol):
    """The line's protocol."""

    transport: Any  # provides ILineTransport

    def __init__(self, user: LineUser, number: int) -> None:
        self._user, self._number = user, number

    def dataReceived(self, data: bytes) -> None:
        self._user.printed(data)

    def notice_received(self, text: bytes) -> None:
        """Show a notice of the line to the viewers."""
        self._user.noticed(text)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._user.line_lost(self._number, ending_of(reason), has_exited(reason))

    def pauseProducing(self) -> None:
        self._user.line_accepts(False)

    def resumeProducing(self) -> None:
        self._user.line_accepts(True)

    def stopProducing(self) -> None:
        """Do nothing: ``connectionLost`` follows."""


class LineEnded(Exception):
    """A ``connectionLost`` reason with which a console says how its line ended."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.message or ending.reason)
        self.ending = ending


def has_exited(reason: Failure) -> bool:
    """Return whether a process has ended itself, and was not killed by a signal."""
    error = reason.value
    return isinstance(error, ProcessDone) or (
        isinstance(error, ProcessTerminated) and error.signal is None
    )


def ending_of(reason: Failure) -> Ending:
    """Translate a ``connectionLost`` reason for viewers."""
    error = reason.value
    if isinstance(error, LineEnded):
        return error.ending
    if isinstance(error, ProcessDone):
        return Ending(COMPLETED, "the process ended", exit_code=0)
    if isinstance(error, ProcessTerminated):
        signal = error.signal
        if signal is not None:
            # 128 + N is the shell's exit code for a command that signal N ended.
            return Ending(COMPLETED, f"the process was ended by signal {signal}", 128 + signal)
        code = error.exitCode
        return Ending(COMPLETED, f"the process ended with exit code {code}", code)
    return Ending(LINE_LOST, f"the console line was lost: {message_of(error)}")
