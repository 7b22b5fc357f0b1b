"""A console that cannot be recorded."""

from __future__ import annotations

from zope.interface import implementer

from twisted_exec.api.kinds.consolerecordings import CANNOT_BE_RECORDED
from twisted_exec.api.status import NotImplementedByBackend
from twisted_exec.console.interfaces import IConsoleRecorder
from twisted_exec.wire.marks import OpenRecording

_WHY = f"this console {CANNOT_BE_RECORDED}, and a ConsolePolicy requires that"


@implementer(IConsoleRecorder)
class UnrecordedConsole:
    """Refuses sessions that require a recording, and records no input."""

    recordings: tuple[OpenRecording, ...] = ()

    def require(self, recording: str) -> None:
        raise NotImplementedByBackend(_WHY)

    def problem(self, recording: str) -> str:
        return _WHY

    def typed(self, session: str, data: bytes) -> bool:
        return True
