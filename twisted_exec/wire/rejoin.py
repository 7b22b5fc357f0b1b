"""
Rejoining a stream behind the client's back, sans I/O: the header.

The first of our hops, to which the client is connected, offers with the request that opens a stream
to rejoin it.  The hop that decodes the stream answers with a key in its 101::

    X-Twisted-Exec-Rejoin: offer
    X-Twisted-Exec-Rejoin: key=KEY; seconds=SECONDS

When the connection to the machine is lost on the way, the first hop sends a request of the same form
over a new connection.  Both sides say how many bytes of the stream they have received, counted behind
the head of the first 101, and send the rest again behind the head of the new one::

    X-Twisted-Exec-Rejoin: key=KEY; received=N
    X-Twisted-Exec-Rejoin: received=M

Hops in between repeat the header in both directions.  They accept it from hops only, never from a
user.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from twisted_exec.wire.resume import KEY, IssuedKey, header_fields, parse_issued_key

REJOIN_HEADER = "X-Twisted-Exec-Rejoin"

OFFER = "offer"
"""Value of the header in the request that opens a stream."""

_NUMBER = re.compile(r"[0-9]{1,18}\Z")
_MOST_SECONDS = 3600


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
        """Return the value of the header."""
        return f"key={self.key}; received={self.received}"


class Rejoinable(IssuedKey):
    """The answer to an offer; the key names the stream."""


def parse_request(value: str) -> Rejoin | None:
    """
    Read the header of a request.

    :return: ``None`` for an offer.
    :raises RemoteProtocolError: the value is not valid.
    """
    if value.strip() == OFFER:
        return None
    fields = header_fields(REJOIN_HEADER, value, {"key": KEY, "received": _NUMBER})
    return Rejoin(fields["key"], int(fields["received"]))


def parse_offer_answer(value: str) -> Rejoinable:
    """
    Read the header of the 101 to an offer.

    :raises RemoteProtocolError: the value is not valid.
    """
    return parse_issued_key(Rejoinable, REJOIN_HEADER, value, _MOST_SECONDS)


def received_text(received: int) -> str:
    """Return the header of the 101 to a request that rejoins a stream."""
    return f"received={received}"


def parse_received(value: str) -> int:
    """
    Read the header of the 101 to a request that rejoins a stream.

    :raises RemoteProtocolError: the value is not valid.
    """
    return int(header_fields(REJOIN_HEADER, value, {"received": _NUMBER})["received"])
