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

Power on opens the line; :mod:`.shared_line` reconnects it.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from zope.interface import implementer

from twisted_exec.api.status import message_of
from twisted_exec.program.config_file import Reader
from twisted_exec.runtimes.interfaces import Build, IMachineDriver, MachineFacts
from twisted_exec.runtimes.lines.claims import SERIAL_KEYS, line_settings
from twisted_exec.runtimes.lines.line_driver import LineDriver
from twisted_exec.runtimes.lines.telnet import TelnetEndpoint
from twisted_exec.runtimes.processes import ProcessTable
from twisted_exec.tls.transport import KEEP_ALIVE
from twisted_exec.wire.com_port import LineSettings

_KINDS = ("tcp:", "unix:")

# A console may be silent for weeks; only keep-alive detects a console server without power.
_ALIVE = (*KEEP_ALIVE, (socket.TCP_USER_TIMEOUT, 60_000))


@dataclass(frozen=True)
class SocketLine:
    """
    One line.

    :param endpoint: a Twisted client endpoint string.
    :param protocol: ``raw``, ``telnet`` or ``rfc2217``.
    :param settings: of the serial line, for ``rfc2217``.
    """

    endpoint: str
    protocol: str = "raw"
    settings: LineSettings | None = None


def configure(reader: Reader, resources: Mapping[str, int]) -> Build:
    """Read the keys of a class; see :meth:`.IDriverMaker.configure`."""
    lines = {}
    readers = reader.mappings("lines")
    for name, line_reader in readers.items():
        lines[name] = _line(line_reader)
        line_reader.done()

    reader.quantity = len(lines)

    def build(reactor: Any, table: ProcessTable) -> SocketDriver:
        for name, line in lines.items():
            try:
                clientFromString(reactor, line.endpoint)
            except (ValueError, TypeError, KeyError) as error:
                why = message_of(error)
                raise readers[name].error(f"endpoint {line.endpoint!r}: {why}") from None
        return SocketDriver(lines, reactor)

    return build


def _line(reader: Reader) -> SocketLine:
    endpoint = reader.take("endpoint", str)
    if not endpoint.startswith(_KINDS):
        raise reader.error(
            f"endpoint {endpoint!r} is not of the form tcp:host=10.0.0.5:port=7001 or unix:/run/serial"
        )
    protocol = reader.choice("protocol", ("raw", "telnet", "rfc2217"), "raw")
    settings = line_settings(reader) if protocol == "rfc2217" else None
    for key in SERIAL_KEYS if settings is None else ():
        if reader.has(key):
            raise reader.error(f"{key} needs protocol: rfc2217, not {protocol}")
    return SocketLine(endpoint, protocol, settings)


@implementer(IStreamClientEndpoint)
class _KeepAliveEndpoint:
    """Connects without Nagle's delay, and with keep-alive to detect a dead peer."""

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
