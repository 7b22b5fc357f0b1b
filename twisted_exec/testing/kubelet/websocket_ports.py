"""
Ports of a Pod, forwarded over a WebSocket by a kubelet's double.

In a tunnel (``SPDY/3.1+portforward.k8s.io``) messages carry SPDY.  In an older WebSocket each port
of the request is one connection, on two channels.  Facts: ``websocket.go`` of
``k8s.io/kubelet/pkg/cri/streaming/portforward``.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Sequence
from typing import Any

from twisted.python.failure import Failure

from twisted_exec.testing.kubelet.spdy_ports import PortForwards
from twisted_exec.testing.kubelet.targets import Way, port_of

TUNNEL = "SPDY/3.1+portforward.k8s.io"
OLD_PROTOCOLS = ("v4.channel.k8s.io", "v4.base64.channel.k8s.io")


def read_ports(values: Sequence[bytes]) -> list[int]:
    """
    Return the ports of a WebSocket's query, 1 to 100.

    :raises ValueError: no port is given, too many are, or a value is not a port.
    """
    ports = [port_of(each) for value in values for each in value.split(b",")]
    numbers = [port for port in ports if port is not None]
    if not ports or len(numbers) != len(ports) or len(ports) > 100:
        raise ValueError('query parameter "port" must have one port or several')
    return numbers


class _SocketPorts:
    """Port forwarding over a WebSocket; receives the events of its socket."""

    def __init__(self, socket: Any, over: Callable[[Any], None]) -> None:
        self.socket, self._over = socket, over

    def opened(self) -> None:
        """The WebSocket is open."""

    def message_received(self, message: bytes) -> None:
        raise NotImplementedError

    def pong_received(self) -> None:
        """Ignore pongs, as no ping was sent."""

    def failing(self, reason: str) -> None:
        """Do nothing: the socket reports the error in its Close message."""

    def close_received(self, code: int | None) -> None:
        """Do nothing: the socket replies with its own Close."""

    def lost(self, reason: str) -> None:
        self._over(self)

    def hold(self, still: bool) -> None:
        """Pause reading from the client if ``still``, otherwise resume."""
        if self.socket.can_send:
            transport = self.socket.transport
            (transport.pauseProducing if still else transport.resumeProducing)()

    def close(self) -> None:
        self.socket.close()
        self.socket.hang_up()

    def cut(self) -> None:
        """Abort the connection, because the kubelet stops."""
        self.socket.abort()


class TunnelPorts(_SocketPorts):
    """SPDY in binary messages, without regard to message boundaries."""

    def __init__(self, reactor: Any, pod: str, socket: Any, over: Callable[[Any], None]) -> None:
        super().__init__(socket, over)
        self._forwards = PortForwards(reactor, pod, self)
        socket.on_flow(self._forwards.pace)

    def message_received(self, message: bytes) -> None:
        if message:  # an empty message does not end the stream
            self._forwards.received(message)

    def send(self, data: bytes) -> None:
        self.socket.send(data)

    def lost(self, reason: str) -> None:
        self._forwards.lost()
        super().lost(reason)


class _OldPort:
    """One port of an older WebSocket, with a data channel and an error channel."""

    def __init__(self, ports: OldPorts, channel: int, port: int) -> None:
        self._ports, self._channel = ports, channel
        self.port = port
        self.is_over = False
        number = struct.pack("<H", port)
        ports.say(channel, number)
        ports.say(channel + 1, number)
        self.way = Way(ports.reactor, port, self)
        self.way.connecting.addCallbacks(self.way.connected, self._refused)
        self.way.connecting.addCallback(lambda _: self.target_full(False))

    def _refused(self, failure: Failure) -> None:
        if self.way.left:
            return
        prefix = f"error forwarding port {self.port} to pod {self._ports.pod}, uid : "
        self._ports.say(self._channel + 1, (prefix + failure.getErrorMessage()).encode())
        self.target_lost()

    def target_said(self, data: bytes) -> None:
        self._ports.say(self._channel, data)

    def target_ended(self) -> None:
        """Do nothing: these channels have no half-close."""

    def target_full(self, full: bool) -> None:
        self._ports.full(self, full)

    def target_lost(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._ports.target_over()


class OldPorts(_SocketPorts):
    """
    ``v4.channel.k8s.io`` with ``port=`` in the query.

    :param in_base64: messages are text: a digit for the channel, then base64.
    """

    def __init__(
        self,
        reactor: Any,
        pod: str,
        socket: Any,
        over: Callable[[Any], None],
        *,
        ports: Sequence[int],
        in_base64: bool,
    ) -> None:
        super().__init__(socket, over)
        self.reactor, self.pod = reactor, pod
        self._numbers, self._in_base64 = ports, in_base64
        self._ports: list[_OldPort] = []
        self._full: set[_OldPort] = set()
        socket.on_flow(self._pace)

    def opened(self) -> None:
        for at, port in enumerate(self._numbers):
            self._ports.append(_OldPort(self, 2 * at, port))

    def say(self, channel: int, data: bytes) -> None:
        """Send a message on a channel."""
        if self._in_base64:
            self.socket.send(bytes((channel + ord("0"),)) + base64.b64encode(data), text=True)
        else:
            self.socket.send(bytes((channel,)) + data)

    def message_received(self, message: bytes) -> None:
        channel = message[0] - (ord("0") if self._in_base64 else 0) if message else -1
        if channel % 2 or not 0 <= channel // 2 < len(self._ports):
            return
        try:
            data = base64.b64decode(message[1:]) if self._in_base64 else message[1:]
        except binascii.Error:
            return
        if data:
            self._ports[channel // 2].way.write(data)

    def full(self, port: _OldPort, full: bool) -> None:
        """Pause the client while any port is ``full``."""
        (self._full.add if full else self._full.discard)(port)
        self.hold(bool(self._full))

    def _pace(self, full: bool) -> None:
        for each in self._ports:
            each.way.pace(full)

    def target_over(self) -> None:
        """Close the connection after its last port."""
        if len(self._ports) == len(self._numbers) and all(port.is_over for port in self._ports):
            self.close()

    def lost(self, reason: str) -> None:
        for each in self._ports:
            each.way.abort()
        super().lost(reason)
