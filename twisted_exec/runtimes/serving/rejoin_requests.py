"""
Requests with which the previous hop rejoins an open stream; see :mod:`twisted_exec.wire.rejoin`.
"""

from __future__ import annotations

from twisted_exec.api.status import NotFound
from twisted_exec.iri.request_cache import TokenReservation
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_server import header_pairs, requested_protocol, take_over
from twisted_exec.streaming.rejoinable_transport import RejoinableTransports, StreamOwner
from twisted_exec.streaming.remotecommand.carriers import STREAM_PROTOCOL, choose_protocol
from twisted_exec.streaming.sessions.registry import Session, Sessions
from twisted_exec.streaming.sessions.resume_headers import REJOIN
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.rejoin import Rejoin, received_text
from twisted_exec.wire.session_terms import TERMS_HEADER, Terms
from twisted_exec.wire.upgrade import SPDY, accept_key, switching_protocols, values


class Rejoining:
    """Gives open streams other connections."""

    def __init__(self, streams: RejoinableTransports, sessions: Sessions) -> None:
        self._streams, self._sessions = streams, sessions

    def run(
        self,
        request: Request,
        subject: Subject,
        rejoin: Rejoin,
        reservation: TokenReservation,
        terms: Terms,
    ) -> None:
        """
        Answer a request that rejoins a stream.

        :param subject: the facts of the token; they must be those of the session.
        :param terms: what the hop before holds the session to now.
        :raises NotFound: there is no such stream.
        :raises Conflict: the lost bytes are no longer kept.
        :raises ConnectionDone: the hop has left.
        """
        owner = StreamOwner(subject.session, subject.user, subject.uid)
        stream = self._streams.find(owner, rejoin)
        live = self._live(subject)
        live.limit_to(terms)
        response = _response_head(request, subject.session, stream.received, live.terms)
        take_over(request, stream.rejoin(rejoin.received), response)
        reservation.commit(live)
        live.on_over.append(reservation.ended)

    def _live(self, subject: Subject) -> Session:
        for session in self._sessions.with_id(subject.session):
            if session.subject.user == subject.user:
                return session
        raise NotFound("exec", "", message="there is no stream to rejoin: its session is over")


def _response_head(request: Request, session: str, received: int, terms: Terms) -> bytes:
    upgrade, protocol = requested_protocol(request), choose_protocol(request).encode("ascii")
    headers = [
        (b"Audit-Id", session.encode("ascii")),
        (REJOIN, received_text(received).encode("ascii")),
    ]
    if upgrade == SPDY:
        headers.append((STREAM_PROTOCOL, protocol))
    else:
        (key,) = values(header_pairs(request.requestHeaders), b"sec-websocket-key")
        headers.append((b"Sec-WebSocket-Accept", accept_key(key)))
        if protocol:
            headers.append((b"Sec-WebSocket-Protocol", protocol))
    if text := terms.text():
        headers.append((TERMS_HEADER.encode("ascii"), text.encode("ascii")))
    return switching_protocols(upgrade, headers)
