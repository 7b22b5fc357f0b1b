"""
A space manager whose one provider has many physical spaces in memory, all of which are one API
server.

``python -m tests.benchmarks.spaces.manager DIRECTORY PORT COUNT`` keeps them on the API server at
that port.  To each line on its standard input it answers, when it has looked at everything once,
with the seconds that this took and those of CPU; to the first with those since it began.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.stdio import StandardIO
from twisted.internet.task import deferLater
from twisted.protocols.basic import LineReceiver

from twisted_exec.api.spaces import LOCAL
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.loader import load_inline
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.service import SpaceManager
from twisted_exec.spacemanager.settings import Settings
from twisted_exec.spacemanager.tap import space_loop
from twisted_exec.testing.space_provider import MemorySpace, MemorySpaces
from twisted_exec.tls.pki.directory import PKI

PROVIDER = "here"


def kubeconfig(directory: Path, port: int, token: str, name: str = "u") -> bytes:
    """
    Return a kubeconfig for a user of the API server.

    :param name: the user's name in the kubeconfig, so that each kubeconfig differs.
    """
    ca = base64.b64encode(Path(PKI(str(directory)).serving_ca).read_bytes()).decode()
    server = {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": ca}
    config = {
        "clusters": [{"name": "c", "cluster": server}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": name}}],
        "current-context": "x",
    }
    return json.dumps(config).encode()


class OneServer(MemorySpaces):
    """Physical spaces that are all one server, each with a kubeconfig of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._access: dict[Physical, bytes] = {}

    def add(self, physical: Physical, uid: str, access: bytes) -> None:
        self._access[physical] = access
        self.put(physical, MemorySpace(uid=uid))

    def kubeconfig(self, physical: Physical, space: MemorySpace) -> bytes:
        return self._access[physical]


class Asked(LineReceiver):
    """Has the manager check everything on each line; the first line waits for its start."""

    delimiter = b"\n"

    def __init__(self, manager: SpaceManager) -> None:
        self._manager, self._began = manager, False
        self._since = time.perf_counter(), time.process_time()

    def lineReceived(self, line: bytes) -> None:
        Deferred.fromCoroutine(self._look())

    async def _look(self) -> None:
        while self._manager.state is None or not all(each.synced for each in self._manager.state):
            await deferLater(reactor, 0.005)
        providers, loop = self._manager.state
        keeper: Any = loop
        if self._began:
            self._since = time.perf_counter(), time.process_time()
            view = providers.get(PROVIDER)
            assert view is not None
            view.look_again()
            keeper._provider_changed(PROVIDER, None)
        while not keeper._begun or keeper.waiting:
            await deferLater(reactor, 0.005)
        self._began = True
        took, cpu = (
            now - then
            for now, then in zip(
                (time.perf_counter(), time.process_time()), self._since, strict=True
            )
        )
        print(f"{took:.4f} {cpu:.4f}", flush=True)


def main() -> None:
    directory, port, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    config = load_inline(kubeconfig(directory, port, "user-0"), "the kubeconfig")
    world = OneServer()
    for number in range(count):
        name = f"space-{number:04}"
        access = kubeconfig(directory, port, "user-1", name)
        world.add(Physical(name), f"uid-{number}", access)
    manager = SpaceManager(
        Settings(str(directory / "manager")),
        KubeClient(config, reactor),
        {LOCAL: lambda spec, around: world.provider()},
        space_loop,
        reactor,
    )
    reactor.callWhenRunning(manager.startService)
    reactor.addSystemEventTrigger("before", "shutdown", manager.stopService)
    StandardIO(Asked(manager))
    reactor.run()


if __name__ == "__main__":
    main()
