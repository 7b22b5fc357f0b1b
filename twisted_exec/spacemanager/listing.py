"""
A copy of a provider's list of physical spaces, and what follows from it.

The whole list is requested periodically. While the provider fails, the last list stays in force.

A physical space that is missing from one answer may still exist: the request may have been sent
before its creation. So a physical space is gone after two answers without it, requested at least
:data:`CONFIRM_SECONDS` apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.status import APIError, BadGateway, InternalError, NotFound
from twisted_exec.control.backoff import Backoff
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.queue import WorkQueue
from twisted_exec.spacemanager.descs import LISTED, NOT_YET, ProviderConditions, refused
from twisted_exec.spacemanager.interfaces import ISpaceProvider, Physical, SpaceInfo

PACE_SECONDS = 30.0
SOON_SECONDS = 0.5
"""Minimum interval between lists, whatever the hints."""
AT_ONCE_SECONDS = 0.01
"""Hints within this time cause a single list."""
CONFIRM_SECONDS = 2.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0
"""Limits of the back-off after failed lists."""
MAX_SPACES = 20_000
MAX_NAME = 1024
MAX_HINTS = 200
"""Limit for pending hints about single spaces; for more, a list is cheaper."""

Changed = Callable[[Physical | None], None]


@dataclass
class _Entry:
    info: SpaceInfo
    turn: int


class ProviderCopy:
    """
    Maintains the copy of one provider's list.

    :param changed: called with a changed physical space, or ``None`` for any.
    """

    _log = Logger()

    def __init__(
        self,
        name: str,
        provider: ISpaceProvider,
        clock: IReactorTime,
        changed: Changed,
        before: Mapping[Physical, SpaceInfo] | None = None,
    ) -> None:
        self._name, self._provider, self._clock, self._changed = name, provider, clock, changed
        self.looks: ProviderConditions = NOT_YET
        self.listed = False
        self._left_out = False
        self._got: dict[
            Physical, float
        ] = {}  # times of requests for single spaces since the last list
        self._entries = {physical: _Entry(info, 0) for physical, info in (before or {}).items()}
        self._spaces: dict[Physical, SpaceInfo] = dict(before or {})
        self._turn = 0
        self._since: dict[Physical, int] = {}  # turns of creations
        self._making: dict[Physical, int] = {}
        self._absent: dict[
            Physical, float
        ] = {}  # request times of the first answers without a space
        self._gone: set[Physical] = set()
        self._first_list = self._last_list = 0.0
        self._loop = PokedLoop(
            self._list,
            clock,
            PACE_SECONDS,
            soon_seconds=SOON_SECONDS,
            refused=self._refused,
            backoff=lambda: Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS),
        )
        self._began = -SOON_SECONDS
        self._gets: WorkQueue[Physical] = WorkQueue(self._get, clock)
        self._unwatch: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._unwatch = self._provider.watch(self.look_again)
        self._loop.start()

    def stop(self) -> Deferred[Any]:
        """Stop requests; the copy stays."""
        self._unwatch()
        return DeferredList([self._loop.stop(), self._gets.stop()])

    def spaces(self) -> Mapping[Physical, SpaceInfo]:
        """Return the copy, which is read-only."""
        return self._spaces

    def gone(self, physical: Physical) -> bool:
        if physical in self._making or physical in self._entries:
            return False
        if physical in self._gone:
            return True
        if physical in self._absent or physical in self._since:
            return False
        # Never observed: any two lists suffice.
        return self.listed and self._last_list - self._first_list >= CONFIRM_SECONDS

    def look_again(self, physical: Physical | None = None) -> None:
        """Request one space or the list soon."""
        if physical is not None and self._may_get(physical):
            if self.looks.well:  # otherwise the next successful list has it
                self._gets.add(physical)
            return
        due = self._began + SOON_SECONDS - self._clock.seconds()
        self._loop.poke(max(AT_ONCE_SECONDS, due))

    def _may_get(self, physical: Physical) -> bool:
        since = self._clock.seconds() - self._got.get(physical, -SOON_SECONDS)
        return since >= SOON_SECONDS and len(self._gets) < MAX_HINTS

    def making(self, physical: Physical) -> None:
        """
        Handle the start of a creation; until it ends, answers without the space prove nothing.
        """
        self._making[physical] = self._making.get(physical, 0) + 1

    def made(self, physical: Physical) -> None:
        """Handle the end of a creation: answers to later requests count again."""
        self._making[physical] -= 1
        if not self._making[physical]:
            del self._making[physical]
        self._since[physical] = self._turn
        self._absent.pop(physical, None)
        self._gone.discard(physical)
        self.look_again(physical)

    async def _list(self) -> float | None:
        turn, at = self._next_turn(), self._clock.seconds()
        self._began = at
        self._got.clear()
        listed = await self._provider.list_spaces()
        changed = self._take(self._by_physical(listed), turn, at)
        was_listed, self.listed = self.listed, True
        self._looked(LISTED)
        if not was_listed:
            self._changed(None)
        for physical in changed if was_listed else ():
            self._changed(physical)
        return CONFIRM_SECONDS if self._absent else None

    def _by_physical(self, listed: Sequence[SpaceInfo]) -> Mapping[Physical, SpaceInfo]:
        try:
            if len(listed) > MAX_SPACES:
                raise BadGateway(
                    f"it lists {len(listed)} physical spaces; more than {MAX_SPACES} are not taken"
                )
            return {info.physical: info for info in listed}
        except (TypeError, AttributeError):  # the provider returned something else than a list
            self._log.failure("provider {name}: its list makes no sense", name=self._name)
            why = f'what provider "{self._name}" lists makes no sense; see the log of the manager'
            raise InternalError(why) from None

    def _refused(self, error: APIError, failures: int) -> None:
        self._looked(refused(error))

    def _is_named(self, physical: Physical) -> bool:
        fits = all(len(each) <= MAX_NAME for each in (physical.name, physical.parent))
        if fits and physical.name and str(physical).isprintable():
            return True
        if not self._left_out:
            self._left_out = True
            message = "provider {name}: skipping a physical space with the invalid name {what}"
            self._log.warn(message, name=self._name, what=ascii(physical.name[:80]))
        return False

    def _take(self, listed: Mapping[Physical, SpaceInfo], turn: int, at: float) -> list[Physical]:
        if not self.listed:
            self._first_list = at
        self._last_list = at
        changed = [physical for physical, info in listed.items() if self._put(info, turn, False)]
        expected = {*self._entries, *self._absent, *self._since}
        for physical in expected.difference(listed):
            if self._miss(physical, turn, at):
                changed.append(physical)
        return changed

    async def _get(self, physical: Physical) -> None:
        turn, at = self._next_turn(), self._clock.seconds()
        if not self.looks.well:
            return
        self._got[physical] = at
        try:
            info = await self._provider.get(physical)
        except APIError as error:
            if error.code != NotFound.code:
                self.look_again()
                return
            if physical not in self._absent:
                self.look_again()  # needs confirmation
            changed = self._miss(physical, turn, at)
        else:
            changed = self._put(info, turn, True)
        if changed:
            self._changed(physical)

    def _put(self, info: SpaceInfo, turn: int, whole: bool) -> bool:
        """:param whole: the answer includes access.  :return: whether the space has changed."""
        physical = info.physical
        if not self._is_named(physical):
            return False
        entry = self._entries.get(physical)
        if entry is not None and entry.turn > turn:
            return False
        self._absent.pop(physical, None)
        self._gone.discard(physical)
        self._since.pop(physical, None)
        before = entry.info if entry is not None else None
        if before is not None and not whole and not info.access:
            info = replace(info, access=before.access) if _same(before, info) else info
        self._entries[physical] = _Entry(info, turn)
        self._spaces[physical] = info
        return info != before

    def _miss(self, physical: Physical, turn: int, at: float) -> bool:
        entry = self._entries.get(physical)
        last_turn = entry.turn if entry is not None else 0
        if physical in self._making or turn <= max(last_turn, self._since.get(physical, 0)):
            return False
        if at - self._absent.setdefault(physical, at) < CONFIRM_SECONDS:
            return False
        del self._absent[physical]
        self._since.pop(physical, None)
        was_known = self._entries.pop(physical, None) is not None
        self._spaces.pop(physical, None)
        if self._last_list - self._first_list < CONFIRM_SECONDS:
            self._gone.add(physical)  # later, lists suffice
        else:
            self._gone.clear()
        return was_known or self.listed

    def _next_turn(self) -> int:
        self._turn += 1
        return self._turn

    def _looked(self, looks: ProviderConditions) -> None:
        before, self.looks = self.looks, looks
        if looks == before:
            return
        if looks.well:
            self._log.info("provider {name}: its physical spaces have been listed", name=self._name)
        else:
            self._log.warn(
                "provider {name}: {why}",
                name=self._name,
                why=looks.reachable.message
                if looks.reachable.status == "False"
                else looks.credentials.message,
            )
        self._changed(None)


def _same(before: SpaceInfo, info: SpaceInfo) -> bool:
    return (before.uid, before.version, before.state) == (info.uid, info.version, info.state)
