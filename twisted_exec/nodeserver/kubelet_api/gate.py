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
from twisted_exec.auth.credentials import PresentedCredentials, check_declared
from twisted_exec.auth.gate import Gate, GatePolicy, Impersonation
from twisted_exec.auth.interfaces import Attributes, IAuthenticator, IAuthorizer, User
from twisted_exec.streaming.context import RequestContext
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


class NodeAccess:
    """
    What a node server allows: its gate, and the permissions on Nodes.

    :param authenticator: knows everyone who may be known here.
    :param authorizer: knows what they may.
    """

    _log = Logger()

    def __init__(self, authenticator: IAuthenticator, authorizer: IAuthorizer) -> None:
        # A root's API server does not say for whom it asks: a header that claims to is thrown away,
        # and so are those of impersonation.  Browsers do not come here.
        policy = GatePolicy(
            impersonation=Impersonation.DROPPED, allowed_origins=None, outage=self._outage
        )
        self.gate = Gate(authenticator, authorizer, policy)
        self._problem = ""

    def _outage(self, problem: APIError) -> APIError:
        self._warn(problem)
        # What the root thinks of us is not the business of a client with a token.
        return ServiceUnavailable(
            "it cannot be found out now whose token this is", retry_after_seconds=1
        )

    async def authorize(
        self, user: User, node: str, subresources: Sequence[str], verb: str
    ) -> Attributes:
        """
        Check a permission on a Node.

        :param node: the Node's name in the root; empty for all Nodes.
        :param subresources: of the Node; one that the user may is enough.
        :return: the permission that the user has.
        :raises Forbidden: the user has none of them.
        :raises InternalError: it could not be found out.
        """
        what = (
            f"(user={one_line(user.name)}, verb={verb}, resource=nodes, "
            f"subresource(s)=[{' '.join(subresources)}])"
        )
        for subresource in subresources:
            attributes = Attributes(user, verb, "", "v1", "nodes", subresource, name=node)
            try:
                decision = await self.gate.decide(attributes)
            except APIError as problem:
                self._warn(problem)
                raise InternalError(f"Authorization error {what}") from None
            self._problem = ""
            if decision.allows_everything:
                return attributes
        raise Forbidden(f"Forbidden {what}", details={"name": node, "kind": "nodes"})

    async def authorize_session(self, context: RequestContext, node: str) -> None:
        """Check the permission of a session, as :meth:`authorize`, and keep it for its reviews."""
        verb = verb_of(context.request.method, context.subject.subresource)
        self.gate.allow(context, await self.authorize(context.user, node, PROXY, verb))

    def _warn(self, problem: APIError) -> None:
        """Log an outage once: clients may come as often as they like."""
        if problem.message != self._problem:
            self._log.warn("the root cannot be asked who may: {why}", why=one_line(problem.message))
        self._problem = problem.message
