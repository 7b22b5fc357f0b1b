"""
The target of a request for stored objects, and its attributes for authorization.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.api.kinds import NAMESPACES, Kind
from twisted_exec.api.selectors import EVERYTHING, FieldSelector
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.rules import Attributes


@dataclass(frozen=True)
class RequestTarget:
    """Target of a request.  ``namespace`` is empty for cluster-scoped kinds."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def attributes_of(
    user: User, verb: str, target: RequestTarget, field_selector: FieldSelector = EVERYTHING
) -> Attributes:
    """Return the authorization attributes of a verb on a target."""
    resource = target.kind.resource
    # As in Kubernetes, a namespace lies within itself, so its own roles can show it.
    own = target.name if target.kind is NAMESPACES else ""
    return Attributes(
        user=user,
        verb=verb,
        group=resource.group,
        version=resource.version,
        resource=resource.plural,
        subresource=target.subresource,
        namespace=target.namespace or own,
        name=target.name,
        field_selector=field_selector,
    )
