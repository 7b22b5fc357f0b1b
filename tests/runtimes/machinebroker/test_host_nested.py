"""
Brokers before brokers: four clusters in one process, real sockets between all, a shell in the last.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.trial.unittest import TestCase

from tests.apiserver.rights import binding
from tests.audits import AuditList
from tests.chain import POOL, apiserver_settings, kubeconfig, poollet_settings, reactor
from tests.flows.consoles import Screen, ending_after, watch
from tests.flows.outages.manual_resumes import User
from tests.runtimes.support import SHELL, pause
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.status import APIError
from twisted_exec.apiserver.service import APIServer
from twisted_exec.apiserver.settings import Settings as APIServerSettings
from twisted_exec.iri.client import IRIClient
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.poollet.service import Poollet
from twisted_exec.poollet.settings import Settings as PoolletSettings
from twisted_exec.runtimes.config import parse
from twisted_exec.runtimes.host import RuntimeHost
from twisted_exec.runtimes.machinebroker import streams
from twisted_exec.runtimes.machinebroker.host import BrokerHost
from twisted_exec.runtimes.machinebroker.place import BrokerIdentity, BrokerPlace
from twisted_exec.runtimes.machinebroker.settings import Settings
from twisted_exec.runtimes.settings import Settings as RuntimeSettings
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.streaming.http import session_requests
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.wire.resize import TerminalSize

PATIENCE_SECONDS = 600.0
"""How long each hop waits for the next one: all of them share this process, and its turns."""
MACHINES, CLASSES = kinds.MACHINES.resource, kinds.MACHINECLASSES.resource
NAMESPACE = "default"


class Cluster:
    """
    An API server, the poollet of a pool, and the pool's runtime: a broker before another cluster,
    or the shells of this host.
    """

    def __init__(self, name: str, directory: str, behind: Cluster | None) -> None:
        self.name, self.directory, self.behind = name, directory, behind
        self.audit = AuditList()
        self._running: list[Any] = []
        self._clients: list[KubeClient] = []

    async def start(self) -> None:
        """All three; fires when the pool is registered."""
        settings = APIServerSettings(**apiserver_settings(poollet_seconds=PATIENCE_SECONDS))
        self.server = APIServer(settings, MemoryStorage(), self.audit, reactor)
        await self._begin(self.server)
        self.client = self._client("user-admin")
        await self.permit()
        small = {"metadata": {"name": "shell"}, "capabilities": {"cpu": "1", "memory": "64Mi"}}
        small |= {"apiVersion": CLASSES.api_version, "kind": CLASSES.kind}
        await self.client.create(CLASSES, small)
        await self._begin(self._runtime() if self.behind is None else self._broker(self.behind))
        await self._begin(self._poollet())

    async def permit(self) -> None:
        """Let the user of the first cluster open consoles here."""
        user = binding(self.known_as("jane"), "edit")
        await self.client.create(kinds.ROLEBINDINGS.resource, user, NAMESPACE)

    def known_as(self, user: str) -> str:
        """The name of a user of the first cluster in this one."""
        before = [chr(each) for each in range(ord("a"), ord(self.name))]
        return ":".join([*reversed(before), user])

    def kubeconfig(self, name: str) -> str:
        """Of a certificate, such as ``user-jane``."""
        path = os.path.join(self.directory, f"{self.name}-{name}.kubeconfig")
        return kubeconfig(path, self.server.url, name)

    def _begin(self, service: Any) -> Any:
        ready = service.when_ready()
        service.startService()
        self._running.append(service)
        return ready

    def _client(self, name: str) -> KubeClient:
        client = KubeClient(load(self.kubeconfig(name)), reactor)
        self._clients.append(client)
        return client

    @property
    def _target(self) -> str:
        return f"unix://{self.directory}/{self.name}.iri"

    def _runtime(self) -> RuntimeHost:
        settings = RuntimeSettings(
            classes=parse({"classes": [SHELL]}),
            state_directory=os.path.join(self.directory, self.name),
            iri_target=self._target,
        )
        return RuntimeHost(settings, self.audit, reactor)

    def _broker(self, behind: Cluster) -> BrokerHost:
        config = load(behind.kubeconfig("user-admin"))
        client = KubeClient(config, reactor)
        self._clients.append(client)
        settings = Settings(
            place=BrokerPlace(IRONCORE, NAMESPACE, self.name, POOL),
            identity=BrokerIdentity(self.name),
            state_directory=os.path.join(self.directory, self.name),
            iri_target=self._target,
        )
        return BrokerHost(settings, client, lambda: config, self.audit, reactor)

    def _poollet(self) -> Poollet:
        settings = PoolletSettings(**poollet_settings(drain_seconds=0.0))
        runtime = IRIClient(self._target, reactor)
        runtime.startService()
        self._running.append(runtime)
        client = self._client(f"poollet-{POOL}-client")
        return Poollet(settings, client, runtime, self.audit, reactor)

    async def stop(self) -> None:
        """The poollet first; the server last, so that it has no connections when it has stopped."""
        while self._running:
            service = self._running.pop()
            if not self._running:
                for client in self._clients:
                    await client.close()
            await maybeDeferred(service.stopService)

    async def machines(self) -> list[Object]:
        """As they are here."""
        return list((await self.client.list(MACHINES, NAMESPACE))["items"])


class NestedTests(TestCase):
    """A user of cluster A, three brokers, a shell of cluster D."""

    starts = PROGRAMS
    exact = True

    async def setUp(self) -> None:
        self.patch(streams, "ANSWER_SECONDS", PATIENCE_SECONDS)
        self.patch(session_requests, "SILENCE_SECONDS", PATIENCE_SECONDS)
        limits = ("connect_seconds", "answer_seconds", "end_seconds")
        defaults = Proxy.__init__.__kwdefaults__ | dict.fromkeys(limits, PATIENCE_SECONDS)
        self.patch(Proxy.__init__, "__kwdefaults__", defaults)
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        self.clusters: list[Cluster] = []
        behind = None
        for name in "dcba":
            behind = Cluster(name, directory, behind)
            self.clusters.insert(0, behind)
            self.addCleanup(behind.stop)
            await behind.start()
        self.first, self.last = self.clusters[0], self.clusters[-1]
        self.jane = self.first.kubeconfig("user-jane")
        expected = {
            "apiVersion": MACHINES.api_version,
            "kind": MACHINES.kind,
            "metadata": {"name": "sh"},
            "spec": {"machineClassRef": {"name": "shell"}, "machinePoolRef": {"name": POOL}},
        }
        await self.first.client.create(MACHINES, expected, NAMESPACE)
        await self.state("Running")

    async def state(self, expected: str) -> None:
        """Wait until the user's own Machine is in a state."""
        while (await self.first.machines())[0].get("status", {}).get("state") != expected:
            await pause()

    async def open(self) -> Screen:
        """A console that answers."""
        screen = await watch(self.jane, "sh")
        await screen.ask(b"echo $((6*7))\n", rb"42\r\n")
        return screen

    async def power(self, power: str) -> None:
        """Switch the user's own Machine on or off."""
        await self.first.client.patch(MACHINES, "sh", {"spec": {"power": power}}, NAMESPACE)
        await self.state("Running" if power == "On" else "Shutdown")

    async def test_console(self) -> None:
        """Answers, the window's size and the exit code pass through twelve hops, under one id."""
        screen = await self.open()
        screen.transport.window_changed(TerminalSize(101, 42))
        await screen.ask(b"stty size\n", rb"42 101\r\n")
        screen.type(b"exit 7\n")
        lost = await screen.ended
        self.assertEqual(lost.ending.exit_code, 7)
        for cluster in self.clusters:
            while sum(each["event"] == "end" for each in cluster.audit) < 3:
                await pause()
            users = {each["user"] for each in cluster.audit}
            self.assertEqual(users, {cluster.known_as("jane")})
        ids = {each["session"] for cluster in self.clusters for each in cluster.audit}
        self.assertEqual(len(ids), 1)

    async def test_resumed(self) -> None:
        """A session whose connection is lost goes on through all hops, at the same shell."""
        user = User(self.jane)
        await user.open()
        await user.ask(b"echo a-$((1+1))", b"a-2")
        user.stream.abort()
        await user.lost
        await user.resume()
        await user.ask(b"echo b-$((1+1))", b"b-2")
        self.assertEqual((user.output.count(b"a-2"), user.endings), (1, []))
        user.stream.leave()
        await user.lost

    async def test_ends(self) -> None:
        """
        The user gets the reason of an ending from any cluster: the last revokes a right, the first
        powers the machine off and deletes it, from all clusters.
        """
        name = f"{self.last.known_as('jane')}-edit"
        ending = await ending_after(
            self.open,
            lambda: self.last.client.delete(kinds.ROLEBINDINGS.resource, name, NAMESPACE),
            self.last.permit,
        )
        self.assertEqual(ending.reason, "AuthorizationWithdrawn")
        self.assertIn('User "c:b:a:jane" cannot create', ending.message)
        with self.assertRaises(APIError) as caught:
            await watch(self.jane, "sh")
        self.assertEqual(caught.exception.code, 403)
        self.assertIn('User "c:b:a:jane" cannot create', caught.exception.message)

        await self.last.permit()
        ending = await ending_after(self.open, lambda: self.power("Off"), lambda: self.power("On"))
        self.assertEqual(ending.reason, "PoweredOff")
        (there,) = await self.last.machines()
        self.assertEqual(there["spec"]["power"], "Off")

        await self.first.client.delete(MACHINES, "sh", NAMESPACE)
        while any([await each.machines() for each in self.clusters]):
            await pause()
