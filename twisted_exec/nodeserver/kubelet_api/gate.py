"""
Authentication and authorization of requests to a node server, as in a kubelet.

Clients present a client certificate or a bearer token; there are no anonymous requests. Headers
that claim to name the user are dropped. Permissions are those for the Node (``nodes/NAME`` and a
subresource), which the root decides.

A request that opens a stream needs ``create``, whatever its method: a user who may only read Nodes
must not run commands on them.

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
from twisted_exec.auth.credentials import check_declared, files_of
from twisted_exec.auth.gate import Gate, GatePolicy, ImpersonationPolicy
from twisted_exec.auth.interfaces import IAuthenticator, IAuthorizer, PresentedCredentials, User
from twisted_exec.auth.rules import Attributes
from twisted_exec.streaming.context import RequestContext
from twisted_exec.tls.files import Replaceable
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
    """
    Return the subresources of the Node that a path needs; permission for any of them suffices.
    """
    return _SUBRESOURCES.get(path.split(b"/")[1].decode("ascii", "replace"), PROXY)


def verb_of(method: bytes, subresource: str) -> str:
    """
    Return the verb that a request needs.

    :param subresource: of the Pod, as in :class:`~twisted_exec.streaming.subject.Subject`.
    """
    return "create" if subresource in STREAMS else _VERBS.get(method, "get")


@implementer(IAuthenticator)
class NamedCertificateAuthenticator:
    """
    Accepts client certificates with certain names only.

    A certificate of the same CA with another name is refused, not skipped: its owner must not get
    in with other credentials of the same request.
    """

    def __init__(self, certificates: IAuthenticator, names: Collection[str]) -> None:
        check_declared(certificates)
        self._certificates, self._names = certificates, frozenset(names)

    @property
    def credential_headers(self) -> HeaderSet:
        headers: HeaderSet = self._certificates.credential_headers
        return headers

    def files(self) -> list[Replaceable]:
        return files_of([self._certificates])

    def authenticate(self, credentials: PresentedCredentials) -> Deferred[User | None]:
        return self._certificates.authenticate(credentials).addCallback(self._checked)

    def _checked(self, user: User | None) -> User | None:
        if user is not None and user.name not in self._names:
            raise Unauthorized(f'certificates of "{one_line(user.name)}" are not accepted here')
        return user


class NodeAccess:
    """The gate of a node server, and the permissions on Nodes."""

    _log = Logger()

    def __init__(self, authenticator: IAuthenticator, authorizer: IAuthorizer) -> None:
        # A root's API server does not name its user: headers that claim to are dropped, as are
        # those of impersonation. It passes on the Origin of its users' browsers, which is a site of
        # the root's and not of ours, so no Origin is refused.
        policy = GatePolicy(
            impersonation=ImpersonationPolicy.DROPPED,
            allowed_origins=None,
            outage=self._outage,
            callers_name_no_user=True,
        )
        self.gate = Gate(authenticator, authorizer, policy)
        self._problem = ""

    def _outage(self, problem: APIError) -> APIError:
        self._warn(problem)
        # The root's message about our own credentials is not for a client with a token.
        return ServiceUnavailable(
            "the owner of this token cannot be determined now",
            retry_after_seconds=problem.retry_after_seconds or 1,
        )

    async def authorize(
        self, user: User, node: str, subresources: Sequence[str], verb: str
    ) -> Attributes:
        """
        Check a permission on a Node.

        :param subresources: of the Node; permission for one suffices.
        :raises Forbidden: the user has none of them.
        :raises InternalError: the root gave no decision.
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
        # Without the Node's name, which is known only of Pods that exist.
        raise Forbidden(f"Forbidden {what}", details={"kind": "nodes"})

    async def authorize_session(self, context: RequestContext, node: str) -> None:
        verb = verb_of(context.request.method, context.subject.subresource)
        self.gate.allow(context, await self.authorize(context.user, node, PROXY, verb))

    def _warn(self, problem: APIError) -> None:
        if problem.message != self._problem:
            self._log.warn("the root does not answer reviews: {why}", why=one_line(problem.message))
        self._problem = problem.message
