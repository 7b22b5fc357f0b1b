"""
Refusals of release 0.2.0, which does not name their causes: its texts for ``tests/captures/refusals.json``.

``python -m twisted.trial tests.interop.refusals`` writes the file anew; it needs ``OLDER_RELEASE``.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows.deployment import CLASSES, POOL, Deployment, machine, machine_class
from tests.flows.programs import Program, twistd
from tests.interop import chains
from tests.interop.ironcore import ForeignCluster, Make, ironcore, onmetal
from twisted_exec.api import kinds
from twisted_exec.api.dialects import DEFAULT, IRONCORE, ONMETAL, Dialect
from twisted_exec.api.obstacles import obstacles_of
from twisted_exec.api.status import APIError
from twisted_exec.cli.refusal_texts import (
    IRONCORE_APISERVER,
    KUBE_APISERVER,
    ONMETAL_APISERVER,
    RELEASE_0_2_0,
)
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.console import ConsoleOptions, open_console
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.streaming.remotecommand.stream import ConsoleUser

FILE = Path(__file__).parents[1] / "captures" / "refusals.json"
MACHINES, POOLS = kinds.MACHINES.resource, kinds.MACHINEPOOLS.resource


async def refusal(kubeconfig: str, name: str, dialect: Dialect = DEFAULT) -> str:
    """Return the text with which a console is refused."""
    options = ConsoleOptions(timeout_seconds=60, among=[dialect])
    user = ConsoleUser()
    try:
        await open_console(load(kubeconfig), "default", name, user, reactor, options)
    except APIError as refused:
        assert not obstacles_of(refused)
        return refused.message
    raise AssertionError(f"the console of {name} opens")


def write(peer: str, texts: Sequence[str]) -> None:
    """Replace the texts of a program in the file."""
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    FILE.write_text(json.dumps(known | {peer: texts}, indent=1) + "\n")


_BROKEN = """
- name: broken
  driver: pty
  command: [{}]
  same_user: true
  capabilities: {{cpu: "1", memory: 2Mi}}
  quantity: 1
"""


class _Deployment(Deployment):
    """A deployment of release 0.2.0."""

    fork, poollet_seconds = False, 5

    def twistd(self, plugin: str, *options: str) -> Program:
        return twistd(
            plugin, *options, env={"PYTHONPATH": needs.older_release_directory()}, fork=False
        )


class RefusalTests(TestCase):
    """Consoles that release 0.2.0 refuses."""

    timeout = 300
    skip = needs.older_release()

    async def capture(self, name: str) -> None:
        """Keep the text with which a console is refused, without the port, which is another one each time."""
        self.texts.append(re.sub(r":\d{4,5}\b", ":12319", await refusal(self.place.admin, name)))

    async def add_pool(self, name: str, addresses: Sequence[tuple[str, str]], port: int) -> None:
        """Create a pool without a poollet, and a machine of the same name in it."""
        client = self.place.client
        pool: dict[str, Any] = {
            "apiVersion": POOLS.api_version,
            "kind": POOLS.kind,
            "metadata": {"name": name},
            "spec": {"providerID": name},
        }
        await client.create(POOLS, pool)
        status = {
            "addresses": [{"type": kind, "address": address} for kind, address in addresses],
            "daemonEndpoints": {"machinepoolletEndpoint": {"port": port}},
        }
        await client.patch(POOLS, name, {"status": status}, subresource="status")
        await client.create(MACHINES, machine(name, "shell", name), namespace="default")

    async def test_texts(self) -> None:
        """Each refusal is captured."""
        self.texts: list[str] = []
        self.place = place = _Deployment(self.mktemp(), unix_streams=True)
        self.addCleanup(place.stop)
        broken = _BROKEN.format(os.path.abspath(place.path("shell")))
        Path(place.path("runtime.yaml")).write_text(CLASSES + broken)
        shell = Path(place.path("shell"))
        shell.write_text("#!/bin/sh\n")
        shell.chmod(0o755)
        await place.start()
        shell.unlink()
        client = place.client
        await place.create_machine("vm", "shell")
        pool = await client.get(POOLS, POOL)
        port = pool["status"]["daemonEndpoints"]["machinepoolletEndpoint"]["port"]
        closed = place.reserved.add()

        await self.add_pool("no-address", [], 1)
        await self.capture("no-address")
        await self.add_pool("unknown-name", [("Hostname", "hypervisor.invalid")], 1)
        await self.capture("unknown-name")
        await self.add_pool("closed-port", [("InternalIP", "127.0.0.1")], closed)
        await self.capture("closed-port")
        await self.add_pool("other-pool", [("InternalIP", "127.0.0.1")], port)
        await self.capture("other-pool")
        with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts
            await self.add_pool("silent", [("InternalIP", "127.0.0.1")], silent.getsockname()[1])
            await self.capture("silent")
        for name, memory in (("other", "1Mi"), ("broken", "2Mi")):
            await client.create(place.dialect.workload_class, machine_class(name, memory))
            await client.create(MACHINES, machine(name, name), namespace="default")
        await self.capture("other")
        await self.capture("broken")
        await client.patch(MACHINES, "vm", {"spec": {"power": "Off"}}, namespace="default")
        await self.capture("vm")
        await client.patch(MACHINES, "vm", {"spec": {"power": "On"}}, namespace="default")
        user = place.kubeconfig("ann")
        self.texts.append(await refusal(user, "vm"))

        await place.poollet.stop()
        place.pool_address = "127.0.0.2"
        await place.start_poollet("--requestheader-allowed-names=another")
        pool = await client.get(POOLS, POOL)
        port = pool["status"]["daemonEndpoints"]["machinepoolletEndpoint"]["port"]
        await self.add_pool("other-name", [("InternalIP", "127.0.0.1")], port)
        await self.capture("other-name")
        await place.poollet.stop()
        place.pool_address = "127.0.0.1"
        await place.start_poollet("--requestheader-allowed-names=another")
        await self.capture("vm")
        await place.poollet.stop()
        await place.start_poollet()
        await place.api.stop()
        await place.start_api(f"--machinepoollet-certificate-authority={place.pki.client_ca}")
        await self.capture("vm")
        await place.api.stop()
        await place.start_api()
        await place.runtime.stop()
        await self.capture("vm")
        write(RELEASE_0_2_0, self.texts)


class ForeignTests(TestCase):
    """Refusals of kube-apiserver, and of ironcore's and onmetal's API servers behind it."""

    timeout = 500
    skip = needs.ironcore()

    async def test_ironcore(self) -> None:
        """A user without rights, and a pool whose poollet is not there."""
        make = ironcore(needs.interop_programs("ironcore"))
        denied, closed = await self.texts(make, IRONCORE)
        write(KUBE_APISERVER, [denied])
        write(IRONCORE_APISERVER, [closed])

    async def test_onmetal(self) -> None:
        """The same under onmetal's API server."""
        make = onmetal(needs.interop_programs("onmetal"))
        _, closed = await self.texts(make, ONMETAL)
        write(ONMETAL_APISERVER, [closed])

    async def texts(self, make: Make, dialect: Dialect) -> tuple[str, str]:
        cluster = ForeignCluster(make, needs.kube_apiserver_program() or "")
        self.addCleanup(cluster.stop)
        cluster.start()
        chains.prepare(cluster)
        pool, name = dialect.pool, "closed-port"
        made = {"apiVersion": pool.api_version, "kind": pool.kind, "metadata": {"name": name}}
        cluster.apply({**made, "spec": {"providerID": name}})
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {dialect.endpoint_field: {"port": 1}},
        }
        client = KubeClient(load(cluster.kubeconfig), reactor)
        await client.patch(pool, name, {"status": status}, subresource="status")
        await client.close()
        cluster.apply(machine("vm", chains.CLASS, name, dialect))
        denied = await refusal(cluster.user("ann", []), "vm", dialect)
        return denied, await refusal(cluster.kubeconfig, "vm", dialect)
