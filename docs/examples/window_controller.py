"""
The controller of MaintenanceWindows, whose definition is ``window_crd.yaml``.

It is a package of its own: it imports only stable names.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime

from twisted_exec.clients import (
    Conflict,
    LeaderElected,
    NotFound,
    Recorder,
    Reflector,
    Resource,
    WorkQueue,
)
from twisted_exec.interfaces import IKubeClient
from twisted_exec.stores import Key, Object, key_of

NAME, NAMESPACE = "window-controller", "maintenance"
WINDOWS = Resource("maintenance.example.org", "v1alpha1", "maintenancewindows", "MaintenanceWindow")
RECHECK_SECONDS = 60.0
"""The longest pause until a time is compared again: the wall clock may be set meanwhile."""


def plan(window: Object, now: float) -> tuple[str, float | None]:
    """Return the state of a window, and in how many seconds it changes."""
    start, end = (
        datetime.fromisoformat(window["spec"][key]).timestamp() for key in ("startTime", "endTime")
    )
    if now < start:
        return "Pending", start - now
    return ("Active", end - now) if now < end else ("Over", None)


class WindowController(Service):
    """
    Writes ``status.state``, and an Event when a window begins.

    :param now: seconds since the epoch.
    """

    def __init__(self, client: IKubeClient, clock: IReactorTime, now: Callable[[], float]) -> None:
        self._client, self._now = client, now
        self._queue: WorkQueue[Key] = WorkQueue(self._look, clock)
        self._recorder = Recorder(client, clock, about=WINDOWS, component=NAME, now=now)
        self._windows = Reflector(client, WINDOWS, clock, on_change=self._changed)

    def startService(self) -> None:
        """Begin to list and watch."""
        super().startService()
        self._windows.start()

    def stopService(self) -> Deferred[Any]:
        """Fires when no request is under way."""
        super().stopService()
        parts = (self._windows, self._queue, self._recorder)
        return DeferredList([each.stop() for each in parts])

    def _changed(self, before: Object | None, after: Object | None) -> None:
        if after is not None:
            self._queue.add(key_of(after))
        elif before is not None:
            self._queue.forget(key_of(before))

    async def _look(self, key: Key) -> float | None:
        namespace, name = key
        window = self._windows.get(name, namespace)
        if window is None:
            return None
        state, pause = plan(window, self._now())
        if window.get("status", {}).get("state") != state:
            changed = {**window, "status": {"state": state}}
            try:
                await self._client.update(WINDOWS, changed, namespace, subresource="status")
            except (Conflict, NotFound):
                return None  # it has changed meanwhile, and that change queues it again
            if state == "Active":
                machines = ", ".join(window["spec"]["machines"])
                self._recorder.record(window, "Normal", "Began", f"maintenance of {machines}")
        return None if pause is None else min(pause, RECHECK_SECONDS)


def program(client: IKubeClient, clock: Any, now: Callable[[], float]) -> LeaderElected:
    """Return the controller as a program: of several replicas, only the leader works."""
    return LeaderElected(
        client,
        lambda: [WindowController(client, clock, now)],
        clock,
        now,
        namespace=NAMESPACE,
        lease=NAME,
    )
