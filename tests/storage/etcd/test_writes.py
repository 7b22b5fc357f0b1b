"""
Tests for :mod:`twisted_exec.storage.etcd.writes`.
"""

from __future__ import annotations

from dataclasses import replace

from twisted.internet.defer import DeferredList

from tests import needs
from tests.contracts.storage import MACHINES, changed, machine
from tests.storage.etcds import EtcdCase, any_prefix, refusal, shared
from twisted_exec.api.status import Conflict


class BoundedTests(EtcdCase):
    """Writes that etcd does not answer."""

    skip = needs.etcd()

    async def test_too_many(self) -> None:
        """A bounded number waits; more are refused, to be tried later."""
        gate = self.gate(shared().members[0])
        target = replace(shared().target(any_prefix()), endpoints=(gate.endpoint,))
        storage = await self.open(target)
        gate.deaf = True
        waiting = [storage.create(MACHINES, machine(f"m{n}")) for n in range(2048)]
        problem = await refusal(storage.create(MACHINES, machine("one-more")))
        self.assertEqual((problem.code, problem.retry_after_seconds), (503, 1))
        self.assertEqual(problem.message, "too many writes are waiting")
        await gate.close()
        outcomes = await DeferredList(waiting, consumeErrors=True)
        self.assertEqual({told.value.code for made, told in outcomes if not made}, {504})

    async def test_stopped_meanwhile(self) -> None:
        """A write under way when the store stops is a 504, since etcd may have made it."""
        gate = self.gate(shared().members[0])
        target = shared().target(any_prefix())
        storage = await self.open(replace(target, endpoints=(gate.endpoint,)))
        gate.deaf = True
        writing = storage.create(MACHINES, machine("a"))
        await storage.stopService()
        self.assertEqual((await refusal(writing)).code, 504)
        self.assertEqual((await refusal(storage.create(MACHINES, machine("b")))).code, 503)

    async def test_cancelled(self) -> None:
        """Cancelling a write does not disturb later writes."""
        storage = await self.open(shared().target(any_prefix()))
        writing = storage.create(MACHINES, machine("a"))
        writing.addErrback(lambda failure: None)
        writing.cancel()
        await storage.create(MACHINES, machine("b"))
        names = [one["metadata"]["name"] for one in (await storage.list(MACHINES)).items]
        self.assertIn(names, (["b"], ["a", "b"]))


class KnownTests(EtcdCase):
    """Writes under a version that this server has not seen."""

    skip = needs.etcd()

    async def test_from_elsewhere(self) -> None:
        """An object read at one server can be updated at another at once."""
        target = shared().target(any_prefix())
        first, second = await self.open(target), await self.open(target)
        stored = await first.create(MACHINES, machine("a", turn=0))
        for turn in range(1, 20):
            first, second = second, first
            stored = await first.update(MACHINES, changed(stored, turn=turn))
        gone = await second.delete(MACHINES, stored)
        self.assertEqual(gone["spec"], {"turn": 19})

    async def test_no_version(self) -> None:
        """An invalid version does not match the stored one."""
        storage = await self.open(shared().target(any_prefix()))
        stored = await storage.create(MACHINES, machine("a"))
        for version in ("", "x", "-1", "99999999999999999999"):
            metadata = {**stored["metadata"], "resourceVersion": version}
            problem = await refusal(storage.update(MACHINES, {**stored, "metadata": metadata}))
            self.assertIsInstance(problem, Conflict)
