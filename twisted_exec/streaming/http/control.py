"""
Short requests about open streams, such as those that end sessions, over few connections.

A thousand sessions that end at once would cost each hop a thousand TLS handshakes, which take
longer than the sessions may.  Here the requests to one hop share at most :data:`AT_ONCE`
connections.  A connection that had more than one request to carry is kept for a moment, because
decisions about many sessions come in slices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import h11
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from twisted_exec.api.status import BadGateway
from twisted_exec.streaming.http.upgrade_client import (
    Asking,
    AskingFactory,
    UpgradeRefused,
    UpgradeRequest,
    ask,
    connect_first,
)

AT_ONCE = 4
"""Connections to one hop; each carries one request at a time."""
KEEP_SECONDS = 0.25
"""How long a busy connection is kept when nothing waits for it."""

Endpoints = Sequence[tuple[str, IStreamClientEndpoint]]


class _Connection(Asking):
    """A connection for one request after the other."""

    request_noun = "request"
    hop: _Hop | None = None
    requests = 0
    _keeping: IDelayedCall | None = None

    def keep(self, clock: IReactorTime) -> None:
        """Close the connection after a moment, unless it is used again."""
        self._keeping = clock.callLater(KEEP_SECONDS, self.abort)

    def use(self) -> None:
        self.requests += 1
        if self._keeping is not None and self._keeping.active():
            self._keeping.cancel()

    def _refuse(self) -> None:
        """The response is complete: make the connection ready for the next request."""
        http, response = self._http, self._refusal
        if {http.our_state, http.their_state} != {h11.DONE}:
            super()._refuse()
            return
        assert response is not None
        http.start_next_cycle()
        answered, self._answered = self._answered, None
        refused = UpgradeRefused(response.status_code, response.headers.raw_items(), self._body)
        self._refusal, self._body = None, b""
        if answered is not None and not answered.called:
            answered.errback(refused)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._keeping is not None and self._keeping.active():
            self._keeping.cancel()
        hop, self.hop = self.hop, None
        super().connectionLost(reason)
        if hop is not None:
            hop.lost(self)


class _Connections(AskingFactory):
    protocol = _Connection


_FACTORY = _Connections()


@dataclass(eq=False)
class _Request:
    """
    :ivar answered: fires or fails with the answer; has been called if nobody waits for it any more.
    :ivar is_second: the first connection was closed.
    """

    endpoints: Endpoints
    head: UpgradeRequest
    seconds: float
    answered: Deferred[None]
    is_second: bool = False


class ControlRequests:
    """
    The requests of one proxy.

    :param connect_seconds: for each address, TLS included.
    """

    def __init__(self, clock: IReactorTime, connect_seconds: float) -> None:
        self._clock, self._connect_seconds = clock, connect_seconds
        self._hops: dict[object, _Hop] = {}

    def send(self, endpoints: Endpoints, head: UpgradeRequest, seconds: float) -> Deferred[None]:
        """
        Send a request to the first endpoint that accepts connections.

        :param seconds: longest wait for the answer, once the request is sent.
        :return: fires when the hop has answered with 2xx.  Fails with :class:`UpgradeRefused` for
            any other answer, and with an :class:`~twisted_exec.api.status.APIError` without one.
            Cancelling gives up the answer only.
        """
        # Requests with other credentials must not meet: the hop compares them with the sessions'.
        secrets = tuple(value for name, value in head.headers if name.lower() == b"authorization")
        key = (tuple(label for label, _ in endpoints), head.host, secrets)
        if key not in self._hops:
            self._hops[key] = _Hop(
                self._clock, self._connect_seconds, lambda: self._hops.pop(key, None)
            )
        return self._hops[key].add(endpoints, head, seconds)

    def close(self) -> None:
        """Close the connections that nothing waits for, at the end of the program."""
        for hop in list(self._hops.values()):
            hop.close()


class _Hop:
    """
    The connections to one hop, and the requests that wait for one.

    :param forget: called when there are neither.
    """

    def __init__(self, clock: IReactorTime, connect_seconds: float, forget: Any) -> None:
        self._clock, self._connect_seconds, self._forget = clock, connect_seconds, forget
        self._waiting: deque[_Request] = deque()
        self._idle: list[_Connection] = []
        self._unanswered = 0
        self._busy = 0  # connections that are being made, or carry a request
        self._attempts: list[Deferred[None]] = []

    def add(self, endpoints: Endpoints, head: UpgradeRequest, seconds: float) -> Deferred[None]:
        """Send a request as soon as a connection is free."""
        answered: Deferred[None] = Deferred(lambda _: self._give_up())
        self._waiting.append(_Request(endpoints, head, seconds, answered))
        self._unanswered += 1
        self._work()
        return answered

    def _give_up(self) -> None:
        """Nobody waits for one of the answers any more."""
        self._unanswered -= 1
        if not self._unanswered:
            self._waiting.clear()
            for attempt in list(self._attempts):
                attempt.cancel()

    def close(self) -> None:
        """Close the connections that carry no request."""
        for connection in list(self._idle):
            connection.abort()

    def lost(self, connection: _Connection) -> None:
        """A connection is lost."""
        if connection in self._idle:
            self._idle.remove(connection)
        self._end()

    def _end(self) -> None:
        if not (self._waiting or self._idle or self._busy):
            self._forget()

    def _work(self) -> None:
        while self._idle and (request := self._next()) is not None:
            self._busy += 1
            Deferred.fromCoroutine(self._carry(self._idle.pop(), request))
        if self._busy < AT_ONCE and len(self._attempts) < len(self._waiting):
            self._busy += 1
            attempt = Deferred.fromCoroutine(self._connect(self._waiting[0].endpoints))
            if not attempt.called:
                self._attempts.append(attempt)
                attempt.addCallback(lambda _: self._attempts.remove(attempt))

    def _next(self) -> _Request | None:
        """Return the next request whose answer is still wanted."""
        while self._waiting:
            request = self._waiting.popleft()
            if not request.answered.called:
                return request
        return None

    async def _connect(self, endpoints: Endpoints) -> None:
        try:
            _, connection = await connect_first(
                endpoints,
                clock=self._clock,
                timeout_seconds=self._connect_seconds,
                factory=_FACTORY,
            )
        except Exception:
            self._busy -= 1
            if not self._busy and not self._idle:  # no other connection can carry them
                failure = Failure()
                while (request := self._next()) is not None:
                    self._fail(request, failure)
            self._end()
            return
        assert isinstance(connection, _Connection)
        connection.hop = self
        request = self._next()
        if request is None:
            self._release(connection)
        else:
            Deferred.fromCoroutine(self._carry(connection, request))

    async def _carry(self, connection: _Connection, request: _Request) -> None:
        """Send a request on a free connection."""
        connection.use()
        self._work()  # others may need a further connection
        try:
            await ask(connection, request.head, clock=self._clock, timeout_seconds=request.seconds)
        except UpgradeRefused as answer:
            if 200 <= answer.code < 300:
                self._answer(request)
            else:
                self._fail(request, Failure())
        except BadGateway:
            # The hop may close a connection that is kept in the moment in which it is used again.
            if connection.requests > 1 and not request.is_second:
                request.is_second = True
                self._waiting.appendleft(request)
            else:
                self._fail(request, Failure())
        except Exception:
            self._fail(request, Failure())
        self._release(connection)

    def _release(self, connection: _Connection) -> None:
        self._busy -= 1
        if connection.lost is None and (self._waiting or connection.requests > 1):
            connection.keep(self._clock)
            self._idle.append(connection)
        else:
            connection.abort()
        self._work()
        self._end()

    def _answer(self, request: _Request) -> None:
        if not request.answered.called:
            self._unanswered -= 1
            request.answered.callback(None)

    def _fail(self, request: _Request, failure: Failure) -> None:
        if not request.answered.called:
            self._unanswered -= 1
            request.answered.errback(failure)
