"""
Warnings to clients, in the header ``Warning``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from twisted_exec.api.status import one_line
from twisted_exec.apiserver.serving.query import WriteOptions
from twisted_exec.streaming.http.request import Request

_WARNING_CHARACTERS = 256
_WARNINGS_CHARACTERS = 4096


@contextmanager
def advised(request: Request, options: WriteOptions) -> Iterator[None]:
    """Send admission's advice with the response, whether the write succeeds or not."""
    try:
        yield
    finally:
        for warning in warning_headers(dict.fromkeys(options.advice)):
            request.responseHeaders.addRawHeader(b"Warning", warning)


def warning_headers(warnings: Iterable[str]) -> Iterator[bytes]:
    """
    Format warnings for the ``Warning`` header: they quote the client, so size and characters are
    limited.

    The limits are those of ``k8s.io/apiserver/pkg/endpoints/filters/warning.go``.
    """
    room = _WARNINGS_CHARACTERS
    for warning in warnings:
        text = one_line(warning)
        if len(text) > _WARNING_CHARACTERS:
            text = f"{text[: _WARNING_CHARACTERS - 3]}..."
        room -= len(text)
        if room < 0:
            return
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        yield b'299 - "%s"' % escaped.encode("ascii", "replace")
