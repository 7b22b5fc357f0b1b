"""
The terms of a console session: what its user may do, and until when.  Terms only restrict.

Hops send them in the header ``X-Twisted-Exec-Terms`` of the request that opens the stream.  The hop
that decodes the stream enforces them, and repeats the header in its 101.  Another program would
ignore the header, so a session without that answer is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import IntEnum
from urllib.parse import parse_qsl, urlencode

from twisted_exec.wire.errors import RemoteProtocolError

TERMS_HEADER = "X-Twisted-Exec-Terms"
RECORDED_HEADER = "X-Twisted-Exec-Recorded"
"""
In the 101 of an API server, for the user's client alone: the session is recorded, with this input
(:data:`RECORDED_INPUT`). The header is missing while an optional recording has not begun.
"""

MAY_ONLY_OBSERVE = (
    "you may only observe this console (ask an administrator for the role console-user)"
)

_LONGEST = 2048
_NUMBER = re.compile(r"[0-9]{1,12}\Z")
_POLICIES = re.compile(r"[-a-z0-9./, ]{0,1024}\Z")
_RECORDING = re.compile(r"([-0-9A-Za-z]{1,64})/([a-z]+)\Z")

RECORDED_INPUT = ("none", "masked", "all")
"""How much of the users' input a recording contains, least first."""

_NAMES = ("right", "people", "viewers", "idle_seconds", "until", "policy", "recording")


class Right(IntEnum):
    """A user's right at a console; a higher right includes the lower ones."""

    OBSERVE = 1
    """See the output."""
    DRIVE = 2
    """Type, while no other user has the floor."""
    TAKEOVER = 3
    """Take the floor from another user."""

    @property
    def verb(self) -> str:
        """The verb of ``machines/console``."""
        return self.name.lower()


@dataclass(frozen=True)
class Terms:
    """
    The terms of one session.

    :param people: users who must be connected before the machine gets input.
    :param viewers: most sessions at the console; 0 for any number.
    :param idle_seconds: longest time without input; 0 for any.
    :param until: when the session ends, in seconds since 1970; 0 for never.
    :param policy: the names of the ConsolePolicies, for messages.
    :param recording: ``UID/INPUT``: the console accepts input only while the ConsoleRecording with
        this UID records it, with at least this input.  May be empty.
    """

    right: Right = Right.TAKEOVER
    people: int = 1
    viewers: int = 0
    idle_seconds: int = 0
    until: int = 0
    policy: str = ""
    recording: str = ""

    def text(self) -> str:
        """Return the terms for the header; empty for :data:`FULL`."""
        words = [
            (name, value.verb if isinstance(value, Right) else str(value))
            for name in _NAMES
            if (value := getattr(self, name)) != getattr(FULL, name)
        ]
        return urlencode(words)

    def rule(self, verb: str) -> str:
        """
        Return the start of a message: the policies and what they do.

        :param verb: without an ending, such as ``need``.
        """
        if not self.policy:
            return f"the policy of this console {verb}s"
        if "," in self.policy:
            return f"ConsolePolicies {self.policy} {verb}"
        return f"ConsolePolicy {self.policy} {verb}s"

    def satisfy(self, others: Terms) -> bool:
        """Return whether these terms are at least as strict as others."""
        # Names of policies are for messages, and make no terms stricter.
        here, there = (replace(each, policy="") if each.policy else each for each in (self, others))
        return stricter(here, there) == here


FULL = Terms()
"""Nothing is restricted."""


def stricter(first: Terms, second: Terms) -> Terms:
    """Return terms that satisfy both."""
    if first == FULL or second == FULL:  # nearly always
        return second if first == FULL else first
    policies = [first.policy, *(each for each in (second.policy,) if each != first.policy)]
    return Terms(
        min(first.right, second.right),
        max(first.people, second.people),
        _lower(first.viewers, second.viewers),
        _lower(first.idle_seconds, second.idle_seconds),
        _lower(first.until, second.until),
        ", ".join(filter(None, policies)),
        _more_recorded(first.recording, second.recording),
    )


def parse_recording(text: str) -> tuple[str, str]:
    """
    Split the term of a recording.

    :return: the UID of the ConsoleRecording, and an element of :data:`RECORDED_INPUT`.
    :raises ValueError: it is malformed.
    """
    match = _RECORDING.match(text)
    if match is None or match[2] not in RECORDED_INPUT:
        raise ValueError(f"{text[:100]!r} does not name a recording and its input")
    return match[1], match[2]


def parse_terms(text: str) -> Terms:
    """
    Parse the header.

    :raises RemoteProtocolError: it has a term that this release cannot enforce, or is malformed.
    """
    if len(text) > _LONGEST:
        raise RemoteProtocolError("the terms of the session are too long")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True) if text else []
    except ValueError:
        raise RemoteProtocolError("the terms of the session are malformed") from None
    terms = FULL
    for name, value in pairs:
        terms = stricter(terms, _term(name, value))
    return terms


def _term(name: str, value: str) -> Terms:
    if name == "right" and value.upper() in Right.__members__ and value.islower():
        return Terms(right=Right[value.upper()])
    if name == "policy" and _POLICIES.match(value):
        return Terms(policy=value)
    if name == "recording":
        try:
            parse_recording(value)
        except ValueError as problem:
            raise RemoteProtocolError(
                f"the terms of the session are malformed: {problem}"
            ) from None
        return Terms(recording=value)
    if _NUMBER.match(value):
        number = int(value)
        if name == "people":
            return Terms(people=number)
        if name == "viewers":
            return Terms(viewers=number)
        if name == "idle_seconds":
            return Terms(idle_seconds=number)
        if name == "until":
            return Terms(until=number)
    # Unlike other headers, this header has no members to ignore: the session would begin without a
    # term that an earlier hop relies on.
    raise RemoteProtocolError(unknown_term(name))


def unknown_term(name: str) -> str:
    """Return the refusal of a term that a release does not know."""
    return f"this release does not know the term {name!r} of the session"


def _lower(first: int, second: int) -> int:
    return min(first, second) if first and second else first or second


def _more_recorded(first: str, second: str) -> str:
    if not (first and second):
        return first or second
    ranks = [RECORDED_INPUT.index(parse_recording(each)[1]) for each in (first, second)]
    return first if ranks[0] >= ranks[1] else second
