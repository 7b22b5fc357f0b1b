"""Names of kind clusters, and their lists, which are polled: kind has no watches."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.status import BadGateway, Invalid, one_line
from twisted_exec.control.backoff import Backoff
from twisted_exec.control.loop import PokedLoop
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.providers.base import Changed, Watchers

LONGEST_NAME = 50
"""kind warns of longer names, because host names contain them."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


POLL_SECONDS = 2.0


class NamePoller:
    """
    Polls the names while there are watchers.

    :param unsettled: returns clusters that may change although their names stay.
    """

    def __init__(
        self,
        clock: IReactorTime,
        names: Callable[[], Awaitable[Sequence[str]]],
        unsettled: Callable[[], Sequence[Physical]],
        seconds: float = POLL_SECONDS,
    ) -> None:
        self._names, self._unsettled = names, unsettled
        # Poll at the same pace after a failure: the lists report it to their callers.
        self._loop = PokedLoop(
            self._poll, clock, seconds, backoff=lambda: Backoff(seconds, seconds)
        )
        self._watchers = Watchers("clusters of kind", self._start, self._loop.stop)
        self._seen: set[str] | None = None

    def add(self, changed: Changed) -> Callable[[], None]:
        return self._watchers.add(changed)

    def tell(self, physical: Physical | None) -> None:
        self._watchers.tell(physical)

    def close(self) -> Deferred[Any]:
        """Remove all watchers; fires when polling has ended."""
        return self._watchers.close()

    def _start(self) -> None:
        if not self._loop.running:
            self._seen = None
            self._loop.start()

    async def _poll(self) -> None:
        now = set(await self._names())
        before, self._seen = self._seen, now
        if before is None:
            self.tell(None)  # one hint for everything before
            return
        for name in sorted(before ^ now):
            self.tell(Physical(name))
        for physical in self._unsettled():
            if physical.name in before & now:
                self.tell(physical)


def check_name(physical: Physical, *, new: bool = False) -> None:
    """
    Check the name of a cluster.

    :raises Invalid: it is not valid.
    """
    causes = []
    if not is_name(physical.name) or (new and len(physical.name) > LONGEST_NAME):
        problem = (
            f"a cluster's name has up to {LONGEST_NAME} lower case letters, digits, '.' and '-', and begins and"
            " ends with a letter or a digit"
        )
        causes.append({"field": "metadata.name", "message": problem})
    if physical.parent:
        problem = "providers of type kind have no places: leave the Space's path out"
        causes.append({"field": "metadata.annotations", "message": problem})
    if causes:
        raise Invalid("clusters", one_line(str(physical))[:80], causes)


def is_name(name: str) -> bool:
    """Return whether a name is valid for us. Kind itself also accepts ``..`` and ``-v``."""
    return len(name) <= 200 and _NAME.fullmatch(name) is not None


def listed_names(out: bytes) -> list[str]:
    """
    Return the clusters in the output of ``kind get clusters`` whose names are valid for us.

    :raises BadGateway: the output is something else.
    """
    lines = out.decode("utf-8", "replace").splitlines()
    if not all(re.fullmatch(r"[a-z0-9.-]{1,253}", line) for line in lines):
        raise BadGateway(
            "kind get clusters printed what are no names of clusters; see which program is called kind"
        )
    return sorted({line for line in lines if is_name(line)})
