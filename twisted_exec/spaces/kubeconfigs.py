"""
Kubeconfigs of Spaces.

The authors of Secrets with kubeconfigs need no rights on this machine, so a kubeconfig that names
files or programs is refused. Errors quote no credentials.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from twisted_exec.api.kinds.secrets import SECRETS, value_of
from twisted_exec.api.spaces import KUBECONFIG_KEY
from twisted_exec.api.status import NotFound, ServiceUnavailable
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.loader import MAX_INLINE_BYTES, load_inline
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.spaces.space_view import view_of

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
