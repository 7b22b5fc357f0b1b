"""
The kinds that the API server serves: one definition each.
"""

from twisted_exec.api.kinds import ipam, networking, storage
from twisted_exec.api.kinds.core import LEASES, NAMESPACE_FINALIZER, NAMESPACES, SERVICES
from twisted_exec.api.kinds.events import EVENT_SECONDS, EVENTS, EVENTS_V1
from twisted_exec.api.kinds.kind import Column, Connect, Kind, Object
from twisted_exec.api.kinds.machines import MACHINES, class_name, image_of, pool_name
from twisted_exec.api.kinds.pods import CONSOLE, PODS
from twisted_exec.api.kinds.pools import ADDRESS_TYPES, MACHINECLASSES, MACHINEPOOLS
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

ALL: tuple[Kind, ...] = (
    NAMESPACES,
    EVENTS,
    SERVICES,
    SECRETS,
    MACHINES,
    MACHINEPOOLS,
    MACHINECLASSES,
    TOKENREVIEWS,
    SELFSUBJECTREVIEWS,
    SELFSUBJECTREVIEWS_V1BETA1,
    SUBJECTACCESSREVIEWS,
    LOCALSUBJECTACCESSREVIEWS,
    SELFSUBJECTACCESSREVIEWS,
    SELFSUBJECTRULESREVIEWS,
    LEASES,
    EVENTS_V1,
    ROLES,
    ROLEBINDINGS,
    CLUSTERROLES,
    CLUSTERROLEBINDINGS,
    *storage.kinds("ironcore.dev"),
    *networking.kinds("ironcore.dev"),
    *ipam.kinds("ironcore.dev"),
)
"""Every kind that is always there, in the order in which discovery shows their groups."""

__all__ = [
    "ADDRESS_TYPES",
    "ALL",
    "CLUSTERROLEBINDINGS",
    "CLUSTERROLES",
    "CONSOLE",
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
    "PODS",
    "ROLEBINDINGS",
    "ROLES",
    "SECRETS",
    "SELFSUBJECTACCESSREVIEWS",
    "SELFSUBJECTREVIEWS",
    "SELFSUBJECTREVIEWS_V1BETA1",
    "SELFSUBJECTRULESREVIEWS",
    "SERVICES",
    "SUBJECTACCESSREVIEWS",
    "TOKENREVIEWS",
    "Column",
    "Connect",
    "Kind",
    "Object",
    "class_name",
    "image_of",
    "pool_name",
]
