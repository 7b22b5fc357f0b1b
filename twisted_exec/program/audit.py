"""Audit records of sessions, as lines of JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from twisted.internet.interfaces import IReactorTime

from twisted_exec.program.interfaces import IAuditSink

SUBJECT_KEYS = (
    "session",
    "user",
    "namespace",
    "machine",
    "resource",
    "uid",
    "subresource",
    "pool",
    "caller",
    "agent",
    "address",
    "declared_reason",
)
OPTIONAL_KEYS = ("extra", "recording", "recording_uid")
"""Keys of the subject that a record has only with a value."""
# ``reason`` of a record is why the session ended.
_FACTS = [(key, "reason" if key == "declared_reason" else key) for key in SUBJECT_KEYS]


class Facts(Protocol):
    """The subject of a session."""

    def get(self, fact: str, /) -> Any:
        """
        Return a fact of :data:`SUBJECT_KEYS` or :data:`OPTIONAL_KEYS`; ``reason`` is the declared
        reason.
        """


class Trail:
    """
    Writes the records of one hop.

    :param hop: name of the hop in its records, such as ``apiserver``.
    :param now: the time of day, timezone-aware, for the records only.
    """

    def __init__(
        self,
        sink: IAuditSink,
        hop: str,
        clock: IReactorTime,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._sink, self._hop, self._clock, self._now = sink, hop, clock, now

    def start(self, subject: Facts, resumes: str = "") -> AuditSession:
        """
        Record the start of a session.

        :param subject: kept until the end of the session, so it must not change.
        :param resumes: the id of the session that the user wants to resume.
        """
        self.record("start", subject, {"resumes": resumes} if resumes else {})
        return AuditSession(self, subject)

    def refused(self, subject: Facts, code: int, reason: str) -> None:
        """Record a refused session, as a start and an end."""
        self.start(subject).end(reason, code=code)

    def record(self, event: str, subject: Facts, fields: Mapping[str, Any]) -> None:
        """
        Write a record.

        :param fields: further keys, or other values of the same keys.
        """
        facts = {key: str(subject.get(fact) or "") for key, fact in _FACTS}
        facts |= {key: str(value) for key in OPTIONAL_KEYS if (value := subject.get(key))}
        moment = self._now().astimezone(UTC)
        stamp = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._sink.record({"time": stamp, "hop": self._hop, "event": event, **facts, **fields})


class AuditSession:
    """A started session of a trail, created by :meth:`Trail.start`."""

    def __init__(self, trail: Trail, subject: Facts) -> None:
        self._trail, self._subject = trail, subject
        self._began = trail._clock.seconds()
        self._ended = False

    def end(
        self,
        reason: str,
        *,
        code: int | None = None,
        bytes_to_machine: int = 0,
        bytes_to_user: int = 0,
        right: str = "",
        policy: str = "",
        resumes: str = "",
    ) -> None:
        """
        Record the end of the session; later calls do nothing.

        :param reason: a constant of :mod:`twisted_exec.streaming.interfaces`, or a message.
        :param right: the highest right that the session had at the console, or empty.
        """
        if self._ended:
            return
        self._ended = True
        seconds = max(0.0, self._trail._clock.seconds() - self._began)
        fields: dict[str, Any] = {
            "bytes_to_machine": bytes_to_machine,
            "bytes_to_user": bytes_to_user,
            "seconds": round(seconds, 3),
            "right": right,
            "policy": policy,
            "reason": reason,
        }
        if code is not None:
            fields["code"] = code
        if resumes:
            fields["resumes"] = resumes
        self._trail.record("end", self._subject, fields)
