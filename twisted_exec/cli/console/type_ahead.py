"""
The user's input on its way to the stream, and its end.

:mod:`~twisted_exec.cli.console.menu_command` reports keys that are discarded during a command of
the menu.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from twisted_exec.cli.console.pausable_timers import PausableTimers
from twisted_exec.wire.resize import Break, Role
from twisted_exec.wire.typed_keys import DroppedKeys, keys_of

if TYPE_CHECKING:
    from twisted_exec.cli.console.interfaces import Source
    from twisted_exec.streaming.remotecommand.stream import ConsoleStream

TYPE_AHEAD_BYTES = 64 << 10


class Discards(Enum):
    """Which keys are dropped before the stream is open."""

    NONE = "none"
    DURING_WAIT = "during a wait for another user"
    ALL = "all"


@implementer(IPushProducer)
class TypeAhead:
    """
    Passes input on to the stream, which paces it, and keeps it while the stream takes none.

    A slow stream pauses a pipe; but a keyboard is still read, up to :data:`TYPE_AHEAD_BYTES`, for
    the escape key.

    :param reads_on: the source is a keyboard.
    :ivar is_stuck: the stream takes no more input for now.
    :ivar discards: which keys are dropped at present.
    """

    def __init__(self, source: Source, *, reads_on: bool) -> None:
        self.is_stuck = False
        self._dropped = DroppedKeys()
        self.discards = Discards.NONE
        self._source: Source | None = source
        self._reads_on = reads_on
        self._stream: ConsoleStream | None = None
        self._waiting: list[bytes | Break | Role] = []
        self._bytes = 0

    def open(self, stream: ConsoleStream) -> None:
        self._stream, self.discards = stream, Discards.NONE
        stream.registerProducer(self, True)
        if not self.is_stuck:
            self.resumeProducing()

    def send(self, what: bytes | Break | Role) -> None:
        if self.discards is not Discards.NONE:
            self.drop(what)
        elif self._stream is not None and not self.is_stuck:
            if isinstance(what, bytes):
                self._stream.write(what)
            else:
                self._stream.wish(what)
        else:
            self._waiting.append(what)
            self._bytes += len(what) if isinstance(what, bytes) else 1
            if self._bytes >= TYPE_AHEAD_BYTES and self._source is not None:
                self._source.pauseProducing()

    @property
    def discarded(self) -> int:
        """Number of keys that were dropped before the stream was open."""
        return self._dropped.count

    @property
    def waiting(self) -> int:
        """Number of keys and requests that the stream has not taken."""
        return keys_of(self._waiting)

    def discard(self) -> None:
        """Drop what is typed from now on until the stream is open."""
        self.discards = Discards.ALL

    def begin_wait(self) -> None:
        """Drop what was typed, and what is typed until :meth:`end_wait`."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        for each in waiting:
            self.drop(each)
        if self.discards is Discards.NONE:
            self.discards = Discards.DURING_WAIT
        if self._source is not None:
            self._source.resumeProducing()

    def end_wait(self) -> None:
        if self.discards is Discards.DURING_WAIT:
            self.discards = Discards.NONE

    def drop(self, what: bytes | Break | Role) -> None:
        if isinstance(what, bytes):
            self._dropped.add(what)

    def close(self) -> None:
        source, self._source, self._stream = self._source, None, None
        self._waiting = []
        if source is not None:
            source.stop()

    def pauseProducing(self) -> None:
        self.is_stuck = True
        if not self._reads_on and self._source is not None:
            self._source.pauseProducing()

    def resumeProducing(self) -> None:
        self.is_stuck = False
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        for each in waiting:
            self.send(each)
        if self._source is not None and not self.is_stuck:
            self._source.resumeProducing()

    def stopProducing(self) -> None:
        """The stream is gone; the session hears of that otherwise."""


QUIET_SECONDS = 1.0
SCRIPT_SECONDS = 60.0
"""Time for a machine to become quiet after the end of input; ``--timeout`` replaces this limit."""


class EndOfInput:
    """
    The time from the end of piped input to the end of the session.

    With ``linger_seconds`` the session leaves after that time without output. Otherwise it sends a
    half-close, and *the machine's side* ends the session when the output stops or the process
    exits. Without half-close (v4) this side leaves after :data:`QUIET_SECONDS`. A machine may never
    be quiet, so without ``--timeout`` there is a limit of :data:`SCRIPT_SECONDS` and the linger
    time.

    :param timers: those of the session; one with the name ``timeout`` replaces the limit.
    :param limited: there is a limit.
    :param is_held_up: whether the machine may be silent only because of this side.
    :param quiet: called when the machine is quiet.
    :param late: called at the limit.
    :ivar has_come: the input has ended.
    """

    def __init__(
        self,
        timers: PausableTimers,
        linger_seconds: float | None,
        *,
        limited: bool,
        is_held_up: Callable[[], bool],
        quiet: Callable[[], None],
        late: Callable[[], None],
    ) -> None:
        self.has_come = False
        self._timers, self._linger_seconds, self._is_limited = timers, linger_seconds, limited
        self._is_held_up, self._quiet, self._late = is_held_up, quiet, late

    def begin(self, stream: ConsoleStream) -> None:
        self.has_come = True
        if "timeout" not in self._timers and self._is_limited:
            self._timers.after("limit", SCRIPT_SECONDS + (self._linger_seconds or 0), self._late)
        if self._linger_seconds is None and stream.can_half_close:
            stream.end_input()
        else:
            self._await_quiet()

    def put_off(self) -> None:
        """Begin to wait anew: the machine is not quiet."""
        self._timers.restart("quiet")

    def _await_quiet(self) -> None:
        seconds = QUIET_SECONDS if self._linger_seconds is None else self._linger_seconds
        self._timers.after("quiet", seconds, self._fell_quiet)

    def _fell_quiet(self) -> None:
        if self._is_held_up():
            self._await_quiet()
        else:
            self._quiet()
