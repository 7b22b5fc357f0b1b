"""
A provider's kubeconfigs, reduced to what may be handed out.

Verdicts on kubeconfigs from single requests are remembered, so that lists, which do not check
them, agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError, expiry_of
from twisted_exec.kube.kubeconfig.entries import ConfigFile, ConfigFiles
from twisted_exec.kube.kubeconfig.loader import load_inline
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.spacemanager.interfaces import BROKEN, Access, Physical, SpaceInfo
from twisted_exec.spaces.kubeconfigs import unwrapped


class KubeconfigVerdicts:
    """The last verdict on each physical space, while its version stays the same."""

    def __init__(self) -> None:
        self._refused: dict[Physical, SpaceInfo] = {}

    def note(self, info: SpaceInfo) -> SpaceInfo:
        """Remember the verdict of a single request.  :return: the same info."""
        if info.state == BROKEN:
            self._refused[info.physical] = info
        else:
            self._refused.pop(info.physical, None)
        return info

    def applied(self, infos: Iterable[SpaceInfo]) -> Sequence[SpaceInfo]:
        """Apply the verdicts to a complete, sorted list, and forget spaces that are not in it."""
        by_name = {info.physical: self._of(info) for info in infos}
        for physical in self._refused.keys() - by_name.keys():
            del self._refused[physical]
        return [by_name[physical] for physical in sorted(by_name)]

    def _of(self, info: SpaceInfo) -> SpaceInfo:
        refused = self._refused.get(info.physical)
        return refused if refused is not None and refused.version == info.version else info


def clean(content: bytes, source: str, name: str, context: str = "") -> Access:
    """
    Reduce a kubeconfig to one cluster, one user and one context.

    :param content: the kubeconfig, possibly encoded twice.
    :param source: name for messages.
    :param name: name of all three in the result.
    :param context: use this instead of the current context.
    :raises KubeConfigError: it is not self-contained, or has no credentials.
    """
    content = unwrapped(content, source)
    # Without the environment: this process's proxy settings are of no use to others.
    return of_config(load_inline(content, source, context or None, environ={}), name)


def combined(cluster: Mapping[str, Any], user: Mapping[str, Any], source: str, name: str) -> Access:
    """
    Combine a cluster and a user from different sources, each in the format of a kubeconfig.

    :raises KubeConfigError: as for :func:`clean`.
    """
    document = {
        "clusters": [{"name": name, "cluster": dict(cluster)}],
        "users": [{"name": name, "user": dict(user)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    # Values of other types, such as dates, cannot be part of a kubeconfig.
    try:
        content = json.dumps(document, default=str).encode()
    except (ValueError, RecursionError):
        raise KubeConfigError(f"{source}: it is nested too deep to be a kubeconfig") from None
    return of_config(load_inline(content, source, environ={}), name)


def user_of(content: bytes, source: str, context: str = "") -> Mapping[str, Any]:
    """
    Return the user of a kubeconfig's context, whatever its cluster.

    :param context: use this instead of the current context.
    :raises KubeConfigError: there is no such user.
    """
    files = ConfigFiles([ConfigFile.parse(source, unwrapped(content, source))])
    chosen = files.context(context, True)
    return files.find("users", "user", chosen.text("user"), f'context "{chosen.name}"').value


def of_config(config: ClientConfig, name: str) -> Access:
    """
    Return the access for a parsed kubeconfig.

    :raises KubeConfigError: it has no credentials.
    """
    if not config.has_credentials:
        raise KubeConfigError(
            f"{config.source}: it holds no credentials; give its user a token or a client certificate"
        )
    return Access(written(config, name), expiry_of(config))
