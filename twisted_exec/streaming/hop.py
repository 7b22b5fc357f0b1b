"""One hop, as all streams that pass it share it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from twisted_exec.program.window_limit import WindowLimit
from twisted_exec.streaming.http.session_requests import SessionRequests
from twisted_exec.streaming.http.upgrade_client import Signs
from twisted_exec.streaming.interfaces import IDENTITY_HEADERS
from twisted_exec.streaming.paths import Paths
from twisted_exec.streaming.sessions.registry import Session, Sessions
from twisted_exec.streaming.splice import DRAIN_SECONDS
from twisted_exec.wire.upgrade import HeaderSet

END_SECONDS = 0.7
"""From the decision to end a session until it is cut."""
LOG_LINES = 10
"""Log lines of one kind in a second."""


@dataclass(frozen=True)
class HopSettings:
    """
    Settings of one hop.

    :param name: of the hop, for log lines and round-trip times.
    :param connect_seconds: for each address, TLS included.  This limit and ``answer_seconds`` count
        from the last sign of life of the next hop, so slow hops are spared.
    :param answer_seconds: from the request to the next hop until its answer.
    :param wait_seconds: longest wait for a turn while many streams are being opened; the previous
        hop must wait longer for this hop's answer.
    :param continue_seconds: takes the place of ``connect_seconds`` and ``answer_seconds`` for a
        request that continues an open session; ``None`` if these have the same limits.
    :param end_seconds: from the decision to end a session until it is cut.
    :param drain_seconds: from the end of one connection until the other is reset, which still
        receives what was sent to it.
    :param leave_seconds: from the end of the user's connection until the machine's is cut; ``None``:
        no limit.
    :param cuts_when_refused: cut a session as soon as the next hop refuses to end it.
    :param credential_headers: returns the headers of the user's request that no next hop gets.
    """

    name: str
    connect_seconds: float = 5
    answer_seconds: float = 10
    wait_seconds: float = 3
    continue_seconds: float | None = None
    end_seconds: float = END_SECONDS
    drain_seconds: float = DRAIN_SECONDS
    leave_seconds: float | None = None
    cuts_when_refused: bool = True
    credential_headers: Callable[[], HeaderSet] = lambda: IDENTITY_HEADERS


class Hop:
    """
    One hop.

    :ivar control: requests to next hops about open streams.
    :ivar paths: connections that are watched for a lost path.
    :ivar signs: signs of life of next hops.
    """

    _log = Logger()

    def __init__(self, settings: HopSettings, sessions: Sessions, clock: IReactorTime) -> None:
        self.settings, self.sessions, self.clock = settings, sessions, clock
        self.control = SessionRequests(clock, settings.connect_seconds)
        self.paths, self.signs = Paths(clock), Signs(clock)
        sessions.when_drained.append(self.control.close)
        self._lines: WindowLimit[str] = WindowLimit(clock.seconds, window_seconds=1.0)

    def log_translation(self, session: Session) -> None:
        self._log.debug(
            "{hop} translates session {session}: the next hop does not speak its protocol",
            hop=self.settings.name,
            session=session.id,
        )

    def log_loss(self, session: Session) -> None:
        self._tell("rejoins session {session}: its connection to the next hop is lost", session)

    def log_cut(self, session: Session, failure: Failure) -> None:
        why = failure.getErrorMessage()
        text = "cuts session {session}, the next hop does not end or change it: {why}"
        self._tell(text, session, why=why)

    def _tell(self, text: str, session: Session, **values: str) -> None:
        level = LogLevel.info if self._lines.allow(text, LOG_LINES) else LogLevel.debug
        self._log.emit(
            level,
            "{hop} " + text,
            hop=self.settings.name,
            session=session.id,
            **values,
        )
