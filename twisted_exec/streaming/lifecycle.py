"""The lifecycle of an object: one phase at a time, and a table of the phases that may follow each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

Phase = TypeVar("Phase", bound=Enum)


class ImpossibleTransition(RuntimeError):
    """An object was to enter a phase that may not follow its present one: a mistake of ours."""


class Living(Generic[Phase]):
    """
    A base of objects with a lifecycle.

    :cvar transitions: what may follow each phase.
    :ivar life: the present phase.
    """

    transitions: Mapping[Phase, frozenset[Phase]]
    life: Phase

    def _become(self, life: Phase) -> None:
        """
        Enter the next phase.

        :raises ImpossibleTransition: it may not follow the present one, which stays.
        """
        if life not in self.transitions[self.life]:
            name = type(self).__name__
            raise ImpossibleTransition(f"{name}: {life.value} may not follow {self.life.value}")
        self.life = life
