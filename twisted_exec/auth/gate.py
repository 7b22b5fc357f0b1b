"""
The gate of a program: authentication, impersonation and authorization.

A request with ``Impersonate-User`` (``kubectl --as``) may be handled as that user, if the sender
may ``impersonate`` each part of the identity.

:mod:`twisted_exec.auth.session_review` asks the gate again while a session is open.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache
from urllib.parse import urlencode

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.declared_reasons import REASON_HEADER, reason_of_headers
from twisted_exec.api.status import APIError, Forbidden, Unauthorized
from twisted_exec.auth.console_rights import ConsoleAccess, SessionAccess, highest_right
from twisted_exec.auth.credentials import CredentialHeaders, files_of
from twisted_exec.auth.errors import forbidden, hidden, role_to_read
from twisted_exec.auth.impersonation import impersonation
from twisted_exec.auth.interfaces import (
    NO_CREDENTIALS,
    Decision,
    IAuthenticator,
    IAuthorizer,
    IProxyAuthenticator,
    IVisibility,
    PresentedCredentials,
    User,
)
from twisted_exec.auth.rules import Attributes
from twisted_exec.auth.session_review import Evidence, ReviewRound
from twisted_exec.streaming.context import RequestContext, RequestIdentity
from twisted_exec.streaming.evidence import SessionEvidence
from twisted_exec.streaming.http.cross_site import refuse_other_sites
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import IRoundReviewer, ISessionReviewer
from twisted_exec.streaming.sessions.hop_messages import (
    forwarded_machine_uid,
    forwarded_session_id,
    forwarded_terms,
    terms_headers,
)
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.sessions.resume_headers import rejoin_headers
from twisted_exec.streaming.subject import Subject
from twisted_exec.tls.files import Replaceable
from twisted_exec.tls.server import PeerCertificate
from twisted_exec.wire.session_terms import Right, Terms

_PROXIES = 256


class ImpersonationPolicy(Enum):
    """The treatment of ``Impersonate-`` headers."""

    CHECKED = auto()
    """The user of the headers, if the sender may act as that user."""
    REFUSED = auto()
    """
    403: only an API server knows this right, and to ignore the headers would answer as the sender.

    With ``proxy_is_caller`` a proxy's request passes, since the proxy has judged the headers.
    """
    DROPPED = auto()
    """The headers are taken away unread."""


@dataclass(frozen=True)
class GatePolicy:
    """
    The settings of one program's gate.

    :param allowed_origins: sites besides this server's own whose pages may send requests; ``None``
        for all.
    :param judges: names of users that are servers and check the origin of requests themselves.
    :param accepts_session: whether a caller may bring the id of the session.
    :param callers_name_no_user: callers pass on headers of their users, but no names.
    """

    impersonation: ImpersonationPolicy = ImpersonationPolicy.CHECKED
    allowed_origins: Collection[bytes] | None = ()
    judges: Collection[str] = ()
    proxy_is_caller: bool = False
    accepts_session: Callable[[str], bool] | None = None
    outage: Callable[[APIError], APIError] | None = None
    callers_name_no_user: bool = False


def users_of(sessions: Sessions) -> Iterator[User]:
    """Yield the users whose permissions allow the open sessions."""
    for session in sessions.live():
        evidence = session.evidence
        if isinstance(evidence, Evidence):
            for attributes in evidence.allowed:
                yield attributes.user
            if isinstance(evidence.console, ConsoleAccess):
                yield evidence.console.permission.user


@implementer(IRoundReviewer)
class Gate:
    """Authentication and authorization of one program."""

    _log = Logger()

    def __init__(
        self,
        authenticator: IAuthenticator,
        authorizer: IAuthorizer,
        policy: GatePolicy | None = None,
    ) -> None:
        self._authenticator, self._authorizer = authenticator, authorizer
        self.policy = policy or GatePolicy()
        reads = self.policy.impersonation is not ImpersonationPolicy.DROPPED
        self.credential_headers = CredentialHeaders(authenticator, impersonation=reads)

    def files(self) -> list[Replaceable]:
        """Return the files that decide about users."""
        return files_of([self._authenticator, self._authorizer])

    async def identify(self, context: RequestContext) -> None:
        """
        Find out as whom a request is answered, and fill in the context.

        :raises Unauthorized: no credential, or an invalid one.
        :raises Forbidden: the sender may not act as that user, or the page of another site may have
            sent the request.
        :raises APIError: the request is refused for another reason.
        """
        began = time.monotonic()
        reason = context.request.requestHeaders.getRawHeaders(REASON_HEADER, ())
        terms = terms_headers(context.request)
        machine_uid = forwarded_machine_uid(context.request)
        rejoin = b"".join(rejoin_headers(context.request)[-1:])
        credentials = self.credential_headers.take_from(context.request)
        sender = await self.sender(context.request)
        if credentials.impersonates:
            context.learn(user=sender.name)  # for the record of a refusal
        user = await self.acting_user(credentials, sender)
        facts = {"user": user.name}
        identity = RequestIdentity(user)
        if user is not sender:
            identity = RequestIdentity(user, sender)
            facts["extra"] = urlencode(sorted(user.extra.items()), doseq=True, safe="/:@")
        elif self.policy.proxy_is_caller and sender.forwarded_by is not None:
            identity = RequestIdentity(user, sender.forwarded_by, rejoin)
            facts["uid"] = machine_uid
        context.identity, caller = identity, identity.caller
        if caller is not None:
            facts |= {"caller": caller.name, "session": self._session_of(context)}
        if sender.forwarded_by is not None:
            # Not known before: only a trusted proxy may report another address than its own.
            facts["address"] = context.request.client_host
        context.learn(**facts)
        acts_for_user = caller is not None or sender.forwarded_by is not None
        if reason and (acts_for_user or self.policy.callers_name_no_user):
            context.learn(reason=reason_of_headers(reason))
        if sender.forwarded_by is not None and not credentials.impersonates:
            credentials = self._proxy_credentials(credentials.certificate)
        # The cached answer of a token review may outlast the token; the reviews end such a session.
        expires = sender.expires if sender.expires > time.time() else math.inf
        context.evidence = Evidence(credentials, sender, user, expires=expires, began=began)
        context.ceiling = forwarded_terms(terms)

    async def sender(self, request: Request) -> User:
        """Return who sent a request, whomever they act as; errors as :meth:`identify`."""
        credentials = self.credential_headers.take_from(request)
        sender = await self.authenticated(credentials)
        request.is_forwarded = sender.forwarded_by is not None
        self._check_origin(request, credentials, sender)
        return sender

    def caller_of(self, request: Request) -> Deferred[str]:
        """Fire with the name of the sender, for a request to end or change their own session."""

        async def name() -> str:
            return (await self.sender(request)).name

        return Deferred.fromCoroutine(name())

    async def authenticated(self, credentials: PresentedCredentials) -> User:
        """
        Return the user of credentials.

        :raises Unauthorized: they are missing or invalid.
        :raises APIError: the user is not known now.
        """
        try:
            user: User | None = await self._authenticator.authenticate(credentials)
        except Unauthorized:
            raise
        except APIError as problem:
            if self.policy.outage is None:
                raise
            raise self.policy.outage(problem) from None
        if user is None:
            raise Unauthorized
        return user

    def _check_origin(
        self, request: Request, credentials: PresentedCredentials, sender: User
    ) -> None:
        policy = self.policy
        if policy.allowed_origins is None or credentials.token_in_header:
            return
        if sender.name in policy.judges or (policy.proxy_is_caller and sender.forwarded_by):
            return
        refuse_other_sites(
            request,
            policy.allowed_origins,
            has_ambient_credentials=credentials.sent_unasked,
        )

    async def acting_user(self, credentials: PresentedCredentials, sender: User) -> User:
        """
        Return as whom a sender acts.

        :raises APIError: the sender may not act as that user.
        """
        if not credentials.impersonates:
            return sender
        if self.policy.impersonation is ImpersonationPolicy.REFUSED:
            if self.policy.proxy_is_caller and sender.forwarded_by is not None:
                return sender  # the proxy has judged that
            raise Forbidden(
                "this server accepts no impersonation (kubectl --as): send the request to the API server"
            )
        requested = impersonation(credentials.headers, sender)
        if requested is None:
            return sender
        for permission in requested.needs:
            await self.authorize(permission)
        user = requested.user
        self._log.debug("{sender!r} acts as {user!r}", sender=sender.name, user=user.name)
        return user

    def _session_of(self, context: RequestContext) -> str:
        accepts = self.policy.accepts_session
        session = forwarded_session_id(context.request)
        if accepts is None or session is None or not accepts(session):
            return context.subject.session
        return session

    async def decide(self, attributes: Attributes) -> Decision:
        decision: Decision = await self._authorizer.authorize(attributes)
        return decision

    async def highest_right(self, console: Attributes, refusal: Attributes, wanted: Right) -> Right:
        return await highest_right(self, console, refusal, wanted)

    async def authorize(self, attributes: Attributes) -> None:
        """
        Make sure that a request is allowed, for every object.

        :raises Forbidden: it is not allowed.
        :raises NotFound: it is not allowed, and the user may not know that the object exists.
        :raises APIError: no decision is possible now.
        """
        decision = await self.decide(attributes)
        if not decision.allows_everything:
            raise self.refused(attributes, decision)

    async def authorize_visible(self, attributes: Attributes) -> IVisibility | None:
        """
        Make sure that a request for stored objects is allowed; errors as :meth:`authorize`.

        :return: the objects that it is allowed for, which the caller must apply; ``None`` for all.
        """
        decision = await self.decide(attributes)
        if decision.allowed:
            return decision.visibility
        raise self.refused(attributes, decision)

    def refused(self, attributes: Attributes, decision: Decision) -> APIError:
        """Return the error for a refusal: 403, or 404 if the user may not know of the object."""
        if decision.hidden:
            return hidden(attributes, decision.reason)
        if decision.allowed:
            return forbidden(attributes, "it is allowed for some objects only")
        remedy = "" if decision.reason else role_to_read(attributes)
        lacking = None if decision.never else decision.lacking or attributes.user.name
        return forbidden(attributes, decision.reason, remedy, lacking=lacking)

    async def authorize_session(self, context: RequestContext, *permissions: Attributes) -> None:
        """
        Check the permissions of a session, and keep them for reviews; errors as :meth:`authorize`.
        """
        for attributes in permissions:
            await self.authorize(attributes)
        self.allow(context, *permissions)

    async def authorize_console(
        self, context: RequestContext, access: ConsoleAccess, *permissions: Attributes
    ) -> Right:
        """
        Check a user's access to a console, and further permissions, and keep them for reviews.
        """
        right = await access.opening(self)
        await self.authorize_session(context, *permissions)
        self.allow_console(context, access)
        return right

    def allow_console(self, context: RequestContext, access: SessionAccess) -> None:
        """
        Keep the access to a console for reviews.

        It replaces what :meth:`authorize_console` has kept, once the conditions of the session are
        known.
        """
        assert isinstance(context.evidence, Evidence)
        context.evidence = replace(context.evidence, console=access)

    def allow(self, context: RequestContext, *permissions: Attributes) -> None:
        """
        Keep the permissions of a session for reviews.

        The admission, which knows them, works after :meth:`identify`, which made the evidence.
        """
        assert isinstance(context.evidence, Evidence)
        context.evidence = replace(context.evidence, allowed=permissions)

    def review(self, subject: Subject, evidence: SessionEvidence) -> Deferred[Terms]:
        return self.for_round().review(subject, evidence)

    def for_round(self) -> ISessionReviewer:
        return ReviewRound(self)

    def _proxy_credentials(self, certificate: PeerCertificate | None) -> PresentedCredentials:
        """
        Return the proxy's credentials for reviews of a session; the proxy itself reviews its users.
        """
        if certificate is None or self.proxy_problem(certificate):
            return NO_CREDENTIALS
        return _shared_credentials(certificate)

    def proxy_problem(self, certificate: PeerCertificate) -> str:
        """Return why a proxy is not trusted any more; empty if it is."""
        if not IProxyAuthenticator.providedBy(self._authenticator):
            return ""
        return IProxyAuthenticator(self._authenticator).proxy_problem(certificate)


@lru_cache(maxsize=_PROXIES)
def _shared_credentials(certificate: PeerCertificate) -> PresentedCredentials:
    return PresentedCredentials(certificate)
