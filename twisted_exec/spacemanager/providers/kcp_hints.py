"""
Hints of what happens to workspaces: a watch for each parent whose children are known of.

Nobody's list is taken from here: what is missed, because a watch cannot be had just now, is found by asking.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, DeferredList

from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.providers.hints import Changed, Hints, bare
from twisted_exec.spacemanager.providers.kcp_workspaces import workspaces

TICK_SECONDS = 60.0
"""How often is looked whether somebody's credentials are due."""


class WorkspaceHints:
    """
    Who is to be told, and what they hear from.

    :param due: physical spaces whose credentials are to be renewed.
    :param clock: provides ``IReactorTime``.
    """

    def __init__(self, client: IKubeClient, clock: Any, due: Callable[[], list[Physical]]) -> None:
        self._client, self._clock, self._due = client, clock, due
        self._told: list[Changed] = []
        self._parents: dict[str, tuple[str, Hints | None]] = {}
        self._tick: Any = None

    def tell(self, physical: Physical | None) -> None:
        """Something may have changed."""
        for changed in list(self._told):
            changed(physical)

    def add(self, changed: Changed) -> Callable[[], None]:
        """Have ``changed`` called; :return: ends that."""
        # Equal functions may be added by several: each has an entry of its own.
        entry: Changed = lambda physical: changed(physical)  # noqa: E731
        self._told.append(entry)
        self._begin()

        def stop() -> None:
            if entry in self._told:
                self._told.remove(entry)
                if not self._told:
                    self.close()

        return stop

    def follow(self, parent: str, shown: str) -> None:
        """
        The children of one workspace as well.

        :param shown: what :class:`Physical` calls that parent.
        """
        if parent not in self._parents:
            self._parents[parent] = (shown, None)
            self._begin()

    def forget(self, parent: str) -> None:
        """Those no more."""
        _shown, hints = self._parents.pop(parent, ("", None))
        if hints is not None:
            hints.end()

    def close(self) -> Deferred[None]:
        """End all watches; what is followed is known still, for whoever asks next."""
        self._told.clear()
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        ended = []
        for parent, (shown, hints) in list(self._parents.items()):
            if hints is not None:
                self._parents[parent] = (shown, None)
                ended.append(hints.end())
        return DeferredList(ended).addCallback(lambda _done: None)

    def _begin(self) -> None:
        if not self._told:
            return
        if self._tick is None:
            self._tick = self._clock.callLater(TICK_SECONDS, self._ticked)
        for parent, (shown, hints) in list(self._parents.items()):
            if hints is None:
                self._parents[parent] = (shown, self._followed(parent, shown))

    def _ticked(self) -> None:
        self._tick = self._clock.callLater(TICK_SECONDS, self._ticked)
        for physical in self._due():
            self.tell(physical)

    def _followed(self, parent: str, shown: str) -> Hints:
        def read(before: Object | None, after: Object | None) -> list[Physical]:
            found = after or before
            assert found is not None
            return [Physical(found["metadata"]["name"], shown)]

        hints = Hints(self._client, self._clock, self.tell)
        hints.follow(workspaces(parent), read, bare, announce=True)
        return hints
