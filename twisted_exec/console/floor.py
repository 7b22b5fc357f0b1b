"""
Who drives a console, and who looks on.

The floor is had by one *user* at a time; what anybody else types goes nowhere.  All sessions
of that user that asked for input drive together: a second terminal or a script of one's own is no
stranger, and a connection that died unnoticed keeps nobody out.  A poollet of another make
does not say who its users are; they are one user here, and all of them may type.

A role changes by an act of somebody, never by itself:

======================== ==========================================================
act                      what becomes of whom
======================== ==========================================================
one joins for input      drives when nobody does, or when its own user does; else
                         looks on, and is told who drives
one joins with force     the same as joining and taking over
one takes over           it drives; all others look on, and are told by whom
one releases             it looks on
one leaves               nobody else's role changes
======================== ==========================================================

So when the last driver has gone those who wait are told, but nobody is made a driver by
surprise: somebody who came to look and then typed into a machine has been a bug of other console
servers (conserver#107).  Who did not ask for input looks on and cannot do otherwise.
"""

from __future__ import annotations

from typing import Protocol

from twisted_exec.streaming.interfaces import Role

_MOST_NAME = 64
_HOW = "(~f or --force takes it over)"


class Party(Protocol):
    """One session of a user at a console."""

    role: Role
    """Set by the floor."""

    @property
    def user(self) -> str:
        """Whose it is; empty when nobody knows."""

    @property
    def may_drive(self) -> bool:
        """It asked for input."""

    def tell(self, notice: bytes) -> None:
        """Have the user read something."""

    def driving(self) -> None:
        """It drives from now on."""


class Floor:
    """
    The parties of one console.

    At any time all that drive are one user's.
    """

    def __init__(self) -> None:
        self._parties: list[Party] = []

    @property
    def drivers(self) -> list[Party]:
        """Those that drive, in the order in which they joined."""
        return [one for one in self._parties if one.role is Role.DRIVE]

    @property
    def driver(self) -> str:
        """Who drives, for people to read; ``nobody`` when nobody does."""
        drivers = self.drivers
        return shown_user(drivers[0].user) if drivers else "nobody"

    def join(self, party: Party, *, force: bool = False) -> None:
        """
        One more has come.

        :param force: and takes over.
        """
        party.role = Role.WATCH
        self._parties.append(party)
        if not party.may_drive:
            return
        drivers = self.drivers
        if force:
            self._take(party)
        elif not drivers or drivers[0].user == party.user:
            self._drive(party)
        else:
            party.tell(notice(f"{self.driver} drives this console; you are looking on {_HOW}"))

    def leave(self, party: Party) -> None:
        """One has gone.  Repeated calls do nothing."""
        if party in self._parties:
            self._parties.remove(party)
            if party.role is Role.DRIVE:
                party.role = Role.WATCH
                self._tell_if_free(party, "has left")

    def wish(self, party: Party, role: Role) -> None:
        """A party that is here wants to drive, or to look on."""
        if not party.may_drive or party not in self._parties:
            return
        if role is Role.DRIVE:
            self._take(party)
            return
        drove, party.role = party.role is Role.DRIVE, Role.WATCH
        party.tell(notice(f"you are looking on; {self.driver} drives this console {_HOW}"))
        if drove:
            self._tell_if_free(party, "has stopped driving")

    def refusal(self) -> bytes:
        """What one reads who looks on, and types."""
        return notice(f"what you type is not sent: {self.driver} drives this console {_HOW}")

    def _take(self, party: Party) -> None:
        others = [one for one in self.drivers if one is not party]
        before = self.driver if others else ""
        taker = shown_user(party.user)
        for one in others:
            one.role = Role.WATCH
        self._drive(party)
        told = (
            f"you have taken over this console from {before}"
            if others
            else "you drive this console"
        )
        party.tell(notice(told))
        for one in others:
            whose = f"{taker}, in another session," if one.user == party.user else taker
            one.tell(notice(f"{whose} has taken over this console; you are looking on {_HOW}"))

    def _drive(self, party: Party) -> None:
        if party.role is not Role.DRIVE:
            party.role = Role.DRIVE
            party.driving()

    def _tell_if_free(self, gone: Party, why: str) -> None:
        """Those who would drive hear that they could."""
        if self.drivers:
            return
        told = notice(f"{shown_user(gone.user)} {why}; nobody drives this console {_HOW}")
        for one in self._parties:
            if one is not gone and one.may_drive:
                one.tell(told)


def notice(text: str) -> bytes:
    """A line of ours on a user's screen, where a guest may have left the cursor anywhere."""
    return f"\r\n[twisted-exec: {text}]\r\n".encode()


def shown_user(name: str) -> str:
    """A name that came over the network, safe for a terminal and of a bounded length."""
    if not name:
        return "somebody"
    plain = "".join(char if char.isprintable() else "?" for char in name[: _MOST_NAME + 1])
    return (
        plain if len(plain) <= _MOST_NAME else plain[: _MOST_NAME - 1] + "\N{HORIZONTAL ELLIPSIS}"
    )
