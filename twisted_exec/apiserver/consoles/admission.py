"""
The admission of consoles, logs and screens of machines at an API server.

:class:`MachineAdmission` has all checks of an opening, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from zope.interface import implementer

from twisted_exec.api.conditions import is_powered_off, unplaced
from twisted_exec.api.declared_reasons import reason_headers
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import Kind, Object, machine_kind
from twisted_exec.api.obstacles import Obstacle, because, doctor_advice
from twisted_exec.api.status import BadRequest, Conflict, Forbidden, NotFound
from twisted_exec.apiserver.consoles.policy_admission import (
    AdmittedSession,
    AuthorizedOpening,
    PolicyAdmission,
)
from twisted_exec.apiserver.consoles.poollets import Backend, Poollets, PoolletUpstream, read
from twisted_exec.apiserver.consoles.refusals import ConsoleRefusals
from twisted_exec.apiserver.interfaces import IOpeningAdmission, Opening
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
from twisted_exec.streaming.interfaces import UID_HEADER, Ending
from twisted_exec.streaming.location import IStreamAdmission, Location, Renewal
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.session_terms import Right


@dataclass(frozen=True, kw_only=True)
class AdmissionParts:
    """
    The parts of a server that decide about consoles and texts of machines.

    :param policies: apply to consoles and screens, not to logs.
    :param plugins: are asked about consoles.
    """

    gate: Gate
    storage: IStorage
    backend: Backend
    reactor: object
    policies: PolicyAdmission
    plugins: Sequence[IOpeningAdmission]
    limits: RequestLimits
    strict_verbs: bool
    refusals: ConsoleRefusals


class MachineUpstream(PoolletUpstream):
    """The poollet of the pool that a machine is in, for one session or text."""

    def __init__(
        self,
        admission: MachineAdmission,
        context: RequestContext,
        pool: str,
        admitted: AdmittedSession,
    ) -> None:
        super().__init__(admission.what, pool)
        self._admission, self._target, self._subject = admission, context.target, context.subject
        self._admitted: AdmittedSession | None = admitted

    async def confirm(self, ending: Ending | None) -> None:
        admitted, self._admitted = self._admitted, None  # an open session may last for days
        if admitted is None or admitted.reservation is None:
            return
        if ending is not None:
            raise Forbidden(ending.message or ending.reason)
        await self._admission.use(admitted, self._subject)

    async def renew(self, location: Location, reason: Renewal) -> Location:
        if reason is not Renewal.REJOIN:
            return location
        present = await self._admission.locate_again(self._target, self._subject.uid)
        # The stream continues as it was admitted; only its poollet may be elsewhere.
        return replace(location, endpoints=present.endpoints, host=present.host)


@implementer(IStreamAdmission)
class MachineAdmission:
    """
    Admits users to one subresource of the machines of one dialect, or of their Pods.

    :ivar poollets: of the pools of that dialect.
    """

    def __init__(self, dialect: Dialect, parts: AdmissionParts, what: Subresource = EXEC) -> None:
        self._dialect, self._kind, self.what = dialect, machine_kind(dialect), what
        self._parts = parts
        self.poollets = Poollets(dialect, parts.storage, parts.backend, parts.reactor)

    @as_deferred
    async def admit(self, context: RequestContext) -> Location:
        with self._parts.limits.short(context.user):
            try:
                return await self._admit(context, context.target)
            except TakeoverRefused as refusal:
                await self._parts.refusals.takeover(self._kind, context.subject, refusal.message)
                raise

    async def _admit(self, context: RequestContext, target: RequestTarget) -> Location:
        """
        Check the user, the request and the machine, and return the machine's poollet.

        The order decides which refusal a user gets whom several concern. A new check of the request
        goes before the machine is read, and one of the machine after it.
        """
        context.learn_reason()
        access, right = await self._authorize(context, target)
        headers = forwarded_headers(context.user)
        options = self._check_options(context)
        await self._ask_plugins(context, target)
        continues = context.continues_session  # reads, and may refuse, the header of a session
        machine = await self._read_machine(target, stale=continues)
        if not continues:  # an open session may wait for its machine
            await self._check_power(context, target, machine)
        self._check_identity(context, target, machine)
        pool = self._dialect.pool_name(machine)
        context.learn(uid=machine["metadata"]["uid"], pool=pool)
        location = await self._locate(target, options, pool, stale=continues)
        # Last, because a session may reserve an approval.
        admitted = AdmittedSession()
        if access is not None:
            opening = AuthorizedOpening(access, right, self._dialect, machine, self.what.is_stream)
            admitted = await self._parts.policies.admit(context, opening)
        return replace(
            location,
            upstream=MachineUpstream(self, context, pool, admitted),
            headers=[*headers, *_subject_headers(context.subject)],
            answer_headers=[*options.answer_headers, *admitted.answer_headers()],
            terms=admitted.terms,
            resumes=self.what.is_stream,
        )

    async def _locate(
        self, target: RequestTarget, options: SubresourceOptions, pool: str, *, stale: bool
    ) -> Location:
        namespace, name = target.namespace, target.name
        path = self._dialect.poollet_path(namespace, name, self.what.name)
        return await self.poollets.of(self.what, options, namespace, name, pool, path, stale=stale)

    async def locate_again(self, target: RequestTarget, uid: str) -> Location:
        """
        Return the present location of the machine of an open session.

        :raises NotFound: another machine has its name.
        """
        machine = await self._read_machine(target, stale=True)
        if machine["metadata"]["uid"] != uid:
            resource = target.kind.resource
            raise NotFound(resource.plural, target.name, resource.group)
        pool = self._dialect.pool_name(machine)
        return await self._locate(target, SubresourceOptions(), pool, stale=True)

    async def use(self, admitted: AdmittedSession, subject: Subject) -> None:
        """
        Use up the approval of an admitted session.

        :raises Forbidden: the approval does not count any more.
        """
        await self._parts.policies.use(self._kind, admitted, subject)

    async def _authorize(
        self, context: RequestContext, target: RequestTarget
    ) -> tuple[ConsoleAccess | None, Right]:
        what, permission = self.what, attributes_of(context.user, self.what.verb, target)
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

    def _check_options(self, context: RequestContext) -> SubresourceOptions:
        if not self.what.is_stream:
            return self.what.options(context.request, context.target.name)
        if query_of(context).texts("dryRun"):
            raise BadRequest("dryRun is not supported for exec")
        return SubresourceOptions()  # the proxy checks the upgrade

    async def _ask_plugins(self, context: RequestContext, target: RequestTarget) -> None:
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
        for plugin in self._parts.plugins:
            await plugin.admit_opening(opening)

    async def _read_machine(self, target: RequestTarget, *, stale: bool) -> Object:
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
        if not self.what.is_stream or not is_powered_off(machine):
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


def _subject_headers(subject: Subject) -> list[tuple[bytes, bytes]]:
    uid = (UID_HEADER, quote(subject.uid, safe="").encode("ascii"))
    return [uid, *reason_headers(subject.reason)]


def connect_options(kind: Kind, subresource: str, query: Query) -> Object:
    """The query of a stream as an object, such as ``MachineExecOptions``."""
    connect = kind.connects[subresource]
    options: Object = {"kind": connect.options, "apiVersion": kind.resource.api_version}
    for key, schema in connect.schema["properties"].items():
        if query.has(key):
            options[key] = query.flag(key) if schema.get("type") == "boolean" else query.text(key)
    return options
