"""
Local Spaces, each a process of its own: how long it takes from their making until they are Ready,
and what they cost.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twisted.internet import reactor
from twisted.internet.task import deferLater

from tests import procfs
from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import PROVIDERS, READY, SPACES, namespace_of
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.loader import load

PROVIDER = "default"
COUNT = 5
IDLE_SECONDS = 20.0
_LOOK_SECONDS = 0.05


@contextmanager
def _standalone(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = ["exec-standalone", "--state-dir", str(directory), "--port", "0", "--without-demo"]
    with (directory.parent / "standalone.log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "twisted", *words], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield child
    finally:
        child.terminate()
        child.wait()


async def _kubeconfig(child: subprocess.Popen[bytes], directory: Path) -> str:
    path = directory / "admin.kubeconfig"
    while not path.exists():
        if child.poll() is not None:
            raise RuntimeError((directory.parent / "standalone.log").read_text())
        await deferLater(reactor, _LOOK_SECONDS)
    return str(path)


async def _until_ready(
    client: KubeClient, resource: Resource, name: str, namespace: str = ""
) -> None:
    while True:
        found = await client.get(resource, name, namespace)
        if (found.get("status") or {}).get("Phase") == READY:
            return
        await deferLater(reactor, _LOOK_SECONDS)


async def _made(client: KubeClient, child: subprocess.Popen[bytes]) -> None:
    took, spent = [], []
    for number in range(COUNT):
        before, name = set(procfs.descendants(child.pid)), f"local-{number}"
        spec = {"SpaceProviderDescName": PROVIDER, "Type": "managed"}
        began = time.perf_counter()
        await client.create(
            SPACES, {"metadata": {"name": name}, "spec": spec}, namespace_of(PROVIDER)
        )
        await _until_ready(client, SPACES, name, namespace_of(PROVIDER))
        took.append(time.perf_counter() - began)
        (pid,) = set(procfs.descendants(child.pid)) - before
        spent.append(procfs.cpu_seconds(pid))
    print(
        f"  Ready {statistics.median(took):.2f} s after their making ({min(took):.2f} to "
        f"{max(took):.2f}); {statistics.median(spent):.2f} s of CPU of each until then"
    )


def _spent(child: subprocess.Popen[bytes], pids: list[int]) -> tuple[float, float]:
    """Of the program alone, and of its Spaces."""
    spaces = sum(map(procfs.cpu_seconds, pids))
    return procfs.cpu_seconds(child.pid) - spaces, spaces


async def _idle(child: subprocess.Popen[bytes]) -> None:
    await deferLater(reactor, 5.0)
    pids, minutes = procfs.descendants(child.pid), IDLE_SECONDS / 60
    before = _spent(child, pids)
    await deferLater(reactor, IDLE_SECONDS)
    keeper, spaces = (
        (now - then) / minutes for now, then in zip(_spent(child, pids), before, strict=True)
    )
    size = statistics.median(map(procfs.own_bytes, pids)) / 1e6
    print(f"  each idle: {spaces / COUNT:.2f} s of CPU a minute, {size:.0f} MB of its own")
    size = procfs.own_bytes(child.pid) / 1e6
    print(f"  who keeps them: {keeper:.2f} s of CPU a minute, {size:.0f} MB of its own")


async def measured(directory: Path) -> None:
    """Made one after the other, then left alone."""
    print(f"{COUNT} local Spaces")
    with _standalone(directory) as child:
        client = KubeClient(load(await _kubeconfig(child, directory)), reactor)
        # The first one is not to wait for its provider.
        await _until_ready(client, PROVIDERS, PROVIDER)
        await _made(client, child)
        await _idle(child)
        await client.close()
