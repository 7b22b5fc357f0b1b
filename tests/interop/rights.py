"""
Rights at a console by role and by client: all kubectls of this machine, and a real kube-apiserver.

``python -m tests.interop.rights`` writes the tables of ``docs/reference/console.rst``; the test
compares.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest import SkipTest

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import react
from twisted.trial.unittest import TestCase

from tests import needs
from tests.clients import kubectl
from tests.clients.table import compare, not_compared
from tests.flows.deployment import Deployment, pause
from tests.flows.sessions import rights
from tests.interop import chains
from tests.interop.aggregated_cluster import AggregatedCluster
from twisted_exec.api import kinds
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.loader import load

THREE_PROGRAMS = "standalone"
AGGREGATED = "behind a kube-apiserver"


async def clients(directory: str, *, pods: bool) -> list[rights.Client]:
    """Return our client and every kubectl, the oldest first."""
    several = rights.ours()
    for each in [*await kubectl.oldest(), *await kubectl.found(), *await kubectl.newest()]:
        several += rights.of_kubectl(each.name, each.path, each.minor, directory, pods=pods)
    return several


async def in_three_programs(mode: str, directory: str) -> dict[rights.Cell, str]:
    """Try all cells with our three programs."""
    deployment = Deployment(f"{directory}/{mode}")
    option = f"--console-verbs={mode}"
    try:
        await deployment.start_api(option)
        await deployment.start_runtime()
        await deployment.start_poollet(option)
        await deployment.create_class("shell", "64Mi")
        several = await clients(directory, pods=True)
        return await rights.of_deployment(deployment).found(several)
    finally:
        await deployment.stop()


async def behind_kube_apiserver(mode: str, directory: str) -> dict[rights.Cell, str]:
    """Try all cells with an API server behind a kube-apiserver."""
    option = f"--console-verbs={mode}"
    cluster = AggregatedCluster(f"rights-{mode}", option)
    client = None
    try:
        cluster.start()
        runtime = chains.our_runtime(cluster.programs, cluster.make.revision, class_name="pty")
        chains.our_poollet(cluster, "local", runtime, options=(option,))
        client = KubeClient(load(cluster.kubeconfig), reactor)
        machine_class = {
            "apiVersion": f"{cluster.make.group}/v1alpha1",
            "kind": "MachineClass",
            "metadata": {"name": "pty"},
            "capabilities": {"cpu": "1", "memory": str(chains.MEMORY)},
        }
        cluster.apply(machine_class)
        site = rights.Site(
            cluster.kubeconfig,
            client,
            lambda user: cluster.user(user, []),
            _machines(client),
        )
        return await site.found(await clients(directory, pods=False))
    finally:
        if client is not None:
            await client.close()
        cluster.stop()


def _machines(client: KubeClient) -> Callable[[str], Awaitable[None]]:
    """Return a function that creates a machine and waits until it runs."""
    resource = kinds.MACHINES.resource

    async def create(name: str) -> None:
        machine = {
            "apiVersion": resource.api_version,
            "kind": "Machine",
            "metadata": {"name": name},
            "spec": {"machineClassRef": {"name": "pty"}, "machinePoolRef": {"name": "local"}},
        }
        await client.create(resource, machine, "default")
        status: dict[str, str] = {}
        while status.get("state") != "Running":
            await pause()
            status = (await client.get(resource, name, "default")).get("status", {})

    return create


async def tables() -> dict[Path, str]:
    """Try everything; return the tables by their files."""
    directory = tempfile.mkdtemp(prefix="rights-")
    answers, aggregated = {}, {}
    for mode in rights.MODES:
        answers[mode] = await in_three_programs(mode, directory)
        aggregated[mode] = await behind_kube_apiserver(mode, directory)
    several = {
        THREE_PROGRAMS: await clients(directory, pods=True),
        AGGREGATED: await clients(directory, pods=False),
    }
    return {
        rights.ANSWERS: rights.answers_table(answers, aggregated),
        rights.CLIENTS: rights.clients_table(several),
    }


class RightsTests(TestCase):
    """The documentation shows the results of this run."""

    timeout = 3600
    skip = needs.aggregated()

    async def test_tables(self) -> None:
        """Every cell again, with every kubectl that is here."""
        found = await tables()
        answers = rights.ANSWERS.read_text(encoding="utf-8")
        self.assertEqual(answers, found[rights.ANSWERS], f"write it: {rights.COMMAND}")
        page = rights.CLIENTS.read_text(encoding="utf-8")
        differences = compare(found[rights.CLIENTS], page)
        self.assertEqual(differences, "", f"write it: {rights.COMMAND}")

    async def test_clients(self) -> None:
        """Every client of the table is here."""
        here = {each.name for each in await clients(self.mktemp(), pods=True)}
        if rest := not_compared(here, rights.CLIENTS.read_text(encoding="utf-8")):
            raise SkipTest(rest)


async def _main() -> None:
    if missing := needs.aggregated() or needs.newest_kubectl() or needs.oldest_kubectl():
        raise SystemExit(missing)
    for path, text in (await tables()).items():
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(text)


if __name__ == "__main__":
    react(lambda _: Deferred.fromCoroutine(_main()))
