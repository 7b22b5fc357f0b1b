"""A connection whose output may be blocked, for protocols that own a transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.streaming.transports import close_behind


@implementer(IPushProducer)
class PacedConnection:
    """Mixed into the protocols of carriers that own a transport."""

    transport: Any
    clock: IReactorTime
    linger_seconds: float
    blocked = False
    _holds_answers = False
    _question: Any = None  # the latest ping without an answer
    _hung_up = False
    _abort_timer: IDelayedCall | None = None
    _flow: Callable[[bool], None] | None = None

    def hang_up(self) -> None:
        if not self._hung_up:
            self._hung_up = True
            self._abort_timer = self.clock.callLater(self.linger_seconds, self._abort)
            # A TLS transport with a producer never begins its shutdown.
            self.transport.unregisterProducer()
            self.transport.resumeProducing()  # to notice the peer's end
            close_behind(self.transport)

    def abort(self) -> None:
        self.transport.abortConnection()

    def on_flow(self, changed: Callable[[bool], None]) -> None:
        self._flow = changed

    def pauseProducing(self) -> None:
        self.blocked = True
        if self._flow is not None:
            self._flow(True)

    def resumeProducing(self) -> None:
        self.blocked = False
        self._answer_latest()
        if self._flow is not None:
            self._flow(False)

    def stopProducing(self) -> None:
        """The transport is dying; ``connectionLost`` follows."""

    def ping_received(self, question: Any) -> None:
        """
        Answer a ping of the peer.

        While output is blocked, or answers are held, only the latest is kept: a peer that reads nothing
        would fill our memory.
        """
        self._question = question
        self._answer_latest()

    def hold_answers(self, held: bool) -> None:
        """Answer no pings while ``held``; then answer the latest."""
        self._holds_answers = held
        self._answer_latest()

    def _answer_latest(self) -> None:
        if self.blocked or self._holds_answers:
            return
        question, self._question = self._question, None
        if question is not None:
            self.answer(question)

    def answer(self, question: Any) -> None:
        raise NotImplementedError

    def connection_lost(self, reason: Failure) -> str:
        self._hung_up = True
        timer, self._abort_timer = self._abort_timer, None
        if timer is not None and timer.active():
            timer.cancel()
        self._flow = None
        return "connection closed" if reason.check(ConnectionDone) else "connection lost"

    def _abort(self) -> None:
        self._abort_timer = None
        self.transport.abortConnection()
