"""
``twisted-exec space exec-credential``: a credential plugin with the credentials of a Space.

Source: ``k8s.io/client-go/pkg/apis/clientauthentication``, and ``plugin/pkg/client/auth/exec`` for
when client-go runs it: at the first request, after ``expirationTimestamp``, and after a 401.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twisted_exec.api import times
from twisted_exec.cli.command import InputError
from twisted_exec.cli.space.kubeconfig import command_line
from twisted_exec.cli.space.options import viewpoint_of

if TYPE_CHECKING:
    from twisted_exec.cli.client import CommandClient
    from twisted_exec.kube.kubeconfig.client_config import ClientConfig
    from twisted_exec.spaces.interfaces import SpaceName

INFO = "KUBERNETES_EXEC_INFO"
KIND = "ExecCredential"
GROUP = "client.authentication.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")

ASK_AGAIN_SECONDS = 300.0
"""Longest time until a client notices rotated credentials."""
BEFORE_END_SECONDS = 60.0
SHORTEST_SECONDS = 10.0
"""Shortest time between two runs: expired credentials must not start a process for every request."""


async def credential(client: CommandClient, options: argparse.Namespace) -> str:
    """
    Return the output: one ``ExecCredential``.

    :param client: client of the cluster that has the Space.
    :raises InputError: the request is not supported.
    """
    from twisted_exec.spaces.lookup import config_in, find_space

    request = asked_for(os.environ)
    location = await find_space(client, options.name, options.provider)
    config = await config_in(client, location.space, viewpoint_of(options))
    check_server(request, config, location.name, options)
    answer = answered(request["apiVersion"], config, location.name, options, time.time())
    return json.dumps(answer) + "\n"


def asked_for(environ: Mapping[str, str]) -> dict[str, Any]:
    """
    Return the request in ``KUBERNETES_EXEC_INFO``, or a default without it.

    :raises InputError: it is malformed, or has an unknown version.
    """
    text = environ.get(INFO, "")
    if not text:
        return {"apiVersion": VERSIONS[0], "kind": KIND}
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise InputError(f"${INFO} is no {KIND}")
    if document.get("apiVersion") not in VERSIONS:
        raise InputError(f"${INFO} has none of the apiVersions {' and '.join(VERSIONS)}")
    return document


def check_server(
    request: Mapping[str, Any], config: ClientConfig, name: SpaceName, options: argparse.Namespace
) -> None:
    """
    Check that the request is for the Space's server.

    :raises InputError: it is for another server, which must not get these credentials.
    """
    spec = request.get("spec")
    cluster = spec.get("cluster") if isinstance(spec, dict) else None
    server = cluster.get("server") if isinstance(cluster, dict) else None
    if server and str(server).rstrip("/") != config.server:
        raise InputError(
            f"space {name} is at {config.server}, and not at {server}; "
            f"write its kubeconfig again: {command_line(name, options)}"
        )


def answered(
    version: str, config: ClientConfig, name: SpaceName, options: argparse.Namespace, now: float
) -> dict[str, Any]:
    """
    Return the ``ExecCredential`` of a configuration.

    :param now: seconds since the epoch.
    :raises InputError: the format cannot express its credentials.
    """
    status = {
        "token": config.token,
        "clientCertificateData": config.certificate.data.decode("utf-8", "replace"),
        "clientKeyData": config.key.data.decode("utf-8", "replace"),
    }
    status = {key: value for key, value in status.items() if value}
    if not status:
        raise InputError(
            f"space {name} is reached with neither a token nor a certificate; "
            f"write a kubeconfig that contains its credentials: "
            f"{command_line(name, options, '--static')}"
        )
    status["expirationTimestamp"] = times.timestamp(ask_again(config, now))
    return {"apiVersion": version, "kind": KIND, "status": status}


def ask_again(config: ClientConfig, now: float) -> float:
    """
    Return the ``expirationTimestamp`` in seconds since the epoch: early enough to notice rotated
    credentials, and before these expire.
    """
    from twisted_exec.kube.kubeconfig.client_config import expiry_of

    end = expiry_of(config)
    latest = now + ASK_AGAIN_SECONDS
    if end is None:
        return latest
    return max(min(latest, end - BEFORE_END_SECONDS), now + SHORTEST_SECONDS)
