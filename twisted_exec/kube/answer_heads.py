"""Limits of the heads of an answer, before Twisted parses them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

MAX_HEAD_BYTES = 64 << 10
MAX_HEADS = 8
"""Limit of heads, including interim responses."""

_END = re.compile(rb"\n\r?\n")


class AnswerHead:
    """
    Limits the heads of the response to one request, before the parser reads them.

    :param refuse: called with the problem; ends the connection.
    """

    def __init__(self, protocol: Any, refuse: Callable[[str], None]) -> None:
        # The method of the class: an attribute of this name in the instance is the filter itself.
        self._parse: Callable[[bytes], None] = type(protocol).dataReceived.__get__(protocol)
        self._refuse = refuse
        self._left_bytes, self._left_heads = MAX_HEAD_BYTES, MAX_HEADS
        self._refused = False
        self.is_complete = False

    def received(self, data: bytes) -> None:
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
        # Twisted's client limits neither header lines nor interim responses (100 Continue), and
        # logs each of these: a malicious server could fill memory and disk before the request times
        # out.
        self._left_bytes -= len(part)
        self._left_heads -= ends
        if self._left_bytes < 0 or self._left_heads < 0:
            self._refused = True
            self._refuse("it sends heads without end")
