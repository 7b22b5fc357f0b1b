"""
Who asks a node server, and may they: as a kubelet finds it out.

Whoever asks shows a client certificate or a bearer token.  Nobody is anonymous, and nobody
speaks for others: a root's API server does not tell for whom it asks, so a header that claims to is
thrown away before anyone could believe it.  What they may is a question about the Node (``nodes/NAME`` and
a subresource), which the root answers; answers count for ten seconds at most.

One thing is stricter than in a kubelet: whatever opens a stream is a ``create``, whatever the method.  A
WebSocket is a ``GET``, and who may only read Nodes is not to run commands on them.

Sources: ``pkg/kubelet/server/auth.go``, ``server.go`` of Kubernetes; kubernetes#136550.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.status import (
    APIError,
    Forbidden,
    InternalError,
    ServiceUnavailable,
    Unauthorized,
    one_line,
)
from twisted_exec.auth.credentials import CredentialHeaders, PresentedCredentials, check_declared
from twisted_exec.auth.interfaces import Attributes, IAuthenticator, IAuthorizer, User
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import ISessionReviewer, Subject
from twisted_exec.wire.upgrade import HeaderSet

PROXY = ("proxy",)
"""The subresource of a Node that streams and logs need."""

STREAMS = frozenset({"exec", "attach", "portforward", "run"})
"""Subresources of a Pod that open a stream."""

_SUBRESOURCES = {
    "stats": ("stats",),
    "metrics": ("metrics",),
    "pods": ("pods", *PROXY),
    "runningpods": ("pods", *PROXY),
    "healthz": ("healthz", *PROXY),
}
_VERBS = {
    b"POST": "create",
    b"GET": "get",
    b"HEAD": "get",
    b"PUT": "update",
    b"PATCH": "patch",
    b"DELETE": "delete",
}


def subresources_of(path: bytes) -> Sequence[str]:
    """What of a Node a path is about; any one of them suffices."""
    return _SUBRESOURCES.get(path.split(b"/")[1].decode("ascii", "replace"), PROXY)


def verb_of(method: bytes, subresource: str) -> str:
    """
    The verb that a request needs.

    :param subresource: of the Pod, as in :class:`~twisted_exec.streaming.interfaces.Subject`.
    """
    return "create" if subresource in STREAMS else _VERBS.get(method, "get")


@implementer(IAuthenticator)
class NamedCertificateAuthenticator:
    """
    Client certificates of some names only.

    A certificate of the same CA that has another name is not passed over but refused: whoever shows
    it is not let in as somebody else.
    """

    def __init__(self, certificates: IAuthenticator, names: Collection[str]) -> None:
        check_declared(certificates)
        self._certificates, self._names = certificates, frozenset(names)

    @property
    def credential_headers(self) -> HeaderSet:
        """As :attr:`IAuthenticator.credential_headers`."""
        headers: HeaderSet = self._certificates.credential_headers
        return headers

    def authenticate(self, credentials: PresentedCredentials) -> Deferred[User | None]:
        """As :meth:`IAuthenticator.authenticate`."""
        return self._certificates.authenticate(credentials).addCallback(self._checked)

    def _checked(self, user: User | None) -> User | None:
        if user is not None and user.name not in self._names:
            raise Unauthorized(f'certificates of "{one_line(user.name)}" are not accepted here')
        return user


@dataclass(frozen=True)
class Evidence:
    """What let a request in: a user, and the credentials that they showed."""

    user: User
    credentials: PresentedCredentials


@implementer(ISessionReviewer)
class Gate:
    """
    Authentication and authorization of every path.

    :param authenticator: knows everyone who may be known here.
    :param authorizer: knows what they may.
    """

    _log = Logger()

    def __init__(self, authenticator: IAuthenticator, authorizer: IAuthorizer) -> None:
        self._authenticator, self._authorizer = authenticator, authorizer
        # A root's API server does not say for whom it asks: a header that claims to is thrown away,
        # and so are those of impersonation.
        self.credential_headers = CredentialHeaders(authenticator, impersonation=False)
        self._problem = ""

    async def who(self, request: Request) -> User:
        """
        Who asks.  Asked again about the same request, it says the same.

        :raises Unauthorized: nobody whom we know.
        :raises ServiceUnavailable: it could not be found out.
        """
        if isinstance(request.evidence, Evidence):
            return request.evidence.user
        credentials = self.credential_headers.take_from(request)
        try:
            user: User | None = await self._authenticator.authenticate(credentials)
        except Unauthorized:
            raise
        except APIError as problem:
            self._tell(problem)
            # What the root thinks of us is nothing for whoever shows a token.
            raise ServiceUnavailable(
                "it cannot be found out now whose token this is", retry_after_seconds=1
            ) from None
        if user is None:
            raise Unauthorized
        request.evidence = Evidence(user, credentials)
        return user

    async def may(self, user: User, node: str, subresources: Sequence[str], verb: str) -> None:
        """
        :param node: the Node's name in the root; empty for all Nodes.
        :param subresources: of the Node; one that they may is enough.
        :raises Forbidden: they may none of them.
        :raises InternalError: it could not be found out.
        """
        what = (
            f"(user={one_line(user.name)}, verb={verb}, resource=nodes, "
            f"subresource(s)=[{' '.join(subresources)}])"
        )
        for subresource in subresources:
            attributes = Attributes(user, verb, "", "v1", "nodes", subresource, name=node)
            try:
                decision = await self._authorizer.authorize(attributes)
            except APIError as problem:
                self._tell(problem)
                raise InternalError(f"Authorization error {what}") from None
            self._problem = ""
            if decision.allowed:
                return
        raise Forbidden(f"Forbidden {what}", details={"name": node, "kind": "nodes"})

    def _tell(self, problem: APIError) -> None:
        """Only news: anyone may ask, as often as they like."""
        if problem.message != self._problem:
            self._log.warn("the root cannot be asked who may: {why}", why=one_line(problem.message))
        self._problem = problem.message

    def review(self, subject: Subject, evidence: object) -> Deferred[None]:
        """As :meth:`ISessionReviewer.review`; the evidence is an :class:`Evidence`."""
        assert isinstance(evidence, Evidence)
        return Deferred.fromCoroutine(self._review(subject, evidence))

    async def _review(self, subject: Subject, evidence: Evidence) -> None:
        user: User | None = await self._authenticator.authenticate(evidence.credentials)
        if user is None or user.name != evidence.user.name:
            raise Unauthorized
        await self.may(user, subject.pool, PROXY, verb_of(b"GET", subject.subresource))
