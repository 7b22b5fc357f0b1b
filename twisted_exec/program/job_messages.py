"""
Messages between a program and its processes for jobs: a head in JSON, and bytes.

Each message begins with the sizes of both, 4 bytes each.
"""

from __future__ import annotations

import json
import struct
from typing import IO, Any

SIZES = struct.Struct("!II")
LARGEST = 32 << 20
"""A message with more bytes is refused."""


def encode(head: dict[str, Any], body: bytes = b"") -> bytes:
    """Return a message."""
    text = json.dumps(head).encode()
    return SIZES.pack(len(text), len(body)) + text + body


def decode(buffer: bytearray) -> tuple[dict[str, Any], bytes] | None:
    """
    Take a message from the beginning of a buffer: head and body; ``None`` if it is incomplete.

    :raises ValueError: the message is too large, or its head is not JSON.
    """
    if len(buffer) < SIZES.size:
        return None
    text, body = SIZES.unpack_from(buffer)
    if text + body > LARGEST:
        raise ValueError(f"a message of {text + body} bytes")
    end = SIZES.size + text + body
    if len(buffer) < end:
        return None
    message = bytes(buffer[SIZES.size : end])
    del buffer[:end]
    return json.loads(message[:text]), message[text:]


def read(source: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    """Wait for a message, and return head and body; ``None`` at the end of the source."""
    sizes = source.read(SIZES.size)
    if len(sizes) < SIZES.size:
        return None
    text, body = SIZES.unpack(sizes)
    return json.loads(source.read(text)), source.read(body)
