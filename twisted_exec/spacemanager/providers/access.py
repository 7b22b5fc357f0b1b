"""
Kubeconfigs that a provider has, as what may be handed out of them.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from cryptography import x509

from twisted_exec.kube.config import ClientConfig, KubeConfigError
from twisted_exec.kube.entries import ConfigFile, ConfigFiles
from twisted_exec.kube.kubeconfig import load_inline
from twisted_exec.kube.written import written
from twisted_exec.spacemanager.interfaces import Access
from twisted_exec.spaces.kubeconfigs import unwrapped

_LONGEST_TOKEN = 64 << 10


def clean(content: bytes, source: str, name: str, context: str = "") -> Access:
    """
    A kubeconfig with one cluster, one user and one context, whatever else was in it.

    :param content: as somebody wrote it; encoded once too often is no harm.
    :param source: what to call it in messages.
    :param name: what these three are called.
    :param context: instead of the current one.
    :raises KubeConfigError: it is not data alone, or does not say who we are.
    """
    content = unwrapped(content, source)
    # Without the environment: a proxy of this process is nobody else's.
    return of_config(load_inline(content, source, context or None, environ={}), name)


def combined(cluster: Mapping[str, Any], user: Mapping[str, Any], source: str, name: str) -> Access:
    """
    A cluster that one told, and a user that another did; each as a kubeconfig has it.

    :raises KubeConfigError: as :func:`clean`.
    """
    document = {
        "clusters": [{"name": name, "cluster": dict(cluster)}],
        "users": [{"name": name, "user": dict(user)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    # What is neither text nor number nor truth, such as a date, is no part of a kubeconfig.
    try:
        content = json.dumps(document, default=str).encode()
    except (ValueError, RecursionError):
        raise KubeConfigError(f"{source}: it is nested too deep to be a kubeconfig") from None
    return of_config(load_inline(content, source, environ={}), name)


def user_of(content: bytes, source: str, context: str = "") -> Mapping[str, Any]:
    """
    The user of a kubeconfig's context, whatever cluster that is for.

    :param context: instead of the current one.
    :raises KubeConfigError: there is no such user.
    """
    files = ConfigFiles([ConfigFile.parse(source, unwrapped(content, source))])
    chosen = files.context(context, True)
    return files.find("users", "user", chosen.text("user"), f'context "{chosen.name}"').value


def of_config(config: ClientConfig, name: str) -> Access:
    """
    The same of what was read already.

    :raises KubeConfigError: it does not say who we are.
    """
    if not config.has_credentials:
        raise KubeConfigError(
            f"{config.source}: it holds no credentials; give its user a token or a client certificate"
        )
    return Access(written(config, name), expiry_of(config))


def expiry_of(config: ClientConfig) -> float | None:
    """
    When the first of its credentials ends, in seconds since the epoch, as far as they say so themselves.

    Nothing is believed because of it: whoever takes them decides.
    """
    ends = [end for end in (_token_end(config.token), _certificate_end(config)) if end is not None]
    return min(ends, default=None)


def _token_end(token: str) -> float | None:
    parts = token.split(".")
    if len(parts) != 3 or len(token) > _LONGEST_TOKEN:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return None
    end = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(end, bool) or not isinstance(end, int | float) or not 0 < end < 1 << 40:
        return None
    return float(end)


def _certificate_end(config: ClientConfig) -> float | None:
    if not config.certificate.data:
        return None
    try:
        certificate = x509.load_pem_x509_certificate(config.certificate.data)
    except ValueError:
        return None
    return certificate.not_valid_after_utc.timestamp()
