"""
1 000 Spaces: what a manager costs that keeps them, and a client of them, idle and when it has
talked to each; a look-up by name, and how long it takes from the change of a Secret until a client
of that Space has the new credentials. And local Spaces: how long it takes from their making until
they are Ready, and what each costs.
"""

from __future__ import annotations

import base64
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from tests import procfs
from tests.flows.deployment import run_reactor
from twisted_exec.api.kinds import NAMESPACES, SECRETS
from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import (
    EXTERNAL,
    KUBECONFIG_KEY,
    LOCAL,
    PROVIDERS,
    READY,
    SPACES,
    namespace_of,
    secret_name,
)
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.loader import load_inline
from twisted_exec.kube.transport import IDLE_SECONDS
from twisted_exec.spaces.client import SpaceClient

from .. import api
from . import local
from .manager import PROVIDER, kubeconfig

COUNT = 1000
LOOKS = 5
STEADY_SECONDS = 60.0
LOOK_UPS = 100_000
ROTATIONS = 30
AT_ONCE = 20


@contextmanager
def _manager(directory: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    words = ["-m", "tests.benchmarks.spaces.manager", str(directory), str(port), str(COUNT)]
    child = subprocess.Popen(
        [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield child
    finally:
        child.terminate()
        child.wait()


async def _all_ready(client: KubeClient) -> None:
    """Watched: asking again and again would be work, too."""
    ready: set[str] = set()
    done: Deferred[None] = Deferred()

    def changed(before: Object | None, after: Object | None) -> None:
        if after is not None and (after.get("status") or {}).get("Phase") == READY:
            ready.add(after["metadata"]["name"])
            if len(ready) == COUNT and not done.called:
                done.callback(None)

    reflector = Reflector(client, SPACES, reactor, on_change=changed)
    reflector.start()
    await done
    await reflector.stop()


def _whole(resource: Resource, name: str, spec: dict[str, Any]) -> Object:
    told = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**told, "metadata": {"name": name}, "spec": spec}


async def found(client: KubeClient, child: subprocess.Popen[bytes]) -> None:
    """From nothing until each has its Secrets, was probed and is Ready."""
    desc = _whole(PROVIDERS, PROVIDER, {"ProviderType": LOCAL})
    began, cpu = time.perf_counter(), procfs.cpu_seconds(child.pid)
    await client.create(PROVIDERS, desc)
    await _all_ready(client)
    took, spent = time.perf_counter() - began, procfs.cpu_seconds(child.pid) - cpu
    print(
        f"  {COUNT} found, probed, with their Secrets, and Ready after {took:.1f} s: {spent:.1f} s "
        f"of CPU, {spent / COUNT * 1000:.1f} ms each"
    )


async def looked_at(child: subprocess.Popen[bytes]) -> None:
    """Everything once, when nothing is to be done."""
    assert child.stdin is not None and child.stdout is not None
    spent = []
    for _ in range(1 + LOOKS):
        child.stdin.write(b"\n")
        child.stdin.flush()
        line = await deferToThread(child.stdout.readline)
        spent.append(tuple(map(float, line.split())))
    took, cpu = spent[0]
    print(f"  another manager has taken them up after {took:.1f} s: {cpu:.2f} s of CPU")
    took, cpu = min(spent[1:], key=lambda each: each[1])
    size = procfs.resident_bytes(child.pid) / 1e6
    print(f"  a look at all of them: {cpu:.2f} s of CPU, {took:.2f} s; it holds {size:.0f} MB")


async def steady(child: subprocess.Popen[bytes]) -> None:
    """A minute in which nothing happens."""
    await deferLater(reactor, 5.0)
    before = procfs.cpu_seconds(child.pid)
    await deferLater(reactor, STEADY_SECONDS)
    spent = procfs.cpu_seconds(child.pid) - before
    print(f"  a minute in which nothing happens: {spent:.2f} s of CPU")


def look_ups(spaces: SpaceClient) -> None:
    """By name alone, and by name and provider."""
    for told, provider in (("by name alone", ""), ("by name and provider", PROVIDER)):
        names = [f"space-{number % COUNT:04}" for number in range(LOOK_UPS)]
        began = time.perf_counter()
        for name in names:
            spaces.get(name, provider)
        took = (time.perf_counter() - began) / LOOK_UPS * 1e6
        print(f"  a client of a Space, {told}: {took:.1f} us")


def _held() -> tuple[int, int]:
    """Memory and descriptors of this process."""
    return procfs.own_bytes(os.getpid()), procfs.open_descriptors(os.getpid())


async def talked(spaces: SpaceClient) -> None:
    """
    A request to each Space, each by a connection of its own; then nothing, until all of these are
    closed.
    """
    before, began = _held(), time.process_time()
    names = [f"space-{number:04}" for number in range(COUNT)]
    while names:
        some, names = names[:AT_ONCE], names[AT_ONCE:]
        clients = [spaces.get(name, PROVIDER) for name in some]
        await gatherResults([each.get(NAMESPACES.resource, "default") for each in clients])
    spent, after = time.process_time() - began, _held()
    print(
        f"  one request to each: {spent / COUNT * 1000:.1f} ms of CPU; then {after[1] - before[1]} connections are "
        f"open, {(after[0] - before[0]) / COUNT / 1024:.0f} KiB each"
    )
    await deferLater(reactor, IDLE_SECONDS + 5.0)
    later = _held()
    print(
        f"  {IDLE_SECONDS + 5:.0f} s later {later[1] - before[1]} are, and "
        f"{(later[0] - before[0]) / COUNT / 1024:.0f} KiB are held for each Space"
    )


async def rotated(client: KubeClient, spaces: SpaceClient, directory: Path, port: int) -> None:
    """From before the Secret is written until the client's next request would have the new token."""
    took = []
    for turn in range(ROTATIONS):
        name = f"space-{turn * 31 % COUNT:04}"
        content = kubeconfig(directory, port, f"user-{2 + turn % 2}")
        data = {KUBECONFIG_KEY: base64.b64encode(content).decode()}
        connection = spaces.connection(name, PROVIDER)
        before = connection.config().token
        began = time.perf_counter()
        secret = secret_name(name, EXTERNAL)
        written = client.patch(SECRETS.resource, secret, {"data": data}, namespace_of(PROVIDER))
        while connection.config().token == before:
            await deferLater(reactor, 0.0005)
        took.append((time.perf_counter() - began) * 1000)
        await written
        await deferLater(reactor, 0.05)
    print(
        f"  new credentials reach a client {statistics.median(took):.1f} ms after their Secret is "
        f"written, {max(took):.1f} ms at worst of {ROTATIONS}"
    )


async def measured(directory: Path) -> None:
    """All of it, on one server."""
    print(f"{COUNT} Spaces")
    with api.running(directory, 1) as server:
        port: int = server.port
        config = load_inline(kubeconfig(directory, port, "user-0"), "the kubeconfig")
        client = KubeClient(config, reactor)
        with _manager(directory, port) as child:
            await found(client, child)
        # A second manager takes over the Spaces; its probes are spread, as after any restart.
        with _manager(directory, port) as child:
            before = _held()[0]
            spaces = SpaceClient(client, reactor)
            spaces.startService()
            await spaces.when_synced()
            while len(spaces.all()) < COUNT:
                await deferLater(reactor, 0.1)
            grown = (_held()[0] - before) / COUNT / 1024
            await looked_at(child)
            await steady(child)
            print(f"  a client of all of them holds {grown:.0f} KiB for each Space")
            look_ups(spaces)
            await talked(spaces)
        # Without the manager, which would put back what its provider says.
        await rotated(client, spaces, directory, port)
        await spaces.stopService()
        await client.close()


async def _all(directory: Path) -> None:
    await measured(directory)
    await local.measured(directory / "standalone")


def main(directory: Path) -> None:
    """Run the whole benchmark."""
    run_reactor(lambda: _all(directory))
