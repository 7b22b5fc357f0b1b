"""
One request for a stream on its way through a hop.
"""

from __future__ import annotations

from twisted.web.iweb import IRequest

from twisted_exec.api.status import APIError, BadRequest, Conflict
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.hop import Hop
from twisted_exec.streaming.http.upgrade_server import requested_protocol
from twisted_exec.streaming.location import IStreamLocator, Location
from twisted_exec.streaming.negotiation import Negotiation
from twisted_exec.streaming.remotecommand.carriers import upgrade_required
from twisted_exec.streaming.remotecommand.tunnel import tunnelled
from twisted_exec.streaming.sessions.registry import StreamRequest
from twisted_exec.streaming.sessions.resume_headers import CANNOT_RESUME, RequestedResumption
from twisted_exec.wire.upgrade import FORWARDED_UPGRADES, WEBSOCKET


def require_upgrade(request: IRequest) -> bytes:
    """
    Return the protocol of an upgrade request: ``websocket`` or ``SPDY/3.1``.

    :raises BadRequest: the request asks for no such upgrade, or has a body.
    """
    upgrade = requested_protocol(request)
    if not upgrade:
        raise upgrade_required()
    if upgrade not in FORWARDED_UPGRADES:
        name = upgrade[:64].decode("ascii", "replace")
        raise BadRequest(f"cannot upgrade to {name!r}: only websocket and SPDY/3.1 pass here")
    if request.content.read(1):
        raise BadRequest("an upgrade request has no body")
    return upgrade


class Passage:
    """
    The way of one request for a stream through a hop, until the stream is open or refused.

    Its steps are in this order, and none changes the result of an earlier one: the request
    (:class:`RequestContext`), where it goes (:class:`Location`), the session, the request to the
    next hop (:class:`~twisted_exec.streaming.negotiation.BackendRequest`), and the stream
    (:class:`~twisted_exec.streaming.proxied.ProxiedStream`).
    """

    def __init__(self, hop: Hop, locator: IStreamLocator, context: RequestContext) -> None:
        self._hop, self._locator, self._context = hop, locator, context

    async def run(self) -> None:
        context = self._context
        try:
            await self._run()
        except BaseException as problem:
            context.unopened(problem)
            raise
        context.opened()

    async def _run(self) -> None:
        hop, context = self._hop, self._context
        locating, openings = hop.sessions.locating, hop.sessions.openings
        clock, seconds = hop.clock, hop.settings.wait_seconds
        user = self._turn_of(context.subject.user)
        life = hop.signs.life
        await locating.begin("", user, clock, seconds, [life])
        # Only a few of a user's streams wait for their next hop, because what was decided for them
        # grows old meanwhile.
        try:
            location = await self._locator.locate(context)
            life.note()
            pool, opener = context.subject.pool, self._turn_of(context.subject.user)
            signs = [hop.signs.of(label) for label, _ in location.endpoints]
            await openings.begin(pool, opener, clock, seconds, [each.life for each in signs])
        finally:
            locating.end("", user)
        try:
            await self._open(location)
        finally:
            openings.end(pool, opener)

    def _turn_of(self, user: str) -> tuple[str, bool]:
        """Return whose turn it is: a user's open sessions do not wait behind new ones."""
        try:
            return user, self._context.continues_session
        except APIError:
            return user, False  # a locator refuses it in its own order

    async def _open(self, location: Location) -> None:
        context, sessions = self._context, self._hop.sessions
        resumption = _passable_resumption(context, location)
        session = context.open_session(
            sessions,
            location.terms,
            context.ceiling,
            resumption.session if resumption is not None else "",
        )
        session.is_continuation = context.continues_session
        try:
            if sessions.watcher is not None:
                session.request = StreamRequest(context.via, context.options)
            # Last, as in kube-apiserver: 401, 403, 404, and only then whether it is an upgrade.
            upgrade = require_upgrade(context.request)
            await Negotiation(self._hop, context, location, session, resumption).run(upgrade)
        except BaseException as problem:
            session.failed(problem)
            raise


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
