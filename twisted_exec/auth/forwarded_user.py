"""
The headers ``X-Remote-``, in which we name the user to the next hop.

:mod:`twisted_exec.auth.request_header` reads them there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import quote

from twisted_exec.api.status import Forbidden
from twisted_exec.auth.interfaces import User

_USERS = 256
"""How many users' headers are cached for all sessions."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def forwarded_headers(user: User) -> Sequence[tuple[bytes, bytes]]:
    """
    Encode a user's identity in headers for the next hop.

    :raises Forbidden: no header can carry it.
    """
    extra = tuple((key, tuple(values)) for key, values in user.extra.items())
    return _forwarded(user.name, user.groups, user.uid, extra)


@lru_cache(maxsize=_USERS)
def _forwarded(
    name: str, groups: tuple[str, ...], uid: str, extra: tuple[tuple[str, tuple[str, ...]], ...]
) -> tuple[tuple[bytes, bytes], ...]:
    headers = [(b"X-Remote-User", _header_value(name))]
    headers += [(b"X-Remote-Group", _header_value(group)) for group in groups]
    if uid:
        headers.append((b"X-Remote-Uid", _header_value(uid)))
    for key, values in extra:
        header = b"X-Remote-Extra-" + quote(key.lower(), safe="").encode("ascii")
        headers += [(header, _header_value(value)) for value in values]
    return tuple(headers)


def _header_value(text: str) -> bytes:
    if text != text.strip() or _CONTROL.search(text):
        raise Forbidden(
            f"{text[:60]!a}, of your user, groups or extra, cannot be forwarded to the poollet, because it has "
            "control characters, or white space at an end: use a user without"
        )
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise Forbidden("your user, a group or an extra is not text") from None
