"""
OTLP's log messages in protobuf's encoding, sans I/O.

The messages are written by hand, because an object for each line would take most of the time.
Sources: opentelemetry-proto, ``opentelemetry/proto/logs/v1/logs.proto``, ``common/v1/common.proto``
and ``collector/logs/v1/logs_service.proto``; the OTLP specification 1.8, "OTLP/HTTP".
"""

from __future__ import annotations

import struct

from zope.interface import implementer

from twisted_exec import __version__
from twisted_exec.api.formats.protobuf_wire import read_fields, varint
from twisted_exec.shipping.interfaces import ILineBatch, Labels, Line, Receipt

CONTENT_TYPE = "application/x-protobuf"

SERVICE = "console"
"""The resource attribute ``service.name`` of all lines."""

_INFO, _WARN = 9, 13
_MAX_MESSAGE = 300
_FIXED64, _DELIMITED = 1, 2


@implementer(ILineBatch)
class LogsBatch:
    """
    An ``ExportLogsServiceRequest``.

    :param now: when the lines were read, in nanoseconds since the epoch.
    :ivar lines: number of log records.
    """

    def __init__(self, now: int) -> None:
        self._observed = struct.pack("<BQ", 11 << 3 | _FIXED64, now)
        self._resources: list[bytes] = []
        self._labels: Labels | None = None
        self._records = bytearray()
        self._finished_bytes = 0
        self.lines = 0

    @property
    def size(self) -> int:
        return self._finished_bytes + len(self._records)

    def add(self, labels: Labels, line: Line) -> None:
        """Append a log record."""
        if labels is not self._labels:
            self._finish_resource()
            self._labels = labels
        self.lines += 1
        text = line.gap_text() if line.is_gap else line.text
        # protobuf's strings are UTF-8, and a console prints any bytes.
        body = text if text.isascii() else text.decode("utf-8", "replace").encode("utf-8")
        severity = _WARN if line.is_gap else _INFO
        record = bytearray(struct.pack("<BQBB", 1 << 3 | _FIXED64, line.time, 2 << 3, severity))
        record += _field(5, _field(1, body))
        record += _field(6, _integer("console.offset", line.offset))
        if line.boot:
            record += _field(6, _integer("console.boot", line.boot))
        if line.is_gap:
            record += _field(6, _integer("console.missing_bytes", line.missing or -1))
        record += self._observed
        self._records += _field(2, record)

    def body(self) -> bytes:
        """Return the whole request."""
        self._finish_resource()
        return b"".join(self._resources)

    def _finish_resource(self) -> None:
        """Write the ``ResourceLogs`` of a machine."""
        if self._labels is not None and self._records:
            scope = _field(1, _field(1, b"twisted-exec") + _field(2, __version__.encode()))
            logs = _field(1, _resource(self._labels)) + _field(2, scope + self._records)
            self._resources.append(_field(1, logs))
            self._finished_bytes += len(self._resources[-1])
            self._records = bytearray()


def _resource(labels: Labels) -> bytes:
    attributes = {
        **labels.others,
        "service.name": SERVICE,
        "service.namespace": labels.namespace,
        "service.instance.id": labels.uid,
        "k8s.namespace.name": labels.namespace,
        "console.machine": labels.machine,
        "console.class": labels.machine_class,
        "console.epoch": labels.epoch,
    }
    return b"".join(_field(1, _string(key, value)) for key, value in attributes.items() if value)


def _string(key: str, value: str) -> bytes:
    return _field(1, key.encode()) + _field(2, _field(1, value.encode("utf-8", "replace")))


def _integer(key: str, value: int) -> bytes:
    return _field(1, key.encode()) + _field(2, b"\x18" + varint(value))


def _field(number: int, value: bytes | bytearray) -> bytes:
    return bytes((number << 3 | _DELIMITED,)) + varint(len(value)) + value


def read_receipt(body: bytes) -> Receipt:
    """
    Decode an ``ExportLogsServiceResponse``.

    :raises ValueError: it is none.
    """
    rejected, message = 0, ""
    for number, partial in read_fields(memoryview(body)):
        if number != 1 or isinstance(partial, int):
            continue
        for field, value in read_fields(partial):
            if field == 1 and isinstance(value, int):
                rejected = value if value < 1 << 63 else 0
            elif field == 2 and not isinstance(value, int):
                message = one_line(bytes(value))
    return Receipt(rejected, message)


def status_message(body: bytes) -> str:
    """Return the message of a ``google.rpc.Status`` as one bounded line; empty if it is none."""
    try:
        for number, text in read_fields(memoryview(body)):
            if number == 2 and not isinstance(text, int):
                return one_line(bytes(text))
    except ValueError:
        pass
    return ""


def one_line(text: bytes) -> str:
    """Return a foreign text as one bounded line."""
    characters = text[: 4 * _MAX_MESSAGE].decode("utf-8", "replace")[:_MAX_MESSAGE]
    return "".join(each if each.isprintable() else " " for each in characters).strip()
