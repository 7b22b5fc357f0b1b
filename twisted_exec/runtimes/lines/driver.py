"""
The base class of the drivers of existing lines.

The lines are in :mod:`.lines`, those of a list in :mod:`.line_list`, and the settings of serial lines in
:mod:`.serial_settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint

from twisted_exec.runtimes.interfaces import CannotStart, MachineFacts
from twisted_exec.runtimes.lines.line_list import LineList, ListedLines
from twisted_exec.runtimes.lines.lines import Lines
from twisted_exec.runtimes.lines.shared_line import DEFAULT_TIMING, LineTiming, Power, SharedLine

_Options = TypeVar("_Options")


class LineDriver(Generic[_Options]):
    """
    Base of the drivers of existing lines; subclasses provide ``IMachineDriver``.

    :cvar exclusive: what keeps other programs from a line in use, for ``docs/reference/line-drivers.rst``; empty if
        the far end decides.
    """

    exclusive = ""

    def __init__(self, lines: Mapping[str, _Options], reactor: Any) -> None:
        self.lines: Lines[_Options] = (
            ListedLines(lines, reactor, self._line_changed)
            if isinstance(lines, LineList)
            else Lines(lines)
        )
        self.reactor = reactor
        self.timing: LineTiming = DEFAULT_TIMING

    def run(self, facts: MachineFacts) -> SharedLine:
        line = self.lines.options_of(facts)
        return SharedLine(
            facts,
            self.reactor,
            lambda: self.lines.endpoint(facts, self._claim),
            lambda: self._release(facts),
            breakable=line is not None and self._has_break(line),
            power=None if self.power_of(facts) is None else _CurrentPower(self, facts),
            timing=self.timing,
        )

    def power_of(self, facts: MachineFacts) -> Power | None:
        """Return the power switch of the machine's line; ``None`` without a line or a switch."""
        line = self.lines.options_of(facts)
        return None if line is None else self._power(facts, line)

    # Implemented by subclasses.

    def _claim(self, facts: MachineFacts) -> tuple[str, IStreamClientEndpoint]:
        raise NotImplementedError

    def _release(self, facts: MachineFacts) -> Deferred[None] | None:
        """Release the line; it may be called again."""
        self.lines.release(facts)
        return None

    def _line_changed(self, facts: MachineFacts, why: CannotStart) -> None:
        """Let go of what a line had, because its row in a list has changed; its connection ends."""

    def _has_break(self, line: _Options) -> bool:
        return True

    def _power(self, facts: MachineFacts, line: _Options) -> Power | None:
        return None


class _CurrentPower:
    """The power switch of the line that a machine has at that time: a list of lines may change."""

    def __init__(self, driver: LineDriver[Any], facts: MachineFacts) -> None:
        self._driver, self._facts = driver, facts
        self._asked: tuple[int, Any] = (-1, None)  # for which switch, and by which line

    async def on(self) -> None:
        await self._switch().on()

    async def off(self) -> None:
        switch = self._switch()
        number, line = self._facts.switches(), self._driver.lines.options_of(self._facts)
        if self._asked[0] != number:
            self._asked = (number, line)
        elif self._asked[1] != line:
            # Its user has not asked for the server of a row that was changed meanwhile.
            raise CannotStart(
                "LineChanged",
                "its line is another one than when it was to be off: set spec.power to On and to Off",
            )
        await switch.off()

    def _switch(self) -> Power:
        switch = self._driver.power_of(self._facts)
        if switch is None:
            raise CannotStart("NoLine", f'no line is called "{self._facts.label}" any more')
        return switch
