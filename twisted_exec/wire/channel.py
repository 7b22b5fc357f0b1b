"""
The ``channel.k8s.io`` messages, without I/O.

One WebSocket message is one channel byte, then payload.  Versions 4 and 5 share
it; version 5 adds message 255, by which a client says that a channel has no
more data.  What is unknown is passed over rather than refused, as every
Kubernetes server and client does: so new channels can be added.

Source: Kubernetes, ``k8s.io/apimachinery/pkg/util/remotecommand/constants.go``
and ``pkg/util/httpstream/wsstream/conn.go``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError

V4 = "v4.channel.k8s.io"
V5 = "v5.channel.k8s.io"
PROTOCOLS = (V5, V4)
"""What we speak, the one we like best first."""

MAX_PAYLOAD_BYTES = 32 << 10
"""Of one message we send: with its channel byte it fits one buffer of kubectl's."""

_CLOSE = 255


class Channel(IntEnum):
    """The streams of a console."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    RESIZE = 4


@dataclass(frozen=True)
class StreamData:
    """Bytes for one channel.  ``data`` may be empty: servers greet with an empty message."""

    channel: Channel
    data: bytes


@dataclass(frozen=True)
class StreamClosed:
    """The peer sends no more on a channel."""

    channel: Channel


def decode(message: bytes, protocol: str = V5) -> StreamData | StreamClosed | None:
    """
    Read one WebSocket message, binary or text.

    :param message: the whole payload.
    :return: ``None`` for what is to be ignored: no channel byte, or a channel
        that nobody defined.
    :raises RemoteProtocolError: a version 5 close that does not name one channel.
    """
    if not message:
        return None
    number = message[0]
    if number in _KNOWN:
        return StreamData(_KNOWN[number], message[1:])
    if number != _CLOSE or protocol != V5:
        return None
    if len(message) != 2:
        raise RemoteProtocolError("a close message names exactly one channel")
    closed = _KNOWN.get(message[1])
    return None if closed is None else StreamClosed(closed)


_KNOWN = {int(channel): channel for channel in Channel}


def encode(channel: Channel, data: bytes = b"") -> bytes:
    """
    One message.

    :param data: at most :data:`MAX_PAYLOAD_BYTES`; empty is a greeting.
    :raises LocalProtocolError: too much for one message.
    """
    if len(data) > MAX_PAYLOAD_BYTES:
        raise LocalProtocolError(f"{len(data)} bytes do not fit one message")
    return bytes((channel,)) + data


def messages(channel: Channel, data: bytes) -> Iterator[bytes]:
    """As many messages as ``data`` needs; none for no bytes."""
    view = memoryview(data)
    for start in range(0, len(data), MAX_PAYLOAD_BYTES):
        yield bytes((channel,)) + view[start : start + MAX_PAYLOAD_BYTES]


def encode_close(channel: Channel, protocol: str = V5) -> bytes:
    """
    The message that says there is no more on ``channel``.

    :raises LocalProtocolError: version 4 has no such message.
    """
    if protocol != V5:
        raise LocalProtocolError(f"{protocol} cannot close one channel")
    return bytes((_CLOSE, channel))
