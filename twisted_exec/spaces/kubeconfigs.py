"""
Kubeconfigs of Spaces.

The authors of Secrets with kubeconfigs need no rights on this machine, so a kubeconfig that names
files or programs is refused. Errors quote no credentials.

A user may also access a Space with their own credentials for the hub. The address of the Space's
server comes from an object on the hub, whose authors must not be able to collect these credentials.
A client certificate may be presented to any server, because its key stays here. A token or password
is only sent to the user's own server, or to a server that the user names explicitly.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import SplitResult, urlsplit

from twisted_exec.api.kinds.secrets import SECRETS, value_of
from twisted_exec.api.spaces import (
    DEFAULT_PROVIDER,
    ENDPOINTS,
    KUBECONFIG_KEY,
    SPACES,
    namespace_of,
)
from twisted_exec.api.status import APIError, Forbidden, NotFound, ServiceUnavailable
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError, Material
from twisted_exec.kube.kubeconfig.loader import MAX_INLINE_BYTES, check_server, load_inline
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.spaces.interfaces import SpaceName
from twisted_exec.spaces.space_view import Directory, SpaceView, name_of, view_of

_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
_SPACE = b" \t\r\n"


def read(secret: Mapping[str, Any], key: str = KUBECONFIG_KEY) -> bytes:
    """
    Return the kubeconfig in a Secret, decoded once more if it was encoded twice.

    :return: 1 byte to 256 KiB.
    :raises KubeConfigError: the Secret has no usable kubeconfig.
    """
    source = source_of(secret, key)
    if key not in (secret.get("data") or {}):
        raise KubeConfigError(
            f"{source}: there is no such key; put the kubeconfig there{_instead(secret)}"
        )
    content = value_of(secret, key)
    if content is None:
        raise KubeConfigError(f"{source}: it is not base64; let kubectl create secret encode it")
    return unwrapped(content, source)


def load(secret: Mapping[str, Any], key: str = KUBECONFIG_KEY) -> ClientConfig:
    """
    Parse the kubeconfig in a Secret.

    :raises KubeConfigError: it is not usable.
    """
    return config_of(read(secret, key), source_of(secret, key))


def config_of(content: bytes, source: str) -> ClientConfig:
    """
    Parse a self-contained kubeconfig.

    :raises KubeConfigError: it is not usable.
    """
    config = load_inline(content, source)
    if config.url.scheme != "https":
        # Its author could point us at services that trust this host or its network.
        raise KubeConfigError(
            f"{config.source}: its server is not https://, which the API server of a Space must be"
        )
    if not config.has_credentials:
        raise KubeConfigError(
            f"{config.source}: it holds no credentials; give its user a token or a client certificate"
        )
    return config


def minimal(content: bytes, source: str, name: str) -> bytes:
    """
    Reduce a kubeconfig to its current context, cluster and user, each called ``name``.

    :raises KubeConfigError: it is not usable.
    """
    # Without the environment: this process's proxy settings are of no use to others.
    config = load_inline(content, source, environ={})
    return written(config, name)


def unwrapped(content: bytes, source: str) -> bytes:
    """
    Undo a second base64 encoding, if there is one.

    :raises KubeConfigError: the content cannot be that of a kubeconfig.
    """
    # A second encoding adds a third, and line breaks.
    _check_size(content, source, MAX_INLINE_BYTES * 3 // 2)
    if not _is_encoded(content):
        _check_size(content, source)
        return content
    try:
        inner = base64.b64decode(b"".join(content.split()), validate=True)
    except (binascii.Error, ValueError):
        raise KubeConfigError(
            f"{source}: it is neither a kubeconfig nor complete base64 of one"
        ) from None
    _check_size(inner, source)
    if _is_encoded(inner):
        raise KubeConfigError(f"{source}: it is encoded more than twice; encode it once")
    return inner


def endpoint_of(config: ClientConfig, viewpoint: str) -> dict[str, str]:
    """Return the public part of a kubeconfig, for ``status.endpoints`` of a Space."""
    values = {
        "viewpoint": viewpoint,
        "server": config.server,
        "certificateAuthorityData": base64.b64encode(config.ca.read()).decode("ascii"),
        "tlsServerName": config.tls_server_name,
    }
    return {key: value for key, value in values.items() if value}


def source_of(secret: Mapping[str, Any], key: str = KUBECONFIG_KEY) -> str:
    """Return the name of a Secret's key for messages."""
    metadata = secret.get("metadata") or {}
    return f'secret {metadata.get("namespace", "")}/{metadata.get("name", "")}, key "{key}"'


def _check_size(content: bytes, source: str, limit_bytes: int = MAX_INLINE_BYTES) -> None:
    if not content.strip():
        raise KubeConfigError(f"{source}: it is empty; put the kubeconfig there")
    if len(content) > limit_bytes:
        raise KubeConfigError(f"{source}: it is larger than {MAX_INLINE_BYTES >> 10} KiB")


def _is_encoded(content: bytes) -> bool:
    """Return whether content is base64, which has no colon, unlike a kubeconfig."""
    return _BASE64.issuperset(content.translate(None, _SPACE))


def _instead(secret: Mapping[str, Any]) -> str:
    """Hint at other keys without names: the reader of the message may lack access to the Secret."""
    count = len(secret.get("data") or {})
    return f" (there {'is another' if count == 1 else f'are {count} others'})" if count else ""


@dataclass(frozen=True)
class FoundSpace:
    name: SpaceName
    space: Object


async def find_space(hub: IKubeClient, name: str, provider: str = "") -> FoundSpace:
    """
    Return the Space with a name, as of :class:`~twisted_exec.spaces.interfaces.ISpaceClient`.

    :raises NotFound: there is no such Space.
    :raises Conflict: there are several such Spaces.
    :raises APIError: the Spaces cannot be read.
    """
    if provider:
        return await _of_provider(hub, name, provider)
    if (chosen := await _of_default(hub, name)) is not None:
        return chosen
    try:
        listed = await hub.list(SPACES, field_selector=f"metadata.name={name}")
    except APIError as refused:
        if refused.code != Forbidden.code:
            raise
        message = f"{refused.message}; name the provider with --provider"
        raise Forbidden(message) from None
    matches: Directory[FoundSpace] = Directory()
    for space in listed["items"]:
        if (space_name := name_of(space)) is not None:
            matches.put(FoundSpace(space_name, space))
    return matches.find(name)


async def _of_default(hub: IKubeClient, name: str) -> FoundSpace | None:
    try:
        return await _at(hub, name, namespace_of(DEFAULT_PROVIDER))
    except APIError as refused:
        # Without access to the default provider, the name may still match a Space elsewhere.
        if refused.code == Forbidden.code:
            return None
        raise


async def _of_provider(hub: IKubeClient, name: str, provider: str) -> FoundSpace:
    own, refusal = namespace_of(provider), None
    for namespace in (own, provider):
        try:
            chosen = await _at(hub, name, namespace)
        except APIError as refused:
            if refused.code != Forbidden.code:
                raise
            if namespace == own:
                refusal = refused
            continue
        if chosen is not None and (namespace == own or not chosen.name.provider):
            return chosen
    if refusal is not None:
        raise refusal
    return Directory[FoundSpace]().find(name, provider)  # raises NotFound with the right message


async def _at(hub: IKubeClient, name: str, namespace: str) -> FoundSpace | None:
    try:
        space = await hub.get(SPACES, name, namespace)
    except NotFound:
        return None
    space_name = name_of(space)
    return None if space_name is None else FoundSpace(space_name, space)


def ready_view(space: Object, viewpoint: str) -> SpaceView:
    """
    Return the view of a Space that is ready for use.

    :raises ServiceUnavailable: the Space is not ready.
    """
    view = view_of(space, viewpoint)
    assert view is not None, "the Space was looked up by its name"
    if view.deleting or not view.ready:
        why = "it is being deleted" if view.deleting else view.why_not
        raise ServiceUnavailable(f"{view.label} cannot be reached: {why}")
    return view


async def config_in(hub: IKubeClient, space: Object, viewpoint: str) -> ClientConfig:
    """
    Read a Space's Secret and return its configuration.

    :raises ServiceUnavailable: there is no Secret for this viewpoint.
    :raises KubeConfigError: the kubeconfig is not usable.
    :raises APIError: the Secret cannot be read.
    """
    view = view_of(space, viewpoint)
    assert view is not None, "the Space was looked up by its name"
    if view.secret is None:
        raise ServiceUnavailable(f"{view.label} cannot be reached: {view.no_secret}")
    try:
        return load(await hub.get(SECRETS.resource, view.secret.name, view.secret.namespace))
    except NotFound:
        raise ServiceUnavailable(f"{view.label}: {view.secret} does not exist") from None
    except KubeConfigError as error:
        raise KubeConfigError(f"{view.label}: {error}") from None


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
