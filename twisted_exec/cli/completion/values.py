"""
Candidates from the user's kubeconfig and from the selected server.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError

from twisted_exec.api.dialects import DIALECTS
from twisted_exec.api.kinds import NAMESPACES
from twisted_exec.api.names import dns_subdomain
from twisted_exec.api.spaces import SPACES
from twisted_exec.api.status import APIError
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.options import config_of
from twisted_exec.cli.runner import run_in_reactor
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.entries import ConfigFile, file_names
from twisted_exec.kube.machine_requests import served_dialects

SECONDS = 3.0
_SECTIONS = {
    "context": ("contexts", "context"),
    "cluster": ("clusters", "cluster"),
    "user": ("users", "user"),
}
_AGENT = "twisted-exec completion"

_Ask = Callable[[CommandClient], Coroutine[Any, Any, list[str]]]


def values_of(name: str, options: Mapping[str, Any]) -> Iterable[str]:
    """
    Return the values of an argument.

    :param options: those before it, which select the server.
    """
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
    try:
        files = [ConfigFile.read(name) for name in file_names(path, os.environ)]
        return [entry.name for file in files for entry in file.entries(section, noun)]
    except KubeConfigError:
        return []


def _from_server(options: argparse.Namespace, ask: _Ask) -> list[str]:
    names: list[str] = []
    try:
        config = config_of(options)
    except KubeConfigError:
        return names

    async def asking(reactor: Any) -> int:
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
    return {"metadata": {"name": obj["metadata"].get("name", "")}}


async def _namespaces(client: CommandClient) -> list[str]:
    listed = await client.list(NAMESPACES.resource, trim=_name)
    return [str(each["metadata"]["name"]) for each in listed["items"]]


async def _machines(client: CommandClient) -> list[str]:
    names = []
    for dialect in await served_dialects(client, DIALECTS):
        listed = await client.list(dialect.workload, client.config.namespace, trim=_name)
        names += [str(each["metadata"]["name"]) for each in listed["items"]]
    return names


async def _spaces(client: CommandClient) -> list[str]:
    listed = await client.list(SPACES, trim=_name)
    return [str(each["metadata"]["name"]) for each in listed["items"]]
