"""
The parts around a :class:`~twisted_exec.cli.console.session.ConsoleSession`, as it sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from twisted.internet.interfaces import IPushProducer


@dataclass(frozen=True)
class NextSession:
    """
    The session that follows this session in the same terminal.

    :param reset: switch the machine off and on first.
    :param news: a message for the user once the session is open.
    """

    machine: str
    reset: bool = False
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
