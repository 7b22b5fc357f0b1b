"""
Tests for :mod:`twisted_exec.storage.etcd.reflector`: etcd in trouble.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import capturedLogs, formatEvent

from tests import needs
from tests.contracts.storage import MACHINES, changed, machine
from tests.runtimes.support import pause
from tests.storage.etcds import EtcdCase, any_prefix, refusal, shared, until
from tests.tiers import PROGRAMS
from twisted_exec.api.encoded import json_text
from twisted_exec.api.status import APIError, Expired, NotFound
from twisted_exec.storage.etcd.consistent_reads import ConsistentReads
from twisted_exec.storage.etcd.keys import Keys, value_of
from twisted_exec.storage.etcd.store import EtcdStorage
from twisted_exec.storage.interfaces import Event, StorageError


def told(events: list[Event]) -> list[tuple[str, str]]:
    """Types and names."""
    return [(event.type, event.obj["metadata"]["name"]) for event in events]


async def names_of(storage: EtcdStorage) -> list[str]:
    """Return the names of all machines, and retry as a client would until etcd answers in time."""
    while True:
        try:
            return [one["metadata"]["name"] for one in (await storage.list(MACHINES)).items]
        except APIError as error:
            if error.code not in (503, 504):
                raise
            await pause()


async def written(storage: EtcdStorage, name: str) -> None:
    """
    Create a machine, and retry as a client would until the store accepts it.

    A write with an unknown outcome may have been made: hence AlreadyExists counts as success.
    """
    while True:
        try:
            await storage.create(MACHINES, machine(name))
            return
        except APIError as error:
            if error.reason == "AlreadyExists":
                return
            if error.code not in (503, 504):
                raise
            await pause()


class FaultCase(EtcdCase):
    """With logs."""

    skip = needs.etcd()

    def logs(self) -> None:
        """Keep what the store logs from now on."""
        logged = capturedLogs()
        self.captured = logged.__enter__()
        self.addCleanup(logged.__exit__, None, None, None)

    def logged(self, words: str) -> list[str]:
        """Lines with these words in them."""
        lines = [formatEvent(event) for event in self.captured]
        return [line for line in lines if words in line]


class GoneTests(FaultCase):
    """An etcd that is out of reach."""

    starts = PROGRAMS

    async def test_at_the_start(self) -> None:
        """A store waits for etcd, logs that once, and becomes ready when etcd answers."""
        self.logs()
        etcds = self.cluster()
        etcds.members[0].kill()
        storage = self.begin(etcds.target())
        ready: Deferred[None] = storage.when_ready()
        await until(lambda: storage.trouble)
        self.assertFalse(ready.called)
        self.assertEqual((await refusal(storage.create(MACHINES, machine("a")))).code, 503)
        etcds.start()
        await ready
        await storage.create(MACHINES, machine("a"))
        self.assertEqual(len(self.logged("does not serve the store")), 1)
        self.assertEqual(len(self.logged("serves the store again")), 1)

    async def test_stopped_before(self) -> None:
        """A store that is stopped before it was ready says so."""
        etcds = self.cluster()
        etcds.members[0].kill()
        storage = self.begin(etcds.target())
        ready = storage.when_ready()
        await storage.stopService()
        await self.assertFailure(ready, StorageError)
        for asked in (
            storage.get(MACHINES, "default", "a"),
            storage.create(MACHINES, machine("a")),
        ):
            self.assertEqual((await refusal(asked)).code, 503)

    async def test_and_back(self) -> None:
        """Meanwhile nothing is acknowledged; afterwards watches go on without a gap."""
        etcds = self.cluster()
        storage, other = await self.open(etcds.target()), await self.open(etcds.target())
        self.logs()
        events: list[Event] = []
        lost: list[str] = []
        storage.watch(MACHINES, None, events.append, "", lambda: lost.append("lost"))
        first = await storage.create(MACHINES, machine("a"))
        etcds.members[0].kill()
        await until(lambda: storage.trouble and other.trouble)
        for asked in (
            storage.create(MACHINES, machine("b")),
            storage.update(MACHINES, changed(first, power="Off")),
            storage.get(MACHINES, "default", "a"),
            storage.list(MACHINES),
            storage.current(),
            storage.probe(),
        ):
            problem = await refusal(asked)
            self.assertEqual((problem.code, problem.retry_after_seconds), (503, 1))
            self.assertNotIn("127.", problem.message)
        self.assertEqual(await storage.get(MACHINES, "default", "a", stale=True), first)
        self.assertEqual(list((await storage.list(MACHINES, stale=True)).items), [first])
        etcds.start()
        await written(other, "c")
        await written(storage, "d")
        self.assertEqual(told(events), [("ADDED", "a"), ("ADDED", "c"), ("ADDED", "d")])
        self.assertEqual(lost, [])
        self.assertEqual(len(self.logged("does not serve the store")), 2, "once for each")
        self.assertEqual(len(self.logged("serves the store again")), 2)

    async def test_slow(self) -> None:
        """
        Timeouts are 504; that of a write says that the outcome is unknown. Nothing is made twice.
        """
        etcds = self.cluster()
        storage = await self.open(etcds.target(), read_seconds=0.5, write_seconds=1.0)
        events: list[Event] = []
        storage.watch(MACHINES, None, events.append)
        etcds.members[0].freeze()
        read = await refusal(storage.get(MACHINES, "default", "a"))
        self.assertEqual((read.code, read.reason, read.retry_after_seconds), (504, "Timeout", 1))
        write = await refusal(storage.create(MACHINES, machine("a")))
        self.assertEqual((write.code, write.retry_after_seconds), (504, 1))
        self.assertIn("did not say whether", write.message)
        etcds.members[0].thaw()
        await written(storage, "b")
        names = await names_of(storage)
        self.assertIn(names, (["b"], ["a", "b"]))
        self.assertEqual(sorted(name for _, name in told(events)), names)


class UnknownOutcomeTests(FaultCase):
    """etcd writes, and its answer is lost."""

    starts = PROGRAMS

    async def test_not_repeated(self) -> None:
        """
        A write cut off from etcd is a 504 and not repeated; its event follows on reconnection.
        """
        etcds = shared(self.program)
        gate = self.gate(etcds.members[0])
        target = etcds.target(any_prefix())
        direct = await self.open(target)
        storage = await self.open(replace(target, endpoints=(gate.endpoint,)))
        first = await storage.create(MACHINES, machine("a", turn=0))
        events: list[Event] = []
        storage.watch(MACHINES, None, events.append)
        seen: list[Event] = []
        await direct.current()
        direct.watch(MACHINES, None, seen.append)
        gate.deaf = True
        writing = storage.update(MACHINES, changed(first, turn=1))
        await until(lambda: seen)
        await gate.close()
        problem = await refusal(writing)
        self.assertEqual((problem.code, problem.retry_after_seconds), (504, 1))
        self.assertIn("look before trying again", problem.message)
        gate.open()
        await until(lambda: events)
        await storage.get(MACHINES, "default", "a")
        self.assertEqual([event.obj["spec"] for event in events], [{"turn": 1}])
        self.assertEqual(len(seen), 1)

    async def test_told_by_the_watch(self) -> None:
        """A write that the watch tells of was made, whatever became of its answer."""
        storage = await self.open(shared(self.program).target(any_prefix()))
        made = await gatherResults([storage.create(MACHINES, machine(f"m{n}")) for n in range(50)])
        versions = [int(obj["metadata"]["resourceVersion"]) for obj in made]
        self.assertEqual(len(set(versions)), 50)


class MissedTests(FaultCase):
    """Changes that a server did not see."""

    starts = PROGRAMS
    exact = True

    async def test_compacted(self) -> None:
        """
        After a compaction, watches with a callback for lost events get one call; others get the
        differences.
        """
        etcds = shared(self.program)
        gate = self.gate(etcds.members[0])
        target = etcds.target(any_prefix())
        direct = await self.open(target)
        storage = await self.open(replace(target, endpoints=(gate.endpoint,)))
        kept = await storage.create(MACHINES, machine("kept"))
        gone = await storage.create(MACHINES, machine("gone"))
        since = storage.version()
        events: list[Event] = []
        unasked: list[Event] = []
        lost: list[str] = []
        storage.watch(MACHINES, None, events.append, "", lambda: lost.append("lost"))
        storage.watch(MACHINES, None, unasked.append)
        await gate.close()
        await until(lambda: storage.trouble)
        await direct.create(MACHINES, machine("new"))
        await direct.update(MACHINES, changed(kept, power="Off"))
        await direct.delete(MACHINES, gone)
        await self.compact(target)
        gate.open()
        await until(lambda: lost)
        self.assertEqual(events, [])
        self.assertEqual(
            sorted(told(unasked)), [("ADDED", "new"), ("DELETED", "gone"), ("MODIFIED", "kept")]
        )
        with self.assertRaises(Expired):
            storage.watch(MACHINES, since, events.append)
        names = [one["metadata"]["name"] for one in (await storage.list(MACHINES)).items]
        self.assertEqual(names, ["kept", "new"])

    async def test_resumed(self) -> None:
        """Events during a disconnection are delivered once each, and no watch has to list again."""
        etcds = shared(self.program)
        gate = self.gate(etcds.members[0])
        target = etcds.target(any_prefix())
        direct = await self.open(target)
        storage = await self.open(replace(target, endpoints=(gate.endpoint,)))
        events: list[Event] = []
        lost: list[str] = []
        storage.watch(MACHINES, None, events.append, "", lambda: lost.append("lost"))
        for turn in range(3):
            await direct.create(MACHINES, machine(f"open-{turn}"))
            await gate.close()
            await direct.create(MACHINES, machine(f"closed-{turn}"))
            gate.open()
        await until(lambda: len(events) == 6)
        await direct.create(MACHINES, machine("last"))
        await until(lambda: len(events) == 7)
        names = [f"{kind}-{turn}" for turn in range(3) for kind in ("open", "closed")]
        self.assertEqual(told(events), [("ADDED", name) for name in [*names, "last"]])
        self.assertEqual(lost, [])

    async def test_compacted_by_others(self) -> None:
        """After a restart, a compaction above the last write does not cost a watch any event."""
        target = self.cluster().target()
        storage = await self.open(target)
        stored = await storage.create(MACHINES, machine("a"))
        await storage.stopService()
        for turn in range(3):
            await self.put(target, "/another", str(turn))
        await self.compact(target)
        storage.startService()
        await storage.when_ready()
        events: list[Event] = []
        lost: list[str] = []
        storage.watch(MACHINES, None, events.append, "", lambda: lost.append("lost"))
        # By hand, for a write of the store's would have it list from there.
        by_hand = json_text({**stored, "spec": {"power": "Off"}})
        await self.put(target, Keys(target.prefix).key(MACHINES, "default", "a").decode(), by_hand)
        await until(lambda: events or lost)
        self.assertEqual((told(events), lost), ([("MODIFIED", "a")], []))

    async def test_put_back(self) -> None:
        """
        If etcd is restored from a backup, undone objects are deleted and their revisions expire.
        """
        self.logs()
        etcds = self.cluster()
        member = etcds.members[0]
        storage = await self.open(etcds.target())
        await storage.create(MACHINES, machine("kept"))
        member.kill()
        backup = etcds.directory / "backup"
        shutil.copytree(member.data, backup)
        member.start()
        await written(storage, "undone")
        undone = storage.version()
        events: list[Event] = []
        lost: list[str] = []
        storage.watch(MACHINES, None, events.append)
        storage.watch(MACHINES, None, events.append, "", lambda: lost.append("lost"))
        member.kill()
        shutil.rmtree(member.data)
        shutil.copytree(backup, member.data)
        member.start()
        await until(lambda: lost)
        self.assertEqual(told(events), [("DELETED", "undone")])
        with self.assertRaises(NotFound):
            await storage.get(MACHINES, "default", "undone")
        with self.assertRaises(Expired):
            storage.watch(MACHINES, undone, events.append)
        self.assertEqual(len(self.logged("was put back to an earlier state")), 1)

    async def test_another_history(self) -> None:
        """A restore is noticed even if new writes have reached the old revision."""
        self.logs()
        etcds = self.cluster()
        member = etcds.members[0]
        gate = self.gate(member)
        direct = await self.open(etcds.target())
        storage = await self.open(replace(etcds.target(), endpoints=(gate.endpoint,)))
        await direct.create(MACHINES, machine("kept"))
        member.kill()
        backup = etcds.directory / "backup"
        shutil.copytree(member.data, backup)
        member.start()
        await written(direct, "undone")
        lost: list[str] = []
        await until(lambda: storage.version() == direct.version())
        storage.watch(MACHINES, None, lambda event: None, "", lambda: lost.append("lost"))
        await gate.close()
        member.kill()
        shutil.rmtree(member.data)
        shutil.copytree(backup, member.data)
        member.start()
        for name in ("x", "y", "z"):
            await written(direct, name)
        gate.open()
        await until(lambda: lost)
        names = [one["metadata"]["name"] for one in (await storage.list(MACHINES)).items]
        self.assertEqual(names, ["kept", "x", "y", "z"])
        self.assertTrue(self.logged("has another history than before"))

    async def test_same_revision_of_another_history(self) -> None:
        """
        After a restore, a server with the old history refuses reads, even at an equal revision.
        """
        etcds = self.cluster()
        member = etcds.members[0]
        gate = self.gate(member)
        direct = await self.open(etcds.target())
        storage = await self.open(replace(etcds.target(), endpoints=(gate.endpoint,)))
        await direct.create(MACHINES, machine("kept"))
        member.kill()
        backup = etcds.directory / "backup"
        shutil.copytree(member.data, backup)
        member.start()
        await written(direct, "undone")
        await until(lambda: storage.version() == direct.version())
        await gate.close()
        member.kill()
        shutil.rmtree(member.data)
        shutil.copytree(backup, member.data)
        member.start()
        await until(lambda: direct.version() < storage.version())
        await written(direct, "x")
        self.assertEqual(direct.version(), storage.version())
        asking = self.client(etcds.target())
        told = (storage._following, storage.history, reactor)
        reads = ConsistentReads(asking, Keys(etcds.target().prefix).marker, *told)
        self.assertEqual((await refusal(reads.current_version())).code, 503)

    async def test_emptied(self) -> None:
        """If all keys are deleted, watches see the deletions and the store accepts new objects."""
        target = shared(self.program).target(any_prefix())
        storage = await self.open(target)
        await storage.create(MACHINES, machine("a"))
        events: list[Event] = []
        storage.watch(MACHINES, None, events.append)
        await self.wipe(target)
        await until(lambda: events)
        self.assertEqual(told(events), [("DELETED", "a")])
        await written(storage, "a")
        self.assertEqual(len((await storage.list(MACHINES)).items), 1)


class FullTests(FaultCase):
    """An etcd whose quota is used up."""

    starts = PROGRAMS

    async def test_full(self) -> None:
        """Writes to a full etcd are refused with the reason and a remedy; reads still work."""
        etcds = self.cluster(flags=["--quota-backend-bytes=2000000"])
        storage = await self.open(etcds.target(), remembered_bytes=1 << 30, remembered=1000)
        problem: APIError | None = None
        for turn in range(200):
            try:
                await storage.create(MACHINES, machine(f"m{turn}", text="x" * 100_000))
            except APIError as error:
                problem = error
                break
        assert problem is not None, "etcd took everything"
        self.assertEqual((problem.code, problem.retry_after_seconds), (503, 1))
        self.assertIn("etcd is full (alarm NOSPACE): compact and defragment it", problem.message)
        self.assertEqual(len((await storage.list(MACHINES)).items), turn)
        self.assertIn("NOSPACE", (await refusal(storage.probe())).message)


class QuorumTests(FaultCase):
    """A cluster of three."""

    starts = PROGRAMS
    exact = True

    async def test_without(self) -> None:
        """Without a quorum all requests fail; no acknowledged write is lost when it returns."""
        etcds = self.cluster(3)
        storage = await self.open(etcds.target(), read_seconds=2.0, write_seconds=3.0)
        acknowledged = {"first"}
        await written(storage, "first")
        # If the member in use fails, the store continues with another.
        etcds.members[0].kill()
        await written(storage, "second")
        acknowledged.add("second")
        etcds.members[1].kill()
        await until(lambda: storage.trouble)
        for asked in (
            storage.create(MACHINES, machine("third")),
            storage.get(MACHINES, "default", "first"),
            storage.probe(),
        ):
            problem = await refusal(asked)
            self.assertIn(problem.code, (503, 504))
            self.assertEqual(problem.retry_after_seconds, 1)
        found = await storage.list(MACHINES, stale=True)
        self.assertLessEqual(acknowledged, {one["metadata"]["name"] for one in found.items})
        for member in etcds.members[:2]:
            member.start()
        await written(storage, "fourth")
        acknowledged.add("fourth")
        fresh = await self.open(etcds.target())
        found = await fresh.list(MACHINES)
        self.assertLessEqual(acknowledged, {one["metadata"]["name"] for one in found.items})


class ForeignTests(FaultCase):
    """Keys of others."""

    starts = PROGRAMS

    async def refused(self, target: Any) -> str:
        storage = self.begin(target)
        problem = await self.assertFailure(storage.when_ready(), StorageError)
        self.assertNotIn("\n", str(problem))
        # Later calls fail with the same error.
        self.assertEqual(await self.assertFailure(storage.when_ready(), StorageError), problem)
        return str(problem)

    async def test_prefix_of_another(self) -> None:
        """A prefix that another program uses is refused, and left as it is."""
        target = shared(self.program).target(any_prefix())
        await self.put(target, f"{target.prefix}/pods/default/a")
        said = await self.refused(target)
        self.assertIn(f"etcd's keys below '{target.prefix}' are another program's", said)
        self.assertIn("choose another prefix=", said)

    async def test_within_another(self) -> None:
        """A prefix within another store's would be full of keys that are foreign there."""
        target = shared(self.program).target(any_prefix())
        await self.open(target)
        inner = replace(target, prefix=f"{target.prefix}/a/b")
        said = await self.refused(inner)
        self.assertEqual(
            said,
            f"prefix={inner.prefix} is within {target.prefix}, which is a store already: choose "
            "another prefix=",
        )

    async def test_neighbours(self) -> None:
        """The store ignores its own keys and keys that only share the prefix's letters."""
        target = shared(self.program).target(any_prefix())
        for key in (
            f"{target.prefix}/.compacted",
            target.prefix,
            f"{target.prefix}-2/x",
            f"{target.prefix}0",
            f"{target.prefix}.",
        ):
            await self.put(target, key, "no")
        storage = await self.open(target)
        await storage.create(MACHINES, machine("a"))
        self.assertEqual(len((await storage.list(MACHINES)).items), 1)

    async def test_markers(self) -> None:
        """A marker of another program, or of a newer one of ours."""
        for value, said in [
            ("no JSON", "is another program's"),
            ('{"program":"another","format":1,"write":"x"}', "is another program's"),
            ('{"program":"twisted-exec","format":3,"write":"x"}', "written by a newer version"),
            ('{"program":"twisted-exec","format":2,"write":"x","restoring":0}', "not complete"),
        ]:
            target = shared(self.program).target(any_prefix())
            await self.put(target, f"{target.prefix}/.twisted-exec", value)
            self.assertIn(said, await self.refused(target))

    async def test_foreign_keys(self) -> None:
        """The start fails if the prefix has keys that the store would not write."""
        good = value_of(machine("a"))
        for key, value, said in [
            ("x", "{}", "is another program's"),
            ("a/b/c/d/e", "{}", "is another program's"),
            ("compute.ironcore.dev/machines/default/a", "no JSON", "holds no object"),
            ("compute.ironcore.dev/machines/default/a", "[]", "holds no object"),
            ("compute.ironcore.dev/machines/default/a", "{}", "holds no object"),
            ("compute.ironcore.dev/machines/default/a", "[" * 100_000, "holds no object"),
            ("compute.ironcore.dev/machines/default/b", good, "holds no object"),
        ]:
            target = shared(self.program).target(any_prefix())
            storage = await self.open(target)
            await storage.stopService()
            await self.put(target, f"{target.prefix}/{key}", value)
            told = await self.refused(target)
            self.assertIn(said, told)
            self.assertIn(f"{target.prefix}/{key}", told)

    async def test_later(self) -> None:
        """A running store ignores and logs foreign keys, and goes on."""
        self.logs()
        target = shared(self.program).target(any_prefix())
        storage = await self.open(target)
        stored = await storage.create(MACHINES, machine("a"))
        events: list[Event] = []
        storage.watch(MACHINES, None, events.append)
        await self.put(target, f"{target.prefix}/x")
        await until(lambda: self.logged("/x' is another program's"))
        key = Keys(target.prefix).key(MACHINES, "default", "a").decode()
        await self.put(target, key, "no JSON")
        await until(lambda: self.logged("holds no object"))
        self.assertEqual(await storage.get(MACHINES, "default", "a"), stored)
        by_hand = {**stored, "spec": {"power": "Off"}}
        await self.put(target, key, json_text(by_hand))
        await until(lambda: events)
        self.assertEqual(events[0].obj["spec"], {"power": "Off"})
        again = await storage.update(MACHINES, changed(events[0].obj, power="On"))
        self.assertEqual(await storage.get(MACHINES, "default", "a"), again)
