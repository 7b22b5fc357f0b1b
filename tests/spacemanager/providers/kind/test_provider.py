"""
Tests for :mod:`twisted_exec.spacemanager.providers.kind.provider`, beyond the provider
contract.
"""

from __future__ import annotations

import json
import os
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.trial.unittest import TestCase

from tests.contracts.space_world import pause
from tests.spacemanager.providers.kind.world import KindWorld
from tests.tiers import PROGRAMS
from twisted_exec.api.spaces import EXTERNAL, OWNER
from twisted_exec.api.status import AlreadyExists, APIError, Conflict, ServiceUnavailable
from twisted_exec.program.process_groups import kill_group
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
    BUILDING,
    GOING,
    USABLE,
    Physical,
    ProviderContext,
    ProviderSpec,
    SpaceInfo,
    SpaceRequest,
)
from twisted_exec.spacemanager.providers.kind import provider as kind
from twisted_exec.spacemanager.providers.kind.provider import KindProvider, make
from twisted_exec.spacemanager.providers.kind.records import (
    CREATING,
    DELETING,
    ClusterRecord,
    Records,
)
from twisted_exec.spacemanager.providers.kind.settings import KindSettings
from twisted_exec.testing.cluster import MemoryCluster

reactor: Any = _reactor
RED = Physical("red")
MINE = "space-1"


class KindTestCase(TestCase):
    """A fake kind and an adaptor for it."""

    async def setUp(self) -> None:
        self.world = KindWorld(self.mktemp())
        await self.world.start()
        self.addCleanup(self.world.stop)
        self.records = Records(str(self.world.directory / "records"))
        self.provider = self.made()

    def made(self) -> Any:
        provider = self.world.make()
        self.addCleanup(provider.close)
        return provider

    async def until(self, *states: str, physical: Physical = RED) -> SpaceInfo:
        while True:
            info: SpaceInfo = await self.provider.get(physical)
            if info.state in states:
                return info
            await pause(0.02)

    async def usable(self) -> SpaceInfo:
        await self.provider.create(RED, SpaceRequest(MINE))
        return await self.until(USABLE)

    async def refused(self, asking: Any, kind: type[APIError]) -> str:
        with self.assertRaises(kind) as caught:
            await asking
        return caught.exception.message

    def recorded(self, state: str, **more: Any) -> None:
        """Write a record and release its lock."""
        lock = self.records.lock("red")
        assert lock is not None
        self.records.write("red", ClusterRecord(MINE, state, reactor.seconds(), **more))
        os.close(lock)


class OwnerTests(KindTestCase):
    """Ownership of clusters."""

    starts = PROGRAMS

    async def test_lost_directory(self) -> None:
        """Without its records, the adaptor recognises its clusters by the node label."""
        before = await self.usable()
        lock = self.records.lock("red")
        assert lock is not None
        self.records.forget("red")
        os.close(lock)
        self.provider = self.made()
        after = await self.until(USABLE)
        self.assertEqual((after.owner, after.uid), (MINE, before.uid))
        await self.refused(self.provider.create(RED, SpaceRequest("space-2")), AlreadyExists)
        await self.provider.create(RED, SpaceRequest(MINE))
        self.assertIsNotNone(self.records.read("red"))
        await self.provider.delete(RED, MINE)
        self.assertEqual(await self.world.there(), [])

    async def test_lost_and_down(self) -> None:
        """
        With its record lost and its server down, a cluster has an unknown owner, and a delete fails
        with 503; as another owner's cluster it would be left behind.
        """
        await self.usable()
        state = self.world.kind / "clusters" / "red" / "state"
        state.write_text("stopped\n")
        with open(self.records.path("red", "record"), "w"):
            pass  # truncated
        await self.provider.close()
        self.provider = self.made()
        self.assertIsNone((await self.provider.get(RED)).owner)
        message = await self.refused(self.provider.delete(RED, MINE), ServiceUnavailable)
        self.assertIn('cluster "red"', message)
        state.write_text("ready\n")
        await self.provider.delete(RED, MINE)
        self.assertEqual(await self.world.there(), [])

    async def test_replaced(self) -> None:
        """A cluster replaced by another user under the same name is no longer ours."""
        before = await self.usable()
        await self.world.vanish(RED)
        await self.world.make_foreign(RED)
        await self.refused(self.provider.delete(RED, MINE), Conflict)
        after = await self.until(USABLE)
        self.assertEqual(after.owner, "")
        self.assertNotEqual((after.uid, after.version), (before.uid, before.version))
        self.assertEqual(self.records.names(), [])

    async def test_taken_while_begun(self) -> None:
        """A cluster that another user creates just before our run is not touched."""
        self.world.mode("late")
        creating = self.provider.create(RED, SpaceRequest(MINE))
        while self.records.read("red") is None:
            await pause(0.005)
        await self.world.make_foreign(RED)
        self.world.mode()
        await creating
        info = await self.until(USABLE)
        self.assertEqual(info.owner, "")
        await self.refused(self.provider.delete(RED, MINE), Conflict)
        self.assertEqual(await self.world.there(), [RED])

    async def test_taken_while_dead(self) -> None:
        """A record without a run does not claim a cluster that another user created."""
        self.recorded(CREATING)
        await self.world.make_foreign(RED)
        await self.refused(self.provider.create(RED, SpaceRequest(MINE)), AlreadyExists)
        self.assertEqual((await self.until(USABLE)).owner, "")

    async def test_half_built_of_others(self) -> None:
        """A booting cluster without a record has an unknown owner and is left alone."""
        self.world.put("red", state="booting")
        info = await self.until(BUILDING)
        self.assertIsNone(info.owner)
        await self.refused(self.provider.create(RED, SpaceRequest(MINE)), AlreadyExists)
        await self.refused(self.provider.delete(RED, MINE), ServiceUnavailable)
        self.assertEqual(await self.world.there(), [RED])

    async def test_some_nodes(self) -> None:
        """A cluster is ours only if all nodes have the owner label."""
        nodes = [{"labels": {OWNER: MINE}}, {}]
        self.world.put("red", config=json.dumps({"nodes": nodes}))
        self.assertEqual((await self.until(USABLE)).owner, "")


class MakingTests(KindTestCase):
    """Runs of kind that create and delete clusters."""

    starts = PROGRAMS

    async def test_outlives(self) -> None:
        """
        A create run outlives its adaptor; the next adaptor waits for it and starts no second run.
        """
        self.world.mode("hold")
        await self.provider.create(RED, SpaceRequest(MINE))
        await self.provider.close()
        self.provider = self.made()
        self.assertEqual((await self.until(BUILDING)).owner, MINE)
        await self.provider.create(RED, SpaceRequest(MINE))
        self.world.mode()
        await self.until(USABLE)
        calls = (self.world.kind / "calls").read_text()
        self.assertEqual(calls.count("create cluster"), 1)

    async def test_failed(self) -> None:
        """A failed run reports kind's message; another create tries again."""
        self.world.mode("fail")
        await self.provider.create(RED, SpaceRequest(MINE))
        info = await self.until(BROKEN)
        self.assertEqual((info.owner, info.reason), (MINE, "CreateFailed"))
        self.assertIn("no space left on device", info.message)
        self.assertTrue(info.message.isprintable())
        self.world.mode()
        await self.usable()

    async def test_failed_and_deleted(self) -> None:
        """Deleting a cluster that failed to build leaves nothing."""
        self.world.mode("fail")
        await self.provider.create(RED, SpaceRequest(MINE))
        await self.until(BROKEN)
        await self.provider.delete(RED, MINE)
        self.assertEqual(await self.world.there(), [])

    async def test_broken_off(self) -> None:
        """After its run was killed, a cluster is Broken, and create builds it again."""
        self.world.mode("hold")
        await self.provider.create(RED, SpaceRequest(MINE))
        await self.begun()
        record = self.records.read("red")
        assert record is not None
        kill_group(record.group)
        info = await self.until(BROKEN)
        self.assertEqual((info.owner, info.reason), (MINE, "Interrupted"))
        self.world.mode()
        await self.usable()

    async def begun(self) -> None:
        """Wait until kind lists the cluster."""
        while not (self.world.kind / "clusters" / "red").exists():
            await pause(0.01)

    async def test_kinds_lock(self) -> None:
        """A stale lock file of kind, left by a killed run, does not block."""
        self.recorded(CREATING)
        for file in ("kubeconfig", "kubeconfig.lock"):
            self.records.put("red", file, b"")
        await self.usable()
        self.records.put("red", "kubeconfig.lock", b"")
        await self.provider.delete(RED, MINE)
        self.assertEqual(await self.world.there(), [])

    async def test_lock_of_another(self) -> None:
        """If kind cannot lock its file, the delete fails with kind's message."""
        await self.usable()
        self.world.mode("lock")
        message = await self.refused(self.provider.delete(RED, MINE), ServiceUnavailable)
        self.assertIn("failed to lock config file", message)
        self.assertEqual((await self.until(GOING)).owner, MINE)
        self.world.mode()
        await self.provider.delete(RED, MINE)
        self.assertEqual(await self.world.there(), [])

    async def test_too_long(self) -> None:
        """A run that exceeds its time is killed."""
        self.world.mode("hold")
        await self.provider.create(RED, SpaceRequest(MINE))
        await self.begun()
        self.world.later = 3600.0
        self.assertEqual((await self.until(BROKEN)).reason, "Interrupted")

    async def test_room(self) -> None:
        """The numbers of clusters and of simultaneous creations are limited."""
        self.patch(kind, "MAX_MAKING", 1)
        self.world.mode("hold")
        await self.provider.create(RED, SpaceRequest(MINE))
        with self.assertRaises(ServiceUnavailable) as caught:
            await self.provider.create(Physical("green"), SpaceRequest("other"))
        self.assertIn("1 others are being made", caught.exception.message)
        self.patch(kind, "MAX_MAKING", 9)
        self.patch(kind, "MAX_CLUSTERS", 1)
        with self.assertRaises(ServiceUnavailable) as caught:
            await self.provider.create(Physical("green"), SpaceRequest("other"))
        self.assertIn("there are 1 already", caught.exception.message)
        await self.provider.create(RED, SpaceRequest(MINE))
        self.assertEqual(self.records.names(), ["red"])
        self.world.mode()
        await self.until(USABLE)

    async def test_image(self) -> None:
        """The image parameter of a Space is passed to kind."""
        await self.provider.create(RED, SpaceRequest(MINE, {"image": "kindest/node:v1.30.0"}))
        await self.until(USABLE)
        calls = (self.world.kind / "calls").read_text()
        self.assertIn("--image=kindest/node:v1.30.0", calls)

    async def test_going(self) -> None:
        """An interrupted deletion continues with the next delete."""
        await self.usable()
        record = self.records.read("red")
        assert record is not None
        self.recorded(DELETING)
        self.assertEqual((await self.until(GOING)).owner, MINE)
        await self.refused(self.provider.create(RED, SpaceRequest(MINE)), ServiceUnavailable)
        await self.provider.delete(RED, MINE)
        self.assertEqual(await self.world.there(), [])

    async def test_busy(self) -> None:
        """A deletion waits for other work on the cluster, which does not make the cluster foreign."""
        await self.usable()
        lock = self.records.lock("red")
        assert lock is not None
        await self.refused(self.provider.delete(RED, MINE), ServiceUnavailable)
        os.close(lock)
        await self.provider.delete(RED, MINE)
        self.assertEqual(await self.world.there(), [])


class LookTests(KindTestCase):
    """Reading the state of clusters."""

    starts = PROGRAMS

    async def test_few_calls(self) -> None:
        """Reading a healthy cluster takes one run of kind."""
        await self.usable()
        before = self.world.calls()
        for _ in range(3):
            await self.provider.get(RED)
        self.assertEqual(self.world.calls() - before, 3)

    async def test_down_for_a_while(self) -> None:
        """A cluster that does not answer is never recreated, to keep its data."""
        before = await self.usable()
        state = self.world.kind / "clusters" / "red" / "state"
        state.write_text("stopped\n")
        info = await self.until(BUILDING)
        self.assertEqual((info.reason, info.owner, info.uid), ("NotReady", MINE, before.uid))
        await self.provider.create(RED, SpaceRequest(MINE))
        state.write_text("ready\n")
        self.assertEqual((await self.until(USABLE)).access, before.access)

    async def test_after_a_start(self) -> None:
        """A new adaptor lists existing clusters as usable, with the same UID."""
        before = await self.usable()
        await self.provider.close()
        self.provider = self.made()
        (listed,) = await self.provider.list_spaces()
        self.assertEqual((listed.state, listed.uid), (USABLE, before.uid))
        self.assertEqual((listed.owner, dict(listed.access)), (MINE, {}))

    async def test_no_docker(self) -> None:
        """Without docker the message quotes kind and names the manager's host."""
        self.world.mode("down")
        message = await self.refused(self.provider.list_spaces(), ServiceUnavailable)
        self.assertIn("Is the docker daemon running?", message)
        self.assertIn("where the manager runs", message)

    async def test_outside_only(self) -> None:
        """By default only the external viewpoint has access."""
        self.world.settings = KindSettings()
        self.provider = self.made()
        self.assertEqual(list((await self.usable()).access), [EXTERNAL])

    async def test_hint_when_made(self) -> None:
        """Watchers get a hint when a create run ends."""
        hints: list[Physical | None] = []
        self.addCleanup(self.provider.watch(hints.append))
        self.world.mode("hold")
        await self.provider.create(RED, SpaceRequest(MINE))
        while RED not in hints:  # it is listed
            await pause(0.01)
        await pause(0.1)  # wait: room for further hints, of which any number is right
        hints.clear()
        self.world.mode()
        while RED not in hints:
            await pause(0.01)


class MakeTests(TestCase):
    """Tests for :func:`make`."""

    async def test_make(self) -> None:
        """Creating the adaptor needs no Secret and touches no files."""
        directory = self.mktemp()
        around = ProviderContext(MemoryCluster().client(), reactor, directory, reactor.seconds)
        provider = make(ProviderSpec("lab", "kind"), around)
        self.assertIsInstance(provider, KindProvider)
        self.assertFalse(os.path.exists(directory))
        await provider.close()
