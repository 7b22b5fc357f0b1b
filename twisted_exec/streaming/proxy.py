"""
The proxy of one program: the handler of its requests for streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.status import MethodNotAllowed, NotFound
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.hop import Hop, HopSettings
from twisted_exec.streaming.http.routes import WrongMethod
from twisted_exec.streaming.http.session_requests import FurtherRequest, answer_all
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.location import IStreamLocator
from twisted_exec.streaming.passage import Passage
from twisted_exec.streaming.sessions.hop_messages import parse_ending
from twisted_exec.streaming.sessions.hop_terms import parse_terms_query
from twisted_exec.streaming.sessions.registry import Session, Sessions
from twisted_exec.wire.session_terms import Terms

Change = TypeVar("Change", Ending, Terms)


class Proxy:
    """
    Forwards requests for streams to where its locator sends them, and those about open sessions.

    :param caller_of: authenticates the caller of a request that ends sessions or changes their
        terms; fires with the caller's name, which must be the session's ``subject.caller``, or its
        ``subject.user`` without a caller.  ``None``: the previous hop can do neither.
    """

    def __init__(
        self,
        locator: IStreamLocator,
        settings: HopSettings,
        *,
        sessions: Sessions,
        clock: IReactorTime,
        caller_of: Callable[[Request], Deferred[str]] | None = None,
    ) -> None:
        self.locator, self.sessions = locator, sessions
        self.hop, self.clock, self.caller_of = Hop(settings, sessions, clock), clock, caller_of

    async def handle(self, context: RequestContext) -> None:
        """
        Answer a request for a stream; returns once it is open.

        :raises APIError: refused, here or by the next hop; the caller answers with it.
        """
        if context.request.method not in (b"GET", b"POST"):
            raise WrongMethod(context.request.method, [b"GET", b"POST"])
        await Passage(self.hop, self.locator, context).run()

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
        for each in self.sessions.on_asked:
            each()

        def handle(request: Request | FurtherRequest) -> None:
            session, change = parse(request.args)
            for each in self._opened_by(caller, session):
                apply(each, change)

        await answer_all(context.request, handle, self.clock)

    def _opened_by(self, caller: str, session: str) -> list[Session]:
        theirs = [
            each
            for each in self.sessions.with_id(session)
            if (each.subject.caller or each.subject.user) == caller
        ]
        if not theirs:
            raise NotFound("sessions", session, group="")
        return theirs
