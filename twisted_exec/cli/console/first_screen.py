"""
The console's screen as it is, before the output behind it.

The server sends the last output of a console to a new session, with offsets. Instead, this program
reads the state of the console's terminal (``machines/screen``, in the form ``state``) at some
offset, and shows this screen and the output behind it.

Greeting and notices follow the output from before the session, which would scroll them away.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.status import APIError, Forbidden
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser
from twisted_exec.wire.endings import Ending
from twisted_exec.wire.marks import At, Attendance, Notice
from twisted_exec.wire.resize import TerminalSize

if TYPE_CHECKING:
    from twisted_exec.api.screens import TerminalState
    from twisted_exec.cli.console.session import ConsoleSession

TIMEOUT_SECONDS = 30.0
WAIT_SECONDS = 1.0
"""How long the output waits for the state, once the session is open."""

SHORT_BYTES = 8 << 10
"""Less output than this is shown as it was printed."""

_MOST_WAITING = 64
_NO_SCROLLBACK = b"\x1b[3J"
"""ED 3, by which a terminal empties its scrollback (xterm's ``ctlseqs``)."""
_NOTHING = b"\x1b\\"
"""ST, which ends an unfinished sequence before it, as any sequence does, and does nothing else."""

_PLAIN_MODES = "\x1b[?6l\x1b[?7h\x1b[4l\x1b[r\x1b(B\x0f\x1b[m"
"""DECOM, DECAWM, IRM, DECSTBM, character set and colours, as a screen is drawn; it sets its own."""
_PICTURE = re.compile(
    "(?s)(?P<reports>(?:\x1b\\[[?>][0-9;]*[hmu]|\x1b=)*).*(?P<picture>\x1b\\[\\?1049h.*)"
)
"""The parts of a state that show a full-screen program; between them is the other screen."""

Read = Callable[[ClientConfig, Dialect, TerminalSize], "Deferred[TerminalState]"]
"""Reads the state for a terminal of this size."""


def state_reader(name: str, namespace: str, reactor: Any, reason: str, agent: str) -> Read:
    """Return a function that reads the state of a machine's console."""

    def read(config: ClientConfig, dialect: Dialect, size: TerminalSize) -> Deferred[TerminalState]:
        # Imported here, because the request for the session is on its way by now.
        from twisted_exec.kube.downloads import read_state

        path = dialect.workload.path(namespace, name, "screen")
        state = read_state(
            config,
            path,
            (size.columns, size.rows),
            reactor,
            reason=reason,
            timeout_seconds=TIMEOUT_SECONDS,
            agent=agent,
        )
        return Deferred.fromCoroutine(state)

    return read


class Past(Enum):
    """What a user sees of the output from before the session."""

    SCREEN = "the screen as it is"
    PRINTED = "all of it, as it was printed"
    HIDDEN = "nothing"


class FirstScreen(ConsoleUser):
    """
    Passes the events of a session's stream on, with the console's screen in place of earlier
    output.

    :param read: ``None`` if the terminal cannot show a screen.
    :param past: what is shown of earlier output.
    """

    def __init__(
        self,
        user: ConsoleSession,
        clock: IReactorTime,
        size: Callable[[], TerminalSize | None],
        read: Read | None,
        past: Past,
    ) -> None:
        self._user, self._clock, self._size, self._read = user, clock, size, read
        self._past = past
        self._stream: Any = None
        self._reading: Deferred[TerminalState] | None = None
        self._attached: Deferred[None] | None = None  # a refused request waits for it
        self._state: TerminalState | None = None  # until it is shown
        self._timer: IDelayedCall | None = None  # while the output waits
        self._epoch = ""
        self._offset = 0  # of the next output
        self._hidden_until = 0
        self._past_until = 0  # the output before the session
        self._waiting: list[Callable[[], None]] | None = []  # for its end; None behind it
        self._at: tuple[ClientConfig, Dialect] | None = None
        self._cut = b""  # of the past output: a part of a sequence
        self._hidden = 0  # of the output that is missing: what would not have been shown
        self._is_picture = False  # only a program's picture is needed

    def ask(self, config: ClientConfig, dialect: Dialect) -> None:
        """Ask for the first screen of a session that is about to open."""
        self.cancel()
        self._at = config, dialect
        if self._past is Past.SCREEN:
            self._ask(config, dialect)

    def _ask(self, config: ClientConfig, dialect: Dialect) -> None:
        if self._read is None or (size := self._size()) is None:
            return
        self._reading = reading = Deferred.fromCoroutine(
            self._read_state(self._read, config, dialect, size)
        )
        # Whatever the problem is, the user gets the output.
        reading.addCallbacks(self._arrived, lambda _: None)
        reading.addBoth(self._answered, reading)

    async def _read_state(
        self, read: Read, config: ClientConfig, dialect: Dialect, size: TerminalSize
    ) -> TerminalState:
        try:
            return await read(config, dialect, size)
        except APIError as refusal:
            if refusal.code != Forbidden.code:
                raise
        # With an approval for one session, a user may see the screen once that session is open.
        if self._stream is None:
            self._attached = Deferred()
            await self._attached
        return await read(config, dialect, size)

    def redraw(self, *, is_picture: bool = False) -> bool:
        """
        Show the screen as it is now, instead of what the terminal shows.

        :param is_picture: of a full-screen program only its picture; the terminal keeps the screen
            behind it.
        :return: whether the server was asked.
        """
        if self._at is None or self._waiting is not None or self._timer is not None:
            return False
        self._is_picture = is_picture
        self.cancel()
        self._ask(*self._at)
        if self._reading is None:
            return False
        self._wait()
        return True

    def _wait(self) -> None:
        self._timer = self._clock.callLater(WAIT_SECONDS, self.cancel)
        self._stream.pause_output()

    def cancel(self) -> None:
        self._state = None
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
        self._go_on()

    def refused(self, failure: Failure) -> Failure:
        self.cancel()
        return failure

    def _arrived(self, state: TerminalState) -> None:
        self._state = state

    def _answered(self, _: None, reading: Deferred[TerminalState]) -> None:
        if self._reading is reading:
            self._reading = None
            self._go_on()

    def _go_on(self) -> None:
        timer, self._timer = self._timer, None
        if timer is None:
            return
        if timer.active():
            timer.cancel()
        self._show()
        self._stream.resume_output()
        self._begin()

    def _show(self) -> None:
        state, self._state = self._state, None
        if state is None or not self._fits(state):
            return
        self._hidden_until = state.offset
        output = state.output
        picture = _PICTURE.fullmatch(output) if self._is_picture else None
        if picture is not None:
            clear, output = _PLAIN_MODES, picture["reports"] + picture["picture"]
        elif self._waiting is not None:
            # The user finds what the terminal shows before the session by scrolling back.
            clear = "\r\n" * state.rows + "\x1b[m\x1b[H\x1b[2J"
        else:
            # Row by row: many terminals keep what ED erases in their scrollback.
            rows = "".join(f"\x1b[{row};1H\x1b[2K" for row in range(1, state.rows + 1))
            clear = f"\x1b[?1049l{_PLAIN_MODES}{rows}\x1b[H"
        self._user.show((clear + output).encode("utf-8", "replace"))

    def _fits(self, state: TerminalState) -> bool:
        size = self._size()
        if size is None or (size.columns, size.rows) != (state.columns, state.rows):
            return False
        return state.epoch == self._epoch and state.offset >= self._offset

    @property
    def is_observer(self) -> bool:
        return self._user.is_observer

    @property
    def sends_late(self) -> bool:
        return self._user.sends_late

    # The events of the stream.

    def attached(self, stream: ConsoleStream) -> None:
        """Pass the event on; the screen needs a stream with positions."""
        self._stream = stream
        is_resumable = stream.is_resumable
        self._user.attached(stream, greets=not is_resumable)
        if is_resumable:
            self._waiting = [self._user.greet]
            if self._attached is not None:
                self._attached.callback(None)
        else:
            self._waiting = None
            self.cancel()

    def placed(self, mark: At) -> None:
        """
        Take note of a position; at the first one, hold the output back until there is a state.
        """
        epoch, offset = self._epoch, self._offset
        self._epoch, self._offset = mark.position.epoch, mark.position.offset
        if epoch == self._epoch:
            self._hidden = max(0, min(self._hidden_until, self._offset) - offset)
        elif epoch:
            self._hidden_until = 0
        else:
            self._first_placed(mark)
        self._begin()

    def _first_placed(self, mark: At) -> None:
        self._past_until = mark.end or 0
        if self._past is not Past.SCREEN:
            self._hidden_until = self._past_until if self._past is Past.HIDDEN else 0
        elif not self._offset and mark.end is not None and mark.end < SHORT_BYTES:
            self.cancel()
        elif self._reading is None:
            self._show()
        else:
            self._wait()

    def _begin(self) -> None:
        waiting = self._waiting
        if waiting is None or not self._epoch or self._timer is not None:
            return
        if self._offset >= max(self._past_until, self._hidden_until):
            self._waiting = None
            for each in waiting:
                each()

    def data_received(self, data: bytes) -> None:
        offset = self._offset
        self._offset += len(data)
        if offset < self._hidden_until:
            hidden, data = data[: self._hidden_until - offset], data[self._hidden_until - offset :]
            self._user.remember(hidden)
        past = data[: max(0, self._past_until - (self._offset - len(data)))]
        if past:
            self._show_past(past)
        if len(data) > len(past):
            live, self._cut = self._cut + data[len(past) :], b""
            self._user.data_received(live)
        if self._waiting is not None:
            self._begin()

    def _show_past(self, data: bytes) -> None:
        """Show output from before the session: an old ``clear`` must not empty the user's scrollback."""
        self._user.remember(data)
        shown = (self._cut + data).replace(_NO_SCROLLBACK, _NOTHING)
        length = next((each for each in (3, 2, 1) if shown.endswith(_NO_SCROLLBACK[:each])), 0)
        shown, self._cut = shown[: len(shown) - length], shown[len(shown) - length :]
        if shown:
            self._user.show(shown)

    def skipped(self, count: int | None) -> None:
        hidden, self._hidden = self._hidden, 0
        if count is None and self._offset > self._hidden_until:
            self._user.skipped(None)
        elif count is not None and count > hidden:
            self._user.skipped(count - hidden)

    def attendance_changed(self, attendance: Attendance) -> None:
        self._show_behind(lambda: self._user.attendance_changed(attendance))

    def notice(self, notice: Notice) -> None:
        self._show_behind(lambda: self._user.notice(notice))

    def _show_behind(self, show: Callable[[], None]) -> None:
        if self._waiting is None or len(self._waiting) > _MOST_WAITING:
            show()
        else:
            self._waiting.append(show)

    def outage(self, reason: str) -> None:
        self._user.outage(reason)

    def resumed(self, seconds: float, uncertain: int, unsent: int) -> None:
        self._user.resumed(seconds, uncertain, unsent)

    def caught_up(self) -> None:
        self._user.caught_up()

    def dropped(self, dropped: int, unsent: int) -> str:
        return self._user.dropped(dropped, unsent)

    def ended(self, ending: Ending) -> None:
        self._user.ended(ending)

    def detached(self, reason: str) -> None:
        self.cancel()
        self._user.detached(reason)
