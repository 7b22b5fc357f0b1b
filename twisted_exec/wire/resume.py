"""
Resuming a console session after its connection was lost, sans I/O: the header.

A client that can resume sends the header ``X-Twisted-Exec-Resume`` with its request.  The first
request says ``marks``; the request of a client that lost its connection has the key of that
connection and the position at which output is to continue::

    X-Twisted-Exec-Resume: marks
    X-Twisted-Exec-Resume: key=KEY; session=ID; epoch=EPOCH; from=OFFSET

A hop that supports this repeats the header towards the machine, and the hop that decodes the stream
answers in its 101 with the key for the next time::

    X-Twisted-Exec-Resume: key=KEY; seconds=SECONDS

Each hop in between may add the TCP round trip of its new connection to the next hop, in microseconds, before
those of the hops behind it::

    X-Twisted-Exec-Resume: key=KEY; seconds=SECONDS; hops=apiserver/412,poollet/96

Without an answer the session is an ordinary one.  With an answer the output (channel 1) has only
bytes of the machine, and everything else arrives as marks (:mod:`.marks`).

A page in a browser cannot stop reading, so both its requests have a further field: the machine's end
sends it at most so many bytes of output beyond those that the page has taken::

    X-Twisted-Exec-Resume: marks; credit=131072
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TypeVar

from twisted_exec.wire.errors import RemoteProtocolError

RESUME_HEADER = "X-Twisted-Exec-Resume"

MARKS = "marks"
"""Value of the header in the first request."""

KEY = re.compile(r"[A-Za-z0-9_-]{43,128}\Z")
"""Form of a key."""

EPOCH = re.compile(r"[0-9a-f]{16}\Z")
"""Form of the name of a journal."""

LEAST_CREDIT_BYTES = 64 << 10
MOST_CREDIT_BYTES = 16 << 20

_LONGEST = 512
_SESSION = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_NUMBER = re.compile(r"[0-9]{1,19}\Z")
_MOST_SECONDS = 86400
_MOST_HOPS = 8
_MOST_MICROSECONDS = 999_999_999
_ROUND_TRIP = "[a-z]{1,16}/[0-9]{1,9}"
_HOPS = re.compile(rf"{_ROUND_TRIP}(?:,{_ROUND_TRIP}){{0,{_MOST_HOPS - 1}}}\Z")


@dataclass(frozen=True)
class Position:
    """
    A place in a console's output.

    :param epoch: the journal, as 16 hexadecimal digits; offsets of different journals have nothing
        to do with each other.
    :param offset: the offset of the next byte.
    """

    epoch: str
    offset: int


@dataclass(frozen=True)
class Resume:
    """
    A request to resume a session.

    :param key: the key that the last connection got.
    :param session: the id of the session of that connection.
    :param position: where the output is to continue.
    """

    key: str = field(repr=False)
    session: str
    position: Position

    def text(self) -> str:
        """Return the value of the header."""
        at = self.position
        return f"key={self.key}; session={self.session}; epoch={at.epoch}; from={at.offset}"


@dataclass(frozen=True)
class IssuedKey:
    """
    The answer of the machine's end to a side that can come back after a loss.

    :param key: names the lost connection or stream; a secret.
    :param seconds: how long the machine's end waits after a loss.
    """

    key: str = field(repr=False)
    seconds: int

    def text(self) -> str:
        """Return the value of the header."""
        return f"key={self.key}; seconds={self.seconds}"


@dataclass(frozen=True)
class RoundTrip:
    """
    The TCP round trip from a hop to the next one, when the connection between them was new.

    :param hop: the kind of the hop, such as ``poollet``.
    """

    hop: str
    microseconds: int


@dataclass(frozen=True)
class Resumable(IssuedKey):
    """
    The answer to a client that can resume; the key names its connection.

    :param round_trips: of the hops that know theirs, from the client to the machine.
    """

    round_trips: tuple[RoundTrip, ...] = ()

    def text(self) -> str:
        """Return the value of the header."""
        return f"{super().text()}; hops={self.hops}" if self.round_trips else super().text()

    @property
    def hops(self) -> str:
        """The round trips, as a field of the header has them."""
        return ",".join(f"{each.hop}/{each.microseconds}" for each in self.round_trips)

    def passed_on(self, hop: str, seconds: float | None) -> Resumable:
        """
        Return the answer that a hop passes on.

        :param seconds: its TCP round trip to the next hop; ``None`` if unknown.
        """
        if seconds is None or len(self.round_trips) >= _MOST_HOPS:
            return self
        own = RoundTrip(hop, min(round(seconds * 1_000_000), _MOST_MICROSECONDS))
        return replace(self, round_trips=(own, *self.round_trips))


_Issued = TypeVar("_Issued", bound=IssuedKey)


def parse_request(value: str) -> Resume | None:
    """
    Read the header of a request.

    :return: ``None`` for the first request of a session.
    :raises RemoteProtocolError: the value is not valid.
    """
    names = header_fields(RESUME_HEADER, value, {})
    if names.get(MARKS) == "" and "key" not in names:
        return None
    fields = header_fields(
        RESUME_HEADER, value, {"key": KEY, "session": _SESSION, "epoch": EPOCH, "from": _NUMBER}
    )
    position = Position(fields["epoch"], int(fields["from"]))
    return Resume(fields["key"], fields["session"], position)


def parse_credit(value: str) -> int:
    """
    Read how much output the client accepts beyond what it has taken, in bytes.

    :param value: the header of a request.
    :return: 0 if the client names no limit.
    :raises RemoteProtocolError: the number is not valid.
    """
    text = header_fields(RESUME_HEADER, value, {}).get("credit")
    if text is None:
        return 0
    credit = int(text) if _NUMBER.match(text) else 0
    if not LEAST_CREDIT_BYTES <= credit <= MOST_CREDIT_BYTES:
        raise RemoteProtocolError(
            f"the field credit of {RESUME_HEADER} is not a number from {LEAST_CREDIT_BYTES} to"
            f" {MOST_CREDIT_BYTES}"
        )
    return credit


def parse_answer(value: str) -> Resumable:
    """
    Read the header of a 101.

    :raises RemoteProtocolError: the value is not valid.
    """
    resumable = parse_issued_key(Resumable, RESUME_HEADER, value, _MOST_SECONDS)
    return replace(resumable, round_trips=_round_trips(value))


def _round_trips(value: str) -> tuple[RoundTrip, ...]:
    """Return the round trips in the value of a header; none if they are not valid, for they only inform."""
    _, _, rest = value.partition("; hops=")
    hops = rest.partition(";")[0].strip()
    if _HOPS.match(hops) is None:
        return ()
    pairs = (each.split("/") for each in hops.split(","))
    return tuple(RoundTrip(hop, int(microseconds)) for hop, microseconds in pairs)


def parse_issued_key(kind: type[_Issued], header: str, value: str, most_seconds: int) -> _Issued:
    """
    Read an issued key.

    :param most_seconds: a longer wait counts as this one.
    :raises RemoteProtocolError: the value is not valid.
    """
    fields = header_fields(header, value, {"key": KEY, "seconds": _NUMBER})
    return kind(fields["key"], min(int(fields["seconds"]), most_seconds))


def header_fields(header: str, value: str, forms: dict[str, re.Pattern[str]]) -> dict[str, str]:
    """
    Read fields of the form ``NAME=TEXT; NAME=TEXT``; unknown ones are ignored.

    :param forms: the required fields.
    :raises RemoteProtocolError: a field is missing, not valid, or there twice.
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
        if form.match(fields.get(name, "")) is None:
            raise RemoteProtocolError(f"header {header} has no valid field {name}")
    return fields
