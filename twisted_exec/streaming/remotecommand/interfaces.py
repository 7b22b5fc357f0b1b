"""
A session's stream and its user, as they see each other at the user's end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.defer import Deferred

from twisted_exec.streaming.interfaces import Break, Ending, Role, TerminalSize
from twisted_exec.wire.marks import Mark

if TYPE_CHECKING:
    from twisted_exec.streaming.remotecommand.client import ConsoleClient


class ConsoleStream(Protocol):
    """A session's stream, as its user sees it: one connection, or several in succession."""

    @property
    def session(self) -> str: ...
    @property
    def transport(self) -> Any: ...
    @property
    def protocol(self) -> str: ...
    @property
    def can_half_close(self) -> bool: ...
    def write(self, data: bytes) -> None: ...
    def end_input(self) -> None: ...
    def resize(self, size: TerminalSize) -> None: ...
    def wish(self, wish: Break | Role) -> None: ...
    def pause_output(self) -> None: ...
    def resume_output(self) -> None: ...
    def registerProducer(self, producer: Any, streaming: bool) -> None: ...
    def unregisterProducer(self) -> None: ...
    def leave(self) -> None: ...
    def abort(self) -> None: ...


class ConsoleUser(Protocol):
    """Callbacks of a :class:`ConsoleStream`."""

    def attached(self, stream: ConsoleStream) -> None:
        """The stream is open; called once, first of all."""

    def data_received(self, data: bytes) -> None:
        """Output of the machine, 1 byte or more."""

    def ended(self, ending: Ending) -> None:
        """The server ended the session with this status; :meth:`detached` follows."""

    def detached(self, reason: str) -> None:
        """
        The stream is closed; called exactly once, last of all.

        Without :meth:`ended` before, and unless this side left, the connection was lost before
        the session's status; ``reason`` then says so.
        """


class MarkUser(ConsoleUser, Protocol):
    """Callbacks of a stream that can be resumed."""

    def mark_received(self, mark: Mark) -> None:
        """Handle a mark, in order with the output."""


Reopen = Callable[[str, MarkUser, str], "Deferred[ConsoleClient]"]
"""
Opens the next connection of a session.

It gets the value of the header, the connection's user and the protocol, and fails with an
:class:`~twisted_exec.api.status.APIError`.
"""
