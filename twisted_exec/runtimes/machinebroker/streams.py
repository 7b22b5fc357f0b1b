"""
The streams of a broker, proxied to the target.

The target authorizes the user (with ``--own-identity`` the broker).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zope.interface import implementer

from twisted_exec.api.declared_reasons import REASON_HEADER, reason_headers, reason_of_headers
from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.status import (
    BadGateway,
    BadRequest,
    Conflict,
    NotFound,
    NotImplementedByBackend,
)
from twisted_exec.auth.subresources import EXEC, LOG, SCREEN, Subresource
from twisted_exec.iri.request_cache import Grant
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.upstream import CONNECT_SECONDS, ServerUpstream
from twisted_exec.program.tasks import as_deferred
from twisted_exec.runtimes.machinebroker.machine_cache import MachineCache
from twisted_exec.runtimes.machinebroker.objects import CachedMachine
from twisted_exec.runtimes.machinebroker.place import BrokerIdentity, BrokerPlace
from twisted_exec.runtimes.machinebroker.tokens import TokenClaim, Tokens
from twisted_exec.runtimes.serving.server import ServerRoutes, header_text
from twisted_exec.streaming.context import RequestContext, on_record
from twisted_exec.streaming.http.cross_site import refuse_other_sites
from twisted_exec.streaming.http.responses import respond_json
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest, ask_first
from twisted_exec.streaming.http.upgrade_server import requested_protocol
from twisted_exec.streaming.interfaces import UID_HEADER, USER_HEADER, Ending
from twisted_exec.streaming.location import IStreamAdmission, Location, Upstream
from twisted_exec.streaming.proxied import ProxySettings
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.sessions.hop_messages import (
    ending_query,
    forwarded_session_id,
    forwarded_terms,
    parse_ending,
    parse_terms_query,
    terms_headers,
)
from twisted_exec.streaming.subject import Subject
from twisted_exec.streaming.text.download import ANY_DOWNLOADS
from twisted_exec.streaming.text.relay import Relay
from twisted_exec.wire.channel import TERMINAL

HOP = "broker"
ANSWER_SECONDS = 4.0
"""Less than an API server in front waits, so that it gets an error instead of a timeout."""

SCREEN_SECONDS = 9.0
"""How long the target may take for a screen: less than a poollet in front of this broker waits."""

_DONE = {"kind": "Status", "apiVersion": "v1", "status": "Success"}


def find(
    cache: MachineCache, machine_id: str, machine_uid: str, *, needs_power: bool = True
) -> CachedMachine:
    """
    Find the machine of a request.

    :raises NotFound: there is no such machine, it is being deleted, or it has another UID.
    :raises ServiceUnavailable: see :meth:`.MachineCache.check`.
    :raises Conflict: the machine is off, and ``needs_power`` is true.
    """
    entry = cache.get(machine_id)
    owner = entry.owner
    label = owner.name or entry.id
    if machine_uid and owner.uid and machine_uid != owner.uid:
        raise NotFound("machines", machine_id)
    if entry.deleting:
        refusal = NotFound("machines", machine_id, message=f'machine "{label}" is being deleted')
        raise because(Obstacle.BEING_DELETED, refusal)
    if needs_power and not entry.is_on:
        raise because(Obstacle.POWERED_OFF, Conflict(f'machine "{label}" is powered off'))
    return entry


@dataclass(frozen=True)
class Target:
    """The API server of the target cluster."""

    config: Callable[[], ClientConfig]
    place: BrokerPlace
    identity: BrokerIdentity
    reactor: Any
    ends_here: bool = False

    async def to(self, grant: Grant, subresource: str, reason: str = "") -> Location:
        """
        Locate a machine's console, log or screen.

        :param reason: that the user of the session declares.
        :raises APIError: the user cannot be impersonated, or there are no credentials.
        """
        place, acting = self.place, self.identity.acting_as(grant.user)
        path = place.machines.path(place.namespace, grant.machine_id, subresource)
        upstream = ServerUpstream(
            self.config,
            "the target cluster",
            self.reactor,
            path,
            impersonate=acting,
            streams=TERMINAL,
        )
        try:
            location = await upstream.locate()
            headers = (*location.headers, *reason_headers(reason))
            # A hop that reports ends itself reports a loss as an end, too.
            resumes = subresource == EXEC.name and not self.ends_here
            return replace(location, headers=headers, ends_here=self.ends_here, resumes=resumes)
        except KubeConfigError:
            raise BadGateway("this broker has no credentials for the target cluster") from None


@implementer(IStreamAdmission)
@dataclass(frozen=True)
class BrokerAdmission:
    """Admits the bearer of a token to what it stands for: a console, or the log and the screen of a machine."""

    target: Target
    cache: MachineCache
    tokens: Tokens
    allowed_origins: Collection[bytes] = ()
    what: Subresource = EXEC
    claims: dict[RequestContext, TokenClaim] = field(default_factory=dict)

    @as_deferred
    async def admit(self, context: RequestContext) -> Location:
        """See :meth:`IStreamAdmission.admit`; the context's target is the token."""
        request, token, what = context.request, context.target, self.what
        purpose = EXEC.name if what.is_stream else LOG.name
        session = forwarded_session_id(request) or context.subject.session
        user, uid = header_text(request, USER_HEADER), header_text(request, UID_HEADER)
        context.learn(session=session, user=user, uid=uid, subresource=purpose)
        reason = request.requestHeaders.getRawHeaders(REASON_HEADER, ())
        context.learn(reason=reason_of_headers(reason))
        context.ceiling = forwarded_terms(terms_headers(request))
        if what is LOG and requested_protocol(request):
            raise BadRequest("a log is read with a plain GET here")
        options = what.options(request, "")
        refuse_other_sites(request, self.allowed_origins)
        claim = await self.tokens.claim(token, user=user, machine_uid=uid, purpose=purpose)
        self.claims[context] = claim
        grant = claim.grant
        entry = find(self.cache, grant.machine_id, grant.machine_uid, needs_power=what.is_stream)
        context.learn(**_facts(context.subject, grant, entry))
        location = await self.target.to(grant, what.name, context.subject.reason)
        context.learn(subresource=what.name)  # no longer that of the token
        if what is SCREEN:
            unknown = NotImplementedByBackend(
                "the API server of the target cluster serves no screens: it is not an "
                "exec-apiserver; the log of the machine is still available"
            )
            location = replace(location, upstream=Upstream(unknown_path=unknown))
        return options.at(location)


def _facts(subject: Subject, grant: Grant, entry: CachedMachine) -> dict[str, str]:
    """Return the facts of a session that its token knows, with the machine's in the source cluster."""
    owner = entry.owner
    return {
        "session": grant.session or subject.session,
        "user": grant.user or subject.user,
        "namespace": owner.namespace,
        "machine": owner.name or entry.id,
        "resource": owner.resource,
        "uid": owner.uid,
    }


class BrokerRoutes(ServerRoutes):
    """The routes of a broker."""

    def __init__(
        self,
        server: Any,
        target: Target,
        tokens: Tokens,
        console: BrokerAdmission,
        log: BrokerAdmission,
        screen: BrokerAdmission,
    ) -> None:
        super().__init__(server)
        self._target, self._tokens = target, tokens
        self._sessions, self._clock = server.sessions, server.clock
        self._proxy = Proxy(
            console,
            ProxySettings(
                HOP,
                connect_seconds=CONNECT_SECONDS,
                answer_seconds=ANSWER_SECONDS,
                # A target of another make does not know such requests.  But the causes of an end, such as
                # power off, reach the target, too, whose own hops report them.
                cuts_when_refused=False,
            ),
            sessions=server.sessions,
            clock=server.clock,
        )
        relay = Relay(
            log,
            sessions=server.sessions,
            clock=server.clock,
            connect_seconds=CONNECT_SECONDS,
            answer_seconds=ANSWER_SECONDS,
        )
        screens = Relay(
            screen,
            sessions=server.sessions,
            clock=server.clock,
            connect_seconds=CONNECT_SECONDS,
            answer_seconds=SCREEN_SECONDS,
            downloads=ANY_DOWNLOADS,  # the target knows the form
        )
        # Not ``add``: a stream has no head that could be asked for alone.
        exec_once, log_once = self._once(console, self._proxy.handle), self._once(log, relay.handle)
        screen_once = self._once(screen, screens.handle)
        self._routes.add_endpoint(["GET", "POST"], "/exec/{token}", exec_once)
        self._routes.add_endpoint(["GET"], "/log/{token}", log_once)
        self._routes.add_endpoint(["GET"], "/screen/{token}", screen_once)
        self._routes.add(["DELETE"], "/exec/{token}", self._end)
        self._routes.add(["PATCH"], "/exec/{token}", self._limit)

    def _grant(self, request: Request, names: Mapping[str, str], session: str) -> Grant:
        user, uid = header_text(request, USER_HEADER), header_text(request, UID_HEADER)
        grant = self._tokens.read(names["token"], user=user, machine_uid=uid)
        if grant.session != session:
            raise NotFound("sessions", session, group="")
        return grant

    async def _limit(self, request: Request, names: Mapping[str, str]) -> None:
        session, terms = parse_terms_query(request.args)
        self._grant(request, names, session)
        sessions = self._sessions.with_id(session)
        if not sessions:
            raise NotFound("sessions", session, group="")
        for opened in sessions:
            opened.limit_to(terms)
        respond_json(request, 200, _DONE)

    async def _end(self, request: Request, names: Mapping[str, str]) -> None:
        session, ending = parse_ending(request.args)
        grant = self._grant(request, names, session)
        sessions = self._sessions.with_id(session)
        for opened in sessions:
            opened.end(ending)
        if not sessions:
            location = await self._target.to(grant, grant.purpose)
            await self._end_in_target(location, session, ending)
        respond_json(request, 200, _DONE)

    async def _end_in_target(self, location: Location, session: str, ending: Ending) -> None:
        path = location.path_with(ending_query(session, ending))
        head = UpgradeRequest(b"DELETE", path, location.host, location.headers)
        try:
            await ask_first(
                location.endpoints,
                head,
                clock=self._clock,
                connect_seconds=CONNECT_SECONDS,
                answer_seconds=ANSWER_SECONDS,
            )
        except UpgradeRefused as answer:
            if not 200 <= answer.code < 300:
                raise answer.as_api_error() from None

    def _once(
        self, admission: BrokerAdmission, handle: Callable[[RequestContext], Awaitable[None]]
    ) -> Callable[[Request, Mapping[str, str]], Awaitable[None]]:
        """Return an endpoint that releases its token if the request fails before the response begins."""

        async def answer(request: Request, names: Mapping[str, str]) -> None:
            context = RequestContext(request, target=names["token"], values=names)
            try:
                with on_record(self._sessions, context):
                    await handle(context)
            except BaseException:
                claim = admission.claims.pop(context, None)
                if claim is not None and not request.startedWriting:
                    await claim.give_back()
                raise
            finally:
                admission.claims.pop(context, None)

        return answer
