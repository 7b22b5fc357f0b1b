"""
Access to the consoles of a pool.

A user whom a trusted proxy forwards needs a right at the console of that machine
(:mod:`twisted_exec.auth.console_rights`), and the proxy needs ``create`` on ``machinepools/proxy``
of this pool; a user without a proxy needs both. An API server that forwards no users can be
configured to need only the latter.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLERECORDINGS, DELETEDCONSOLES
from twisted_exec.auth.credentials import UnionAuthenticator
from twisted_exec.auth.gate import Gate, GatePolicy, ImpersonationPolicy
from twisted_exec.auth.interfaces import IAuthenticator, IAuthorizer
from twisted_exec.auth.request_header import RequestHeaderAuthenticator
from twisted_exec.auth.rules import Attributes
from twisted_exec.auth.subresources import EXEC, LOG, RECORDING, SCREEN
from twisted_exec.streaming.context import RequestContext

_SUBRESOURCES = {each.name: each for each in (EXEC, LOG, SCREEN, RECORDING)}
_OTHER_RESOURCES = {
    kind.resource.qualified: kind.resource for kind in (DELETEDCONSOLES, CONSOLERECORDINGS)
}
"""Objects that are not machines, whose subresource users read."""


@dataclass(frozen=True)
class PoolAccess:
    """
    The permissions that sessions need.

    :param pool_proxy_suffices: names of users that need no permission on the machine.
    :param strict_verbs: see :mod:`twisted_exec.auth.console_rights`.
    """

    dialect: Dialect
    pool: str
    pool_proxy_suffices: Collection[str] = ()
    strict_verbs: bool = False

    def permissions(self, context: RequestContext) -> tuple[Attributes, ...]:
        """
        Return the permissions that a session needs.

        The caller, or a user without one, needs the permission on the pool; a server that is its
        own user (:meth:`is_server`) needs nothing else.
        """
        if self.is_server(context):
            return (self.proxy(context),)
        return (self.machine(context), self.proxy(context))

    def is_server(self, context: RequestContext) -> bool:
        """Return whether the request is an API server's own, without a user."""
        return context.caller is None and context.user.name in self.pool_proxy_suffices

    def proxy(self, context: RequestContext) -> Attributes:
        dialect = self.dialect
        return Attributes(
            context.caller or context.user,
            "create",
            dialect.group,
            dialect.version,
            dialect.pool.plural,
            dialect.proxy_subresource,
            name=self.pool,
        )

    def machine(self, context: RequestContext) -> Attributes:
        dialect, subject = self.dialect, context.subject
        what = _SUBRESOURCES[subject.subresource]
        resource = _OTHER_RESOURCES.get(subject.resource, dialect.workload)
        return Attributes(
            context.user,
            what.verb,
            resource.group,
            resource.version,
            resource.plural,
            what.permission,
            subject.namespace,
            subject.machine,
        )


def gate_of(
    access: PoolAccess,
    proxies: RequestHeaderAuthenticator | None,
    direct: Sequence[IAuthenticator],
    authorizer: IAuthorizer,
    allowed_origins: Collection[bytes] = (),
) -> Gate:
    """
    Create the gate of a poollet.

    :param proxies: authenticates users whom a trusted proxy forwards.
    """
    policy = GatePolicy(
        impersonation=ImpersonationPolicy.REFUSED,
        allowed_origins=allowed_origins,
        judges=access.pool_proxy_suffices,
        proxy_is_caller=True,
        accepts_session=lambda session: True,
    )
    first = [] if proxies is None else [proxies]
    return Gate(UnionAuthenticator([*first, *direct]), authorizer, policy)
