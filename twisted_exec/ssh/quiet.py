"""The log of Conch's classes, without a line for each packet, which clients could fill a disk with."""

from __future__ import annotations

from typing import Any

from twisted.conch.error import ConchError
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure


class QuietLogger(Logger):
    """Logs errors of the server alone."""

    def emit(self, level: Any, format: str | None = None, **values: Any) -> None:
        if level >= LogLevel.critical:
            super().emit(level, format, **values)

    def failure(
        self,
        format: str,
        failure: Failure | None = None,
        level: Any = LogLevel.critical,
        **values: Any,
    ) -> None:
        failure = failure or Failure()
        if not failure.check(ConchError):  # a refusal, which the client reads
            super().failure(format, failure, level, **values)
