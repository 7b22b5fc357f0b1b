"""
JSON that is nested deeper than Python reads it.

An API server lets who may write an object nest what it does not look into by thousands of levels.  Such an
object would keep all others of its list from being read, by everybody.  So what is below :data:`MAX_DEPTH` is
``null``, in a document that cannot be read otherwise.
"""

from __future__ import annotations

import json
import re
from typing import Any

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
