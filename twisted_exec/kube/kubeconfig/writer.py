"""Writing of kubeconfig files."""

from __future__ import annotations

import base64
import json
from typing import Any

from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    ExecPlugin,
    ImpersonatedUser,
    Material,
)
from twisted_exec.kube.kubeconfig.loader import EXEC_EXTENSION


def written(config: ClientConfig, name: str) -> bytes:
    """
    Return a kubeconfig with this configuration only.

    PEM files are embedded; a token file stays a reference.

    :raises KubeConfigError: a file cannot be read.
    """
    context = {"cluster": name, "user": name}
    if config.namespace != "default":
        context["namespace"] = config.namespace
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": _cluster(config)}],
        "users": [{"name": name, "user": _user(config)}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    }
    # JSON is valid YAML, and the standard library writes it safely.
    return json.dumps(document, indent=2).encode() + b"\n"


def _cluster(config: ClientConfig) -> dict[str, Any]:
    cluster = {
        "server": config.server,
        "certificate-authority-data": _data(config.ca),
        "tls-server-name": config.tls_server_name,
        "insecure-skip-tls-verify": config.insecure_skip_tls_verify,
        "proxy-url": config.proxy_url,
    }
    if config.plugin is not None and config.plugin.cluster_config:
        extension = {"name": EXEC_EXTENSION, "extension": json.loads(config.plugin.cluster_config)}
        cluster["extensions"] = [extension]
    return _without_empty(cluster)


def _user(config: ClientConfig) -> dict[str, Any]:
    user = {
        "client-certificate-data": _data(config.certificate),
        "client-key-data": _data(config.key),
        "token": config.token,
        "tokenFile": config.token_file,
        "username": config.username,
        "password": config.password,
        **_acting(config.impersonate),
    }
    if config.plugin is not None:
        user["exec"] = _exec(config.plugin)
    return _without_empty(user)


def _acting(impersonation: ImpersonatedUser) -> dict[str, Any]:
    return {
        "as": impersonation.user,
        "as-uid": impersonation.uid,
        "as-groups": list(impersonation.groups),
        "as-user-extra": {key: list(values) for key, values in impersonation.extra},
    }


def _exec(plugin: ExecPlugin) -> dict[str, Any]:
    spec = {
        "apiVersion": plugin.api_version,
        "command": plugin.command,
        "args": list(plugin.args),
        "env": [{"name": name, "value": value} for name, value in plugin.env],
        "interactiveMode": plugin.interactive_mode,
        "provideClusterInfo": plugin.provide_cluster_info,
        "installHint": plugin.install_hint,
    }
    return _without_empty(spec)


def _data(material: Material) -> str:
    return base64.b64encode(material.read()).decode("ascii")


def _without_empty(mapping: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if value}
