"""
Reviews of open sessions: whether their credentials and permissions still allow them.

:mod:`twisted_exec.streaming.sessions.guard` asks for the reviews, and ends the sessions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Protocol

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.status import APIError, Forbidden, NotFound, Unauthorized, one_line
from twisted_exec.auth.console_rights import SessionAccess, highest_right
from twisted_exec.auth.interfaces import Decision, PresentedCredentials, User
from twisted_exec.auth.rules import Attributes
from twisted_exec.auth.x509 import is_certified_by
from twisted_exec.streaming.evidence import SessionEvidence
from twisted_exec.streaming.interfaces import ISessionReviewer
from twisted_exec.streaming.subject import Subject
from twisted_exec.tls.server import PeerCertificate
from twisted_exec.wire.session_terms import FULL, Right, Terms

_ANOTHERS = "the credential is now another user's: log in, and open the session again"


@dataclass(frozen=True)
class Evidence(SessionEvidence):
    """
    The reason to allow a session.

    :param credentials: of the sender; at most the proxy's certificate if a proxy names the sender
        and nobody is impersonated.
    :param user: as whom the request was answered; the sender, or the user whom the sender
        impersonates.
    """

    credentials: PresentedCredentials
    sender: User
    user: User
    allowed: tuple[Attributes, ...] = ()
    console: SessionAccess | None = None


class ReviewingGate(Protocol):
    """The gate, as far as reviews need it; its methods are described there."""

    async def authenticated(self, credentials: PresentedCredentials) -> User: ...
    async def acting_user(self, credentials: PresentedCredentials, sender: User) -> User: ...
    async def decide(self, attributes: Attributes) -> Decision: ...
    def proxy_problem(self, certificate: PeerCertificate) -> str: ...
    def refused(self, attributes: Attributes, decision: Decision) -> APIError: ...


@implementer(ISessionReviewer)
class ReviewRound:
    """The reviews of one round, in which each question is asked once."""

    def __init__(self, gate: ReviewingGate) -> None:
        self._gate = gate
        self._users: dict[object, User | str] = {}  # or why the credentials are refused
        self._decisions: dict[Attributes, Decision] = {}
        self._rights: dict[object, Right | APIError] = {}
        self._proxies: dict[PeerCertificate, str] = {}

    def review(self, subject: Subject, evidence: SessionEvidence) -> Deferred[Terms]:
        assert isinstance(evidence, Evidence)
        return Deferred.fromCoroutine(self._terms(evidence))

    async def _terms(self, evidence: Evidence) -> Terms:
        """Return the present terms of a session; errors as of :meth:`ISessionReviewer.review`."""
        sender = evidence.sender
        if sender.forwarded_by is not None:  # the proxy reviews the user's credentials
            self._check_proxy(evidence.credentials.certificate)
        else:
            try:
                sender = await self.authenticated(evidence.credentials)
            except Unauthorized as error:
                raise _distrusted(evidence) or error from None
        if not _is_same(sender, evidence.sender):
            raise Forbidden(_ANOTHERS)
        try:
            user = await self._gate.acting_user(evidence.credentials, sender)
            if not _is_same(user, evidence.user):
                raise Forbidden(_ANOTHERS)
            for attributes in evidence.allowed:
                if attributes.user is evidence.user:
                    attributes = replace(attributes, user=user)
                decision = await self.decide(attributes)
                if not decision.allows_everything:
                    raise self.refused(attributes, decision)
            if evidence.console is None:
                return FULL
            return await evidence.console.review(self, user)
        except NotFound as error:  # hidden: withdrawn as well
            raise Forbidden(error.message) from None

    async def authenticated(self, credentials: PresentedCredentials) -> User:
        key = credentials.key()
        if key is None:
            return await self._gate.authenticated(credentials)
        user = self._users.get(key)
        if user is None:
            try:
                user = await self._gate.authenticated(credentials)
            except Unauthorized as error:
                user = error.message
            self._users[key] = user
        if isinstance(user, str):
            raise Unauthorized(user)
        return user

    async def decide(self, attributes: Attributes) -> Decision:
        decision = self._decisions.get(attributes)
        if decision is None:
            decision = self._decisions[attributes] = await self._gate.decide(attributes)
        return decision

    async def highest_right(self, console: Attributes, refusal: Attributes, wanted: Right) -> Right:
        key = (console, refusal, wanted)
        right = self._rights.get(key)
        if right is None:
            try:
                right = await highest_right(self, console, refusal, wanted)
            except (Forbidden, NotFound) as error:
                right = error
            self._rights[key] = right
        if isinstance(right, APIError):
            raise right.with_traceback(None)  # otherwise it grows with each session
        return right

    def _check_proxy(self, certificate: PeerCertificate | None) -> None:
        if certificate is None:
            return
        problem = self._proxies.get(certificate)
        if problem is None:
            problem = self._proxies[certificate] = self._gate.proxy_problem(certificate)
        if problem:
            raise Unauthorized(problem)

    def refused(self, attributes: Attributes, decision: Decision) -> APIError:
        return self._gate.refused(attributes, decision)


def _distrusted(evidence: Evidence) -> Unauthorized | None:
    certificate = evidence.credentials.certificate
    if certificate is None or not is_certified_by(evidence.sender, certificate):
        return None
    if evidence.expires <= time.time():
        return None
    # A CA and the next one may have the same name, so the user also reads which certificate it is.
    since = certificate.leaf.not_valid_before_utc.date().isoformat()
    return Unauthorized(
        f'the CA "{one_line(certificate.authority)}" of this user\'s certificate (valid since {since}) is '
        "not trusted any more; open the console with a certificate of a present CA"
    )


def _is_same(now: User, before: User) -> bool:
    """Compare names, and UIDs where both are known: a name may belong to a new account."""
    return now.name == before.name and (not now.uid or not before.uid or now.uid == before.uid)
