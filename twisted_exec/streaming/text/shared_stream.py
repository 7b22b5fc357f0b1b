"""
One request on a shared connection, and its response.

It replaces a connection of :mod:`~twisted_exec.streaming.text.download`, with the same behaviour
for callers: the same checks and limits, and a truncated response never counts as complete.  Where a
connection would be closed the stream is reset.

For a paused reader one window (:data:`WINDOW`) is buffered and not replenished: the sender of this
stream waits, without effect on others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import h11
from twisted.internet.defer import Deferred

from twisted_exec.api.status import BadGateway, BadRequest, GatewayTimeout
from twisted_exec.streaming.http.upgrade_client import (
    MAX_ERROR_BYTES,
    UpgradeRefused,
    UpgradeRequest,
)
from twisted_exec.streaming.text.download import Download, is_text

WINDOW = 65535
"""Initial flow-control window of a stream in bytes: HTTP/2's default."""

Headers = Sequence[tuple[bytes, bytes]]


class Shared(Protocol):
    """The connection, as its streams see it."""

    def open(self, stream: SharedStream, headers: Headers) -> bool:
        """Send a request; false if the connection takes no more."""

    def widen(self, stream: SharedStream, size: int) -> None:
        """Replenish the window by the number of bytes consumed."""

    def leave(self, stream: SharedStream) -> None:
        """Discard the rest of the response.  Repeated calls do nothing."""


class SharedStream:
    """
    A reserved stream of a connection; then a request, and its response.

    See :class:`~twisted_exec.streaming.http.upgrade_client.Asking` for the request, and
    :class:`~twisted_exec.streaming.text.download.Download` for the response.

    :ivar number: stream number, once the request is sent.
    """

    __slots__ = (
        "_answered",
        "_buffered",
        "_connection",
        "_ended",
        "_flowing",
        "_left",
        "_receiver",
        "_refusal",
        "_taken",
        "number",
    )

    def __init__(self, connection: Shared) -> None:
        self._connection = connection
        self.number = 0
        self._answered: Deferred[Download] | None = None
        self._refusal: tuple[int, Headers] | None = None
        self._receiver: tuple[Callable[[bytes], None], Callable[[bool], None]] | None = None
        self._buffered: bytearray | None = (
            None  # allocated on demand: most followed logs are silent
        )
        self._ended: bool | None = None  # whether the response is complete, once it has ended
        self._taken = 0  # bytes consumed and not yet replenished
        self._flowing = True
        self._left = False

    def ask(self, head: UpgradeRequest) -> Deferred[Download]:
        """
        Send a request; as :meth:`Asking.ask`.

        :raises BadRequest: HTTP cannot encode it.
        """
        try:
            headers = _headers(head)
        except h11.LocalProtocolError:
            self.leave()
            raise BadRequest("a header of the request cannot be passed on") from None
        answered = self._answered = Deferred(self._cancelled)
        if self._left or not self._connection.open(self, headers):
            self._fail(BadGateway("the connection was closed before the request was sent"))
        return answered

    def _cancelled(self, answered: Deferred[Download]) -> None:
        self._answered = None
        self.leave()

    def late(self, seconds: float) -> None:
        """Fail after the time limit; a refusal whose body is incomplete still counts."""
        if self._refusal is not None:
            self._refuse()
        else:
            self._fail(GatewayTimeout(f"no answer to the request within {seconds:g} s"))

    def abort(self) -> None:
        """Discard the response, or the rest of it."""
        self.leave()

    # Received

    def head_came(self, headers: Headers) -> None:
        """The head of the response, with its ``:status``."""
        answered = self._answered
        if answered is None:
            return
        status_text = dict(headers).get(b":status", b"")
        status = int(status_text) if len(status_text) == 3 and status_text.isdigit() else 0
        plain = [(name, value) for name, value in headers if not name.startswith(b":")]
        if is_text(status, plain):
            self._answered = None
            answered.callback(Download(self))
        else:
            self._refusal = status, plain

    def data_came(self, data: bytes, size: int) -> None:
        """
        A piece of the body.

        :param size: bytes of the window that it used, including padding.
        """
        if self._left:
            return
        if self._receiver is not None and self._flowing and data and not self._buffered:
            self._receiver[0](data)  # nothing is buffered before it: deliver without a copy
            self._took(size)
            return
        if self._buffered is None:
            self._buffered = bytearray()
        if self._refusal is None:
            self._buffered += data
            self._took(size - len(data))
            self._pass_on()
            return
        self._buffered += data[: MAX_ERROR_BYTES - len(self._buffered)]
        self._took(size)
        if len(self._buffered) == MAX_ERROR_BYTES:
            self._refuse()

    def end_came(self, complete: bool) -> None:
        """The response has ended."""
        self._ended = complete
        if self._refusal is not None:
            self._refuse()  # with the part of the body that arrived
        elif self._answered is not None:
            self._fail(BadGateway("the connection was closed before the request was answered"))
        else:
            self._pass_on()

    # Called by the receiver

    def deliver(self, data: Callable[[bytes], None], ended: Callable[[bool], None]) -> None:
        """See :meth:`Download.deliver`."""
        if not self._left:
            self._receiver = data, ended
            self._pass_on()

    def flow(self, flowing: bool) -> None:
        """Pause or resume."""
        self._flowing = flowing
        self._pass_on()

    def leave(self) -> None:
        """See :meth:`Download.abort`."""
        self._left, self._receiver, self._buffered = True, None, None
        self._connection.leave(self)

    def _pass_on(self) -> None:
        """Deliver what is buffered, and the end behind it, unless the receiver has paused."""
        while self._buffered and self._flowing and self._receiver is not None:
            data, self._buffered = bytes(self._buffered), None
            self._receiver[0](data)
            self._took(len(data))
        if self._ended is None or self._buffered or not self._flowing or self._receiver is None:
            return
        ended = self._receiver[1]
        self.leave()
        ended(self._ended)

    def _took(self, size: int) -> None:
        self._taken += size
        if self._taken > WINDOW // 2 and self._ended is None and not self._left:
            consumed, self._taken = self._taken, 0
            self._connection.widen(self, consumed)

    def _refuse(self) -> None:
        assert self._refusal is not None
        self._fail(UpgradeRefused(*self._refusal, bytes(self._buffered or b"")))

    def _fail(self, problem: Exception) -> None:
        answered, self._answered = self._answered, None
        self.leave()
        if answered is not None and not answered.called:
            answered.errback(problem)


def _headers(head: UpgradeRequest) -> Headers:
    """
    Encode a request for HTTP/2 (RFC 9113, §8.3.1).

    The rules for valid values are those of HTTP/1.1, so that both carry the same requests.

    :raises h11.LocalProtocolError: it is not valid.
    """
    checked = h11.Request(
        method=head.method, target=head.path, headers=[(b"Host", head.host), *head.headers]
    )
    return [
        (b":method", bytes(checked.method)),
        (b":scheme", b"https"),
        (b":authority", head.host),
        (b":path", bytes(checked.target)),
        *((name, value) for name, value in checked.headers if name != b"host"),
    ]
