"""
Workspaces of a kcp server: the provider's Secret, and conversion to physical spaces.

A Workspace is an object in its parent workspace, and URLs contain the path of the parent.
:class:`InWorkspace` adds that path to a resource, so that one client serves all workspaces.

The manager uses the key ``kubeconfig`` of the provider's Secret; ``incluster`` and ``external``
describe the same server from a viewpoint. ``kubeconfig`` also serves for a viewpoint without a key
of its own; if both have none, for ``External`` only. The users of the viewpoints do not get the
credentials in the Secret.

A server's URL may end in the path of a workspace (``/clusters/root``).

Sources: ``github.com/kcp-dev/sdk`` v0.32.3, ``apis/tenancy/v1alpha1/types_workspace.go`` and
``apis/core/v1alpha1/logicalcluster_types.go``; ``github.com/kcp-dev/kcp`` v0.32.3,
``pkg/reconciler/tenancy/workspace/workspace_reconcile_phase.go``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import EXTERNAL, IN_CLUSTER, KCP, KUBECONFIG_KEY
from twisted_exec.api.status import APIError, BadRequest, Invalid, one_line
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.loader import load_inline
from twisted_exec.spacemanager.interfaces import (
    BUILDING,
    GOING,
    USABLE,
    Physical,
    ProviderSpec,
    SpaceInfo,
    SpaceRequest,
)
from twisted_exec.spacemanager.providers.cluster import mark, owner_of, reason_of, wrong_secret
from twisted_exec.spaces.kubeconfigs import unwrapped

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
    :data:`BROKEN`.
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


IN_CLUSTER_KEY, EXTERNAL_KEY = "incluster", "external"
PARENTS_KEY = "parents"
"""Our addition: further workspaces whose children are discovered, separated by commas or whitespace."""

ROOT = "root"
MAX_PARENTS = 200

_CLUSTERS = "/clusters/"
_SEGMENT = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(_SEGMENT)
_PATH = re.compile(f"{_SEGMENT}(:{_SEGMENT})*")


@dataclass(frozen=True)
class KcpSettings:
    """
    Settings of a provider.

    :param config: the manager's configuration; its server has no workspace path.
    :param default_parent: parent of physical spaces that name none.
    :param parents: further workspaces whose children are discovered.
    :param viewpoints: how to reach the server from each known viewpoint, without credentials.
    """

    config: ClientConfig
    default_parent: str
    parents: tuple[str, ...]
    viewpoints: Mapping[str, ClientConfig]


def is_name(name: str) -> bool:
    """Return whether this is a valid name of a workspace."""
    return _NAME.fullmatch(name) is not None


def is_path(path: str) -> bool:
    """Return whether this is a valid path of a workspace, such as ``root:org``."""
    return len(path) <= 1024 and _PATH.fullmatch(path) is not None


def split_server(server: str) -> tuple[str, str]:
    """Split a server's URL from the workspace path in it."""
    scheme, rest = server.split("://", 1)
    host, _slash, path = rest.partition("/")
    before, _clusters, workspace = f"/{path}/".partition(_CLUSTERS)
    return f"{scheme}://{host}{before.rstrip('/')}", workspace.rstrip("/")


def workspace_server(base: str, path: str) -> str:
    """Return the URL of a workspace's API server."""
    return f"{base}{_CLUSTERS}{path}"


def kcp_settings(spec: ProviderSpec) -> KcpSettings:
    """
    Read the Secret of a provider.

    :raises Invalid: the Secret is invalid.
    """
    secret = _secret(spec)
    config, workspace = _load(spec, KUBECONFIG_KEY)
    if not config.has_credentials:
        raise _invalid(spec, KUBECONFIG_KEY, "holds no credentials; give its user a token")
    if workspace and (not is_path(workspace) or workspace.startswith("system:")):
        problem = f'is for "{workspace}", which has no workspaces; use context {ROOT} of kcp\'s kubeconfig'
        raise _invalid(spec, KUBECONFIG_KEY, problem)
    parent = workspace or ROOT
    return KcpSettings(
        config,
        parent,
        _parents(spec, secret.get(PARENTS_KEY, b""), parent),
        _viewpoints(spec, config),
    )


def _secret(spec: ProviderSpec) -> Mapping[str, bytes]:
    if spec.secret is None:
        problem = f"a provider of type {KCP} needs a Secret with the key {KUBECONFIG_KEY}"
        raise wrong_secret(spec, problem)
    return spec.secret


def _load(spec: ProviderSpec, key: str) -> tuple[ClientConfig, str]:
    content = _secret(spec).get(key, b"")
    if not content.strip():
        raise _invalid(spec, key, "is missing; put the kubeconfig of the kcp server there")
    try:
        source = f'secret {spec.secret_ref}, key "{key}"'
        # The manager's proxy is not for other users, so viewpoints are read without its environment.
        environ: dict[str, str] | None = None if key == KUBECONFIG_KEY else {}
        config = load_inline(unwrapped(content, source), source, environ=environ)
    except KubeConfigError as error:
        raise _invalid(spec, key, f"is invalid: {error}") from None
    if config.insecure_skip_tls_verify:
        problem = (
            "has insecure-skip-tls-verify, which is not supported; use certificate-authority-data"
        )
        raise _invalid(spec, key, problem)
    base, workspace = split_server(config.server)
    return replace(config, server=base), workspace


def _viewpoints(spec: ProviderSpec, config: ClientConfig) -> Mapping[str, ClientConfig]:
    configs = {
        viewpoint: _load(spec, key)[0]
        for viewpoint, key in ((IN_CLUSTER, IN_CLUSTER_KEY), (EXTERNAL, EXTERNAL_KEY))
        if _secret(spec).get(key)
    }
    if len(configs) < 2:
        plain = load_inline(unwrapped(_secret(spec)[KUBECONFIG_KEY], ""), config.source, environ={})
        configs[IN_CLUSTER if EXTERNAL in configs else EXTERNAL] = replace(
            config, proxy_url=plain.proxy_url
        )
    return {viewpoint: _public(each) for viewpoint, each in configs.items()}


def _public(config: ClientConfig) -> ClientConfig:
    return ClientConfig(
        config.server,
        ca=config.ca,
        tls_server_name=config.tls_server_name,
        proxy_url=config.proxy_url,
        source=config.source,
    )


def _parents(spec: ProviderSpec, value: bytes, default: str) -> tuple[str, ...]:
    paths = value.decode("utf-8", "replace").replace(",", " ").split()
    for path in paths:
        if not is_path(path):
            raise _invalid(
                spec, PARENTS_KEY, f'"{path[:80]}" is not a path of a workspace, such as {ROOT}:org'
            )
    if len(paths) > MAX_PARENTS:
        raise _invalid(spec, PARENTS_KEY, f"names more than {MAX_PARENTS} workspaces")
    return tuple(path for path in dict.fromkeys(paths) if path != default)


def _invalid(spec: ProviderSpec, key: str, problem: str) -> APIError:
    return wrong_secret(spec, f'secret {spec.secret_ref}, key "{key}": {problem}')
