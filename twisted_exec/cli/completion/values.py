"""
Names from kubeconfigs and API servers, for completion.

A shell waits for them, so requests have a short time limit, and every error is silent: a message
would appear in the middle of the line that the user types.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from twisted_exec.api.names import dns_subdomain

if TYPE_CHECKING:
    from twisted_exec.cli.client import CommandClient

SECONDS = 3.0
_SECTIONS = {
    "context": ("contexts", "context"),
    "cluster": ("clusters", "cluster"),
    "user": ("users", "user"),
}
_AGENT = "twisted-exec completion"

_Ask = Callable[["CommandClient"], Coroutine[Any, Any, list[str]]]


class RealValues:
    """Values for the user's kubeconfig and the server that the command line selects."""

    def of(self, name: str, options: Mapping[str, Any]) -> Iterable[str]:
        """See :class:`~twisted_exec.cli.completion.words.Values`."""
        if name in _SECTIONS:
            return sorted(_entries(options.get("kubeconfig"), *_SECTIONS[name]))
        asks: dict[str, _Ask] = {
            "namespace": _namespaces,
            "machine": _machines,
            "space": _spaces,
        }
        names = set(_from_server(argparse.Namespace(**options), asks[name]))
        # A hostile server's names could have control characters, or look like several words.
        return sorted(each for each in names if not dns_subdomain(each))


def _entries(path: str | None, section: str, noun: str) -> list[str]:
    """Return the names of contexts, clusters or users."""
    from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
    from twisted_exec.kube.kubeconfig.entries import ConfigFile, file_names

    try:
        files = [ConfigFile.read(name) for name in file_names(path, os.environ)]
        return [entry.name for file in files for entry in file.entries(section, noun)]
    except KubeConfigError:
        return []


def _from_server(options: argparse.Namespace, ask: _Ask) -> list[str]:
    """Return names from the server; none after an error."""
    from twisted_exec.cli.cluster_options import config_of
    from twisted_exec.cli.command import run_in_reactor
    from twisted_exec.kube.kubeconfig.client_config import KubeConfigError

    names: list[str] = []
    try:
        config = config_of(options)
    except KubeConfigError:
        return names

    async def asking(reactor: Any) -> int:
        from twisted.internet.defer import Deferred, TimeoutError

        from twisted_exec.api.status import APIError
        from twisted_exec.cli.client import CommandClient

        client = CommandClient(config, reactor, timeout_seconds=SECONDS, agent=_AGENT)
        try:
            listing = Deferred.fromCoroutine(ask(client))
            names.extend(await listing.addTimeout(SECONDS, reactor))
        except (APIError, KubeConfigError, TimeoutError):
            pass
        return 0

    run_in_reactor("completion", asking)
    return names


def _name(obj: dict[str, Any]) -> dict[str, Any]:
    """Keep only the name of an object."""
    return {"metadata": {"name": obj["metadata"].get("name", "")}}


async def _namespaces(client: CommandClient) -> list[str]:
    from twisted_exec.api.kinds import NAMESPACES

    listed = await client.list(NAMESPACES.resource, trim=_name)
    return [str(each["metadata"]["name"]) for each in listed["items"]]


async def _machines(client: CommandClient) -> list[str]:
    from twisted_exec.api.dialects import DIALECTS
    from twisted_exec.kube.consoles.exec import served_dialects

    names = []
    for dialect in await served_dialects(client, DIALECTS):
        listed = await client.list(dialect.workload, client.config.namespace, trim=_name)
        names += [str(each["metadata"]["name"]) for each in listed["items"]]
    return names


async def _spaces(client: CommandClient) -> list[str]:
    from twisted_exec.api.spaces import SPACES

    listed = await client.list(SPACES, trim=_name)
    return [str(each["metadata"]["name"]) for each in listed["items"]]
