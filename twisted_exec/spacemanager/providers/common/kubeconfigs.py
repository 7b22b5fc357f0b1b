"""
Kubeconfigs that a provider has, as what may be handed out of them.

What was found wrong with kubeconfigs, so that lists, which do not look at them, agree with single looks.
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
    """The last of each physical space, for as long as its version is the same."""

    def __init__(self) -> None:
        self._refused: dict[Physical, SpaceInfo] = {}

    def note(self, info: SpaceInfo) -> SpaceInfo:
        """What a single look found; :return: the same."""
        if info.state == BROKEN:
            self._refused[info.physical] = info
        else:
            self._refused.pop(info.physical, None)
        return info

    def applied(self, infos: Iterable[SpaceInfo]) -> Sequence[SpaceInfo]:
        """A whole list, in order; those that are not in it are forgotten."""
        found = {info.physical: self._of(info) for info in infos}
        for physical in self._refused.keys() - found.keys():
            del self._refused[physical]
        return [found[physical] for physical in sorted(found)]

    def _of(self, info: SpaceInfo) -> SpaceInfo:
        refused = self._refused.get(info.physical)
        return refused if refused is not None and refused.version == info.version else info


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
