"""
The console route of a poollet: who asks, may they, and where the console is.  The route of logs
(:mod:`.log_route`) asks the same questions.

The poollet decides for itself.  A user whom a named proxy forwards needs
``create`` on ``machines/exec`` of that very machine, and the proxy needs
``create`` on ``machinepools/proxy`` of this pool; whoever comes without a proxy
needs both.  ironcore's own API server forwards nobody; it can be named as one
whose proxy permission is enough.

A machine is found by its UID, not by its name: a machine that was deleted and
made anew under the same name is another one, for every hop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, cast
from urllib.parse import quote

from twisted.internet.defer import Deferred, TimeoutError, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.web.iweb import IRequest
from zope.interface import implementer

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.status import (
    APIError,
    Conflict,
    Forbidden,
    GatewayTimeout,
    NotFound,
    ServiceUnavailable,
    Unauthorized,
    one_line,
)
from twisted_exec.auth.credentials import CredentialHeaders, PresentedCredentials
from twisted_exec.auth.interfaces import Attributes, IAuthenticator, IAuthorizer, User
from twisted_exec.auth.request_header import RequestHeaderAuthenticator
from twisted_exec.auth.union import UnionAuthenticator
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.informers.reflector import IStore
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.poollet.consoles.dialling import Dialler, Target
from twisted_exec.poollet.machines.config import wants_power
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_server import refuse_other_sites
from twisted_exec.streaming.interfaces import ISessionReviewer, IStreamLocator, Location, Subject
from twisted_exec.streaming.proxy import require_upgrade
from twisted_exec.streaming.sessions.registry import forwarded_session_id
from twisted_exec.wire.remotecommand.spdy_streams import TERMINAL

RUNTIME_SECONDS = 4.0
"""
For all that the runtime is asked for one console.  An API server waits 5 s for us: it is to hear
what is wrong, not to guess.
"""

VERBS = {"exec": "create", "log": "get"}
"""What each subresource of a machine needs."""

UID_HEADER = b"X-Twisted-Exec-Machine-Uid"
USER_HEADER = b"X-Twisted-Exec-User"


@dataclass(frozen=True)
class Asking:
    """
    Who asks: the user, and the proxy that speaks for them, if one does.

    :param credentials: of a user without a proxy.
    """

    user: User
    caller: User | None = None
    credentials: PresentedCredentials | None = None


@implementer(ISessionReviewer)
@dataclass(frozen=True)
class Gate:
    """
    Authentication and authorization of the console route.

    :param proxies: knows users whom a trusted proxy forwards; ``None`` for no such proxies.
    :param direct: knows everyone else.
    :param pool_proxy_suffices: names of users that need no permission on the machine.
    :param allowed_origins: sites besides this server's own whose pages may ask.
    """

    dialect: Dialect
    pool: str
    proxies: RequestHeaderAuthenticator | None
    direct: IAuthenticator
    authorizer: IAuthorizer
    pool_proxy_suffices: Collection[str] = ()
    allowed_origins: Collection[bytes] = ()

    async def who(self, request: Request) -> Asking:
        """
        :raises Unauthorized: nobody whom we know.
        :raises Forbidden: not they ask, but a page in their browser; or they want to act
            as someone else, which is a right that only API servers know.
        """
        credentials = self.credential_headers.take_from(request)
        user: User | None = await self.authenticator.authenticate(credentials)
        if user is None:
            raise Unauthorized
        if user.forwarded_by is not None:
            return Asking(user, user.forwarded_by)
        if user.name not in self.pool_proxy_suffices and not credentials.token_in_header:
            # Those that suffice judge for themselves.
            unasked = credentials.sent_unasked
            refuse_other_sites(request, self.allowed_origins, sent_unasked=unasked)
        if credentials.impersonates:
            raise Forbidden("nobody can act as someone else here; ask the API server")
        return Asking(user, credentials=credentials)

    @cached_property
    def authenticator(self) -> IAuthenticator:
        """Knows everyone."""
        proxies = [] if self.proxies is None else [self.proxies]
        return UnionAuthenticator([*proxies, self.direct])

    @cached_property
    def credential_headers(self) -> CredentialHeaders:
        """The registry of credential headers."""
        return CredentialHeaders(self.authenticator, impersonation=True)

    def review(self, subject: Subject, evidence: object) -> Deferred[None]:
        """As :meth:`ISessionReviewer.review`; the evidence is an :class:`Asking`."""
        assert isinstance(evidence, Asking)
        return Deferred.fromCoroutine(self._review(subject, evidence))

    async def _review(self, subject: Subject, asking: Asking) -> None:
        if asking.credentials is not None:  # else a proxy reviews its users' credentials itself
            user = await self.direct.authenticate(asking.credentials)
            if user is None or user.name != asking.user.name:
                raise Unauthorized
            asking = replace(asking, user=user)
        await self.admit(asking, subject)

    async def admit(self, asking: Asking, subject: Subject) -> None:
        """
        :param subject: which machine, and what of it: opening a console is a ``create``,
            reading its log a ``get``.
        :raises Forbidden: the user may not do that, or the caller may not reach this pool.
        :raises APIError: it could not be found out.
        """
        dialect = self.dialect
        caller = asking.caller or asking.user
        if not (asking.caller is None and caller.name in self.pool_proxy_suffices):
            await self.require(
                Attributes(
                    asking.user,
                    VERBS[subject.subresource],
                    dialect.group,
                    dialect.version,
                    dialect.workload.plural,
                    subject.subresource,
                    subject.namespace,
                    subject.machine,
                )
            )
        await self.require(
            Attributes(
                caller,
                "create",
                dialect.group,
                dialect.version,
                dialect.pool.plural,
                dialect.proxy_subresource,
                name=self.pool,
            )
        )

    async def require(self, attributes: Attributes) -> None:
        """
        :raises Forbidden: the user may not.
        :raises APIError: it could not be found out.
        """
        decision = await self.authorizer.authorize(attributes)
        if decision.allowed:
            return
        if attributes.path:
            raise Forbidden(
                f'User "{attributes.user.name}" cannot {attributes.verb} path "{attributes.path}"'
            )
        qualified = f"{attributes.resource}.{attributes.group}"
        where = f' in the namespace "{attributes.namespace}"' if attributes.namespace else ""
        raise Forbidden(
            f'{qualified} "{attributes.name}" is forbidden: User "{attributes.user.name}" cannot '
            f'{attributes.verb} resource "{attributes.resource}/{attributes.subresource}" in API group '
            f'"{attributes.group}"{where}' + (f": {decision.reason}" if decision.reason else ""),
            details={
                "name": attributes.name,
                "group": attributes.group,
                "kind": attributes.resource,
            },
        )

    def caller_of(self, request: Request) -> Deferred[str]:
        """
        The proxy that may end the sessions it opened.

        :return: fires with its name, or fails with :class:`Unauthorized`.
        """
        credentials = self.credential_headers.take_from(request)
        caller = self.proxies.caller(credentials) if self.proxies is not None else None
        if caller is None:
            raise Unauthorized("only a proxy that forwards users ends sessions here")
        return succeed(caller.name)


@implementer(IStreamLocator)
@dataclass(frozen=True)
class ExecLocator:
    """
    Finds the console of a Machine.

    The route has put the Machine's namespace and name into ``request.subject``.

    :param store: the pool's Machines, as last seen.
    :param observed: the runtime's machines for a UID, as last listed.
    :cvar needs_power: of a machine that is off there is nothing to be reached.
    """

    needs_power: ClassVar[bool] = True

    gate: Gate
    client: IKubeClient
    runtime: IMachineRuntime
    store: IStore
    observed: Callable[[str], Sequence[pb.Machine]]
    dialler: Dialler
    clock: IReactorTime
    runtime_seconds: float = RUNTIME_SECONDS

    def locate(self, request: IRequest) -> Deferred[Location]:
        """See :meth:`IStreamLocator.locate`."""
        return Deferred.fromCoroutine(self._locate(cast(Request, request)))

    async def _locate(self, request: Request) -> Location:
        asking = await self.gate.who(request)
        request.subject = subject = self._subject(request, asking)
        await self.gate.admit(asking, subject)
        machine = await self._machine(subject)
        request.subject = subject = replace(subject, uid=machine["metadata"]["uid"])
        self._check(machine)
        self._check_request(request)
        request.evidence = asking
        return await self._to(subject)

    async def _to(self, subject: Subject) -> Location:
        """Where the runtime says that its console is, this time."""
        try:
            target = await self._in_time(Deferred.fromCoroutine(self._target(subject)))
        except APIError:
            await self._check_again(subject)  # which may be why
            raise
        await self._check_again(subject)
        return Location(
            subject=subject,
            endpoints=[(target.label, target.endpoint)],
            path=target.path,
            host=target.host,
            headers=[
                (USER_HEADER, quote(subject.user, safe="").encode("ascii")),
                (UID_HEADER, quote(subject.uid, safe="").encode("ascii")),
            ],
            streams=TERMINAL,
            # Runtimes of other makes spend a URL's token on a request that they refuse.
            again=lambda: Deferred.fromCoroutine(self._to(subject)),
        )

    def _subject(self, request: Request, asking: Asking) -> Subject:
        session = forwarded_session_id(request) if asking.caller is not None else None
        return replace(
            request.subject,
            session=session or request.subject.session,
            user=asking.user.name,
            resource=self.gate.dialect.workload.qualified,
            noun=self.gate.dialect.noun,
            pool=self.gate.pool,
            caller=asking.caller.name if asking.caller is not None else "",
        )

    async def _machine(self, subject: Subject) -> Object:
        """
        The Machine, asked of the API server when it is too new for our copy.

        :raises NotFound: there is none, or it is not bound to this pool.
        """
        dialect = self.gate.dialect
        machine = self.store.get(subject.machine, subject.namespace)
        if machine is None:
            try:
                machine = await self.client.get(
                    dialect.workload, subject.machine, subject.namespace
                )
            except APIError as error:
                # A poollet may not see the machines of other pools.
                if error.code not in (NotFound.code, Forbidden.code):
                    raise
                machine = {}
        bound = ((machine.get("spec") or {}).get(dialect.pool_reference) or {}).get("name")
        if bound != self.gate.pool:
            raise self._unknown(subject)
        return machine

    def _unknown(self, subject: Subject) -> NotFound:
        workload = self.gate.dialect.workload
        return NotFound(
            workload.plural,
            subject.machine,
            workload.group,
            f'{workload.qualified} "{subject.machine}" not found in pool "{self.gate.pool}"',
        )

    def _check(self, machine: Object) -> None:
        """
        :raises Conflict: the Machine is on its way out, or off.
        """
        metadata = machine["metadata"]
        name = f'{self.gate.dialect.workload.qualified} "{metadata["name"]}"'
        if metadata.get("deletionTimestamp"):
            raise Conflict(f"{name} is being deleted")
        if self.needs_power and not wants_power(machine):
            raise Conflict(f"{name} is powered off")

    def _check_request(self, request: Request) -> None:
        """
        :raises BadRequest: it is not the kind of request that is answered here.
        """
        require_upgrade(request)

    async def _check_again(self, subject: Subject) -> None:
        """
        While the runtime was asked the Machine may have been deleted, even made
        anew: no session was there yet that could have been ended for it.

        :raises APIError: that is so.
        """
        machine = await self._machine(subject)
        if machine["metadata"]["uid"] != subject.uid:
            raise self._unknown(subject)
        self._check(machine)

    async def _target(self, subject: Subject) -> Target:
        """Ask the runtime for an exec URL of the machine with the subject's UID."""
        machines = list(self.observed(subject.uid))
        if machines:
            try:
                return await self._exec(machines, subject)
            except APIError as error:
                if error.code != NotFound.code:
                    raise
                # What was listed a few seconds ago is gone: look again.
        selector = {self.gate.dialect.uid_label: subject.uid}
        request = pb.ListMachinesRequest(filter=pb.MachineFilter(label_selector=selector))
        listed = await self.runtime.list_machines(request)
        return await self._exec(list(listed.machines), subject)

    async def _exec(self, machines: Sequence[pb.Machine], subject: Subject) -> Target:
        name = f'{self.gate.dialect.workload.qualified} "{subject.machine}"'
        if not machines:
            raise ServiceUnavailable(
                f"{name} is not running yet{self._trouble(subject)}", retry_after_seconds=1
            )
        if len(machines) > 1:
            raise Conflict(f"{name} has {len(machines)} machines in the runtime")
        return self.dialler.target(await self._url(machines[0].metadata.id, subject))

    def _trouble(self, subject: Subject) -> str:
        """What has kept the runtime from making it, where that is known: waiting may be no use."""
        machine = self.store.get(subject.machine, subject.namespace) or {}
        conditions: list[Object] = (machine.get("status") or {}).get("conditions") or []
        ready: Object = next((each for each in conditions if each["type"] == "Ready"), {})
        message = one_line(ready.get("message") or "") if ready.get("status") == "False" else ""
        return f": {message}" if message else ""

    async def _url(self, machine_id: str, subject: Subject) -> str:
        """What the runtime offers; empty when it offers nothing."""
        answer = await self.runtime.exec(
            pb.ExecRequest(machine_id=machine_id),
            user=subject.user,
            machine_uid=subject.uid,
            session=subject.session,
        )
        return str(answer.url)

    async def _in_time(self, endpoint: Deferred[Target]) -> Target:
        try:
            return await endpoint.addTimeout(self.runtime_seconds, self.clock)
        except TimeoutError:
            raise GatewayTimeout("the machine runtime does not answer") from None
