"""
Client of an HTTP upgrade, for the next hop.

twisted.web's ``Agent`` drops a 101.  Here the caller's protocol gets the connection after it, with
every byte behind the head.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import h11
from twisted.internet import error
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import (
    IProtocol,
    IReactorTime,
    ISSLTransport,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from twisted_exec.api.obstacles import Obstacle, because, because_of_all
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    BadRequest,
    GatewayTimeout,
    ServiceUnavailable,
    from_code,
    from_status,
    message_of,
    one_line,
)
from twisted_exec.streaming.transports import swap_protocol, unread
from twisted_exec.tls.deadlines import Deadline, Late, Progress, limited
from twisted_exec.tls.endpoints import ISparingEndpoint
from twisted_exec.tls.errors import (
    HandshakeCancelled,
    HandshakeTimeout,
    TLSError,
    unanswered_handshake,
)
from twisted_exec.wire import plain_http
from twisted_exec.wire.upgrade import MISDIRECTED, SESSIONS_HEADER, last_value, requested_upgrade

MAX_HEAD_BYTES = 64 << 10
MAX_ERROR_BYTES = 64 << 10
"""Limit for the body of a refusal; the rest is not read."""

RETRY_SECONDS = 10
"""When a client may try again after a shortage of descriptors or ports."""


@dataclass(frozen=True)
class UpgradeRequest:
    """
    An upgrade request.

    :param headers: all but ``Host`` and the ``Content-Length`` of ``body``.
    """

    method: bytes
    path: bytes
    host: bytes
    headers: Sequence[tuple[bytes, bytes]] = field(default_factory=tuple)
    body: bytes = b""


class HopSigns:
    """
    Signs of life of one next hop, which its requests share.

    :ivar life: complete TLS handshakes, and answers.
    """

    def __init__(self, clock: IReactorTime, of: Progress | None = None) -> None:
        self.life = Progress(clock, of)
        self.answers = Progress(clock, self.life)


class Signs:
    """Signs of life of the next hops of one program."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock, self.life = clock, Progress(clock)
        # Signs are of use only while a request waits.
        self._hops: WeakValueDictionary[str, HopSigns] = WeakValueDictionary()

    def of(self, label: str) -> HopSigns:
        """
        Return the signs of the hop with this label; the caller keeps them while its request waits.
        """
        signs = self._hops.get(label)
        if signs is None:
            signs = self._hops[label] = HopSigns(self._clock, self.life)
        return signs


class UpgradeRefused(Exception):
    """
    The peer's response is not the upgrade.

    :ivar body: the first :data:`MAX_ERROR_BYTES` of its body.
    :ivar label: of the peer, if :func:`ask_first` has sent the request.
    """

    label = ""

    def __init__(self, code: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        super().__init__(f"the upgrade was refused with status code {code}")
        self.code, self.headers, self.body = code, headers, body

    def as_api_error(self) -> APIError:
        """
        Convert the refusal to an error for our client; responses that are no errors become 502.
        """
        # To follow a redirect would send credentials elsewhere (CVE-2020-8559).
        if self.code < 400:
            return BadGateway(f"invalid upgrade response: status code {self.code}")
        error = self.status() or from_code(self.code, self._text())
        if error.code != self.code:  # the Status contradicts its own response
            error = APIError(error.message, code=self.code, reason=error.reason)
        retry = {name.lower(): value for name, value in self.headers}.get(b"retry-after", b"")
        if error.retry_after_seconds is None and retry.isdigit() and len(retry) < 6:
            error.retry_after_seconds = int(retry)
        return error

    def status(self) -> APIError | None:
        """Return the Status in the body, or ``None``."""
        try:
            status = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        if not isinstance(status, dict) or status.get("kind") != "Status":
            return None
        return from_status(status, self.code)

    def _text(self) -> str:
        return one_line(self.body.decode("utf-8", "replace")) or f"the server answered {self.code}"


class Upgraded:
    """A connection after its 101, paused."""

    def __init__(self, asking: Asking, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._asking, self.headers = asking, headers

    @property
    def transport(self) -> object:
        return self._asking.transport

    def hand_over(self, protocol: IProtocol) -> None:
        """
        Give the connection to ``protocol`` and resume it; bytes that followed the 101 come first.
        """
        self._asking.hand_over(protocol)

    def abort(self) -> None:
        self._asking.abort()


class Asking(Protocol):
    """Sends the request, waits for the response, and afterwards buffers early bytes."""

    request_noun = "upgrade request"
    transport: Any
    lost: Failure | None = None
    sparing: ISparingEndpoint | None = None  # keeps the connection after the session

    def __init__(self) -> None:
        self._is_asked = False
        self._request: UpgradeRequest | None = None  # h11 does not know it yet
        self._answered: Deferred[Any] | None = None
        self._refusal: h11.Response | None = None
        self._body = b""
        self._early: list[bytes] = []
        self._wanted = b""

    def ask(self, head: UpgradeRequest) -> Deferred[Any]:
        """
        Send ``head``; fires or fails as :func:`upgrade`, without a time limit.

        :raises BadRequest: HTTP cannot encode it.
        """
        self._wanted = requested_upgrade(head.headers)
        if (
            self.sparing is not None
            and self._wanted
            and (value := self.sparing.offer(self.transport))
        ):
            head = replace(head, headers=[*head.headers, (SESSIONS_HEADER, value)])
        headers = [(b"Host", head.host), *head.headers]
        data = plain_http.request(head.method, head.path, headers, head.body)
        if data is not None:
            self._request = head
        else:
            try:
                data = _send(self._http, head)
            except h11.LocalProtocolError:
                self.abort()
                raise BadRequest("a header of the request cannot be passed on") from None
        self._is_asked = True
        self._answered = Deferred(self._cancelled)
        answered = self._answered
        if self.lost is not None:
            closed = BadGateway("the connection was closed before the request was sent")
            self._fail(because(Obstacle.CONNECTION_LOST, closed))
        else:
            self.transport.write(data)
        return answered

    @cached_property
    def _http(self) -> h11.Connection:
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        request, self._request = self._request, None
        if request is not None:
            _send(http, request)
        return http

    def _cancelled(self, answered: Deferred[Any]) -> None:
        self._answered = None  # so that the abort below does not fire it
        self.abort()

    def late(self, seconds: float) -> None:
        """Fail after the time limit; a refusal whose body is incomplete still counts."""
        if self._refusal is not None:
            self._refuse()
        else:
            why = f"no answer to the {self.request_noun} within {seconds:g} s"
            self._fail(because(Obstacle.NO_ANSWER, GatewayTimeout(why)))

    def dataReceived(self, data: bytes) -> None:
        if not self._is_asked:
            self.abort()  # it sent bytes before our request: not an HTTP server
        elif self._answered is None:
            # Keep these bytes for the next protocol: a TLS layer delivers what it has already
            # read in spite of the pause.
            self._early.append(data)
        else:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        if "_http" not in self.__dict__:
            answer = plain_http.answer(data)
            if answer is not None and self._take_plain(answer):
                return
        try:
            self._http.receive_data(data)
            while self._answered is not None and self._next(self._http.next_event()):
                pass
        except h11.RemoteProtocolError:
            why = f"the answer to the {self.request_noun} is not HTTP"
            self._broken(because(Obstacle.NO_HTTP, BadGateway(why)))

    def _take_plain(self, answer: plain_http.PlainAnswer) -> bool:
        if answer.code != 101 or not self._wanted:
            return False
        self._switch(answer.headers, answer.rest)
        return True

    def _next(self, event: Any) -> bool:
        if event is h11.NEED_DATA:
            return False
        # Other 1xx responses precede the final one (RFC 9110, section 15.2).
        if isinstance(event, h11.InformationalResponse) and event.status_code == 101:
            self._switch(event.headers.raw_items(), bytes(self._http.trailing_data[0]))
        elif isinstance(event, h11.Response):
            self._refusal = event
        elif isinstance(event, h11.Data):
            self._body += event.data[: MAX_ERROR_BYTES - len(self._body)]
            if len(self._body) == MAX_ERROR_BYTES:
                self._refuse()
        elif isinstance(event, h11.EndOfMessage):
            self._refuse()
        return True

    def _switch(self, headers: Sequence[tuple[bytes, bytes]], trailing: bytes) -> None:
        if requested_upgrade(headers) != self._wanted:
            self._fail(BadGateway("the upgrade was answered with another protocol"))
            return
        self._request = None
        self.transport.pauseProducing()
        if self.sparing is not None and (accepted := last_value(headers, SESSIONS_HEADER)):
            trailing = self.sparing.carry(self.transport, accepted, trailing)
        if trailing:
            self._early.append(trailing)
        answered, self._answered = self._answered, None
        assert answered is not None
        answered.callback(Upgraded(self, headers))

    def hand_over(self, protocol: IProtocol) -> None:
        early, self._early = b"".join(self._early), []
        if self.lost is None:
            swap_protocol(self.transport, protocol)
            self.transport.resumeProducing()
        protocol.makeConnection(self.transport)
        if early and self.lost is None:
            unread(self.transport, protocol, early)
        elif early:
            protocol.dataReceived(early)
        if self.lost is not None:
            protocol.connectionLost(self.lost)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = reason
        why = f"the connection was closed before the {self.request_noun} was answered"
        self._broken(because(Obstacle.CONNECTION_LOST, BadGateway(why)))

    def _broken(self, error: APIError) -> None:
        if self._refusal is not None:
            self._refuse()  # with the part of the body that arrived
        else:
            self._fail(error)

    def _refuse(self) -> None:
        assert self._refusal is not None
        answer = self._refusal
        self._fail(UpgradeRefused(answer.status_code, answer.headers.raw_items(), self._body))

    def _fail(self, problem: Exception) -> None:
        answered, self._answered = self._answered, None
        # A connection that survives a refusal would be an open, privileged pipe (CVE-2018-1002105).
        self.abort()
        if answered is not None and not answered.called:
            answered.errback(problem)

    def abort(self) -> None:
        if self.lost is None and self.transport is not None:
            self.transport.abortConnection()


def _send(http: h11.Connection, head: UpgradeRequest) -> bytes:
    headers = [(b"Host", head.host), *head.headers]
    if head.body:
        headers.append((b"Content-Length", b"%d" % len(head.body)))
    data = http.send(h11.Request(method=head.method, target=head.path, headers=headers)) or b""
    if head.body:
        data += http.send(h11.Data(data=head.body)) or b""
    return data + (http.send(h11.EndOfMessage()) or b"")


class AskingFactory(Factory):
    """Makes :class:`Asking` connections, by default for an upgrade."""

    noisy = False  # the audit log has one line per session
    protocol: type[Asking] = Asking


_FACTORY = AskingFactory()


async def connect(
    endpoint: IStreamClientEndpoint,
    *,
    clock: IReactorTime,
    timeout_seconds: float,
    factory: AskingFactory = _FACTORY,
    signs: HopSigns | None = None,
) -> Asking:
    """
    Connect, TLS included, without sending a request.

    :param timeout_seconds: counted from the last sign of life of the hop.
    :raises BadGateway: the connection or the verification of the peer failed.
    :raises GatewayTimeout: no connection in time.
    :raises ServiceUnavailable: this process has no free descriptor or port.
    """
    life = () if signs is None else (signs.life,)
    connecting: Deferred[Any] = endpoint.connect(factory)
    try:
        connection: Asking = await limited(connecting, clock, timeout_seconds, life)
    except Late as late:
        raise _too_late(late.seconds, late.__cause__) from None
    except error.TimeoutError as problem:
        raise _too_late(timeout_seconds, problem) from None
    except CancelledError:
        raise
    except Exception as problem:  # endpoints fail with the exceptions of all their layers
        if shortage := _shortage(problem):
            raise ServiceUnavailable(shortage, retry_after_seconds=RETRY_SECONDS) from None
        unreached = BadGateway(connection_problem(problem))
        raise because(connection_obstacle(problem), unreached) from None
    # Other connections are made by the hop's kernel, also while the hop is stopped.
    if signs is not None and ISSLTransport.providedBy(connection.transport):
        signs.life.note()
    return connection


def _too_late(seconds: float, problem: BaseException | None) -> APIError:
    if isinstance(problem, (HandshakeCancelled, HandshakeTimeout)):
        return because(Obstacle.NO_ANSWER, GatewayTimeout(unanswered_handshake(seconds)))
    late = GatewayTimeout(f"no connection within {seconds:g} s")
    return because(Obstacle.CONNECT_TIMEOUT, late)


async def connect_first(
    endpoints: Iterable[tuple[str, IStreamClientEndpoint]],
    *,
    clock: IReactorTime,
    timeout_seconds: float,
    factory: AskingFactory = _FACTORY,
    signs: Signs | None = None,
) -> tuple[str, Asking]:
    """
    Connect to the first endpoint that accepts; return its label and the connection.

    :raises BadGateway: none accepts; with the reason for each.
    :raises GatewayTimeout: none accepts in time.
    :raises ServiceUnavailable: there are no endpoints, or this process has no free descriptor or
        port for any.
    """
    problems: list[tuple[str, APIError]] = []
    for label, endpoint in endpoints:
        try:
            return label, await connect(
                endpoint,
                clock=clock,
                timeout_seconds=timeout_seconds,
                factory=factory,
                signs=None if signs is None else signs.of(label),
            )
        except APIError as error:
            problems.append((label, error))
    if not problems:
        raise ServiceUnavailable("there is no usable address to reach it")
    reasons = "; ".join(f"{label}: {error.message}" for label, error in problems)
    message = f"cannot connect to {reasons}"
    if all(isinstance(error, ServiceUnavailable) for _, error in problems):
        raise ServiceUnavailable(message, retry_after_seconds=RETRY_SECONDS)
    is_late = all(isinstance(error, GatewayTimeout) for _, error in problems)
    unreached = GatewayTimeout(message) if is_late else BadGateway(message)
    raise because_of_all(problems, unreached)


async def ask(
    connection: Asking,
    head: UpgradeRequest,
    *,
    clock: IReactorTime,
    timeout_seconds: float | None,
    signs: HopSigns | None = None,
) -> Any:
    """
    Send the request on a connection from :func:`connect`.

    :param timeout_seconds: counted from the last answer of the hop; ``None`` for no limit.
    :return: what the factory of the connection is for: an :class:`Upgraded` by default.
    :raises UpgradeRefused: the hop refuses.
    :raises APIError: the request cannot be sent, or has no valid answer in time.
    """
    answered = connection.ask(head)
    deadline = None
    if timeout_seconds is not None:
        answers = () if signs is None else (signs.answers,)
        deadline = Deadline(clock, timeout_seconds, connection.late, answers)
    try:
        answer = await answered
        if signs is not None:
            signs.answers.note()
        return answer
    except UpgradeRefused:
        if signs is not None:
            signs.answers.note()
        raise
    finally:
        if deadline is not None:
            deadline.cancel()


async def ask_first(
    endpoints: Iterable[tuple[str, IStreamClientEndpoint]],
    head: UpgradeRequest,
    *,
    clock: IReactorTime,
    connect_seconds: float,
    answer_seconds: float | None,
    factory: AskingFactory = _FACTORY,
    signs: Signs | None = None,
    spares: bool = False,
) -> tuple[str, Any]:
    """
    Send the request to the first endpoint that accepts connections; return its label and the
    answer.

    :param spares: take a spare connection first, and make another spare connection after the
        answer.
    :raises UpgradeRefused: as :func:`ask`; it has the label.
    :raises APIError: as :func:`connect_first` and :func:`ask`.
    """
    places = list(endpoints)

    async def at(label: str, connection: Asking) -> tuple[str, Any]:
        hop = None if signs is None else signs.of(label)
        endpoint = dict(places)[label]
        if spares and ISparingEndpoint.providedBy(endpoint):
            connection.sparing = endpoint
        try:
            answer = await ask(
                connection, head, clock=clock, timeout_seconds=answer_seconds, signs=hop
            )
        except UpgradeRefused as refused:
            refused.label = label
            raise
        except APIError as error:
            message = f"{label}: {error.message}"
            raise APIError(
                message, code=error.code, reason=error.reason, details=error.details
            ) from None
        if connection.sparing is not None:
            connection.sparing.replenish()
        return label, answer

    for label, endpoint in places if spares else ():
        spare = endpoint.take(factory) if ISparingEndpoint.providedBy(endpoint) else None
        if spare is None:
            continue
        try:
            return await at(label, spare)
        except UpgradeRefused as refused:
            # Only this answer says that the peer, which closed the connection, has handled no request.
            if refused.code != MISDIRECTED:
                raise
    label, connection = await connect_first(
        places, clock=clock, timeout_seconds=connect_seconds, factory=factory, signs=signs
    )
    return await at(label, connection)


def upgrade(
    endpoint: IStreamClientEndpoint,
    head: UpgradeRequest,
    *,
    clock: IReactorTime,
    timeout_seconds: float,
    meanwhile: Callable[[], None] = lambda: None,
    left: Callable[[Upgraded], Awaitable[None]] | None = None,
) -> Deferred[Upgraded]:
    """
    Connect and request an upgrade.

    :param timeout_seconds: for connecting, and again for the response.
    :param left: ends in order what a 101 has opened after the Deferred was cancelled, which fires
        behind that; cancelling once more aborts. Without it cancelling aborts at once.
    :return: fires after a 101; fails with :class:`UpgradeRefused`, or an
        :class:`~twisted_exec.api.status.APIError`.
    """

    async def both() -> Upgraded:
        connection = await connect(endpoint, clock=clock, timeout_seconds=timeout_seconds)
        asking: Deferred[Upgraded] = Deferred.fromCoroutine(
            ask(connection, head, clock=clock, timeout_seconds=timeout_seconds)
        )
        meanwhile()
        return await (asking if left is None else _or_leave(asking, left))

    return Deferred.fromCoroutine(both())


async def _or_leave(
    asking: Deferred[Upgraded], left: Callable[[Upgraded], Awaitable[None]]
) -> Upgraded:
    answer: Deferred[Upgraded] = Deferred()  # cancelling it does not cancel the request

    def answered(result: Any) -> Any:
        if answer.called:
            return result
        answer.callback(result)
        return None

    asking.addBoth(answered)
    try:
        return await answer
    except CancelledError:
        with suppress(UpgradeRefused, APIError):
            await left(await asking)
        raise


_WORDS: tuple[tuple[type[Exception], str, Obstacle], ...] = (
    (error.ConnectionRefusedError, "connection refused", Obstacle.CONNECTION_REFUSED),
    (error.DNSLookupError, "its name is not known", Obstacle.NAME_UNKNOWN),
    (error.NoRouteError, "no route to it", Obstacle.NO_ROUTE),
    (error.ConnectionDone, "it closed the connection", Obstacle.CONNECTION_LOST),
)


_SHORTAGES = {
    errno.EMFILE: "no file descriptor is free: raise the limit (LimitNOFILE= of systemd, ulimit -n)",
    errno.ENFILE: "no file descriptor of the host is free (fs.file-max)",
    errno.EADDRNOTAVAIL: "no local port is free for it (net.ipv4.ip_local_port_range)",
}


def _shortage(problem: BaseException) -> str:
    """Return what this process or its host lacks for a connection, or an empty string."""
    number: Any = None
    if isinstance(problem, error.ConnectError):
        number = problem.osError
    elif isinstance(problem, error.DNSLookupError):
        number = _descriptor_problem()  # without a descriptor the resolver finds no name
    return _SHORTAGES.get(number, "")


def _descriptor_problem() -> int | None:
    """Return the ``errno`` with which this process can open no file now, or ``None``."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as problem:
        return problem.errno
    return None


def connection_problem(problem: BaseException) -> str:
    """Return a few words for a lost connection, or one that was not made."""
    if shortage := _shortage(problem):
        return shortage
    for kind, words, _ in _WORDS:
        if isinstance(problem, kind):
            return words
    return message_of(problem)


def connection_obstacle(problem: BaseException) -> Obstacle | None:
    """Return the reason for programs of :func:`connection_problem`, if there is one."""
    if isinstance(problem, TLSError):
        return problem.obstacle
    if isinstance(problem, error.ConnectionLost):
        return Obstacle.CONNECTION_LOST
    return next((why for kind, _, why in _WORDS if isinstance(problem, kind)), None)
