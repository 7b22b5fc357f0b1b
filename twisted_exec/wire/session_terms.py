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
_YES = "1"
_POLICIES = re.compile(r"[-a-z0-9./, ]{0,1024}\Z")
_RECORDING = re.compile(r"([-0-9A-Za-z]{1,64})/([a-z]+)\Z")

RECORDED_INPUT = ("none", "masked", "all")
"""How much of the users' input a recording contains, least first."""

_NAMES = (
    "right",
    "people",
    "viewers",
    "idle_seconds",
    "until",
    "policy",
    "recording",
    "input_rate",
    "yields",
)
_SOURCED = ("people", "viewers", "idle_seconds", "until", "input_rate", "yields")
"""Terms about which users read messages that name policies."""


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
    :param input_rate: most input for the machine, in bytes per second, with a burst of one second; 0 for any.
    :param yields: the session's user gives the floor to a person who types.
    :param sources: names of terms that only some of the policies demand, and these policies.
    """

    right: Right = Right.TAKEOVER
    people: int = 1
    viewers: int = 0
    idle_seconds: int = 0
    until: int = 0
    policy: str = ""
    recording: str = ""
    input_rate: int = 0
    yields: bool = False
    sources: tuple[tuple[str, str], ...] = ()

    def text(self) -> str:
        """
        Return the terms for the header; empty for :data:`FULL`.

        Each policy follows the terms that it alone demands; release 0.2.0 reads the names of all policies.
        """
        if self == FULL:
            return ""
        words = {
            name: value.verb if isinstance(value, Right) else _YES if value is True else str(value)
            for name in _NAMES
            if (value := getattr(self, name)) != getattr(FULL, name)
        }
        pairs: list[tuple[str, str]] = []
        if self.sources:
            for policy in words.pop("policy").split(", "):
                own = [name for name, source in self.sources if source == policy and name in words]
                pairs += [*((name, words.pop(name)) for name in own), ("policy", policy)]
        return urlencode([*pairs, *words.items()])

    def policy_of(self, term: str) -> str:
        """Return the names of the policies that demand a term, such as ``people``; of all if this is not known."""
        return dict(self.sources).get(term, self.policy)

    def rule(self, verb: str, term: str) -> str:
        """
        Return the start of a message: the policies and what they do.

        :param verb: without an ending, such as ``need``.
        :param term: that the message is about, such as ``people``.
        """
        policy = self.policy_of(term)
        if not policy:
            return f"the policy of this console {verb}s"
        if "," in policy:
            return f"ConsolePolicies {policy} {verb}"
        return f"ConsolePolicy {policy} {verb}s"

    def satisfy(self, others: Terms) -> bool:
        """Return whether these terms are at least as strict as others."""
        # Names of policies are for messages, and make no terms stricter.
        here, there = (
            replace(each, policy="", sources=()) if each.policy else each for each in (self, others)
        )
        return stricter(here, there) == here


FULL = Terms()
"""Nothing is restricted."""


def stricter(first: Terms, second: Terms) -> Terms:
    """Return terms that satisfy both."""
    if first == FULL or second == FULL:  # nearly always
        return second if first == FULL else first
    policies = [first.policy, *(each for each in (second.policy,) if each != first.policy)]
    both = Terms(
        min(first.right, second.right),
        max(first.people, second.people),
        _lower(first.viewers, second.viewers),
        _lower(first.idle_seconds, second.idle_seconds),
        _lower(first.until, second.until),
        ", ".join(filter(None, policies)),
        _more_recorded(first.recording, second.recording),
        _lower(first.input_rate, second.input_rate),
        first.yields or second.yields,
    )
    if not (first.policy and second.policy):
        return replace(both, sources=first.sources or second.sources) if both.policy else both
    sources = []
    for name in _SOURCED:
        value = getattr(both, name)
        if value != getattr(FULL, name):
            policy = (first if value == getattr(first, name) else second).policy_of(name)
            sources += [(name, policy)] * (policy != both.policy)
    return replace(both, sources=tuple(sources))


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
    terms = group = FULL
    for name, value in pairs:
        group = stricter(group, _term(name, value))
        if name == "policy":
            terms, group = stricter(terms, group), FULL
    return stricter(terms, group)


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
    if name == "yields" and value == _YES:
        return Terms(yields=True)
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
        if name == "input_rate":
            return Terms(input_rate=number)
    # Unlike other headers, this header has no members to ignore: the session would begin without a
    # term that an earlier hop relies on.
    raise RemoteProtocolError(f"this release does not know the term {name!r} of the session")


def _lower(first: int, second: int) -> int:
    return min(first, second) if first and second else first or second


def _more_recorded(first: str, second: str) -> str:
    if not (first and second):
        return first or second
    ranks = [RECORDED_INPUT.index(parse_recording(each)[1]) for each in (first, second)]
    return first if ranks[0] >= ranks[1] else second
