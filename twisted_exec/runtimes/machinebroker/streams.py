"""
Where a token leads: to the console of its machine in the target cluster, or to its log.

The stream is spliced, not read: what the user's client and the target's end say to each other passes
as it is.  The target is asked before the user is answered, so its refusals are the user's, with their
codes.  It decides for itself what the user may; the token only says who asks.

What a broker's stream server answers: ``/exec/TOKEN`` and ``/log/TOKEN``, passed on to the target.

A console that was opened here may be ended with a reason, by ``DELETE`` of the same path, as at any
runtime.  Behind one address stand several replicas: one that has no such session asks the target to
end it, which knows the session by its id and by who opened it, and all replicas are one user there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

from twisted.internet.defer import Deferred
from twisted.web.iweb import IRequest
from zope.interface import implementer

from twisted_exec.api.logs import parse
from twisted_exec.api.status import BadGateway, BadRequest, Conflict, NotFound
from twisted_exec.iri.request_cache import EXEC, LOG, Grant
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.upstream import CONNECT_SECONDS
from twisted_exec.kube.upstream import Way as ServerWay
from twisted_exec.runtimes.machinebroker.machine_cache import Copy
from twisted_exec.runtimes.machinebroker.objects import Held
from twisted_exec.runtimes.machinebroker.target import Identity, Place
from twisted_exec.runtimes.machinebroker.tokens import Claim, Tokens
from twisted_exec.runtimes.serving.routes import UID_HEADER, USER_HEADER, ServerRoutes, header_text
from twisted_exec.streaming.http.routes import split_path
from twisted_exec.streaming.http.site import Request, respond_json
from twisted_exec.streaming.http.upgrade_client import (
    UpgradeRefused,
    UpgradeRequest,
    ask,
    connect_first,
)
from twisted_exec.streaming.http.upgrade_server import is_upgrade, refuse_other_sites
from twisted_exec.streaming.interfaces import Ending, IStreamLocator, Location, Subject
from twisted_exec.streaming.proxy import Proxy, require_upgrade
from twisted_exec.streaming.sessions.registry import (
    ending_query,
    forwarded_session_id,
    parse_ending,
)
from twisted_exec.streaming.text.relay import Relay
from twisted_exec.wire.remotecommand.spdy_streams import TERMINAL

ANSWER_SECONDS = 4.0
"""An API server in front waits 5 s: it is to hear what is wrong, not to guess."""


def find(copy: Copy, machine_id: str, machine_uid: str, *, needs_power: bool = True) -> Held:
    """
    The machine whose console, or log, is asked for.

    :param machine_uid: of the source's object, or empty.
    :raises NotFound: it is gone, or another one.
    :raises Conflict: it is off, and must not be.
    """
    held = copy.get(machine_id)
    owner = held.owner
    told = owner.name or held.id
    if machine_uid and owner.uid and machine_uid != owner.uid:
        raise NotFound("machines", machine_id)
    if held.deleting:
        raise NotFound("machines", machine_id, message=f'machine "{told}" is being deleted')
    if needs_power and not held.is_on:
        raise Conflict(f'machine "{told}" is powered off')
    return held


@dataclass(frozen=True)
class Way:
    """
    How the target is reached, and as whom.

    :param config: the kubeconfig as it is now.
    :param ends_here: a session may have to be ended when the target cannot be asked any more, so its user
        is told from here.
    """

    config: Callable[[], ClientConfig]
    place: Place
    identity: Identity
    reactor: Any
    ends_here: bool = False

    async def to(self, subject: Subject, grant: Grant) -> Location:
        """
        Where a machine's console is.

        :param subject: what is told of the session; its subresource is asked for.
        :raises Forbidden: the target cannot be asked for this user.
        :raises BadGateway: our own credentials cannot be had.
        """
        place, acting = self.place, self.identity.acting_as(grant.user)
        path = place.machines.path(place.namespace, grant.machine_id, subject.subresource)
        server = ServerWay(self.config, "the target cluster", self.reactor)
        try:
            found = await server.to(subject, path, acting=acting, streams=TERMINAL)
            return replace(found, ends_here=self.ends_here)
        except KubeConfigError:
            raise BadGateway("this broker has no credentials for the target cluster") from None


@implementer(IStreamLocator)
@dataclass(frozen=True)
class BrokerLocator:
    """
    Finds the console that a token is for.

    :param allowed_origins: sites besides this server's own whose pages may ask.
    :ivar claims: of the requests that are on their way; whoever answers them takes them out.
    """

    purpose: ClassVar[str] = EXEC
    needs_power: ClassVar[bool] = True

    way: Way
    copy: Copy
    tokens: Tokens
    allowed_origins: Collection[bytes] = ()
    claims: dict[Request, Claim] = field(default_factory=dict)

    def locate(self, request: IRequest) -> Deferred[Location]:
        """See :meth:`IStreamLocator.locate`."""
        return Deferred.fromCoroutine(self._locate(cast(Request, request)))

    async def _locate(self, request: Request) -> Location:
        session = forwarded_session_id(request) or request.subject.session
        user, uid = header_text(request, USER_HEADER), header_text(request, UID_HEADER)
        request.subject = replace(
            request.subject, session=session, user=user, uid=uid, subresource=self.purpose
        )
        self._check(request)
        refuse_other_sites(request, self.allowed_origins)
        token = split_path(request.path)[-1]
        claim = await self.tokens.claim(token, user=user, machine_uid=uid, purpose=self.purpose)
        self.claims[request] = claim
        grant = claim.grant
        held = find(self.copy, grant.machine_id, grant.machine_uid, needs_power=self.needs_power)
        request.subject = subject = subject_of(request.subject, grant, held)
        return await self._to(request, subject, grant)

    async def _to(self, request: Request, subject: Subject, grant: Grant) -> Location:
        return await self.way.to(subject, grant)

    def _check(self, request: Request) -> None:
        """
        :raises APIError: it is not the kind of request that is answered here.
        """
        require_upgrade(request)


class BrokerLogLocator(BrokerLocator):
    """Finds the log that a token is for."""

    purpose: ClassVar[str] = LOG
    needs_power: ClassVar[bool] = False

    async def _to(self, request: Request, subject: Subject, grant: Grant) -> Location:
        location = await self.way.to(subject, grant)
        query = parse(request.args, subject.machine).query()
        return replace(location, path=location.path + (b"?" + query if query else b""))

    def _check(self, request: Request) -> None:
        if is_upgrade(request):
            raise BadRequest("a log is read with a plain GET here")
        parse(request.args, "")


def subject_of(subject: Subject, grant: Grant, held: Held) -> Subject:
    """Who reaches what, by its names in the source cluster."""
    owner = held.owner
    return replace(
        subject,
        session=grant.session or subject.session,
        user=grant.user or subject.user,
        namespace=owner.namespace,
        machine=owner.name or held.id,
        resource=owner.resource,
        uid=owner.uid,
    )


HOP = "broker"

_DONE = {"kind": "Status", "apiVersion": "v1", "status": "Success"}


class BrokerRoutes(ServerRoutes):
    """The resource of a broker."""

    def __init__(
        self, server: Any, way: Way, tokens: Tokens, console: BrokerLocator, log: BrokerLocator
    ) -> None:
        super().__init__(server)
        self._way, self._tokens = way, tokens
        self._sessions, self._clock = server.sessions, server.clock
        self._proxy = Proxy(
            console,
            hop=HOP,
            sessions=server.sessions,
            clock=server.clock,
            connect_seconds=CONNECT_SECONDS,
            answer_seconds=ANSWER_SECONDS,
            # A target of another make knows no such request; but what ends the session here, such
            # as power off, comes to the target as well, and its own hops say why.
            cuts_when_refused=False,
        )
        relay = Relay(
            log,
            sessions=server.sessions,
            clock=server.clock,
            connect_seconds=CONNECT_SECONDS,
            answer_seconds=ANSWER_SECONDS,
        )
        self._routes.add(["GET", "POST"], "/exec/{token}", _once(console, self._proxy.handle))
        self._routes.add(["GET"], "/log/{token}", _once(log, relay.handle))
        self._routes.add(["DELETE"], "/exec/{token}", self._end)

    async def _end(self, request: Request, names: Mapping[str, str]) -> None:
        session, ending = parse_ending(request.args)
        user, uid = header_text(request, USER_HEADER), header_text(request, UID_HEADER)
        grant = self._tokens.read(names["token"], user=user, machine_uid=uid)
        if grant.session != session:
            raise NotFound("sessions", session, group="")
        found = self._sessions.end(lambda subject: subject.session == session, ending)
        if not found:
            subject = Subject(session=session, subresource=grant.purpose)
            await self._ask_target(await self._way.to(subject, grant), ending)
        respond_json(request, 200, _DONE)

    async def _ask_target(self, location: Any, ending: Ending) -> None:
        """:raises APIError: the target has no such session, or does not end it."""
        _, connection = await connect_first(
            location.endpoints, clock=self._clock, timeout_seconds=CONNECT_SECONDS
        )
        path = location.path + b"?" + ending_query(location.subject.session, ending)
        head = UpgradeRequest(b"DELETE", path, location.host, location.headers)
        try:
            await ask(connection, head, clock=self._clock, timeout_seconds=ANSWER_SECONDS)
        except UpgradeRefused as answer:
            if not 200 <= answer.code < 300:
                raise answer.as_api_error() from None


def _once(
    locator: BrokerLocator, handle: Callable[[Request], Awaitable[None]]
) -> Callable[[Request, Mapping[str, str]], Awaitable[None]]:
    """A token that does not lead to a stream, or to a text that is read, is given back."""

    async def answer(request: Request, names: Mapping[str, str]) -> None:
        try:
            await handle(request)
        except BaseException:
            claim = locator.claims.pop(request, None)
            if claim is not None and not request.startedWriting:
                await claim.give_back()
            raise
        finally:
            locator.claims.pop(request, None)

    return answer
