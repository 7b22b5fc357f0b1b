"""
Attributes of a request for admission: of a write, or of a stream that is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.interfaces import Change, Opening
from twisted_exec.auth.interfaces import User

CREATE, UPDATE, DELETE, CONNECT = "CREATE", "UPDATE", "DELETE", "CONNECT"
"""Operations of an AdmissionReview."""

_OPTIONS = {CREATE: "CreateOptions", UPDATE: "UpdateOptions", DELETE: "DeleteOptions"}


@dataclass(frozen=True)
class AdmissionAttributes:
    """
    A request, as seen by admission.

    :param name: may be empty for an object with a generated name.
    :param new: ``None`` for DELETE; options of the stream for CONNECT.
    :param old: ``None`` for CREATE and CONNECT.
    :param options: a complete object, such as ``CreateOptions``; ``None`` for CONNECT.
    """

    user: User
    operation: str
    group: str
    version: str
    plural: str
    kind: str
    namespace: str
    name: str
    new: Object | None
    old: Object | None = None
    subresource: str = ""
    options: Object | None = None
    dry_run: bool = False
    warn: Callable[[str], None] = field(default=lambda text: None, compare=False)

    @property
    def qualified(self) -> str:
        """The resource in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


def attributes_of_change(change: Change) -> AdmissionAttributes:
    """Return the attributes of a write."""
    operation = change.operation.upper()
    resource, metadata = change.kind.resource, change.obj["metadata"]
    return AdmissionAttributes(
        change.user,
        operation,
        resource.group,
        resource.version,
        resource.plural,
        resource.kind,
        metadata.get("namespace", ""),
        metadata.get("name", ""),
        change.new,
        change.old,
        change.subresource,
        {**change.options, "kind": _OPTIONS[operation], "apiVersion": "meta.k8s.io/v1"},
        change.dry_run,
        change.warnings.append,
    )


def attributes_of_opening(opening: Opening) -> AdmissionAttributes:
    """Return the attributes of a request that opens a stream."""
    resource = opening.kind.resource
    return AdmissionAttributes(
        opening.user,
        CONNECT,
        resource.group,
        resource.version,
        resource.plural,
        opening.options["kind"],
        opening.namespace,
        opening.name,
        opening.options,
        subresource=opening.subresource,
    )
