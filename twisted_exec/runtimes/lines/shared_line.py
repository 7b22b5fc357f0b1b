"""
A line to a machine that exists without the runtime.

A lost line does not end the console. The line is reopened with exponential back-off; input in
between is discarded, and the journal has a gap before the output of the next connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred, DeferredLock, TimeoutError
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

from twisted_exec.api.display import shortened
from twisted_exec.api.status import APIError, message_of
from twisted_exec.console.interfaces import IRecoveringTransport
from twisted_exec.console.notices import LINE_BACK, line_lost, notice
from twisted_exec.console.rate_limit import RateLimit
from twisted_exec.control.backoff import Backoff
from twisted_exec.control.polling import until
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.program.tasks import as_deferred
from twisted_exec.runtimes.interfaces import (
    CannotStart,
    IProbed,
    IReopenable,
    IRun,
    IShutdown,
    MachineFacts,
)
from twisted_exec.streaming.interfaces import LINE_LOST, IBreakable, TerminalSize

_LONG_RUN_SECONDS = 10.0
_MAX_REASON = 300
_PROBE_SECONDS = 5.0
_MOST_GAPS = 10
"""Limit for the gaps of short connections in a row; each gap is a file of the journal."""
_MOST_REASONS = 10
"""Limit for the Events and the notices of one outage: a peer may refuse with other words each time."""


@dataclass(frozen=True)
class LineTiming:
    """
    Time limits for opening and closing a line, and the delays between attempts.

    :ivar first_delay_seconds: delay before a lost line is opened again; later delays double.
    :ivar settle_seconds: how long a connection must last to count as the line, after one that did not.
    :ivar close_seconds: how long a peer may take to accept pending input before the line is cut.
    """

    first_delay_seconds: float = 0.5
    longest_delay_seconds: float = 30.0
    open_seconds: float = 20.0
    close_seconds: float = 1.5
    settle_seconds: float = 2.0


DEFAULT_TIMING = LineTiming()


class Power(Protocol):
    """
    The power switch of a machine, for drivers that have one.

    When the Machine is deleted or the runtime stops, the machine itself keeps running.
    """

    async def on(self) -> None:
        """
        Switch the machine on.

        :raises APIError: that failed.
        """

    async def off(self) -> None:
        """
        Switch the machine off within a bounded time.

        It calls ``facts.shutting_down()`` when the machine has taken the request to shut down.

        :raises APIError: the machine is not known to be off; the runtime tries again.
        """


class _Link(TwistedProtocol):
    transport: Any

    def __init__(self, run: SharedLine, clock: IReactorTime) -> None:
        self._run = run
        self._rate_limit = RateLimit(clock, self._apply_pause, self._apply_pause)
        self._paused = False
        self._dropped: Failure | None = None

    def dataReceived(self, data: bytes) -> None:
        # No serial line prints megabytes per second: a peer that does is read at a limited rate.
        self._rate_limit.charge(len(data))
        self._run.received(data)

    def pause(self, paused: bool) -> None:
        self._paused = paused
        self._apply_pause()

    def notify(self, text: str) -> None:
        self._run.notify(text)

    def drop(self, why: Exception) -> None:
        """Close the connection immediately, for a reason of this side."""
        self._dropped = Failure(why)
        self.transport.abortConnection()

    def _apply_pause(self) -> None:
        if self._paused or self._rate_limit.is_paused:
            self.transport.pauseProducing()
        else:
            self.transport.resumeProducing()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._rate_limit.stop()
        self._run.link_lost(self._dropped or reason)


@implementer(IRun, IRecoveringTransport, IReopenable)
class SharedLine:
    """
    One line from power on to power off, and the transport of its protocol.

    The transports of the endpoint must provide
    :class:`~twisted_exec.runtimes.interfaces.ISharedLineTransport`.

    :param claim: reserves the line at power on, and returns its name and endpoint; raises
        :class:`~twisted_exec.interfaces.CannotStart`. If connecting to the endpoint, or a
        connection, fails with ``CannotStart``, its reason is that of the machine's condition.
    :param release: called after the line is closed for good, perhaps again; :meth:`stop` waits for a
        Deferred that it returns.
    :param breakable: the endpoint's transports have ``send_break``.
    :param power: the machine's power switch, used at power on and power off, also while the line is
        being opened; without it the line is only opened and closed.
    """

    paced = False
    _log = Logger()

    def __init__(
        self,
        facts: MachineFacts,
        clock: IReactorTime,
        claim: Callable[[], tuple[str, IStreamClientEndpoint]],
        release: Callable[[], Deferred[None] | None],
        *,
        breakable: bool = False,
        power: Power | None = None,
        timing: LineTiming = DEFAULT_TIMING,
    ) -> None:
        self._facts, self._clock, self._timing = facts, clock, timing
        self._claim, self._release = claim, release
        self._power = power
        self.outage = ""
        self._name = ""
        self._endpoint: IStreamClientEndpoint | None = None
        self._inner: Any = None
        self._link: _Link | None = None
        self._early = b""
        self._producer: Any = None
        self._size: TerminalSize | None = None
        self._paused = self._closing = False
        self._is_shutting_down = False  # the end of its line is no news then
        self._opened_at = 0.0
        self._backoff = Backoff(timing.first_delay_seconds, timing.longest_delay_seconds)
        self._opening: Deferred[Any] | None = None
        self._settling: IDelayedCall | None = None  # open again, but not yet back
        self._is_unsteady = False
        self._why = ""  # as the condition has it; empty while the line is open
        self._reasons = 0  # that users were told of, in this outage
        self._is_behind_loss = False  # no output yet since the last loss
        self._gaps = 0  # since the last connection that was not short
        self._switching = DeferredLock()  # held while the machine is switched on or off
        self._attempt = DeferredLock()  # held while the line is opened, and switched on before
        self._end_waiters: list[Deferred[None]] = []
        if breakable:
            alsoProvides(self, IBreakable)
        if power is not None:
            alsoProvides(self, IShutdown)

    # IRun.

    @as_deferred
    async def connect(self, factory: IProtocolFactory) -> Any:
        async with self._attempt:
            return await self._connect(factory)

    async def _connect(self, factory: IProtocolFactory) -> Any:
        self._name, self._endpoint = self._claim()
        if self._power is not None:
            async with self._switching:
                if not self._is_shutting_down:
                    await self._power.on()
        link, failed = None, None
        try:
            link = await self._open()
        except Exception as error:
            failed = Failure(error)
            # After a successful power on the machine counts as running, even if its line fails.
            if self._power is None or failed.check(CancelledError):
                why = f'line "{self._name}": {self._describe(failed)}'
                raise CannotStart(_reason_of(failed, "LineFailed"), why) from None
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
        if not self._closing:
            self._reconnect(failure, f'line "{self._name}"')

    async def _open(self) -> Any:
        factory = Factory.forProtocol(lambda: _Link(self, self._clock))
        factory.noisy = False
        assert self._endpoint is not None
        return await self._endpoint.connect(factory).addTimeout(
            self._timing.open_seconds, self._clock
        )

    def window_changed(self, size: TerminalSize) -> None:
        self._size = size
        self._send_size()

    def send_break(self, milliseconds: int) -> None:
        if self._link is not None:
            self._link.transport.send_break(milliseconds)

    def shut_down(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._shut_down())

    async def _shut_down(self) -> None:
        assert self._power is not None
        self._is_shutting_down = True
        try:
            async with self._switching:
                await self._power.off()
        except BaseException:
            self._is_shutting_down = False
            raise

    @as_deferred
    async def stop(self) -> None:
        try:
            await self._close()
        finally:
            released = self._release()
        if released is not None:
            await released

    async def _close(self) -> None:
        self._stop_settling()
        self.loseConnection()
        async with self._attempt:
            pass  # a cancelled attempt may take a while, for example to end a process
        if self._link is not None:
            ended: Deferred[None] = Deferred()
            self._end_waiters.append(ended)
            # loseConnection first sends pending input, which a dead peer never accepts.
            patience = self._clock.callLater(self._timing.close_seconds, self._cut)
            await ended
            if patience.active():
                patience.cancel()

    def _cut(self) -> None:
        if self._link is not None:
            self._log.warn(
                '{label}: line "{name}" did not close in {seconds:g} s; its last input may be lost',
                label=self._facts.label,
                name=self._name,
                seconds=self._timing.close_seconds,
            )
            self._link.transport.abortConnection()

    # IRecoveringTransport, across connections.

    def write(self, data: bytes) -> None:
        if self._link is not None:
            # Input of an outage is discarded: keys that arrive minutes later, at another prompt, do
            # harm.
            self._link.transport.write(data)

    def loseConnection(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._stop_settling()
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

    # Called by connections.

    def received(self, data: bytes) -> None:
        """Pass output on; before the protocol is connected, keep it."""
        if self._inner is None:
            self._early += data
            return
        journal = self._facts.journal
        if self._is_behind_loss and journal is not None:
            self._gaps += 1
            (journal.lost if self._gaps <= _MOST_GAPS else journal.missed)()
        self._is_behind_loss = False
        self._inner.dataReceived(data)

    def link_lost(self, reason: Failure) -> None:
        if self._link is None:
            return  # it failed before it was the line's
        self._link = None
        self._stop_settling()
        if self._closing:
            self._over(reason)
        else:
            self._reconnect(reason, f'line "{self._name}" was lost')

    def _join(self, link: _Link) -> None:
        self._link, self._opened_at = link, self._clock.seconds()
        if self._producer is not None:
            link.transport.registerProducer(self._producer, True)
        if self._paused:
            link.pause(True)
        self._send_size()

    def _send_size(self) -> None:
        resize = getattr(self._link and self._link.transport, "window_changed", None)
        if resize is not None and self._size is not None:
            resize(self._size)

    def _over(self, reason: Failure) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.connectionLost(reason)
        waiting, self._end_waiters = self._end_waiters, []
        for waiter in waiting:
            waiter.callback(None)

    # Reconnection.

    def _reconnect(self, reason: Failure, what: str) -> None:
        self._is_behind_loss = True
        self._settling = None
        self._failed(reason, what)
        # A console server without its device takes each connection, and closes it at once.
        self._is_unsteady = self._clock.seconds() - self._opened_at < _LONG_RUN_SECONDS
        if self._producer is not None:
            self._producer.resumeProducing()  # the lost connection may have paused it
        if not self._is_unsteady:
            self._backoff.reset()
            self._gaps = 0
        opening = Deferred.fromCoroutine(self._try_again())
        self._opening = None if opening.called else opening
        opening.addErrback(lambda failure: failure.trap(CancelledError))
        opening.addErrback(lambda failure: self._log.failure("lost line", failure=failure))

    async def _try_again(self) -> None:
        # Not a PokedLoop: the back-off goes on over connections, until one has lasted.
        while not self._closing:
            await self._rest(self._backoff.pause())
            try:
                async with self._attempt:
                    link = await self._open()
            except Exception as error:
                if not self._closing:
                    self._failed(Failure(error), f'line "{self._name}"')
            else:
                self._reconnected(link)
                return

    def _failed(self, failure: Failure, what: str) -> None:
        """Tell users why the line is not open, unless they know it already, or were told many reasons."""
        why = self._describe(failure)
        if why == self._why:
            return
        self._why, reason = why, _reason_of(failure, LINE_LOST)
        self._set_outage(f"{what}: {why}", reason)
        if self._reasons < _MOST_REASONS:
            self._reasons += 1
            self._event("Warning", reason, f"{what}: {why}")
            self.notify(line_lost(why))

    async def _rest(self, seconds: float) -> None:
        endpoint: Any = self._endpoint
        if seconds > _PROBE_SECONDS and IProbed.providedBy(endpoint):
            await until(endpoint.has_come_back, self._clock, _PROBE_SECONDS, seconds)
        else:
            await deferLater(self._clock, seconds)

    def _reconnected(self, link: _Link) -> None:
        self._opening = None
        self._join(link)
        if self._is_unsteady:
            self._settling = self._clock.callLater(self._timing.settle_seconds, self._came_back)
        else:
            self._came_back()

    def _stop_settling(self) -> None:
        if self._settling is not None and self._settling.active():
            self._settling.cancel()

    def _came_back(self) -> None:
        self._settling, self._why, self._reasons = None, "", 0
        self._event("Normal", "LineBack", f'line "{self._name}" is back')
        self._set_outage("", "")
        self.notify(LINE_BACK)

    def _event(self, type: str, reason: str, message: str) -> None:
        if not self._is_shutting_down:
            self._facts.event(type, reason, message)

    def _set_outage(self, why: str, reason: str) -> None:
        self.outage = why
        message = f"{why}; trying again" if why else ""
        self._facts.changed(pb.MACHINE_RUNNING, reason, message)

    def notify(self, text: str) -> None:
        """Show users a notice, which is not part of the machine's output."""
        if self._inner is not None:
            # Only the protocol of a shared console separates notices from output.
            show = getattr(self._inner, "notice_received", self._inner.dataReceived)
            show(notice(text))

    def _describe(self, failure: Failure) -> str:
        error = failure.value
        if isinstance(error, APIError):
            text = error.message
        elif isinstance(error, (TimeoutError, CancelledError)):
            text = f"it could not be opened in {self._timing.open_seconds:.0f} s"
        else:
            text = message_of(error)
        words = "".join(char for char in text if char.isprintable()).rstrip(".")
        return shortened(words, _MAX_REASON)


def _reason_of(failure: Failure, reason: str) -> str:
    """Return the reason that an endpoint gives, or ``reason``."""
    return failure.value.condition if isinstance(failure.value, CannotStart) else reason
