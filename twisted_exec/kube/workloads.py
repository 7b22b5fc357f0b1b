"""
Which dialects an API server speaks: whose machines with a console it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.status import APIError
from twisted_exec.kube.client import KubeClient


async def served_dialects(client: KubeClient, among: Iterable[Dialect]) -> Sequence[Dialect]:
    """
    Ask discovery, as kubectl does.

    :param among: those of interest.
    :return: those of them whose consoles the server has, in the server's order of groups.
    :raises APIError: it cannot be asked.
    """
    wanted = list(among)
    found = []
    for group in await client.groups():
        here = [dialect for dialect in wanted if dialect.group == group]
        for version in dict.fromkeys(dialect.version for dialect in here):
            names = await _resources(client, group, version)
            found += [
                dialect
                for dialect in here
                if dialect.version == version and f"{dialect.workload.plural}/exec" in names
            ]
    return found


async def _resources(client: KubeClient, group: str, version: str) -> Sequence[str]:
    try:
        return await client.resources(group, version)
    except APIError as error:
        if error.code == 404:  # the group is there, in other versions
            return ()
        raise
