"""
API server, poollet and runtime as three separate processes, over TLS.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.trial.unittest import TestCase

from tests import needs
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError
from twisted_exec.kube.interfaces import Object

from . import kubectls, shared
from .consoles import watch
from .deployment import Deployment, gone
from .programs import script, terminal

reactor: Any = _reactor


def binding(user: str, role: str) -> Object:
    """A RoleBinding in the namespace ``default``, named after its user."""
    return {
        "apiVersion": kinds.ROLEBINDINGS.resource.api_version,
        "kind": "RoleBinding",
        "metadata": {"name": user},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": role,
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


class ThreeProgramsTests(TestCase):
    """The whole chain, as three hosts run it."""

    starts = PROGRAMS

    async def setUp(self) -> None:
        self.deployment = await shared.deployment(self)

    async def test_virtual_machine(self) -> None:
        """Enter until U-Boot's prompt, then a question only the real firmware answers."""
        await self.deployment.create_machine("vm", "vm")
        screen = await watch(self.deployment.admin, "vm")
        await screen.until(rb"U-Boot 2")
        await screen.until(rb"Hit any key")
        await screen.ask(b"\r", rb"=> ")
        await screen.ask(b"echo q$arch\r", rb"\nqx86\r?\n")
        await screen.leave()

    async def test_deleted_machine(self) -> None:
        """Deleting a Machine ends its sessions with the reason, then the machine is gone."""
        await self.deployment.create_machine("sh", "shell")
        screen = await watch(self.deployment.admin, "sh")
        await self.deployment.client.delete(kinds.MACHINES.resource, "sh", "default")
        lost = await screen.ended
        self.assertEqual(lost.ending.reason, "MachineDeleted")
        self.assertIn("sh", lost.ending.message)
        await gone(self.deployment.client, kinds.MACHINES.resource, "sh", "default")

    async def test_power(self) -> None:
        """Power Off and On brings the machine back; the session goes on with it."""
        await self.deployment.create_machine("sh", "shell")
        screen = await watch(self.deployment.admin, "sh")
        machines, client = kinds.MACHINES.resource, self.deployment.client
        await client.patch(machines, "sh", {"spec": {"power": "Off"}}, "default")
        await self.deployment.machine_in_state("sh", "Shutdown")
        await client.patch(machines, "sh", {"spec": {"power": "On"}}, "default")
        await self.deployment.machine_in_state("sh", "Running")
        await screen.ask(b"echo $((6*7))\n", rb"42\r\n")

    async def test_kubectl_console(self) -> None:
        """The kubectl plugin opens a console through three processes and passes the exit code on."""
        env = {
            "KUBECONFIG": self.deployment.admin,
            "PATH": f"{Path(script('kubectl-console')).parent}:/usr/bin:/bin",
        }
        await self.deployment.create_machine("sh", "shell")
        # The shell ends the session, however long its answer takes.
        question = ("console", "sh", "--linger", "100")
        kubectl = kubectls.found()["kubectl"]
        code, out, told = await kubectls.run(
            kubectl, *question, env=env, stdin=b"echo $((6*7)); exit 7\n"
        )
        self.assertEqual(code, 7, told)
        self.assertIn("42\r\n", out)

    test_virtual_machine.skip = needs.qemu()  # type: ignore[attr-defined]
    test_kubectl_console.skip = needs.kubectl()  # type: ignore[attr-defined]


class EndedProgramsTests(TestCase):
    """Tests that end programs or delete their pool."""

    starts = PROGRAMS

    async def setUp(self) -> None:
        self.deployment = Deployment(self.mktemp())
        self.addCleanup(self.deployment.stop)
        await self.deployment.start()

    def audit(self, hop: str) -> list[dict[str, object]]:
        """Return a hop's audit records of sessions so far, without the screens that the client has read."""
        lines = Path(self.deployment.path(f"{hop}.audit")).read_text().splitlines()
        records = [each for each in map(json.loads, lines) if each["event"] != "request"]
        return [each for each in records if each["subresource"] != "screen"]

    async def test_who_did_what(self) -> None:
        """All three hops record a session's start and end, with the same id and the user's name."""
        await self.deployment.create_machine("sh", "shell")
        user = self.deployment.kubeconfig("ada", ["system:masters"])
        screen = await watch(user, "sh")
        await screen.ask(b"echo $((6*7))\n", rb"42\r\n")
        await screen.leave()
        await self.deployment.stop()
        ids = set()
        for hop in ("api", "poollet", "runtime"):
            start, end = self.audit(hop)
            self.assertEqual((start["event"], end["event"]), ("start", "end"), hop)
            self.assertEqual((end["user"], end["machine"]), ("ada", "sh"), hop)
            self.assertGreater(end["bytes_to_user"], 0, hop)
            ids.add(end["session"])
        self.assertEqual(len(ids), 1)

    async def test_refusals_are_recorded(self) -> None:
        """
        A forbidden and an unknown machine are reported to the user, and to the audit log once.
        """
        await self.deployment.create_machine("sh", "shell")
        nobody = self.deployment.kubeconfig("eve")
        for kubeconfig, name, code in ((nobody, "sh", 403), (self.deployment.admin, "nix", 404)):
            with self.assertRaises(APIError) as caught:
                await watch(kubeconfig, name)
            self.assertEqual(caught.exception.code, code)
            self.assertIn(name, caught.exception.message)
        await self.deployment.stop()
        start, end, start_404, end_404 = self.audit("api")
        self.assertEqual((end["user"], end["code"]), ("eve", 403))
        self.assertEqual((end_404["machine"], end_404["code"]), ("nix", 404))
        self.assertEqual(
            (start["session"], start_404["session"]), (end["session"], end_404["session"])
        )

    async def test_withdrawn(self) -> None:
        """
        Without its RoleBinding a session ends: the reason is on the user's screen, and every hop records one end.
        """
        deployment, bindings = self.deployment, kinds.ROLEBINDINGS.resource
        await deployment.create_machine("sh", "shell")
        await deployment.client.create(bindings, binding("eve", "edit"), "default")
        screen = terminal(
            [script("kubectl-console"), "sh"], KUBECONFIG=deployment.kubeconfig("eve")
        )
        self.addCleanup(screen.stop)
        screen.type(b"echo $((6*7))\n")
        await screen.until(rb"\n42\r\n")
        await deployment.client.delete(bindings, "eve", "default")
        self.assertEqual(await screen.ended, 1)
        self.assertRegex(
            screen.output, rb'(?s)session ended: AuthorizationWithdrawn: .*"eve"\s+cannot\s+create'
        )
        await deployment.stop()
        for hop in ("api", "poollet", "runtime"):
            start, end = self.audit(hop)
            self.assertEqual((start["event"], end["event"]), ("start", "end"), hop)
            self.assertEqual((end["user"], end["reason"]), ("eve", "AuthorizationWithdrawn"), hop)

    async def test_deleted_pool(self) -> None:
        """Deleting a pool ends the sessions of its machines with the reason."""
        await self.deployment.create_machine("sh", "shell")
        screen = await watch(self.deployment.admin, "sh")
        await self.deployment.client.delete(kinds.MACHINEPOOLS.resource, "pool-a")
        lost = await screen.ended
        self.assertEqual(lost.ending.reason, "PoolDeleted")

    async def test_drain(self) -> None:
        """
        SIGTERM to the API server ends sessions that cannot be resumed with a Status; those of a
        poollet continue through the next one.
        """
        await self.deployment.create_machine("sh", "shell")
        screen = await watch(self.deployment.admin, "sh")
        # twistd ends by the very signal that it was sent.
        self.assertEqual(await self.deployment.api.stop(), -signal.SIGTERM)
        lost = await screen.ended
        self.assertEqual(lost.ending.reason, "ShuttingDown")
        self.assertIn("exec-apiserver is restarting", lost.ending.message)
        await self.deployment.start_api()
        screen = await watch(self.deployment.admin, "sh")
        self.assertEqual(await self.deployment.poollet.stop(), -signal.SIGTERM)
        await self.deployment.start_poollet()
        await screen.ask(b"echo $((6*7))\n", rb"42\r\n")
        await screen.leave()

    async def test_killed_api_server(self) -> None:
        """An API server killed with SIGKILL loses no acknowledged object."""
        await self.deployment.create_machine("sh", "shell")
        before = await self.deployment.client.get(kinds.MACHINES.resource, "sh", "default")
        await self.deployment.api.stop(9)
        await self.deployment.start_api()
        after = await self.deployment.client.get(kinds.MACHINES.resource, "sh", "default")
        self.assertEqual(after["metadata"]["uid"], before["metadata"]["uid"])
        screen = await watch(self.deployment.admin, "sh")
        await screen.ask(b"echo $((6*7))\n", rb"42\r\n")
        await screen.leave()

    async def test_killed_runtime(self) -> None:
        """After the runtime is killed and restarted, its Machine runs as one machine."""
        await self.deployment.create_machine("sh", "shell")
        await self.deployment.runtime.stop(9)
        await self.deployment.start_runtime()
        await self.deployment.machine_in_state("sh", "Running")
        screen = await self.reopened("sh")
        await screen.ask(b"echo $((6*7))\n", rb"42\r\n")
        await screen.leave()

    async def reopened(self, name: str) -> object:
        """Open a console as soon as all programs work again."""
        from .deployment import pause

        while True:
            try:
                return await watch(self.deployment.admin, name)
            except APIError:
                await pause()
