"""
Which machine has which of the lines of a class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from twisted.internet.interfaces import IStreamClientEndpoint

from twisted_exec.api.display import listed
from twisted_exec.runtimes.interfaces import CannotStart, MachineFacts

_Options = TypeVar("_Options")

Claim = Callable[[MachineFacts], tuple[str, IStreamClientEndpoint]]
"""Reserves the line of a machine; returns its name and endpoint. Raises :class:`CannotStart`."""

_MAX_LISTED = 20


def names_of(facts: MachineFacts) -> tuple[str, str]:
    """Return the names of lines that a machine can have, the better one first."""
    return f"{facts.namespace}/{facts.name}", facts.name


class Lines(Generic[_Options]):
    """
    The lines of one class, and their owners.

    A Machine gets the line with its own name: ``NAMESPACE/NAME`` first, then ``NAME``. The line is
    reserved while the Machine is on.
    """

    def __init__(self, lines: Mapping[str, _Options]) -> None:
        self._lines = lines
        self._owners: dict[str, MachineFacts] = {}
        self._used: set[str] = set()

    @property
    def names(self) -> Sequence[str]:
        """The names of all lines."""
        return tuple(self._lines)

    def options_of(self, facts: MachineFacts) -> _Options | None:
        """Return the options of the machine's line, reserved or not; ``None`` if there is none."""
        name = self._name(facts)
        return None if name is None else self._lines[name]

    def endpoint(self, facts: MachineFacts, claim: Claim) -> tuple[str, IStreamClientEndpoint]:
        """Reserve the machine's line with ``claim``; return its name and endpoint."""
        return claim(facts)

    def claim(self, facts: MachineFacts) -> tuple[str, _Options]:
        """
        Reserve the machine's line until :meth:`release` and power off.

        :return: the line's name and options.
        :raises CannotStart: there is no line for the machine, or another machine owns it.
        """
        name = self._name(facts)
        if name is None:
            raise self._no_line(facts)
        owner = self._owner(name)
        if owner is not None and owner.id != facts.id:
            raise CannotStart(
                "LineTaken", f'line "{name}" is that of machine "{owner.label}"; {self._free()}'
            )
        self._owners[name] = facts
        self._used.add(name)
        return name, self._lines[name]

    def release(self, facts: MachineFacts) -> None:
        """Release the machine's line, if it has one; a machine that is on keeps its line."""
        for name, owner in self._owners.items():
            if owner.id == facts.id:
                self._used.discard(name)

    def _owner(self, name: str) -> MachineFacts | None:
        owner = self._owners.get(name)
        if owner is not None and name not in self._used and not owner.is_on():
            del self._owners[name]
            return None
        return owner

    def _name(self, facts: MachineFacts) -> str | None:
        return next((name for name in names_of(facts) if name in self._lines), None)

    def _no_line(self, facts: MachineFacts) -> CannotStart:
        """Return why the machine has no line."""
        return CannotStart("NoLine", f'no line is called "{facts.label}"; {self._free()}')

    def _free(self) -> str:
        if not self._lines:
            return "the class has no lines"
        free = [name for name in self._lines if self._owner(name) is None]
        if not free:
            return "all lines of the class are taken"
        return f"free lines are: {listed(free, _MAX_LISTED)}"
