"""
Kubeconfigs in Secrets: endpoint and credentials of a Space's API server.

A Secret's ``data`` is base64 already.  Upstream encoded kubeconfigs a second time, so both forms
are read; we write the single encoding.  The authors of such Secrets need no rights on this
machine, so a kubeconfig must be self-contained: one that names files or programs is refused.

All errors are :class:`~twisted_exec.kube.config.KubeConfigError`: one line that names the Secret,
the key and the remedy, and quotes none of the content.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from twisted_exec.api.kinds.secrets import value_of
from twisted_exec.api.spaces import KUBECONFIG_KEY
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.loader import MAX_INLINE_BYTES, load_inline
from twisted_exec.kube.kubeconfig.writer import written

_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
_SPACE = b" \t\r\n"


def read(secret: Mapping[str, Any], key: str = KUBECONFIG_KEY) -> bytes:
    """
    Return the kubeconfig in a Secret, decoded once more if it was encoded twice.

    :param secret: the Secret as an API server returns it.
    :return: 1 byte to 256 KiB.
    :raises KubeConfigError: the Secret has no kubeconfig.
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

    :raises KubeConfigError: the kubeconfig is not usable.
    """
    return config_of(read(secret, key), source_of(secret, key))


def config_of(content: bytes, source: str) -> ClientConfig:
    """
    Parse a self-contained kubeconfig.

    :param content: the result of :func:`read`.
    :param source: name for messages.
    :raises KubeConfigError: the kubeconfig is not usable, or has no credentials.
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
    Reduce a kubeconfig to its current context, cluster and user, all self-contained.

    :param name: name of all three in the result.
    :raises KubeConfigError: the kubeconfig is not usable.
    """
    # Without the environment: this process's proxy settings are of no use to others.
    config = load_inline(content, source, environ={})
    return written(config, name)


def unwrapped(content: bytes, source: str) -> bytes:
    """
    Undo a second base64 encoding, if there is one.

    :param source: name for messages.
    :raises KubeConfigError: the value is empty, larger than 256 KiB, or encoded more than twice.
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
    """
    Return the public part of a kubeconfig, for ``status.endpoints`` of a Space.

    :param viewpoint: :data:`~twisted_exec.api.spaces.IN_CLUSTER` or
        :data:`~twisted_exec.api.spaces.EXTERNAL`.
    """
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
    """Return whether content is base64: every kubeconfig contains a colon."""
    return _BASE64.issuperset(content.translate(None, _SPACE))


def _instead(secret: Mapping[str, Any]) -> str:
    """Hint at other keys without naming them: the reader of the message may lack access to the Secret."""
    count = len(secret.get("data") or {})
    return f" (there {'is another' if count == 1 else f'are {count} others'})" if count else ""
