"""
One session of this server, and its ConsoleSession object.
"""

from __future__ import annotations

import math
import uuid

from twisted_exec.api.kinds import CONSOLESESSIONS, Object
from twisted_exec.api.status import (
    one_line,
)
from twisted_exec.api.times import timestamp
from twisted_exec.streaming.sessions.registry import Session
from twisted_exec.wire.resume import UNCONFIRMED_SECONDS

RESOURCE = CONSOLESESSIONS.resource
_MOST_AGENT = 128
"""Bytes of a client's ``User-Agent`` that are shown."""
_Counts = tuple[int, int]


class SessionRecord:
    """
    One session, and its object.

    :ivar gone: UID of the last object that was deleted by others.
    :ivar away_since: when the connection was lost; ``None`` while the user is connected.
    :ivar away_until: when the user can no longer come back, in seconds of the reactor's clock.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.namespace = session.subject.namespace
        self.name = ""
        self.stored: Object | None = None
        self.is_live = True
        self.gone = ""
        self.renewed_at = 0.0
        self.away_since: float | None = None
        self.away_until = math.inf
        self._written: tuple[object, ...] | None = None  # in the last write, also if that failed
        self._before: _Counts = (0, 0)  # bytes of former connections
        self._former = ""  # the id of the former connection

    def __repr__(self) -> str:
        return f"session {self.id}"

    @property
    def id(self) -> str:
        return self.session.id

    def describes(self, obj: Object) -> bool:
        """Return whether an object is the one of this session."""
        return obj["spec"].get("session") in (self.id, self._former or self.id)

    def can_go_on(self, session: Session) -> bool:
        """Return whether another session resumes this session."""
        subject, own = session.subject, self.session.subject
        is_same = (subject.user, subject.uid, subject.namespace) == (
            own.user,
            own.uid,
            own.namespace,
        )
        return is_same and self.is_live and session.resumes == self.id

    def go_on(self, session: Session) -> None:
        """The user has resumed the session over another connection."""
        if self.away_since is None:
            self._before = self._counts()
        self.away_since, self.away_until = None, math.inf
        self._former, self.session = self.id, session

    @property
    def wait_seconds(self) -> int:
        """How long the runtime keeps the session after a loss of the connection."""
        seconds = self.session.resumable_seconds
        to_machine, _ = self._counts()
        # A session that resumes another one was confirmed before, perhaps at another server.
        is_confirmed = to_machine > 0 or bool(self.session.resumes)
        return seconds if is_confirmed else min(seconds, UNCONFIRMED_SECONDS)

    def lost(self, now: float, until: float) -> None:
        """The connection is lost, and the user may come back."""
        self._before = self._counts()
        self.away_since, self.away_until = now, until

    def _counts(self) -> _Counts:
        to_machine, to_user = (0, 0) if self.away_since is not None else self.session.counts()
        return self._before[0] + to_machine, self._before[1] + to_user

    def is_stale(self, role: str | None) -> bool:
        """Return whether the last write lacks a change."""
        return self._written != self._facts(role)

    def _facts(self, role: str | None) -> tuple[object, ...]:
        """Return the values whose change is written at once; the next renewal writes others."""
        return role, self.id, self.away_since

    def new_object(self, replica: str, status: Object, now: float) -> Object:
        """Return the object as the verbs would create it."""
        return {
            "apiVersion": RESOURCE.api_version,
            "kind": RESOURCE.kind,
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
        """Return the status for a write, and take note of it."""
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
        session, subject = self.session, self.session.subject
        options = session.request.options
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
            "via": session.request.via,
            "address": subject.address,
            "protocol": session.protocol,
            "agent": _printable(subject.agent),
            "recording": subject.recording,
            "replica": replica,
        }
        return {key: value for key, value in spec.items() if value}


def _printable(agent: str) -> str:
    """Return a client's ``User-Agent``, whose bytes are Latin-1 here, as far as it can be shown."""
    return one_line(agent[:_MOST_AGENT].encode("latin-1").decode("utf-8", "replace"))


def is_absent(obj: Object) -> bool:
    """Return whether the user of an object's session may still come back."""
    status = obj.get("status", {})
    return "awaySince" in status and "endedBy" not in status
