"""
Asking the next hop for an upgrade.

twisted.web's ``Agent`` cannot: it drops a 101.  So the request goes out through
h11 on any endpoint, and after the 101 the connection is handed to the caller's
protocol, with every byte that came behind the head.

Anything but the upgrade that was asked for ends the connection: a backend
connection that outlives a refusal would be an open, privileged pipe
(CVE-2018-1002105), and a redirect that is followed carries credentials away
(CVE-2020-8559).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import h11
from twisted.internet import defer, error
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IProtocol, IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from twisted_exec.api.status import (
    APIError,
    BadGateway,
    BadRequest,
    GatewayTimeout,
    ServiceUnavailable,
    from_code,
    from_status,
    one_line,
)
from twisted_exec.streaming.flow import swap_protocol
from twisted_exec.wire.upgrade import requested_upgrade

MAX_HEAD_BYTES = 64 << 10
MAX_ERROR_BYTES = 64 << 10
"""Of a refusal's body; the rest is not read."""


@dataclass(frozen=True)
class UpgradeRequest:
    """
    What to send.

    :param path: with its query.
    :param headers: all but ``Host``; those of the upgrade itself included.
    """

    method: bytes
    path: bytes
    host: bytes
    headers: Sequence[tuple[bytes, bytes]] = field(default_factory=tuple)


class UpgradeRefused(Exception):
    """
    The peer answered, and not with the upgrade.

    :ivar body: at most :data:`MAX_ERROR_BYTES`.
    """

    def __init__(self, code: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        super().__init__(f"the upgrade was refused with status code {code}")
        self.code, self.headers, self.body = code, headers, body

    def as_api_error(self) -> APIError:
        """
        The refusal as this side tells it on.

        A Status is passed on with its code, a text is wrapped into one.  What
        is no error (a redirect, a 200) becomes 502 and names the code only.
        """
        if self.code < 400:
            return BadGateway(f"invalid upgrade response: status code {self.code}")
        told = self.status() or from_code(self.code, self._text())
        if told.code != self.code:  # a Status that lies about its own answer
            told = APIError(told.message, code=self.code, reason=told.reason)
        retry = {name.lower(): value for name, value in self.headers}.get(b"retry-after", b"")
        if told.retry_after_seconds is None and retry.isdigit() and len(retry) < 6:
            told.retry_after_seconds = int(retry)
        return told

    def status(self) -> APIError | None:
        """The Status that the peer answered, if it was one."""
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
    """
    A connection after its 101, paused.

    :ivar headers: those of the 101.
    """

    def __init__(self, asking: Asking, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._asking, self.headers = asking, headers

    def hand_over(self, protocol: IProtocol) -> None:
        """
        Give the connection to ``protocol`` and let it run.

        What came behind the 101 follows ``makeConnection`` at once; so does the
        end, if the connection was lost meanwhile.
        """
        self._asking.hand_over(protocol)

    def abort(self) -> None:
        """Nobody takes it."""
        self._asking.abort()


class Asking(Protocol):
    """
    Sends the request and waits for the answer; afterwards keeps what comes early.

    What is asked for here is an upgrade; :mod:`~twisted_exec.streaming.text.download` asks for
    something else.

    :cvar asked: what is sent, for messages.
    """

    asked = "upgrade request"
    transport: Any
    lost: Failure | None = None

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._answered: Deferred[Any] | None = None
        self._refusal: h11.Response | None = None
        self._body = b""
        self._early: list[bytes] = []
        self._wanted = b""

    def ask(self, head: UpgradeRequest) -> Deferred[Any]:
        """
        Send ``head``; fires or fails as :func:`upgrade`, but has no time limit.

        :raises BadRequest: HTTP cannot carry it; the connection is closed.
        """
        headers = [(b"Host", head.host), *head.headers]
        try:
            request = h11.Request(method=head.method, target=head.path, headers=headers)
        except h11.LocalProtocolError:
            self.abort()
            raise BadRequest("a header of the request cannot be passed on") from None
        self._answered = Deferred(self._cancelled)
        self._wanted = requested_upgrade(head.headers)
        data = self._http.send(request) + self._http.send(h11.EndOfMessage())
        answered = self._answered
        if self.lost is not None:
            self._fail(BadGateway("the connection was closed before the request was sent"))
        else:
            self.transport.write(data)
        return answered

    def _cancelled(self, answered: Deferred[Any]) -> None:
        self._answered = None  # the abort below is no answer
        self.abort()

    def late(self, seconds: float) -> None:
        """The time is over: a refusal whose body dawdles is still one."""
        if self._refusal is not None:
            self._refuse()
        else:
            self._fail(GatewayTimeout(f"no answer to the {self.asked} within {seconds:g} s"))

    def dataReceived(self, data: bytes) -> None:
        if self._http.our_state is h11.IDLE:
            self.abort()  # it speaks first: whatever it is, it is no HTTP server
        elif self._answered is None:
            # After the answer nobody takes these bytes but the next protocol;
            # a TLS layer delivers what it has already read in spite of the pause.
            self._early.append(data)
        else:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            while self._answered is not None and self._next(self._http.next_event()):
                pass
        except h11.RemoteProtocolError:
            self._broken(f"the answer to the {self.asked} is not HTTP")

    def _next(self, event: Any) -> bool:
        """Take one event of h11's; whether to ask for another."""
        if event is h11.NEED_DATA:
            return False
        if isinstance(event, h11.InformationalResponse) and event.status_code == 101:
            self._switch(event)
        elif isinstance(event, h11.Response):
            self._refusal = event
        elif isinstance(event, h11.Data):
            self._body += event.data[: MAX_ERROR_BYTES - len(self._body)]
            if len(self._body) == MAX_ERROR_BYTES:
                self._refuse()
        elif isinstance(event, h11.EndOfMessage):
            self._refuse()
        return True

    def _switch(self, event: h11.InformationalResponse) -> None:
        headers = event.headers.raw_items()
        if requested_upgrade(headers) != self._wanted:
            self._fail(BadGateway("the upgrade was answered with another protocol"))
            return
        self.transport.pauseProducing()
        trailing, _ = self._http.trailing_data
        if trailing:
            self._early.append(bytes(trailing))
        answered, self._answered = self._answered, None
        assert answered is not None
        answered.callback(Upgraded(self, headers))

    def hand_over(self, protocol: IProtocol) -> None:
        """See :meth:`Upgraded.hand_over`."""
        early, self._early = b"".join(self._early), []
        if self.lost is None:
            swap_protocol(self.transport, protocol)
            self.transport.resumeProducing()
        protocol.makeConnection(self.transport)
        if early:
            protocol.dataReceived(early)
        if self.lost is not None:
            protocol.connectionLost(self.lost)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = reason
        self._broken(f"the connection was closed before the {self.asked} was answered")

    def _broken(self, why: str) -> None:
        if self._refusal is not None:
            self._refuse()  # with the part of the body that came
        else:
            self._fail(BadGateway(why))

    def _refuse(self) -> None:
        assert self._refusal is not None
        answer = self._refusal
        self._fail(UpgradeRefused(answer.status_code, answer.headers.raw_items(), self._body))

    def _fail(self, problem: Exception) -> None:
        answered, self._answered = self._answered, None
        self.abort()
        if answered is not None and not answered.called:
            answered.errback(problem)

    def abort(self) -> None:
        """Close for good; nothing of ours is worth a flush."""
        if self.lost is None and self.transport is not None:
            self.transport.abortConnection()


class AskingFactory(Factory):
    """Of connections that ask for something, by default for an upgrade."""

    noisy = False  # one line per session is the audit's business
    protocol: type[Asking] = Asking


_FACTORY = AskingFactory()


async def connect(
    endpoint: IStreamClientEndpoint,
    *,
    clock: IReactorTime,
    timeout_seconds: float,
    factory: AskingFactory = _FACTORY,
) -> Asking:
    """
    Connect, TLS included, without sending anything yet.

    :param factory: of what is to be asked.
    :raises BadGateway: nobody listens, or it is not whom we trust.
    :raises GatewayTimeout: nobody answered in time.
    """
    connecting: Deferred[Any] = endpoint.connect(factory)
    connecting.addTimeout(timeout_seconds, clock)
    try:
        connection: Asking = await connecting
    except (defer.TimeoutError, error.TimeoutError):
        raise GatewayTimeout(f"no connection within {timeout_seconds:g} s") from None
    except CancelledError:
        raise
    except Exception as problem:  # endpoints fail with whatever their layers raise
        raise BadGateway(_why(problem)) from None
    return connection


async def connect_first(
    endpoints: Iterable[tuple[str, IStreamClientEndpoint]],
    *,
    clock: IReactorTime,
    timeout_seconds: float,
    factory: AskingFactory = _FACTORY,
) -> tuple[str, Asking]:
    """
    The first of several that lets us connect, with its label.

    :param endpoints: with labels for messages.
    :param timeout_seconds: for each.
    :raises BadGateway: none does; it says why of each.
    :raises GatewayTimeout: none answered in time.
    :raises ServiceUnavailable: there are none.
    """
    problems: list[tuple[str, APIError]] = []
    for label, endpoint in endpoints:
        try:
            return label, await connect(
                endpoint, clock=clock, timeout_seconds=timeout_seconds, factory=factory
            )
        except APIError as error:
            problems.append((label, error))
    if not problems:
        raise ServiceUnavailable("there is no usable address to reach it")
    told = "; ".join(f"{label}: {error.message}" for label, error in problems)
    if all(isinstance(error, GatewayTimeout) for _, error in problems):
        raise GatewayTimeout(f"cannot connect to {told}")
    raise BadGateway(f"cannot connect to {told}")


async def ask(
    connection: Asking,
    head: UpgradeRequest,
    *,
    clock: IReactorTime,
    timeout_seconds: float | None,
) -> Upgraded:
    """
    Send the request on a connection from :func:`connect`.

    :param timeout_seconds: ``None``: the answer may take as long as it takes.
    :raises UpgradeRefused: any answer but a 101.
    :raises APIError: 502 for what is no answer, 504 for none in time.
    """
    answered = connection.ask(head)
    timer = None
    if timeout_seconds is not None:
        timer = clock.callLater(timeout_seconds, connection.late, timeout_seconds)
    try:
        upgraded: Upgraded = await answered
        return upgraded
    finally:
        if timer is not None and timer.active():
            timer.cancel()


def upgrade(
    endpoint: IStreamClientEndpoint,
    head: UpgradeRequest,
    *,
    clock: IReactorTime,
    timeout_seconds: float,
    connect_seconds: float | None = None,
) -> Deferred[Upgraded]:
    """
    Connect and ask for an upgrade.

    Cancelling closes the connection.

    :param timeout_seconds: for the answer, and unless ``connect_seconds`` is
        given for connecting as well.
    :return: fires with the connection after its 101; fails with
        :class:`UpgradeRefused`, or an
        :class:`~twisted_exec.api.status.APIError` (502, 504).
    """

    async def both() -> Upgraded:
        connection = await connect(
            endpoint, clock=clock, timeout_seconds=connect_seconds or timeout_seconds
        )
        return await ask(connection, head, clock=clock, timeout_seconds=timeout_seconds)

    return Deferred.fromCoroutine(both())


_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (error.ConnectionRefusedError, "connection refused"),
    (error.DNSLookupError, "its name is not known"),
    (error.NoRouteError, "no route to it"),
    (error.ConnectionDone, "it closed the connection"),
)


def _why(problem: Exception) -> str:
    for kind, words in _WORDS:
        if isinstance(problem, kind):
            return words
    lines = str(problem).splitlines()
    return lines[0] if lines else type(problem).__name__
