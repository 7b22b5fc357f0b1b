"""
ConsoleSessions of other servers: those that expire, and those of users who are here now.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.kinds import Object
from twisted_exec.api.status import (
    APIError,
    Conflict,
    NotFound,
)
from twisted_exec.apiserver.consoles.sessions.record import RESOURCE, is_absent
from twisted_exec.control.metrics import QueueMetrics
from twisted_exec.control.queue import WorkQueue
from twisted_exec.storage.history import key_of
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.sessions.registry import Session

RENEW_SECONDS = 20.0
"""Interval between two renewals of an object, with few sessions."""
LEASE_RENEWALS = 3
"""Number of missed renewals after which an object is deleted."""


_Key = tuple[str, str]


class ForeignObjects:
    """
    The objects of other servers, as one server knows them.

    An object that is not renewed in the time that it states is deleted.  Each server notes the last
    changes by its own clock.
    """

    def __init__(
        self,
        storage: IStorage,
        clock: IReactorTime,
        is_own: Callable[[Object], bool],
        refused: Callable[[object, APIError, int], None],
        metrics: QueueMetrics,
    ) -> None:
        self._storage, self._clock, self._is_own = storage, clock, is_own
        self._expiry: dict[_Key, float] = {}
        self._absent: dict[_Key, str] = {}  # the sessions of absent users
        self._resumed_here: dict[str, Session] = {}  # by the id of the previous session
        self._queue: WorkQueue[_Key] = WorkQueue(self._check, clock, refused, metrics=metrics)

    def start(self) -> None:
        """Delete objects from now on."""
        self._queue.start()

    def stop(self) -> Deferred[None]:
        """Forget all objects."""
        self._expiry.clear()
        self._absent.clear()
        return self._queue.stop()

    def note(self, obj: Object, *, expires: bool = False) -> None:
        """
        Take note of a new or renewed object.

        :param expires: it is to be deleted.
        """
        key = key_of(obj)
        seconds = obj.get("status", {}).get("leaseDurationSeconds")
        if not isinstance(seconds, int) or seconds <= 0:
            seconds = int(LEASE_RENEWALS * RENEW_SECONDS)
        seconds = 0 if expires else seconds
        self._expiry[key] = self._clock.seconds() + seconds
        self._queue.add_after(key, seconds)
        if is_absent(obj):
            absent = obj["spec"].get("session", "")
            self._absent[key] = absent
            if (session := self._resumed_here.get(absent)) is not None:
                self.resumed(session)  # its user was faster than the other server
        else:
            self._absent.pop(key, None)

    def forget(self, obj: Object) -> None:
        """Take note of a deletion."""
        self._expiry.pop(key_of(obj), None)
        self._absent.pop(key_of(obj), None)
        self._queue.forget(key_of(obj))

    async def _check(self, key: _Key) -> float | None:
        session = self._resumed_here.get(self._absent.get(key, ""))
        if session is not None:
            await self._remove_absent(key, session)
        until = self._expiry.get(key)
        if until is None:
            return None
        seconds = until - self._clock.seconds()
        if seconds <= 0:
            await self._delete_expired(key, until)
            return None
        return seconds

    async def _delete_expired(self, key: _Key, until: float) -> None:
        try:
            obj = await self._storage.get(RESOURCE, *key)
            if not self._is_own(obj) and self._expiry.get(key) == until:
                await self._storage.delete(RESOURCE, obj)
        except (NotFound, Conflict):
            pass
        if self._expiry.get(key) == until:
            del self._expiry[key]

    # Users who were at another server before.

    def resumed(self, session: Session) -> None:
        """Delete the object that another server keeps for the absent user of a session."""
        if not session.resumes:
            return
        self._resumed_here[session.resumes] = session
        keys = (key for key, absent in self._absent.items() if absent == session.resumes)
        if (key := next(keys, None)) is not None:
            self._queue.hurry(key)

    async def _remove_absent(self, key: _Key, session: Session) -> None:
        try:
            obj = await self._storage.get(RESOURCE, *key)
            spec, subject = obj["spec"], session.subject
            facts = (spec.get("session"), spec.get("user", ""), spec.get("machineUID", ""))
            if facts == (session.resumes, subject.user, subject.uid) and is_absent(obj):
                await self._storage.delete(RESOURCE, obj)
        except (NotFound, Conflict):
            pass  # it has changed, or its time is over

    def ended(self, session: Session) -> None:
        """Take note of the end of a session."""
        if self._resumed_here.get(session.resumes) is session:
            del self._resumed_here[session.resumes]
