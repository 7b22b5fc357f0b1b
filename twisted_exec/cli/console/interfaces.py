"""
The parts around a :class:`~twisted_exec.cli.console.session.ConsoleSession`, as it sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from twisted.internet.interfaces import IPushProducer

from twisted_exec.wire.resume import Notice


@dataclass(frozen=True)
class NextSession:
    """
    The session that follows this session in the same terminal.

    :param reset: switch the machine off and on first.
    :param stopped: why the server was stopped, if it has to be back first.
    :param news: a message for the user once the session is open.
    """

    machine: str
    reset: bool = False
    stopped: str = ""
    observe: bool = False
    news: str = ""


class Source(Protocol):
    """The user's input: a producer that can be stopped for good."""

    def pauseProducing(self) -> None: ...
    def resumeProducing(self) -> None: ...
    def stop(self) -> None: ...


class Sink(Protocol):
    """The user's output."""

    def write(self, data: bytes) -> None: ...
    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None: ...
    def unregisterProducer(self) -> None: ...
    def loseConnection(self) -> None: ...


class SessionScript(Protocol):
    """A script that drives the session."""

    def noticed(self, notice: Notice) -> None:
        """Handle a message for the user of the session."""

    def skipped(self, text: str) -> None:
        """Handle a gap in the output."""

    def outage(self) -> None:
        """Wait without a limit: the connection is lost."""

    def resumed(self) -> None:
        """Go on: the connection is back."""

    def failed(self, line: str) -> None:
        """Do nothing any more: the session fails with this message."""
