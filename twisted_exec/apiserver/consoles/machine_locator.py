"""
The locator of consoles, logs and screens of machines at an API server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import quote

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.conditions import is_powered_off, unplaced
from twisted_exec.api.declared_reasons import reason_headers
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEREQUESTS, Kind, Object, machine_kind
from twisted_exec.api.obstacles import Obstacle, because, doctor_advice, obstacles_of
from twisted_exec.api.status import (
    APIError,
    BadRequest,
    Conflict,
    Forbidden,
    NotFound,
)
from twisted_exec.apiserver.consoles.policies import Admitted, ConsolePolicies
from twisted_exec.apiserver.consoles.policy_evaluation import needs_request
from twisted_exec.apiserver.consoles.poollets import Backend, Poollets, read
from twisted_exec.apiserver.consoles.recordings import (
    OpenRecordings,
    SessionRecording,
    session_demand,
)
from twisted_exec.apiserver.consoles.refusals import ConsoleRefusals
from twisted_exec.apiserver.consoles.reservations import Reservation
from twisted_exec.apiserver.consoles.session_conditions import SessionConditions
from twisted_exec.apiserver.interfaces import Applicant, IOpeningAdmission, Opening, RecordingDemand
from twisted_exec.apiserver.serving.query import Query
from twisted_exec.apiserver.serving.request_limits import RequestLimits
from twisted_exec.apiserver.serving.requests import query_of
from twisted_exec.apiserver.serving.target import RequestTarget, attributes_of
from twisted_exec.auth.console_rights import ConsoleAccess, TakeoverRefused
from twisted_exec.auth.default_roles import smallest_role
from twisted_exec.auth.forwarded_user import forwarded_headers
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.rules import CONSOLE
from twisted_exec.auth.subresources import EXEC, Subresource, SubresourceOptions
from twisted_exec.program.tasks import as_deferred
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.interfaces import UID_HEADER
from twisted_exec.streaming.location import IStreamLocator, Location, Renewal
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.session_terms import FULL, RECORDED_HEADER, Right, Terms


@dataclass(frozen=True, kw_only=True)
class LocatorParts:
    """
    The parts of a server that decide about consoles and texts of machines.

    :param policies: apply to consoles and screens, not to logs.
    :param resumable: returns the subject of an open session of this server that its user can
        resume, by its id, its user and its machine's UID.
    :param now: seconds since the epoch.
    """

    gate: Gate
    storage: IStorage
    backend: Backend
    reactor: object
    policies: ConsolePolicies
    admissions: Sequence[IOpeningAdmission]
    limits: RequestLimits
    strict_verbs: bool
    now: Callable[[], float]
    refusals: ConsoleRefusals
    recordings: OpenRecordings
    resumable: Callable[[str, str, str], Subject | None]


@dataclass(frozen=True)
class _AdmittedSession:
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


@implementer(IStreamLocator)
class MachineLocator:
    """Locates the poollet for one subresource of the machines of one dialect, or of their Pods."""

    def __init__(self, dialect: Dialect, parts: LocatorParts, what: Subresource = EXEC) -> None:
        self._dialect, self._kind, self._what = dialect, machine_kind(dialect), what
        self._parts = parts
        self.poollets = Poollets(dialect, parts.storage, parts.backend, parts.reactor)

    @property
    def workload(self) -> str:
        """The resource of the machines, in the form ``PLURAL.GROUP``."""
        return self._dialect.workload.qualified

    @as_deferred
    async def locate(self, context: RequestContext) -> Location:
        with self._parts.limits.short(context.user):
            try:
                return await self._locate_target(context, context.target)
            except TakeoverRefused as refusal:
                await self._parts.refusals.takeover(self._kind, context.subject, refusal.message)
                raise

    async def _locate_target(self, context: RequestContext, target: RequestTarget) -> Location:
        context.learn_reason()
        access, right = await self._authorize(context, target)
        headers = forwarded_headers(context.user)
        options = self._options(context)
        await self._run_admissions(context, target)
        continues = context.continues_session  # reads, and may refuse, the header of a session
        machine = await self._machine(target, stale=continues)
        if not continues and self._what.is_stream:  # an open session may wait for its machine
            await self._check_power(context, target, machine)
        self._check_identity(context, target, machine)
        pool = self._dialect.pool_name(machine)
        context.learn(uid=machine["metadata"]["uid"], pool=pool)
        path = self._dialect.poollet_path(target.namespace, target.name, self._what.name)
        location = await self.poollets.of(
            self._what,
            options,
            target.namespace,
            target.name,
            pool,
            path,
            stale=continues,
        )
        # Last, because a session may reserve an approval.
        admitted = _AdmittedSession()
        if access is not None:
            admitted = await self._apply_policies(context, access, right, machine)
        uid = (UID_HEADER, quote(context.subject.uid, safe="").encode("ascii"))
        answer_headers = [*location.answer_headers]
        if admitted.recorded_input:
            answer_headers.append(
                (RECORDED_HEADER.encode("ascii"), admitted.recorded_input.encode("ascii"))
            )
        confirm = (
            self._use(admitted.reservation, machine, context.subject)
            if admitted.reservation is not None
            else None
        )
        # The poollets know where the machine's pool is, and not the user and the terms.
        return replace(
            location,
            headers=(*headers, uid, *reason_headers(context.subject.reason)),
            answer_headers=answer_headers,
            terms=admitted.terms,
            confirm=confirm,
            resumes=self._what.is_stream,
            renew=self._renewal(target, context.subject.uid, location)
            if self._what.is_stream
            else None,
        )

    def _use(
        self, reservation: Reservation, machine: Object, subject: Subject
    ) -> Callable[[], Deferred[None]]:
        async def use() -> None:
            try:
                await reservation.use()
            except Forbidden as refusal:
                self._parts.refusals.by_policy(self._kind, machine, subject, refusal.message)
                raise

        return lambda: Deferred.fromCoroutine(use())

    def _renewal(
        self, target: RequestTarget, uid: str, location: Location
    ) -> Callable[[Renewal], Deferred[Location | None]]:
        path = location.path.decode("ascii")

        async def renew(reason: Renewal) -> Location | None:
            if reason is not Renewal.REJOIN:
                return None if location.renew is None else await location.renew(reason)
            machine = await self._machine(target, stale=True)
            if machine["metadata"]["uid"] != uid:
                resource = target.kind.resource
                raise NotFound(resource.plural, target.name, resource.group)
            pool_name = self._dialect.pool_name(machine)
            pool = await self.poollets.pool(target.namespace, target.name, pool_name, stale=True)
            present = self.poollets.at(pool, path)
            # The stream goes on as it was located; only its poollet may be elsewhere.
            return replace(location, endpoints=present.endpoints, host=present.host)

        return lambda reason: Deferred.fromCoroutine(renew(reason))

    async def _authorize(
        self, context: RequestContext, target: RequestTarget
    ) -> tuple[ConsoleAccess | None, Right]:
        what, permission = self._what, attributes_of(context.user, self._what.verb, target)
        permission = replace(permission, subresource=what.permission)
        if what.access is None:
            await self._parts.gate.authorize_session(context, permission)
            return None, Right.OBSERVE
        if target.subresource == CONSOLE or not what.is_stream:
            context.only_observe()
        access = what.access.of(permission, context.options, strict=self._parts.strict_verbs)
        right = await self._parts.gate.authorize_console(context, access)
        # A policy must not use up an approval to type for a screen.
        return access, right if what.is_stream else Right.OBSERVE

    async def _apply_policies(
        self, context: RequestContext, access: ConsoleAccess, right: Right, machine: Object
    ) -> _AdmittedSession:
        """Admit a session or a screen by the ConsolePolicies, and keep its conditions for reviews."""
        policies, is_stream = self._parts.policies, self._what.is_stream
        applicant = self._applicant(context, access.wanted)
        applied = SessionConditions(policies, applicant, machine, "" if is_stream else None)
        permitted = await self._permitted(context, access, applied, right)
        if is_stream or not policies.uses_approvals(machine, context.user, access.wanted):
            admitted = await self._admit_by_policies(context, applied, permitted)
        else:
            admitted = self._admit_beside(context.subject, applied, permitted)
        self._parts.gate.allow_console(context, access.under(admitted.conditions))
        return replace(admitted, terms=access.terms(admitted.terms))

    def _applicant(self, context: RequestContext, wanted: Right) -> Applicant:
        subject = context.subject
        resumes = context.resumption.session if context.resumption is not None else ""
        before = self._parts.resumable(resumes, subject.user, subject.uid)
        return Applicant(
            context.user,
            subject.session,
            self._parts.now(),
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
        strict = await self._parts.gate.authorize_console(context, access.under(conditions))
        return min(right, strict)

    async def _admit_by_policies(
        self, context: RequestContext, applied: SessionConditions, right: Right
    ) -> _AdmittedSession:
        """Admit a session, reserve the approval that it uses, and join its recording."""
        decision = await self._decision(context, applied, right)
        context.learn(reason=decision.reason or context.subject.reason)
        if decision.reservation is not None:
            context.call_opened(decision.reservation.opened)
            context.call_unopened(decision.reservation.not_opened)
        # A session without a reason has got that of its approval: others do not count later.
        applicant = replace(applied.applicant, reason=context.subject.reason)
        if not self._what.is_stream:
            conditions = replace(applied, applicant=applicant)
            return _AdmittedSession(decision.terms, conditions, decision.reservation)
        recording = await self._recorded(context, applied)
        return _AdmittedSession(
            replace(decision.terms, recording=recording.term),
            replace(applied, applicant=applicant, recording=recording.term),
            decision.reservation,
            recording.recorded_input,
        )

    async def _decision(
        self, context: RequestContext, applied: SessionConditions, right: Right
    ) -> Admitted:
        """
        Return the decision of the policies.

        :raises Forbidden: they refuse the session, which an Event of the machine tells.
        """
        machine = applied.machine
        try:
            decision: Admitted = await self._parts.policies.open(applied.applicant, machine, right)
        except Forbidden as refusal:
            self._parts.refusals.by_policy(self._kind, machine, context.subject, refusal.message)
            if needs_request(refusal):
                await self._check_may_request(context, refusal)
            raise
        return decision

    def _admit_beside(
        self, subject: Subject, applied: SessionConditions, right: Right
    ) -> _AdmittedSession:
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
        return _AdmittedSession(terms, conditions)

    async def _check_may_request(self, context: RequestContext, refusal: Forbidden) -> None:
        """
        Check the right to ask for the approval that a session lacks.

        :raises Forbidden: the refusal, and the missing right, so that the user reads of both at once.
        """
        target = RequestTarget(CONSOLEREQUESTS, context.subject.namespace)
        try:
            await self._parts.gate.authorize(attributes_of(context.user, "create", target))
        except Forbidden as missing:
            message = f"{refusal.message}, but you may not: {missing.message}"
            causes = [*refusal.causes, *missing.causes]
            raise Forbidden(message, details={**refusal.details, "causes": causes}) from None
        except APIError:  # there is no decision now, and the refusal holds without it
            return

    def _approved_session(self, applicant: Applicant, machine: Object) -> str:
        user, uid = applicant.user.name, machine["metadata"]["uid"]

        def is_open(session: str) -> bool:
            return self._parts.resumable(session, user, uid) is not None

        session: str = self._parts.policies.approved_session(applicant, machine, is_open)
        return session

    async def _recorded(
        self, context: RequestContext, applied: SessionConditions
    ) -> SessionRecording:
        machine, wanted = applied.machine, applied.applicant.wanted
        policies_demand = self._parts.policies.recording_demand(machine, context.user, wanted)
        demand = await session_demand(context, self._parts.gate, machine, policies_demand)
        if demand is None:
            return SessionRecording()
        refused = partial(self._unrecorded, context, machine, demand)
        try:
            recording: SessionRecording = await self._parts.recordings.for_session(
                context, self._dialect, machine, demand
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
        machine: Object,
        demand: RecordingDemand,
        problem: BaseException,
    ) -> None:
        if not isinstance(problem, APIError):
            return
        if Obstacle.CANNOT_BE_RECORDED not in obstacles_of(problem):
            return
        problem.message = f"{demand.rule(machine['metadata']['namespace'])}: {problem.message}"
        if demand.policies:
            self._parts.refusals.by_policy(self._kind, machine, context.subject, problem.message)

    def _options(self, context: RequestContext) -> SubresourceOptions:
        if not self._what.is_stream:
            return self._what.options(context.request, context.target.name)
        if query_of(context).texts("dryRun"):
            raise BadRequest("dryRun is not supported for exec")
        return SubresourceOptions()  # the proxy checks the upgrade

    async def _run_admissions(self, context: RequestContext, target: RequestTarget) -> None:
        if target.subresource not in self._kind.connects:
            return  # a text, not a stream
        opening = Opening(
            context.user,
            target.kind,
            target.namespace,
            target.name,
            target.subresource,
            connect_options(target.kind, target.subresource, query_of(context)),
        )
        for admission in self._parts.admissions:
            await admission.admit_opening(opening)

    async def _machine(self, target: RequestTarget, *, stale: bool) -> Object:
        machine = await read(
            self._parts.storage, self._dialect.workload, target.namespace, target.name, stale=stale
        )
        named = f'{self._dialect.noun} "{target.name}"'
        if "deletionTimestamp" in machine["metadata"]:
            logs = f"twisted-exec logs {target.name} -n {target.namespace}"
            refusal = Conflict(f"{named} is being deleted; {logs} has what it printed")
            raise because(Obstacle.BEING_DELETED, refusal)
        if not self._dialect.pool_name(machine):
            why = unplaced(machine, self._dialect.noun, self._dialect.pool_noun)
            advice = doctor_advice(target.name, target.namespace)
            raise because(Obstacle.NO_POOL, BadRequest(f"{why}; {advice}"))
        return machine

    def _check_identity(
        self, context: RequestContext, target: RequestTarget, machine: Object
    ) -> None:
        """
        Refuse to resume a session whose machine is another one than that which has its name now.
        """
        resume = context.resumption.resume if context.resumption is not None else None
        if resume is None or resume.machine in ("", machine["metadata"]["uid"]):
            return
        named, resource = f'{self._dialect.noun} "{target.name}"', self._dialect.workload
        message = f"{named} was deleted; another {self._dialect.noun} has this name now"
        gone = NotFound(resource.plural, target.name, resource.group, message)
        raise because(Obstacle.RECREATED, gone)

    async def _check_power(
        self, context: RequestContext, target: RequestTarget, machine: Object
    ) -> None:
        if not is_powered_off(machine):
            return
        noun, remedy = self._dialect.noun, "; power it on"
        itself = replace(target, kind=self._kind, subresource="")
        switching = attributes_of(context.user, "patch", itself)
        if not (await self._parts.gate.decide(switching)).allowed:
            role = smallest_role(switching.verb, switching.group, switching.resource)
            remedy = f", and you may not switch it; a user with the role {role} powers it on"
        command = f"kubectl patch {noun} {target.name} -n {target.namespace}"
        patch = """--type=merge -p '{"spec":{"power":"On"}}'"""
        off = Conflict(f'{noun} "{target.name}" is powered off{remedy}: {command} {patch}')
        raise because(Obstacle.POWERED_OFF, off)


def connect_options(kind: Kind, subresource: str, query: Query) -> Object:
    """The query of a stream as an object, such as ``MachineExecOptions``."""
    connect = kind.connects[subresource]
    options: Object = {"kind": connect.options, "apiVersion": kind.resource.api_version}
    for key, schema in connect.schema["properties"].items():
        if query.has(key):
            options[key] = query.flag(key) if schema.get("type") == "boolean" else query.text(key)
    return options
