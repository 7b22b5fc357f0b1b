"""
The credential plugin of Spaces: an ``ExecCredential`` for kubectl and client-go.

Source: ``k8s.io/client-go/pkg/apis/clientauthentication``, and ``plugin/pkg/client/auth/exec`` for
when client-go runs the plugin.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping
from typing import Any

from twisted_exec.api import times
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.failures import InputError
from twisted_exec.cli.options import viewpoint_of
from twisted_exec.cli.space.kubeconfig import command_line
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.expiry import expiry_of
from twisted_exec.spaces.interfaces import SpaceName
from twisted_exec.spaces.kubeconfigs import config_in
from twisted_exec.spaces.lookup import find_space

INFO = "KUBERNETES_EXEC_INFO"
KIND = "ExecCredential"
GROUP = "client.authentication.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")

ASK_AGAIN_SECONDS = 300.0
"""Longest time until a client notices rotated credentials."""
BEFORE_END_SECONDS = 60.0
SHORTEST_SECONDS = 10.0
"""Shortest time between two runs, also for expired credentials."""


async def credential(client: CommandClient, options: argparse.Namespace) -> str:
    """
    Return the output: one ``ExecCredential``.

    :raises InputError: the request is not supported or is for another server, or the credentials do
        not fit the format.
    """
    request = request_in(os.environ)
    location = await find_space(client, options.name, options.provider)
    config = await config_in(client, location.space, viewpoint_of(options))
    check_server(request, config, location.name, options)
    document = exec_credential(request["apiVersion"], config, location.name, options, time.time())
    return json.dumps(document) + "\n"


def request_in(environ: Mapping[str, str]) -> dict[str, Any]:
    """
    Return the request in ``KUBERNETES_EXEC_INFO``, or a default without it.

    :raises InputError: the request is malformed, or has an unknown version.
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
    Check that a request is for the Space's server, if it names one.

    :raises InputError: another server must not get these credentials.
    """
    spec = request.get("spec")
    cluster = spec.get("cluster") if isinstance(spec, dict) else None
    server = cluster.get("server") if isinstance(cluster, dict) else None
    if server and str(server).rstrip("/") != config.server:
        raise InputError(
            f"space {name} is at {config.server}, and not at {server}; "
            f"write its kubeconfig again: {command_line(name, options)}"
        )


def exec_credential(
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
    Return the ``expirationTimestamp`` in seconds since the epoch, early enough to notice rotated
    credentials.
    """
    end = expiry_of(config)
    latest = now + ASK_AGAIN_SECONDS
    if end is None:
        return latest
    return max(min(latest, end - BEFORE_END_SECONDS), now + SHORTEST_SECONDS)
