"""
The proxy for streams; its locator finds the next hop and authorizes the user.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from twisted_exec.api.status import MethodNotAllowed, NotFound
from twisted_exec.program.window_limit import WindowLimit
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.flow import tcp_info
from twisted_exec.streaming.http.control import ControlRequests, FurtherRequest, answer_all
from twisted_exec.streaming.http.routes import WrongMethod
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_client import Signs
from twisted_exec.streaming.interfaces import IDENTITY_HEADERS, Ending
from twisted_exec.streaming.location import IStreamLocator
from twisted_exec.streaming.passage import Passage
from twisted_exec.streaming.sessions.hop_messages import parse_ending, parse_terms_query
from twisted_exec.streaming.sessions.registry import Session, Sessions
from twisted_exec.streaming.splice import DRAIN_SECONDS, Splice
from twisted_exec.wire.session_terms import Terms
from twisted_exec.wire.upgrade import HeaderSet

END_SECONDS = 0.7
"""From the decision to end a session until it is cut."""
LOG_LINES = 10
"""Log lines of one kind in a second."""

Change = TypeVar("Change", Ending, Terms)


class Proxy:
    """
    Forwards upgrade requests to the locations of a locator.

    :param caller_of: authenticates the caller of a request that ends sessions or changes their
        terms; fires with the caller's name, which must be the session's ``subject.caller``, or its
        ``subject.user`` without a caller.  ``None``: the previous hop can do neither.
    :param connect_seconds: for each address, TLS included.  This limit and ``answer_seconds`` count
        from the last sign of life of the next hop, so slow hops are spared.
    :param wait_seconds: longest wait for a turn while many streams are being opened; less than the
        previous hop waits for its answer.
    :param continue_seconds: instead of the limits of connections and answers for requests that
        continue an open session; ``None``: no other limits.
    :param end_seconds: from the decision to end a session until it is cut.
    :param cuts_when_refused: cut a session as soon as the next hop refuses to end it.
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
        continue_seconds: float | None = None,
        end_seconds: float = END_SECONDS,
        drain_seconds: float = DRAIN_SECONDS,
        leave_seconds: float | None = None,
        cuts_when_refused: bool = True,
        credential_headers: Callable[[], HeaderSet] = lambda: IDENTITY_HEADERS,
    ) -> None:
        self.locator, self.hop, self.sessions = locator, hop, sessions
        self.clock, self.caller_of = clock, caller_of
        self.control = ControlRequests(clock, connect_seconds)
        self.paths, self.signs = Paths(clock), Signs(clock)
        sessions.when_drained.append(self.control.close)
        self.connect_seconds, self.answer_seconds = connect_seconds, answer_seconds
        self.wait_seconds, self.continue_seconds = wait_seconds, continue_seconds
        self.end_seconds, self.drain_seconds = end_seconds, drain_seconds
        self.leave_seconds = leave_seconds
        self.cuts_when_refused = cuts_when_refused
        self.credential_headers = credential_headers
        self._lines: WindowLimit[str] = WindowLimit(clock.seconds, window_seconds=1.0)

    async def handle(self, context: RequestContext) -> None:
        """
        Answer a request for a stream; returns once it is open.

        :raises APIError: refused, here or by the next hop; the caller answers with it.
        """
        if context.request.method not in (b"GET", b"POST"):
            raise WrongMethod(context.request.method, [b"GET", b"POST"])
        await Passage(self, context).run()

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
        if self.sessions.on_asked is not None:
            self.sessions.on_asked()

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

    def translating(self, session: Session) -> None:
        self._log.debug(
            "{hop} translates session {session}: the next hop does not speak its protocol",
            hop=self.hop,
            session=session.subject.session,
        )

    def rejoining(self, session: Session) -> None:
        self._tell("rejoins session {session}: its connection to the next hop is lost", session)

    def cutting(self, session: Session, failure: Failure) -> None:
        why = failure.getErrorMessage()
        text = "cuts session {session}, the next hop does not end or change it: {why}"
        self._tell(text, session, why=why)

    def _tell(self, text: str, session: Session, **values: str) -> None:
        level = LogLevel.info if self._lines.allows(text, LOG_LINES) else LogLevel.debug
        self._log.emit(
            level, "{hop} " + text, hop=self.hop, session=session.subject.session, **values
        )


LOST_SECONDS = 10.0
"""A path is lost when the other kernel has answered nothing for this time."""

CHECK_SECONDS = 1.0
_PARTS = 5
"""Number of parts of the connections; each check takes one part."""

_TCP_INFO = struct.Struct("=2xB5x48xI")
"""``struct tcp_info`` of linux/tcp.h, for ``tcpi_retransmits`` and ``tcpi_last_ack_recv`` (milliseconds)."""


def unanswered_seconds(transport: object) -> float:
    """
    Return for how long the other kernel has not answered, although data was sent to it again.

    0 without such data, or without TCP.
    """
    return unanswered(tcp_info(transport))


def unanswered(info: bytes) -> float:
    """As :func:`unanswered_seconds`; ``info`` is the beginning of a ``struct tcp_info``."""
    if len(info) < _TCP_INFO.size:
        return 0.0
    retransmits, milliseconds = _TCP_INFO.unpack(info[: _TCP_INFO.size])
    return milliseconds / 1000 if retransmits else 0.0


class Paths:
    """
    The connections to the next hop of streams that can go on over another connection.

    A kernel gives a connection up after about a quarter of an hour, so this class checks them
    earlier (tcp(7), ``TCP_INFO``).  ``TCP_USER_TIMEOUT`` is not for this: it also ends the
    connection of a peer that answers, but takes no more.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        unanswered_seconds: Callable[[object], float] = unanswered_seconds,
    ) -> None:
        self._unanswered_seconds = unanswered_seconds
        self._splices: OrderedDict[Splice, None] = OrderedDict()
        self._checking = LoopingCall(self._check)
        self._checking.clock = clock

    def watch(self, splice: Splice) -> None:
        """Reset the connection to the machine of a splice when its path is lost."""
        self._splices[splice] = None
        if not self._checking.running:
            self._checking.start(CHECK_SECONDS, now=False)

    def forget(self, splice: Splice) -> None:
        self._splices.pop(splice, None)
        if not self._splices and self._checking.running:
            self._checking.stop()

    def _check(self) -> None:
        part = -(-len(self._splices) // _PARTS)
        for splice in list(islice(self._splices, part)):
            self._splices.move_to_end(splice)
            transport = splice.machine.transport
            if transport is None or splice.machine.gone:
                continue
            if self._unanswered_seconds(transport) >= LOST_SECONDS:
                self._log.info("the next hop at {peer} is out of reach", peer=transport.getPeer())
                transport.abortConnection()
