"""
A stream of a stock client, in a process whose successor has the machines.

The stream's attachment becomes a client of the session in the successor, by the protocol with which
our own clients resume theirs: output from the exact byte, input in order and exactly once.  The
client of the stream sees a pause at most.  When the successor is replaced in turn, the bridge
resumes at the next one.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IPushProducer, IReactorTime
from zope.interface import implementer

from twisted_exec.streaming.interfaces import (
    SHUTTING_DOWN,
    Break,
    Ending,
    IOperable,
    ITermsAttachment,
    Position,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.interfaces import Reopen
from twisted_exec.streaming.remotecommand.resuming_client import ResumingClient
from twisted_exec.wire.resume import Resumable
from twisted_exec.wire.session_terms import FULL, Terms

_LOST_SECONDS = 30.0
"""
Longest time without the session: a successor that is replaced may take 20 s to fail, and then goes on.
"""


@implementer(IOperable, ITermsAttachment, IPushProducer)
class Bridge:
    """
    The attachment of a stream to a session in another process.

    :param reopen: opens a connection to the session.
    :param sent: input of the stream that the machine got before, for audit.
    """

    def __init__(self, reopen: Reopen, clock: IReactorTime, sent: int = 0) -> None:
        self.bytes_to_machine = sent
        self._client = ResumingClient(
            _Far(self), reopen, clock, limit_seconds=_LOST_SECONDS, jitter=lambda: 0.0
        )
        self._transport: Any = None
        self._ending: Ending | None = None

    def start(
        self,
        transport: Any,
        key: Resumable,
        session: str,
        position: Position,
        size: TerminalSize | None,
    ) -> None:
        """
        Take over a stream.

        :param transport: the stream, whose terms the other process enforces from now on.
        :param key: with which the session is resumed.
        :param position: of the next byte of output for the stream.
        :param size: the last size of the user's terminal.
        """
        self._transport = transport
        transport.hold_to(FULL)
        transport.registerProducer(self, True)
        self._client.resume(key, session, position)
        if size is not None:
            self._client.resize(size)
        transport.resume_input()

    # From the other process

    def far_attached(self) -> None:
        self._client.registerProducer(_Input(self._transport), True)

    def far_data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def far_ended(self, ending: Ending) -> None:
        self._ending = ending

    def far_detached(self, reason: str) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.unregisterProducer()
            lost = Ending(SHUTTING_DOWN, f"the machine runtime was replaced, and {reason}")
            transport.end(self._ending or lost)

    # IAttachment, from the stream

    def attached(self, transport: object) -> None:
        """Never called: the stream was attached to the console before."""

    def data_received(self, data: bytes) -> None:
        self.bytes_to_machine += len(data)
        self._client.write(data)

    def window_changed(self, size: TerminalSize) -> None:
        self._client.resize(size)

    def input_ended(self) -> None:
        self._client.end_input()

    def wished(self, wish: Break | Role) -> None:
        self._client.wish(wish)

    def admit(self, terms: Terms) -> None:
        """Do nothing: the session has its place."""

    def input_refused(self) -> None:
        """Never called: the other process refuses input."""

    def terms_changed(self, terms: Terms) -> None:
        """Do nothing: the other process enforces the terms."""

    def detached(self, reason: str) -> None:
        if self._transport is not None:
            self._transport = None
            self._client.leave()

    # IPushProducer, from the stream

    def pauseProducing(self) -> None:
        self._client.pause_output()

    def resumeProducing(self) -> None:
        self._client.resume_output()

    def stopProducing(self) -> None:
        """The stream is dying; :meth:`detached` follows."""


@implementer(IPushProducer)
class _Input:
    """The input of a stream, which waits while the other process takes no more."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def pauseProducing(self) -> None:
        self._transport.pause_input()

    def resumeProducing(self) -> None:
        self._transport.resume_input()

    def stopProducing(self) -> None:
        """Do nothing: the stream ends by itself."""


class _Far:
    """
    The user of the session in the other process: a bridge.

    Notices and gaps become part of the output, as in every stream of a stock client.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def attached(self, stream: object) -> None:
        self._bridge.far_attached()

    def data_received(self, data: bytes) -> None:
        self._bridge.far_data_received(data)

    def ended(self, ending: Ending) -> None:
        self._bridge.far_ended(ending)

    def detached(self, reason: str) -> None:
        self._bridge.far_detached(reason)
