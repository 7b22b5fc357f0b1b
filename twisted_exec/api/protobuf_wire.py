"""
The wire format of protobuf: varints, and the fields of a message.

Source: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}


def varint(number: int) -> bytes:
    """Encode a number; a negative one as an ``int64``."""
    if 0 <= number < 0x80:
        return bytes((number,))
    number &= (1 << 64) - 1
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def read_fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """
    Yield number and value of the fields of a message, except those of fixed length.

    :raises ValueError: the message is malformed.
    """
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        number, wire_type = tag >> 3, tag & 7
        if not number:
            raise ValueError("has a field with the number 0")
        if wire_type == _VARINT:
            value, at = _read_varint(message, at)
            yield number, value
            continue
        if wire_type == _DELIMITED:
            length, at = _read_varint(message, at)
        elif wire_type in _FIXED_BYTES:
            length = _FIXED_BYTES[wire_type]
        else:
            raise ValueError(f"has the wire type {wire_type}")
        if length > len(message) - at:
            raise ValueError("ends early")
        if wire_type == _DELIMITED:
            yield number, message[at : at + length]
        at += length


def _read_varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("ends early")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("has a number that is too long")
