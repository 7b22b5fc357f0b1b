"""
Client for long-lived texts: a plain GET whose body is read at the receiver's pace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import h11
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from twisted_exec.streaming.http.upgrade_client import Asking, AskingFactory
from twisted_exec.wire.log_frames import HEADER

CONTENT_TYPE = b"text/plain"
_FRAMING = HEADER.lower()


class Download:
    """
    A response whose head has arrived; its body is paused.

    :cvar is_waiting: there is no backend now; see
        :class:`~twisted_exec.streaming.text.resumption.ResumedLog`.
    """

    is_waiting = False

    def __init__(self, asking: _Downloading, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self._asking, self.headers = asking, headers

    def deliver(self, data: Callable[[bytes], None], ended: Callable[[bool], None]) -> None:
        """
        Start delivery; bytes that followed the head are delivered before this returns.

        :param data: called with each piece of the body, 1 byte or more.
        :param ended: called once, with whether the body is complete; not after :meth:`abort`.
        """
        self._asking.deliver(data, ended)

    def pause(self) -> None:
        """Stop reading the connection; bytes already read may still be delivered."""
        self._asking.flow(False)

    def resume(self) -> None:
        self._asking.flow(True)

    def abort(self) -> None:
        """Discard the rest.  Repeated calls do nothing."""
        self._asking.leave()


class _Downloading(Asking):
    request_noun = "request"
    any_type = False
    _begun = False  # the head has arrived
    _over = False  # the body is complete, broken or unwanted
    _flowing = True
    _receiver: tuple[Callable[[bytes], None], Callable[[bool], None]] | None = None

    def _next(self, event: Any) -> bool:
        if not isinstance(event, h11.Response) or not self._is_wanted(event):
            return super()._next(event)
        self._begun = True
        self.transport.pauseProducing()
        answered, self._answered = self._answered, None
        assert answered is not None
        # Not all headers: a follower may wait for hours.
        framing = [each for each in event.headers.raw_items() if each[0].lower() == _FRAMING]
        answered.callback(Download(self, framing))
        return False

    def _is_wanted(self, response: h11.Response) -> bool:
        if self.any_type:
            return bool(response.status_code == 200)
        types = [value for name, value in response.headers if name == b"content-type"]
        media = [value.partition(b";")[0].strip().lower() for value in types]
        return response.status_code == 200 and media == [CONTENT_TYPE]

    def dataReceived(self, data: bytes) -> None:
        if self._over:
            return
        if self._receiver is None:
            super().dataReceived(data)  # buffers what follows the head
        else:
            self._read(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if not self._begun:
            super().connectionLost(reason)
            return
        self.lost = reason
        if self._receiver is not None:
            self._read(b"")

    def deliver(self, data: Callable[[bytes], None], ended: Callable[[bool], None]) -> None:
        early, self._early = b"".join(self._early), []
        self._receiver = data, ended
        self._read(early or None)
        if self.lost is not None:
            self._read(b"")
        elif self._flowing:  # the receiver may have paused meanwhile
            self.flow(True)

    def flow(self, flowing: bool) -> None:
        self._flowing = flowing
        if self._over or self.lost is not None:
            return
        if flowing:
            self.transport.resumeProducing()
        else:
            self.transport.pauseProducing()

    def leave(self) -> None:
        self._over, self._receiver = True, None
        self.abort()

    def _read(self, data: bytes | None) -> None:
        """Deliver ``data``; empty (not ``None``) means the end of the connection."""
        if self._over:
            return
        try:
            if data is not None:
                self._http.receive_data(data)
            while not self._over and self._take(self._http.next_event()):
                pass
        except h11.RemoteProtocolError:
            self._end(False)

    def _take(self, event: Any) -> bool:
        if event is h11.NEED_DATA:
            return False
        if isinstance(event, h11.Data) and event.data and self._receiver is not None:
            self._receiver[0](bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            self._end(True)
        return True

    def _end(self, complete: bool) -> None:
        receiver = self._receiver
        self.leave()
        if receiver is not None:
            receiver[1](complete)


class _Factory(AskingFactory):
    protocol = _Downloading


DOWNLOADS = _Factory()


class _AnyDownloading(_Downloading):
    any_type = True


class _AnyFactory(AskingFactory):
    protocol = _AnyDownloading


ANY_DOWNLOADS = _AnyFactory()
"""Checks no type: a kubelet guesses it from the first bytes of the text."""
