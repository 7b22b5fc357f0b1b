"""
Common part of the drivers of machines at existing lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from twisted.internet.interfaces import IStreamClientEndpoint

from twisted_exec.runtimes.interfaces import MachineFacts
from twisted_exec.runtimes.lines.claims import Lines
from twisted_exec.runtimes.lines.shared_line import DEFAULT_TIMING, LineTiming, Power, SharedLine

_Options = TypeVar("_Options")


class LineDriver(Generic[_Options]):
    """
    Base of these drivers; each provides ``IMachineDriver``.

    :param lines: the driver's options for each line, by name.
    :ivar timing: of the lines of machines that start from now on.
    """

    def __init__(self, lines: Mapping[str, _Options], reactor: Any) -> None:
        self.lines = Lines(lines)
        self.reactor = reactor
        self.timing: LineTiming = DEFAULT_TIMING

    def run(self, facts: MachineFacts) -> SharedLine:
        """See :meth:`.IMachineDriver.run`."""
        line = self.lines.options_of(facts)
        return SharedLine(
            facts,
            self.reactor,
            lambda: self._claim(facts),
            lambda: self.lines.release(facts),
            breakable=line is not None and self._has_break(line),
            power=None if line is None else self._power(facts, line),
            timing=self.timing,
        )

    # Implemented by subclasses.

    def _claim(self, facts: MachineFacts) -> tuple[str, IStreamClientEndpoint]:
        """
        Reserve the machine's line; return its name and endpoint.

        :raises APIError: there is no line, or another machine has it.
        """
        raise NotImplementedError

    def _has_break(self, line: _Options) -> bool:
        """Return whether a BREAK can be sent over a line."""
        return True

    def _power(self, facts: MachineFacts, line: _Options) -> Power | None:
        """Return the switch of the machine at a line; ``None`` if it has none."""
        return None
