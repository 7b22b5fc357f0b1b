"""
ConsolePolicies at the opening of a session: their decision, the approval and the recording that the
session has, and the conditions for its reviews.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEREQUESTS, Kind, Object, machine_kind
from twisted_exec.api.obstacles import Obstacle, because, obstacles_of
from twisted_exec.api.status import APIError, Forbidden
from twisted_exec.apiserver.consoles.policies import Admitted, ConsolePolicies
from twisted_exec.apiserver.consoles.policy_evaluation import needs_request
from twisted_exec.apiserver.consoles.recordings import (
    OpenRecordings,
    SessionRecording,
    session_demand,
)
from twisted_exec.apiserver.consoles.refusals import ConsoleRefusals
from twisted_exec.apiserver.consoles.reservations import Reservation
from twisted_exec.apiserver.interfaces import Applicant, RecordingDemand
from twisted_exec.apiserver.serving.target import RequestTarget, attributes_of
from twisted_exec.auth.console_rights import ConsoleAccess
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.interfaces import User
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.session_terms import FULL, RECORDED_HEADER, Right, Terms


@dataclass(frozen=True)
class SessionConditions:
    """
    The policies that apply to one session:
    :class:`~twisted_exec.auth.console_rights.SessionRequirements`.

    :param machine: as it was when the session was opened.
    :param recording: of the session; empty if it began without, ``None`` if it shows nothing to
        record.
    """

    policies: ConsolePolicies
    applicant: Applicant
    machine: Object
    recording: str | None = None

    def is_strict(self, user: User) -> bool:
        strict: bool = self.policies.is_strict(self.machine, user)
        return strict

    def terms(self, user: User, right: Right) -> Terms:
        applicant = replace(self.applicant, user=user)
        terms: Terms = self.policies.review(applicant, self.machine["metadata"]["uid"], right)
        if self.recording is None:
            return terms
        demand = self.policies.recording_demand(self.machine, user, self.applicant.wanted)
        if demand is not None and demand.is_required and not demand.is_met_by(self.recording):
            namespace = self.machine["metadata"]["namespace"]
            why = (
                f"{demand.rule(namespace)} (input: {demand.input}), and this session began without the "
                "policy's recording: a new session has it"
            )
            raise because(Obstacle.NOT_RECORDED, Forbidden(why))
        return replace(terms, recording=self.recording)


@dataclass(frozen=True)
class AuthorizedOpening:
    """
    A session or a screen for which its user has the rights.

    :param is_stream: a session; otherwise a screen.
    """

    access: ConsoleAccess
    right: Right
    dialect: Dialect
    machine: Object
    is_stream: bool

    @property
    def kind(self) -> Kind:
        return machine_kind(self.dialect)


@dataclass(frozen=True)
class AdmittedSession:
    """
    A session or a text that may be opened.

    :param conditions: of the open session, for its reviews; ``None`` for a text that has none.
    :param reservation: the approval that the session will use up.
    :param recorded_input: the input that the answer calls recorded; empty if it mentions no recording.
    """

    terms: Terms = FULL
    conditions: SessionConditions | None = None
    reservation: Reservation | None = None
    recorded_input: str = ""

    def answer_headers(self) -> list[tuple[bytes, bytes]]:
        if not self.recorded_input:
            return []
        return [(RECORDED_HEADER.encode("ascii"), self.recorded_input.encode("ascii"))]


@dataclass(frozen=True, kw_only=True)
class PolicyAdmission:
    """
    Admits sessions and screens by the ConsolePolicies.

    :param resumable: returns the subject of an open session of this server that its user can
        resume, by its id, its user and its machine's UID.
    :param now: seconds since the epoch.
    """

    gate: Gate
    policies: ConsolePolicies
    recordings: OpenRecordings
    refusals: ConsoleRefusals
    resumable: Callable[[str, str, str], Subject | None]
    now: Callable[[], float]

    async def admit(self, context: RequestContext, opening: AuthorizedOpening) -> AdmittedSession:
        """
        Admit a session or a screen, and keep its conditions for reviews.

        :raises Forbidden: the policies refuse it.
        """
        policies, access, machine = self.policies, opening.access, opening.machine
        applicant = self._applicant(context, access.wanted)
        applied = SessionConditions(policies, applicant, machine, "" if opening.is_stream else None)
        permitted = await self._permitted(context, access, applied, opening.right)
        if opening.is_stream or not policies.uses_approvals(machine, context.user, access.wanted):
            admitted = await self._admit_by_policies(context, opening, applied, permitted)
        else:
            admitted = self._admit_beside(context.subject, applied, permitted)
        self.gate.allow_console(context, access.under(admitted.conditions))
        return replace(admitted, terms=access.terms(admitted.terms))

    async def use(self, kind: Kind, admitted: AdmittedSession, subject: Subject) -> None:
        """
        Use up the approval of a session, if it has one.

        :param kind: of the machine.
        :raises Forbidden: the approval does not count any more.
        """
        if admitted.reservation is None or admitted.conditions is None:
            return
        try:
            await admitted.reservation.use()
        except Forbidden as refusal:
            machine = admitted.conditions.machine
            self.refusals.by_policy(kind, machine, subject, refusal.message)
            raise

    def _applicant(self, context: RequestContext, wanted: Right) -> Applicant:
        subject = context.subject
        resumes = context.resumption.session if context.resumption is not None else ""
        before = self.resumable(resumes, subject.user, subject.uid)
        return Applicant(
            context.user,
            subject.session,
            self.now(),
            # A session without a reason might go on with an approval for another task.
            reason=subject.reason or (before.reason if before is not None else ""),
            caller=context.caller.name if context.caller is not None else "",
            resumes=resumes,
            wanted=wanted,
        )

    async def _permitted(
        self,
        context: RequestContext,
        access: ConsoleAccess,
        conditions: SessionConditions,
        right: Right,
    ) -> Right:
        """Return the user's right, which is lower where policies make the verbs strict."""
        if not conditions.is_strict(context.user):
            return right
        strict = await self.gate.authorize_console(context, access.under(conditions))
        return min(right, strict)

    async def _admit_by_policies(
        self,
        context: RequestContext,
        opening: AuthorizedOpening,
        applied: SessionConditions,
        right: Right,
    ) -> AdmittedSession:
        """Admit a session, reserve the approval that it uses, and join its recording."""
        decision = await self._decision(context, opening, applied, right)
        context.learn(reason=decision.reason or context.subject.reason)
        if decision.reservation is not None:
            context.call_opened(decision.reservation.opened)
            context.call_unopened(decision.reservation.not_opened)
        # A session without a reason has got that of its approval: others do not count later.
        applicant = replace(applied.applicant, reason=context.subject.reason)
        if not opening.is_stream:
            conditions = replace(applied, applicant=applicant)
            return AdmittedSession(decision.terms, conditions, decision.reservation)
        recording = await self._recorded(context, opening)
        return AdmittedSession(
            replace(decision.terms, recording=recording.term),
            replace(applied, applicant=applicant, recording=recording.term),
            decision.reservation,
            recording.recorded_input,
        )

    async def _decision(
        self,
        context: RequestContext,
        opening: AuthorizedOpening,
        applied: SessionConditions,
        right: Right,
    ) -> Admitted:
        """
        Return the decision of the policies.

        :raises Forbidden: they refuse the session, which an Event of the machine tells.
        """
        machine = applied.machine
        try:
            decision: Admitted = await self.policies.open(applied.applicant, machine, right)
        except Forbidden as refusal:
            self.refusals.by_policy(opening.kind, machine, context.subject, refusal.message)
            if needs_request(refusal):
                await self._check_may_request(context, refusal)
            raise
        return decision

    def _admit_beside(
        self, subject: Subject, applied: SessionConditions, right: Right
    ) -> AdmittedSession:
        """
        Admit a screen beside its user's session, with the approval that this session uses.

        With an approval of its own, a screen would take it from the session.
        """
        session = self._approved_session(applied.applicant, applied.machine)
        conditions = replace(applied, applicant=replace(applied.applicant, session=session))
        terms = conditions.terms(applied.applicant.user, right)
        if not session:
            raise Forbidden(
                f'an approval of the console of "{subject.machine}" is for one session, which shows the screen: '
                f"open it with kubectl console {subject.machine} -n {subject.namespace} --read-only"
            )
        return AdmittedSession(terms, conditions)

    async def _check_may_request(self, context: RequestContext, refusal: Forbidden) -> None:
        """
        Check the right to ask for the approval that a session lacks.

        :raises Forbidden: the refusal, and the missing right, so that the user reads of both at once.
        """
        target = RequestTarget(CONSOLEREQUESTS, context.subject.namespace)
        try:
            await self.gate.authorize(attributes_of(context.user, "create", target))
        except Forbidden as missing:
            message = f"{refusal.message}, but you may not: {missing.message}"
            causes = [*refusal.causes, *missing.causes]
            raise Forbidden(message, details={**refusal.details, "causes": causes}) from None
        except APIError:  # there is no decision now, and the refusal holds without it
            return

    def _approved_session(self, applicant: Applicant, machine: Object) -> str:
        user, uid = applicant.user.name, machine["metadata"]["uid"]

        def is_open(session: str) -> bool:
            return self.resumable(session, user, uid) is not None

        session: str = self.policies.approved_session(applicant, machine, is_open)
        return session

    async def _recorded(
        self, context: RequestContext, opening: AuthorizedOpening
    ) -> SessionRecording:
        machine, wanted = opening.machine, opening.access.wanted
        policies_demand = self.policies.recording_demand(machine, context.user, wanted)
        demand = await session_demand(context, self.gate, machine, policies_demand)
        if demand is None:
            return SessionRecording()
        refused = partial(self._unrecorded, context, opening, demand)
        try:
            recording: SessionRecording = await self.recordings.for_session(
                context, opening.dialect, machine, demand
            )
        except APIError as refusal:
            refused(because(Obstacle.CANNOT_BE_RECORDED, refusal))
            raise
        if recording.term:
            context.call_unopened(refused)
        return recording

    def _unrecorded(
        self,
        context: RequestContext,
        opening: AuthorizedOpening,
        demand: RecordingDemand,
        problem: BaseException,
    ) -> None:
        if not isinstance(problem, APIError):
            return
        if Obstacle.CANNOT_BE_RECORDED not in obstacles_of(problem):
            return
        machine = opening.machine
        problem.message = f"{demand.rule(machine['metadata']['namespace'])}: {problem.message}"
        if demand.policies:
            self.refusals.by_policy(opening.kind, machine, context.subject, problem.message)
