"""
Keys and offsets by which a session, a stream or a log continues, and the headers that carry them.

Such a header has the form ``NAME=TEXT; NAME=TEXT``; a name may stand alone.  The fields may be in any
order, and readers ignore unknown ones.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping

from twisted_exec.wire.errors import RemoteProtocolError

# 43 characters hold 32 bytes in unpadded base64url.
KEY = re.compile(r"[A-Za-z0-9_-]{43,128}\Z")
"""Form of a key."""

EPOCH = re.compile(r"[0-9a-f]{16}\Z")
"""Form of the name of a journal."""

SESSION = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
"""Form of the id of a session, and of the UID of a machine."""

NUMBER = re.compile(r"[0-9]{1,19}\Z")
"""Form of an offset, a number of bytes or of seconds."""

ALONE = re.compile(r"\Z")
"""Form of the empty text of a name that stands alone."""

_LONGEST = 512


def new_key() -> str:
    """Make a key."""
    return secrets.token_urlsafe(32)


def digest(key: str) -> bytes:
    """Return the digest of a key, which servers store instead of the key."""
    # The time to look up a digest reveals nothing about the key.
    return hashlib.sha256(key.encode("ascii", "replace")).digest()


def encode_fields(**fields: object) -> str:
    """Return the value of a header; a name with an empty text stands alone."""
    return "; ".join(name if text == "" else f"{name}={text}" for name, text in fields.items())


def decode_fields(
    header: str, value: str, forms: Mapping[str, re.Pattern[str]] = {}
) -> dict[str, str]:
    """
    Read the value of a header.

    :param forms: the required fields, with the forms of their texts.
    :raises RemoteProtocolError: the value is not valid.
    """
    if len(value) > _LONGEST:
        raise RemoteProtocolError(f"header {header} is longer than {_LONGEST} characters")
    fields: dict[str, str] = {}
    for part in value.split(";"):
        name, _, text = part.strip().partition("=")
        if name in fields:
            raise RemoteProtocolError(f"header {header} has the same field twice")
        fields[name] = text
    for name, form in forms.items():
        if name not in fields or form.match(fields[name]) is None:
            raise RemoteProtocolError(f"header {header} has no valid field {name}")
    return fields
