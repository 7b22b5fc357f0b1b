"""
Kubeconfigs that a provider has, as what may be handed out of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twisted_exec.kube.config import ClientConfig, KubeConfigError
from twisted_exec.kube.entries import ConfigFile, ConfigFiles
from twisted_exec.kube.expiry import expiry_of
from twisted_exec.kube.kubeconfig import load_inline
from twisted_exec.kube.written import written
from twisted_exec.spacemanager.interfaces import Access
from twisted_exec.spaces.kubeconfigs import unwrapped


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
