"""
The streams of a proxy, and its requests to the next hop about their end and their terms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from twisted_exec.program.window_limit import WindowLimit
from twisted_exec.streaming.http.session_requests import SessionRequests, Silent
from twisted_exec.streaming.http.upgrade_client import Signs, UpgradeRefused, UpgradeRequest
from twisted_exec.streaming.interfaces import (
    IDENTITY_HEADERS,
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    RESTARTING,
    RESUMED,
    REVOKED,
    SHUTTING_DOWN,
    Ending,
)
from twisted_exec.streaming.location import Location, Renewal
from twisted_exec.streaming.paths import Paths
from twisted_exec.streaming.remotecommand.translate import Translation
from twisted_exec.streaming.remotecommand.tunnel import Tunnel
from twisted_exec.streaming.sessions.hop_messages import ending_query, terms_query
from twisted_exec.streaming.sessions.registry import Session, Sessions
from twisted_exec.streaming.sessions.stream import SessionStream
from twisted_exec.streaming.splice import DRAIN_SECONDS, Splice
from twisted_exec.wire.session_terms import Terms
from twisted_exec.wire.upgrade import HeaderSet

END_SECONDS = 0.7
"""From the decision to end a session until it is cut."""
LOG_LINES = 10
"""Log lines of one kind in a second."""
STOP_SECONDS = 1.0
"""From the decision to stop this hop until a session is cut; below the limit of a whole stop (``--drain-seconds``)."""

GONE_SECONDS = 10.0
"""
The same if the machine or its pool ends: on busy hosts the reason takes long to pass all hops.
"""

TERMS_SECONDS = 10.0
"""
From a change of a session's terms until the session ends if the next hop does not confirm them.
"""

_MORE_SECONDS = {
    SHUTTING_DOWN: STOP_SECONDS,
    RESTARTING: STOP_SECONDS,
    POWERED_OFF: GONE_SECONDS,
    MACHINE_DELETED: GONE_SECONDS,
    POOL_DELETED: GONE_SECONDS,
}


@dataclass(frozen=True)
class ProxySettings:
    """
    Settings of one proxy.

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


class ProxyState:
    """
    The state that all streams through one proxy share.

    :ivar control: requests to next hops about open streams.
    :ivar paths: connections that are watched for a lost path.
    :ivar signs: signs of life of next hops.
    """

    _log = Logger()

    def __init__(self, settings: ProxySettings, sessions: Sessions, clock: IReactorTime) -> None:
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


class ProxiedStream(SessionStream):
    """
    The stream of one session through a proxy.

    :ivar connections: to the user and to the machine; set before they are up.
    """

    connections: Splice | Translation | Tunnel
    _next_hop: NextHop | None = None  # until both connections are up

    def __init__(self, proxy: ProxyState, session: Session) -> None:
        self._proxy, self._session = proxy, session

    def carry(self, location: Location, session_id: str) -> None:
        """
        Let the session end and change the stream.

        :param location: where requests about the open session go.
        :param session_id: the id that the next hop gives the session.
        """
        self._next_hop = NextHop(self._proxy, self._session, location, session_id)
        self._session.carry(self)

    def counts(self) -> tuple[int, int]:
        return self.connections.bytes_to_machine, self.connections.bytes_to_user

    def over(self, reason: str) -> None:
        if self._next_hop is not None:
            self._next_hop.cancel()
        to_machine, to_user = self.counts()
        self._session.over(
            reason,
            bytes_to_machine=to_machine,
            bytes_to_user=to_user,
            is_lost=self._is_lost(),
        )

    def _is_lost(self) -> bool:
        return False


class TranslatedStream(ProxiedStream):
    """A proxied stream whose bytes this hop decodes: it translates or unwraps them."""

    connections: Translation | Tunnel

    def end(self, ending: Ending) -> None:
        self.connections.end(ending)

    def cut(self) -> None:
        self.connections.cut()

    def hold_to(self, terms: Terms) -> bool:
        assert self._next_hop is not None
        if not isinstance(self.connections, Translation):
            return False
        self._next_hop.hold_to(self.connections, terms)
        return True


class SplicedStream(ProxiedStream):
    """
    A proxied stream whose bytes pass this hop unread.

    :param ends_here: this hop writes the reason to the user, see
        :class:`~twisted_exec.streaming.location.Location`.
    """

    connections: Splice
    _rejoins = False  # this hop rejoins the stream

    def __init__(self, proxy: ProxyState, session: Session, ends_here: bool) -> None:
        super().__init__(proxy, session)
        self._ends_here = ends_here
        self._late: IDelayedCall | None = None

    def carry(self, location: Location, session_id: str) -> None:
        super().carry(location, session_id)
        session = self._session
        if self._rejoins or session.is_resumable or session.is_rejoined_by_hop:
            self._proxy.paths.watch(self.connections)

    def over(self, reason: str) -> None:
        if self._late is not None and self._late.active():
            self._late.cancel()
        self._proxy.paths.forget(self.connections)
        super().over(reason)

    def _is_lost(self) -> bool:
        return self._session.is_resumable and not self.connections.machine_closed

    def transports(self) -> tuple[object, object]:
        return self.connections.user.transport, self.connections.machine.transport

    def cut(self) -> None:
        self.connections.cut("cut")

    def supersede(self) -> bool:
        if not self._severs_later():
            self._sever_later(STOP_SECONDS, RESUMED)
        return True

    def end(self, ending: Ending) -> None:
        assert self._next_hop is not None
        self.connections.pause_user()
        self._next_hop.cancel()
        seconds = _MORE_SECONDS.get(ending.reason, self._proxy.settings.end_seconds)
        self._sever_later(seconds, ending.reason)
        if self._ends_here:
            self._say(ending)
            return

        def agreed(_: None) -> None:
            if self._severs_later():
                self.connections.resume_user()

        def refused(failure: Failure) -> None:
            if self._severs_later():
                self._proxy.log_cut(self._session, failure)
                if self._cuts_for(failure, ending):
                    self._sever_later(0, ending.reason)

        self._next_hop.end(ending, seconds).addCallbacks(agreed, refused)

    def _cuts_for(self, failure: Failure, ending: Ending) -> bool:
        if ending.reason == RESTARTING:
            # A next hop that cannot be asked may stop at the same time, and its own Close is on the way.
            return failure.check(UpgradeRefused) is not None
        return self._proxy.settings.cuts_when_refused or failure.check(Silent) is not None

    def _severs_later(self) -> bool:
        return self._late is not None and self._late.active()

    def _sever_later(self, seconds: float, reason: str) -> None:
        if self._late is not None and self._late.active():
            self._late.cancel()
        self._late = self._proxy.clock.callLater(seconds, self._sever, reason)

    def _say(self, ending: Ending) -> None:
        if ending.reason == RESTARTING:  # a status would end the session
            self.connections.sever(ending.reason)
        else:
            self.connections.say(ending)

    def _sever(self, reason: str) -> None:
        ending = self._session.ending
        if ending is not None and ending.reason != RESTARTING:
            self.connections.sever_with(ending)
        else:
            self.connections.sever(reason)

    def hold_to(self, terms: Terms) -> bool:
        assert self._next_hop is not None
        self._next_hop.hold_to(self.connections, terms)
        return True


def describe_terms(terms: Terms) -> str:
    """Return the terms for a message."""
    return terms.text().replace("&", ", ") or "no limits"


class NextHop:
    """The next hop of one open session."""

    __slots__ = (
        "_change",
        "_end",
        "_location",
        "_proxy",
        "_session",
        "_session_id",
    )

    def __init__(
        self, proxy: ProxyState, session: Session, location: Location, session_id: str
    ) -> None:
        self._proxy, self._session = proxy, session
        self._location, self._session_id = location, session_id
        self._change: Deferred[None] | None = None
        self._end: Deferred[None] | None = None

    def end(self, ending: Ending, seconds: float) -> Deferred[None]:
        """
        Ask the next hop to end the session.

        :param seconds: longest wait for the answer.
        :return: fails if the next hop refuses or does not answer, with
            :class:`~twisted_exec.streaming.http.session_requests.Silent` if it is not worth the wait.
        """
        query = ending_query(self._session_id, ending)
        awaits_silence = ending.reason in (POWERED_OFF, SHUTTING_DOWN, RESTARTING)
        self._end = Deferred.fromCoroutine(self._send(b"DELETE", query, seconds, awaits_silence))
        return self._end

    def hold_to(self, connections: Splice | Translation, terms: Terms) -> None:
        """
        Pass nothing from the user on until the next hop has confirmed the terms.

        If it does not, the session ends.
        """
        connections.pause_user()
        if self._change is None:  # otherwise behind the answer: requests may overtake each other
            self._send_terms(connections, terms)

    def _send_terms(self, connections: Splice | Translation, terms: Terms) -> None:
        query = terms_query(self._session_id, terms)
        # Not the limits of an ending: nothing of the user passes meanwhile, and the program of a
        # busy host may get no CPU time for a second.
        request = Deferred.fromCoroutine(self._send(b"PATCH", query, TERMS_SECONDS))
        change = self._change = request.addTimeout(TERMS_SECONDS, self._proxy.clock)

        def confirmed(_: object) -> None:
            self._change = None
            if self._session.ending is not None:
                return
            if self._session.terms != terms:  # changed again
                self._send_terms(connections, self._session.terms)
            else:
                connections.resume_user()

        def refused(failure: Failure) -> None:
            if self._change is not change:  # cancelled
                return
            self._change = None
            if self._session.ending is None:
                self._not_confirmed(terms, failure)

        change.addCallbacks(confirmed, refused)

    def _not_confirmed(self, terms: Terms, failure: Failure) -> None:
        self._proxy.log_cut(self._session, failure)
        message = (
            f"your rights at this console changed ({describe_terms(terms)}), and the next hop did"
            " not confirm the change in time: open the console again"
        )
        self._session.end(Ending(REVOKED, message))

    def cancel(self) -> None:
        change, self._change = self._change, None
        for request in (change, self._end):
            if request is not None:
                request.cancel()

    async def _send(
        self, method: bytes, query: bytes, seconds: float, awaits_silence: bool = True
    ) -> None:
        before = self._location
        location = self._location = await before.upstream.renew(before, Renewal.CONTROL)
        head = UpgradeRequest(method, location.path_with(query), location.host, location.headers)
        await self._proxy.control.send(
            location.endpoints, head, seconds, awaits_silence=awaits_silence
        )
