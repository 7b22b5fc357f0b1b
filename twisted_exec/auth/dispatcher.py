"""
The dispatcher of requests behind a gate: it matches the route, identifies the user, and calls the handler.

An unknown client gets 401 for paths that are not open, whether they exist or not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from twisted_exec.api.status import APIError
from twisted_exec.auth.gate import Gate
from twisted_exec.streaming.context import RequestContext, on_record
from twisted_exec.streaming.http.browser_websocket import adopt_page
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.routes import RouteMatch, RouteTable, WrongMethod, with_head
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.sessions.registry import Sessions

Handler = Callable[[RequestContext], Awaitable[None]]
"""Answers a request of an identified user; it checks itself what the user may do."""


@dataclass(frozen=True)
class GatedEndpoint:
    """
    The handler of a route.

    :param target: makes the context's target from the matched path.
    :param session: the facts of the target for the subject of a session; ``None`` if the route opens none.
    :param is_open: call the handler without identifying the user; it does so itself if it needs to.
    """

    handler: Handler
    target: Callable[[RouteMatch[Any]], Any] | None = None
    session: Callable[[Any], Mapping[str, str]] | None = None
    is_open: bool = False


class GatedRoutes(RouteTable[GatedEndpoint]):
    """The routes of a :class:`GatedDispatcher`."""

    def add(
        self,
        methods: Iterable[str],
        pattern: str,
        handler: Handler,
        *,
        target: Callable[[RouteMatch[Any]], Any] | None = None,
        is_open: bool = False,
    ) -> None:
        """Add a route that opens no session."""
        endpoint = GatedEndpoint(handler, target, is_open=is_open)
        self.add_endpoint(with_head(methods), pattern, endpoint)

    def add_session(
        self,
        methods: Iterable[str],
        pattern: str,
        handler: Handler,
        *,
        target: Callable[[RouteMatch[Any]], Any],
        session: Callable[[Any], Mapping[str, str]],
    ) -> None:
        """Add a route that opens sessions. ``HEAD`` is not served: it must not open a session."""
        self.add_endpoint(methods, pattern, GatedEndpoint(handler, target, session))


class GatedDispatcher(Dispatcher):
    """
    Answers requests behind a gate.

    :cvar names_object_to_unknown: the refusal of an unknown client names the requested object.
    """

    names_object_to_unknown = True

    def __init__(self, gate: Gate, routes: GatedRoutes, sessions: Sessions) -> None:
        super().__init__()
        self._gate, self._routes, self._sessions = gate, routes, sessions

    async def dispatch(self, request: Request) -> None:
        adopt_page(request, self._gate.policy.allowed_origins or ())
        try:
            match = self._routes.match(request.method, self.path_of(request))
        except APIError as problem:
            await self._gate.identify(RequestContext(request))
            if isinstance(problem, WrongMethod):
                request.setHeader(b"Allow", problem.allowed)
            raise
        await self.answer(match, request)

    def path_of(self, request: Request) -> bytes:
        """Return the path to match."""
        return request.path

    async def answer(self, match: RouteMatch[GatedEndpoint], request: Request) -> None:
        """Answer a request whose route is known."""
        endpoint = match.endpoint
        target = None if endpoint.target is None else endpoint.target(match)
        context = RequestContext(
            request, target=target, values=match.values, segments=match.segments
        )
        if endpoint.session is not None:
            context.learn(**endpoint.session(target))
            with on_record(
                self._sessions, context, names_object_to_unknown=self.names_object_to_unknown
            ):
                await self._gate.identify(context)
                await endpoint.handler(context)
            return
        await self.answer_without_session(context, endpoint)

    async def answer_without_session(
        self, context: RequestContext, endpoint: GatedEndpoint
    ) -> None:
        """Answer a request whose route opens no session."""
        if not endpoint.is_open:
            await self._gate.identify(context)
        await endpoint.handler(context)
