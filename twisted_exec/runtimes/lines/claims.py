"""
The assignment of existing lines to machines.

A class lists its lines by name.  A Machine gets the line with its own name: ``NAMESPACE/NAME``
first, then ``NAME``.  From power on to power off the line is reserved for this Machine, because two
readers of one serial console steal each other's output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from twisted_exec.program.config_file import Reader
from twisted_exec.runtimes.interfaces import CannotStart, MachineFacts
from twisted_exec.wire.com_port import FLOWS, PARITIES, STOP_BITS, LineSettings

SERIAL_KEYS = ("baud", "data_bits", "parity", "stop_bits", "flow", "dtr", "rts")
"""The keys that :func:`line_settings` reads."""

_MAX_LISTED = 20

_Options = TypeVar("_Options")


class Lines(Generic[_Options]):
    """
    The lines of one class, and their owners.

    :param lines: the driver's options for each line, by name.
    """

    def __init__(self, lines: Mapping[str, _Options]) -> None:
        self._lines = dict(lines)
        self._owners: dict[str, MachineFacts] = {}
        self._used: set[str] = set()

    def options_of(self, facts: MachineFacts) -> _Options | None:
        """Return the options of the machine's line, reserved or not; ``None`` if there is none."""
        name = self._name(facts)
        return None if name is None else self._lines[name]

    def claim(self, facts: MachineFacts) -> tuple[str, _Options]:
        """
        Reserve the machine's line until :meth:`release` and power off.

        :return: the line's name and options.
        :raises CannotStart: there is no line for the machine, or another machine owns it; the
            message lists the free lines.
        """
        name = self._name(facts)
        if name is None:
            raise CannotStart("NoLine", f'no line is called "{facts.label}"; {self._free()}')
        owner = self._owner(name)
        if owner is not None and owner.id != facts.id:
            raise CannotStart(
                "LineTaken", f'line "{name}" is that of machine "{owner.label}"; {self._free()}'
            )
        self._owners[name] = facts
        self._used.add(name)
        return name, self._lines[name]

    def release(self, facts: MachineFacts) -> None:
        """Release the machine's line, if it has one; the machine keeps it while it is on."""
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
        for name in (f"{facts.namespace}/{facts.name}", facts.name):
            if name in self._lines:
                return name
        return None

    def _free(self) -> str:
        free = [name for name in self._lines if self._owner(name) is None]
        if not free:
            return "all lines of the class are taken"
        more = f" and {len(free) - _MAX_LISTED} more" if len(free) > _MAX_LISTED else ""
        return f"free lines are: {', '.join(free[:_MAX_LISTED])}{more}"


def line_settings(reader: Reader) -> LineSettings:
    """
    Read the settings of a serial line: :data:`SERIAL_KEYS`.

    :raises ConfigError: a value is not possible.
    """
    stop_bits = reader.number("stop_bits", 1, 2, 1)
    if stop_bits not in STOP_BITS:
        raise reader.error(f"stop_bits must be 1, 1.5 or 2, not {stop_bits:g}")
    lines: dict[str, bool | None] = {}
    for name in ("dtr", "rts"):
        state = reader.choice(name, ("on", "off", "keep"), "keep")
        lines[name] = None if state == "keep" else state == "on"
    return LineSettings(
        baud=int(reader.number("baud", 50, 4_000_000, 9600)),
        data_bits=int(reader.number("data_bits", 5, 8, 8)),
        parity=reader.choice("parity", tuple(PARITIES), "none"),
        stop_bits=stop_bits,
        flow=reader.choice("flow", tuple(FLOWS), "none"),
        dtr=lines["dtr"],
        rts=lines["rts"],
    )
