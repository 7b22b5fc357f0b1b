"""
JSON that is nested deeper than Python reads it.

An API server lets who may write an object nest what it does not look into by thousands of levels.  Such an
object would keep all others of its list from being read, by everybody.  So what is below :data:`MAX_DEPTH` is
``null``, in a document that cannot be read otherwise.

How much a server may send before its answer begins.

Twisted's client takes header lines without end, and any number of interim answers (``100 Continue``), each of
which it logs.  A server that somebody else has chosen would fill memory and disk within the time that it is
given; so what comes before the end of a head is counted here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

MAX_HEAD_BYTES = 64 << 10
MAX_HEADS = 8
"""Interim answers included."""

_END = re.compile(rb"\n\r?\n")


class Head:
    """
    Stands before the parser of one exchange, until its head is complete.

    :param protocol: of Twisted's HTTP client.
    :param refuse: called, once, with what is wrong; ends the connection.
    :ivar is_complete: to be set when the answer has begun: from then on nothing is counted.
    """

    def __init__(self, protocol: Any, refuse: Callable[[str], None]) -> None:
        self._parse: Callable[[bytes], None] = type(protocol).dataReceived.__get__(protocol)
        self._refuse = refuse
        self._left_bytes, self._left_heads = MAX_HEAD_BYTES, MAX_HEADS
        self._refused = False
        self.is_complete = False

    def received(self, data: bytes) -> None:
        """Takes the place of the protocol's ``dataReceived``."""
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

# A string that has no end goes to the end: so no place is looked at twice.
_MARK = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


def loads(content: bytes) -> Any:
    """
    What a document says.

    :raises ValueError: it is no JSON.
    """
    try:
        return json.loads(content)
    except RecursionError:
        pass
    try:
        return json.loads(cut(content))
    except RecursionError:  # who asks is deep in something already
        raise ValueError("it is nested too deep") from None


def cut(content: bytes) -> bytes:
    """A document with ``null`` for each list and object below :data:`MAX_DEPTH` others."""
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
