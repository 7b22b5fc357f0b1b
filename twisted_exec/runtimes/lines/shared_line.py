"""
A machine that exists without us: power on is opening its line, and keeping it open.

Here a lost line is no end of the session.  It is opened again, more and more slowly; the viewers stay,
and read that it was lost and that it is back.  What they type meanwhile goes nowhere: keys that
arrive minutes later, at another prompt, do harm.

Such a line is not paced: a machine must not wait for whoever looks on.  But no serial line prints megabytes a
second, so one that does is read no faster than that; its other end has to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import (
    IDelayedCall,
    IProtocolFactory,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import alsoProvides, implementer

from twisted_exec.api.status import APIError
from twisted_exec.console.interfaces import ILineTransport
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.interfaces import CannotStart, IRun, IShutdown, MachineFacts
from twisted_exec.streaming.interfaces import IBreakable, TerminalSize

BYTES_PER_SECOND = 4 << 20
"""Ten times what the fastest serial line carries."""

_BURST_BYTES = 1 << 20
_FIRST_DELAY_SECONDS = 0.5
_LONGEST_DELAY_SECONDS = 30.0
_LONG_RUN_SECONDS = 10.0
_OPEN_SECONDS = 20.0
_CLOSE_SECONDS = 2.0
_MAX_REASON = 300


class ReadRateLimit:
    """
    Keeps a line to :data:`BYTES_PER_SECOND`: pauses whoever reads too much, for as long as it is too much.

    :param pause: called before a rest; ``resume`` after it.
    """

    def __init__(
        self, clock: IReactorTime, pause: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._pause, self._resume = pause, resume
        self._owed, self._at = 0.0, clock.seconds()
        self._timer: IDelayedCall | None = None

    @property
    def resting(self) -> bool:
        """Between ``pause`` and ``resume``."""
        return self._timer is not None

    def charge(self, amount: int) -> None:
        """So many bytes, or what costs as much, were read."""
        now = self._clock.seconds()
        self._owed = max(0.0, self._owed - (now - self._at) * BYTES_PER_SECOND) + amount
        self._at = now
        if self._owed > _BURST_BYTES and self._timer is None:
            seconds = (self._owed - _BURST_BYTES / 2) / BYTES_PER_SECOND
            self._timer = self._clock.callLater(seconds, self._rested)
            self._pause()

    def stop(self) -> None:
        """The line is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rested(self) -> None:
        self._timer = None
        self._resume()


class Power(Protocol):
    """
    The machine's own switch, where its line's driver has one.

    It is used when somebody says that the machine shall be on or off, and only then: a machine that
    exists without us goes on when it is deleted here, or when the runtime stops.
    """

    async def on(self) -> None:
        """:raises APIError: it cannot be switched on."""

    async def off(self) -> None:
        """Switch it off, as well as may be and within a bounded time; what fails is an event."""


class _Link(TwistedProtocol):
    """One connection of the line."""

    transport: Any

    def __init__(self, run: SharedLine, clock: IReactorTime) -> None:
        self._run = run
        self._governor = ReadRateLimit(clock, self._flow, self._flow)
        self._paused = False

    def dataReceived(self, data: bytes) -> None:
        self._governor.charge(len(data))
        self._run.heard(data)

    def pause(self, paused: bool) -> None:
        self._paused = paused
        self._flow()

    def _flow(self) -> None:
        if self._paused or self._governor.resting:
            self.transport.pauseProducing()
        else:
            self.transport.resumeProducing()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._governor.stop()
        self._run.link_lost(reason)


@implementer(IRun, ILineTransport)
class SharedLine:
    """
    One line from power on to power off.  It is its own protocol's transport.

    :param claim: gives the line's name and how it is opened, or raises an ``APIError``; ``release``
        gives it back.  Protocols that the endpoint makes have a transport with, where the
        line can, ``send_break(milliseconds)`` and ``window_changed(size)``.
    :param breakable: whether it can send BREAK.
    :param power: the machine's own switch, or ``None``.
    """

    paced = False
    _log = Logger()

    def __init__(
        self,
        facts: MachineFacts,
        clock: Any,
        claim: Callable[[], tuple[str, IStreamClientEndpoint]],
        release: Callable[[], None],
        *,
        breakable: bool = False,
        power: Power | None = None,
    ) -> None:
        self._facts, self._clock = facts, clock
        self._claim, self._release = claim, release
        self._power = power
        self._name = ""
        self._endpoint: IStreamClientEndpoint | None = None
        self._inner: Any = None
        self._link: _Link | None = None
        self._early = b""
        self._producer: Any = None
        self._size: TerminalSize | None = None
        self._paused = self._closing = False
        self._opened_at = self._delay_seconds = 0.0
        self._opening: Deferred[Any] | None = None
        self._trying: list[Deferred[None]] | None = None  # who waits for the end of a try
        self._gone: list[Deferred[None]] = []
        if breakable:
            alsoProvides(self, IBreakable)
        if power is not None:
            alsoProvides(self, IShutdown)

    # IRun.

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        return Deferred.fromCoroutine(self._start(factory))

    async def _start(self, factory: IProtocolFactory) -> Any:
        self._name, self._endpoint = self._claim()
        if self._power is not None:
            await self._power.on()
        link, failed = None, None
        try:
            link = await self._open()
        except Exception as error:
            failed = Failure(error)
            # Of a machine that we have switched on it is known that it is on, and it can be switched off.
            if self._power is None or failed.check(CancelledError):
                why = f'line "{self._name}": {_words(failed)}'
                raise CannotStart("LineFailed", why) from None
        inner: Any = factory.buildProtocol(None)  # type: ignore[arg-type]
        self._inner = inner
        inner.makeConnection(self)
        if link is not None:
            self._join(link)
        elif failed is not None:
            self._clock.callLater(0, self._never_opened, failed)
        early, self._early = self._early, b""
        if early:
            inner.dataReceived(early)
        return inner

    def _never_opened(self, failure: Failure) -> None:
        """Told when the machine is known to run, not before."""
        if not self._closing:
            self._begin_again(failure)

    async def _open(self) -> Any:
        """One more connection, a :class:`_Link`."""
        factory = Factory.forProtocol(lambda: _Link(self, self._clock))
        factory.noisy = False
        assert self._endpoint is not None
        self._trying = []
        try:
            opening: Deferred[Any] = self._endpoint.connect(factory)
            return await opening.addTimeout(_OPEN_SECONDS, self._clock)
        finally:
            waiting, self._trying = self._trying, None
            for waiter in waiting:
                waiter.callback(None)

    def window_changed(self, size: TerminalSize) -> None:
        self._size = size
        self._tell_size()

    def send_break(self, milliseconds: int) -> None:
        """As :meth:`IBreakable.send_break`."""
        if self._link is not None:
            self._link.transport.send_break(milliseconds)

    def shut_down(self) -> Deferred[None]:
        """As :meth:`IShutdown.shut_down`; the line stays open, so that one sees it happen."""
        assert self._power is not None
        return Deferred.fromCoroutine(self._power.off())

    def stop(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self.loseConnection()
        if self._trying is not None:
            # What is given up may take some time to be gone, such as a process.
            tried: Deferred[None] = Deferred()
            self._trying.append(tried)
            await tried
        if self._link is not None:
            gone: Deferred[None] = Deferred()
            self._gone.append(gone)
            # What is still to be sent may find nobody who takes it.
            abort = self._link.transport.abortConnection
            patience = self._clock.callLater(_CLOSE_SECONDS, abort)
            await gone
            if patience.active():
                patience.cancel()
        self._release()

    # The transport of the line's protocol, while connections come and go.

    def write(self, data: bytes) -> None:
        if self._link is not None:
            self._link.transport.write(data)

    def loseConnection(self) -> None:
        """Close the line for good.  Repeated calls do nothing."""
        if self._closing:
            return
        self._closing = True
        if self._opening is not None:
            self._opening.cancel()
        if self._link is not None:
            self._link.transport.loseConnection()
        else:
            self._over(Failure(ConnectionDone()))

    def registerProducer(self, producer: object, streaming: bool) -> None:
        self._producer = producer
        if self._link is not None:
            self._link.transport.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        self._producer = None
        if self._link is not None:
            self._link.transport.unregisterProducer()

    def pauseProducing(self) -> None:
        self._paused = True
        if self._link is not None:
            self._link.pause(True)

    def resumeProducing(self) -> None:
        self._paused = False
        if self._link is not None:
            self._link.pause(False)

    def stopProducing(self) -> None:
        self.loseConnection()

    # What a connection tells.

    def heard(self, data: bytes) -> None:
        """The machine printed."""
        if self._inner is None:
            self._early += data
        else:
            self._inner.dataReceived(data)

    def link_lost(self, reason: Failure) -> None:
        """A connection has ended, by itself or because it was to."""
        if self._link is None:
            return  # it never was the line's
        self._link = None
        if self._closing:
            self._over(reason)
        else:
            self._begin_again(reason)

    def _join(self, link: _Link) -> None:
        self._link, self._opened_at = link, self._clock.seconds()
        if self._producer is not None:
            link.transport.registerProducer(self._producer, True)
        if self._paused:
            link.pause(True)
        self._tell_size()

    def _tell_size(self) -> None:
        tell = getattr(self._link and self._link.transport, "window_changed", None)
        if tell is not None and self._size is not None:
            tell(self._size)

    def _over(self, reason: Failure) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.connectionLost(reason)
        gone, self._gone = self._gone, []
        for waiter in gone:
            waiter.callback(None)

    # A lost line.

    def _begin_again(self, reason: Failure) -> None:
        why = _words(reason)
        self._facts.event("Warning", "LineLost", f'line "{self._name}" was lost: {why}')
        self._changed("LineLost", f'line "{self._name}" was lost: {why}; trying again')
        self._say(f"the console line was lost: {why}; what is typed goes nowhere until it is back")
        if self._producer is not None:
            self._producer.resumeProducing()  # the old connection may have paused it
        if self._clock.seconds() - self._opened_at >= _LONG_RUN_SECONDS:
            self._delay_seconds = 0.0
        opening = Deferred.fromCoroutine(self._try_again(why))
        self._opening = None if opening.called else opening
        opening.addErrback(lambda failure: failure.trap(CancelledError))
        opening.addErrback(lambda failure: self._log.failure("lost line", failure=failure))

    async def _try_again(self, why: str) -> None:
        while not self._closing:
            self._delay_seconds = min(
                max(_FIRST_DELAY_SECONDS, self._delay_seconds * 2), _LONGEST_DELAY_SECONDS
            )
            await deferLater(self._clock, self._delay_seconds)
            try:
                link = await self._open()
            except Exception as error:
                if not self._closing and (now := _words(Failure(error))) != why:
                    why = now
                    self._changed("LineLost", f'line "{self._name}": {why}; trying again')
            else:
                self._back(link)
                return

    def _back(self, link: _Link) -> None:
        self._opening = None
        self._join(link)
        self._facts.event("Normal", "LineBack", f'line "{self._name}" is back')
        self._changed("", "")
        self._say("the console line is back")

    def _changed(self, reason: str, message: str) -> None:
        """As far as anybody knows the machine runs on."""
        self._facts.changed(pb.MACHINE_RUNNING, reason, message)

    def _say(self, words: str) -> None:
        if self._inner is not None:
            self._inner.dataReceived(b"\r\n[twisted-exec: %s]\r\n" % words.encode())


def _words(failure: Failure) -> str:
    """What went wrong, in one bounded line without control characters."""
    error = failure.value
    if isinstance(error, APIError):
        text = error.message
    elif isinstance(error, (TimeoutError, CancelledError)):
        text = f"it could not be opened in {_OPEN_SECONDS:.0f} s"
    else:
        text = failure.getErrorMessage() or type(error).__name__
    return "".join(char for char in text if char.isprintable())[:_MAX_REASON].rstrip(".")
