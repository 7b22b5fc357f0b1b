"""
Limits for answers of servers that we may not trust: number and nesting of JSON values, and size of
response heads.

An empty object takes three bytes of JSON and about seventy of memory.  So the number of values is
estimated before a document is parsed.

An API server stores objects with thousands of levels in fields without a schema, and Python's
parser raises RecursionError for them.  One such object would make every list with it unreadable.
So if a document cannot be parsed otherwise, everything below :data:`MAX_DEPTH` becomes ``null``.

Twisted's client has no limit for the number of header lines, nor for interim responses (``100
Continue``), and logs each of these.  A malicious server could fill memory and disk before the
request times out, so the bytes and heads before the end of the response's head are counted here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

MAX_HEAD_BYTES = 64 << 10
MAX_HEADS = 8
"""Limit of heads, including interim responses."""

_END = re.compile(rb"\n\r?\n")


class Head:
    """
    A filter before the parser of one exchange, until the response's head is complete.

    :param protocol: a protocol of Twisted's HTTP client.
    :param refuse: called once with the problem; ends the connection.
    :ivar is_complete: set by the user when the response arrives; nothing is counted after that.
    """

    def __init__(self, protocol: Any, refuse: Callable[[str], None]) -> None:
        self._parse: Callable[[bytes], None] = type(protocol).dataReceived.__get__(protocol)
        self._refuse = refuse
        self._left_bytes, self._left_heads = MAX_HEAD_BYTES, MAX_HEADS
        self._refused = False
        self.is_complete = False

    def received(self, data: bytes) -> None:
        """Replaces the protocol's ``dataReceived``."""
        while data and not self.is_complete and not self._refused:
            match = _END.search(data)
            part = data[: match.end()] if match else data
            data = data[len(part) :]
            self._count(part, match is not None)
            if not self._refused:
                self._parse(part)
        if data and not self._refused:
            self._parse(data)

    def _count(self, part: bytes, ends: bool) -> None:
        self._left_bytes -= len(part)
        self._left_heads -= ends
        if self._left_bytes < 0 or self._left_heads < 0:
            self._refused = True
            self._refuse("it sends heads without end")


MAX_DEPTH = 100
MAX_VALUES = 2 << 20
"""Limit for a document without another one: about 200 MiB of memory if all values are objects."""

# An unterminated string matches up to the end, so that the search stays linear.
_MARK = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)

_SEPARATORS = (b",", b"[", b"{")


class TooManyValues(ValueError):
    """A document has more values than its limit, the argument."""


def loads(content: bytes, most_values: int = MAX_VALUES) -> Any:
    """
    Parse a JSON document.

    :param most_values: limit of its commas and opening brackets, also of those in strings.
    :raises ValueError: it is not JSON; ``TooManyValues`` if it would take too much memory.
    """
    if len(content) > most_values and sum(map(content.count, _SEPARATORS)) > most_values:
        raise TooManyValues(most_values)
    try:
        return json.loads(content)
    except RecursionError:
        pass
    try:
        return json.loads(cut(content))
    except RecursionError:  # the caller's own stack is deep already
        raise ValueError("it is nested too deep") from None


def cut(content: bytes) -> bytes:
    """Replace each list and object below :data:`MAX_DEPTH` levels by ``null``."""
    parts: list[bytes] = []
    depth = begin = 0
    for mark in _MARK.finditer(content):
        kind = mark[0]
        if kind in (b"[", b"{"):
            depth += 1
            if depth == MAX_DEPTH + 1:
                parts += [content[begin : mark.start()], b"null"]
                begin = len(content)
        elif kind in (b"]", b"}"):
            if depth == MAX_DEPTH + 1:
                begin = mark.end()
            depth -= 1
    return b"".join([*parts, content[begin:]])
