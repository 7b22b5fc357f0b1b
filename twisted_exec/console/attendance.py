"""
Rules of ConsolePolicies about the users who are at one console.

A policy may require several people before a machine gets input (the rule of four eyes).  Every
session counts, whatever its right, but only by its user's name: two sessions of one user are one
person, and users without a name do not count.  The number is that of the writers' terms; if they
differ, the strictest count, since it is the machine that the policy protects.  The terms of
observers do not count: they have no input to withhold.  A session whose connection is lost is not a
person either: nobody sees what the machine prints.

A policy may also limit the number of sessions.  The limit concerns new sessions: none that is open
has to leave, neither for a user with a higher right nor after a change of the policy.  A session
whose connection is lost keeps its place.  Only the terms
of the new session count: any client can send stricter terms for its own session, and would keep all
others out with them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from twisted_exec.streaming.interfaces import Role
from twisted_exec.wire.session_terms import FULL, Terms

_UNKNOWN = frozenset({"", "system:anonymous"})
"""Names of users who could be anybody: of a hop that sends no names, and without credentials."""


class Attendant(Protocol):
    """One session at a console."""

    terms: Terms
    """What the session is held to."""

    @property
    def role(self) -> Role:
        """Writer or observer."""

    @property
    def user(self) -> str:
        """The user's name; empty if unknown."""

    @property
    def is_ending(self) -> bool:
        """True if the session has ended or is about to."""

    @property
    def is_away(self) -> bool:
        """True if the session's connection is lost, and its user may come back."""


def missing_people(sessions: Collection[Attendant]) -> str:
    """Return why the machine gets no input while these sessions are open; empty if it does."""
    strictest = FULL
    for each in sessions:
        if each.role is Role.WRITER and each.terms.people > strictest.people:
            strictest = each.terms
    if strictest is FULL:
        return ""
    here = {each.user for each in sessions if not each.is_ending and not each.is_away}
    present = len(here - _UNKNOWN)
    if present >= strictest.people:
        return ""
    connected = "1 is connected" if present == 1 else f"{present} are connected"
    return f"{strictest.rule('need')} {strictest.people} people at this console, {connected}"


def missing_place(sessions: Collection[Attendant], terms: Terms) -> str:
    """Return why these sessions leave no place for another one with these terms; empty if they do."""
    present = sum(not each.is_ending for each in sessions)
    if not terms.viewers or present < terms.viewers:
        return ""
    allowed = "1 session" if terms.viewers == 1 else f"{terms.viewers} sessions"
    is_open = "1 is open" if present == 1 else f"{present} are open"
    return (
        f"{terms.rule('allow')} {allowed} at this console, and {is_open};"
        " try again when one of them has ended"
    )
