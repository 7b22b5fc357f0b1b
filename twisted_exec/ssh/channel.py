"""
A session channel (RFC 4254), with the BREAK of RFC 4335.

Conch's channel keeps whatever is written beyond the client's window.  So this one tells its
end when it is full and when it has room again; and the client's window grows only while the end
takes input.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from twisted.conch.ssh.channel import SSHChannel
from twisted.conch.ssh.common import getNS
from twisted.conch.ssh.connection import EXTENDED_DATA_STDERR
from twisted.conch.ssh.session import parseRequest_pty_req, parseRequest_window_change
from twisted.internet.interfaces import IReactorTime

from twisted_exec.ssh.text import shown
from twisted_exec.wire.resize import TerminalSize

INPUT_BYTES = 32 << 10
"""The client's window: as much input arrives while nobody takes it."""
VARIABLES = frozenset({"EXEC_REASON", "LANG", "TERM"})
"""Names of environment variables that clients may send."""
_MOST_VARIABLE_BYTES = 4096
_MOST_REFUSALS = 20

NO_FORWARDING = "forwarding of ports is refused: this is the console of a machine, not its network"
NO_AGENT = "forwarding of the ssh agent is refused: nothing here could use it"
NO_X11 = "forwarding of X11 is refused: a console has only text"
NO_SUBSYSTEM = (
    'there is no subsystem "{}": scp and sftp need a file server in the machine, and this is its '
    "console"
)


@dataclass(frozen=True)
class PseudoTerminal:
    """
    The client's terminal.

    :param name: as in ``$TERM``; may be empty.
    :param size: ``None`` if the client does not know it.
    """

    name: str
    size: TerminalSize | None


@dataclass(frozen=True)
class SessionRequest:
    """
    What the client wants.

    :param command: ``None`` for a shell.
    :param terminal: ``None`` without one.
    """

    command: str | None = None
    terminal: PseudoTerminal | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


class ChannelEnd:
    """The session behind a channel; its methods are the events of the client."""

    def received(self, data: bytes) -> None:
        """Handle input."""

    def input_ended(self) -> None:
        """The client sends no more input."""

    def resized(self, size: TerminalSize) -> None:
        """The client's window has another size."""

    def break_requested(self) -> None:
        """The user wants a BREAK."""

    def full(self) -> None:
        """The client takes no more output for now."""

    def drained(self) -> None:
        """All output is sent, and the client takes more."""

    def hung_up(self) -> None:
        """The channel is closed; called once, also after the end of the session."""


class Sessions(Protocol):
    """Begins the sessions of a connection."""

    def begin(self, channel: SessionChannel, request: SessionRequest) -> ChannelEnd:
        """Begin a session that reads and writes the channel, and calls its ``finish`` at the end."""


class SessionChannel(SSHChannel):
    """A session: requests, then input and output, then the exit code."""

    name = b"session"
    conn: Any  # a Connection of the module above

    def __init__(self, sessions: Sessions, clock: IReactorTime, **more: Any) -> None:
        super().__init__(localWindow=INPUT_BYTES, **more)
        self._sessions, self._clock = sessions, clock
        self._end = ChannelEnd()
        self._terminal: PseudoTerminal | None = None
        self._environment: dict[str, str] = {}
        self._refusals: dict[str, None] = {}  # which the user reads at the beginning
        self._has_begun = self._takes_no_input = self._withholds = self._was_full = False
        self._early: (
            list[Callable[[], None]] | None
        ) = []  # events before the session; None behind it

    def channelOpen(self, specificData: bytes) -> None:
        """The client waits for nothing more; Conch would log it."""

    # Requests.

    def requestReceived(self, requestType: bytes, data: bytes) -> bool:
        """Handle a request; return whether it is granted."""
        try:
            if self._has_begun:
                return self._request_during(requestType, data)
            return self._request_before(requestType, data)
        except (struct.error, IndexError, UnicodeDecodeError):
            return False  # it is malformed

    def _request_before(self, kind: bytes, data: bytes) -> bool:
        if kind == b"pty-req":
            name, (rows, columns, _, _), _ = parseRequest_pty_req(data)
            self._terminal = PseudoTerminal(name.decode("ascii"), _size(columns, rows))
        elif kind == b"env":
            return self._set_variable(*getNS(data, 2)[:2])
        elif kind == b"shell":
            self._begin(None)
        elif kind == b"exec":
            self._begin(getNS(data)[0].decode("utf-8", "surrogateescape"))
        elif kind == b"subsystem":
            # Granted, and over at once: ssh prints no message of a subsystem that is refused.
            self._has_begun = True
            self._clock.callLater(0, self._refuse, NO_SUBSYSTEM.format(shown(getNS(data)[0])))
        elif kind == b"auth-agent-req@openssh.com":
            self._refusals[NO_AGENT] = None
            return False
        elif kind == b"x11-req":
            self._refusals[NO_X11] = None
            return False
        else:
            return False
        return True

    def _request_during(self, kind: bytes, data: bytes) -> bool:
        if kind == b"window-change":
            rows, columns, _, _ = parseRequest_window_change(data)
            size = _size(columns, rows)
            if self._terminal is not None and size is not None:
                self._event(lambda: self._end.resized(size))
        elif kind == b"break":
            # Its length is not used: a line's BREAK has that of its driver.
            struct.unpack(">L", data)
            self._event(lambda: self._end.break_requested())
        else:
            return False
        return True

    def _set_variable(self, name: bytes, value: bytes) -> bool:
        if name.startswith(b"LC_") or len(value) > _MOST_VARIABLE_BYTES:
            return False  # many systems' ssh sends their locale, unasked
        if (word := shown(name)) not in VARIABLES:
            if len(self._refusals) < _MOST_REFUSALS:
                names = ", ".join(sorted(VARIABLES))
                self._refusals[f'the variable "{word}" is refused: there are {names}'] = None
            return False
        self._environment[word] = value.decode("utf-8")
        return True

    def _begin(self, command: str | None) -> None:
        self._has_begun = True
        request = SessionRequest(command, self._terminal, dict(self._environment))

        def begin() -> None:  # behind the answer to the request
            if not self.localClosed and not self.remoteClosed:
                for line in self._refusals:
                    self.tell(line)
                self._end = self._sessions.begin(self, request)
            early, self._early = self._early or [], None
            for each in early:
                each()

        self._clock.callLater(0, begin)

    def _refuse(self, line: str) -> None:
        self.tell(line)
        self.finish(1)

    def tell(self, line: str) -> None:
        """Print a message on the client's standard error."""
        newline = "\n" if self._terminal is None else "\r\n"
        self.writeExtended(EXTENDED_DATA_STDERR, f"{line}{newline}".encode("utf-8", "replace"))

    # Input.

    def _event(self, event: Callable[[], None]) -> None:
        """Pass an event on, or keep it: a client may send input right behind its request."""
        if self._early is None:
            event()
        elif self._has_begun:
            self._early.append(event)

    def dataReceived(self, data: bytes) -> None:
        self._event(lambda: self._end.received(data))

    def eofReceived(self) -> None:
        self._event(lambda: self._end.input_ended())

    def closeReceived(self) -> None:
        self.buf, self.extBuf = b"", []  # the client takes none of it any more
        self.loseConnection()

    def pauseProducing(self) -> None:
        """Let the client's window become empty."""
        self._takes_no_input = True

    def resumeProducing(self) -> None:
        """Let the client send more."""
        self._takes_no_input = False
        if self._withholds and not self.localClosed:
            self._withholds = False
            self.conn.adjustWindow(self, self.localWindowSize - self.localWindowLeft)

    def withholds_window(self) -> bool:
        """Return whether the client gets no more window now, but when input is taken again."""
        self._withholds = self._takes_no_input
        return self._withholds

    # Output.

    @property
    def is_full(self) -> bool:
        """True if output waits for the client: for its window, or for all of its connection."""
        return bool(self.buf or self.extBuf or self.conn.is_stopped)

    def stopWriting(self) -> None:
        self.output_changed()

    def addWindowBytes(self, data: int) -> None:
        super().addWindowBytes(data)
        self.output_changed()

    def output_changed(self) -> None:
        """Tell the end if the client takes output again, or no more."""
        if self.is_full != self._was_full:
            self._was_full = not self._was_full
            if self._was_full:
                self._end.full()
            else:
                self._end.drained()

    def finish(self, code: int) -> None:
        """End the session with an exit code; output that waits is still sent."""
        if not self.localClosed:
            self.conn.sendRequest(self, b"exit-status", struct.pack(">L", code))
            self.loseConnection()

    def closed(self) -> None:
        self._end.hung_up()


def _size(columns: int, rows: int) -> TerminalSize | None:
    if not (0 < columns <= 0xFFFF and 0 < rows <= 0xFFFF):
        return None
    return TerminalSize(columns, rows)
