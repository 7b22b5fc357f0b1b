"""
Lines that exist already: which machine has which.

A class of such machines lists its lines by name.  A Machine takes the line that is called as it is:
``NAMESPACE/NAME`` first, then ``NAME``.  It has the line from power on to power off, and nobody
else has it meanwhile, since two ends of one console steal each other's output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from twisted_exec.observe.reader import Reader
from twisted_exec.wire.com_port import FLOWS, PARITIES, STOP_BITS, LineSettings

from .interfaces import CannotStart, MachineFacts

SERIAL_KEYS = ("baud", "data_bits", "parity", "stop_bits", "flow", "dtr", "rts")
"""What :func:`line_settings` reads."""

_MOST_NAMED = 20

_Options = TypeVar("_Options")


class Lines(Generic[_Options]):
    """
    The lines of one class.

    :param lines: what a driver knows of each, by name.
    """

    def __init__(self, lines: Mapping[str, _Options]) -> None:
        self._lines = dict(lines)
        self._taken: dict[str, MachineFacts] = {}

    def look(self, facts: MachineFacts) -> _Options | None:
        """What is known of the machine's line, taken or not; ``None`` when it has none."""
        name = self._name(facts)
        return None if name is None else self._lines[name]

    def claim(self, facts: MachineFacts) -> tuple[str, _Options]:
        """
        The machine's line, which is its own until :meth:`release`.

        :raises CannotStart: it has none, or another machine has that; it lists what there is.
        """
        name = self._name(facts)
        if name is None:
            raise CannotStart("NoLine", f'no line is called "{facts.label}"; {self._free()}')
        owner = self._taken.setdefault(name, facts)
        if owner.id != facts.id:
            raise CannotStart(
                "LineTaken", f'line "{name}" is that of machine "{owner.label}"; {self._free()}'
            )
        return name, self._lines[name]

    def release(self, facts: MachineFacts) -> None:
        """The machine is off; also when it had no line."""
        for name, owner in list(self._taken.items()):
            if owner.id == facts.id:
                del self._taken[name]

    def _name(self, facts: MachineFacts) -> str | None:
        for name in (f"{facts.namespace}/{facts.name}", facts.name):
            if name in self._lines:
                return name
        return None

    def _free(self) -> str:
        free = [name for name in self._lines if name not in self._taken]
        if not free:
            return "all lines of the class are taken"
        more = f" and {len(free) - _MOST_NAMED} more" if len(free) > _MOST_NAMED else ""
        return f"free lines are: {', '.join(free[:_MOST_NAMED])}{more}"


def line_settings(reader: Reader) -> LineSettings:
    """
    How a serial line is set, from the keys ``baud`` to ``rts``.

    :raises ConfigError: something cannot be meant.
    """
    stop_bits = reader.number("stop_bits", 1, 2, 1)
    if stop_bits not in STOP_BITS:
        raise reader.error(f"stop_bits must be 1, 1.5 or 2, not {stop_bits:g}")
    lines: dict[str, bool | None] = {}
    for name in ("dtr", "rts"):
        told = reader.choice(name, ("on", "off", "keep"), "keep")
        lines[name] = None if told == "keep" else told == "on"
    return LineSettings(
        baud=int(reader.number("baud", 50, 4_000_000, 9600)),
        data_bits=int(reader.number("data_bits", 5, 8, 8)),
        parity=reader.choice("parity", tuple(PARITIES), "none"),
        stop_bits=stop_bits,
        flow=reader.choice("flow", tuple(FLOWS), "none"),
        dtr=lines["dtr"],
        rts=lines["rts"],
    )
