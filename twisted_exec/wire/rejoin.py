"""
Headers with which a hop rejoins a stream, sans I/O.

A hop *rejoins* a lost stream towards the machine without its client noticing.  See
docs/reference/resume.rst.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from twisted_exec.wire.keys import KEY, NUMBER, decode_fields, encode_fields
from twisted_exec.wire.resume import IssuedKey

REJOIN_HEADER = "X-Twisted-Exec-Rejoin"
OFFER = "offer"
"""Value of :data:`REJOIN_HEADER` in the request that opens a stream."""


@dataclass(frozen=True)
class Rejoin:
    """
    A request to rejoin a stream.

    :param key: a secret that names the stream.
    :param received: bytes that the asking side has received.
    """

    key: str = field(repr=False)
    received: int

    def text(self) -> str:
        return encode_fields(key=self.key, received=self.received)


class Rejoinable(IssuedKey):
    """The answer to an offer; the key names the stream."""

    header = REJOIN_HEADER
    most_seconds = 3600


def parse_rejoin(value: str) -> Rejoin | None:
    """
    Read the header of a request.

    :return: ``None`` for an offer.
    :raises RemoteProtocolError: the value is not valid.
    """
    if value.strip() == OFFER:
        return None
    fields = decode_fields(REJOIN_HEADER, value, {"key": KEY, "received": NUMBER})
    return Rejoin(fields["key"], int(fields["received"]))


def received_text(received: int) -> str:
    """Return the value of the header of the 101 to a request that rejoins a stream."""
    return encode_fields(received=received)


def parse_received(value: str) -> int:
    """
    Read the header of the 101 to a request that rejoins a stream.

    :raises RemoteProtocolError: the value is not valid.
    """
    return int(decode_fields(REJOIN_HEADER, value, {"received": NUMBER})["received"])
