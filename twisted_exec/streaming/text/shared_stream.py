"""
One request among many on a connection, and its answer.

It stands where a connection of :mod:`~twisted_exec.streaming.text.download` stands, and whoever asks
sees no difference: the same is a text, the same is a refusal, with the same limits, and what breaks
off is never taken for complete.  A stream is left where a connection would be closed.

What comes for a reader that has stopped is kept, one window of it (:data:`WINDOW`), and no more is
asked for: the sender of this stream waits, and nobody else does.
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
"""Bytes that a sender may send of one stream before any was taken: HTTP/2's own default."""

Headers = Sequence[tuple[bytes, bytes]]


class Shared(Protocol):
    """The connection, as one of its streams sees it."""

    def open(self, stream: SharedStream, headers: Headers) -> bool:
        """Send a request; ``False`` when the connection takes none any more."""

    def widen(self, stream: SharedStream, size: int) -> None:
        """So many bytes were taken: as many more may come."""

    def leave(self, stream: SharedStream) -> None:
        """Nobody wants the rest of it.  Repeated calls do nothing."""


class SharedStream:
    """
    A place on a connection, from when it is given away; then a request, and its answer.

    See :class:`~twisted_exec.streaming.http.upgrade_client.Asking` for what asks, and
    :class:`~twisted_exec.streaming.text.download.Download` for what takes.

    :ivar number: of the stream, once the request is sent.
    """

    __slots__ = (
        "_answered",
        "_connection",
        "_ended",
        "_flowing",
        "_held",
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
        self._held: bytearray | None = None  # most followers have nothing, and own nothing for it
        self._ended: bool | None = None  # whether it is complete, once no more comes
        self._taken = 0  # bytes that the sender has not been told of
        self._flowing = True
        self._left = False

    def ask(self, head: UpgradeRequest) -> Deferred[Download]:
        """
        Send a request; as :meth:`Asking.ask`.

        :raises BadRequest: HTTP cannot carry it.
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
        """The time is over: a refusal whose body dawdles is still one."""
        if self._refusal is not None:
            self._refuse()
        else:
            self._fail(GatewayTimeout(f"no answer to the request within {seconds:g} s"))

    def abort(self) -> None:
        """Nobody wants it, or the rest of it."""
        self.leave()

    # What comes.

    def head_came(self, headers: Headers) -> None:
        """The head of the answer, with its ``:status``."""
        answered = self._answered
        if answered is None:
            return
        told = dict(headers).get(b":status", b"")
        status = int(told) if len(told) == 3 and told.isdigit() else 0
        plain = [(name, value) for name, value in headers if not name.startswith(b":")]
        if is_text(status, plain):
            self._answered = None
            answered.callback(Download(self))
        else:
            self._refusal = status, plain

    def data_came(self, data: bytes, size: int) -> None:
        """
        A piece of the body.

        :param size: how much of the window it took, which padding adds to.
        """
        if self._left:
            return
        if self._receiver is not None and self._flowing and data and not self._held:
            self._receiver[0](data)  # nothing is before it: it is not copied
            self._took(size)
            return
        if self._held is None:
            self._held = bytearray()
        if self._refusal is None:
            self._held += data
            self._took(size - len(data))
            self._pass_on()
            return
        self._held += data[: MAX_ERROR_BYTES - len(self._held)]
        self._took(size)
        if len(self._held) == MAX_ERROR_BYTES:
            self._refuse()

    def end_came(self, complete: bool) -> None:
        """No more comes."""
        self._ended = complete
        if self._refusal is not None:
            self._refuse()  # with the part of the body that came
        elif self._answered is not None:
            self._fail(BadGateway("the connection was closed before the request was answered"))
        else:
            self._pass_on()

    # Who takes it.

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
        self._left, self._receiver, self._held = True, None, None
        self._connection.leave(self)

    def _pass_on(self) -> None:
        """Deliver what is held, and the end behind it, to who takes it and has not stopped."""
        while self._held and self._flowing and self._receiver is not None:
            data, self._held = bytes(self._held), None
            self._receiver[0](data)
            self._took(len(data))
        if self._ended is None or self._held or not self._flowing or self._receiver is None:
            return
        ended = self._receiver[1]
        self.leave()
        ended(self._ended)

    def _took(self, size: int) -> None:
        self._taken += size
        if self._taken > WINDOW // 2 and self._ended is None and not self._left:
            taken, self._taken = self._taken, 0
            self._connection.widen(self, taken)

    def _refuse(self) -> None:
        assert self._refusal is not None
        self._fail(UpgradeRefused(*self._refusal, bytes(self._held or b"")))

    def _fail(self, problem: Exception) -> None:
        answered, self._answered = self._answered, None
        self.leave()
        if answered is not None and not answered.called:
            answered.errback(problem)


def _headers(head: UpgradeRequest) -> Headers:
    """
    A request in HTTP/2's words (RFC 9113, §8.3.1).

    What can be passed on must not depend on how: the rules are those of HTTP/1.1.

    :raises h11.LocalProtocolError: it cannot be.
    """
    told = h11.Request(
        method=head.method, target=head.path, headers=[(b"Host", head.host), *head.headers]
    )
    return [
        (b":method", bytes(told.method)),
        (b":scheme", b"https"),
        (b":authority", head.host),
        (b":path", bytes(told.target)),
        *((name, value) for name, value in told.headers if name != b"host"),
    ]
