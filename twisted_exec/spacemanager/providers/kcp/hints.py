"""Hints of changed Workspaces, from watches of their parents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.runs import StoppingParts
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.providers.base import Changed, Hints, Watchers, bare
from twisted_exec.spacemanager.providers.kcp.workspaces import workspaces

TICK_SECONDS = 60.0
"""Interval for checking which credentials are due."""


class WorkspaceHints:
    """The watchers of a provider, and the watches that notify them."""

    def __init__(
        self, client: IKubeClient, clock: IReactorTime, due: Callable[[], list[Physical]]
    ) -> None:
        self._client, self._clock, self._due = client, clock, due
        self._loop = PokedLoop(self._look, clock, TICK_SECONDS)
        self._watchers = Watchers("workspaces", self._begin, self._end)
        self._parents: dict[str, tuple[str, Hints | None]] = {}
        self._stopping = StoppingParts()

    def add(self, changed: Changed) -> Callable[[], None]:
        return self._watchers.add(changed)

    def follow(self, parent: str, name: str) -> None:
        if parent not in self._parents:
            self._parents[parent] = (name, None)
            if self._watchers:
                self._begin()

    def forget(self, parent: str) -> None:
        _name, hints = self._parents.pop(parent, ("", None))
        if hints is not None:
            self._stopping.add(hints.end())

    def close(self) -> Deferred[Any]:
        """End all watches."""
        return self._watchers.close()

    def _begin(self) -> None:
        self._loop.start(TICK_SECONDS)
        for parent, (name, hints) in list(self._parents.items()):
            if hints is None:
                self._parents[parent] = (name, self._followed(parent, name))

    def _end(self) -> Deferred[Any]:
        self._stopping.add(self._loop.stop())
        for parent, (name, hints) in list(self._parents.items()):
            if hints is not None:
                self._parents[parent] = (name, None)
                self._stopping.add(hints.end())
        return self._stopping.over()

    async def _look(self) -> None:
        for physical in self._due():
            self._watchers.tell(physical)

    def _followed(self, parent: str, name: str) -> Hints:
        def read(before: Object | None, after: Object | None) -> list[Physical]:
            workspace = after or before
            assert workspace is not None
            return [Physical(workspace["metadata"]["name"], name)]

        hints = Hints(self._client, self._clock, self._watchers.tell)
        hints.follow(workspaces(parent), read, bare, announce=True)
        return hints
