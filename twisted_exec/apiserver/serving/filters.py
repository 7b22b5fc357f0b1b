"""
What stands before every request: who, may they, and are there too many.

Authentication comes first and without it nothing is said, not even whether a
path exists.  Whoever asks to act as someone else is that someone from then on.
Authorization follows as soon as it is known what is asked for.
"""

from __future__ import annotations

import ipaddress
import json
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import cast
from urllib.parse import unquote_to_bytes

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.logger import Logger

from twisted_exec.api.kinds import NAMESPACES
from twisted_exec.api.selectors import EVERYTHING, FieldSelector
from twisted_exec.api.status import Forbidden, NotFound, TooManyRequests, Unauthorized
from twisted_exec.apiserver.serving.query import Query
from twisted_exec.apiserver.serving.verbs import Target
from twisted_exec.auth.credentials import CredentialHeaders, PresentedCredentials
from twisted_exec.auth.impersonation import impersonation
from twisted_exec.auth.interfaces import (
    Attributes,
    Decision,
    IAuthenticator,
    IAuthorizer,
    User,
)
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_server import refuse_other_sites


class APIRequest(Request):
    """
    A request whose user is known once :meth:`Gate.authenticate` has passed it.

    :ivar sender: the user who sent it, once known; ``requester`` may be another, by impersonation.
    """

    requester: User
    sender: User | None = None
    target: Target

    def process(self) -> None:
        # twisted.web leaves out of ``args`` what has no equals sign, such as ``?watch``.
        for item in self.uri.partition(b"?")[2].split(b"&"):
            if item and b"=" not in item:
                self.args.setdefault(unquote_to_bytes(item), [b""])
        super().process()

    def getClientAddress(self) -> IAddress:
        """The user's; a proxy that is trusted with who they are is with where they are as well."""
        address: IAddress = super().getClientAddress()
        if self.sender is None or self.sender.forwarded_by is None:
            return address
        lines = self.requestHeaders.getRawHeaders(b"x-forwarded-for", [b""])
        # What came before is what the user said; the proxy has added the last.
        told = lines[-1].rpartition(b",")[2].strip().decode("ascii", "replace")
        try:
            version = ipaddress.ip_address(told).version
        except ValueError:
            return address
        return IPv4Address("TCP", told, 0) if version == 4 else IPv6Address("TCP", told, 0)

    @property
    def pretty(self) -> bool:
        """Whether JSON is to be laid out for people: ``?pretty=true``."""
        return Query(self.args or {}).flag("pretty")

    def laid_out(self, body: bytes, content_type: str) -> bytes:
        """As :meth:`Request.laid_out`."""
        if not self.pretty or not content_type.startswith("application/json"):
            return body
        return json.dumps(json.loads(body), indent=2).encode() + b"\n"


class Gate:
    """
    Who is asking, and may they.

    :param allowed_origins: sites besides this server's own whose pages may ask.
    """

    _log = Logger()

    def __init__(
        self,
        authenticator: IAuthenticator,
        authorizer: IAuthorizer,
        allowed_origins: Collection[bytes] = (),
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._allowed_origins = allowed_origins
        self.credential_headers = CredentialHeaders(authenticator, impersonation=True)

    async def authenticate(self, request: Request) -> User:
        """
        Whom the request is to be answered as.

        :raises Unauthorized: nobody is known by the credentials given, or none are.
        :raises Forbidden: they may not act as the one they ask to be; or it is not
            they who ask, but a page in their browser.
        """
        return await self.acting(request, await self.sender(request))

    async def sender(self, request: Request) -> User:
        """
        Who has sent the request, whomever they act as; errors as :meth:`authenticate`.

        For whoever must know both; then :meth:`acting` is not to be forgotten.
        """
        credentials = self.credential_headers.take_from(request)
        user = await self._authenticated(credentials)
        cast(APIRequest, request).sender = user
        if not credentials.token_in_header:
            unasked = credentials.sent_unasked
            refuse_other_sites(request, self._allowed_origins, sent_unasked=unasked)
        return user

    async def _authenticated(self, credentials: PresentedCredentials) -> User:
        user: User | None = await self._authenticator.authenticate(credentials)
        if user is None:
            raise Unauthorized()
        return user

    async def review(self, credentials: PresentedCredentials, sender: User | None = None) -> User:
        """
        As :meth:`authenticate`, for the credentials of an open session.

        :param sender: the user whom a proxy named when the session was opened.  Whether they are
            still who the proxy said is for the proxy to find out.
        """
        if sender is None or sender.forwarded_by is None:
            sender = await self._authenticated(credentials)
        return await self._acting(credentials, sender)

    def caller_of(self, request: Request) -> Deferred[str]:
        """
        Who may end the sessions that they opened, for themselves or for others.

        :return: fires with the name, or fails as :meth:`sender`.
        """

        async def name() -> str:
            return (await self.sender(request)).name

        return Deferred.fromCoroutine(name())

    async def acting(self, request: Request, sender: User) -> User:
        """
        The one as whom ``sender`` asks to act, or ``sender``.

        :raises Forbidden: they may not.
        :raises APIError: what they ask for makes no sense.
        """
        return await self._acting(self.credential_headers.take_from(request), sender)

    async def _acting(self, credentials: PresentedCredentials, sender: User) -> User:
        asked = impersonation(credentials.headers, sender)
        if asked is None:
            return sender
        for need in asked.needs:
            await self.authorize(need)
        self._log.debug("{sender!r} acts as {user!r}", sender=sender.name, user=asked.user.name)
        return asked.user

    async def authorize(self, attributes: Attributes) -> Decision:
        """
        Make sure that a request is allowed.

        :return: the decision; its visibility must be applied to the objects of the answer.
        :raises Forbidden: it is not allowed.
        :raises NotFound: it is not allowed, and the user may not know that the object exists.
        """
        decision = await self.decide(attributes)
        if decision.allowed:
            return decision
        if decision.hidden:
            raise hidden(attributes, decision.reason)
        raise forbidden(attributes, decision.reason)

    async def decide(self, attributes: Attributes) -> Decision:
        """Return the decision on a request, for a review of what somebody else may do."""
        decision: Decision = await self._authorizer.authorize(attributes)
        return decision

    async def authorize_target(self, user: User, verb: str, target: Target) -> Attributes:
        """
        As :meth:`authorize`, for a verb on an object or a collection.

        :return: what was allowed.
        """
        asked = attributes_of(user, verb, target)
        await self.authorize(asked)
        return asked


def attributes_of(
    user: User, verb: str, target: Target, field_selector: FieldSelector = EVERYTHING
) -> Attributes:
    """Return what an authorizer is asked about a verb on a target."""
    resource = target.kind.resource
    # As in Kubernetes, a namespace lies within itself, so its own roles can show it.
    own = target.name if target.kind is NAMESPACES else ""
    return Attributes(
        user=user,
        verb=verb,
        group=resource.group,
        version=resource.version,
        resource=resource.plural,
        subresource=target.subresource,
        namespace=target.namespace or own,
        name=target.name,
        field_selector=field_selector,
    )


def hidden(asked: Attributes, reason: str) -> NotFound:
    """What there is not and what may not be seen, told alike."""
    qualified = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    because = f": {reason}" if reason else ""
    told = f'{qualified} "{asked.name}" not found{because}'
    return NotFound(asked.resource, asked.name, asked.group, told)


def forbidden(asked: Attributes, reason: str) -> Forbidden:
    """The refusal, worded as Kubernetes words it."""
    told = f": {reason}" if reason else ""
    user = f'User "{asked.user.name}" cannot {asked.verb}'
    if not asked.resource:
        return Forbidden(f'forbidden: {user} path "{asked.path}"{told}')
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    scope = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    qualified = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    named = f'{qualified} "{asked.name}"' if asked.name else qualified
    return Forbidden(
        f'{named} is forbidden: {user} resource "{resource}" in API group "{asked.group}" '
        f"{scope}{told}",
        details={"name": asked.name, "group": asked.group, "kind": asked.resource},
    )


class Limits:
    """
    How many requests are answered at once.

    Short ones are counted apart from long ones, so that watches cannot keep
    anyone from a quick answer.  A short one may take long, too, when the host's reviews or
    admission do; so no user has more than a part of them.  Whoever sits behind one proxy is counted by
    who they are.

    :param short: in all.
    :param long: in all.
    :param long_per_user: of one user.
    :param short_per_user: of one user.
    """

    def __init__(
        self,
        short: int = 400,
        long: int = 4000,
        long_per_user: int = 1000,
        short_per_user: int = 200,
    ) -> None:
        self._short, self._long, self._long_per_user = short, long, long_per_user
        self._short_per_user = short_per_user
        self._short_now: Counter[str] = Counter()
        self._long_now: Counter[str] = Counter()

    @contextmanager
    def short(self, user: User) -> Iterator[None]:
        """
        While a short request is answered.

        :raises TooManyRequests: too many are, in all or of this user.
        """
        mine = self._short_now[user.name]
        if self._short_now.total() >= self._short:
            raise TooManyRequests("Too many requests, please try again later.")
        if mine >= self._short_per_user:
            raise TooManyRequests(
                f'Too many requests: user "{user.name}" has {mine} at once, please try again later.'
            )
        with _counted(self._short_now, user):
            yield

    @contextmanager
    def long(self, user: User) -> Iterator[None]:
        """
        While a watch runs.

        :raises TooManyRequests: too many do, in all or of this user.
        """
        mine = self._long_now[user.name]
        if mine >= self._long_per_user or self._long_now.total() >= self._long:
            raise TooManyRequests(
                f'Too many watches: user "{user.name}" has {mine}', retry_after_seconds=10
            )
        with _counted(self._long_now, user):
            yield


@contextmanager
def _counted(now: Counter[str], user: User) -> Iterator[None]:
    now[user.name] += 1
    try:
        yield
    finally:
        now[user.name] -= 1
        if not now[user.name]:
            del now[user.name]
