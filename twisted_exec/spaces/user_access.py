"""
Access to a Space with the user's own credentials for the hub.

The address of the Space's server comes from an object on the hub, whose authors must not be able to
collect these credentials. A client certificate may be presented to any server, because its key stays
here. A token or password is only sent to the user's own server, or to a server that the user names
explicitly.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import SplitResult, urlsplit

from twisted_exec.api.spaces import ENDPOINTS
from twisted_exec.api.status import APIError, Forbidden, ServiceUnavailable
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.kubeconfig.loader import check_server
from twisted_exec.spaces.space_view import SpaceView

_PREFIX = re.compile(r"(?:/[A-Za-z0-9_:-][A-Za-z0-9_:.-]*)*")
"""Paths of API servers behind one address, such as ``/clusters/root:team:one``."""
_PORTS = {"https": 443, "http": 80}


def endpoint_in(space: Object, view: SpaceView, viewpoint: str) -> Mapping[str, Any]:
    """
    Return the endpoint of a Space for a viewpoint.

    :raises ServiceUnavailable: the Space has none.
    """
    listed = (space.get("status") or {}).get(ENDPOINTS)
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and each.get("viewpoint") == viewpoint and each.get("server"):
            return each
    why = view.no_secret or "its status has no endpoint; exec-spacemanager must set it"
    raise ServiceUnavailable(f"{view.label} cannot be reached: {why}")


def with_user_credentials(
    mine: ClientConfig, endpoint: Mapping[str, Any], label: str, send_token_to: str = ""
) -> ClientConfig:
    """
    Return a configuration for a Space's server with the user's own credentials.

    :param mine: the user's configuration for the hub.
    :param send_token_to: URL of a server that the user trusts with the token.
    :raises ServiceUnavailable: the endpoint is not usable.
    :raises Forbidden: none of the credentials may be sent to that server.
    """
    server = _server(endpoint, label)
    if same_server(mine.server, server):
        # Trust comes from the user's own kubeconfig, not from the object.
        return replace(mine, server=server, namespace=mine.namespace)
    config = ClientConfig(
        server=server,
        namespace=mine.namespace,
        ca=Material(data=_ca(endpoint, label)),
        certificate=mine.certificate,
        key=mine.key,
        impersonate=mine.impersonate,
        tls_server_name=str(endpoint.get("tlsServerName") or ""),
        source=mine.source,
        credentials_source=mine.credentials_source,
        expires=mine.expires,
    )
    if send_token_to and same_server(send_token_to, server):
        return replace(
            config,
            token=mine.token,
            token_file=mine.token_file,
            username=mine.username,
            password=mine.password,
        )
    if config.certificate or not mine.has_credentials:
        return config
    raise Forbidden(_withheld(mine, server, label))


def same_server(first: str, second: str) -> bool:
    """Return whether two URLs name the same server, which must use TLS."""
    return _origin(first) == _origin(second) and urlsplit(first).scheme == "https"


def _origin(server: str) -> tuple[str, str, int | None]:
    url: SplitResult = urlsplit(server)
    return url.scheme, url.hostname or "", url.port or _PORTS.get(url.scheme)


def _server(endpoint: Mapping[str, Any], label: str) -> str:
    server = str(endpoint["server"]).rstrip("/")

    def wrong(problem: str) -> APIError:
        return ServiceUnavailable(f"{label}: its endpoint is not usable: {problem}")

    check_server(server, wrong)
    url = urlsplit(server)
    if url.scheme != "https":
        raise wrong(f"{server} has no TLS")
    if not _PREFIX.fullmatch(url.path) or url.path.startswith(("/api/", "/apis/")):
        # The user's credentials must not reach paths such as a Service's proxy.
        raise wrong(f"{server} has a path that is no API server's")
    return server


def _ca(endpoint: Mapping[str, Any], label: str) -> bytes:
    try:
        return base64.b64decode(str(endpoint.get("certificateAuthorityData") or ""), validate=True)
    except (binascii.Error, ValueError):
        raise ServiceUnavailable(f"{label}: its certificateAuthorityData is not base64") from None


def _withheld(mine: ClientConfig, server: str, label: str) -> str:
    what = "password" if mine.username else "token"
    return (
        f"{label} is at {server}, which is not the server that your {what} is for ({mine.server}): whoever runs "
        f"it could use the {what} as you. Use a client certificate, or --space-credentials; or, if you know "
        "that server and it is to have it, --send-token-to with its URL"
    )
