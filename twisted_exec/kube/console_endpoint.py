"""
A machine's console as a Twisted endpoint.

For example::

    endpoint = clientFromString(reactor, "console:demo-vm:kubeconfig=admin.kubeconfig")
    expect = await connectProtocol(endpoint, Expect())

``loseWriteConnection`` ends the input if the stream has a message for it; ``loseConnection`` ends
the session. The reason of ``connectionLost`` carries the session's
:class:`~twisted_exec.streaming.interfaces.Ending`, if it is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost, NoProtocol
from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IProtocol,
    IProtocolFactory,
    IPushProducer,
    IStreamClientEndpoint,
    ITransport,
)
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.declared_reasons import check_reason
from twisted_exec.api.dialects import DIALECTS, Dialect, by_name
from twisted_exec.api.status import APIError
from twisted_exec.kube.console import ConsoleOptions, open_console
from twisted_exec.kube.interfaces import IRecordedProtocol, IResumableProtocol
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.kube.machine_requests import TIMEOUT_SECONDS
from twisted_exec.kube.recording_news import RecordingNews
from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser
from twisted_exec.wire.endings import Ending
from twisted_exec.wire.marks import Attendance, Notice, OpenRecording
from twisted_exec.wire.resize import Break, TerminalSize

_log = Logger()

GIVE_UP_SECONDS = 300.0
"""Time to resume the session of a protocol after a loss of the connection."""


@implementer(IAddress)
@dataclass(frozen=True)
class ConsoleAddress:
    """The address of a console."""

    server: str
    namespace: str
    name: str


class ConsoleDone(ConnectionDone):
    """
    The session ended normally.

    :ivar ending: the reason; ``None`` if this side left.
    """

    def __init__(self, ending: Ending | None = None) -> None:
        super().__init__(_reason_of(ending) if ending is not None else "left")
        self.ending = ending


class ConsoleLost(ConnectionLost):
    """
    The session failed.

    :ivar ending: the reason, if it is known.
    """

    def __init__(self, ending: Ending | None, reason: str) -> None:
        super().__init__(_reason_of(ending) if ending is not None else reason)
        self.ending = ending


def _reason_of(ending: Ending) -> str:
    return f"{ending.reason}: {ending.message}" if ending.message else ending.reason


@implementer(IStreamClientEndpoint)
class ConsoleEndpoint:
    """
    A machine's console as an endpoint.

    ``connect`` fails as :func:`~twisted_exec.kube.console.open_console` does.

    A protocol that provides :class:`~twisted_exec.kube.interfaces.IResumableProtocol` learns of lost
    connections.

    A protocol that provides :class:`~twisted_exec.kube.interfaces.IRecordedProtocol` learns of
    recordings, which are logged otherwise.

    :param reason: that the user declares, see :mod:`twisted_exec.api.declared_reasons`.
    :param resume: as of :class:`~twisted_exec.kube.console.ConsoleOptions`; ``give_up_seconds``
        likewise.
    """

    def __init__(
        self,
        config: ClientConfig,
        namespace: str,
        name: str,
        reactor: Any,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        server: IStreamClientEndpoint | None = None,
        among: Sequence[Dialect] = DIALECTS,
        reason: str = "",
        resume: bool = True,
        give_up_seconds: float | None = GIVE_UP_SECONDS,
    ) -> None:
        self._config, self._reactor = config, reactor
        self._address = ConsoleAddress(config.server, namespace, name)
        self._options = ConsoleOptions(
            timeout_seconds=timeout_seconds,
            server=server,
            among=among,
            reason=reason,
            resume=resume,
            give_up_seconds=give_up_seconds,
        )

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        user = _ProtocolUser(protocolFactory, self._address)
        protocolFactory.doStart()
        opening = open_console(
            self._config,
            self._address.namespace,
            self._address.name,
            user,
            self._reactor,
            self._options,
        )

        def opened(_: object) -> IProtocol:
            if user.protocol is None:
                raise NoProtocol()
            protocol: IProtocol = user.protocol
            return protocol

        def failed(failure: Failure) -> Failure:
            protocolFactory.doStop()
            return failure

        return opening.addCallback(opened).addErrback(failed)


class _ProtocolUser(ConsoleUser):
    protocol: Any = None
    _handles_losses = False

    def __init__(self, factory: IProtocolFactory, address: ConsoleAddress) -> None:
        self._factory, self._address = factory, address
        self._recordings: tuple[OpenRecording, ...] = ()
        self._news = RecordingNews()
        self._ending: Ending | None = None
        self.transport: _ConsoleTransport | None = None

    def attached(self, stream: ConsoleStream) -> None:
        self.protocol = self._factory.buildProtocol(self._address)
        if self.protocol is None:
            stream.abort()
            return
        self._handles_losses = IResumableProtocol.providedBy(self.protocol)
        self.transport = _ConsoleTransport(stream, self._address)
        self.protocol.makeConnection(self.transport)
        if recorded := stream.recorded_input:
            self._tell_recorded((OpenRecording(recorded),), self._news.begun(recorded))

    def outage(self, reason: str) -> None:
        if self._handles_losses:
            self.protocol.outage(reason)

    def resumed(self, seconds: float, uncertain: int, unsent: int) -> None:
        if self._handles_losses:
            self.protocol.resumed(seconds, uncertain)
        else:
            super().resumed(seconds, uncertain, unsent)

    def notice(self, notice: Notice) -> None:
        if self._handles_losses:
            self.protocol.notice(notice.text)
        else:
            super().notice(notice)

    def skipped(self, count: int | None) -> None:
        if self._handles_losses:
            self.protocol.skipped(count)
        else:
            super().skipped(count)

    def attendance_changed(self, attendance: Attendance) -> None:
        recordings = attendance.recordings
        if recordings is not None and recordings != self._recordings:
            self._tell_recorded(recordings, self._news.changed(recordings))

    def _tell_recorded(self, recordings: tuple[OpenRecording, ...], news: str) -> None:
        self._recordings = recordings
        if IRecordedProtocol.providedBy(self.protocol):
            self.protocol.recordings_changed(recordings)
        elif news:
            where = f"{self._address.namespace}/{self._address.name}"
            _log.info("the console of {machine} is {news}", machine=where, news=news)

    def data_received(self, data: bytes) -> None:
        self.protocol.dataReceived(data)

    def ended(self, ending: Ending) -> None:
        self._ending = ending

    def detached(self, reason: str) -> None:
        if self.protocol is None or self.transport is None:
            return
        left, ending = self.transport.disconnecting, self._ending
        self.transport.connected = False
        well = left if ending is None else ending.is_success
        why = ConsoleDone(ending) if well else ConsoleLost(ending, reason)
        self.protocol.connectionLost(Failure(why))
        self._factory.doStop()


@implementer(ITransport, IConsumer, IPushProducer)
class _ConsoleTransport:
    def __init__(self, stream: ConsoleStream, address: ConsoleAddress) -> None:
        self._stream, self._address = stream, address
        self.connected = True
        self.disconnecting = False

    def write(self, data: bytes) -> None:
        if self.connected and not self.disconnecting:
            self._stream.write(data)

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def window_changed(self, size: TerminalSize) -> None:
        self._stream.resize(size)

    def send_break(self, milliseconds: int = 250) -> None:
        """
        Send BREAK on the machine's line, after the data written so far.

        :param milliseconds: 1 to 5000.
        """
        if self.connected and not self.disconnecting:
            self._stream.wish(Break(milliseconds))

    def loseWriteConnection(self) -> None:
        """
        End the input; output continues.

        Does nothing with protocols that have no message for it.
        """
        if self.connected and self._stream.can_half_close:
            self._stream.end_input()

    def loseConnection(self) -> None:
        if self.connected and not self.disconnecting:
            self.disconnecting = True
            self._stream.leave()

    def abortConnection(self) -> None:
        if self.connected:
            self.disconnecting = True
            self._stream.abort()

    def getPeer(self) -> ConsoleAddress:
        return self._address

    def getHost(self) -> IAddress:
        return self._stream.transport.getHost()  # type: ignore[no-any-return]

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        if not self.connected:
            producer.stopProducing()
            return
        if not streaming:
            raise ValueError("only streaming producers: wrap a pull producer")
        self._stream.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        self._stream.unregisterProducer()

    def pauseProducing(self) -> None:
        if self.connected:
            self._stream.pause_output()

    def resumeProducing(self) -> None:
        if self.connected:
            self._stream.resume_output()

    def stopProducing(self) -> None:
        self.loseConnection()


def parse_console(
    reactor: Any,
    name: str = "",
    namespace: str | None = None,
    kubeconfig: str | None = None,
    context: str | None = None,
    timeout: str = str(TIMEOUT_SECONDS),
    dialect: str = "",
    reason: str = "",
    resume: str = "yes",
) -> IStreamClientEndpoint:
    """
    ``console:NAME:namespace=NS:kubeconfig=FILE:context=CONTEXT:timeout=SECONDS:dialect=DIALECT:reason=TEXT:resume=no``

    :raises ValueError: a part is missing or not valid.
    """
    if resume not in ("yes", "no"):
        raise ValueError(f"console: resume={resume} is neither yes nor no")
    if not name:
        raise ValueError("console: needs the name of a machine, as in console:demo-vm")
    among = (by_name(dialect),) if dialect else DIALECTS
    try:
        reason = check_reason(reason)
    except APIError as refusal:
        raise ValueError(f"console: {refusal.message}") from None
    return _FromKubeconfig(
        reactor,
        name,
        namespace,
        kubeconfig,
        context,
        float(timeout),
        among,
        reason,
        resume == "yes",
    )


@implementer(IStreamClientEndpoint)
@dataclass(frozen=True)
class _FromKubeconfig:
    reactor: Any
    name: str
    namespace: str | None
    kubeconfig: str | None
    context: str | None
    timeout_seconds: float
    among: Sequence[Dialect]
    reason: str
    resume: bool

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        async def connected() -> IProtocol:
            config = load(self.kubeconfig, self.context)
            console = ConsoleEndpoint(
                config,
                self.namespace or config.namespace,
                self.name,
                self.reactor,
                timeout_seconds=self.timeout_seconds,
                among=self.among,
                reason=self.reason,
                resume=self.resume,
            )
            return await console.connect(protocolFactory)

        return Deferred.fromCoroutine(connected())
