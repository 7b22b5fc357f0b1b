"""
Where a token leads: to the console of its machine in the target cluster, or to its log.

The stream is spliced, not read: what the user's client and the target's end say to each other passes
as it is.  The target is asked before the user is answered, so its refusals are the user's, with their
codes.  It decides for itself what the user may; the token only says who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

from twisted.internet.defer import Deferred
from twisted.web.iweb import IRequest
from zope.interface import implementer

from twisted_exec.api.logs import parse
from twisted_exec.api.status import BadGateway, BadRequest, Conflict, NotFound
from twisted_exec.iri.request_cache import EXEC, LOG, Grant
from twisted_exec.kube.config import ClientConfig, KubeConfigError
from twisted_exec.kube.way import Way as ServerWay
from twisted_exec.streaming.interfaces import IStreamLocator, Location, Subject
from twisted_exec.streaming.proxy import require_upgrade
from twisted_exec.streaming.routes import split_path
from twisted_exec.streaming.sessions import forwarded_session_id
from twisted_exec.streaming.site import Request
from twisted_exec.streaming.upgrade_server import is_upgrade, refuse_other_sites
from twisted_exec.wire.remotecommand_streams import TERMINAL

from ..stream_routes import UID_HEADER, USER_HEADER, told
from .copy import Copy
from .identity import Identity
from .objects import Held
from .place import Place
from .tokens import Claim, Tokens

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
        user, uid = told(request, USER_HEADER), told(request, UID_HEADER)
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
