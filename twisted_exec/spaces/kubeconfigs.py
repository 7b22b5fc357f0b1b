"""
Kubeconfigs in Secrets: how a Space's API server is reached, and as whom.

A Secret's ``data`` is base64 already.  Upstream encoded kubeconfigs once more before they went there, so
what is found may be either; what is written is encoded once.  Whoever may write such a Secret need not be
anybody on this machine, so a kubeconfig is data here: one that names files or programs is refused.

All errors are :class:`~twisted_exec.kube.kubeconfig.client_config.KubeConfigError`: one line that names the Secret and the key,
says what would help, and quotes nothing of what is in it.
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
    The kubeconfig that a Secret holds, unwrapped once if it was encoded twice.

    :param secret: the Secret as an API server gives it.
    :return: 256 KiB or less, and not empty.
    :raises KubeConfigError: there is none, or something else.
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
    What the kubeconfig of a Secret says.

    :raises KubeConfigError: it cannot be used.
    """
    return config_of(read(secret, key), source_of(secret, key))


def config_of(content: bytes, source: str) -> ClientConfig:
    """
    What a kubeconfig that is data says, with credentials.

    :param content: as :func:`read` gives it.
    :param source: what to call it in messages.
    :raises KubeConfigError: it cannot be used, or does not say who we are.
    """
    config = load_inline(content, source)
    if config.url.scheme != "https":
        # Whoever wrote it would have us speak to whatever trusts those who are on this host, or near it.
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
    The same kubeconfig with the current context's cluster and user only, all data.

    :param name: what these three are called in it.
    :raises KubeConfigError: it cannot be used.
    """
    # Without the environment: a proxy of this process is nobody else's.
    config = load_inline(content, source, environ={})
    return written(config, name)


def unwrapped(content: bytes, source: str) -> bytes:
    """
    What a value is, unless it was encoded once too often; then what it was before.

    :param source: what to call it in messages.
    :raises KubeConfigError: it is empty, larger than 256 KiB, or was encoded still more often.
    """
    # Encoded once more it is a third longer, and line ends come on top.
    _check_size(content, source, MAX_INLINE_BYTES * 3 // 2)
    if not _is_encoded(content):
        _check_size(content, source)
        return content
    try:
        inner = base64.b64decode(b"".join(content.split()), validate=True)
    except (binascii.Error, ValueError):
        raise KubeConfigError(
            f"{source}: it is no kubeconfig, and no whole base64 of one"
        ) from None
    _check_size(inner, source)
    if _is_encoded(inner):
        raise KubeConfigError(f"{source}: it is encoded more than twice; encode it once")
    return inner


def endpoint_of(config: ClientConfig, viewpoint: str) -> dict[str, str]:
    """
    What of a kubeconfig is no secret, as ``status.endpoints`` of a Space has it.

    :param viewpoint: :data:`~twisted_exec.api.spaces.IN_CLUSTER` or
        :data:`~twisted_exec.api.spaces.EXTERNAL`.
    """
    told = {
        "viewpoint": viewpoint,
        "server": config.server,
        "certificateAuthorityData": base64.b64encode(config.ca.read()).decode("ascii"),
        "tlsServerName": config.tls_server_name,
    }
    return {key: value for key, value in told.items() if value}


def source_of(secret: Mapping[str, Any], key: str = KUBECONFIG_KEY) -> str:
    """What a Secret's key is called in messages."""
    metadata = secret.get("metadata") or {}
    return f'secret {metadata.get("namespace", "")}/{metadata.get("name", "")}, key "{key}"'


def _check_size(content: bytes, source: str, limit_bytes: int = MAX_INLINE_BYTES) -> None:
    if not content.strip():
        raise KubeConfigError(f"{source}: it is empty; put the kubeconfig there")
    if len(content) > limit_bytes:
        raise KubeConfigError(f"{source}: it is larger than {MAX_INLINE_BYTES >> 10} KiB")


def _is_encoded(content: bytes) -> bool:
    """No kubeconfig is made of these marks alone: each has a colon."""
    return _BASE64.issuperset(content.translate(None, _SPACE))


def _instead(secret: Mapping[str, Any]) -> str:
    """The likely mistake is a wrong key; but who is told need not be who may read the Secret."""
    count = len(secret.get("data") or {})
    return f" (there {'is another' if count == 1 else f'are {count} others'})" if count else ""
