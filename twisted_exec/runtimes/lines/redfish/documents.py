"""
Reading of Redfish documents, whose members may be missing or of another type, sans I/O.

A document is what a BMC says, and a BMC may be wrong or malicious: texts are bounded and without
control characters, and links stay on the BMC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from twisted_exec.api.bodies import Limit, decode
from twisted_exec.api.status import APIError, BadGateway

Document = Mapping[str, Any]

DOCUMENT = Limit(2 << 20, 1 << 14)
"""Limit for a document: the largest of captured BMCs have 40 KiB and 1500 values."""

_MAX_TEXT = 200
_MAX_LIST = 64
# RFC 3986 pchar and slashes, as Redfish uses them: no query, no fragment, no percent-encoded slash.
_PATH = re.compile(r"/[A-Za-z0-9\-._~!$&'()*+,;=:@/]{0,511}")
_MESSAGE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def parse(body: bytes) -> Document:
    """
    Return the document of a body.

    :raises BadGateway: it is not a JSON object, or is too deep or too large.
    """
    try:
        return decode("application/json", body, limit=DOCUMENT)
    except APIError:
        # Without the error's words: they quote the body, which may hold a token.
        raise BadGateway(
            "the BMC's answer is no JSON object" if body else "the BMC's answer has an empty body"
        ) from None


def member(document: object, *path: str) -> object:
    """Return a member of nested objects; ``None`` if it is missing."""
    for name in path:
        if not isinstance(document, Mapping):
            return None
        document = document.get(name)
    return document


def text(document: object, *path: str, most: int = _MAX_TEXT) -> str:
    """
    Return a member's text without control characters; empty if it has none.

    :param most: longer texts are cut to this number of characters.
    """
    value = member(document, *path)
    return _clean(value, most) if isinstance(value, str) else ""


def _clean(value: str, most: int) -> str:
    return "".join(each for each in value[:most] if each.isprintable()).strip()


def number(document: object, *path: str, most: int = 1 << 31) -> int | None:
    """Return a member that is a whole number from 0 to ``most``."""
    value = member(document, *path)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        return None
    return value


def flag(document: object, *path: str) -> bool | None:
    """Return a member that is true or false."""
    value = member(document, *path)
    return value if isinstance(value, bool) else None


def texts(document: object, *path: str) -> tuple[str, ...] | None:
    """Return a member that is a list of texts, cleaned as by :func:`text`, at most 64; ``None`` if it is missing."""
    value = member(document, *path)
    if not isinstance(value, list):
        return None
    return tuple(_clean(each, _MAX_TEXT) for each in value[:_MAX_LIST] if isinstance(each, str))


def entries(document: object, *path: str) -> Sequence[object]:
    """Return a member that is a list, at most 64 entries; empty if it is missing."""
    value = member(document, *path)
    return value[:_MAX_LIST] if isinstance(value, list) else ()


def local_path(link: str) -> str:
    """
    Return the path of a link on the BMC, such as an ``@odata.id``.

    :raises BadGateway: the link leads to another host, or is no plain path.
    """
    if not _PATH.fullmatch(link) or "//" in link or "/.." in link:
        raise BadGateway("a link in the BMC's documents leads elsewhere, and is not followed")
    return link


def link(document: object, *path: str) -> str:
    """
    Return the path of the object that a member refers to; empty if there is none.

    :raises BadGateway: see :func:`local_path`.
    """
    value = member(document, *path, "@odata.id")
    return local_path(value) if isinstance(value, str) and value else ""


def links(document: object, *path: str) -> Sequence[str]:
    """
    Return the paths of the objects in a list, at most 64.

    :raises BadGateway: see :func:`local_path`.
    """
    return [found for each in entries(document, *path) if (found := link(each))]


def message_ids(document: object) -> Sequence[str]:
    """Return the ids of the messages of an error, such as ``Base.1.8.SessionLimitExceeded``."""
    extended = entries(document, "error", "@Message.ExtendedInfo")
    found = [text(document, "error", "code"), *(text(each, "MessageId") for each in extended)]
    return [each for each in dict.fromkeys(found) if _MESSAGE_ID.fullmatch(each)]
