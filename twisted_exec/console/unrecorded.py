"""A console that cannot be recorded."""

from __future__ import annotations

from zope.interface import implementer

from twisted_exec.api.status import NotImplementedByBackend
from twisted_exec.console.interfaces import IConsoleRecorder
from twisted_exec.wire.marks import OpenRecording

_WHY = "this console cannot be recorded"


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
