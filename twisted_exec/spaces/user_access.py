"""
Users who come to a Space as themselves, with the credentials that they have for another server.

Where a Space's server is says an object on that other server, and so whoever may write it.  They must not
get to use what they are shown:

* A certificate proves who we are and is no use to whom it is shown: the key stays here, and a proof is good
  for the one connection that it was made in.  It may be shown to any server.
* A token or a password is whoever's who has seen it.  It goes to the server that it is for, known by
  its address and by the CA that the user's own kubeconfig names, and to one that the user has named in
  so many words.  Nothing that an object says makes it go anywhere else.

Nothing here does I/O.
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
    What a Space says of its server.

    :raises ServiceUnavailable: nothing, from this viewpoint.
    """
    listed = (space.get("status") or {}).get(ENDPOINTS)
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and each.get("viewpoint") == viewpoint and each.get("server"):
            return each
    why = view.no_secret or "it does not say where its server is; exec-spacemanager writes that"
    raise ServiceUnavailable(f"{view.label} cannot be reached: {why}")


def with_user_credentials(
    mine: ClientConfig, endpoint: Mapping[str, Any], label: str, send_token_to: str = ""
) -> ClientConfig:
    """
    A Space's server, and the user as whom they are to another.

    :param mine: the user's configuration, with whatever a plugin said; that of the cluster that has the
        Space.
    :param endpoint: what the Space says of its server.
    :param label: what the Space is called in messages.
    :param send_token_to: a server that the user trusts with a token, as a URL.
    :raises ServiceUnavailable: what the Space says cannot be used.
    :raises Forbidden: there is nothing that may be shown to that server.
    """
    server = _server(endpoint, label)
    if same_server(mine.server, server):
        # It is believed as the user's own kubeconfig says, not as the object does.
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
    raise Forbidden(_kept_back(mine, server, label))


def same_server(one: str, other: str) -> bool:
    """Both URLs are of one server, whatever their paths; only a server with TLS is known again."""
    return _origin(one) == _origin(other) and urlsplit(one).scheme == "https"


def _origin(server: str) -> tuple[str, str, int | None]:
    url: SplitResult = urlsplit(server)
    return url.scheme, url.hostname or "", url.port or _PORTS.get(url.scheme)


def _server(endpoint: Mapping[str, Any], label: str) -> str:
    server = str(endpoint["server"]).rstrip("/")

    def wrong(problem: str) -> APIError:
        return ServiceUnavailable(f"{label}: what it says of its server cannot be used: {problem}")

    check_server(server, wrong)
    url = urlsplit(server)
    if url.scheme != "https":
        raise wrong(f"{server} has no TLS")
    if not _PREFIX.fullmatch(url.path) or url.path.startswith(("/api/", "/apis/")):
        # A path such as a Service's proxy would be asked for in the user's name.
        raise wrong(f"{server} has a path that is no API server's")
    return server


def _ca(endpoint: Mapping[str, Any], label: str) -> bytes:
    try:
        return base64.b64decode(str(endpoint.get("certificateAuthorityData") or ""), validate=True)
    except (binascii.Error, ValueError):
        raise ServiceUnavailable(f"{label}: its certificateAuthorityData is not base64") from None


def _kept_back(mine: ClientConfig, server: str, label: str) -> str:
    what = "password" if mine.username else "token"
    return (
        f"{label} is at {server}, which is not the server that your {what} is for ({mine.server}): whoever runs "
        f"it could use the {what} as you. Use a client certificate, or --space-credentials; or, if you know "
        "that server and it is to have it, --send-token-to with its URL"
    )
