"""
The state machine of a console's line.

A console may have several lines, one after the other.  Between two of them it waits, and its viewers
stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from automat import TypeMachineBuilder

from twisted_exec.streaming.interfaces import Ending

from .line import Line

if TYPE_CHECKING:
    from .shared_console import SharedConsole


class Lifecycle(Protocol):
    """Inputs of the state machine."""

    def open(self) -> None:
        """Connect the line, or the next one."""

    def opened(self, line: Line) -> None:
        """The line is connected."""

    def let_go(self) -> None:
        """Give up the line, which goes on."""

    def failed(self, ending: Ending) -> None:
        """The line could not be opened."""

    def interrupted(self, ending: Ending) -> None:
        """The line ended or is to be closed, and another one may follow."""

    def over(self, ending: Ending) -> None:
        """The line ended, or the console is to end."""


def build(console: type[SharedConsole]) -> Any:
    """
    Build the state machine: New, Opening, Live, Over; Waiting and Reopening between two lines.

    A line that is let go of is new again.
    """
    builder = TypeMachineBuilder(Lifecycle, console)
    new, opening, live, waiting, reopening, over = (
        builder.state(name) for name in ("New", "Opening", "Live", "Waiting", "Reopening", "Over")
    )

    @new.upon(Lifecycle.open).to(opening)
    @waiting.upon(Lifecycle.open).to(reopening)
    def connect(_: Lifecycle, core: SharedConsole) -> None:
        core._connect()

    @opening.upon(Lifecycle.opened).to(live)
    @reopening.upon(Lifecycle.opened).to(live)
    def go_live(_: Lifecycle, core: SharedConsole, line: Line) -> None:
        core._go_live(line)

    @live.upon(Lifecycle.let_go).to(new)
    def let_go(_: Lifecycle, core: SharedConsole) -> None:
        core._let_go()

    @new.upon(Lifecycle.interrupted).to(waiting)
    @opening.upon(Lifecycle.interrupted).to(waiting)
    @live.upon(Lifecycle.interrupted).to(waiting)
    @waiting.upon(Lifecycle.interrupted).loop()
    @reopening.upon(Lifecycle.interrupted).to(waiting)
    def wait(_: Lifecycle, core: SharedConsole, ending: Ending) -> None:
        core._wait(ending)

    @reopening.upon(Lifecycle.failed).to(waiting)
    def wait_on(_: Lifecycle, core: SharedConsole, ending: Ending) -> None:
        core._drop_line(ending)

    @opening.upon(Lifecycle.failed).to(over)
    @new.upon(Lifecycle.over).to(over)
    @opening.upon(Lifecycle.over).to(over)
    @live.upon(Lifecycle.over).to(over)
    @waiting.upon(Lifecycle.over).to(over)
    @reopening.upon(Lifecycle.over).to(over)
    def finish(_: Lifecycle, core: SharedConsole, ending: Ending) -> None:
        core._finish(ending)

    @waiting.upon(Lifecycle.opened).loop()
    @over.upon(Lifecycle.opened).loop()
    def too_late(_: Lifecycle, core: SharedConsole, line: Line) -> None:
        line.transport.loseConnection()

    @over.upon(Lifecycle.open).loop()
    def refuse(_: Lifecycle, core: SharedConsole) -> None:
        core._refuse()

    for state in (new, waiting, over):
        state.upon(Lifecycle.let_go).loop().returns(None)
    waiting.upon(Lifecycle.failed).loop().returns(None)
    over.upon(Lifecycle.failed).loop().returns(None)
    over.upon(Lifecycle.interrupted).loop().returns(None)
    over.upon(Lifecycle.over).loop().returns(None)
    return builder.build()
