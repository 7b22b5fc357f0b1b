"""
The proxy for streams: locate, connect, splice.

Each program has its own locator, which finds the next hop and authorizes the user.  The proxy does
the rest: it checks the upgrade, forwards and removes headers, passes on the backend's refusal, and
keeps the session's record.

Checks come in the order of kube-apiserver: authentication (401), authorization (403), the object
(404, 400), and only then whether the request is an upgrade (400).  Every refusal names the machine,
because its reader may have asked for many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.iweb import IRequest

from twisted_exec.api.status import (
    APIError,
    BadGateway,
    BadRequest,
    MethodNotAllowed,
    NotFound,
    NotImplementedByBackend,
    Unauthorized,
    one_line,
)
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.control import (
    ControlRequests,
    FurtherRequest,
    Silent,
    answer_all,
)
from twisted_exec.streaming.http.outcomes import outcome
from twisted_exec.streaming.http.routes import WrongMethod
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_client import (
    Upgraded,
    UpgradeRefused,
    UpgradeRequest,
    ask,
    connect_first,
)
from twisted_exec.streaming.http.upgrade_server import header_pairs, is_upgrade, take_over
from twisted_exec.streaming.interfaces import (
    IDENTITY_HEADERS,
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    REVOKED,
    SHUTTING_DOWN,
    Ending,
    IStreamLocator,
    Location,
)
from twisted_exec.streaming.next_hop import NextHop
from twisted_exec.streaming.remotecommand.negotiation import (
    STREAM_PROTOCOL,
    UPGRADE_REQUIRED,
    Attempt,
    OtherProtocol,
    choose_protocol,
    of_the_protocol,
)
from twisted_exec.streaming.remotecommand.translate import Translation, translate
from twisted_exec.streaming.remotecommand.tunnel import Tunnel, tunnelled, untunnel
from twisted_exec.streaming.sessions.registry import (
    ClientInfo,
    Session,
    Sessions,
    parse_ending,
    session_id,
)
from twisted_exec.streaming.sessions.terms import confirmed_terms, parse_terms_query
from twisted_exec.streaming.splice import DRAIN_SECONDS, Splice
from twisted_exec.wire.frame_boundaries import frame_boundaries
from twisted_exec.wire.session_terms import FULL, TERMS_HEADER, Terms
from twisted_exec.wire.upgrade import (
    FORWARDED_UPGRADES,
    WEBSOCKET,
    HeaderSet,
    forwarded_request_headers,
    forwarded_response_headers,
    is_answer,
    switching_protocols,
)

END_SECONDS = 0.7
"""From the decision to end a session whose user has lost a right until the session is cut."""

STOP_SECONDS = 2.0
"""From the decision to end a session because this hop stops until the session is cut."""

GONE_SECONDS = 10.0
"""
The same if the machine is off or deleted, or its pool is.  Every hop decides at once, and on busy
hosts the reason takes long to pass them all.
"""

_MORE_SECONDS = {
    SHUTTING_DOWN: STOP_SECONDS,
    POWERED_OFF: GONE_SECONDS,
    MACHINE_DELETED: GONE_SECONDS,
    POOL_DELETED: GONE_SECONDS,
}

Change = TypeVar("Change", Ending, Terms)


def require_upgrade(request: IRequest) -> bytes:
    """
    Return the protocol of an upgrade request: ``websocket`` or ``SPDY/3.1``.

    Locators that create something for a session, such as a token, check this first.

    :raises BadRequest: the request is no upgrade, or to another protocol, or has a body.
    """
    upgrade = is_upgrade(request)
    if not upgrade:
        raise BadRequest(UPGRADE_REQUIRED)
    if upgrade not in FORWARDED_UPGRADES:
        name = upgrade[:64].decode("ascii", "replace")
        raise BadRequest(f"cannot upgrade to {name!r}: only websocket and SPDY/3.1 pass here")
    if request.content.read(1):
        raise BadRequest("an upgrade request has no body")
    return upgrade


class Proxy:
    """
    Forwards upgrade requests to the locations of a locator.

    :param hop: the name of this hop, for the log.
    :param caller_of: authenticates the caller of a ``DELETE`` that ends a
        session; fires with the caller's name, which must be the session's
        ``subject.caller``, or its ``subject.user`` without a caller.
        ``None``: the hop before this one cannot end sessions.
    :param connect_seconds: for each address, TLS included.
    :param answer_seconds: from the request to the 101.
    :param wait_seconds: longest wait for a turn while many streams are being opened; less than the
        hop before this one waits for its answer.
    :param end_seconds: from the decision to end a session until the session is cut; longer if nobody
        has lost a right: :data:`STOP_SECONDS`, :data:`GONE_SECONDS`.  The sessions of a next hop that
        is silent are cut earlier: :data:`~twisted_exec.streaming.http.control.SILENCE_SECONDS`.
    :param drain_seconds: see :class:`~twisted_exec.streaming.splice.Splice`.
    :param leave_seconds: likewise.
    :param credential_headers: returns the headers that never reach the next hop; called once
        for each request.
    :param cuts_when_refused: cut a session at once if the next hop refuses to end it; otherwise
        at its time limit, because its user may get the reason in another way.
    """

    _log = Logger()

    def __init__(
        self,
        locator: IStreamLocator,
        *,
        hop: str,
        sessions: Sessions,
        clock: IReactorTime,
        caller_of: Callable[[Request], Deferred[str]] | None = None,
        connect_seconds: float = 5,
        answer_seconds: float = 10,
        wait_seconds: float = 3,
        end_seconds: float = END_SECONDS,
        drain_seconds: float = DRAIN_SECONDS,
        leave_seconds: float | None = None,
        cuts_when_refused: bool = True,
        credential_headers: Callable[[], HeaderSet] = lambda: IDENTITY_HEADERS,
    ) -> None:
        self.locator, self.hop, self.sessions = locator, hop, sessions
        self.clock, self.caller_of = clock, caller_of
        self.control = ControlRequests(clock, connect_seconds)
        sessions.when_drained.append(self.control.close)
        self.connect_seconds, self.answer_seconds = connect_seconds, answer_seconds
        self.wait_seconds = wait_seconds
        self.end_seconds, self.drain_seconds = end_seconds, drain_seconds
        self.leave_seconds = leave_seconds
        self.cuts_when_refused = cuts_when_refused
        self.credential_headers = credential_headers

    async def handle(self, context: RequestContext) -> None:
        """
        Answer a request for a stream; returns once it is spliced.

        The caller has it on record (:func:`~twisted_exec.streaming.context.on_record`).

        :raises APIError: it was refused, here or by the next hop; the caller
            answers with it.  Cancelling (the client left) closes everything.
        """
        if context.request.method not in (b"GET", b"POST"):
            raise WrongMethod(context.request.method, [b"GET", b"POST"])
        await _Passage(self, context).run()

    async def end(self, context: RequestContext) -> None:
        """
        Answer a ``DELETE``: end a session that the hop before ours opened.

        Only the user or proxy that opened a session may end it, so this authenticates by itself.

        :raises NotFound: there is no such session of theirs.
        """
        await self._change(context, parse_ending, Session.end)

    async def limit(self, context: RequestContext) -> None:
        """
        Answer a ``PATCH``: change the terms of a session that the hop before ours opened.

        :raises NotFound: as :meth:`end`.
        """
        await self._change(context, parse_terms_query, Session.limit_to)

    async def _change(
        self,
        context: RequestContext,
        parse: Callable[[Mapping[bytes, list[bytes]]], tuple[str, Change]],
        apply: Callable[[Session, Change], None],
    ) -> None:
        """
        Apply a change to a session that the hop before ours opened, and answer.

        :param parse: returns the session's id and the change from a query.
        """
        if self.caller_of is None:
            raise MethodNotAllowed("the hop before this one neither ends nor changes sessions here")
        caller = await self.caller_of(context.request)

        def handle(request: Request | FurtherRequest) -> None:
            session, change = parse(request.args)
            for each in self._opened_by(caller, session):
                apply(each, change)

        await answer_all(context.request, handle, self.clock)

    def _opened_by(self, caller: str, session: str) -> list[Session]:
        """:raises NotFound: there is no such session of theirs."""
        theirs = [
            each
            for each in self.sessions.with_id(session)
            if (each.subject.caller or each.subject.user) == caller
        ]
        if not theirs:
            raise NotFound("sessions", session, group="")
        return theirs

    def translating(self, session: Session) -> None:
        """Log that a session is bridged here."""
        self._log.debug(
            "{hop} translates session {session}: the next hop does not speak its protocol",
            hop=self.hop,
            session=session.subject.session,
        )

    def cutting(self, session: Session, failure: Failure) -> None:
        """Log that a session is cut, because the next hop neither ends nor changes it."""
        self._log.info(
            "{hop} cuts session {session}, the next hop does not end or change it: {why}",
            hop=self.hop,
            session=session.subject.session,
            why=failure.getErrorMessage(),
        )


class _Passage:
    """One request's passage through a proxy."""

    _session: Session
    _location: Location
    _splice: Splice

    def __init__(self, proxy: Proxy, context: RequestContext) -> None:
        self._proxy, self._context, self._request = proxy, context, context.request
        self._late: IDelayedCall | None = None
        self._next_hop: NextHop | None = None  # once there is a stream
        self._sent_terms = FULL

    async def run(self) -> None:
        proxy = self._proxy
        self._location = await proxy.locator.locate(self._context)
        self._context.subject = self._location.subject
        hop = self._location.subject.pool
        await proxy.sessions.openings.begin(hop, proxy.clock, proxy.wait_seconds)
        try:
            await self._open()
        finally:
            proxy.sessions.openings.end(hop)

    async def _open(self) -> None:
        sessions = self._proxy.sessions
        self._context.has_session = True
        self._session = sessions.open(
            self._location.subject,
            self._context.evidence,
            self._location.terms,
            self._context.ceiling,
        )
        try:
            if sessions.watcher is not None:
                self._session.client_info = client_info(self._context)
            await self._carry(require_upgrade(self._request))
        except BaseException as problem:
            code, reason = outcome(problem)
            self._session.over(reason, code=code)
            raise

    @property
    def _session_id(self) -> str:
        return self._location.subject.session

    async def _carry(self, upgrade: bytes) -> None:
        """Splice if the next hop accepts the client's protocol; bridge otherwise."""
        head = self._head(upgrade)
        try:
            upgraded = await self._reach(head)
        except UpgradeRefused as refused:
            if not (of_the_protocol(refused) and await self._ask_otherwise()):
                raise self._refusal(refused) from None
            return
        if is_answer(upgraded.headers, head.headers):
            self._join(upgraded, upgrade)
            return
        upgraded.abort()
        if not await self._ask_otherwise():
            raise BadGateway("the next hop answered with a protocol that was not offered")

    async def _reach(self, head: UpgradeRequest) -> Upgraded:
        """
        Send the request to the next hop.

        :raises UpgradeRefused: it refuses, other than for our credentials.
        """
        label, connection = await self._connect()
        try:
            upgraded = await ask(
                connection,
                head,
                clock=self._proxy.clock,
                timeout_seconds=self._proxy.answer_seconds,
            )
        except UpgradeRefused as refused:
            if refused.code == Unauthorized.code and self._location.refusal is None:
                # The user is authenticated by now; the refused credentials are ours.
                raise BadGateway(f"{label} does not accept this server's credentials") from None
            raise
        except APIError as error:
            raise APIError(
                f"{label}: {error.message}", code=error.code, reason=error.reason
            ) from None
        self._check_terms(label, upgraded)
        return upgraded

    def _check_terms(self, label: str, upgraded: Upgraded) -> None:
        """:raises NotImplementedByBackend: the next hop would allow the user too much."""
        terms = self._sent_terms
        if not confirmed_terms(upgraded.headers).satisfy(terms):
            upgraded.abort()
            raise NotImplementedByBackend(
                f"{label} cannot hold a session to its terms ({_described(terms)}): "
                "it is of an older release or of another make"
            )

    def _refusal(self, refused: UpgradeRefused) -> APIError:
        """Convert the next hop's refusal for the user."""
        error = refused.as_api_error()
        return error if self._location.refusal is None else self._location.refusal(error)

    async def _connect(self) -> tuple[str, Any]:
        """Connect to the first address that accepts."""
        return await connect_first(
            self._location.endpoints,
            clock=self._proxy.clock,
            timeout_seconds=self._proxy.connect_seconds,
        )

    def _head(self, upgrade: bytes) -> UpgradeRequest:
        request, location = self._request, self._location
        ours = [(b"Connection", b"Upgrade"), (b"Upgrade", upgrade), *self._session_headers()]
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
        """Return the headers by which the next hop knows the session."""
        self._sent_terms = terms = self._session.terms
        headers = [*self._location.headers, (b"Audit-Id", self._session_id.encode("ascii"))]
        if text := terms.text():
            headers.append((TERMS_HEADER.encode("ascii"), text.encode("ascii")))
        return headers

    def _target(self) -> bytes:
        """Return path and query of the request to the next hop."""
        location = self._location
        if location.whole:
            return location.path
        return location.path_with(self._context.options.query())

    async def _ask_otherwise(self) -> bool:
        return await self._untunnel() or await self._translate()

    async def _translate(self) -> bool:
        """Bridge both connections, if the next hop accepts another protocol."""
        proxy = self._proxy
        bridge = Translation(
            proxy.clock,
            lambda reason: self._over(reason, bridge),
            session=self._session_id,
            terms=lambda: self._sent_terms,
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
            )
        except UpgradeRefused as refused:
            raise self._refusal(refused) from None
        except ConnectionDone:
            raise CancelledError from None
        if possible:
            self._speaks(is_upgrade(self._request), choose_protocol(self._request))
            self._read_here(bridge)
        return possible

    async def _untunnel(self) -> bool:
        """Unwrap SPDY from a tunnel, if the request has one and the next hop refused it."""
        if not tunnelled(self._request):
            return False
        proxy = self._proxy
        bridge = Tunnel(
            proxy.clock, lambda reason: self._over(reason, bridge), session=self._session_id
        )
        self._session.wait(lambda _: bridge.pause_user())
        try:
            protocol = await untunnel(self._request, self._reach_again, bridge)
        except UpgradeRefused as refused:
            raise self._refusal(refused) from None
        except OtherProtocol as problem:
            raise BadGateway(str(problem)) from None
        except ConnectionDone:
            raise CancelledError from None
        self._speaks(WEBSOCKET, protocol)
        self._read_here(bridge)
        return True

    def _read_here(self, bridge: Translation | Tunnel) -> None:
        del self._request, self._context
        self._proxy.translating(self._session)
        self._reach_later(self._session_id)
        hold_to = None
        if isinstance(bridge, Translation):
            hold_to = partial(self._hold_to, bridge)
        self._session.carry(bridge.end, bridge.cut, lambda: _counts(bridge), hold_to)

    async def _reach_again(self, attempt: Attempt) -> Upgraded:
        """Send an offer of our own; a path that is valid for one request only is renewed first."""
        if self._location.again is not None:
            self._location = await self._location.again()
        location = self._location
        head = UpgradeRequest(b"GET", self._target(), location.host, self._session_headers())
        return await self._reach(attempt.head(head))

    def _join(self, upgraded: Upgraded, upgrade: bytes) -> None:
        proxy = self._proxy
        self._splice = Splice(
            proxy.clock,
            self._ended,
            drain_seconds=proxy.drain_seconds,
            leave_seconds=proxy.leave_seconds,
        )
        if self._session.ending is not None:
            self._splice.pause_user()  # before its early bytes pass
        audit_id = (b"Audit-Id", self._session_id.encode("ascii"))
        headers = [*forwarded_response_headers(upgraded.headers), audit_id]
        if text := confirmed_terms(upgraded.headers).text():
            headers.append((TERMS_HEADER.encode("ascii"), text.encode("ascii")))
        response = switching_protocols(upgrade, headers)
        try:
            take_over(self._request, self._splice.user, response)
        except ConnectionDone:
            upgraded.abort()
            raise CancelledError from None
        del self._request, self._context  # an idle session owns nothing but its transports
        protocol = chosen_protocol(upgraded.headers)
        if self._location.ends_here:
            commands = self._location.subject.subresource in _COMMANDS
            self._splice.follow(frame_boundaries(upgrade, protocol, commands=commands))
        upgraded.hand_over(self._splice.machine)
        self._speaks(upgrade, protocol)
        if self._location.again is not None:
            self._location = replace(self._location, again=None)  # that was for a second request
        # An API server of its own may keep the session under an id of its own.
        self._reach_later(session_id(upgraded.headers) or self._session_id)
        hold_to = partial(self._hold_to, self._splice)
        self._session.carry(self._end, self._cut, self._counts, hold_to)

    def _reach_later(self, session_id: str) -> None:
        """Prepare requests to the next hop about the open session, which has this id there."""
        proxy = self._proxy
        self._next_hop = NextHop(
            proxy.control,
            proxy.clock,
            self._session,
            self._location,
            session_id,
            proxy.end_seconds,
        )

    def _cut(self) -> None:
        self._splice.cut("cut")

    def _counts(self) -> tuple[int, int]:
        return _counts(self._splice)

    def _speaks(self, upgrade: bytes, protocol: str) -> None:
        if self._proxy.sessions.watcher is not None:
            description = f"{upgrade.decode('ascii')} {protocol}".rstrip()
            self._session.client_info = replace(self._session.client_info, protocol=description)

    def _ended(self, reason: str) -> None:
        """The splice has ended."""
        if self._late is not None and self._late.active():
            self._late.cancel()
        self._over(reason, self._splice)

    def _over(self, reason: str, bridge: Splice | Translation | Tunnel) -> None:
        if self._next_hop is not None:
            self._next_hop.cancel()
        self._session.over(
            reason,
            bytes_to_machine=bridge.bytes_to_machine,
            bytes_to_user=bridge.bytes_to_user,
        )

    def _end(self, ending: Ending) -> None:
        """
        Send the reason, or let the next hop do so; cut the stream if that does not end it.

        The user's input stops now.  A next hop that has agreed to end the session takes none
        either, and needs the user's part of the protocol's end, so input passes again from then on.
        """
        assert self._next_hop is not None
        self._splice.pause_user()
        self._next_hop.cancel()
        seconds = _MORE_SECONDS.get(ending.reason, self._proxy.end_seconds)
        self._sever_later(seconds, ending)
        if self._location.ends_here:
            self._splice.say(ending)
            return

        def agreed(_: None) -> None:
            if self._severs_later():
                self._splice.resume_user()

        def refused(failure: Failure) -> None:
            if self._severs_later():
                self._proxy.cutting(self._session, failure)
                if self._proxy.cuts_when_refused or failure.check(Silent):
                    self._sever_later(0, ending)

        self._next_hop.end(ending, seconds).addCallbacks(agreed, refused)

    def _severs_later(self) -> bool:
        return self._late is not None and self._late.active()

    def _sever_later(self, seconds: float, ending: Ending) -> None:
        if self._late is not None and self._late.active():
            self._late.cancel()
        self._late = self._proxy.clock.callLater(seconds, self._splice.sever, ending.reason)

    def _hold_to(self, stream: Splice | Translation, terms: Terms) -> None:
        """Hold the session to other terms, or end it if the next hop does not."""
        assert self._next_hop is not None
        self._next_hop.hold_to(stream, terms, self._not_confirmed)

    def _not_confirmed(self, terms: Terms, failure: Failure) -> None:
        self._proxy.cutting(self._session, failure)
        message = (
            f"your rights at this console changed ({_described(terms)}), and the next hop did not"
            " confirm the change in time: open the console again"
        )
        ending = Ending(REVOKED, message)
        self._session.end(ending)
        if failure.check(Silent) and self._severs_later():
            self._sever_later(0, ending)


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
    """Return the protocol in the headers of a 101; empty if it names none."""
    values = {name.lower(): value for name, value in headers}
    name = values.get(b"sec-websocket-protocol") or values.get(STREAM_PROTOCOL.lower(), b"")
    return name[:64].decode("ascii", "replace")


def _counts(bridge: Splice | Translation | Tunnel) -> tuple[int, int]:
    return bridge.bytes_to_machine, bridge.bytes_to_user


def _described(terms: Terms) -> str:
    """Return the terms for a message."""
    return terms.text().replace("&", ", ") or "no limits"
