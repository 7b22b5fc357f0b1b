"""
Two API servers on one etcd form one cluster: writes at one are visible at the other, also when
either server stops or dies.
"""

from __future__ import annotations

import re
import shutil
import signal
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows import kubectls
from tests.flows.consoles import Screen, watch
from tests.flows.deployment import machine, pause
from tests.flows.programs import Program, start
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError, BadGateway
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.tls.errors import TLSError

from .replicated import REPLICAS, Replica, Replicas, other
from .surviving import Survival

reactor: Any = _reactor

MACHINES = kinds.MACHINES.resource
DELAY_SECONDS = 6
"""At first: a machine on which that is too short for the test gets more."""
LINES = rb"(?:n-\d+\r?\n){22}"


class ReplicasTestCase(TestCase):
    """etcd, two API servers, a poollet and a runtime, with a shell called ``sh``."""

    starts = PROGRAMS
    skip = needs.etcd() or needs.kubectl()
    options: tuple[str, ...] = ()

    async def setUp(self) -> None:
        self.replicas = Replicas(self.mktemp())
        self.addCleanup(self.replicas.stop)
        await self.replicas.start_api(*self.options)
        self.a, self.b = (self.replicas.replicas[name] for name in REPLICAS)
        await self.replicas.start_rest()
        await self.replicas.create_machine("sh", "shell")

    async def kubectl(self, replica: Replica, *arguments: str) -> str:
        argv = (shutil.which("kubectl") or "", *arguments)
        code, _, told = await kubectls.run(*argv, env={"KUBECONFIG": replica.kubeconfig})
        self.assertEqual(code, 0, told)
        return told

    async def holder(self) -> str:
        """Return the identity of the leader."""
        told = ("get", "lease", "exec-apiserver", "-n", "kube-system", "-o")
        return await self.kubectl(self.b, *told, "jsonpath={.spec.holderIdentity}")


class OneClusterTests(ReplicasTestCase):
    """Writes and sessions at one server are visible at the other."""

    async def test_objects(self) -> None:
        """
        Each server reads the other's acknowledged writes at once, and its watches report them.
        """
        for writer, reader in ((self.a, self.b), (self.b, self.a)):
            listed = await reader.client.list(MACHINES)
            told: list[tuple[str, str]] = []
            watching = reader.client.watch(
                MACHINES,
                lambda change, obj, told=told: told.append(  # type: ignore[misc]
                    (change, obj["metadata"]["resourceVersion"])
                ),
                resource_version=listed["metadata"]["resourceVersion"],
            )
            versions = []
            for number in range(10):
                versions += await self.written(writer, reader, f"m-{writer.name}-{number}")
            while len(told) < len(versions) + 10:
                await pause()
            self.assertEqual([one for change, one in told if change != "DELETED"], versions)
            watching.addErrback(lambda _: None)
            watching.cancel()

    async def written(self, writer: Replica, reader: Replica, name: str) -> list[str]:
        """
        Create, change and delete an object at one server; check each step at the other at once.
        """
        body = machine(name, "shell", "nowhere")
        made = await writer.client.create(MACHINES, body, namespace="default")
        self.assertEqual(await reader.client.get(MACHINES, name, "default"), made)
        patch = {"metadata": {"labels": {"x": "y"}}}
        changed = await writer.client.patch(MACHINES, name, patch, "default")
        found = await reader.client.list(MACHINES, label_selector="x=y")
        self.assertEqual([one["metadata"]["name"] for one in found["items"]], [name])
        await writer.client.delete(MACHINES, name, "default")
        with self.assertRaises(APIError) as caught:
            await reader.client.get(MACHINES, name, "default")
        self.assertEqual(caught.exception.code, 404)
        return [each["metadata"]["resourceVersion"] for each in (made, changed)]

    async def test_sessions(self) -> None:
        """
        Sessions at one server are listed at the other, and end when the session object, the user's
        binding or the machine is deleted there.
        """
        await self.replicas.client.create(kinds.CLUSTERROLEBINDINGS.resource, BINDING)
        janes = self.replicas.kubeconfig("jane", url=self.b.url)
        deleted, revoked, bereft = (
            await watch(self.a.kubeconfig, "sh"),
            await watch(janes, "sh"),
            await watch(self.b.kubeconfig, "sh"),
        )
        while len(rows := await self.rows(self.b)) != 3:
            await pause()
        self.assertEqual(rows, await self.rows(self.a))
        self.assertEqual(len({replica for _, replica, _ in rows}), 2)
        alone = [
            name for name, replica, user in rows if [r for _, r, _ in rows].count(replica) == 1
        ]
        await self.kubectl(self.b, "delete", "consolesession", *alone)
        await self.ended(
            deleted, "SessionDeleted", rf"admin deleted the console session {alone[0]}"
        )
        await self.a.client.delete(kinds.CLUSTERROLEBINDINGS.resource, "jane")
        await self.ended(revoked, "AuthorizationWithdrawn", 'User "jane" cannot')
        await bereft.ask(b"echo still-$((6*7))\n", rb"still-42\r\n")
        await self.a.client.delete(MACHINES, "sh", "default")
        await self.ended(bereft, "MachineDeleted", 'machine "sh" was deleted')
        while await self.rows(self.b):
            await pause()

    async def rows(self, replica: Replica) -> list[tuple[str, str, str]]:
        """Return the name, server and user of each session."""
        listed = await replica.client.list(kinds.CONSOLESESSIONS.resource)
        return sorted(
            (one["metadata"]["name"], one["spec"]["replica"], one["spec"]["user"])
            for one in listed["items"]
        )

    async def ended(self, screen: Screen, reason: str, message: str) -> None:
        lost = await screen.ended
        self.assertEqual(lost.ending.reason, reason)
        self.assertIn(message, lost.ending.message)


BINDING: Object = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "jane"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "edit",
    },
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
}


class KilledTests(ReplicasTestCase):
    """Each server is killed once; :mod:`tests.interop.replicas` kills fifty leaders."""

    async def test_kill_9(self) -> None:
        """Acknowledged writes survive, no watch has a gap, and the other server keeps serving."""
        survival = Survival(self.replicas)
        await survival.run(rounds=2, writes=30)
        self.assertGreaterEqual(survival.figures.writes, 2 * 3 * 30)


class RollingRestartTests(ReplicasTestCase):
    """The servers restart in turn, with sessions under load."""

    options = (f"--shutdown-delay-seconds={DELAY_SECONDS}",)

    async def test_rolling(self) -> None:
        """
        A stopping server is unready at once and refuses new sessions; its open sessions continue
        until it listens no more, lose no output, and end with the reason.
        """
        starter = await watch(self.a.kubeconfig, "sh")
        starter.type(b"i=0; while sleep 0.02; do i=$((i+1)); echo n-$i; done\n")
        await starter.until(rb"n-5\r\n")
        await starter.leave()
        for name in REPLICAS:
            going, staying = self.replicas.replicas[name], self.replicas.replicas[other(name)]
            seconds = DELAY_SECONDS
            while not await self.restart(going, staying, seconds):
                seconds *= 4
                await going.program.stop()
                await self.replicas.start_replica(name, f"--shutdown-delay-seconds={seconds}")

    async def restart(self, going: Replica, staying: Replica, delay_seconds: float) -> bool:
        """Return whether the server listened until the test had looked."""
        screen = await watch(going.kubeconfig, "sh", resume=False)
        kept = await watch(staying.kubeconfig, "sh")
        kubectl = self.attach(going)
        for each in (screen, kept, kubectl):
            await each.until(LINES)
        watching = self.watched(going)
        began = reactor.seconds()
        stopping = Deferred.fromCoroutine(going.program.stop(signal.SIGTERM))
        turned_away = await self.turned_away(going)
        await staying.program.until(rb" leads\b")
        await self.served(staying)
        await watching  # ended as watches end: nothing failed
        lost: Any = await screen.ended
        self.assertGreaterEqual(reactor.seconds() - began, delay_seconds)
        self.assertEqual(lost.ending.reason, "ShuttingDown")
        self.assertEqual(await kubectl.ended, 1)
        self.assertRegex(kubectl.output, rb"\nerror: exec-apiserver is restarting[^\n]*\n\Z")
        self.assertEqual(await stopping, -signal.SIGTERM)
        for output in (screen.output, kubectl.stdout):
            self.contiguous(output)
        await self.opened_by_others()
        await kept.until(rb"n-\d+\r\n", start=len(kept.output))
        await kept.leave()
        self.contiguous(kept.output)
        await self.replicas.start_replica(going.name, *self.options)
        return turned_away

    def attach(self, replica: Replica) -> Program:
        """Attach stock kubectl as an observer."""
        argv = [shutil.which("kubectl") or "", "attach", "sh"]
        program = start(argv, env={"KUBECONFIG": replica.kubeconfig})
        self.addCleanup(program.stop)
        return program

    def watched(self, replica: Replica) -> Deferred[None]:
        client = KubeClient(load(replica.kubeconfig), reactor)
        self.addCleanup(client.close)
        return client.watch(MACHINES, lambda change, obj: None, resource_version="0")

    async def turned_away(self, replica: Replica) -> bool:
        """
        Check that a server is unready and refuses sessions while it still listens.

        :return: false if it listens no more.
        """
        try:
            while b" 200 " in (told := await self.replicas.readyz(replica)):
                await pause()
        except (ConnectError, TLSError):
            return False
        if not told:
            return False
        self.assertIn(b" 503 ", told)
        with self.assertRaises(APIError) as caught:
            await watch(replica.kubeconfig, "sh")
        if caught.exception.code == BadGateway.code:
            return False
        self.assertEqual(caught.exception.code, 503)
        self.assertIn("exec-apiserver is restarting", caught.exception.message)
        return True

    async def served(self, replica: Replica) -> None:
        screen = await watch(replica.kubeconfig, "sh")
        await screen.until(rb"n-\d+\r\n")
        await screen.leave()

    async def opened_by_others(self) -> None:
        """Check that the load balancer opens sessions at the remaining server."""
        for _ in range(2):
            screen = await watch(self.replicas.admin, "sh")
            await screen.until(rb"n-\d+\r\n")
            await screen.leave()

    def contiguous(self, output: bytes) -> None:
        """No line is missing between the first and the last whole one."""
        numbers = [int(one) for one in re.findall(rb"^n-(\d+)\r?\n", output, re.M)]
        self.assertGreater(len(numbers), 20)
        self.assertEqual(numbers, list(range(numbers[0], numbers[-1] + 1)))
