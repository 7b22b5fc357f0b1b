"""
OTLP over HTTP: OpenTelemetry collectors, Loki, VictoriaLogs and others.

A batch is one POST.  The receiver acknowledges it with its answer, so nothing has to settle.
"""

from __future__ import annotations

import gzip
import os
import re
from typing import Any
from urllib.parse import SplitResult, urlunsplit

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.threads import deferToThread
from zope.interface import implementer

from twisted_exec.api.status import APIError
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError, Material
from twisted_exec.kube.kubeconfig.environment import proxy_for
from twisted_exec.kube.transport.http import HTTPTransport, Request
from twisted_exec.program.tasks import as_deferred
from twisted_exec.shipping.interfaces import BatchRefused, ILineSink, Receipt, SinkError
from twisted_exec.shipping.otlp import (
    CONTENT_TYPE,
    LogsBatch,
    one_line,
    read_receipt,
    status_message,
)
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file

LINE_BYTES = 16 << 10
BATCH_BYTES = 256 << 10

_ANSWER_BYTES = 64 << 10
_REFUSED = (400, 413, 422)
_NOTHING_TO_READ = 204
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e]*?)[ \t]*")


@implementer(ILineSink)
class OTLPSink:
    """
    Posts batches to one URL.

    :param config: server, CA, certificate and token.
    :param url: where to post, on that server.
    :param headers_file: file of ``NAME: VALUE`` lines, read for each request; or empty.
    :param compresses: compress the body with gzip.
    :param now: returns nanoseconds since the epoch.
    :param answer_seconds: time that the server has to answer a batch.
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
        """See :meth:`ILineSink.new_batch`."""
        return LogsBatch(self._now())

    @as_deferred
    async def send(self, batch: Any) -> Receipt:
        """See :meth:`ILineSink.send`."""
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
        """See :meth:`ILineSink.close`."""
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
    """
    Return the configuration of the connection to a collector.

    The files are read for each connection or request, so they may be renewed.
    """
    return ClientConfig(
        server=f"{url.scheme}://{url.netloc}",
        ca=Material(path=ca),
        certificate=Material(path=certificate),
        key=Material(path=key),
        token_file=token_file,
        proxy_url=proxy_for(url, os.environ),
    )
