"""
One console session at the user's end: keys to the machine, output to the user.

Ends of a session, and the exit code for the shell:

====================================== =========================== =================
what happened                          last line on stderr         exit code
====================================== =========================== =================
the user pressed an escape key         none                        0
input ended, the machine fell quiet    none                        0
the session was ended from the other   ``session ended: REASON``   the process's code
side                                                               if one ended, else
                                                                   0 for success or 1
with ``linger_seconds``, input was     ``the input was not sent:   1
discarded at the machine's side        REASON``
the connection was lost first          says so                     1
``--timeout`` seconds went by, or the  says so                     124
machine was never quiet
output cannot be written               what the system says        1
output's reader went away              none                        0
a signal                               none                        dies of the signal
====================================== =========================== =================

**End of input.**  With ``linger_seconds`` the session leaves after that time without
output.  Otherwise it sends a half-close, and *the machine's side* ends the session when
the output stops or the process exits.  Protocols without half-close (v4) cannot do
that, so this side leaves after :data:`QUIET_SECONDS`.  A machine that is never quiet would keep a
script for ever, so without ``--timeout`` the session ends :data:`SCRIPT_SECONDS` after the end of
input.

**Back-pressure.**  A slow output pauses the stream, a slow stream pauses the
input.  But a keyboard is still read while the stream is stuck, up to
:data:`TYPE_AHEAD_BYTES`; otherwise the escape key would not leave a stuck session.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from zope.interface import implementer

from twisted_exec.cli.console.escape import Command, Escapes, SysRq, Typed
from twisted_exec.console.floor import RoleNotices, is_writer_notice
from twisted_exec.wire.remotecommand.messages import Break, Ending, Role, TerminalSize

QUIET_SECONDS = 1.0
TYPE_AHEAD_BYTES = 64 << 10

SCRIPT_SECONDS = 60.0
"""
Time for a machine to become quiet after the end of input, besides the linger time; ``--timeout``
replaces this limit.
"""

TIMED_OUT_CODE = 124
"""The exit code of ``timeout(1)``."""
TIMED_OUT = "timed out, as --timeout says"
NEVER_QUIET = (
    f"timed out: the machine was not quiet within {SCRIPT_SECONDS:.0f} s after the end of input; "
    "--timeout sets another limit, and --timeout 0 none"
)

NOT_SENT = "the input was not sent"
"""Start of the message when a script's session ends and its input was discarded."""

NOTHING_TO_ASK = "This session is read-only; open another without --read-only."

_INTERRUPT = b"\x03"

_WISHES: dict[Command, Break | Role] = {
    Command.BREAK: Break(),
    Command.TAKE_OVER: Role.WRITER,
    Command.RELEASE: Role.OBSERVER,
}

# Time limit for the last bytes after the user has left.
_FAREWELL_SECONDS = 1.0


@dataclass(frozen=True)
class Outcome:
    """
    The result of a session, for the shell.

    :param line: message for stderr, without newline; empty for none.
    :param signal: the signal to die of instead of exiting with ``exit_code``.
    """

    exit_code: int = 0
    line: str = ""
    signal: int = 0


class Stream(Protocol):
    """The stream to the machine, as the session uses it."""

    @property
    def can_half_close(self) -> bool: ...
    def write(self, data: bytes) -> None: ...
    def registerProducer(self, producer: object, streaming: bool) -> None: ...
    def pause_output(self) -> None: ...
    def resume_output(self) -> None: ...
    def end_input(self) -> None: ...
    def resize(self, size: TerminalSize) -> None: ...
    def wish(self, wish: Break | Role) -> None: ...
    def leave(self) -> None: ...
    def abort(self) -> None: ...


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


class ConsoleSession:
    """
    Joins the user's input and output to the stream.

    :param size: the terminal's size now, ``None`` without a terminal.
    :param interactive: the input is a terminal.
    :param escapes: escape keys, only for input from a terminal.
    :param read_only: the session was opened read-only, so nothing that is typed is sent, and the
        menu cannot change the role.
    :param say: prints messages of this program; the last line has no newline.
    :param suspend: stops this program, as job control does.
    :param limited: end a script :data:`SCRIPT_SECONDS` after the end of input if it has no other limit.
    :param greet: called when the stream is attached, before the first output.
    :param watch: receives all output that is written.
    :param quiet: leave out notices that the user is the writer; each arrives as one message.
    :ivar finished: fires once with the :class:`Outcome`, after the output is
        flushed (when the user decided to go: at most a second later).
    """

    def __init__(
        self,
        clock: IReactorTime,
        *,
        interactive: bool,
        size: Callable[[], TerminalSize | None],
        escapes: Escapes | None = None,
        read_only: bool = False,
        say: Callable[[str], None] = lambda _: None,
        suspend: Callable[[], None] = lambda: None,
        linger_seconds: float | None = None,
        limited: bool = True,
        greet: Callable[[], None] = lambda: None,
        watch: Callable[[bytes], None] = lambda _: None,
        quiet: bool = False,
    ) -> None:
        self.finished: Deferred[Outcome] = Deferred()
        self._clock = clock
        self._interactive = interactive
        self._size = size
        self._escapes = escapes if interactive else None
        self._read_only, self._say, self._suspend = read_only, say, suspend
        self._linger_seconds, self._is_limited = linger_seconds, limited
        self._greet = greet
        self._watch = watch
        self._is_quiet = quiet
        self._stream: Stream | None = None
        self._source: Source | None = None
        self._sink: Sink | None = None
        self._connecting: Deferred[Any] | None = None
        self._type_ahead: list[bytes | Break | Role] = []
        self._ahead_bytes = 0
        self._input_over = False
        self._stuck = False
        self._output_paused = False
        self._last_byte = b""
        self._notices = RoleNotices()
        self._quiet: IDelayedCall | None = None
        self._deadline: IDelayedCall | None = None
        self._farewell: IDelayedCall | None = None
        self._outcome: Outcome | None = None

    def start(self, source: Source, sink: Sink, *, timeout_seconds: float | None = None) -> None:
        """
        Start, before the stream is attached.

        Input that is not a terminal is read only after that.

        :param timeout_seconds: time limit of the whole session, including connecting.
        """
        self._source, self._sink = source, sink
        if timeout_seconds is not None:
            self._deadline = self._clock.callLater(timeout_seconds, self.timed_out)
        if self._interactive:
            source.resumeProducing()

    def connecting(self, attempt: Deferred[Any]) -> None:
        """Set the connection attempt, which is cancelled if the session ends first."""
        self._connecting = attempt

    @property
    def mid_line(self) -> bool:
        """True if the last output left the cursor inside a line."""
        return self._last_byte not in (b"", b"\n")

    # The stream's events.

    def attached(self, stream: Stream) -> None:
        """Handle the attached stream."""
        if self._outcome is not None or self._source is None or self._sink is None:
            stream.abort()
            return
        self._stream, self._connecting = stream, None
        self._greet()
        stream.registerProducer(_InputFlow(self), True)
        self._sink.registerProducer(_OutputFlow(self), True)
        self.window_changed()
        self.stream_ready()

    def data_received(self, data: bytes) -> None:
        """Handle output of the machine."""
        if self._outcome is not None or self._sink is None:
            return
        if self._is_quiet and is_writer_notice(data):
            self._notices.feed(data)
            return
        self._last_byte = data[-1:]
        self._watch(data)
        self._notices.feed(data)
        if self._quiet is not None:
            self._quiet.reset(self._quiet_seconds)
        self._sink.write(data)

    def ended(self, ending: Ending) -> None:
        """Handle the end of the session by the other side, with its reason."""
        asked_for = self._input_over and ending.ok
        line = "" if asked_for else f"session ended: {_told(ending)}"
        self._end(Outcome(_exit_code(ending), line), in_haste=False)

    def failed(self, line: str) -> None:
        """Handle a failed or broken session."""
        self._end(Outcome(1, line), in_haste=False)

    def detached(self, reason: str) -> None:
        """Handle the end of the stream; ``reason`` matters only without an earlier end."""
        self._stream = None
        self.failed(reason)
        self._finish_if_done()

    # The user's events.

    def typed(self, data: bytes) -> None:
        """Input was read."""
        is_sent = not (self._read_only or self._notices.is_observer)
        if self._escapes is None:
            pieces: list[Typed] = [data]
        else:
            pieces = self._escapes.feed(data, is_sent=is_sent)
        for piece in pieces:
            if self._outcome is not None:
                return
            self._do(piece)

    def _do(self, typed: Typed) -> None:
        if isinstance(typed, bytes):
            if self._interactive and self._stream is None and _INTERRUPT in typed:
                self.interrupted(signal.SIGINT)  # there is no machine yet to receive Ctrl-C
            else:
                self._send(typed)
        elif isinstance(typed, SysRq):
            if self._wish(Break()):
                self._send(typed.key)
        elif typed is Command.LEAVE:
            self._end(Outcome())
        elif typed is Command.HELP:
            assert self._escapes is not None
            self._say("\n".join(self._escapes.help()))
        elif typed is Command.SUSPEND:
            self._suspend()
        else:
            self._wish(_WISHES[typed])

    def _wish(self, wish: Break | Role) -> bool:
        """:return: whether the stream supports the request."""
        if self._read_only:
            self._say(NOTHING_TO_ASK)
            return False
        self._send(wish)
        return True

    def input_ended(self) -> None:
        """There is no more input."""
        self._input_over = True
        if self._interactive:
            self._end(Outcome(1))  # the terminal's window was closed
            return
        if self._deadline is None and self._is_limited:
            seconds = SCRIPT_SECONDS + (self._linger_seconds or 0)
            self._deadline = self._clock.callLater(seconds, self.timed_out, NEVER_QUIET)
        if (
            self._linger_seconds is None
            and self._stream is not None
            and self._stream.can_half_close
        ):
            self._stream.end_input()
        else:
            self._quiet = self._clock.callLater(self._quiet_seconds, self._fell_quiet)

    def window_changed(self) -> None:
        """The terminal may have a new size."""
        size = self._size()
        if self._stream is not None and size is not None:
            self._stream.resize(size)

    def output_lost(self, error: OSError | None) -> None:
        """The output is flushed and closed, or cannot be written."""
        self._sink = None
        if self._outcome is None:
            message = f"cannot write output: {error.strerror}" if error is not None else ""
            self._end(Outcome(1 if error is not None else 0, message))
        self._finish_if_done()

    def conclude(self, outcome: Outcome) -> None:
        """Leave; a script is done, or has failed."""
        self._end(outcome)

    def interrupted(self, number: int) -> None:
        """Handle a deadly signal.  A second one also ends the writing of the last output."""
        if self._outcome is None:
            self._end(Outcome(signal=number))
        else:
            self._finish(Outcome(signal=number))

    # Back-pressure.

    def stream_stuck(self) -> None:
        """The stream takes no more input for now."""
        self._stuck = True
        if not self._interactive and self._source is not None:
            self._source.pauseProducing()

    def stream_ready(self) -> None:
        """The stream takes input."""
        self._stuck = False
        waiting, self._type_ahead, self._ahead_bytes = self._type_ahead, [], 0
        for data in waiting:
            self._send(data)
        if self._source is not None and self._outcome is None and not self._stuck:
            self._source.resumeProducing()

    def output_stuck(self) -> None:
        """The user's output takes no more for now."""
        self._output_paused = True
        if self._stream is not None:
            self._stream.pause_output()

    def output_ready(self) -> None:
        """The user's output takes more."""
        self._output_paused = False
        if self._stream is not None:
            self._stream.resume_output()

    def _send(self, what: bytes | Break | Role) -> None:
        if self._stream is not None and not self._stuck:
            if isinstance(what, bytes):
                self._stream.write(what)
            else:
                self._stream.wish(what)
            return
        self._type_ahead.append(what)
        self._ahead_bytes += len(what) if isinstance(what, bytes) else 1
        if self._ahead_bytes >= TYPE_AHEAD_BYTES and self._source is not None:
            self._source.pauseProducing()

    # The end.

    @property
    def _quiet_seconds(self) -> float:
        return QUIET_SECONDS if self._linger_seconds is None else self._linger_seconds

    def _fell_quiet(self) -> None:
        self._quiet = None
        if self._stuck or self._output_paused:  # the silence may be due to our own pause
            self._quiet = self._clock.callLater(self._quiet_seconds, self._fell_quiet)
        elif why := self._notices.not_sent:
            self._end(Outcome(1, f"{NOT_SENT}: {why}"))
        else:
            self._end(Outcome())

    def timed_out(self, line: str = TIMED_OUT) -> None:
        """Handle the end of the time for the session."""
        self._deadline = None
        outcome = Outcome(TIMED_OUT_CODE, line)
        if self._outcome is None:
            self._end(outcome)
        else:
            self._finish(outcome)

    def _end(self, outcome: Outcome, *, in_haste: bool = True) -> None:
        """
        Set the outcome, once, and end both sides.

        :param in_haste: the user left: do not wait long for a slow peer or reader.
        """
        if self._outcome is not None:
            return
        self._outcome = outcome
        if in_haste:
            self._farewell = self._clock.callLater(_FAREWELL_SECONDS, self._finish, outcome)
        if self._source is not None:
            self._source.stop()
        attempt, self._connecting = self._connecting, None
        if attempt is not None:
            attempt.cancel()
        if self._stream is not None:
            self._stream.leave()
        if self._sink is not None:
            self._sink.unregisterProducer()
            self._sink.loseConnection()
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self._outcome is not None and self._stream is None and self._sink is None:
            self._finish(self._outcome)

    def _finish(self, outcome: Outcome) -> None:
        for timer in (self._quiet, self._deadline, self._farewell):
            if timer is not None and timer.active():
                timer.cancel()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.abort()
        if not self.finished.called:
            self.finished.callback(outcome)


def _told(ending: Ending) -> str:
    return f"{ending.reason}: {ending.message}" if ending.message else ending.reason


def _exit_code(ending: Ending) -> int:
    if ending.exit_code is not None:
        return ending.exit_code
    return 0 if ending.ok else 1


@implementer(IPushProducer)
class _InputFlow:
    """The stream paces the user's input through this."""

    def __init__(self, session: ConsoleSession) -> None:
        self._session = session

    def pauseProducing(self) -> None:
        self._session.stream_stuck()

    def resumeProducing(self) -> None:
        self._session.stream_ready()

    def stopProducing(self) -> None:
        """The stream is gone; ``detached`` tells."""


@implementer(IPushProducer)
class _OutputFlow:
    """The user's output paces the stream through this."""

    def __init__(self, session: ConsoleSession) -> None:
        self._session = session

    def pauseProducing(self) -> None:
        self._session.output_stuck()

    def resumeProducing(self) -> None:
        self._session.output_ready()

    def stopProducing(self) -> None:
        """The output is gone; ``output_lost`` tells."""
