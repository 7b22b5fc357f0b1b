"""
Short requests about open streams, such as those that end sessions, over few connections.

Requests to one hop with the same credentials share connections, and those that wait travel
together: the body of the first one lists others with its method, as ``{"requests": [{"target": ...,
"headers": {...}}]}``.  The answer lists in ``details.done`` the indices of those that succeeded.  A
hop that does not know such bodies gets the others one by one.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import h11
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.http import parse_qs
from twisted.web.http_headers import Headers

from twisted_exec.api.status import APIError, BadGateway, BadRequest, GatewayTimeout
from twisted_exec.program.turns import ShortTurns
from twisted_exec.streaming.http.responses import respond_json
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_client import (
    MAX_ERROR_BYTES,
    Asking,
    AskingFactory,
    UpgradeRefused,
    UpgradeRequest,
    ask,
    connect_first,
)
from twisted_exec.wire import plain_http

AT_ONCE = 4
"""Connections to one hop; each carries one request at a time."""
TOGETHER = 100
"""Most further requests in a body."""
_TOGETHER_BYTES = 48 << 10
"""Hops accept bodies up to 64 KiB."""
BUSY_REQUESTS = 10
"""After so many requests in :data:`BUSY_SECONDS` connections are kept for a moment."""
BUSY_SECONDS = 1.0
KEEP_SECONDS = 0.25
"""How long a connection is kept when nothing waits for it."""

SILENCE_SECONDS = 0.45
"""From the last sign of life of a hop until it counts as silent."""
SILENT_TURNS = 5
"""The silence has so many parts: a busy program reads what has arrived before the next part."""

_PREFIX = b"x-twisted-exec-"
"""Prefix of the headers that belong to a request about a stream; other headers are its sender's."""

Endpoints = Sequence[tuple[str, IStreamClientEndpoint]]


class Silent(GatewayTimeout):
    """The next hop answers nothing, for example because it is stopped."""


class _Connection(Asking):
    request_noun = "request"
    peer: _Peer | None = None
    uses = 0
    _keeping: IDelayedCall | None = None

    def keep(self, clock: IReactorTime) -> None:
        self._keeping = clock.callLater(KEEP_SECONDS, self.abort)

    def use(self) -> None:
        self.uses += 1
        if self._keeping is not None and self._keeping.active():
            self._keeping.cancel()

    def _refuse(self) -> None:
        http, response = self._http, self._refusal
        # Another request may follow only when both sides are done.
        if {http.our_state, http.their_state} != {h11.DONE} or http.trailing_data[0]:
            super()._refuse()
            return
        assert response is not None
        del self._http
        body, self._refusal, self._body = self._body, None, b""
        self._complete(UpgradeRefused(response.status_code, response.headers.raw_items(), body))

    def _take_plain(self, answer: plain_http.PlainAnswer) -> bool:
        is_whole = answer.length == len(answer.rest) < MAX_ERROR_BYTES
        if answer.code == 101 or answer.closes or not is_whole:
            return False
        self._complete(UpgradeRefused(answer.code, answer.headers, answer.rest))
        return True

    def _complete(self, answer: UpgradeRefused) -> None:
        answered, self._answered = self._answered, None
        self._request, self._is_asked = None, False
        if answered is not None and not answered.called:
            answered.callback(answer)  # no failure: most are 200

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._keeping is not None and self._keeping.active():
            self._keeping.cancel()
        peer, self.peer = self.peer, None
        super().connectionLost(reason)
        if peer is not None:
            peer.lost(self)


class _Connections(AskingFactory):
    protocol = _Connection


_FACTORY = _Connections()


@dataclass(eq=False)
class _Request:
    endpoints: Endpoints
    head: UpgradeRequest
    seconds: float
    awaits_silence: bool
    answered: Deferred[None]
    is_second: bool = False
    is_alone: bool = False


class SessionRequests:
    """The requests of one proxy."""

    def __init__(self, clock: IReactorTime, connect_seconds: float) -> None:
        self.clock, self.connect_seconds = clock, connect_seconds
        self._peers: dict[object, _Peer] = {}
        self._recent: deque[float] = deque(maxlen=BUSY_REQUESTS)
        """When the last requests were sent."""
        self._silent: dict[object, float] = {}
        """When silent hops were found silent, until they answer."""

    def send(
        self,
        endpoints: Endpoints,
        head: UpgradeRequest,
        seconds: float,
        *,
        awaits_silence: bool = True,
    ) -> Deferred[None]:
        """
        Send a request to the first endpoint that accepts connections.

        :param awaits_silence: wait also for a silent hop; otherwise fail with :class:`Silent`.
        :param seconds: longest wait for the answer, once the request is sent.
        :return: fires after a 2xx.  Fails with :class:`UpgradeRefused` for another answer, and with
            an :class:`~twisted_exec.api.status.APIError` without one.
        """
        self._recent.append(self.clock.seconds())
        # Requests with other credentials must not meet: the hop compares them with the sessions'.
        secrets = tuple(value for name, value in head.headers if name.lower() == b"authorization")
        key = (tuple(label for label, _ in endpoints), head.host, secrets)
        if key not in self._peers:
            self._peers[key] = _Peer(self, key)
        return self._peers[key].add(endpoints, head, seconds, awaits_silence)

    @property
    def is_busy(self) -> bool:
        recent = self._recent
        # Decisions about many sessions come in slices, so that more requests follow a moment later.
        return len(recent) == BUSY_REQUESTS and self.clock.seconds() - recent[0] <= BUSY_SECONDS

    def was_silent(self, key: object) -> bool:
        return self.clock.seconds() - self._silent.get(key, -math.inf) <= SILENCE_SECONDS

    def answered(self, key: object) -> None:
        self._silent.pop(key, None)

    def heard_nothing(self, key: object) -> None:
        self._silent = {each: at for each, at in self._silent.items() if self.was_silent(each)}
        self._silent[key] = self.clock.seconds()

    def forget(self, key: object) -> None:
        self._peers.pop(key, None)

    def close(self) -> None:
        """Close the kept connections; those in use are not kept after their answers."""
        self._recent.clear()
        for peer in list(self._peers.values()):
            peer.close()


class _Peer:
    """A next hop, for the requests with the same credentials."""

    def __init__(self, requests: SessionRequests, key: object) -> None:
        self._requests, self._key = requests, key
        self._clock, self._connect_seconds = requests.clock, requests.connect_seconds
        self._waiting: deque[_Request] = deque()
        self._idle: list[_Connection] = []
        self._unanswered: dict[_Request, None] = {}
        self._silent_turns = 0  # since the last sign of life
        self._silence: IDelayedCall | None = None
        self._busy = 0  # connections that are being made, or carry a request
        self._attempts: list[Deferred[None]] = []

    def add(
        self, endpoints: Endpoints, head: UpgradeRequest, seconds: float, awaits_silence: bool
    ) -> Deferred[None]:
        answered: Deferred[None] = Deferred(lambda _: self._give_up(request))
        request = _Request(endpoints, head, seconds, awaits_silence, answered)
        self._waiting.append(request)
        self._unanswered[request] = None
        if self._silence is None and not awaits_silence:
            # The next slice of decisions does not wait for a stopped hop as long as the first one.
            self._silent_turns = SILENT_TURNS - 1 if self._requests.was_silent(self._key) else 0
            self._listen()
        self._work()
        return answered

    def _give_up(self, request: _Request) -> None:
        self._no_longer(request)
        if not self._unanswered:
            self._waiting.clear()
            for attempt in list(self._attempts):
                attempt.cancel()

    def _no_longer(self, request: _Request) -> None:
        del self._unanswered[request]
        if not self._unanswered and self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def _listen(self) -> None:
        self._silence = self._clock.callLater(SILENCE_SECONDS / SILENT_TURNS, self._heard_nothing)

    def _heard_nothing(self) -> None:
        self._silence = None
        self._silent_turns += 1
        hasty = [each for each in self._unanswered if not each.awaits_silence]
        if self._silent_turns >= SILENT_TURNS:
            self._requests.heard_nothing(self._key)
            Deferred.fromCoroutine(self._give_up_all(hasty))
        elif hasty:
            self._listen()

    async def _give_up_all(self, requests: Sequence[_Request]) -> None:
        turns = ShortTurns(self._clock, is_urgent=True)
        for request in requests:
            if request.answered.called:
                continue
            label = request.endpoints[0][0] if request.endpoints else "the next hop"
            answered = request.answered
            self._give_up(request)
            answered.errback(Silent(f"{label} answers nothing"))
            await turns.breathe()

    def close(self) -> None:
        for connection in list(self._idle):
            connection.abort()

    def lost(self, connection: _Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)
        self._end()

    def _end(self) -> None:
        if not (self._waiting or self._idle or self._busy):
            self._requests.forget(self._key)

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
        if not self._requests.was_silent(self._key):  # the kernel accepts for a stopped program
            self._silent_turns = 0
        connection.peer = self
        request = self._next()
        if request is None:
            self._release(connection)
        else:
            Deferred.fromCoroutine(self._carry(connection, request))

    async def _carry(self, connection: _Connection, request: _Request) -> None:
        others = self._others(request)
        connection.use()
        self._work()  # those that are left may need a further connection
        done: frozenset[int] = frozenset()
        again = False
        head = replace(request.head, body=_body(others)) if others else request.head
        try:
            try:
                answer = await ask(
                    connection, head, clock=self._clock, timeout_seconds=request.seconds
                )
            except UpgradeRefused as last:  # of this connection
                answer = last
            self._silent_turns = 0
            self._requests.answered(self._key)
            if 200 <= answer.code < 300:
                done = _done(answer.body)
                self._answer(request)
            else:
                self._fail(request, Failure(answer))
        except BadGateway:
            # The hop may close a connection that is kept in the moment in which it is used again.
            again = connection.uses > 1 and not request.is_second
            if again:
                request.is_second = True
                self._waiting.appendleft(request)
                self.close()  # the hop has probably closed the other ones, too
            else:
                self._fail(request, Failure())
        except Exception:
            failure = Failure()
            for each in (request, *others):
                self._fail(each, failure)
        for index, other in enumerate(others):
            if index in done:
                self._answer(other)
            elif not other.answered.called:
                other.is_alone, other.is_second = not again, again or other.is_second
                self._waiting.append(other)
        self._release(connection)

    def _others(self, request: _Request) -> list[_Request]:
        if request.is_alone:
            return []
        others: list[_Request] = []
        size = 0
        while self._waiting and len(others) < TOGETHER:
            other = self._waiting[0]
            if other.is_alone or other.head.method != request.head.method:
                break
            size += len(other.head.path) + sum(len(k) + len(v) for k, v in other.head.headers) + 64
            if size > _TOGETHER_BYTES:
                break
            self._waiting.popleft()
            if not other.answered.called:
                others.append(other)
        return others

    def _release(self, connection: _Connection) -> None:
        self._busy -= 1
        if connection.lost is None and (self._waiting or self._requests.is_busy):
            connection.keep(self._clock)
            self._idle.append(connection)
        else:
            connection.abort()
        self._work()
        self._end()

    def _answer(self, request: _Request) -> None:
        if not request.answered.called:
            self._no_longer(request)
            request.answered.callback(None)

    def _fail(self, request: _Request, failure: Failure) -> None:
        if not request.answered.called:
            self._no_longer(request)
            request.answered.errback(failure)


def _body(requests: Sequence[_Request]) -> bytes:
    entries = [
        {
            "target": each.head.path.decode("ascii"),
            "headers": {
                name.decode("ascii"): value.decode("latin-1")
                for name, value in each.head.headers
                if name.lower().startswith(_PREFIX)
            },
        }
        for each in requests
    ]
    return json.dumps({"requests": entries}).encode("ascii")


def _done(body: bytes) -> frozenset[int]:
    try:
        answer = json.loads(body)
        return frozenset(each for each in answer["details"]["done"] if isinstance(each, int))
    except (ValueError, RecursionError, LookupError, TypeError):
        return frozenset()


@dataclass(frozen=True)
class FurtherRequest:
    """A request in the body of another request."""

    path: bytes
    args: Mapping[bytes, list[bytes]]
    requestHeaders: Headers


def further_requests(request: Request) -> list[FurtherRequest]:
    """
    Return the requests in the body of a request.

    :raises BadRequest: the body is malformed or too long.
    """
    content = request.content.read()
    if not content:
        return []
    try:
        entries = json.loads(content)["requests"]
        if not isinstance(entries, list) or len(entries) > TOGETHER:
            raise ValueError
        return [_further(each) for each in entries]
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        raise BadRequest(f"the body has no list of at most {TOGETHER} requests") from None


def _further(entry: Any) -> FurtherRequest:
    path, _, query = entry["target"].encode("ascii").partition(b"?")
    headers = Headers()
    for name, value in entry["headers"].items():
        if not name.lower().encode("ascii").startswith(_PREFIX):
            raise ValueError
        headers.addRawHeader(name.encode("ascii"), value.encode("latin-1"))
    return FurtherRequest(path, parse_qs(query), headers)


async def answer_all(
    request: Request, handle: Callable[[Request | FurtherRequest], object], clock: IReactorTime
) -> None:
    """
    Handle a request and those in its body, and answer.

    :param handle: raises :class:`~twisted_exec.api.status.APIError` to refuse a request.
    :raises APIError: ``handle`` refuses the first request, or the body is not valid; nothing has
        been answered.
    """
    further = further_requests(request)
    handle(request)
    answer: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "status": "Success"}
    if further:
        answer["details"] = {"done": await _handle_all(further, handle, clock)}
    respond_json(request, 200, answer)


async def _handle_all(
    requests: Sequence[FurtherRequest],
    handle: Callable[[FurtherRequest], object],
    clock: IReactorTime,
) -> list[int]:
    done: list[int] = []
    turns = ShortTurns(clock, is_urgent=True)
    for index, each in enumerate(requests):
        await turns.breathe()
        try:
            handle(each)
        except APIError:
            continue  # the hop before ours asks again, and gets the refusal
        done.append(index)
    return done
