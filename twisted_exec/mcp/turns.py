"""
Turns of people: a few calls work at a time, and people take turns, see :mod:`twisted_exec.program.rotation`.

So the API server gets a bounded number of requests at once, and a person, with all agents, has a part of them at most
and delays others no more than one who makes few calls.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.program.rotation import Rotation

AT_ONCE = 4
AT_ONCE_PER_PERSON = 2
WORKING_SECONDS = 2.0
"""A call that has not ended by then waits for a machine that hangs, and holds up nobody any more."""
WAITING_SECONDS = 0.1
"""The same of a call that may wait for a machine or a person."""


class Turn:
    """The turn of one call; it ends by itself after some seconds."""

    def __init__(self, turns: CallTurns, person: str, clock: IReactorTime, seconds: float) -> None:
        self._turns, self._person = turns, person
        self._late = clock.callLater(seconds, self._end)

    def _end(self) -> None:
        self._turns.ended(self._person)

    def end(self) -> None:
        """End the turn, unless it has ended."""
        if self._late.active():
            self._late.cancel()
            self._end()


@dataclass
class _Person:
    """
    :ivar places: of the person's calls that work, or wait for their turn.
    :ivar later: calls that wait for one of these places.
    """

    places: int = 0
    later: deque[Deferred[None]] = field(default_factory=deque)


class CallTurns:
    """
    The turns of all calls.

    :param at_once: calls that work at a time.
    :param per_person: those of one person.
    """

    def __init__(
        self, clock: IReactorTime, at_once: int = AT_ONCE, per_person: int = AT_ONCE_PER_PERSON
    ) -> None:
        self._clock, self._free, self._per_person = clock, at_once, per_person
        self._people: dict[str, _Person] = {}
        self._waiting: Rotation[Deferred[None]] = Rotation()

    def __len__(self) -> int:
        """Return how many calls wait."""
        return len(self._waiting) + sum(len(each.later) for each in self._people.values())

    def next(self, name: str, seconds: float = WORKING_SECONDS) -> Deferred[Turn]:
        """
        Return what fires with the turn of a call; cancelling gives it up.

        :param name: of the person.
        :param seconds: after which the turn ends, also if the call goes on.
        """
        begun: Deferred[None] = Deferred(lambda each: self._give_up(name, each))
        self._people.setdefault(name, _Person()).later.append(begun)
        self._fill(name)
        self._begin()
        return begun.addCallback(lambda _: Turn(self, name, self._clock, seconds))

    def ended(self, name: str) -> None:
        """Give the place of a turn that has ended to another call."""
        self._free += 1
        self._leave(name)
        self._begin()

    def _give_up(self, name: str, begun: Deferred[None]) -> None:
        later = self._people[name].later
        if begun in later:
            later.remove(begun)
        else:
            self._waiting.remove(name, begun)
            self._leave(name)

    def _leave(self, name: str) -> None:
        self._people[name].places -= 1
        self._fill(name)

    def _fill(self, name: str) -> None:
        person = self._people[name]
        if person.later and person.places < self._per_person:
            person.places += 1
            self._waiting.add(name, person.later.popleft())
        elif not person.places:
            del self._people[name]

    def _begin(self) -> None:
        while self._free and self._waiting:
            self._free -= 1
            self._waiting.pop().callback(None)
