"""
Hints of changed workspaces: one watch for each known parent.

Lists never rely on these watches, so a failing watch only delays the discovery of a change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.program.tasks import StoppingParts
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.providers.common.hints import Changed, Hints, Watchers, bare
from twisted_exec.spacemanager.providers.kcp.workspaces import workspaces

TICK_SECONDS = 60.0
"""Interval for checking which credentials are due."""


class WorkspaceHints:
    """
    The watchers of a provider, and the watches that notify them.

    :param due: returns the physical spaces whose credentials are due.
    :param clock: provides ``IReactorTime``.
    """

    def __init__(self, client: IKubeClient, clock: Any, due: Callable[[], list[Physical]]) -> None:
        self._client, self._clock, self._due = client, clock, due
        self._watchers = Watchers("workspaces", self._begin, self._end)
        self._parents: dict[str, tuple[str, Hints | None]] = {}
        self._tick: IDelayedCall | None = None
        self._stopping = StoppingParts()

    def add(self, changed: Changed) -> Callable[[], None]:
        """Call ``changed`` with each hint.  :return: a function that ends that."""
        return self._watchers.add(changed)

    def follow(self, parent: str, name: str) -> None:
        """
        Watch the children of a workspace.

        :param name: the parent as :class:`Physical` has it.
        """
        if parent not in self._parents:
            self._parents[parent] = (name, None)
            if self._watchers:
                self._begin()

    def forget(self, parent: str) -> None:
        """Stop watching the children of a workspace."""
        _name, hints = self._parents.pop(parent, ("", None))
        if hints is not None:
            self._stopping.add(hints.end())

    def close(self) -> Deferred[Any]:
        """End all watches; the next watcher resumes them."""
        return self._watchers.close()

    def _begin(self) -> None:
        if self._tick is None:
            self._tick = self._clock.callLater(TICK_SECONDS, self._ticked)
        for parent, (name, hints) in list(self._parents.items()):
            if hints is None:
                self._parents[parent] = (name, self._followed(parent, name))

    def _end(self) -> Deferred[Any]:
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        for parent, (name, hints) in list(self._parents.items()):
            if hints is not None:
                self._parents[parent] = (name, None)
                self._stopping.add(hints.end())
        return self._stopping.over()

    def _ticked(self) -> None:
        self._tick = self._clock.callLater(TICK_SECONDS, self._ticked)
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
