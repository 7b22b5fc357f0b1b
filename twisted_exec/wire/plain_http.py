"""
HTTP/1.1 heads in their plain form, which most have between two hops.

With h11 alone an opening costs each hop a tenth more CPU time.

The functions return ``None`` for other heads, which callers leave to h11.  A caller that has asked
for no upgrade refuses a 101 itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

MAX_BYTES = 16 << 10
"""The most bytes of a head that is read."""
MAX_HEADERS = 64

_METHODS = frozenset({b"GET", b"POST", b"PATCH", b"DELETE"})
"""Methods whose answers have a body like any other; those of HEAD and CONNECT have not."""

_NAME = rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+"
_VALUE = rb"(?:[!-~](?:[ -~]*[!-~])?)?"
_name = re.compile(_NAME).fullmatch
_value = re.compile(_VALUE).fullmatch
_target = re.compile(rb"[!-~]+").fullmatch
_field = re.compile(rb"(" + _NAME + rb"): ?(" + _VALUE + rb")").fullmatch
_status = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2}) [ -~]*").fullmatch
_length = re.compile(rb"[0-9]{1,9}").fullmatch

_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_ONCE = frozenset(
    {
        b"connection",
        b"content-length",
        b"sec-websocket-accept",
        b"sec-websocket-protocol",
        b"upgrade",
        b"x-stream-protocol-version",
    }
)


def request(
    method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes = b""
) -> bytes | None:
    """
    Encode a request; ``None`` if it is not in the plain form.

    :param headers: all but ``Content-Length``; with ``Host``.
    :param body: the whole body; without one there is no ``Content-Length``.
    """
    if method not in _METHODS or not _target(target):
        return None
    lines, hosts = [b"%s %s HTTP/1.1" % (method, target)], 0
    for name, value in headers:
        if not _name(name) or not _value(value):
            return None
        lowered = name.lower()
        if lowered in _FRAMING or lowered == b"expect":
            return None
        hosts += lowered == b"host"
        lines.append(b"%s: %s" % (name, value))
    if hosts != 1:
        return None
    if body:
        lines.append(b"Content-Length: %d" % len(body))
    lines += (b"", body)
    return b"\r\n".join(lines)


class PlainAnswer(NamedTuple):
    """
    The head of an answer, and what has arrived with it.

    :param code: 101, or at least 200.
    :param length: of the body; ``None`` without ``Content-Length``.
    :param closes: the head has a ``Connection`` header, other than that of an upgrade.
    :param rest: the bytes behind the head.
    """

    code: int
    headers: list[tuple[bytes, bytes]]
    length: int | None
    closes: bool
    rest: bytes


def answer(data: bytes) -> PlainAnswer | None:
    """Read the head of an answer; ``None`` if it is incomplete or not in the plain form."""
    end = data.find(b"\r\n\r\n", 0, MAX_BYTES)
    if end < 0:
        return None
    first, *lines = data[:end].split(b"\r\n", MAX_HEADERS + 1)
    status = _status(first)
    if status is None or len(lines) > MAX_HEADERS:
        return None
    code = int(status[1])
    headers, once, length = [], set(), None
    for line in lines:
        field = _field(line)
        if field is None:
            return None
        name, value = field.groups()
        headers.append((name, value))
        lowered = name.lower()
        if lowered in _ONCE:
            if lowered in once:
                return None
            once.add(lowered)
            if lowered == b"content-length":
                if not _length(value):
                    return None
                length = int(value)
        elif lowered == b"transfer-encoding":
            return None
    if (code < 200 and code != 101) or code in (204, 304) or (code == 101 and length is not None):
        return None
    closes = b"connection" in once and code != 101
    return PlainAnswer(code, headers, length, closes, data[end + 4 :])
