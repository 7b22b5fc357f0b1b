"""
The base of stores that keep all objects in memory, and read from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from twisted.application.service import Service
from twisted.internet import defer
from twisted.internet.defer import Deferred

from twisted_exec.api.encoded import json_of
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Forbidden
from twisted_exec.storage.history import History
from twisted_exec.storage.interfaces import (
    ADDED,
    MEMORY,
    Event,
    IWatch,
    Listing,
    Object,
)
from twisted_exec.storage.quota import NO_LIMITS, Quota, QuotaLimits

Result = TypeVar("Result")


class HistoryStorage(Service):
    """
    Base of stores that keep a :class:`~twisted_exec.storage.history.History` and read from it.

    The subclass has ``create``, ``update``, ``delete`` and ``probe``. It sets :attr:`history`, and
    begins creations and updates with :meth:`within_quota`.

    :ivar history: the objects and changes that readers and watchers see.
    """

    location = MEMORY
    history: History

    def __init__(self, limits: QuotaLimits = NO_LIMITS) -> None:
        self._quota = Quota(limits)

    @property
    def exclusive(self) -> bool:
        """See :attr:`IStorage.exclusive`; if it is true, the history is always current."""
        return True

    def within_quota(
        self, resource: Resource, obj: Object, change: str, write: Callable[[], Deferred[Object]]
    ) -> Deferred[Object]:
        """
        Begin a creation or an update if the quotas allow it.

        :return: what ``write`` returns, or fails with :class:`~twisted_exec.api.status.Forbidden`.
        """
        if not self._quota.is_limited:
            return write()
        stored = self.history.find(resource, obj)
        is_new = change == ADDED
        growth = len(json_of(obj)) - (0 if stored is None else len(json_of(stored)))
        # Without an object to update, or with one where one is created, the write fails anyhow.
        if growth <= 0 or is_new != (stored is None):
            return write()
        try:
            end = self._quota.begin(self.history.usage, resource, obj, growth, is_new=is_new)
        except Forbidden as refusal:
            return defer.fail(refusal)

        def ended(outcome: Any) -> Any:
            end()
            return outcome

        return write().addBoth(ended)

    def when_ready(self) -> Deferred[None]:
        return defer.succeed(None)

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Object]:
        return self._read(
            lambda: self.history.get(resource, namespace, name), at_once=stale or self.exclusive
        )

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        is_here = version is not None and version <= self.history.version
        return self._read(
            lambda: self.history.list(resource, namespace, version),
            at_once=stale or is_here or self.exclusive,
        )

    def _read(self, read: Callable[[], Result], *, at_once: bool) -> Deferred[Result]:
        if at_once:
            return defer.execute(read)
        return self.current().addCallback(lambda _: read())

    def watch(
        self,
        resource: Resource,
        since: int | None,
        on_event: Callable[[Event], None],
        namespace: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> IWatch:
        return self.history.watch(resource, since, on_event, namespace, on_lost)

    def version(self) -> int:
        return self.history.version

    def current(self) -> Deferred[int]:
        """See :meth:`IStorage.current`: the history of an exclusive store is current."""
        return defer.succeed(self.history.version)
