"""
Interfaces of the API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted.application.service import IService
from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.kinds.consolepolicies import RECORDED_INPUT
from twisted_exec.auth.interfaces import User
from twisted_exec.wire.session_terms import Right, parse_recording

CREATE = "create"
UPDATE = "update"
DELETE = "delete"


@dataclass(frozen=True)
class Change:
    """
    A write before it is stored.

    :param operation: ``create``, ``update`` or ``delete``.
    :param new: the object to be stored; ``None`` for a delete.
    :param old: the stored object; ``None`` for a create.
    :param subresource: that is written; empty for the object itself.
    :param options: the client's options, such as ``fieldManager``.
    """

    user: User
    operation: str
    kind: Kind
    new: Object | None
    old: Object | None
    subresource: str = ""
    dry_run: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def obj(self) -> Object:
        """The new object, or for a delete the old one."""
        obj = self.new if self.new is not None else self.old
        assert obj is not None
        return obj


@dataclass(frozen=True)
class Opening:
    """
    A stream before it is opened.

    :param options: the query, as an object of the kind in ``kind.connects``.
    :param kind: kind of the object that it belongs to.
    """

    user: User
    kind: Kind
    namespace: str
    name: str
    subresource: str
    options: Object


class IAdmission(Interface):
    """Decides about single writes, by their objects, which authorization does not see."""

    def admit(change: Change) -> Deferred[None]:
        """
        Decide about a write.

        :return: fires with ``None``, or fails with an :class:`~twisted_exec.api.status.APIError` to
            refuse the change.
        """


class IMutatingAdmission(IAdmission):
    """Admission that may also change the object, before validation."""

    def mutate(change: Change) -> Deferred[Object]:
        """
        Change the object of a write.

        :param change: a create or an update; ``new`` has the schema's types and defaults, but is
            not validated.  Do not modify it.
        :return: fires with the object to continue with, or fails as :meth:`admit`.
        """


class IOpeningAdmission(Interface):
    """Decides about streams, after authorization and before any connection."""

    def admit_opening(opening: Opening) -> Deferred[None]:
        """
        Decide about a stream.

        :return: fires with ``None``, or fails with an :class:`~twisted_exec.api.status.APIError` to
            refuse the stream.
        """


@dataclass(frozen=True)
class Applicant:
    """
    The user of a session, for ConsolePolicies.

    :param caller: the name of the user who impersonates ``user``; empty if there is none.
    :param reason: that the user declares, see :mod:`twisted_exec.api.declared_reasons`.
    :param since: when the session began, in seconds since the epoch.
    :param resumes: the id of the session that this session resumes.
    :param wanted: the right for which the user asks, which may have a higher one.
    """

    user: User
    session: str
    since: float
    reason: str = ""
    caller: str = ""
    resumes: str = ""
    wanted: Right = Right.DRIVE


@dataclass(frozen=True)
class Strictness:
    """
    Whether rights at consoles are strict (``--console-verbs=strict``), for a SelfSubjectRulesReview.

    :param strict: true if they are, or may be, for some of the machines asked about.
    :param problem: why the list of the user's rules is not exact; empty if it is.
    """

    strict: bool = False
    problem: str = ""


class IAPIServer(IService):
    """A running API server."""

    address = Attribute(
        "Listening address (:class:`~twisted.internet.interfaces.IAddress`); ``None`` before."
    )
    url = Attribute("``https://HOST:PORT``, for a kubeconfig; empty until it listens.")

    def when_ready() -> Deferred[None]:
        """Fires when the server accepts requests; fails if it cannot start."""


@dataclass(frozen=True)
class RecordingDemand:
    """
    The recording of a session that ConsolePolicies, its user, or both demand.

    :param input: an element of :data:`RECORDED_INPUT`.
    :param is_required: there is no session, and no input, without it.
    :param retention_days: ``None`` for the default of a recording.
    """

    input: str
    is_required: bool
    retention_days: int | None = None
    policies: tuple[str, ...] = ()

    def stricter(self, other: RecordingDemand) -> RecordingDemand:
        """Return a demand that satisfies both."""
        days = [each for each in (self.retention_days, other.retention_days) if each is not None]
        return RecordingDemand(
            max(self.input, other.input, key=RECORDED_INPUT.index),
            self.is_required or other.is_required,
            max(days, default=None),
            tuple(sorted({*self.policies, *other.policies})),
        )

    def is_met_by(self, recording: str) -> bool:
        """
        Return whether a recording has as much input as this demand.

        :param recording: see :attr:`~twisted_exec.wire.session_terms.Terms.recording`.
        """
        if not recording:
            return False
        _, recorded = parse_recording(recording)
        return RECORDED_INPUT.index(recorded) >= RECORDED_INPUT.index(self.input)

    def rule(self, namespace: str) -> str:
        """Return the start of a message, which says why a recording is required."""
        if not self.policies:
            return "you asked for a recording of this console"
        names = ", ".join(f"{namespace}/{policy}" for policy in self.policies)
        if len(self.policies) == 1:
            return f"ConsolePolicy {names} requires a recording of this console"
        return f"ConsolePolicies {names} require a recording of this console"
