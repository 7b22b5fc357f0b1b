"""Registry of all providers: a view of each SpaceProviderDesc, with its namespace and status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.spaces import MANAGER, PROVIDERS
from twisted_exec.api.status import APIError, Conflict, NotFound
from twisted_exec.api.times import timestamp
from twisted_exec.control.listeners import Listeners
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.queue import WorkQueue
from twisted_exec.control.runs import StoppingParts
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.recorder import Recorder
from twisted_exec.spacemanager.descs import events_for, status_of
from twisted_exec.spacemanager.interfaces import (
    IProviders,
    IProviderView,
    ISpaces,
    Physical,
    ProviderCondition,
)
from twisted_exec.spacemanager.namespaces import ProviderNamespaces
from twisted_exec.spacemanager.views import ProviderEnvironment, ProviderView

LOOK_SECONDS = 30.0
"""Interval for checking every provider, because unreadable objects cause no events."""
SETTLE_SECONDS = 1.0
"""Delay before the number of Spaces is updated, because many change at once."""


@implementer(IProviders)
class ProviderRegistry(Service):
    """All providers, and the controller of SpaceProviderDescs."""

    _log = Logger()
    spaces: ISpaces

    def __init__(
        self,
        environment: ProviderEnvironment,
        host: str = "",
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        context = environment.around
        self._environment, self._client, self._clock = environment, context.hub, context.reactor
        self._now = context.now
        self.descs = Reflector(
            self._client, PROVIDERS, self._clock, trim=_trimmed, on_change=self._desc_changed
        )
        self.namespaces = ProviderNamespaces(self._client, self._clock, self._look)
        self.recorder = Recorder(
            self._client,
            self._clock,
            about=PROVIDERS,
            component=MANAGER,
            host=host,
            now=context.now,
        )
        self._views: dict[str, ProviderView] = {}
        self._queue: WorkQueue[str] = WorkQueue(
            self._keep, self._clock, self._tell_failure, metrics=metrics.of("space-providers")
        )
        self._followers = Listeners("the providers of spaces")
        self._stopping = StoppingParts()
        self._unfollow: Callable[[], None] = lambda: None

    @property
    def synced(self) -> bool:
        return self.descs.synced

    def when_synced(self) -> Deferred[None]:
        return self.descs.when_synced()

    def get(self, name: str) -> IProviderView | None:
        return self._views.get(name)

    def all(self) -> Sequence[IProviderView]:
        return list(self._views.values())

    def follow(self, changed: Callable[[str, Physical | None], None]) -> Callable[[], None]:
        return self._followers.add(changed)

    def startService(self) -> None:
        super().startService()
        self._unfollow = self.spaces.follow(self._space_changed)
        self.namespaces.start()
        self.descs.start()
        for reflector in (self.descs, self.namespaces.reflector):
            reflector.when_synced().addCallback(lambda _: self._look_at_all())

    def stopService(self) -> Deferred[None]:
        """Release all providers."""
        super().stopService()
        self._unfollow()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        ending: list[Deferred[Any]] = [
            self._queue.stop(),
            self.descs.stop(),
            self.namespaces.stop(),
            self.recorder.stop(),
        ]
        for each in ending:
            await each
        for view in self._views.values():
            self._stopping.add(Deferred.fromCoroutine(view.stop()))
        await self._stopping.over()
        self._views.clear()

    def _look_at_all(self) -> None:
        names = {each["metadata"]["name"] for each in self.descs}
        for name in sorted({*names, *self._views, *self.namespaces.made_for()}):
            self._look(name)

    def _look(self, name: str, after_seconds: float = 0.0) -> None:
        if self.running and self.descs.synced and self.namespaces.synced:
            self._queue.add_after(name, after_seconds)

    def _desc_changed(self, before: Object | None, after: Object | None) -> None:
        name = (after or before or {})["metadata"]["name"]
        if after is not None and name not in self._views:
            # At once: without a view, others conclude that there is no such provider.
            self._views[name] = self._take(after)
            self._followers.tell(name, None)
        if before is None or after is None or _desired(before) != _desired(after):
            self._look(name)

    def _space_changed(self, before: Object | None, after: Object | None) -> None:
        if before is not None and after is not None:
            return
        name = str(((after or before or {}).get("spec") or {}).get("SpaceProviderDescName") or "")
        if name:
            self._look(name, SETTLE_SECONDS)

    async def _keep(self, name: str) -> float | None:
        desc, view = self.descs.get(name), self._views.get(name)
        if view is not None and (desc is None or desc["metadata"]["uid"] != view.uid):
            await self._let_go(view)
            view = None
        if desc is None:
            if self.spaces.synced and not self.spaces.of_provider(name):
                await self.namespaces.clear(name)
            return LOOK_SECONDS if self.namespaces.is_made_for(name) else None
        if view is None:
            view = self._views[name] = self._take(desc)
            self._followers.tell(name, None)
        # First: discovered spaces become objects in this namespace at once.
        trouble = await self.namespaces.ensure(name)
        view.become(desc)
        await view.renew()
        await self._write(view, view.desc, trouble or view.synced)
        return LOOK_SECONDS

    def _take(self, desc: Object) -> ProviderView:
        name = desc["metadata"]["name"]

        def changed(physical: Physical | None) -> None:
            self._followers.tell(name, physical)
            if physical is None:
                self._look(name)

        return ProviderView(desc, self._environment, changed, lambda: self._look(name))

    async def _let_go(self, view: ProviderView) -> None:
        del self._views[view.name]
        self._log.info("provider {name}: closed", name=view.name)
        self._followers.tell(view.name, None)
        stopping: Deferred[None] = Deferred.fromCoroutine(view.stop())
        # Again: only now is everything stopped that ran with the provider.
        stopping.addCallback(lambda _: self._followers.tell(view.name, None))
        self._stopping.add(stopping)
        over: Deferred[None] = Deferred()  # the worker may be cancelled, the closing may not
        stopping.addBoth(lambda _: over.callback(None))
        await over

    async def _write(self, view: ProviderView, desc: Object, synced: ProviderCondition) -> None:
        count = len(self.spaces.of_provider(view.name))
        moment = timestamp(self._now())
        status = status_of(desc, view.looks, synced, view.listed, count, moment)
        before = desc.get("status") or {}
        if all(before.get(key) == value for key, value in status.items()):
            return
        # The patch replaces the list of conditions: the version protects concurrently added ones.
        version = desc["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "status": status}
        try:
            await self._client.patch(PROVIDERS, view.name, patch, subresource="status")
        except APIError as error:
            if error.code in (Conflict.code, NotFound.code):
                return  # the watch brings the new version, and with it a retry
            raise
        for type, reason, message in events_for(
            before.get("conditions") or [], status["conditions"]
        ):
            self.recorder.record(desc, type, reason, message)

    def _tell_failure(self, name: str, error: APIError, failures: int) -> None:
        if failures == 1:
            self._log.warn("provider {name}: {why}", name=name, why=error.message)
            if (desc := self.descs.get(name)) is not None:
                self.recorder.record(desc, "Warning", "ReconcileFailed", error.message)


def _desired(desc: Object) -> object:
    """
    Return what a worker reacts to. The status is not part of it: reactions to another writer's
    values there would never end.
    """
    return desc["metadata"].get("uid"), desc["metadata"].get("deletionTimestamp"), desc.get("spec")


def _trimmed(desc: Object) -> Object:
    desc["metadata"].pop("managedFields", None)
    return desc
