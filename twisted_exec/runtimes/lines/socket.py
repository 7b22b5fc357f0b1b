"""
The driver ``socket``: consoles at UNIX sockets and at ports of console servers.

::

    - name: rack
      driver: socket
      lines:
        web-1: {endpoint: "tcp:host=10.0.0.5:port=7001", protocol: rfc2217, baud: 115200}
        web-2: {endpoint: "tcp:host=10.0.0.5:port=7002", protocol: telnet}
        vm-7: {endpoint: "unix:/run/vms/7/serial"}
      capabilities: {cpu: "1", memory: 1Gi}
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.abstract import isIPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString
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
from twisted_exec.console.line import ReadRateLimit
from twisted_exec.program.config_file import Reader
from twisted_exec.runtimes.interfaces import Build, IMachineDriver, MachineFacts
from twisted_exec.runtimes.lines.shared_line import (
    SERIAL_KEYS,
    LineDriver,
    line_readers,
    line_settings,
)
from twisted_exec.streaming.interfaces import TerminalSize
from twisted_exec.tls.fast.transport import KEEP_ALIVE
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

_FORMS = "tcp:host=10.0.0.5:port=7001 or unix:/run/serial"
_POSITIONS = {"tcp": ("host", "port"), "unix": ("path",)}
_OPTIONS = {"tcp": {"timeout", "bindAddress"}, "unix": {"timeout", "lockfile"}}
_IPV6 = r"put a backslash before each colon of an IPv6 address, as in tcp:host=fd00\:\:1:port=7001"
_HOST = re.compile(r"[^\s/:\[\]\0]+")
# The parts of an endpoint string are separated by colons; a backslash escapes the next character.
_PART = re.compile(r"((?:[^:\\]|\\.)*)(?::|\Z)", re.DOTALL)
_OPTION = re.compile(r"(?:((?:[^=\\]|\\.)*)=)?(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)

# A console may be silent for weeks; only keep-alive detects a console server without power.
_ALIVE = (*KEEP_ALIVE, (socket.TCP_USER_TIMEOUT, 60_000))


@dataclass(frozen=True)
class SocketLine:
    """
    One line.

    :param endpoint: a Twisted client endpoint string of ``tcp:`` or ``unix:``.
    :param protocol: ``raw``, ``telnet`` or ``rfc2217``.
    """

    endpoint: str
    protocol: str = "raw"
    settings: LineSettings | None = None


def configure(reader: Reader, resources: Mapping[str, int]) -> Build:
    """See :meth:`.IDriverMaker.configure`."""
    lines = {}
    for name, line_reader in line_readers(reader).items():
        lines[name] = _line(line_reader)
        line_reader.done()
    reader.quantity = len(lines)
    return lambda reactor, table: SocketDriver(lines, reactor)


def _line(reader: Reader) -> SocketLine:
    endpoint = reader.take("endpoint", str)
    try:
        address, shown = _address(endpoint)
    except ValueError as problem:
        raise reader.error(f"endpoint {endpoint!r} {problem}", "endpoint") from None
    reader.reserve(address, shown)
    protocol = reader.choice("protocol", ("raw", "telnet", "rfc2217"), "raw")
    settings = line_settings(reader) if protocol == "rfc2217" else None
    for key in SERIAL_KEYS if settings is None else ():
        if reader.has(key):
            raise reader.error(f"{key} needs protocol: rfc2217, not {protocol}")
    return SocketLine(endpoint, protocol, settings)


def _address(endpoint: str) -> tuple[object, str]:
    """
    Return the address that an endpoint string leads to, and a text for messages.

    Twisted takes an unescaped IPv6 address, or a URL, for the address of another host.

    :raises ValueError: it is not valid; the message says what to write.
    """
    kind, _, rest = endpoint.partition(":")
    if kind not in _POSITIONS:
        raise ValueError(f"is not of the form {_FORMS}")
    if rest.startswith("//"):
        raise ValueError(f"is a URL, not an endpoint; write {_endpoint_of(endpoint)}")
    options: dict[str, str] = {}
    positions = _POSITIONS[kind]
    for at, part in enumerate(_parts(rest)):
        name, value = _OPTION.fullmatch(part).groups()  # type: ignore[union-attr]
        if name is None:
            name = positions[at] if at < len(positions) else ""
        value = _ESCAPED.sub(r"\1", value)
        if name in options or name not in _OPTIONS[kind].union(positions):
            raise ValueError(f"is not of the form {_FORMS}; {_IPV6}")
        options[name] = value
    if not options.get("timeout", "30").isdecimal() or options.get("lockfile", "0") not in (
        "0",
        "1",
    ):
        raise ValueError(
            "has a timeout that is no whole number, or a lockfile that is neither 0 nor 1"
        )
    if kind == "unix":
        path = options.get("path", "")
        if not path.startswith("/"):
            raise ValueError("must have an absolute path, such as unix:/run/serial")
        return ("unix", os.path.normpath(path)), f"the socket {path}"
    host, port = options.get("host", ""), options.get("port", "")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= 65535):
        raise ValueError(f"has no port from 1 to 65535; the form is {_FORMS}; {_IPV6}")
    if not (_HOST.fullmatch(host) or isIPv6Address(host)):
        raise ValueError(f"has no valid host; the form is {_FORMS}; {_IPV6}")
    return ("tcp", host.lower(), int(port)), f"port {port} of {host}"


def _parts(rest: str) -> Iterator[str]:
    at = 0
    while found := _PART.match(rest, at):
        yield found[1]
        at = found.end()
        if at == found.end(1):
            return


def _endpoint_of(url: str) -> str:
    if url.startswith("unix:"):
        return f"unix:/{url.removeprefix('unix:').lstrip('/')}"
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "HOST").replace(":", r"\:"), parts.port or "PORT"
    except ValueError:
        host, port = "HOST", "PORT"
    return f"tcp:host={host}:port={port}"


@implementer(IStreamClientEndpoint)
class _KeepAliveEndpoint:
    def __init__(self, endpoint: IStreamClientEndpoint) -> None:
        self._endpoint = endpoint

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        connecting: Deferred[Any] = self._endpoint.connect(protocolFactory)
        return connecting.addCallback(_set_options)


def _set_options(protocol: Any) -> Any:
    transport = protocol.transport
    handle = transport.getHandle()
    if handle.family != socket.AF_UNIX:
        transport.setTcpNoDelay(True)
        transport.setTcpKeepAlive(True)
        for option, value in _ALIVE:
            handle.setsockopt(socket.IPPROTO_TCP, option, value)
    return protocol


@implementer(IMachineDriver)
class SocketDriver(LineDriver[SocketLine]):
    """Runs a class of machines at sockets."""

    name = "socket"

    def missing(self) -> str:
        return ""

    def _has_break(self, line: SocketLine) -> bool:
        return line.protocol != "raw"

    def _claim(self, facts: MachineFacts) -> tuple[str, IStreamClientEndpoint]:
        name, line = self.lines.claim(facts)
        endpoint = _KeepAliveEndpoint(clientFromString(self.reactor, line.endpoint))
        if line.protocol == "raw":
            return name, endpoint
        return name, TelnetEndpoint(endpoint, self.reactor, facts.event, line.settings)


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
