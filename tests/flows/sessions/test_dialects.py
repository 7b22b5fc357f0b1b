"""
Every dialect, and several at once.
"""

from __future__ import annotations

import json
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests import needs
from tests.chain import pool_of
from tests.contracts.chain import NAMESPACE, ChainCase, ChainContract
from tests.flows import kubectls
from tests.flows.deployment import Deployment, machine, machine_class
from tests.flows.programs import script, terminal
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.dialects import (
    DIALECTS,
    IRONCORE,
    ONMETAL,
    SPHERIC,
    SPHERIC_MACHINES,
    Dialect,
)
from twisted_exec.streaming.interfaces import POOL_DELETED


class IroncoreTests(ChainContract, ChainCase):
    """ironcore: machines."""

    starts = PROGRAMS
    dialect = IRONCORE
    dialects = (IRONCORE,)


class OnmetalTests(ChainContract, ChainCase):
    """onmetal-api: machines."""

    starts = PROGRAMS
    dialect = ONMETAL
    dialects = (ONMETAL,)


class SphericTests(ChainContract, ChainCase):
    """spheric: instances and fleets."""

    starts = PROGRAMS
    dialect = SPHERIC
    dialects = (SPHERIC,)


class SphericMachinesTests(ChainContract, ChainCase):
    """spheric as documented: machines in its own group."""

    starts = PROGRAMS
    dialect = SPHERIC_MACHINES
    dialects = (SPHERIC_MACHINES,)


class SeveralTests(ChainCase):
    """Every dialect in one API server, with a poollet and a runtime each."""

    starts = PROGRAMS
    dialects = DIALECTS

    async def test_equal_names(self) -> None:
        """Machines of the same name in different dialects are separate, also as Pods."""
        for dialect in DIALECTS:
            await self.make(dialect)
        for dialect in DIALECTS:
            screen = await self.console(among=[dialect])
            await screen.ask(b"mine=%s; echo set-$mine\n" % dialect.name.encode(), rb"set-\w")
            await screen.leave()
        screen = await self.console()
        await screen.ask(b"echo is-$mine\n", rb"is-ironcore\r")
        await screen.leave()
        pods = await self.admin.list(kinds.PODS.resource, NAMESPACE)
        self.assertEqual(
            {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods["items"]},
            {
                "vm": "p-ironcore",
                "vm.onmetal": "p-onmetal",
                "vm.spheric": "p-spheric",
                "vm.spheric-machines": "p-spheric-machines",
            },
        )
        await self.admin.delete(IRONCORE.workload, "vm", NAMESPACE)
        await self.gone(IRONCORE, "vm")
        screen = await self.console()
        await screen.ask(b"echo is-$mine\n", rb"is-onmetal\r")
        await screen.leave()

    async def test_pool_of_another_dialect(self) -> None:
        """Deleting a pool ends only the sessions of its own machines."""
        await self.make(IRONCORE)
        screen = await self.console()
        name = pool_of(IRONCORE)
        await self.admin.create(ONMETAL.pool, {"metadata": {"name": name}})
        await self.admin.delete(ONMETAL.pool, name)
        await screen.ask(b"echo still-$((1+1))\n", rb"still-2")
        await self.admin.delete(IRONCORE.pool, name)
        ended = await screen.ended
        self.assertEqual(ended.ending.reason, POOL_DELETED)


class ProgramsTests(TestCase):
    """API server, runtime, and poollets of two dialects, with kubectl."""

    starts = PROGRAMS
    skip = needs.kubectl()

    async def setUp(self) -> None:
        self.deployment = deployment = Deployment(self.mktemp(), dialects=(SPHERIC, IRONCORE))
        self.addCleanup(deployment.stop)
        await deployment.start()
        other = await deployment.poollet_of(IRONCORE, "pool-b")
        self.addCleanup(other.stop)
        self.env = {
            "KUBECONFIG": str(Path(deployment.admin).resolve()),
            "HOME": str(Path(self.mktemp())),
            "PATH": f"{Path(script('kubectl-console')).parent}:/usr/bin:/bin",
        }

    async def kubectl(self, *words: str, stdin: bytes = b"", answer: bytes = b"") -> str:
        """Run kubectl, which has to succeed, and return its standard output."""
        program = kubectls.found()["kubectl"]
        ended, out, told = await kubectls.run(
            program, *words, env=self.env, stdin=stdin, answer=answer
        )
        self.assertEqual(ended, 0, (words, told))
        return out

    async def make(self, dialect: Dialect, pool: str) -> None:
        """Create a shell machine of a dialect with kubectl."""
        path = Path(self.deployment.path(f"{dialect.name}.json"))
        path.write_text(json.dumps(machine("sh", "shell", pool, dialect)))
        await self.kubectl("create", "-f", str(path))
        where = f"{dialect.workload.qualified}/sh"
        state = "--for=jsonpath={.status.state}=Running"
        await self.kubectl("wait", where, state, "--timeout=600s")

    async def set_mine(self, noun: str) -> None:
        """Set a variable of the shell, at a console in a terminal."""
        argv = [kubectls.found()["kubectl"], "console", f"{noun}/sh"]
        console = terminal(argv, **self.env)
        self.addCleanup(console.stop)
        await console.until(rb"Connected to")
        console.type(b"mine=%b; echo set-$mine\n" % noun.encode())
        await console.until(rb"set-%b\r\n" % noun.encode())
        console.type(b"\x1d")
        self.assertEqual(await console.ended, 0)

    async def test_kubectl(self) -> None:
        """Instances and machines are created, listed, explained, opened and deleted."""
        await self.deployment.client.create(
            IRONCORE.workload_class, machine_class("shell", "64Mi", IRONCORE)
        )
        await self.make(SPHERIC, "pool-a")
        await self.make(IRONCORE, "pool-b")
        table = await self.kubectl("get", "instances")
        self.assertRegex(table, r"NAME +INSTANCECLASSREF +STATE +AGE")
        self.assertRegex(table, r"sh +shell +Running")
        self.assertIn("pool-a", await self.kubectl("get", "fleets"))
        told = await self.kubectl("explain", "instances.spec.fleetRef")
        self.assertIn("fleetRef is the Fleet that the instance is bound to", told)
        for dialect in (SPHERIC, IRONCORE):
            await self.set_mine(dialect.noun)
        for pod, noun in (("sh", "instance"), ("sh.ironcore", "machine")):
            typed, answer = b"echo is-$mine; exit 0\n", f"is-{noun}\r\n".encode()
            await self.kubectl("exec", "-i", pod, "--", "console", stdin=typed, answer=answer)
            self.assertIn(f"is-{noun}", await self.kubectl("logs", pod))
        await self.kubectl("delete", "instance", "sh")
        self.assertEqual(await self.kubectl("get", "pods", "-o", "name"), "pod/sh.ironcore\n")
