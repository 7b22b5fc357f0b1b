"""
A broker whose target speaks another dialect; source and target are one API server that has both.

So each session passes that server twice, which must keep the two apart.
"""

from __future__ import annotations

from typing import Any

from tests.chain import pool_of, reactor
from tests.contracts.chain import NAMESPACE, ChainCase
from tests.tiers import PROGRAMS
from twisted_exec.api.dialects import IRONCORE, ONMETAL, SPHERIC, Dialect
from twisted_exec.iri.client import IRIClient
from twisted_exec.runtimes.machinebroker import streams
from twisted_exec.runtimes.machinebroker.host import BrokerHost
from twisted_exec.runtimes.machinebroker.place import BrokerIdentity, BrokerPlace
from twisted_exec.runtimes.machinebroker.settings import Settings
from twisted_exec.streaming.interfaces import POWERED_OFF


class DialectContract:
    """Machines of ironcore's in front, of :attr:`behind` behind."""

    behind: Dialect
    resume_seconds = 1

    async def _start(self: Any, dialect: Dialect) -> None:
        if dialect is IRONCORE:
            await self.start_front()
        else:
            await ChainCase._start(self, dialect)

    async def start_front(self: Any) -> None:
        """The class, the broker and the poollet."""
        self.patch(streams, "ANSWER_SECONDS", 600)  # all programs share this process
        document = {"metadata": {"name": "shell"}, "capabilities": {"cpu": "1", "memory": "64Mi"}}
        await self.admin.create(IRONCORE.workload_class, document)
        target = f"unix://{self.directory}/broker/iri.sock"
        config = self.config("admin")
        settings = Settings(
            place=BrokerPlace(self.behind, NAMESPACE, "a", pool_of(self.behind)),
            identity=BrokerIdentity("a", own=True),
            state_directory=str(self.directory / "broker-state"),
            iri_target=target,
            drain_seconds=0,
        )
        await self.begin(
            BrokerHost(settings, self.client("admin"), lambda: config, self.audit, reactor)
        )
        runtime = IRIClient(target, reactor)
        runtime.startService()
        self.addCleanup(runtime.stopService)
        self.runtimes[IRONCORE] = runtime
        self.poollets[IRONCORE] = await self.begin(self._poollet(IRONCORE, runtime))
        await self.until_async(lambda: self._is_ready(IRONCORE))

    async def test_life(self: Any) -> None:
        """Made, reached, powered off with a reason, and gone, in both dialects."""
        await self.make(IRONCORE)
        screen = await self.console(among=[IRONCORE])
        await screen.ask(b"echo $((6*7))\n", rb"42\r\n")
        (there,) = (await self.admin.list(self.behind.workload, NAMESPACE))["items"]
        self.assertEqual(self.behind.class_name(there), "shell")
        await self.power(IRONCORE, "vm", "Off")
        lost = await screen.ended
        self.assertEqual(lost.ending.reason, POWERED_OFF)
        await self.in_state(IRONCORE, "vm", "Shutdown")
        await self.admin.delete(IRONCORE.workload, "vm", NAMESPACE)
        await self.gone(IRONCORE, "vm")
        await self.gone(self.behind, there["metadata"]["name"])


class OnmetalTests(DialectContract, ChainCase):
    """Before onmetal-api's names."""

    starts = PROGRAMS
    behind = ONMETAL
    dialects = (ONMETAL, IRONCORE)


class SphericTests(DialectContract, ChainCase):
    """Before spheric's names."""

    starts = PROGRAMS
    behind = SPHERIC
    dialects = (SPHERIC, IRONCORE)
