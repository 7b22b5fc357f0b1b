"""
Headers with which a client resumes a session, sans I/O.

A client *resumes* a session whose connection was lost.  Input is counted in *pieces*: each byte, each
BREAK, each role request and the end of input is one.  See docs/reference/resume.rst.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.keys import EPOCH, KEY, NUMBER, SESSION, decode_fields, encode_fields

RESUME_HEADER = "X-Twisted-Exec-Resume"

MARKS = "marks"
"""Field of the header in the first request of a session."""

UNCONFIRMED_SECONDS = 5
"""
Time that a session waits whose client has sent nothing: the client may have gone before it got the
key, and then nobody can resume the session.
"""

RESTART_CODE = 1012
"""
Code of a WebSocket's Close before which the last Ack counts all input that the machine has got, because a program on
the path restarts: the client resumes.  Source: "Service Restart" in IANA's registry for RFC 6455.
"""

LEAST_CREDIT_BYTES = 64 << 10
MOST_CREDIT_BYTES = 16 << 20

_MOST_HOPS = 8
_MOST_MICROSECONDS = 999_999_999
_ROUND_TRIP = "[a-z]{1,16}/[0-9]{1,9}"
_HOPS = re.compile(rf"{_ROUND_TRIP}(?:,{_ROUND_TRIP}){{0,{_MOST_HOPS - 1}}}\Z")


@dataclass(frozen=True)
class Position:
    """
    A place in a console's output.

    :param epoch: the journal, as 16 hexadecimal digits.
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
    :param machine: the UID of the session's machine, which that connection also got; may be empty.
    """

    key: str = field(repr=False)
    session: str
    position: Position
    machine: str = ""

    def text(self) -> str:
        at = self.position
        text = encode_fields(
            key=self.key, session=self.session, epoch=at.epoch, **{"from": at.offset}
        )
        return f"{text}; machine={self.machine}" if self.machine else text


@dataclass(frozen=True)
class IssuedKey:
    """
    The answer of the machine's end to a side that can come back after a loss.

    :param key: names the lost connection or stream; a secret.
    :param seconds: how long the machine's end waits after a loss.
    """

    header: ClassVar[str]
    most_seconds: ClassVar[int]
    """A longer wait counts as this limit."""

    key: str = field(repr=False)
    seconds: int

    def text(self) -> str:
        """Return the value of the header."""
        return encode_fields(key=self.key, seconds=self.seconds)

    @classmethod
    def parse(cls, value: str) -> Self:
        """
        Read the value of the header.

        :raises RemoteProtocolError: it is not valid.
        """
        return cls._of(decode_fields(cls.header, value, {"key": KEY, "seconds": NUMBER}))

    @classmethod
    def _of(cls, fields: Mapping[str, str]) -> Self:
        return cls(fields["key"], min(int(fields["seconds"]), cls.most_seconds))


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

    :param machine: the UID of the machine, as the hop knows it; may be empty.
    """

    header = RESUME_HEADER
    most_seconds = 86400

    round_trips: tuple[RoundTrip, ...] = ()
    machine: str = ""

    def text(self) -> str:
        text = super().text()
        if self.round_trips:
            text += f"; hops={self.hops}"
        return f"{text}; machine={self.machine}" if self.machine else text

    @classmethod
    def _of(cls, fields: Mapping[str, str]) -> Self:
        round_trips = _round_trips(fields.get("hops", ""))
        return replace(super()._of(fields), round_trips=round_trips, machine=_machine(fields))

    @property
    def hops(self) -> str:
        return ",".join(f"{each.hop}/{each.microseconds}" for each in self.round_trips)

    def passed_on(self, hop: str, seconds: float | None, machine: str = "") -> Resumable:
        """
        Return the answer that a hop passes on.

        :param seconds: the hop's TCP round trip to the next hop; ``None`` if unknown.
        :param machine: the UID of the machine, as this hop knows it; may be empty.
        """
        answer = replace(self, machine=machine if SESSION.match(machine) else "")
        if seconds is None or len(self.round_trips) >= _MOST_HOPS:
            return answer
        own = RoundTrip(hop, min(round(seconds * 1_000_000), _MOST_MICROSECONDS))
        return replace(answer, round_trips=(own, *self.round_trips))


def parse_request(value: str) -> Resume | None:
    """
    Read the header of a request.

    :return: ``None`` for the first request of a session.
    :raises RemoteProtocolError: the value is not valid.
    """
    names = decode_fields(RESUME_HEADER, value)
    if names.get(MARKS) == "" and "key" not in names:
        return None
    forms = {"key": KEY, "session": SESSION, "epoch": EPOCH, "from": NUMBER}
    fields = decode_fields(RESUME_HEADER, value, forms)
    position = Position(fields["epoch"], int(fields["from"]))
    return Resume(fields["key"], fields["session"], position, _machine(fields))


def parse_credit(value: str) -> int:
    """
    Read how much output the client accepts beyond what it has taken, in bytes; 0 if it names no
    limit.

    :raises RemoteProtocolError: the value is not valid.
    """
    text = decode_fields(RESUME_HEADER, value).get("credit")
    if text is None:
        return 0
    credit = int(text) if NUMBER.match(text) else 0
    if not LEAST_CREDIT_BYTES <= credit <= MOST_CREDIT_BYTES:
        raise RemoteProtocolError(
            f"the field credit of {RESUME_HEADER} is not a number from {LEAST_CREDIT_BYTES} to"
            f" {MOST_CREDIT_BYTES}"
        )
    return credit


def _machine(fields: Mapping[str, str]) -> str:
    """Return the UID of a machine; empty without a valid one."""
    uid = fields.get("machine", "")
    return uid if SESSION.match(uid) else ""


def _round_trips(hops: str) -> tuple[RoundTrip, ...]:
    if _HOPS.match(hops) is None:
        return ()
    pairs = (each.split("/") for each in hops.split(","))
    return tuple(RoundTrip(hop, int(microseconds)) for hop, microseconds in pairs)
