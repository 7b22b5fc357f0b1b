"""
The kinds that the API server serves: one definition each.
"""

from twisted_exec.api.kinds.core import LEASES, NAMESPACE_FINALIZER, NAMESPACES
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.kinds.machines import EXEC_OPTIONS_SCHEMA, MACHINES, class_name, pool_name
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

ALL: tuple[Kind, ...] = (
    NAMESPACES,
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
    ROLES,
    ROLEBINDINGS,
    CLUSTERROLES,
    CLUSTERROLEBINDINGS,
)
"""Every kind, in the order in which discovery shows their groups."""

__all__ = [
    "ADDRESS_TYPES",
    "ALL",
    "CLUSTERROLEBINDINGS",
    "CLUSTERROLES",
    "EXEC_OPTIONS_SCHEMA",
    "LEASES",
    "LOCALSUBJECTACCESSREVIEWS",
    "MACHINECLASSES",
    "MACHINEPOOLS",
    "MACHINES",
    "NAMESPACES",
    "NAMESPACE_FINALIZER",
    "ROLEBINDINGS",
    "ROLES",
    "SELFSUBJECTACCESSREVIEWS",
    "SELFSUBJECTREVIEWS",
    "SELFSUBJECTREVIEWS_V1BETA1",
    "SELFSUBJECTRULESREVIEWS",
    "SUBJECTACCESSREVIEWS",
    "TOKENREVIEWS",
    "Column",
    "Kind",
    "Object",
    "class_name",
    "pool_name",
]
