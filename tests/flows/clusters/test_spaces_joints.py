"""
Spaces under a node server and under a broker: a new Space is reached, rotated credentials end no
session, and the sessions of a deleted Space end with the reason.

The registry and the Spaces are our own API servers; the streams are real.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor as _reactor
from twisted.trial.unittest import TestCase

from tests import needs
from tests.chain import NODE_SERVER
from tests.flows.consoles import Screen, watch
from tests.flows.deployment import Deployment, pause
from tests.flows.programs import twistd
from tests.nodeserver.clusters import POD, ROOT_NODE
from tests.testing.callers import until
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.selectors import parse_labels
from twisted_exec.api.status import APIError
from twisted_exec.nodeserver.leaves.settings import SpaceChoice
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.directory import CLIENT

from .spaces import Registry
from .test_broker import BROKER, NAMESPACE, Front, let_brokers_in
from .test_leaves import ECHO, LeafTestCase

reactor: Any = _reactor
MACHINES = kinds.MACHINES.resource


class NodeServerTests(LeafTestCase):
    """A leaf that is a Space of the root, with the name of its Node."""

    async def serve(self) -> None:
        root = self.clusters.root
        self.registry = Registry(root.admin)
        await self.registry.start()
        choice = SpaceChoice(("default",), parse_labels(""))
        self.server = await root.serve([], self.clusters.audit, spaces=choice)
        address: Any = self.server.address
        await root.add_node(ROOT_NODE, address.port)

    def kubeconfig(self) -> str:
        return self.clusters.leaf.kubeconfig(NODE_SERVER)

    @property
    def leaves(self) -> Any:
        return self.server.collaborators.leaves

    def is_reached(self) -> bool:
        return any(leaf.synced and not leaf.problem for leaf in self.leaves.all())

    async def appear(self) -> None:
        """Add the Space and wait until it is reached."""
        await self.registry.add(ROOT_NODE, self.kubeconfig())
        await until(self.is_reached)

    async def test_appears(self) -> None:
        """Pods of a Space cannot be reached before it exists, and can soon after."""
        code, _, told = await self.kubectl("exec", POD, "--", "echo", "hello")
        self.assertEqual(code, 1, told)
        await self.appear()
        code, stdout, told = await self.kubectl("exec", POD, "--", "echo", "hello")
        self.assertEqual((code, stdout), (0, "hello\n"), told)

    async def test_rotates(self) -> None:
        """Open sessions survive a rotation; new sessions use the new credentials."""
        await self.appear()
        user = self.begin("exec", "-i", POD, "--", *ECHO)
        user.type(b"before\n")
        await user.until(b"<before>")
        leaf, pki = self.leaves.get(ROOT_NODE), self.clusters.leaf.pki
        before = leaf.config().certificate.data
        pair = pki.pair(f"user-{NODE_SERVER}")
        kept = read_file(pair.certificate), read_file(pair.key)
        pki.authority(CLIENT).issue_client(NODE_SERVER, ["system:masters"]).write(
            pair.certificate, pair.key, replace=True
        )
        self.addCleanup(self.put_back, pair, kept)
        await self.registry.rotate(ROOT_NODE, self.kubeconfig())
        await until(lambda: leaf.config().certificate.data != before)
        user.type(b"after\n")
        await user.until(b"<after>")
        code, stdout, told = await self.kubectl("exec", POD, "--", "echo", "hello")
        self.assertEqual((code, stdout), (0, "hello\n"), told)
        user.transport.closeStdin()  # type: ignore[union-attr]
        self.assertEqual(await user.ended, 0)

    def put_back(self, pair: Any, kept: tuple[bytes, bytes]) -> None:
        """Restore the certificates, which all tests share."""
        for path, content in zip((pair.certificate, pair.key), kept, strict=True):
            with open(path, "wb") as file:
                file.write(content)

    async def test_vanishes(self) -> None:
        """Deleting a Space ends its sessions with the reason, and new ones are refused."""
        await self.appear()
        user = self.begin("exec", "-i", POD, "--", *ECHO)
        user.type(b"before\n")
        await user.until(b"<before>")
        await self.registry.remove(ROOT_NODE)
        self.assertNotEqual(await user.ended, 0)
        told = f'space "default/{ROOT_NODE}" is gone: it was deleted'
        self.assertIn(told.encode(), user.output)
        code, _, refused = await self.kubectl("exec", POD, "--", "echo", "hello")
        self.assertEqual(code, 1, refused)


class SpaceFront(Front):
    """The first cluster, which has a Space for the second one."""

    async def start_runtime(self, *options: str) -> None:
        self.runtime = twistd(
            "exec-broker",
            f"--kubeconfig={self.kubeconfig('admin', ['system:masters'])}",
            "--space=b",
            f"--namespace={NAMESPACE}",
            "--machine-pool-name=pool-a",
            "--source-cluster-name=site-a",
            f"--iri-listen={self.iri_target}",
            "--streaming-listen=unix:" + str(self.sockets / "stream.sock"),
            f"--audit-log={self.path('broker.audit')}",
            self.drain,
            *options,
        )
        await self.runtime.until(rb"machine broker at ")


class BrokerTests(TestCase):
    """Cluster A, a broker configured with a Space's name, and cluster B."""

    starts = PROGRAMS

    async def setUp(self) -> None:
        self.b = Deployment(self.mktemp())
        self.a = SpaceFront(self.mktemp(), self.b)
        self.addCleanup(self.stop)
        await self.b.start()
        await let_brokers_in(self.b)
        await self.a.start()
        self.registry = Registry(self.a.client)
        await self.registry.start()
        self.jane = self.a.kubeconfig("jane", ["system:masters"])

    async def stop(self) -> None:
        await self.a.stop()
        await self.b.stop()

    async def opened(self) -> Screen:
        """Open a session as soon as possible."""
        deadline = reactor.seconds() + 300
        while True:
            try:
                return await watch(self.jane, "sh")
            except APIError as refused:
                assert reactor.seconds() < deadline, refused
                await pause()

    async def test_space(self) -> None:
        """
        A broker follows its Space through creation, rotation, deletion and return; the machine
        survives.
        """
        made = {
            "apiVersion": MACHINES.api_version,
            "kind": MACHINES.kind,
            "metadata": {"name": "sh"},
            "spec": {
                "machineClassRef": {"name": "shell"},
                "machinePoolRef": {"name": "pool-a"},
            },
        }
        await self.a.client.create(MACHINES, made, "default")
        with self.assertRaises(APIError):
            await watch(self.jane, "sh")
        await self.registry.add("b", self.b.kubeconfig(BROKER))
        screen = await self.opened()
        await screen.ask(b"echo $((6*7))\n", rb"42\r\n")

        await self.registry.rotate("b", self.b.kubeconfig(BROKER))
        await screen.ask(b"echo $((6*8))\n", rb"48\r\n")
        other = await watch(self.jane, "sh")
        await other.leave()

        await self.registry.remove("b")
        lost = await screen.ended
        self.assertEqual(lost.ending.reason, "PoolDeleted")
        self.assertEqual(lost.ending.message, 'space "default/b" is gone: it was deleted')
        with self.assertRaises(APIError) as caught:
            await watch(self.jane, "sh")
        self.assertIn('space "default/b" is gone: it was deleted', caught.exception.message)
        (there,) = (await self.b.client.list(MACHINES, NAMESPACE))["items"]
        mine = await self.a.client.get(MACHINES, "sh", "default")
        self.assertNotIn("deletionTimestamp", mine["metadata"])

        await self.registry.add("b", self.b.kubeconfig(BROKER), physical="a")
        screen = await self.opened()
        await screen.ask(b"echo $((6*9))\n", rb"54\r\n")
        (still,) = (await self.b.client.list(MACHINES, NAMESPACE))["items"]
        self.assertEqual(still["metadata"]["uid"], there["metadata"]["uid"])

    skip = needs.kubectl()
