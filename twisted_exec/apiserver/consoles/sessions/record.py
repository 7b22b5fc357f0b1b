"""
One console session of this server, and the content of its object.
"""

from __future__ import annotations

import uuid

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from twisted_exec.api.kinds import CONSOLESESSIONS, Object
from twisted_exec.api.times import timestamp
from twisted_exec.streaming.sessions.session import Session

_RESOURCE = CONSOLESESSIONS.resource
_Counts = tuple[int, int]


class Record:
    """
    One session, and its object.

    A session that is resumed over another connection keeps its record.

    :ivar session: at present, or before its connection was lost.
    :ivar stored: the object in the store, as far as known.
    :ivar live: the object should exist.
    :ivar delay: the time until its object is created, or deleted; ``None`` if it waits for neither.
    :ivar name: name of the object, once it has one.
    :ivar gone: UID of the last object that was deleted by others.
    :ivar working: fires at the end of the current write.
    :ivar renewed_at: of the last write.
    :ivar away_since: when the connection was lost; ``None`` while the user is connected.
    :ivar wait: the time until the user may no longer come back.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.namespace = session.subject.namespace
        self.name = ""
        self.stored: Object | None = None
        self.live = True
        self.delay: IDelayedCall | None = None
        self.gone = ""
        self.working: Deferred[None] | None = None
        self.renewed_at = 0.0
        self.away_since: float | None = None
        self.wait: IDelayedCall | None = None
        self._written: tuple[object, ...] | None = None  # in the last write, also if that failed
        self._before: _Counts = (0, 0)  # bytes of former connections
        self._former = ""  # the id of the former connection

    @property
    def id(self) -> str:
        """The id of the session."""
        return self.session.subject.session

    def describes(self, obj: Object) -> bool:
        """Return whether an object is the one of this session."""
        return obj["spec"].get("session") in (self.id, self._former or self.id)

    def can_go_on(self, session: Session) -> bool:
        """Return whether a session resumes this one."""
        subject, own = session.subject, self.session.subject
        is_same = (subject.user, subject.uid, subject.namespace) == (
            own.user,
            own.uid,
            own.namespace,
        )
        return is_same and self.live and session.resumes == self.id

    def go_on(self, session: Session) -> None:
        """The user has resumed the session over another connection."""
        self.stop_waiting_for_user()
        if self.away_since is None:
            self._count()
        self.away_since, self._former, self.session = None, self.id, session

    def lost(self, now: float) -> None:
        """The connection is lost, and the user may come back."""
        self._count()
        self.away_since = now

    def stop_waiting_for_user(self) -> None:
        """Cancel :attr:`wait`."""
        wait, self.wait = self.wait, None
        if wait is not None and wait.active():
            wait.cancel()

    def stop_waiting(self) -> None:
        """Cancel :attr:`delay`."""
        delay, self.delay = self.delay, None
        if delay is not None:
            delay.cancel()

    def _count(self) -> None:
        self._before = self._counts()

    def _counts(self) -> _Counts:
        to_machine, to_user = (0, 0) if self.away_since is not None else self.session.counts()
        return self._before[0] + to_machine, self._before[1] + to_user

    def is_stale(self, role: str | None) -> bool:
        """Return whether the last write lacks a change that does not wait for the next renewal."""
        return self._written != self._facts(role)

    def _facts(self, role: str | None) -> tuple[object, ...]:
        return role, self.id, self.away_since

    def new_object(self, replica: str, status: Object, now: float) -> Object:
        """
        Return the object as the verbs would create it, without their checks: many sessions are
        short, and only this server writes them.
        """
        return {
            "apiVersion": _RESOURCE.api_version,
            "kind": _RESOURCE.kind,
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "uid": str(uuid.uuid4()),
                "creationTimestamp": timestamp(now),
            },
            "spec": self._spec(replica),
            "status": status,
        }

    def renewed_object(self, stored: Object, replica: str, status: Object) -> Object:
        """Return the object for a write."""
        if stored["spec"].get("session") == self.id:
            return {**stored, "status": status}
        return {**stored, "spec": self._spec(replica), "status": status}

    def status(self, role: str | None, now: float, lease_seconds: float) -> Object:
        """Return the status for a write, which is taken note of."""
        self._written = self._facts(role)
        to_machine, to_user = self._counts()
        away = {} if self.away_since is None else {"awaySince": timestamp(self.away_since)}
        return {
            **({"role": role} if role else {}),
            "resumable": bool(self.session.resumable_seconds),
            **away,
            "bytesToMachine": to_machine,
            "bytesToUser": to_user,
            "renewTime": timestamp(now),
            "leaseDurationSeconds": int(lease_seconds),
        }

    def _spec(self, replica: str) -> Object:
        subject, client = self.session.subject, self.session.client_info
        options = client.options
        mode = "Drive" if options.takes_input else "Watch"
        spec = {
            "session": subject.session,
            "user": subject.user,
            "caller": subject.caller,
            "machine": subject.machine,
            "machineResource": subject.resource,
            "machineUID": subject.uid,
            "pool": subject.pool,
            "mode": "TakeOver" if options.takes_input and options.force else mode,
            "via": client.via,
            "address": client.address,
            "protocol": client.protocol,
            "agent": client.agent,
            "recording": subject.recording,
            "replica": replica,
        }
        return {key: value for key, value in spec.items() if value}


def is_absent(obj: Object) -> bool:
    """Return whether an object is that of a session whose user may still come back."""
    status = obj.get("status", {})
    return "awaySince" in status and "endedBy" not in status
