"""Lives: an object has one phase at a time, and a table of the phases that may follow each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

Phase = TypeVar("Phase", bound=Enum)


class Living(Generic[Phase]):
    """
    A base of objects with a life.

    :cvar transitions: what may follow each phase.
    :ivar life: the present phase.
    """

    transitions: Mapping[Phase, frozenset[Phase]]
    life: Phase

    def _become(self, life: Phase) -> None:
        assert life in self.transitions[self.life], f"{self.life.value} to {life.value}"
        self.life = life
