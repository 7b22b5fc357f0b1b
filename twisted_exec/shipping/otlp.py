"""
OTLP over HTTP: OpenTelemetry collectors, Loki, VictoriaLogs and others.

A batch is one POST, which the receiver acknowledges with its answer.

The messages in protobuf's encoding are written by hand, because an object for each line would take
most of the time.

Sources: opentelemetry-proto, ``opentelemetry/proto/logs/v1/logs.proto``, ``common/v1/common.proto``
and ``collector/logs/v1/logs_service.proto``; the OTLP specification 1.8, "OTLP/HTTP".
"""

from __future__ import annotations

import gzip
import os
import re
import struct
from typing import Any
from urllib.parse import SplitResult, urlunsplit

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.threads import deferToThread
from zope.interface import implementer

from twisted_exec import __version__
from twisted_exec.api.protobuf_wire import read_fields, varint
from twisted_exec.api.status import APIError
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError, Material
from twisted_exec.kube.kubeconfig.environment import proxy_for
from twisted_exec.kube.transport import HTTPTransport, Request
from twisted_exec.program.tasks import as_deferred
from twisted_exec.shipping.interfaces import (
    BatchRefused,
    ILineBatch,
    ILineSink,
    Labels,
    Receipt,
    ShippedLine,
    SinkError,
)
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file

LINE_BYTES = 16 << 10
BATCH_BYTES = 256 << 10

_ANSWER_BYTES = 64 << 10
_REFUSED = (400, 413, 422)
_NOTHING_TO_READ = 204
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e]*?)[ \t]*")

CONTENT_TYPE = "application/x-protobuf"

SERVICE = "console"
"""The resource attribute ``service.name`` of all lines."""

_INFO, _WARN = 9, 13
_MAX_MESSAGE = 300
_FIXED64, _DELIMITED = 1, 2


@implementer(ILineSink)
class OTLPSink:
    """
    Posts batches to one URL.

    :param url: where to post, on the server of ``config``.
    :param headers_file: file of ``NAME: VALUE`` lines, read for each request; or empty.
    :param compresses: compress the body with gzip.
    :param now: returns nanoseconds since the epoch.
    """

    line_bytes, batch_bytes = LINE_BYTES, BATCH_BYTES

    def __init__(
        self,
        name: str,
        config: ClientConfig,
        url: SplitResult,
        reactor: Any,
        now: Any,
        *,
        headers_file: str = "",
        compresses: bool = True,
        answer_seconds: float = 30.0,
    ) -> None:
        self.name, self._answer_seconds = name, answer_seconds
        self._target = urlunsplit(("", "", url.path or "/", url.query, ""))
        self._headers_file, self._compresses = headers_file, compresses
        self._now = now
        self._transport = HTTPTransport(config, reactor, peer="the collector")

    def new_batch(self) -> LogsBatch:
        return LogsBatch(self._now())

    @as_deferred
    async def send(self, batch: Any) -> Receipt:
        try:
            headers = read_headers(self._headers_file) if self._headers_file else []
        except TLSConfigError as problem:
            raise SinkError("disk", str(problem)) from None
        body = batch.body()
        if self._compresses:
            body = await deferToThread(gzip.compress, body, 1, mtime=0)
            headers.append(("Content-Encoding", "gzip"))
        request = Request("POST", self._target, body, CONTENT_TYPE, headers=headers)
        try:
            code, head, answer = await self._transport.collect(
                request, timeout_seconds=self._answer_seconds, limit_bytes=_ANSWER_BYTES
            )
        except CancelledError:
            raise
        except (APIError, KubeConfigError) as problem:
            raise SinkError("unreachable", str(problem)) from None
        return judge(code, head, answer)

    def settle(self) -> Deferred[None]:
        """Do nothing: the answer to a batch is the acknowledgement."""
        return succeed(None)

    def close(self) -> Deferred[None]:
        return self._transport.close()


def judge(code: int, head: Any, answer: bytes) -> Receipt:
    """
    Interpret an answer.

    :param head: headers by lower-case names.
    :raises SinkError: the receiver has not accepted the batch.
    """
    kind = head.get("content-type", "").partition(";")[0].strip().lower()
    if code in _REFUSED:
        raise BatchRefused(_described(code, kind, answer))
    if not 200 <= code < 300:
        retry = head.get("retry-after", "")
        seconds = float(retry) if retry.isascii() and retry.isdigit() and len(retry) < 7 else 0.0
        raise SinkError("refused", _described(code, kind, answer), seconds)
    if code == _NOTHING_TO_READ or not answer:
        return Receipt()
    if kind == "application/json" and answer.lstrip().startswith(b"{"):
        return Receipt()  # of a receiver that answers in JSON only
    try:
        if kind and kind != CONTENT_TYPE:
            raise ValueError(kind)
        return read_receipt(answer)
    except ValueError:
        # A captive portal or a wrong URL: counting this as success would lose the lines.
        raise SinkError(
            "answer", f"the collector's answer {code} is not one of OTLP: check the URL"
        ) from None


def _described(code: int, kind: str, answer: bytes) -> str:
    if 300 <= code < 400:
        return f"the collector answered {code}; redirects are not followed: correct the URL"
    text = status_message(answer) if kind == CONTENT_TYPE else one_line(answer)
    return f"the collector answered {code}" + (f": {text}" if text else "")


def read_headers(path: str) -> list[tuple[str, str]]:
    """
    Read a file of headers; empty lines and lines that begin with ``#`` are ignored.

    :raises TLSConfigError: it cannot be read, or a line is not ``NAME: VALUE``.
    """
    headers = []
    text = read_file(path, "headers file").decode("latin-1")
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _HEADER.fullmatch(line)
        if match is None:
            # Not quoted: it may be a password.
            raise TLSConfigError(f"headers file {path!r}, line {number}: it is not NAME: VALUE")
        headers.append((match[1], match[2]))
    return headers


def collector_config(
    url: SplitResult, *, ca: str, certificate: str, key: str, token_file: str
) -> ClientConfig:
    """Return the configuration of the connection to a collector."""
    return ClientConfig(
        server=f"{url.scheme}://{url.netloc}",
        ca=Material(path=ca),
        certificate=Material(path=certificate),
        key=Material(path=key),
        token_file=token_file,
        proxy_url=proxy_for(url, os.environ),
    )


@implementer(ILineBatch)
class LogsBatch:
    """
    An ``ExportLogsServiceRequest``.

    :param now: when the lines were read, in nanoseconds since the epoch.
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

    def add(self, labels: Labels, line: ShippedLine) -> None:
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
        self._finish_resource()
        return b"".join(self._resources)

    def _finish_resource(self) -> None:
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
