"""Messages about the machines of a fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api.display import listed
from twisted_exec.cli.fleet.follower import FollowerState
from twisted_exec.cli.fleet.targets import FleetTarget
from twisted_exec.cli.messages import one_line

REPORT_SECONDS = 1.0
"""Outages that end sooner are not reported."""


class FollowedMachine(Protocol):
    """A machine, as far as reports need it."""

    @property
    def target(self) -> FleetTarget: ...
    @property
    def state(self) -> FollowerState: ...
    @property
    def problem(self) -> str: ...


class FleetProgress:
    """
    Reports changes, about once a second.

    :param say: prints a line that the user needs.
    :param inform: prints a line about the progress.
    """

    def __init__(
        self, clock: IReactorTime, say: Callable[[str], None], inform: Callable[[str], None]
    ) -> None:
        self._followers: list[FollowedMachine] = []
        self._clock, self._say, self._inform = clock, say, inform
        self._begun = clock.seconds()
        self._is_opening = False
        self._reported: dict[FollowedMachine, tuple[FollowerState, str]] = {}
        self._timer: IDelayedCall | None = None

    def add(self, followers: Iterable[FollowedMachine]) -> None:
        """Report on these machines, too, which are about to be opened."""
        if not self._is_opening:
            self._is_opening, self._begun = True, self._clock.seconds()
        self._followers += followers

    def changed(self, follower: FollowedMachine) -> None:
        """Note that a machine may have another state."""
        if self._timer is None:
            self._timer = self._clock.callLater(REPORT_SECONDS, self._report)
        if self._is_opening and self._opened == len(self._followers):
            self._report()

    def close(self) -> None:
        """Report the last changes, and nothing more."""
        if self._timer is not None:
            self._report()
        self._stop()

    def _stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    @property
    def _opened(self) -> int:
        return sum(
            each.state in (FollowerState.OPEN, FollowerState.ENDED) for each in self._followers
        )

    def _report(self) -> None:
        self._stop()
        if self._is_opening:
            total, opened = len(self._followers), self._opened
            if any(each.state is FollowerState.OPENING for each in self._followers):
                self._inform(f"opened {opened} of {total} consoles")
                self._timer = self._clock.callLater(REPORT_SECONDS, self._report)
            else:
                self._is_opening = False
                seconds = self._clock.seconds() - self._begun
                self._inform(
                    f"following {opened} of {total} machines after {seconds:.1f} s; Ctrl-C leaves"
                )
        changes: dict[tuple[FollowerState, str], list[FollowedMachine]] = {}
        for each in self._followers:
            now = each.state, _anonymous(each)
            before = self._reported.get(each)
            if now == before or (
                before is None and each.state in (FollowerState.OPEN, FollowerState.OPENING)
            ):
                continue
            self._reported[each] = now
            changes.setdefault(now, []).append(each)
        for (state, _), those in changes.items():
            names = listed([each.target.label for each in those], 3)
            problem = one_line(those[0].problem)
            if state is FollowerState.RETRYING:
                self._say(f"{names}: {problem}; trying again")
            elif state is FollowerState.REFUSED:
                self._say(f"{names}: {problem}")
            elif state is FollowerState.ENDED:
                self._inform(f"{names}: deleted")
            elif state is FollowerState.OPEN:
                self._inform(f"{names}: open again")


def _anonymous(follower: FollowedMachine) -> str:
    """Return the problem without the machine's name, to fold equal problems of several machines."""
    return follower.problem.replace(f'"{follower.target.name}"', '"..."')
