"""
Syslog over TLS (RFC 5425): rsyslog, syslog-ng and others.

The protocol has no acknowledgement. A receiver that crashes loses what it has received and not yet
written. So lines count as safe only when the receiver's kernel has acknowledged them *and* the
connection has lasted for some time after that. After a lost connection the other lines are sent
again: they may arrive twice.

Messages are those of RFC 5424. The host name is the machine's name, the process id its boot, and
the message id ``line`` or ``gap``; further labels are structured data. The text is passed on byte
for byte.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IPullProducer
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import message_of
from twisted_exec.program.tasks import as_deferred
from twisted_exec.shipping.interfaces import (
    ILineBatch,
    ILineSink,
    Labels,
    Receipt,
    ShippedLine,
    SinkError,
)
from twisted_exec.tls.client import ClientCredentials
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.tls.errors import TLSConfigError

FACILITIES: Mapping[str, int] = {
    "kern": 0,
    "user": 1,
    "daemon": 3,
    "syslog": 5,
    **{f"local{number}": 16 + number for number in range(8)},
}

STRUCTURED_DATA_ID = "console@32473"
"""32473 is the enterprise number for documentation (RFC 5612): this project has none of its own."""

LINE_BYTES = 7 << 10
"""Most bytes of a text: receivers should take messages of 8192 bytes (RFC 5425, section 4.3.1)."""

_WARNING, _INFO = 4, 6
_MAX_NAME, _MAX_VALUE = 255, 128
_UNPRINTABLE = re.compile(r"[^!-~]")
_UNSAFE_NAME = re.compile(r'[^!-~]|[=\]"]')
_ESCAPED = re.compile(r'(["\\\]])')
_NOTHING = "-"

DEFAULT_PORT = 6514
CONFIRM_SECONDS = 15.0
"""How long a connection must last for lines to count as safe."""

_BATCH_BYTES = 64 << 10
_POLL_SECONDS = 0.5
_CLOSE_SECONDS = 2.0
_LATER_SECONDS = 5.0


@implementer(ILineBatch)
class SyslogBatch:
    """Messages of any number of machines."""

    def __init__(self, facility: int) -> None:
        self._facility = facility
        self._labels: Labels | None = None
        self._host, self._labels_text = "", ""
        self._second, self._second_text = -1, ""
        self.data = bytearray()
        self.lines = 0

    @property
    def size(self) -> int:
        return len(self.data)

    def add(self, labels: Labels, line: ShippedLine) -> None:
        if labels is not self._labels:
            self._labels = labels
            self._host = _UNPRINTABLE.sub("?", labels.machine)[:_MAX_NAME] or _NOTHING
            self._labels_text = _labels_text(labels)
        severity = _WARNING if line.is_gap else _INFO
        head = (
            f"<{self._facility * 8 + severity}>1 {self._time(line.time)} {self._host} console "
            f"{line.boot or _NOTHING} {'gap' if line.is_gap else 'line'} "
            f'[{STRUCTURED_DATA_ID}{self._labels_text} boot="{line.boot}" offset="{line.offset}"] '
        ).encode("utf-8", "replace")
        text = line.gap_text() if line.is_gap else line.text
        self.data += b"%d %b%b" % (len(head) + len(text), head, text)
        self.lines += 1

    def _time(self, nanoseconds: int) -> str:
        second, rest = divmod(nanoseconds, 1_000_000_000)
        if second != self._second:
            self._second = second
            moment = datetime.fromtimestamp(second, UTC)
            self._second_text = moment.strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._second_text}.{rest // 1000:06d}Z"


def _labels_text(labels: Labels) -> str:
    values = {
        "machine": labels.machine,
        "namespace": labels.namespace,
        "uid": labels.uid,
        "class": labels.machine_class,
        "epoch": labels.epoch,
        **labels.others,
    }
    return "".join(
        f' {_UNSAFE_NAME.sub("_", key)[:32]}="{_escape(value)}"'
        for key, value in values.items()
        if key and value
    )


def _escape(value: str) -> str:
    text = "".join(each for each in value[:_MAX_VALUE] if each.isprintable())
    return _ESCAPED.sub(r"\\\1", text)


@implementer(IPullProducer)
class _Connection(Protocol):
    transport: Any

    def __init__(self, lost: Any, send_seconds: float) -> None:
        self._lost, self._send_seconds = lost, send_seconds
        self._sent: Deferred[None] | None = None
        self._registering = False
        self.ended: Deferred[None] = Deferred()

    def connectionMade(self) -> None:
        self.transport.setTcpKeepAlive(True)
        plug = getattr(self.transport, "socket", None)
        if plug is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            # Later than the end of a batch, which says what the receiver has not done.
            milliseconds = int((self._send_seconds + _LATER_SECONDS) * 1000)
            plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)

    def send(self, data: bytes) -> Deferred[None]:
        self._sent = Deferred()
        self._registering = True
        self.transport.registerProducer(self, False)
        self._registering = False
        self.transport.write(data)
        return self._sent

    def resumeProducing(self) -> None:
        if not self._registering:
            self.transport.unregisterProducer()
            self._fire(None)

    def stopProducing(self) -> None:
        """Do nothing: ``connectionLost`` follows."""

    @property
    def unacknowledged(self) -> int:
        """Number of bytes that the receiver's kernel has not acknowledged."""
        plug = getattr(self.transport, "socket", None)
        if plug is None:
            return 0
        result: int = struct.unpack("i", ioctl(plug.fileno(), TIOCOUTQ, bytes(4)))[0]
        return result

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        why = message_of(reason.value) if reason.value is not None else "connection lost"
        self._lost(why)
        self._fire(Failure(SinkError("unreachable", why)))
        self.ended.callback(None)

    def _fire(self, result: Any) -> None:
        sent, self._sent = self._sent, None
        if sent is not None:
            sent.callback(result)


@implementer(ILineSink)
class SyslogSink:
    """
    Sends messages on one connection, which is opened on demand.

    :param send_seconds: time that the receiver has to take a batch.
    """

    line_bytes, batch_bytes = LINE_BYTES, _BATCH_BYTES

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        credentials: ClientCredentials,
        reactor: Any,
        *,
        facility: int,
        confirm_seconds: float = CONFIRM_SECONDS,
        send_seconds: float = 60.0,
    ) -> None:
        self.name, self._send_seconds = name, send_seconds
        self._host, self._port, self._credentials = host, port, credentials
        self._reactor, self._facility = reactor, facility
        self._confirm_seconds = confirm_seconds
        self._connection: _Connection | None = None
        self._sent = self._settled = 0  # batches
        self._loss = ""  # of a connection that took lines which have not settled
        self._resting: Deferred[None] | None = None

    def new_batch(self) -> SyslogBatch:
        return SyslogBatch(self._facility)

    @as_deferred
    async def send(self, batch: Any) -> Receipt:
        """See :meth:`ILineSink.send`; fires when the kernel has the messages."""
        if self._loss:
            raise SinkError("unreachable", self._loss)  # until settle() has reported it
        connection = self._connection or await self._connect()
        sending = connection.send(bytes(batch.data))
        try:
            await sending.addTimeout(self._send_seconds, self._reactor)
        except TimeoutError:
            connection.transport.abortConnection()
            raise SinkError(
                "unreachable", f"{self._peer} has taken nothing for {self._send_seconds:.0f} s"
            ) from None
        except CancelledError:
            # The rest of a message that was cut would spoil the next one.
            connection.transport.abortConnection()
            raise
        self._sent += 1
        return Receipt()

    @property
    def _peer(self) -> str:
        return f"the syslog receiver {self._host}:{self._port}"

    async def _connect(self) -> _Connection:
        factory = Factory.forProtocol(lambda: _Connection(self._lost, self._send_seconds))
        factory.noisy = False
        try:
            endpoint = client_endpoint(
                self._reactor, self._host, self._port, self._credentials.to(self._host)
            )
            connection: Any = await endpoint.connect(factory)
        except CancelledError:
            raise
        except TLSConfigError as problem:
            raise SinkError("disk", str(problem)) from None
        except Exception as problem:
            # TCP and TLS fail with many unrelated types.
            raise SinkError("unreachable", f"{self._peer}: {message_of(problem)}") from None
        self._connection = connection
        assert self._connection is not None
        return self._connection

    def _lost(self, why: str) -> None:
        self._connection = None
        if self._sent > self._settled:
            self._loss = f"{self._peer}: {why}"
            if self._resting is not None:
                self._resting.cancel()

    @as_deferred
    async def settle(self) -> None:
        """See :meth:`ILineSink.settle`; fires when the connection has lasted long enough."""
        sent, connection = self._sent, self._connection
        if connection is not None:
            # Not control.polling: a lost connection ends the rest.
            while connection is self._connection and connection.unacknowledged:
                await self._rest(_POLL_SECONDS)
            if connection is self._connection:
                await self._rest(self._confirm_seconds)
        loss, self._loss = self._loss, ""
        self._settled = self._sent if loss else sent
        if loss:
            raise SinkError("unreachable", loss)

    async def _rest(self, seconds: float) -> None:
        self._resting = deferLater(self._reactor, seconds)
        try:
            await self._resting
        except CancelledError:
            if not self._loss:
                raise

    @as_deferred
    async def close(self) -> None:
        connection = self._connection
        if connection is None:
            return
        ended: Deferred[None] = Deferred()
        connection.ended.addCallback(lambda _: ended.callback(None))
        connection.transport.loseConnection()
        try:
            await ended.addTimeout(_CLOSE_SECONDS, self._reactor)
        except TimeoutError:
            connection.transport.abortConnection()
