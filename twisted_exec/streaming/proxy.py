"""
The proxy of one program: opening a stream through it, and the requests about open sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.status import APIError, Conflict, MethodNotAllowed, NotFound
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.routes import WrongMethod
from twisted_exec.streaming.http.session_requests import FurtherRequest, answer_all
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_server import requested_protocol
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.location import IStreamAdmission, Location
from twisted_exec.streaming.negotiation import Negotiation
from twisted_exec.streaming.proxied import ProxySettings, ProxyState
from twisted_exec.streaming.remotecommand.carriers import require_upgrade
from twisted_exec.streaming.remotecommand.tunnel import tunnelled
from twisted_exec.streaming.sessions.hop_messages import parse_ending, parse_terms_query
from twisted_exec.streaming.sessions.registry import Session, Sessions, StreamRequest
from twisted_exec.streaming.sessions.resume_headers import CANNOT_RESUME, RequestedResumption
from twisted_exec.wire.session_terms import Terms
from twisted_exec.wire.upgrade import WEBSOCKET

Change = TypeVar("Change", Ending, Terms)


class Proxy:
    """
    Forwards requests for streams to the locations that its admission returns, and those about open sessions.

    :param caller_of: authenticates the caller of a request that ends sessions or changes their
        terms; fires with the caller's name, which must be the session's ``subject.caller``, or its
        ``subject.user`` without a caller.  ``None``: the previous hop can do neither.
    """

    def __init__(
        self,
        admission: IStreamAdmission,
        settings: ProxySettings,
        *,
        sessions: Sessions,
        clock: IReactorTime,
        caller_of: Callable[[Request], Deferred[str]] | None = None,
    ) -> None:
        self.admission, self.sessions = admission, sessions
        self.state, self.clock, self.caller_of = (
            ProxyState(settings, sessions, clock),
            clock,
            caller_of,
        )

    async def handle(self, context: RequestContext) -> None:
        """
        Answer a request for a stream; returns once it is open.

        An opening has five steps, and none changes the result of an earlier one:

        * *who*: the dispatcher has put the user into the :class:`RequestContext`;
        * *may they* and *where*: the :class:`IStreamAdmission` returns a :class:`Location`, or refuses;
        * *connect*: the :class:`~twisted_exec.streaming.negotiation.Negotiation` asks the next hop;
        * *carry*: a :class:`~twisted_exec.streaming.proxied.ProxiedStream` joins both connections.

        :raises APIError: refused, here or by the next hop; the caller answers with it.
        """
        if context.request.method not in (b"GET", b"POST"):
            raise WrongMethod(context.request.method, [b"GET", b"POST"])
        try:
            await self._open(context)
        except BaseException as problem:
            context.unopened(problem)
            raise
        context.opened()

    async def _open(self, context: RequestContext) -> None:
        state, user = self.state, _turn_of(context)
        locating, openings = self.sessions.locating, self.sessions.openings
        life, seconds = state.signs.life, state.settings.wait_seconds
        await locating.begin("", user, self.clock, seconds, [life])
        # Only a few of a user's streams wait for their next hop, because what was decided for them
        # grows old meanwhile.
        try:
            location = await self.admission.admit(context)
            life.note()
            pool, opener = context.subject.pool, _turn_of(context)
            signs = [state.signs.of(label) for label, _ in location.endpoints]
            lives = [sign.life for sign in signs]
            await openings.begin(pool, opener, self.clock, seconds, lives)
        finally:
            locating.end("", user)
        try:
            await self._connect(context, location)
        finally:
            openings.end(pool, opener)

    async def _connect(self, context: RequestContext, location: Location) -> None:
        resumption = _passable_resumption(context, location)
        resumed = resumption.session if resumption is not None else ""
        session = context.open_session(self.sessions, location.terms, context.ceiling, resumed)
        session.is_continuation = context.continues_session
        try:
            if self.sessions.watcher is not None:
                session.request = StreamRequest(context.via, context.options)
            # Last, as in kube-apiserver: 401, 403, 404, and only then whether it is an upgrade.
            upgrade = require_upgrade(context.request)
            await Negotiation(self.state, context, location, session, resumption).run(upgrade)
        except BaseException as problem:
            session.failed(problem)
            raise

    async def end(self, context: RequestContext) -> None:
        """
        Answer a ``DELETE``: end a session that the previous hop opened.

        :raises APIError: the previous hop has no such session here, or the request is not valid.
        """
        await self._change(context, parse_ending, Session.end)

    async def limit(self, context: RequestContext) -> None:
        """
        Answer a ``PATCH``: change the terms of a session that the previous hop opened.

        :raises APIError: as :meth:`end`.
        """
        await self._change(context, parse_terms_query, Session.limit_to)

    async def _change(
        self,
        context: RequestContext,
        parse: Callable[[Mapping[bytes, list[bytes]]], tuple[str, Change]],
        apply: Callable[[Session, Change], None],
    ) -> None:
        if self.caller_of is None:
            raise MethodNotAllowed("the previous hop neither ends nor changes sessions here")
        caller = await self.caller_of(context.request)
        for notify in self.sessions.on_asked:
            notify()

        def handle(request: Request | FurtherRequest) -> None:
            session, change = parse(request.args)
            for opened in self._opened_by(caller, session):
                apply(opened, change)

        await answer_all(context.request, handle, self.clock)

    def _opened_by(self, caller: str, session: str) -> list[Session]:
        theirs = [
            opened
            for opened in self.sessions.with_id(session)
            if (opened.subject.caller or opened.subject.user) == caller
        ]
        if not theirs:
            raise NotFound("sessions", session, group="")
        return theirs


def _turn_of(context: RequestContext) -> tuple[str, bool]:
    """Return whose turn it is: a user's open sessions do not wait behind new ones."""
    try:
        return context.subject.user, context.continues_session
    except APIError:
        return context.subject.user, False  # the admission refuses it in its own order


def _passable_resumption(context: RequestContext, location: Location) -> RequestedResumption | None:
    """Return what the next hop learns about resuming the session."""
    resumption = context.resumption
    if resumption is None:
        return None
    upgrade = requested_protocol(context.request)
    if location.resumes and upgrade == WEBSOCKET and not tunnelled(context.request):
        return resumption
    if upgrade and resumption.resume is not None:
        raise Conflict(CANNOT_RESUME)
    return None
