"""
Workspaces of kcp as physical spaces, and the other way round: pure.

A Workspace is an object of its parent, and the parent is in the path that it is asked for by:
``/clusters/<parent>/apis/tenancy.kcp.io/v1alpha1/workspaces``.  So a resource says where it is
(:class:`InWorkspace`), and one client does for all workspaces.

Sources: ``github.com/kcp-dev/sdk`` v0.32.3 (0.28.3 has the same without ``Terminating`` and ``Deleting``),
``apis/tenancy/v1alpha1/types_workspace.go`` and ``apis/core/v1alpha1/logicalcluster_types.go``;
``github.com/kcp-dev/kcp`` v0.32.3, ``pkg/reconciler/tenancy/workspace/workspace_reconcile_phase.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import BadRequest, Invalid, one_line
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.interfaces import (
    BUILDING,
    GOING,
    USABLE,
    Physical,
    SpaceInfo,
    SpaceRequest,
)
from twisted_exec.spacemanager.providers.common.objects import mark, owner_of, reason_of
from twisted_exec.spacemanager.providers.kcp.config import is_name, is_path

GROUP = "tenancy.kcp.io"

TYPE, TYPE_PATH = "type", "typePath"
"""Parameters: the name of a WorkspaceType, and the path of the workspace that has it."""
DEFAULT_TYPE = {TYPE: "universal", TYPE_PATH: "root"}

READY, UNAVAILABLE, INACTIVE = "Ready", "Unavailable", "Inactive"
_GOING = ("Terminating", "Deleting")
_HELP = {
    UNAVAILABLE: "kcp cannot serve it just now; see its conditions",
    INACTIVE: "it was taken out of service; take annotation core.kcp.io/inactive off its LogicalCluster",
}


@dataclass(frozen=True)
class InWorkspace(Resource):
    """
    A resource of one workspace.

    :param workspace: the path, or the name of the logical cluster.
    """

    workspace: str = ""

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path, from the server's own root."""
        return f"/clusters/{self.workspace}{super().path(namespace, name, subresource)}"


def within(workspace: str, resource: Resource) -> InWorkspace:
    """A resource as it is in one workspace."""
    return InWorkspace(
        resource.group,
        resource.version,
        resource.plural,
        resource.kind,
        resource.namespaced,
        workspace,
    )


def workspaces(parent: str) -> InWorkspace:
    """The Workspaces whose parent this is."""
    return InWorkspace(GROUP, "v1alpha1", "workspaces", "Workspace", False, parent)


def check_name(physical: Physical) -> None:
    """
    :raises Invalid: there can be no such workspace.
    """
    causes = []
    if not is_name(physical.name):
        told = "a workspace's name has up to 63 lower case letters, digits and '-', which stand at no end of it"
        causes.append({"field": "metadata.name", "message": told})
    if physical.parent and not is_path(physical.parent):
        told = "a workspace's path is names that ':' joins, such as root:org"
        causes.append({"field": "metadata.annotations", "message": told})
    if causes:
        raise Invalid("workspaces", one_line(str(physical))[:80], causes, GROUP)


def workspace(name: str, wanted: SpaceRequest) -> Object:
    """
    What is to be created.

    :raises BadRequest: those parameters are none that a workspace has.
    """
    unknown = sorted(set(wanted.parameters) - {TYPE, TYPE_PATH})
    if unknown:
        raise BadRequest(
            f'workspace "{name}" cannot be made: spec.parameters: "{one_line(unknown[0])}" is not known to'
            f" providers of type kcp; there are {TYPE} and {TYPE_PATH}"
        )
    chosen = _type(name, wanted.parameters)
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "Workspace",
        "metadata": {"name": name, "annotations": mark(wanted.owner)},
        "spec": {"type": {"name": chosen[TYPE], "path": chosen[TYPE_PATH]}},
    }


def _type(name: str, parameters: Mapping[str, str]) -> Mapping[str, str]:
    if TYPE_PATH in parameters and TYPE not in parameters:
        raise BadRequest(
            f'workspace "{name}" cannot be made: spec.parameters: {TYPE_PATH} goes with {TYPE}'
        )
    chosen = {**DEFAULT_TYPE, **parameters}
    if not is_name(chosen[TYPE]) or not is_path(chosen[TYPE_PATH]):
        raise BadRequest(
            f'workspace "{name}" cannot be made: spec.parameters: {TYPE} is the name of a WorkspaceType and'
            f" {TYPE_PATH} the path of the workspace that has it, such as universal and root"
        )
    return chosen


def is_going(found: Object) -> bool:
    """Whether it is being deleted: its phase may lag behind."""
    return bool(found["metadata"].get("deletionTimestamp")) or _phase(found) in _GOING


def seen(found: Object, physical: Physical) -> SpaceInfo:
    """
    A Workspace as a physical space; nobody asked yet how it is reached.

    ``Unavailable`` comes and goes by itself, also while one is being made, so none is ever broken for good.
    """
    spec = found.get("spec") if isinstance(found.get("spec"), dict) else {}
    assert isinstance(spec, dict)
    state, reason, message = _state(found, spec)
    return SpaceInfo(
        physical,
        state,
        reason=reason,
        message=message,
        owner=owner_of(found),
        # The name of the logical cluster is given once: a workspace of the same name later has another.
        uid=str(spec.get("cluster") or found["metadata"].get("uid") or ""),
        version=str(found["metadata"].get("resourceVersion") or ""),
    )


def _state(found: Object, spec: Mapping[str, Any]) -> tuple[str, str, str]:
    phase = _phase(found)
    if is_going(found):
        return GOING, phase if phase in _GOING else "", _waiting_for(found, "terminators")
    if phase == READY and spec.get("URL"):
        return USABLE, "", ""
    message = _HELP.get(phase) or _waiting_for(found, "initializers")
    return (
        BUILDING,
        reason_of({"reason": phase}, ""),
        "; ".join(filter(None, [message, _complaint(found)])),
    )


def _phase(found: Object) -> str:
    return str(_status(found).get("phase") or "")


def _status(found: Object) -> Mapping[str, Any]:
    status = found.get("status")
    return status if isinstance(status, dict) else {}


def _waiting_for(found: Object, what: str) -> str:
    names = _status(found).get(what)
    if not isinstance(names, list) or not names:
        return ""
    return one_line(f"waits for {what}: {', '.join(map(str, names[:10]))}")


def _complaint(found: Object) -> str:
    """What the first of its conditions that does not hold says."""
    conditions = _status(found).get("conditions")
    for each in conditions if isinstance(conditions, list) else []:
        if isinstance(each, dict) and each.get("status") == "False" and each.get("message"):
            return one_line(str(each["message"]))[:300]
    return ""
