"""
What a broker's stream server answers: ``/exec/TOKEN`` and ``/log/TOKEN``, passed on to the target.

A console that was opened here may be ended with a reason, by ``DELETE`` of the same path, as at any
runtime.  Behind one address stand several replicas: one that has no such session asks the target to
end it, which knows the session by its id and by who opened it, and all replicas are one user there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from twisted_exec.api.status import NotFound
from twisted_exec.kube.way import CONNECT_SECONDS
from twisted_exec.streaming.interfaces import Ending, Subject
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.relay import Relay
from twisted_exec.streaming.sessions import ending_query, parse_ending
from twisted_exec.streaming.site import Request, respond_json
from twisted_exec.streaming.upgrade_client import UpgradeRefused, UpgradeRequest, ask, connect_first

from ..stream_routes import UID_HEADER, USER_HEADER, ServerRoutes, told
from .locator import ANSWER_SECONDS, BrokerLocator, Way
from .tokens import Tokens

HOP = "broker"

_DONE = {"kind": "Status", "apiVersion": "v1", "status": "Success"}


class BrokerRoutes(ServerRoutes):
    """The resource of a broker."""

    def __init__(
        self, server: Any, way: Way, tokens: Tokens, console: BrokerLocator, log: BrokerLocator
    ) -> None:
        super().__init__(server)
        self._way, self._tokens = way, tokens
        self._sessions, self._clock = server.sessions, server.clock
        self._proxy = Proxy(
            console,
            hop=HOP,
            sessions=server.sessions,
            clock=server.clock,
            connect_seconds=CONNECT_SECONDS,
            answer_seconds=ANSWER_SECONDS,
            # A target of another make knows no such request; but what ends the session here, such
            # as power off, comes to the target as well, and its own hops say why.
            cuts_when_refused=False,
        )
        relay = Relay(
            log,
            sessions=server.sessions,
            clock=server.clock,
            connect_seconds=CONNECT_SECONDS,
            answer_seconds=ANSWER_SECONDS,
        )
        self._routes.add(["GET", "POST"], "/exec/{token}", _once(console, self._proxy.handle))
        self._routes.add(["GET"], "/log/{token}", _once(log, relay.handle))
        self._routes.add(["DELETE"], "/exec/{token}", self._end)

    async def _end(self, request: Request, names: Mapping[str, str]) -> None:
        session, ending = parse_ending(request.args)
        user, uid = told(request, USER_HEADER), told(request, UID_HEADER)
        grant = self._tokens.read(names["token"], user=user, machine_uid=uid)
        if grant.session != session:
            raise NotFound("sessions", session, group="")
        found = self._sessions.end(lambda subject: subject.session == session, ending)
        if not found:
            subject = Subject(session=session, subresource=grant.purpose)
            await self._ask_target(await self._way.to(subject, grant), ending)
        respond_json(request, 200, _DONE)

    async def _ask_target(self, location: Any, ending: Ending) -> None:
        """:raises APIError: the target has no such session, or does not end it."""
        _, connection = await connect_first(
            location.endpoints, clock=self._clock, timeout_seconds=CONNECT_SECONDS
        )
        path = location.path + b"?" + ending_query(location.subject.session, ending)
        head = UpgradeRequest(b"DELETE", path, location.host, location.headers)
        try:
            await ask(connection, head, clock=self._clock, timeout_seconds=ANSWER_SECONDS)
        except UpgradeRefused as answer:
            if not 200 <= answer.code < 300:
                raise answer.as_api_error() from None


def _once(
    locator: BrokerLocator, handle: Callable[[Request], Awaitable[None]]
) -> Callable[[Request, Mapping[str, str]], Awaitable[None]]:
    """A token that does not lead to a stream, or to a text that is read, is given back."""

    async def answer(request: Request, names: Mapping[str, str]) -> None:
        try:
            await handle(request)
        except BaseException:
            claim = locator.claims.pop(request, None)
            if claim is not None and not request.startedWriting:
                await claim.give_back()
            raise
        finally:
            locator.claims.pop(request, None)

    return answer
