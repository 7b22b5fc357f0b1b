"""
The people that a policy requires at a console before its machine gets input.
"""

from __future__ import annotations

from collections.abc import Collection

from twisted_exec.api.agents import person_of
from twisted_exec.console.viewer import Viewer
from twisted_exec.streaming.interfaces import Role
from twisted_exec.wire.session_terms import FULL

_UNKNOWN = frozenset({"", "system:anonymous"})
"""Names of unknown users: of a hop that sends no names, and of users without credentials."""


def missing_people(viewers: Collection[Viewer]) -> str:
    """
    Return why the machine gets no input while these viewers are here; empty if it does.

    A policy may require several people before a machine gets input (the four-eyes principle). People
    are counted by their names, whatever their rights: two sessions of one user are one person, and an
    agent is the person for whom it acts. A
    session whose connection is lost does not count, because nobody sees what the machine prints.
    Only the terms of writers count, the strictest of them.
    """
    strictest = FULL
    for each in viewers:
        if each.role is Role.WRITER and each.terms.people > strictest.people:
            strictest = each.terms
    if strictest is FULL:
        return ""
    here = {person_of(each.user) for each in viewers if not each.is_ending and not each.is_away}
    present = len(here - _UNKNOWN)
    if present >= strictest.people:
        return ""
    connected = "1 is connected" if present == 1 else f"{present} are connected"
    return (
        f"{strictest.rule('need', 'people')} {strictest.people} people at this console, {connected}"
    )
