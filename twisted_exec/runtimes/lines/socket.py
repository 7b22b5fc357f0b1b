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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.abstract import isIPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from zope.interface import implementer

from twisted_exec.program.config_file import Reader
from twisted_exec.runtimes.interfaces import Build, IMachineDriver, MachineFacts
from twisted_exec.runtimes.lines.driver import LineDriver
from twisted_exec.runtimes.lines.serial_settings import SERIAL_KEYS, line_settings
from twisted_exec.runtimes.lines.telnet import TelnetEndpoint
from twisted_exec.tls.fast.transport import KEEP_ALIVE
from twisted_exec.wire.com_port import LineSettings

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
    for name, line_reader in reader.lines().items():
        lines[name] = _line(line_reader)
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
