"""
What a kcp provider's Secret says, without I/O.

Keys, as upstream has them: ``kubeconfig`` is the one that the manager uses; ``incluster`` or ``external`` is the
same server from the other side.  With ``incluster``, ``kubeconfig`` is how it is reached from outside; with
``external``, from inside; with both, each says its own.  Upstream wanted one of them; here ``kubeconfig`` alone
serves, and its Spaces are had from outside.

Only servers are taken from the viewpoints: who they are for never sees the credentials beside them.

A server's URL ends in the path of a workspace (``/clusters/root``) or in none.  It is taken apart as a URL,
as a host may be called anything.
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
from twisted_exec.spacemanager.providers.common.cluster import wrong_secret
from twisted_exec.spaces.kubeconfigs import unwrapped

IN_CLUSTER_KEY, EXTERNAL_KEY = "incluster", "external"
PARENTS_KEY = "parents"
"""Ours: paths of more workspaces whose children are discovered, between spaces or lines."""

ROOT = "root"
MAX_PARENTS = 200

_CLUSTERS = "/clusters/"
_SEGMENT = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(_SEGMENT)
_PATH = re.compile(f"{_SEGMENT}(:{_SEGMENT})*")


@dataclass(frozen=True)
class KcpSettings:
    """
    :param config: the manager's; its server is without the path of a workspace.
    :param default_parent: the workspace that a physical space is in when it does not say.
    :param parents: whose children are discovered besides.
    :param viewpoints: how the server is reached from each that is known: server, CA and proxy, no credentials.
    """

    config: ClientConfig
    default_parent: str
    parents: tuple[str, ...]
    viewpoints: Mapping[str, ClientConfig]


def is_name(name: str) -> bool:
    """Whether a workspace can be called so."""
    return _NAME.fullmatch(name) is not None


def is_path(path: str) -> bool:
    """Whether this may be the path of a workspace, such as ``root:org``."""
    return len(path) <= 1024 and _PATH.fullmatch(path) is not None


def split_server(server: str) -> tuple[str, str]:
    """
    A server's URL without the path of a workspace, and that path; the latter is empty where there is none.
    """
    scheme, rest = server.split("://", 1)
    host, _slash, path = rest.partition("/")
    before, _found, workspace = f"/{path}/".partition(_CLUSTERS)
    return f"{scheme}://{host}{before.rstrip('/')}", workspace.rstrip("/")


def workspace_server(base: str, path: str) -> str:
    """The URL of a workspace's API server."""
    return f"{base}{_CLUSTERS}{path}"


def kcp_settings(spec: ProviderSpec) -> KcpSettings:
    """
    :raises Invalid: what the Secret holds cannot be used; the message names its key and says what would help.
    """
    secret = _secret(spec)
    config, workspace = _based(spec, KUBECONFIG_KEY)
    if not config.has_credentials:
        raise _invalid(spec, KUBECONFIG_KEY, "holds no credentials; give its user a token")
    if workspace and (not is_path(workspace) or workspace.startswith("system:")):
        told = f'is for "{workspace}", which has no workspaces; use context {ROOT} of kcp\'s kubeconfig'
        raise _invalid(spec, KUBECONFIG_KEY, told)
    parent = workspace or ROOT
    return KcpSettings(
        config,
        parent,
        _parents(spec, secret.get(PARENTS_KEY, b""), parent),
        _viewpoints(spec, config),
    )


def _secret(spec: ProviderSpec) -> Mapping[str, bytes]:
    if spec.secret is None:
        told = f"a provider of type {KCP} needs a Secret with the key {KUBECONFIG_KEY}"
        raise wrong_secret(spec, told)
    return spec.secret


def _based(spec: ProviderSpec, key: str) -> tuple[ClientConfig, str]:
    """A kubeconfig's configuration without the path of a workspace, and that path."""
    content = _secret(spec).get(key, b"")
    if not content.strip():
        raise _invalid(spec, key, "is missing; put the kubeconfig of the kcp server there")
    try:
        source = f'secret {spec.secret_ref}, key "{key}"'
        # The manager's own proxy is nobody else's: a viewpoint is read without its environment.
        around: dict[str, str] | None = None if key == KUBECONFIG_KEY else {}
        config = load_inline(unwrapped(content, source), source, environ=around)
    except KubeConfigError as problem:
        raise _invalid(spec, key, f"cannot be used: {problem}") from None
    if config.insecure_skip_tls_verify:
        told = "says insecure-skip-tls-verify, which is not taken; give certificate-authority-data"
        raise _invalid(spec, key, told)
    base, workspace = split_server(config.server)
    return replace(config, server=base), workspace


def _viewpoints(spec: ProviderSpec, config: ClientConfig) -> Mapping[str, ClientConfig]:
    found = {
        viewpoint: _based(spec, key)[0]
        for viewpoint, key in ((IN_CLUSTER, IN_CLUSTER_KEY), (EXTERNAL, EXTERNAL_KEY))
        if _secret(spec).get(key)
    }
    if len(found) < 2:
        told = load_inline(unwrapped(_secret(spec)[KUBECONFIG_KEY], ""), config.source, environ={})
        found[IN_CLUSTER if EXTERNAL in found else EXTERNAL] = replace(
            config, proxy_url=told.proxy_url
        )
    return {viewpoint: _public(each) for viewpoint, each in found.items()}


def _public(config: ClientConfig) -> ClientConfig:
    return ClientConfig(
        config.server,
        ca=config.ca,
        tls_server_name=config.tls_server_name,
        proxy_url=config.proxy_url,
        source=config.source,
    )


def _parents(spec: ProviderSpec, told: bytes, default: str) -> tuple[str, ...]:
    paths = told.decode("utf-8", "replace").replace(",", " ").split()
    for path in paths:
        if not is_path(path):
            raise _invalid(
                spec, PARENTS_KEY, f'"{path[:80]}" is no workspace\'s path, such as {ROOT}:org'
            )
    if len(paths) > MAX_PARENTS:
        raise _invalid(spec, PARENTS_KEY, f"names more than {MAX_PARENTS} workspaces")
    return tuple(path for path in dict.fromkeys(paths) if path != default)


def _invalid(spec: ProviderSpec, key: str, problem: str) -> APIError:
    return wrong_secret(spec, f'secret {spec.secret_ref}, key "{key}": {problem}')
