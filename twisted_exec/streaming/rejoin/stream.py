"""
A stream of a proxy, which rejoins the stream when a hop behind the proxy is lost
(:mod:`twisted_exec.wire.rejoin`).
"""

from __future__ import annotations

from dataclasses import replace

from twisted_exec.api.status import APIError, NotImplementedByBackend
from twisted_exec.streaming.http.upgrade_client import Upgraded, UpgradeRequest, ask_first
from twisted_exec.streaming.interfaces import (
    MACHINE_DELETED,
    POOL_DELETED,
    REVOKED,
    USER_LEFT,
    Ending,
)
from twisted_exec.streaming.location import Location, Renewal
from twisted_exec.streaming.proxied import NextHop, ProxyState, SplicedStream, describe_terms
from twisted_exec.streaming.rejoin.search import Rejoiner
from twisted_exec.streaming.rejoin.splice import RejoinableSplice
from twisted_exec.streaming.sessions.hop_messages import confirmed_terms, session_id
from twisted_exec.streaming.sessions.registry import Session
from twisted_exec.streaming.sessions.resume_headers import REJOIN
from twisted_exec.wire.frame_boundaries import FrameBoundaries
from twisted_exec.wire.rejoin import OFFER, REJOIN_HEADER, Rejoinable
from twisted_exec.wire.session_terms import TERMS_HEADER, Terms
from twisted_exec.wire.upgrade import HeaderSet

OFFERED = (REJOIN, OFFER.encode("ascii"))
"""The header with which this hop offers to rejoin a stream."""

_IMMEDIATE_REASONS = (REVOKED, MACHINE_DELETED, POOL_DELETED)
"""
Reasons that the user gets from this hop, without waiting for the machine's end: no further output
may pass, or none will come.
"""
_REPLACED_HEADERS = HeaderSet.of(REJOIN_HEADER, TERMS_HEADER)
"""Headers of the first request that each attempt sets anew."""


class RejoinableStream(SplicedStream):
    """A spliced stream that this hop rejoins when its connection to the next hop is lost."""

    connections: RejoinableSplice
    _rejoins = True

    def __init__(
        self,
        proxy: ProxyState,
        session: Session,
        location: Location,
        head: UpgradeRequest,
        query: bytes,
        answer: Rejoinable,
    ) -> None:
        super().__init__(proxy, session, ends_here=False)
        self._location, self._head, self._query = location, head, query
        self._sent_terms = session.terms
        self._answer = answer
        self._rejoiner: Rejoiner | None = None  # while there is no connection

    def splice(self, boundaries: FrameBoundaries) -> None:
        settings = self._proxy.settings
        self.connections = RejoinableSplice(
            self._proxy.clock,
            self.over,
            self._lost,
            self._left,
            boundaries,
            drain_seconds=settings.drain_seconds,
            leave_seconds=settings.leave_seconds,
        )

    def over(self, reason: str) -> None:
        rejoiner, self._rejoiner = self._rejoiner, None
        if rejoiner is not None:
            rejoiner.cancel()
        super().over(reason)

    def _lost(self) -> None:
        if self._next_hop is not None:  # it may be lost before the session has its stream
            self._next_hop.cancel()
        if self._session.ending is not None:
            self.connections.give_up(self._session.ending)
            return
        self._proxy.log_loss(self._session)
        self._rejoiner = Rejoiner(self._proxy.clock, self._answer, self._reach, self._rejoined)
        self._rejoiner.start(self.connections)

    async def _reach(self, text: str, patience: int) -> Upgraded:
        subject, turns = self._session.subject, self._proxy.sessions.rejoinings
        await turns.begin(subject.pool, subject.user, self._proxy.clock, self._answer.seconds)
        try:
            return await self._ask(text, patience)
        finally:
            turns.end(subject.pool, subject.user)

    async def _ask(self, text: str, patience: int) -> Upgraded:
        before = self._location
        renewed = await before.upstream.renew(before, Renewal.REJOIN)
        # It was made for this request; the upstream of the first location serves for all of them.
        location = self._location = replace(renewed, upstream=before.upstream)
        settings, terms = self._proxy.settings, self._session.terms
        headers = [pair for pair in self._head.headers if pair[0] not in _REPLACED_HEADERS]
        headers.append((REJOIN, text.encode("ascii")))
        if terms.text():
            headers.append((TERMS_HEADER.encode("ascii"), terms.text().encode("ascii")))
        path = location.path if location.whole else location.path_with(self._query)
        head = replace(self._head, path=path, host=location.host, headers=headers)
        upgraded: Upgraded
        try:
            label, upgraded = await ask_first(
                location.endpoints,
                head,
                clock=self._proxy.clock,
                connect_seconds=patience * settings.connect_seconds,
                answer_seconds=patience * settings.answer_seconds,
            )
        except APIError as error:
            raise location.upstream.blame(error) from None
        if not confirmed_terms(upgraded.headers).satisfy(terms):
            upgraded.abort()
            raise NotImplementedByBackend(
                f"{label} does not hold the session to its terms ({describe_terms(terms)})"
            )
        self._sent_terms = terms
        id_there = session_id(upgraded.headers) or self._session.id
        self._next_hop = NextHop(self._proxy, self._session, location, id_there)
        return upgraded

    def _rejoined(self) -> None:
        self._rejoiner = None
        if self._session.terms != self._sent_terms:  # changed while the request was on its way
            self.hold_to(self._session.terms)
        else:
            self.connections.resume_user()  # a change of the terms may have waited for an answer

    def hold_to(self, terms: Terms) -> bool:
        # While there is no connection, the request that rejoins the stream has the terms.
        return not self.connections.has_machine or super().hold_to(terms)

    def _left(self) -> None:
        assert self._next_hop is not None
        self._next_hop.cancel()
        ending = Ending(USER_LEFT, "the client's connection was lost")
        telling = self._next_hop.end(ending, self._proxy.settings.end_seconds)
        telling.addErrback(lambda _: None)  # then the machine's end waits in vain for a while
        telling.addCallback(lambda _: self.connections.left())

    def end(self, ending: Ending) -> None:
        if not self.connections.has_machine:
            self.connections.give_up(ending)
            return
        super().end(ending)
        if ending.reason in _IMMEDIATE_REASONS:
            self.connections.tell_user(ending)
