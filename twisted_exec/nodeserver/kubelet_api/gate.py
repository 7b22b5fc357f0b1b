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

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

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
from twisted_exec.streaming.interfaces import Subject
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
class _Asking:
    """Who asks, and by what."""

    user: User
    credentials: PresentedCredentials


class Gate:
    """
    Authentication and authorization of every path.

    It remembers who opened each session, to ask again (:meth:`review`).

    :param authenticator: knows everyone who may be known here.
    :param authorizer: knows what they may.
    """

    _log = Logger()

    def __init__(self, authenticator: IAuthenticator, authorizer: IAuthorizer) -> None:
        self._authenticator, self._authorizer = authenticator, authorizer
        # A root's API server does not say for whom it asks: a header that claims to is thrown away,
        # and so are those of impersonation.
        self.credential_headers = CredentialHeaders(authenticator, impersonation=False)
        self._askings: dict[str, _Asking] = {}
        self._answering: set[str] = set()
        self._problem = ""

    async def who(self, request: Request) -> User:
        """
        Who asks.  Asked again about the same request, it says the same.

        :raises Unauthorized: nobody whom we know.
        :raises ServiceUnavailable: it could not be found out.
        """
        known = self._askings.get(request.subject.session)
        if known is not None:
            return known.user
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
        self._askings[request.subject.session] = _Asking(user, credentials)
        return user

    @contextmanager
    def answering(self, request: Request, is_live: Callable[[str], bool]) -> Iterator[None]:
        """
        Meanwhile it is not forgotten who asks, though there is no session yet; afterwards it is at
        once where there is none: what was shown holds its connection's memory.

        :param is_live: tells whether there is a session of an id.
        """
        session = request.subject.session
        self._answering.add(session)
        try:
            yield
        finally:
            self._answering.discard(session)
            if not is_live(session):
                self._askings.pop(session, None)

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

    async def review(self, subject: Subject) -> None:
        """
        Ask again whether a session may be.

        :raises Unauthorized: its user is not known any more, or is somebody else by now.
        :raises Forbidden: its user may not any more.
        :raises APIError: it could not be found out.
        """
        asking = self._askings.get(subject.session)
        if asking is None:
            return
        user: User | None = await self._authenticator.authenticate(asking.credentials)
        if user is None or user.name != asking.user.name:
            raise Unauthorized
        self._askings[subject.session] = replace(asking, user=user)
        await self.may(user, subject.pool, PROXY, verb_of(b"GET", subject.subresource))

    def forget_all_but(self, sessions: Iterable[str]) -> None:
        """Only these sessions are left, and what is being answered."""
        live = self._answering.union(sessions)
        for session in [session for session in self._askings if session not in live]:
            del self._askings[session]
