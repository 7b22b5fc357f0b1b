"""
The streams of one server that outlive their connections, by the keys with which they are rejoined.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from dataclasses import dataclass

from twisted.internet.interfaces import IProtocol, IReactorTime

from twisted_exec.api.status import NotFound
from twisted_exec.streaming.enduring import EnduringStream
from twisted_exec.wire.rejoin import Rejoin, Rejoinable

_KEY_BYTES = 32
_MOST_STREAMS = 20_000


@dataclass(frozen=True)
class Owner:
    """The session, user and machine of a stream; only the same ones may rejoin it."""

    session: str
    user: str
    uid: str


class EnduringStreams:
    """
    The streams of one server that the hop before may rejoin.

    :param seconds: how long a stream waits after a loss; 0 to refuse all offers.
    """

    def __init__(self, clock: IReactorTime, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self._streams: dict[bytes, tuple[Owner, EnduringStream]] = {}

    def __len__(self) -> int:
        """Return the number of streams."""
        return len(self._streams)

    def offered(self, owner: Owner) -> Offer | None:
        """Return what a stream needs to be rejoined; ``None`` if the server has too many of them."""
        if not self._seconds or len(self._streams) >= _MOST_STREAMS:
            return None
        key = secrets.token_urlsafe(_KEY_BYTES)
        return Offer(self, owner, Rejoinable(key, math.ceil(self._seconds)))

    def find(self, owner: Owner, rejoin: Rejoin) -> EnduringStream:
        """
        Return the stream that a request rejoins.

        :raises NotFound: there is none with this key, or it is another user's.
        :raises Conflict: the lost bytes are no longer kept.
        """
        owner_of_stream, stream = self._streams.get(_digest(rejoin.key), (None, None))
        if stream is None or owner_of_stream != owner:
            raise NotFound("exec", "", message="there is no stream to rejoin: its session is over")
        stream.check(rejoin.received)
        return stream

    def _add(self, offer: Offer, protocol: IProtocol, has_head: bool) -> EnduringStream:
        digest = _digest(offer.answer.key)
        stream = EnduringStream(
            protocol,
            self._clock,
            self._seconds,
            has_head=has_head,
            on_end=lambda: self._forget(digest),
        )
        self._streams[digest] = offer.owner, stream
        return stream

    def _forget(self, digest: bytes) -> None:
        self._streams.pop(digest, None)


@dataclass(frozen=True)
class Offer:
    """An offer of the hop before that the server accepts."""

    streams: EnduringStreams
    owner: Owner
    answer: Rejoinable

    def connection(self, protocol: IProtocol, *, has_head: bool) -> IProtocol:
        """
        Return the protocol for the first connection of a stream.

        :param protocol: decodes the stream.
        :param has_head: see :class:`EnduringStream`.
        """
        return self.streams._add(self, protocol, has_head).connection()


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("ascii", "replace")).digest()
