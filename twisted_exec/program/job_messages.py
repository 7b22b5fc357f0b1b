"""
Messages between a program and its processes for jobs: a head in JSON, and bytes.

Each message begins with the sizes of both, 4 bytes each.
"""

from __future__ import annotations

import json
import resource
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


def limit_process(memory_bytes: int) -> None:
    """Let this process have so much memory, and no further files and processes."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    for limit, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        resource.setrlimit(limit, (most, most))
    # The kernel does not limit the processes of root.
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def allow_time(cpu_seconds: int) -> None:
    """
    Limit the CPU time of this process from now on to so many seconds, or up to a second more: the
    kernel then ends the process.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(usage.ru_utime + usage.ru_stime) + 1 + cpu_seconds
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
