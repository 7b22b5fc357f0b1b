"""
The kinds that the API server serves, one definition each.
"""

from collections.abc import Iterator, Sequence

from twisted_exec.api.dialects import DEFAULT, Dialect
from twisted_exec.api.kinds import ipam, networks, routing, storage
from twisted_exec.api.kinds.certificates import CERTIFICATESIGNINGREQUESTS
from twisted_exec.api.kinds.clusterprofiles import CLUSTERPROFILES
from twisted_exec.api.kinds.consolealerts import CONSOLEALERTS
from twisted_exec.api.kinds.consolepolicies import CONSOLEPOLICIES
from twisted_exec.api.kinds.consolerecordings import CONSOLERECORDINGS
from twisted_exec.api.kinds.consolerequests import CONSOLEREQUESTS
from twisted_exec.api.kinds.consolesessions import CONSOLESESSIONS
from twisted_exec.api.kinds.deletedconsoles import DELETEDCONSOLES
from twisted_exec.api.kinds.events import EVENT_SECONDS, EVENTS, EVENTS_V1
from twisted_exec.api.kinds.kind import Column, Connect, Kind, Object, cell
from twisted_exec.api.kinds.leases import LEASES
from twisted_exec.api.kinds.machines import image_of
from twisted_exec.api.kinds.machines import kind as machine_kind
from twisted_exec.api.kinds.namespaces import NAMESPACE_FINALIZER, NAMESPACES
from twisted_exec.api.kinds.nodes import NODES
from twisted_exec.api.kinds.pods.machine_pods import CONSOLE, PODS
from twisted_exec.api.kinds.pods.node_pods import BINDINGS, NODE_PODS
from twisted_exec.api.kinds.pools import ADDRESS_TYPES, class_kind
from twisted_exec.api.kinds.pools import kind as pool_kind
from twisted_exec.api.kinds.rbac import (
    CLUSTERROLEBINDINGS,
    CLUSTERROLES,
    ROLEBINDINGS,
    ROLES,
)
from twisted_exec.api.kinds.reviews import (
    LOCALSUBJECTACCESSREVIEWS,
    SELFSUBJECTACCESSREVIEWS,
    SELFSUBJECTREVIEWS,
    SELFSUBJECTREVIEWS_V1BETA1,
    SELFSUBJECTRULESREVIEWS,
    SUBJECTACCESSREVIEWS,
    TOKENREVIEWS,
)
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.kinds.serviceaccounts import SERVICEACCOUNTS, TOKENREQUESTS
from twisted_exec.api.kinds.services import SERVICES
from twisted_exec.api.kinds.spaces import SPACEPROVIDERDESCS, SPACES

_CORE: tuple[Kind, ...] = (NAMESPACES, NODES, EVENTS, SERVICES, SECRETS, SERVICEACCOUNTS)
_OTHERS: tuple[Kind, ...] = (
    TOKENREVIEWS,
    SELFSUBJECTREVIEWS,
    SELFSUBJECTREVIEWS_V1BETA1,
    SUBJECTACCESSREVIEWS,
    LOCALSUBJECTACCESSREVIEWS,
    SELFSUBJECTACCESSREVIEWS,
    SELFSUBJECTRULESREVIEWS,
    LEASES,
    CERTIFICATESIGNINGREQUESTS,
    EVENTS_V1,
    ROLES,
    ROLEBINDINGS,
    CLUSTERROLES,
    CLUSTERROLEBINDINGS,
    CONSOLESESSIONS,
    DELETEDCONSOLES,
    CONSOLEALERTS,
    CONSOLEPOLICIES,
    CONSOLEREQUESTS,
    CONSOLERECORDINGS,
    SPACES,
    SPACEPROVIDERDESCS,
    CLUSTERPROFILES,
)

_CONSOLE_KINDS = (
    CONSOLESESSIONS,
    CONSOLEALERTS,
    DELETEDCONSOLES,
    CONSOLEPOLICIES,
    CONSOLEREQUESTS,
    CONSOLERECORDINGS,
)


def of(dialect: Dialect) -> tuple[Kind, ...]:
    """Return the own kinds of a dialect."""
    return machine_kind(dialect), pool_kind(dialect), class_kind(dialect)


def served(dialects: Sequence[Dialect]) -> tuple[Kind, ...]:
    """Return the kinds of an API server."""
    own = [kind for dialect in dialects for kind in of(dialect)]
    return (*_CORE, *own, *_OTHERS, *_all_beside(dialects))


def aggregated(dialects: Sequence[Dialect]) -> tuple[Kind, ...]:
    """Return the kinds of an aggregated API server."""
    own = [kind for dialect in dialects for kind in of(dialect)]
    return (*own, *_CONSOLE_KINDS, *_all_beside(dialects))


def _all_beside(dialects: Sequence[Dialect]) -> Iterator[Kind]:
    domains = {each.domain: each.routings for each in dialects if each.domain}
    for domain, older in domains.items():
        yield from _beside(domain, older=older)


def _beside(domain: str, *, older: bool) -> tuple[Kind, ...]:
    related = (
        *storage.kinds(domain, older=older),
        *networks.kinds(domain, older=older),
        *ipam.prefix_kinds(domain),
    )
    return (*related, *routing.kinds(domain)) if older else related


MACHINES, MACHINEPOOLS, MACHINECLASSES = of(DEFAULT)
ALL = served((DEFAULT,))
"""The kinds of a server with the default dialect."""

__all__ = [
    "ADDRESS_TYPES",
    "ALL",
    "BINDINGS",
    "CERTIFICATESIGNINGREQUESTS",
    "CLUSTERPROFILES",
    "CLUSTERROLEBINDINGS",
    "CLUSTERROLES",
    "CONSOLE",
    "CONSOLEALERTS",
    "CONSOLEPOLICIES",
    "CONSOLERECORDINGS",
    "CONSOLEREQUESTS",
    "CONSOLESESSIONS",
    "DELETEDCONSOLES",
    "EVENTS",
    "EVENTS_V1",
    "EVENT_SECONDS",
    "LEASES",
    "LOCALSUBJECTACCESSREVIEWS",
    "MACHINECLASSES",
    "MACHINEPOOLS",
    "MACHINES",
    "NAMESPACES",
    "NAMESPACE_FINALIZER",
    "NODES",
    "NODE_PODS",
    "PODS",
    "ROLEBINDINGS",
    "ROLES",
    "SECRETS",
    "SELFSUBJECTACCESSREVIEWS",
    "SELFSUBJECTREVIEWS",
    "SELFSUBJECTREVIEWS_V1BETA1",
    "SELFSUBJECTRULESREVIEWS",
    "SERVICEACCOUNTS",
    "SERVICES",
    "SPACEPROVIDERDESCS",
    "SPACES",
    "SUBJECTACCESSREVIEWS",
    "TOKENREQUESTS",
    "TOKENREVIEWS",
    "Column",
    "Connect",
    "Kind",
    "Object",
    "aggregated",
    "cell",
    "class_kind",
    "image_of",
    "machine_kind",
    "of",
    "pool_kind",
    "served",
]
