"""
The admission of consoles, logs and screens at a poollet.

A machine is identified by its UID, because another machine may get its name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from urllib.parse import quote

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.api.conditions import is_powered_off
from twisted_exec.api.declared_reasons import reason_headers
from twisted_exec.api.obstacles import Obstacle, because, obstacles_of
from twisted_exec.api.status import (
    APIError,
    Conflict,
    Forbidden,
    GatewayTimeout,
    NotFound,
    ServiceUnavailable,
    one_line,
)
from twisted_exec.auth.console_rights import ConsoleAccess, TakeoverRefused
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.subresources import EXEC, Subresource
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.informers import IStore
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.poollet.access import PoolAccess
from twisted_exec.poollet.exec_urls import Dialler, StreamDestination
from twisted_exec.poollet.policies import Denials, PoolPolicies
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.interfaces import UID_HEADER, USER_HEADER
from twisted_exec.streaming.location import IStreamAdmission, Location, Renewal, Upstream
from twisted_exec.streaming.subject import Subject
from twisted_exec.tls.deadlines import Late, Progress, limited
from twisted_exec.wire.channel import TERMINAL
from twisted_exec.wire.session_terms import FULL, Terms

RUNTIME_SECONDS = 4.0
"""
Timeout for all calls to the runtime for one console, counted from the runtime's last answer to such
calls.  An API server waits 5 s for us, and should receive our error instead of its own timeout.
"""

CONTINUE_SECONDS = 60.0
"""
Like :data:`RUNTIME_SECONDS`, for a session that is open already. An API server waits longer at each
attempt, and leaves first: while this host is busy, a shorter limit would fail all attempts.
"""

UrlOf = Callable[[IMachineRuntime, str, Subject], Awaitable[str]]
"""Asks a runtime for the URL of a subresource of a machine with this id."""


async def exec_url(runtime: IMachineRuntime, machine_id: str, subject: Subject) -> str:
    """Return the URL of a console, as :data:`UrlOf`."""
    answer = await runtime.exec(
        pb.ExecRequest(machine_id=machine_id),
        user=subject.user,
        machine_uid=subject.uid,
        session=subject.session,
    )
    return str(answer.url)


@dataclass(frozen=True, kw_only=True)
class PoolAdmissionParts:
    """
    The parts of a poollet that decide about consoles and texts of its pool.

    :param store: the pool's Machines.
    :param observed: returns the machines of the runtime with this UID.
    """

    gate: Gate
    access: PoolAccess
    client: IKubeClient
    runtime: IMachineRuntime
    store: IStore
    observed: Callable[[str], Sequence[pb.Machine]]
    dialler: Dialler
    clock: IReactorTime
    policies: PoolPolicies


class RuntimeUpstream(Upstream):
    """A machine's runtime as the next hop of one session or text."""

    def __init__(self, admission: PoolMachineAdmission, subject: Subject, is_open: bool) -> None:
        super().__init__(Obstacle.RUNTIME_FAILED, admission.unknown_path())
        self._admission, self._subject, self._is_open = admission, subject, is_open

    async def renew(self, location: Location, reason: Renewal) -> Location:
        # The URL of the runtime is for one request that opens or rejoins the stream; some runtimes
        # invalidate its token even if they refuse the request.
        if reason is Renewal.CONTROL:
            return location
        is_open = self._is_open or reason is Renewal.REJOIN
        return await self._admission.locate(self._subject, is_open)


@implementer(IStreamAdmission)
@dataclass(frozen=True)
class PoolMachineAdmission:
    """Admits users to the console, log or screen of the Machine in the context's subject."""

    parts: PoolAdmissionParts
    runtime_seconds: float = RUNTIME_SECONDS
    denials: Denials | None = None
    what: Subresource = EXEC
    url: UrlOf = exec_url
    unknown_path: Callable[[], APIError | None] = lambda: None

    def admit(self, context: RequestContext) -> Deferred[Location]:
        return Deferred.fromCoroutine(self._admit(context))

    async def _admit(self, context: RequestContext) -> Location:
        context.learn_reason()
        try:
            access, terms = await self._authorize(context)
        except TakeoverRefused as refusal:
            await self._deny(context.subject, refusal.message)
            raise
        machine = await self._machine(context.subject)
        uid = machine["metadata"]["uid"]
        # The API server decided about another machine of this name: one copy is not up to date.
        if context.subject.uid not in ("", uid):
            raise self._unknown(context.subject)
        context.learn(uid=uid)
        is_open = context.continues_session
        self._check(machine, is_open)
        options = self.what.options(context.request, context.subject.machine)
        if self.what.access is not None and context.caller is None:
            server = context.user.name if self.parts.access.is_server(context) else ""
            session = await self.parts.policies.open(machine, server)
            self.parts.gate.allow_console(context, access.under(session) if access else session)
        location = options.at(await self.locate(context.subject, is_open))
        # Only of the first location: a rejoined stream has the terms of its session.
        return replace(location, terms=terms)

    async def _authorize(self, context: RequestContext) -> tuple[ConsoleAccess | None, Terms]:
        access, what = self.parts.access, self.what
        if what.access is None or access.is_server(context):
            await self.parts.gate.authorize_session(context, *access.permissions(context))
            return None, FULL
        machine, proxy = access.permissions(context)
        if not what.is_stream:
            context.only_observe()
        console = what.access.of(machine, context.options, strict=access.strict_verbs)
        right = await self.parts.gate.authorize_console(context, console, proxy)
        return console, console.terms(Terms(right=right))

    async def _deny(self, subject: Subject, message: str) -> None:
        if self.denials is None or not self.denials.count(subject):
            return
        machine: Object | None = None
        with suppress(APIError):  # the record does without
            machine = await self._machine(subject)
        self.denials.record(subject, machine, message)

    async def locate(self, subject: Subject, is_open: bool) -> Location:
        try:
            target = await self._in_time(Deferred.fromCoroutine(self._target(subject)), is_open)
        except APIError as error:
            await self._check_again(subject, is_open)  # a deleted Machine explains the error better
            if not obstacles_of(error):
                because(Obstacle.RUNTIME_FAILED, error)
            raise
        await self._check_again(subject, is_open)
        return self._location(subject, target, RuntimeUpstream(self, subject, is_open))

    def _location(
        self, subject: Subject, target: StreamDestination, upstream: Upstream
    ) -> Location:
        return Location(
            endpoints=[(target.label, target.endpoint)],
            path=target.path,
            host=target.host,
            upstream=upstream,
            headers=[
                (USER_HEADER, quote(subject.user, safe="").encode("ascii")),
                (UID_HEADER, quote(subject.uid, safe="").encode("ascii")),
                *reason_headers(subject.reason),
            ],
            streams=TERMINAL,
            resumes=self.what.is_stream,
        )

    async def _machine(self, subject: Subject) -> Object:
        """
        Return the Machine, from the API server if our copy lacks it.

        :raises NotFound: it does not exist, or is not bound to this pool.
        """
        dialect = self.parts.access.dialect
        machine = self.parts.store.get(subject.machine, subject.namespace)
        if machine is None:
            try:
                machine = await self.parts.client.get(
                    dialect.workload, subject.machine, subject.namespace
                )
            except APIError as error:
                # A poollet has no permission for machines of other pools.
                if error.code not in (NotFound.code, Forbidden.code):
                    raise
                machine = {}
        bound = ((machine.get("spec") or {}).get(dialect.pool_reference) or {}).get("name")
        if bound != self.parts.access.pool:
            raise self._unknown(subject)
        return machine

    def _unknown(self, subject: Subject) -> APIError:
        workload = self.parts.access.dialect.workload
        message = (
            f'{workload.qualified} "{subject.machine}" not found in pool "{self.parts.access.pool}"'
        )
        unknown = NotFound(workload.plural, subject.machine, workload.group, message)
        return because(Obstacle.NOT_IN_POOL, unknown)

    def _check(self, machine: Object, is_open: bool) -> None:
        """:raises Conflict: the Machine is being deleted, or is powered off."""
        metadata = machine["metadata"]
        name = f'{self.parts.access.dialect.noun} "{metadata["name"]}"'
        if metadata.get("deletionTimestamp"):
            raise because(Obstacle.BEING_DELETED, Conflict(f"{name} is being deleted"))
        if self.what.is_stream and not is_open and is_powered_off(machine):
            raise because(Obstacle.POWERED_OFF, Conflict(f"{name} is powered off"))

    async def _check_again(self, subject: Subject, is_open: bool) -> None:
        """
        Check that the Machine still exists after the calls to the runtime.

        It may have been deleted, or replaced under its name, before there was a session that the
        deletion could have ended.

        :raises APIError: it may not have a session any more.
        """
        machine = await self._machine(subject)
        if machine["metadata"]["uid"] != subject.uid:
            raise self._unknown(subject)
        self._check(machine, is_open)

    async def _target(self, subject: Subject) -> StreamDestination:
        machines = list(self.parts.observed(subject.uid))
        if machines:
            try:
                return await self._exec(machines, subject)
            except APIError as error:
                if error.code != NotFound.code:
                    raise
                # The machine listed a few seconds ago is gone: list again.
        selector = {self.parts.access.dialect.uid_label: subject.uid}
        request = pb.ListMachinesRequest(filter=pb.MachineFilter(label_selector=selector))
        listed = await self.parts.runtime.list_machines(request)
        return await self._exec(list(listed.machines), subject)

    async def _exec(self, machines: Sequence[pb.Machine], subject: Subject) -> StreamDestination:
        name = f'{self.parts.access.dialect.noun} "{subject.machine}"'
        if not machines:
            if trouble := self._trouble(subject):  # waiting may not help
                error = ServiceUnavailable(f"{name} is not running yet: {trouble}")
                raise because(Obstacle.CANNOT_START, error)
            pending = ServiceUnavailable(f"{name} is not running yet", retry_after_seconds=1)
            raise because(Obstacle.NOT_RUNNING, pending)
        if len(machines) > 1:
            raise Conflict(f"{name} has {len(machines)} machines in the runtime")
        return self.parts.dialler.target(
            await self.url(self.parts.runtime, machines[0].metadata.id, subject)
        )

    def _trouble(self, subject: Subject) -> str:
        machine = self.parts.store.get(subject.machine, subject.namespace) or {}
        conditions: list[Object] = (machine.get("status") or {}).get("conditions") or []
        ready: Object = next(
            (condition for condition in conditions if condition["type"] == "Ready"), {}
        )
        return one_line(ready.get("message") or "") if ready.get("status") == "False" else ""

    @cached_property
    def _answers(self) -> Progress:
        return Progress(self.parts.clock)

    async def _in_time(
        self, endpoint: Deferred[StreamDestination], is_open: bool = False
    ) -> StreamDestination:
        seconds = CONTINUE_SECONDS if is_open else self.runtime_seconds
        try:
            target = await limited(endpoint, self.parts.clock, seconds, [self._answers])
        except Late:
            raise GatewayTimeout("the machine runtime does not answer") from None
        self._answers.note()
        return target
