"""Writing of kubeconfig files."""

from __future__ import annotations

import base64
import json
import os
from typing import Any

from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    ExecPlugin,
    ImpersonatedUser,
    Material,
)
from twisted_exec.kube.kubeconfig.loader import EXEC_EXTENSION
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.private_files import write_private


def written(config: ClientConfig, name: str) -> bytes:
    """
    Return a kubeconfig with this configuration only.

    PEM files are embedded; a token file stays a reference.

    :raises KubeConfigError: a file cannot be read.
    """
    context = {"cluster": name, "user": name}
    if config.namespace != "default":
        context["namespace"] = config.namespace
    return _kubeconfig(name, context, _cluster(config), _user(config))


def write_kubeconfig(
    path: str,
    *,
    server: str,
    ca_pem: bytes,
    certificate_pem: bytes,
    key_pem: bytes,
    user: str,
    cluster: str = "twisted-exec",
    namespace: str = "default",
    replace: bool = False,
) -> None:
    """
    Write a kubeconfig with embedded certificates, mode 0600, atomically.

    :param key_pem: embedded in the form of :func:`.pem_of_key`.
    :param server: ``https://HOST:PORT``.
    :raises TLSConfigError: the key is malformed, or the file exists and ``replace`` is false, or
        cannot be written.
    """
    if os.path.lexists(path) and not replace:
        raise TLSConfigError(f'"{path}" exists already: give --force to replace it')
    key_pem = pem.pem_of_key(pem.private_key(key_pem, f'the key of "{user}"'))
    context = {"cluster": cluster, "user": user, "namespace": namespace}
    content = _kubeconfig(
        f"{user}@{cluster}",
        context,
        {"server": server, "certificate-authority-data": _encoded(ca_pem)},
        {
            "client-certificate-data": _encoded(certificate_pem),
            "client-key-data": _encoded(key_pem),
        },
    )
    write_private(path, content)


def _kubeconfig(
    name: str, context: dict[str, str], cluster: dict[str, Any], user: dict[str, Any]
) -> bytes:
    """
    Return a kubeconfig with one context.

    :param name: the name of the context.
    :param context: it has the names of the cluster and the user.
    """
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context["cluster"], "cluster": cluster}],
        "users": [{"name": context["user"], "user": user}],
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
    return _encoded(material.read())


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _without_empty(mapping: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if value}
