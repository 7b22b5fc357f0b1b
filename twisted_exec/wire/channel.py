"""
``channel.k8s.io`` messages, sans I/O.

A WebSocket message is one channel byte and the payload.  Version 5 adds message 255, with which a
client closes one channel.  In the base64 protocols a digit replaces the channel byte.  Sources:
``k8s.io/apimachinery/pkg/util/remotecommand/constants.go`` and
``pkg/util/httpstream/wsstream/conn.go``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError

V1 = "channel.k8s.io"
V4 = "v4.channel.k8s.io"
V5 = "v5.channel.k8s.io"
V1_BASE64 = "base64.channel.k8s.io"
V4_BASE64 = "v4.base64.channel.k8s.io"
UNNAMED = ""
"""The protocol of a client that names none: version 1."""

PROTOCOLS = (V5, V4, V4_BASE64, V1, V1_BASE64)
"""The WebSocket protocols that we support, in order of preference."""

V2 = "v2.channel.k8s.io"
V3 = "v3.channel.k8s.io"
SPDY_PROTOCOLS = (V4, V3, V2, V1)
"""The protocols over SPDY that we support, in order of preference."""

MAX_PAYLOAD_BYTES = 32 << 10
"""The most payload bytes of one outgoing message."""

_BASE64 = frozenset({V1_BASE64, V4_BASE64})
_MAX_IN_BASE64 = MAX_PAYLOAD_BYTES // 4 * 3
_CLOSE = 255


class Channel(IntEnum):
    """The channels of a console."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    RESIZE = 4


TERMINAL = frozenset({Channel.ERROR, Channel.STDIN, Channel.STDOUT, Channel.RESIZE})


_KNOWN = {int(channel): channel for channel in Channel}


@dataclass(frozen=True)
class StreamData:
    """Payload for one channel.  ``data`` may be empty."""

    channel: Channel
    data: bytes


@dataclass(frozen=True)
class StreamClosed:
    """The peer closed a channel."""

    channel: Channel


def is_text(protocol: str) -> bool:
    return protocol in _BASE64


def decode(message: bytes, protocol: str = V5) -> StreamData | StreamClosed | None:
    """
    Decode one WebSocket message, binary or text.

    :return: ``None`` for a message to ignore.
    :raises RemoteProtocolError: a version 5 close that does not name exactly one channel.
    """
    # Go's servers ignore it, too (wsstream/conn.go, handle).
    if not message:
        return None
    if protocol in _BASE64:
        return _decode_base64(message)
    number = message[0]
    if number in _KNOWN:
        return StreamData(_KNOWN[number], message[1:])
    # Kubernetes' servers and clients ignore unknown channels, which allows for new ones.
    if number != _CLOSE or protocol != V5:
        return None
    # Go intends to hang up here (wsstream/conn.go), but its ``break`` only leaves a switch.
    if len(message) != 2:
        raise RemoteProtocolError("a close message names exactly one channel")
    closed = _KNOWN.get(message[1])
    return None if closed is None else StreamClosed(closed)


def _decode_base64(message: bytes) -> StreamData | None:
    # A digit replaces the channel byte.
    channel = _KNOWN.get(message[0] - ord("0"))
    if channel is None:
        return None
    try:
        # Go's decoder skips line breaks, too.
        data = base64.b64decode(message[1:].translate(None, b"\r\n"), validate=True)
    except binascii.Error:
        return None
    return StreamData(channel, data)


def encode(channel: Channel, data: bytes = b"", protocol: str = V5) -> bytes:
    """
    Encode one message.

    :param data: at most :data:`MAX_PAYLOAD_BYTES`, or three quarters of it in base64.
    :raises LocalProtocolError: the data does not fit one message.
    """
    in_base64 = protocol in _BASE64
    if len(data) > (_MAX_IN_BASE64 if in_base64 else MAX_PAYLOAD_BYTES):
        raise LocalProtocolError(f"{len(data)} bytes do not fit one message")
    if in_base64:
        return b"%d" % channel + base64.b64encode(data)
    return bytes((channel,)) + data


def messages(channel: Channel, data: bytes, protocol: str = V5) -> Iterator[bytes]:
    """Encode ``data`` in as many messages as it needs, none if it is empty."""
    view = memoryview(data)
    if protocol in _BASE64:
        for start in range(0, len(data), _MAX_IN_BASE64):
            yield b"%d" % channel + base64.b64encode(view[start : start + _MAX_IN_BASE64])
        return
    # Several messages instead of fragments: golang.org/x/net/websocket takes each frame for a
    # message, so the first byte of a continuation would name a channel.
    for start in range(0, len(data), MAX_PAYLOAD_BYTES):
        yield bytes((channel,)) + view[start : start + MAX_PAYLOAD_BYTES]


def encode_close(channel: Channel, protocol: str = V5) -> bytes:
    """
    Encode the message that closes ``channel``.

    :raises LocalProtocolError: versions before 5 have no such message.
    """
    if protocol != V5:
        raise LocalProtocolError(f"{protocol} cannot close one channel")
    return bytes((_CLOSE, channel))
