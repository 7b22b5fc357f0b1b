"""
The settings of a kcp provider, from its Secret: servers, credentials and parents.

The manager uses the key ``kubeconfig`` of the provider's Secret; ``incluster`` and ``external``
describe the same server from a viewpoint. ``kubeconfig`` also serves for a viewpoint without a key
of its own; if both have none, for ``External`` only. The users of the viewpoints do not get the
credentials in the Secret.

A server's URL may end in the path of a workspace (``/clusters/root``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from twisted_exec.api.spaces import EXTERNAL, IN_CLUSTER, KCP, KUBECONFIG_KEY
from twisted_exec.api.status import APIError
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.loader import load_inline
from twisted_exec.spacemanager.interfaces import ProviderSpec
from twisted_exec.spacemanager.providers.cluster import wrong_secret
from twisted_exec.spaces.kubeconfigs import unwrapped

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
