"""
Receivers of console lines for tests: an OTLP collector and a syslog receiver.

They share no code with the encoder, whose mistakes would otherwise stay hidden.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

_PACKAGE = "twisted_exec.testing.otlp"
_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
    "int64": _FIELD.TYPE_INT64,
    "int32": _FIELD.TYPE_INT32,
    "fixed64": _FIELD.TYPE_FIXED64,
}
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "AnyValue": {"string_value": (1, "string"), "int_value": (3, "int64")},
    "KeyValue": {"key": (1, "string"), "value": (2, "AnyValue")},
    "Resource": {"attributes": (1, "*KeyValue")},
    "Scope": {"name": (1, "string"), "version": (2, "string")},
    "LogRecord": {
        "time_unix_nano": (1, "fixed64"),
        "severity_number": (2, "int32"),
        "body": (5, "AnyValue"),
        "attributes": (6, "*KeyValue"),
        "observed_time_unix_nano": (11, "fixed64"),
    },
    "ScopeLogs": {"scope": (1, "Scope"), "log_records": (2, "*LogRecord")},
    "ResourceLogs": {"resource": (1, "Resource"), "scope_logs": (2, "*ScopeLogs")},
    "ExportRequest": {"resource_logs": (1, "*ResourceLogs")},
    "PartialSuccess": {
        "rejected_log_records": (1, "int64"),
        "error_message": (2, "string"),
    },
    "ExportResponse": {"partial_success": (1, "PartialSuccess")},
}
_MESSAGE = re.compile(
    rb"<(\d{1,3})>1 (\S+) (\S+) console (\S+) (line|gap) "
    rb'\[console@32473((?: [^ =\]"]+="(?:[^"\\\]]|\\.)*")*)\] (.*)',
    re.DOTALL,
)
_PARAMETER = re.compile(rb' ([^ =\]"]+)="((?:[^"\\\]]|\\.)*)"')


def _messages() -> Mapping[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="twisted_exec_testing_otlp.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            field = message.field.add(name=field_name, number=number)
            field.label = _FIELD.LABEL_REPEATED if kind[0] == "*" else _FIELD.LABEL_OPTIONAL
            kind = kind.removeprefix("*")
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


@dataclass(frozen=True)
class CollectedLine:
    """
    One line that a collector has received.

    :param labels: attributes of the resource and of the line; for syslog, the structured data and
        fields of the header.
    :param time: nanoseconds since the epoch for OTLP; 0 for syslog.
    """

    text: str
    labels: Mapping[str, Any]
    time: int = 0
    severity: int = 0


def decode_request(body: bytes) -> list[CollectedLine]:
    """Decode an ``ExportLogsServiceRequest``."""
    request = _messages()["ExportRequest"].FromString(body)
    return [
        CollectedLine(
            record.body.string_value,
            {**_attributes(logs.resource.attributes), **_attributes(record.attributes)},
            record.time_unix_nano,
            record.severity_number,
        )
        for logs in request.resource_logs
        for scope_logs in logs.scope_logs
        for record in scope_logs.log_records
    ]


def _attributes(pairs: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in pairs if each.key}


def encode_partial_success(rejected: int, message: str) -> bytes:
    """Encode an ``ExportLogsServiceResponse``."""
    response = _messages()["ExportResponse"]()
    response.partial_success.rejected_log_records = rejected
    response.partial_success.error_message = message
    content: bytes = response.SerializeToString()
    return content


@dataclass(frozen=True)
class Answer:
    """An answer of the collector; by default the one of a batch that it accepts."""

    code: int = 200
    body: bytes = b""
    content_type: str = "application/x-protobuf"
    headers: Mapping[str, str] | None = None


class OTLPCollector(Resource):
    """
    The resource of a collector, at any path.

    :ivar site: a factory with it, for a listening port.
    :ivar lines: the lines of all batches that it has accepted.
    :ivar requests: the headers of the requests, by lower-case names.
    :ivar answers: answers of the next requests; afterwards requests are accepted.
    :ivar is_silent: do not answer.
    """

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.site = Site(self)
        self.site.noisy = False
        self.lines: list[CollectedLine] = []
        self.requests: list[Mapping[str, str]] = []
        self.answers: list[Answer] = []
        self.is_silent = False

    def render_POST(self, request: Request) -> Any:
        headers = {
            name.decode().lower(): values[0].decode("latin-1")
            for name, values in request.requestHeaders.getAllRawHeaders()
        }
        self.requests.append(headers)
        if self.is_silent:
            return NOT_DONE_YET
        answer = self.answers.pop(0) if self.answers else Answer()
        assert request.content is not None
        body = request.content.read()
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        lines = decode_request(body)
        if 200 <= answer.code < 300 and answer.content_type == "application/x-protobuf":
            self.lines += lines
        request.setResponseCode(answer.code)
        request.setHeader("content-type", answer.content_type)
        for name, value in (answer.headers or {}).items():
            request.setHeader(name, value)
        return answer.body


class _SyslogConnection(Protocol):
    transport: Any

    def __init__(self, receiver: SyslogReceiver) -> None:
        self._receiver = receiver
        self._data = bytearray()

    def connectionMade(self) -> None:
        self._receiver.connections.append(self)
        if self._receiver.is_paused:
            self.transport.pauseProducing()

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        while (space := self._data.find(b" ")) > 0:
            end = space + 1 + int(self._data[:space])
            if len(self._data) < end:
                return
            self._receiver.lines.append(decode_message(bytes(self._data[space + 1 : end])))
            del self._data[:end]

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._receiver.connections.remove(self)


def decode_message(message: bytes) -> CollectedLine:
    """
    Decode a message of RFC 5424.

    :raises AssertionError: it is malformed, or not one of a console.
    """
    match = _MESSAGE.fullmatch(message)
    assert match, message
    priority, time, host, process, kind, parameters, text = match.groups()
    labels = {
        name.decode(): re.sub(r"\\(.)", r"\1", value.decode())
        for name, value in _PARAMETER.findall(parameters)
    }
    labels |= {"host": host.decode(), "process": process.decode(), "kind": kind.decode()}
    labels["time"] = time.decode()
    return CollectedLine(text.decode("utf-8", "replace"), labels, severity=int(priority) & 7)


class SyslogReceiver(Factory):
    """
    A receiver of RFC 5425, for a listening port with TLS.

    :ivar lines: all lines that it has received.
    :ivar is_paused: read nothing from new connections.
    """

    noisy = False

    def __init__(self) -> None:
        self.lines: list[CollectedLine] = []
        self.connections: list[_SyslogConnection] = []
        self.is_paused = False

    def buildProtocol(self, addr: Any) -> Protocol:
        return _SyslogConnection(self)

    def cut(self) -> None:
        """End all connections without an orderly close, like a receiver that is killed."""
        for connection in list(self.connections):
            connection.transport.abortConnection()
