"""
The streams of a proxy, and its requests to the next hop about their end and their terms.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from twisted_exec.streaming.hop import Hop
from twisted_exec.streaming.http.session_requests import Silent
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest
from twisted_exec.streaming.interfaces import (
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
from twisted_exec.streaming.remotecommand.translate import Translation
from twisted_exec.streaming.remotecommand.tunnel import Tunnel
from twisted_exec.streaming.sessions.hop_messages import ending_query
from twisted_exec.streaming.sessions.hop_terms import terms_query
from twisted_exec.streaming.sessions.registry import Session
from twisted_exec.streaming.sessions.stream import SessionStream
from twisted_exec.streaming.splice import Splice
from twisted_exec.wire.session_terms import Terms

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


class ProxiedStream(SessionStream):
    """
    The stream of one session through a proxy.

    :ivar connections: to the user and to the machine; set before they are up.
    """

    connections: Splice | Translation | Tunnel
    _next_hop: NextHop | None = None  # until both connections are up

    def __init__(self, hop: Hop, session: Session) -> None:
        self._hop, self._session = hop, session

    def carry(self, location: Location, session_id: str) -> None:
        """
        Let the session end and change the stream.

        :param location: where requests about the open session go.
        :param session_id: the id that the next hop gives the session.
        """
        self._next_hop = NextHop(self._hop, self._session, location, session_id)
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

    def __init__(self, hop: Hop, session: Session, ends_here: bool) -> None:
        super().__init__(hop, session)
        self._ends_here = ends_here
        self._late: IDelayedCall | None = None

    def carry(self, location: Location, session_id: str) -> None:
        super().carry(location, session_id)
        session = self._session
        if self._rejoins or session.is_resumable or session.is_rejoined_by_hop:
            self._hop.paths.watch(self.connections)

    def over(self, reason: str) -> None:
        if self._late is not None and self._late.active():
            self._late.cancel()
        self._hop.paths.forget(self.connections)
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
        seconds = _MORE_SECONDS.get(ending.reason, self._hop.settings.end_seconds)
        self._sever_later(seconds, ending.reason)
        if self._ends_here:
            self._say(ending)
            return

        def agreed(_: None) -> None:
            if self._severs_later():
                self.connections.resume_user()

        def refused(failure: Failure) -> None:
            if self._severs_later():
                self._hop.log_cut(self._session, failure)
                if self._cuts_for(failure, ending):
                    self._sever_later(0, ending.reason)

        self._next_hop.end(ending, seconds).addCallbacks(agreed, refused)

    def _cuts_for(self, failure: Failure, ending: Ending) -> bool:
        if ending.reason == RESTARTING:
            # A next hop that cannot be asked may stop at the same time, and its own Close is on the way.
            return failure.check(UpgradeRefused) is not None
        return self._hop.settings.cuts_when_refused or failure.check(Silent) is not None

    def _severs_later(self) -> bool:
        return self._late is not None and self._late.active()

    def _sever_later(self, seconds: float, reason: str) -> None:
        if self._late is not None and self._late.active():
            self._late.cancel()
        self._late = self._hop.clock.callLater(seconds, self._sever, reason)

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
        "_hop",
        "_location",
        "_session",
        "_session_id",
    )

    def __init__(self, hop: Hop, session: Session, location: Location, session_id: str) -> None:
        self._hop, self._session = hop, session
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
        change = self._change = request.addTimeout(TERMS_SECONDS, self._hop.clock)

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
        self._hop.log_cut(self._session, failure)
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
        location = self._location = await self._location.renewed(Renewal.CONTROL)
        head = UpgradeRequest(method, location.path_with(query), location.host, location.headers)
        await self._hop.control.send(
            location.endpoints, head, seconds, awaits_silence=awaits_silence
        )
