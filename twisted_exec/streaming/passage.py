"""
The passage of one request through a proxy: locate, connect, ask, and join both connections.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectionDone
from twisted.web.iweb import IRequest

from twisted_exec.api.status import (
    APIError,
    BadGateway,
    BadRequest,
    Conflict,
    Forbidden,
    NotImplementedByBackend,
    Unauthorized,
    one_line,
)
from twisted_exec.streaming.carried import BridgedStream, NextHop, SplicedStream, describe_terms
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.flow import shortest_round_trip_seconds
from twisted_exec.streaming.http.responses import outcome
from twisted_exec.streaming.http.upgrade_client import (
    Upgraded,
    UpgradeRefused,
    UpgradeRequest,
    ask_first,
)
from twisted_exec.streaming.http.upgrade_server import header_pairs, is_upgrade, take_over
from twisted_exec.streaming.interfaces import REVOKED, Ending, Location
from twisted_exec.streaming.rejoinable import OFFERED, RejoinableStream
from twisted_exec.streaming.remotecommand.carriers import (
    STREAM_PROTOCOL,
    Attempt,
    OtherProtocol,
    choose_protocol,
    of_the_protocol,
    upgrade_required,
)
from twisted_exec.streaming.remotecommand.translate import Translation, translate
from twisted_exec.streaming.remotecommand.tunnel import Tunnel, tunnelled, untunnel
from twisted_exec.streaming.sessions.hop_messages import (
    CANNOT_RESUME,
    REJOIN,
    RESUME,
    RequestedResumption,
    accepted_offer,
    confirmed_resumption,
    confirmed_terms,
    session_id,
)
from twisted_exec.streaming.sessions.registry import ClientInfo, Session
from twisted_exec.streaming.splice import Splice
from twisted_exec.wire.frame_boundaries import frame_boundaries
from twisted_exec.wire.resume import Rejoinable, Resumable
from twisted_exec.wire.session_terms import FULL, TERMS_HEADER, unknown_term
from twisted_exec.wire.upgrade import (
    FORWARDED_UPGRADES,
    WEBSOCKET,
    HeaderSet,
    forwarded_request_headers,
    forwarded_response_headers,
    is_answer,
    last_value,
    switching_protocols,
)

if TYPE_CHECKING:
    from twisted_exec.streaming.proxy import Proxy

_OTHER_RELEASE = "it is of an older release or of another make"


def require_upgrade(request: IRequest) -> bytes:
    """
    Return the protocol of an upgrade request: ``websocket`` or ``SPDY/3.1``.

    :raises BadRequest: the request asks for no such upgrade, or has a body.
    """
    upgrade = is_upgrade(request)
    if not upgrade:
        raise upgrade_required()
    if upgrade not in FORWARDED_UPGRADES:
        name = upgrade[:64].decode("ascii", "replace")
        raise BadRequest(f"cannot upgrade to {name!r}: only websocket and SPDY/3.1 pass here")
    if request.content.read(1):
        raise BadRequest("an upgrade request has no body")
    return upgrade


class Passage:
    """One request's passage through a proxy."""

    _session: Session
    _location: Location
    _sent: UpgradeRequest
    _continues: bool  # the session is open already
    _resumption: RequestedResumption | None  # what the next hop learns about resuming

    def __init__(self, proxy: Proxy, context: RequestContext) -> None:
        self._proxy, self._context, self._request = proxy, context, context.request
        self._sent_terms = FULL

    async def run(self) -> None:
        context = self._context
        try:
            await self._run()
        except BaseException as problem:
            context.unopened(problem)
            raise
        context.opened()

    async def _run(self) -> None:
        proxy, context = self._proxy, self._context
        locating, openings = proxy.sessions.locating, proxy.sessions.openings
        user = self._turn_of(context.subject.user)
        life = proxy.signs.life
        await locating.begin("", user, proxy.clock, proxy.wait_seconds, [life])
        # Only a few of a user's streams wait for their next hop, because what was decided for them
        # grows old meanwhile.
        try:
            self._location = await proxy.locator.locate(context)
            life.note()
            context.subject = self._location.subject
            hop, opener = context.subject.pool, self._turn_of(context.subject.user)
            signs = [proxy.signs.of(label) for label, _ in self._location.endpoints]
            await openings.begin(
                hop, opener, proxy.clock, proxy.wait_seconds, [each.life for each in signs]
            )
        finally:
            locating.end("", user)
        try:
            await self._open()
        finally:
            openings.end(hop, opener)

    def _turn_of(self, user: str) -> tuple[str, bool]:
        """Return whose turn it is: a user's open sessions do not wait behind new ones."""
        try:
            return user, self._context.continues_session
        except APIError:
            return user, False  # a locator refuses it in its own order

    async def _open(self) -> None:
        sessions = self._proxy.sessions
        self._continues = self._context.continues_session
        self._resumption = resumption = self._passable_resumption()
        self._context.has_session = True
        self._session = sessions.open(
            self._location.subject,
            self._context.evidence,
            self._location.terms,
            self._context.ceiling,
            resumption.session if resumption is not None else "",
        )
        self._session.waits_for_machine = self._context.continues_session
        try:
            if sessions.watcher is not None:
                self._session.client_info = client_info(self._context)
            # Last, as in kube-apiserver: 401, 403, 404, and only then whether it is an upgrade.
            await self._carry(require_upgrade(self._request))
        except BaseException as problem:
            code, reason = outcome(problem)
            self._session.over(reason, code=code)
            raise

    def _passable_resumption(self) -> RequestedResumption | None:
        resumption = self._context.resumption
        if resumption is None:
            return None
        upgrade = is_upgrade(self._request)
        is_plain = upgrade == WEBSOCKET and not tunnelled(self._request)
        if self._location.resumes and is_plain:
            return resumption
        if upgrade and resumption.resume is not None:
            raise Conflict(CANNOT_RESUME)
        return None

    @property
    def _session_id(self) -> str:
        return self._location.subject.session

    async def _carry(self, upgrade: bytes) -> None:
        """Splice if possible; bridge for another protocol, and to record."""
        if self._location.recorder is not None:
            if not await self._translate():
                raise BadRequest("the session is recorded, and its protocol is not known here")
            return
        head = self._sent = self._head(upgrade)
        try:
            upgraded = await self._reach(head)
        except UpgradeRefused as refused:
            if self._session.resumes or not (
                of_the_protocol(refused) and await self._ask_otherwise()
            ):
                raise self._refusal(refused) from None
            return
        if is_answer(upgraded.headers, head.headers):
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
            raise BadGateway("the next hop answered with a protocol that was not offered")

    async def _reach(self, head: UpgradeRequest) -> Upgraded:
        proxy = self._proxy
        upgraded: Upgraded
        try:
            label, upgraded = await ask_first(
                self._location.endpoints,
                head,
                clock=proxy.clock,
                connect_seconds=self._limit(proxy.connect_seconds),
                answer_seconds=self._limit(proxy.answer_seconds),
                signs=proxy.signs,
                spares=True,
            )
        except UpgradeRefused as refused:
            if refused.code == Unauthorized.code and self._location.refusal is None:
                # The user is authenticated by now; the refused credentials are ours.
                raise BadGateway(
                    f"{refused.label} does not accept this server's credentials"
                ) from None
            raise
        self._check_terms(label, upgraded)
        return upgraded

    def _check_terms(self, label: str, upgraded: Upgraded) -> None:
        terms, confirmed = self._sent_terms, confirmed_terms(upgraded.headers)
        if confirmed.satisfy(terms):
            return
        upgraded.abort()
        if terms.recording and confirmed.satisfy(replace(terms, recording="")):
            raise self._makes_no_recordings(label)
        raise NotImplementedByBackend(
            f"{label} cannot hold a session to its terms ({describe_terms(terms)}): {_OTHER_RELEASE}"
        )

    def _makes_no_recordings(self, label: str) -> NotImplementedByBackend:
        terms = self._sent_terms
        needed = f"{terms.rule('require')} one" if terms.policy else "this console must be recorded"
        return NotImplementedByBackend(
            f"{label} makes no recordings, and {needed}: {_OTHER_RELEASE}"
        )

    def _refusal(self, refused: UpgradeRefused) -> APIError:
        error = refused.as_api_error()
        if self._sent_terms.recording and unknown_term("recording") in error.message:
            return self._makes_no_recordings(refused.label)
        return error if self._location.refusal is None else self._location.refusal(error)

    def _limit(self, seconds: float) -> float:
        longer = self._proxy.continue_seconds
        return seconds if longer is None or not self._continues else longer

    def _head(self, upgrade: bytes) -> UpgradeRequest:
        request, location = self._request, self._location
        ours = [(b"Connection", b"Upgrade"), (b"Upgrade", upgrade), *self._session_headers()]
        if self._resumption is not None:
            ours.append((RESUME, self._resumption.value))
        elif self._location.resumes:
            # A previous hop rejoins the stream; without it this hop is the first.
            rejoin = self._context.rejoin
            ours.append((REJOIN, rejoin) if rejoin else OFFERED)
        # RFC 9110, section 8.6: a POST has a length even without a body.
        if request.method == b"POST":
            ours.append((b"Content-Length", b"0"))
        names = HeaderSet.of(*(name.decode("ascii") for name, _ in ours))
        theirs = [
            pair
            for pair in forwarded_request_headers(
                header_pairs(request.requestHeaders), self._proxy.credential_headers()
            )
            if pair[0] not in names
        ]
        return UpgradeRequest(request.method, self._target(), location.host, theirs + ours)

    def _session_headers(self) -> list[tuple[bytes, bytes]]:
        self._sent_terms = terms = self._session.terms
        headers = [*self._location.headers, (b"Audit-Id", self._session_id.encode("ascii"))]
        if text := terms.text():
            headers.append((TERMS_HEADER.encode("ascii"), text.encode("ascii")))
        return headers

    def _target(self) -> bytes:
        location = self._location
        if location.whole:
            return location.path
        return location.path_with(self._context.options.query())

    async def _ask_otherwise(self) -> bool:
        return await self._untunnel() or await self._translate()

    async def _translate(self) -> bool:
        proxy = self._proxy
        carried = BridgedStream(proxy, self._session)
        carried.stream = bridge = Translation(
            proxy.clock,
            carried.over,
            session=self._session_id,
            terms=lambda: self._sent_terms,
            recorder=self._location.recorder,
        )
        self._session.wait(lambda _: bridge.pause_user())
        try:
            possible = await translate(
                self._request,
                self._context.options,
                self._reach_again,
                bridge,
                open_seconds=proxy.answer_seconds,
                streams=self._location.streams,
                confirm=self._confirm,
            )
        except UpgradeRefused as refused:
            raise self._refusal(refused) from None
        except ConnectionDone:
            raise CancelledError from None
        if possible:
            self._speaks(is_upgrade(self._request), choose_protocol(self._request))
            self._read_here(carried)
        return possible

    async def _untunnel(self) -> bool:
        if not tunnelled(self._request):
            return False
        carried = BridgedStream(self._proxy, self._session)
        carried.stream = bridge = Tunnel(self._proxy.clock, carried.over, session=self._session_id)
        self._session.wait(lambda _: bridge.pause_user())
        try:
            protocol = await untunnel(self._request, self._reach_again, bridge, self._confirm)
        except UpgradeRefused as refused:
            raise self._refusal(refused) from None
        except OtherProtocol as problem:
            raise BadGateway(str(problem)) from None
        except ConnectionDone:
            raise CancelledError from None
        self._speaks(WEBSOCKET, protocol)
        self._read_here(carried)
        return True

    def _read_here(self, carried: BridgedStream) -> None:
        del self._request, self._context
        if self._location.recorder is None:
            self._proxy.translating(self._session)
        carried.reach_later(self._location, self._session_id)
        carried.carry()

    async def _reach_again(self, attempt: Attempt) -> Upgraded:
        if self._location.again is not None:
            self._location = await self._location.again()
        location = self._location
        head = UpgradeRequest(b"GET", self._target(), location.host, self._session_headers())
        return await self._reach(attempt.head(head))

    async def _confirm(self) -> None:
        if self._location.confirm is None:
            return
        await confirm(self._location, self._session)
        self._location = replace(self._location, confirm=None)  # an open session does not need it

    def _give_up(self, upgraded: Upgraded, problem: BaseException) -> None:
        proxy, _, why = self._proxy, *outcome(problem)
        session = session_id(upgraded.headers) or self._session_id
        hop = NextHop(
            proxy.control, proxy.clock, self._session, self._location, session, proxy.end_seconds
        )
        ending = hop.end(Ending(REVOKED, why), proxy.end_seconds)
        ending.addBoth(lambda _: upgraded.abort())

    def _join(self, upgraded: Upgraded, upgrade: bytes, resumption: Resumable | None) -> None:
        protocol = chosen_protocol(upgraded.headers)
        rejoin = last_value(upgraded.headers, REJOIN)
        carried = self._carried(accepted_offer(rejoin), upgrade, protocol)
        splice = carried.stream
        if self._session.ending is not None:
            splice.pause_user()  # before its early bytes pass
        audit_id = (b"Audit-Id", self._session_id.encode("ascii"))
        headers = [*forwarded_response_headers(upgraded.headers), audit_id]
        headers += self._location.answer_headers
        if text := confirmed_terms(upgraded.headers).text():
            headers.append((TERMS_HEADER.encode("ascii"), text.encode("ascii")))
        if resumption is not None:
            headers.append((RESUME, resumption.text().encode("ascii")))
            self._session.resumable_seconds = resumption.seconds
            splice.watch_close()
        # Runtimes that keep sessions in one of these ways also let them wait for their machine.
        self._session.waits_for_machine = resumption is not None or bool(rejoin)
        if rejoin and self._context.rejoin:
            headers.append((REJOIN, rejoin))
            self._session.is_rejoined_by_hop = True
        response = switching_protocols(upgrade, headers)
        if resumption is not None and self._request.page is not None:
            response += self._request.page.greeting(self._session_id, resumption)
        try:
            take_over(self._request, splice.user, response)
        except ConnectionDone:
            upgraded.abort()
            raise CancelledError from None
        del self._request, self._context  # an idle session owns nothing but its transports
        upgraded.hand_over(splice.machine)
        self._speaks(upgrade, protocol)
        # An API server of its own may keep the session under an id of its own.
        carried.reach_later(self._location, session_id(upgraded.headers) or self._session_id)
        carried.carry()

    def _carried(self, accepted: Rejoinable | None, upgrade: bytes, protocol: str) -> SplicedStream:
        proxy, location = self._proxy, self._location
        commands = location.subject.subresource in _COMMANDS
        boundaries = partial(frame_boundaries, upgrade, protocol, commands=commands)
        if accepted is not None and not self._context.rejoin:
            query = self._context.options.query()
            rejoinable = RejoinableStream(
                proxy, self._session, location, self._sent, query, accepted
            )
            rejoinable.splice(boundaries())
            return rejoinable
        carried = SplicedStream(proxy, self._session, location.ends_here)
        carried.stream = Splice(
            proxy.clock,
            carried.over,
            drain_seconds=proxy.drain_seconds,
            leave_seconds=proxy.leave_seconds,
        )
        if location.ends_here:
            carried.stream.follow(boundaries())
        return carried

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
        return resumable.passed_on(self._proxy.hop, shortest_round_trip_seconds(upgraded.transport))

    def _speaks(self, upgrade: bytes, protocol: str) -> None:
        if self._proxy.sessions.watcher is not None:
            description = f"{upgrade.decode('ascii')} {protocol}".rstrip()
            self._session.client_info = replace(self._session.client_info, protocol=description)


async def confirm(location: Location, session: Session) -> None:
    """
    Let the locator decide for the last time, after the next hop has opened the session.

    :raises APIError: the user must not get the stream.
    """
    if location.confirm is None:
        return
    if session.ending is not None:
        raise Forbidden(session.ending.message or session.ending.reason)
    await location.confirm()


def client_info(context: RequestContext) -> ClientInfo:
    """Return what the request says about the client."""
    request = context.request
    agent = request.requestHeaders.getRawHeaders(b"user-agent", [b""])[-1]
    return ClientInfo(
        address=request.client_host,
        agent=one_line(agent[:_MOST_AGENT].decode("utf-8", "replace")),
        via=context.via,
        options=context.options,
    )


_MOST_AGENT = 128
_COMMANDS = ("exec", "attach")
"""Subresources with remote commands; other streams forward ports."""


def chosen_protocol(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the protocol in the headers of a 101, or empty."""
    values = {name.lower(): value for name, value in headers}
    name = values.get(b"sec-websocket-protocol") or values.get(STREAM_PROTOCOL.lower(), b"")
    return name[:64].decode("ascii", "replace")
