"""
Negotiation with the next hop: in which form it opens a stream, and how both connections are joined.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectionDone

from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    BadRequest,
    Conflict,
    NotImplementedByBackend,
)
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import outcome
from twisted_exec.streaming.http.upgrade_client import (
    Upgraded,
    UpgradeRefused,
    UpgradeRequest,
    ask_first,
)
from twisted_exec.streaming.http.upgrade_server import header_pairs, requested_protocol, take_over
from twisted_exec.streaming.interfaces import REVOKED, Ending
from twisted_exec.streaming.location import Location, Renewal
from twisted_exec.streaming.proxied import (
    NextHop,
    ProxyState,
    SplicedStream,
    TranslatedStream,
    describe_terms,
)
from twisted_exec.streaming.rejoin.stream import OFFERED, RejoinableStream
from twisted_exec.streaming.remotecommand.carriers import (
    STREAM_PROTOCOL,
    Attempt,
    OtherProtocol,
    choose_protocol,
    is_protocol_refusal,
)
from twisted_exec.streaming.remotecommand.translate import Translation, translate
from twisted_exec.streaming.remotecommand.tunnel import Tunnel, tunnelled, untunnel
from twisted_exec.streaming.sessions.hop_messages import confirmed_terms, session_id
from twisted_exec.streaming.sessions.registry import Session
from twisted_exec.streaming.sessions.resume_headers import (
    CANNOT_RESUME,
    REJOIN,
    RESUME,
    RequestedResumption,
    accepted_offer,
    confirmed_resumption,
)
from twisted_exec.streaming.splice import Splice
from twisted_exec.streaming.tcp_info import shortest_round_trip_seconds
from twisted_exec.wire.frame_boundaries import frame_boundaries
from twisted_exec.wire.rejoin import Rejoinable
from twisted_exec.wire.resume import Resumable
from twisted_exec.wire.session_terms import TERMS_HEADER, Terms
from twisted_exec.wire.upgrade import (
    WEBSOCKET,
    forwarded_request_headers,
    forwarded_response_headers,
    is_answer,
    last_value,
    replaced_headers,
    switching_protocols,
)

_OTHER_RELEASE = "it is of an older release or of another make"
_COMMANDS = ("exec", "attach")
"""Subresources with remote commands; other streams forward ports."""


@dataclass(frozen=True)
class BackendRequest:
    """
    A request to the next hop for the stream, in one form.

    :ivar location: where the request goes.
    :ivar terms: that the next hop must confirm.
    """

    location: Location
    head: UpgradeRequest
    terms: Terms


class Negotiation:
    """
    The negotiation with the next hop about the stream of one session, which joins both connections.

    The next hop is asked in the form in which the user has asked, and in others if it refuses that.

    :param resumption: what the next hop learns about resuming the session.
    """

    _last_request: BackendRequest  # in the form of the user, or in a later one

    def __init__(
        self,
        proxy: ProxyState,
        context: RequestContext,
        location: Location,
        session: Session,
        resumption: RequestedResumption | None,
    ) -> None:
        self._proxy, self._context, self._request = proxy, context, context.request
        self._location, self._session, self._resumption = location, session, resumption
        self._continues = context.continues_session

    async def run(self, upgrade: bytes) -> None:
        """Splice if possible; translate for another protocol, and to record."""
        if self._location.recorder is not None:
            if not await self._translate():
                raise BadRequest("the session is recorded, and its protocol is not known here")
            return
        first = self._first_request(upgrade)
        try:
            upgraded = await self._reach(first)
        except UpgradeRefused as refused:
            if self._session.resumes or not (
                is_protocol_refusal(refused) and await self._ask_otherwise()
            ):
                raise self._refusal(refused) from None
            return
        if is_answer(upgraded.headers, first.head.headers):
            resumption = self._confirmed_resumption(upgraded)
            try:
                await self._confirm()
            except BaseException as problem:
                self._give_up(upgraded, problem)
                raise
            self._join(upgraded, upgrade, resumption)
            return
        upgraded.abort()
        if self._session.resumes or not await self._ask_otherwise():
            error = BadGateway("the next hop answered with a protocol that was not offered")
            raise self._location.upstream.blame(error)

    async def _confirm(self) -> None:
        await self._location.upstream.confirm(self._session.ending)

    async def _reach(self, request: BackendRequest) -> Upgraded:
        proxy, settings, location = self._proxy, self._proxy.settings, request.location
        self._last_request = request
        upgraded: Upgraded
        try:
            label, upgraded = await ask_first(
                location.endpoints,
                request.head,
                clock=proxy.clock,
                connect_seconds=self._limit(settings.connect_seconds),
                answer_seconds=self._limit(settings.answer_seconds),
                signs=proxy.signs,
                spares=True,
            )
            _check_terms(request.terms, label, upgraded)
        except APIError as error:
            raise location.upstream.blame(error) from None
        return upgraded

    def _refusal(self, refused: UpgradeRefused) -> APIError:
        return self._last_request.location.upstream.error_of(refused)

    def _limit(self, seconds: float) -> float:
        longer = self._proxy.settings.continue_seconds
        return seconds if longer is None or not self._continues else longer

    def _first_request(self, upgrade: bytes) -> BackendRequest:
        """Return the request in the form in which the user has sent it."""
        request, location, terms = self._request, self._location, self._session.terms
        ours = [(b"Connection", b"Upgrade"), (b"Upgrade", upgrade)]
        ours += _session_headers(location, self._session, terms)
        if self._resumption is not None:
            ours.append((RESUME, self._resumption.value))
        elif location.resumes:
            # A previous hop rejoins the stream; without it this hop is the first.
            rejoin = self._context.rejoin
            ours.append((REJOIN, rejoin) if rejoin else OFFERED)
        # RFC 9110, section 8.6: a POST has a length even without a body.
        if request.method == b"POST":
            ours.append((b"Content-Length", b"0"))
        theirs = forwarded_request_headers(
            header_pairs(request.requestHeaders), self._proxy.settings.credential_headers()
        )
        target, headers = self._target(location), replaced_headers(theirs, ours)
        return BackendRequest(
            location, UpgradeRequest(request.method, target, location.host, headers), terms
        )

    def _target(self, location: Location) -> bytes:
        if location.whole:
            return location.path
        return location.path_with(self._context.options.query())

    async def _ask_otherwise(self) -> bool:
        return await self._untunnel() or await self._translate()

    async def _translate(self) -> bool:
        proxy = self._proxy
        stream = TranslatedStream(proxy, self._session)
        stream.connections = translation = Translation(
            proxy.clock,
            stream.over,
            session=self._session.id,
            terms=lambda: self._last_request.terms,
            recorder=self._location.recorder,
        )
        self._session.when_called_off(lambda _: translation.pause_user())
        try:
            possible = await translate(
                self._request,
                self._context.options,
                self._reach_again,
                translation,
                open_seconds=proxy.settings.answer_seconds,
                streams=self._location.streams,
                confirm=self._confirm,
            )
        except UpgradeRefused as refused:
            raise self._refusal(refused) from None
        except ConnectionDone:
            raise CancelledError from None
        if possible:
            self._speaks(requested_protocol(self._request), choose_protocol(self._request))
            self._read_here(stream)
        return possible

    async def _untunnel(self) -> bool:
        if not tunnelled(self._request):
            return False
        stream = TranslatedStream(self._proxy, self._session)
        stream.connections = tunnel = Tunnel(
            self._proxy.clock, stream.over, session=self._session.id
        )
        self._session.when_called_off(lambda _: tunnel.pause_user())
        try:
            protocol = await untunnel(self._request, self._reach_again, tunnel, self._confirm)
        except UpgradeRefused as refused:
            raise self._refusal(refused) from None
        except OtherProtocol as problem:
            raise BadGateway(str(problem)) from None
        except ConnectionDone:
            raise CancelledError from None
        self._speaks(WEBSOCKET, protocol)
        self._read_here(stream)
        return True

    def _read_here(self, stream: TranslatedStream) -> None:
        del self._request, self._context
        if self._location.recorder is None:
            self._proxy.log_translation(self._session)
        stream.carry(self._last_request.location, self._session.id)

    async def _reach_again(self, attempt: Attempt) -> Upgraded:
        location = await self._location.upstream.renew(self._location, Renewal.FORM)
        terms = self._session.terms
        headers = _session_headers(location, self._session, terms)
        head = UpgradeRequest(b"GET", self._target(location), location.host, headers)
        return await self._reach(BackendRequest(location, attempt.head(head), terms))

    def _give_up(self, upgraded: Upgraded, problem: BaseException) -> None:
        _, why = outcome(problem)
        location = self._last_request.location
        id_there = session_id(upgraded.headers) or self._session.id
        next_hop = NextHop(self._proxy, self._session, location, id_there)
        ending = next_hop.end(Ending(REVOKED, why), self._proxy.settings.end_seconds)
        ending.addBoth(lambda _: upgraded.abort())

    def _join(self, upgraded: Upgraded, upgrade: bytes, resumption: Resumable | None) -> None:
        session, rejoin = self._session, last_value(upgraded.headers, REJOIN)
        protocol = chosen_protocol(upgraded.headers)
        accepted = accepted_offer(rejoin)
        stream = self._spliced(accepted, upgrade, protocol, resumes=resumption is not None)
        splice = stream.connections
        if session.ending is not None:
            splice.pause_user()  # before its early bytes pass
        if resumption is not None:
            session.resumable_seconds = resumption.seconds
            splice.watch_close()
        # Runtimes that keep sessions in one of these ways also let them wait for their machine.
        session.waits_for_machine = resumption is not None or bool(rejoin)
        session.is_rejoined_by_hop = bool(rejoin and self._context.rejoin)
        response = self._response(upgraded, upgrade, resumption)
        try:
            take_over(self._request, splice.user, response)
        except ConnectionDone:
            upgraded.abort()
            raise CancelledError from None
        del self._request, self._context  # an idle session owns nothing but its transports
        upgraded.hand_over(splice.machine)
        self._speaks(upgrade, protocol)
        # An API server of its own may keep the session under an id of its own.
        stream.carry(self._location, session_id(upgraded.headers) or session.id)

    def _response(self, upgraded: Upgraded, upgrade: bytes, resumption: Resumable | None) -> bytes:
        """Return the user's 101, with the answer of the next hop."""
        headers = [
            *forwarded_response_headers(upgraded.headers),
            (b"Audit-Id", self._session.id.encode("ascii")),
            *self._location.answer_headers,
        ]
        if text := confirmed_terms(upgraded.headers).text():
            headers.append((TERMS_HEADER.encode("ascii"), text.encode("ascii")))
        if resumption is not None:
            headers.append((RESUME, resumption.text().encode("ascii")))
        if self._session.is_rejoined_by_hop:
            headers.append((REJOIN, last_value(upgraded.headers, REJOIN)))
        response = switching_protocols(upgrade, headers)
        if resumption is not None and self._request.page is not None:
            response += self._request.page.greeting(self._session.id, resumption)
        return response

    def _spliced(
        self, accepted: Rejoinable | None, upgrade: bytes, protocol: str, *, resumes: bool
    ) -> SplicedStream:
        proxy, location = self._proxy, self._location
        commands = self._session.subject.subresource in _COMMANDS
        boundaries = partial(frame_boundaries, upgrade, protocol, commands=commands)
        if accepted is not None and not self._context.rejoin:
            query = self._context.options.query()
            rejoinable = RejoinableStream(
                proxy,
                self._session,
                location,
                self._last_request.head,
                query,
                accepted,
            )
            rejoinable.splice(boundaries())
            return rejoinable
        stream = SplicedStream(proxy, self._session, location.ends_here)
        stream.connections = Splice(
            proxy.clock,
            stream.over,
            drain_seconds=proxy.settings.drain_seconds,
            leave_seconds=proxy.settings.leave_seconds,
        )
        # Only this hop can give the client a reason if a hop behind it is lost.  A client that resumes
        # learns it from the next request, and a previous hop that rejoins streams writes it.
        reports = commands and not resumes and not self._context.rejoin
        if reports or location.ends_here:
            stream.connections.follow(boundaries())
        return stream

    def _confirmed_resumption(self, upgraded: Upgraded) -> Resumable | None:
        if self._resumption is None:
            return None
        try:
            resumable = confirmed_resumption(upgraded.headers)
            if resumable is None and self._session.resumes:
                raise Conflict(CANNOT_RESUME)
        except APIError:
            upgraded.abort()
            raise
        if resumable is None:
            return None
        return resumable.passed_on(
            self._proxy.settings.name,
            shortest_round_trip_seconds(upgraded.transport),
            self._session.subject.uid,
        )

    def _speaks(self, upgrade: bytes, protocol: str) -> None:
        if self._proxy.sessions.watcher is not None:
            self._session.protocol = f"{upgrade.decode('ascii')} {protocol}".rstrip()


def _session_headers(
    location: Location, session: Session, terms: Terms
) -> list[tuple[bytes, bytes]]:
    headers = [*location.headers, (b"Audit-Id", session.id.encode("ascii"))]
    if text := terms.text():
        headers.append((TERMS_HEADER.encode("ascii"), text.encode("ascii")))
    return headers


def _check_terms(terms: Terms, label: str, upgraded: Upgraded) -> None:
    confirmed = confirmed_terms(upgraded.headers)
    if confirmed.satisfy(terms):
        return
    upgraded.abort()
    if terms.recording and confirmed.satisfy(replace(terms, recording="")):
        unrecorded = NotImplementedByBackend(f"{label} makes no recordings: {_OTHER_RELEASE}")
        raise because(Obstacle.CANNOT_BE_RECORDED, unrecorded)
    raise NotImplementedByBackend(
        f"{label} cannot hold a session to its terms ({describe_terms(terms)}): {_OTHER_RELEASE}"
    )


def chosen_protocol(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the protocol in the headers of a 101, or empty."""
    values = {name.lower(): value for name, value in headers}
    name = values.get(b"sec-websocket-protocol") or values.get(STREAM_PROTOCOL.lower(), b"")
    return name[:64].decode("ascii", "replace")
