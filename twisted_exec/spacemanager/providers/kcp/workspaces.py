"""
Workspace objects, and their conversion to physical spaces.

A Workspace is an object in its parent workspace, and URLs contain the path of the parent.
:class:`InWorkspace` adds that path to a resource, so that one client serves all workspaces.

Sources: ``github.com/kcp-dev/sdk`` v0.32.3, ``apis/tenancy/v1alpha1/types_workspace.go`` and
``apis/core/v1alpha1/logicalcluster_types.go``; ``github.com/kcp-dev/kcp`` v0.32.3,
``pkg/reconciler/tenancy/workspace/workspace_reconcile_phase.go``.
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
from twisted_exec.spacemanager.providers.cluster import mark, owner_of, reason_of
from twisted_exec.spacemanager.providers.kcp.settings import is_name, is_path

GROUP = "tenancy.kcp.io"
WORKSPACE_TYPES = f"workspacetypes.{GROUP}"

TYPE, TYPE_PATH = "type", "typePath"
"""Parameters: the name of a WorkspaceType, and the path of its workspace."""
DEFAULT_TYPE = {TYPE: "universal", TYPE_PATH: "root"}

READY, UNAVAILABLE, INACTIVE = "Ready", "Unavailable", "Inactive"
_GOING = ("Terminating", "Deleting")
CONTENT_DELETED = "WorkspaceContentDeleted"
"""
Condition that tells what still has to be deleted in a workspace.  kcp deletes the content first,
and until that is done the Workspace keeps its phase and blocks its name.
"""
_HELP = {
    UNAVAILABLE: "kcp cannot serve the workspace at the moment; see its conditions",
    INACTIVE: "the workspace is inactive; remove the annotation core.kcp.io/inactive from its LogicalCluster",
}


@dataclass(frozen=True)
class InWorkspace(Resource):
    """
    A resource in a workspace.

    :param workspace: the path, or the name of the logical cluster.
    """

    workspace: str = ""

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path from the root of the server."""
        return f"/clusters/{self.workspace}{super().path(namespace, name, subresource)}"


def within(workspace: str, resource: Resource) -> InWorkspace:
    """Return a resource in a workspace."""
    return InWorkspace(
        resource.group,
        resource.version,
        resource.plural,
        resource.kind,
        resource.namespaced,
        workspace,
    )


def workspaces(parent: str) -> InWorkspace:
    """Return the resource of the Workspaces in a parent."""
    return InWorkspace(GROUP, "v1alpha1", "workspaces", "Workspace", False, parent)


def check_name(physical: Physical) -> None:
    """
    Check the name and the parent of a physical space.

    :raises Invalid: not a valid name or path.
    """
    causes = []
    if not is_name(physical.name):
        message = "must be at most 63 lower case letters, digits and '-', with a letter or digit at both ends"
        causes.append({"field": "metadata.name", "message": message})
    if physical.parent and not is_path(physical.parent):
        message = "the path of a workspace must be names separated by ':', such as root:org"
        causes.append({"field": "metadata.annotations", "message": message})
    if causes:
        raise Invalid("workspaces", one_line(str(physical))[:80], causes, GROUP)


def workspace(name: str, request: SpaceRequest) -> Object:
    """
    Return the Workspace object for a request.

    :raises BadRequest: the parameters are invalid.
    """
    unknown = sorted(set(request.parameters) - {TYPE, TYPE_PATH})
    if unknown:
        raise BadRequest(
            f'workspace "{name}" cannot be created: spec.parameters: "{one_line(unknown[0])}" is not supported'
            f" by providers of type kcp; use {TYPE} and {TYPE_PATH}"
        )
    chosen = _type(name, request.parameters)
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "Workspace",
        "metadata": {"name": name, "annotations": mark(request.owner)},
        "spec": {"type": {"name": chosen[TYPE], "path": chosen[TYPE_PATH]}},
    }


def _type(name: str, parameters: Mapping[str, str]) -> Mapping[str, str]:
    if TYPE_PATH in parameters and TYPE not in parameters:
        raise BadRequest(
            f'workspace "{name}" cannot be created: spec.parameters: {TYPE_PATH} requires {TYPE}'
        )
    chosen = {**DEFAULT_TYPE, **parameters}
    if not is_name(chosen[TYPE]) or not is_path(chosen[TYPE_PATH]):
        raise BadRequest(
            f'workspace "{name}" cannot be created: spec.parameters: {TYPE} is the name of a WorkspaceType and'
            f" {TYPE_PATH} the path of its workspace, such as universal and root"
        )
    return chosen


def is_going(obj: Object) -> bool:
    """Return whether a Workspace is being deleted."""
    return bool(obj["metadata"].get("deletionTimestamp")) or _phase(obj) in _GOING


def space_info(obj: Object, physical: Physical) -> SpaceInfo:
    """
    Return the state of a Workspace, without access. ``Unavailable`` comes and goes, so no state is
    :data:`~twisted_exec.spacemanager.interfaces.BROKEN`.
    """
    spec = obj.get("spec") if isinstance(obj.get("spec"), dict) else {}
    assert isinstance(spec, dict)
    state, reason, message = _state(obj, spec)
    return SpaceInfo(
        physical,
        state,
        reason=reason,
        message=message,
        owner=owner_of(obj),
        # kcp never reuses names of logical clusters, so a recreated workspace has another.
        uid=str(spec.get("cluster") or obj["metadata"].get("uid") or ""),
        version=str(obj["metadata"].get("resourceVersion") or ""),
    )


def _state(obj: Object, spec: Mapping[str, Any]) -> tuple[str, str, str]:
    phase = _phase(obj)
    if is_going(obj):
        messages = [_waiting_for(obj, "terminators"), _complaint(obj, CONTENT_DELETED)]
        return GOING, phase if phase in _GOING else "", "; ".join(filter(None, messages))
    if phase == READY and spec.get("URL"):
        return USABLE, "", ""
    message = _HELP.get(phase) or _waiting_for(obj, "initializers")
    return (
        BUILDING,
        reason_of({"reason": phase}, ""),
        "; ".join(filter(None, [message, _complaint(obj)])),
    )


def _phase(obj: Object) -> str:
    return str(_status(obj).get("phase") or "")


def _status(obj: Object) -> Mapping[str, Any]:
    status = obj.get("status")
    return status if isinstance(status, dict) else {}


def _waiting_for(obj: Object, what: str) -> str:
    names = _status(obj).get(what)
    if not isinstance(names, list) or not names:
        return ""
    return one_line(f"waiting for {what}: {', '.join(map(str, names[:10]))}")


def _complaint(obj: Object, condition: str = "") -> str:
    """
    Return the message of the first false condition, or empty.

    :param condition: type of the only condition that counts, or empty for any.
    """
    conditions = _status(obj).get("conditions")
    for each in conditions if isinstance(conditions, list) else []:
        if not isinstance(each, dict) or (condition and each.get("type") != condition):
            continue
        if each.get("status") == "False" and each.get("message"):
            return one_line(str(each["message"]))[:300]
    return ""
