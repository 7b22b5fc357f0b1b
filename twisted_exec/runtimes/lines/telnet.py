"""
Lines at telnet ports, with RFC 2217 for the settings of serial lines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import (
    IDelayedCall,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from twisted_exec.console.rate_limit import RateLimit
from twisted_exec.runtimes.lines.layer import LayeredEndpoint, LineLayer, PauseCause
from twisted_exec.streaming.interfaces import TerminalSize
from twisted_exec.wire import com_port
from twisted_exec.wire.com_port import ComPort, Control, LineSettings
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.telnet import Event, Option, OptionChanged, Parameters, TelnetClient, Text

Note = Callable[[str, str, str], None]
"""Called with the type, reason and message of an Event."""
_COMMAND_COST_BYTES = 256
_SECONDS_BETWEEN_CARRIERS = 10.0


class TelnetEndpoint(LayeredEndpoint):
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
        def make_layer(upper: Any) -> TelnetLine:
            port = None if settings is None else ComPort(settings)
            return TelnetLine(upper, clock, note, port)

        super().__init__(endpoint, make_layer)


class TelnetLine(LineLayer):
    """One telnet connection."""

    def __init__(self, upper: Any, clock: IReactorTime, note: Note, port: ComPort | None) -> None:
        super().__init__(upper)
        self._clock, self._note, self._port = clock, note, port
        offers: list[int] = [*TelnetClient.OFFERS]
        if port is not None:
            offers.append(Option.COM_PORT)
        self._codec = TelnetClient(offers=offers)
        self._rate_limit = RateLimit(clock, self._flow, self._flow)
        self._break: IDelayedCall | None = None
        self._noted: set[object] = set()
        self._carrier_noted_at = -_SECONDS_BETWEEN_CARRIERS

    # Protocol of the socket.

    def connectionMade(self) -> None:
        self._codec.begin()
        self._send()
        super().connectionMade()

    def dataReceived(self, data: bytes) -> None:
        if self.error is not None:
            return
        fault: RemoteProtocolError | None = None
        text = bytearray()
        # A flood of commands costs more time per byte than text, and no real line sends one.
        self._rate_limit.charge(data.count(b"\xff") * _COMMAND_COST_BYTES)
        try:
            for event in self._codec.receive(data):
                if isinstance(event, Text):
                    text += event.data
                else:
                    self._negotiated(event)
        except RemoteProtocolError as error:
            fault = error
        self._send()
        self.deliver(bytes(text))
        if fault is not None:
            self.fail(fault)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._rate_limit.stop()
        if self._break is not None:
            self._break.cancel()
            self._break = None
        super().connectionLost(reason)

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
            self.resume_input(PauseCause.PEER)
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

    def _port_changed(self, event: com_port.PortEvent | None) -> None:
        if isinstance(event, com_port.Suspended):
            change = self.pause_input if event.on else self.resume_input
            change(PauseCause.PEER)
        elif isinstance(event, com_port.ServerParameter) and event.problem:
            self._note_once("OtherSettings", event.problem, event.ask)
        elif isinstance(event, com_port.CarrierDetect):
            now = self._clock.seconds()
            if now - self._carrier_noted_at >= _SECONDS_BETWEEN_CARRIERS:
                self._carrier_noted_at = now
                word = "on" if event.on else "off"
                self._note("Normal", "Carrier", f"the carrier (DCD) of the line is {word}")

    def _say(self, parameters: bytes) -> None:
        self.transport.write(self._codec.encode_parameters(Option.COM_PORT, parameters))

    # ISharedLineTransport of the upper protocol.

    def write(self, data: bytes) -> None:
        self.transport.write(self._codec.encode(data))

    def pauseProducing(self) -> None:
        super().pauseProducing()
        self._flow()

    def resumeProducing(self) -> None:
        super().resumeProducing()
        self._flow()

    def _flow(self) -> None:
        if self.is_paused or self._rate_limit.is_paused:
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
            self._say(com_port.encode_control(Control.BREAK_ON))
            self._break = self._clock.callLater(milliseconds / 1000, self._end_break)

    def _end_break(self) -> None:
        self._break = None
        if self._codec.is_on(Option.COM_PORT, ours=True):
            self._say(com_port.encode_control(Control.BREAK_OFF))
