"""
Lines at telnet ports, with RFC 2217 for the settings of serial lines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IDelayedCall,
    IProtocolFactory,
    IPushProducer,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.console.interfaces import ILineTransport
from twisted_exec.console.rate_limit import ReadRateLimit
from twisted_exec.streaming.interfaces import TerminalSize
from twisted_exec.wire import telnet
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.telnet import (
    ComPort,
    Control,
    Event,
    LineSettings,
    Option,
    OptionChanged,
    Parameters,
    TelnetClient,
    Text,
)

Note = Callable[[str, str, str], None]
"""Called with the type, reason and message of an Event."""
_COMMAND_COST_BYTES = 256
_SECONDS_BETWEEN_CARRIERS = 10.0


@implementer(IStreamClientEndpoint)
class TelnetEndpoint:
    """
    Connects to a telnet port. Protocols get a :class:`TelnetLine` as their transport.

    :param settings: of the serial line, for RFC 2217; ``None`` for plain telnet.
    """

    def __init__(
        self,
        endpoint: IStreamClientEndpoint,
        clock: IReactorTime,
        note: Note,
        settings: LineSettings | None = None,
    ) -> None:
        self._endpoint, self._clock = endpoint, clock
        self._note, self._settings = note, settings

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        def build() -> TelnetLine:
            upper = protocolFactory.buildProtocol(None)  # type: ignore[arg-type]
            port = None if self._settings is None else ComPort(self._settings)
            return TelnetLine(upper, self._clock, self._note, port)

        factory = Factory.forProtocol(build)
        factory.noisy = False
        connecting: Deferred[Any] = self._endpoint.connect(factory)
        return connecting.addCallback(lambda line: line.upper)


@implementer(IPushProducer)
class _Input:
    def __init__(self) -> None:
        self._producer: Any = None
        self._full = self._suspended = False

    def register(self, producer: Any) -> None:
        self._producer = producer
        if self._suspended:
            producer.pauseProducing()

    def unregister(self) -> None:
        self._producer = None

    def suspend(self, suspended: bool) -> None:
        self._suspended = suspended
        self._flow()

    def pauseProducing(self) -> None:
        self._full = True
        self._flow()

    def resumeProducing(self) -> None:
        self._full = False
        self._flow()

    def stopProducing(self) -> None:
        """Do nothing: ``connectionLost`` follows."""

    def _flow(self) -> None:
        if self._producer is None:
            return
        if self._full or self._suspended:
            self._producer.pauseProducing()
        else:
            self._producer.resumeProducing()


@implementer(ILineTransport)
class TelnetLine(Protocol):
    """One telnet connection: the protocol of a socket, and the transport of ``upper``."""

    transport: Any

    def __init__(self, upper: Any, clock: IReactorTime, note: Note, port: ComPort | None) -> None:
        self.upper = upper
        self._clock, self._note, self._port = clock, note, port
        offers: list[int] = [*TelnetClient.OFFERS]
        if port is not None:
            offers.append(Option.COM_PORT)
        self._codec = TelnetClient(offers=offers)
        self._input = _Input()
        self._rate_limit = ReadRateLimit(clock, self._flow, self._flow)
        self._paused = False
        self._break: IDelayedCall | None = None
        self._fault: RemoteProtocolError | None = None
        self._noted: set[object] = set()
        self._carrier_noted_at = -_SECONDS_BETWEEN_CARRIERS

    # Protocol of the socket.

    def connectionMade(self) -> None:
        self.transport.registerProducer(self._input, True)
        self._codec.begin()
        self._send()
        self.upper.makeConnection(self)

    def dataReceived(self, data: bytes) -> None:
        if self._fault is not None:
            return
        text = bytearray()
        # A flood of commands costs more time per byte than text, and no real line sends one.
        self._rate_limit.charge(data.count(b"\xff") * _COMMAND_COST_BYTES)
        try:
            for event in self._codec.receive(data):
                if isinstance(event, Text):
                    text += event.data
                else:
                    self._negotiated(event)
        except RemoteProtocolError as fault:
            self._fault = fault
        self._send()
        if text:
            self.upper.dataReceived(bytes(text))
        if self._fault is not None:
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._rate_limit.stop()
        if self._break is not None:
            self._break.cancel()
            self._break = None
        self.upper.connectionLost(reason if self._fault is None else Failure(self._fault))

    def _send(self) -> None:
        data = self._codec.to_send()
        if data:
            self.transport.write(data)

    def _negotiated(self, event: Event) -> None:
        if isinstance(event, OptionChanged) and event.option == Option.COM_PORT and event.ours:
            self._agreed(event.on)
        elif isinstance(event, Parameters) and event.option == Option.COM_PORT and self._port:
            self._port_changed(self._port.receive(event.data))

    def _agreed(self, on: bool) -> None:
        if not on:
            self._input.suspend(False)
            self._note_once(
                "NoSerialSettings",
                "the console server does not support RFC 2217; its line keeps the settings that it has there",
            )
        elif self._port is not None and "settings" not in self._noted:
            self._noted.add("settings")
            for parameters in self._port.begin():
                self._say(parameters)

    def _note_once(self, reason: str, message: str, key: object = None) -> None:
        if (reason, key) not in self._noted:
            self._noted.add((reason, key))
            self._note("Warning", reason, message)

    def _port_changed(self, event: telnet.PortEvent | None) -> None:
        if isinstance(event, telnet.Suspended):
            self._input.suspend(event.on)
        elif isinstance(event, telnet.ServerParameter) and event.problem:
            self._note_once("OtherSettings", event.problem, event.ask)
        elif isinstance(event, telnet.CarrierDetect):
            now = self._clock.seconds()
            if now - self._carrier_noted_at >= _SECONDS_BETWEEN_CARRIERS:
                self._carrier_noted_at = now
                word = "on" if event.on else "off"
                self._note("Normal", "Carrier", f"the carrier (DCD) of the line is {word}")

    def _say(self, parameters: bytes) -> None:
        self.transport.write(self._codec.encode_parameters(Option.COM_PORT, parameters))

    # ILineTransport of the upper protocol.

    def write(self, data: bytes) -> None:
        self.transport.write(self._codec.encode(data))

    def loseConnection(self) -> None:
        self.transport.unregisterProducer()
        self.transport.loseConnection()

    def abortConnection(self) -> None:
        self.transport.abortConnection()

    def registerProducer(self, producer: object, streaming: bool) -> None:
        self._input.register(producer)

    def unregisterProducer(self) -> None:
        self._input.unregister()

    def pauseProducing(self) -> None:
        self._paused = True
        self._flow()

    def resumeProducing(self) -> None:
        self._paused = False
        self._flow()

    def _flow(self) -> None:
        if self._paused or self._rate_limit.is_paused:
            self.transport.pauseProducing()
        else:
            self.transport.resumeProducing()

    def window_changed(self, size: TerminalSize) -> None:
        self._codec.resize(size.columns, size.rows)
        self._send()

    def send_break(self, milliseconds: int) -> None:
        """Send BREAK; without RFC 2217 the server decides on its length."""
        if not self._codec.is_on(Option.COM_PORT, ours=True):
            self.transport.write(self._codec.encode_break())
        elif self._break is None:
            self._say(telnet.encode_control(Control.BREAK_ON))
            self._break = self._clock.callLater(milliseconds / 1000, self._end_break)

    def _end_break(self) -> None:
        self._break = None
        if self._codec.is_on(Option.COM_PORT, ours=True):
            self._say(telnet.encode_control(Control.BREAK_OFF))
