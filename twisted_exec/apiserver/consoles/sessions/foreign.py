"""
ConsoleSessions that other servers wrote.

Clocks of servers need not agree: each server notes by its own clock when an object last changed,
and deletes other servers' objects that miss their renewals for the time that they state.  The only
server of a store deletes what an earlier process left when it starts, except for the objects of
predecessors that may still have sessions (:mod:`twisted_exec.storage.handover`).  They are servers of
the same store: they renew their objects, learn of deletions, and expire as others do.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from twisted_exec.api.kinds import CONSOLESESSIONS, Object
from twisted_exec.api.status import Conflict, NotFound
from twisted_exec.apiserver.consoles.sessions.record import is_absent
from twisted_exec.storage.history import key_of
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.sessions.session import Session

RENEW_SECONDS = 20.0
"""Interval between two renewals of an object, with few sessions."""
LEASE_RENEWALS = 3
"""Number of missed renewals after which an object is deleted."""

_RESOURCE = CONSOLESESSIONS.resource
_Key = tuple[str, str]


class ForeignObjects:
    """
    The objects of other servers, as one server knows them.

    :param failed: called when an object cannot be deleted.
    """

    def __init__(
        self, storage: IStorage, clock: IReactorTime, failed: Callable[[Failure], None]
    ) -> None:
        self._storage, self._clock, self._failed = storage, clock, failed
        self._expiry: dict[_Key, float] = {}
        self._absent: dict[_Key, str] = {}  # the sessions of absent users
        self._resumed_here: dict[str, Session] = {}  # by the id of the session before

    def note(self, obj: Object, *, expires: bool = False) -> None:
        """
        Take note of a new or renewed object.

        :param expires: it is from before the start of the only server, and to be deleted.
        """
        key = key_of(obj)
        seconds = obj.get("status", {}).get("leaseDurationSeconds")
        if not isinstance(seconds, int) or seconds <= 0:
            seconds = int(LEASE_RENEWALS * RENEW_SECONDS)
        self._expiry[key] = self._clock.seconds() + (0 if expires else seconds)
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

    def clear(self) -> None:
        """Forget all objects."""
        self._expiry.clear()
        self._absent.clear()

    async def delete_expired(self, is_own: Callable[[Object], bool]) -> None:
        """
        Delete the objects that were not renewed.

        :param is_own: returns whether an object is of a session of this server.
        """
        now = self._clock.seconds()
        for key in [key for key, until in self._expiry.items() if until <= now]:
            until = self._expiry.get(key)
            try:
                obj = await self._storage.get(_RESOURCE, *key)
                if not is_own(obj) and self._expiry.get(key) == until:
                    await self._storage.delete(_RESOURCE, obj)
            except (NotFound, Conflict):
                pass
            self._expiry.pop(key, None)

    # Users who were at another server before.

    def resumed(self, session: Session) -> None:
        """Delete the object that another server keeps for the absent user of a session."""
        if not session.resumes:
            return
        self._resumed_here[session.resumes] = session
        keys = (key for key, absent in self._absent.items() if absent == session.resumes)
        if (key := next(keys, None)) is not None:
            Deferred.fromCoroutine(self._remove_absent(key, session)).addErrback(self._failed)

    async def _remove_absent(self, key: _Key, session: Session) -> None:
        try:
            obj = await self._storage.get(_RESOURCE, *key)
            spec, subject = obj["spec"], session.subject
            facts = (spec.get("session"), spec.get("user", ""), spec.get("machineUID", ""))
            if facts == (session.resumes, subject.user, subject.uid) and is_absent(obj):
                await self._storage.delete(_RESOURCE, obj)
        except (NotFound, Conflict):
            pass  # it has changed, or its time is over

    def ended(self, session: Session) -> None:
        """Take note of the end of a session of this server."""
        if self._resumed_here.get(session.resumes) is session:
            del self._resumed_here[session.resumes]
