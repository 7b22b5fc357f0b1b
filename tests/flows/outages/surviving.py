"""
One of two API servers is repeatedly killed with SIGKILL during writes, watches and sessions; the
guarantees are checked on the way, and figures collected.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from twisted.internet.defer import CancelledError, Deferred, gatherResults

from tests.flows.consoles import Screen, watch
from tests.flows.deployment import machine, pause
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError, Expired
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.console_endpoint import ConsoleLost
from twisted_exec.kube.interfaces import Object

from .replicated import REPLICAS, Replica, Replicas, other

MACHINES = kinds.MACHINES.resource
LANES = 3
"""Writers at each server."""
DELETED = "deleted"
UNKNOWN = ""
"""The outcome of a write without an answer is unknown."""


@dataclass
class Figures:
    """The results."""

    rounds: int = 0
    writes: int = 0
    unanswered: int = 0
    sessions: int = 0
    resumed: int = 0
    expired: int = 0
    events: int = 0
    longest_gap: float = 0.0
    survivors_refusals: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.rounds} kills: {self.writes} writes acknowledged, all of them there at both "
            f"servers afterwards ({self.unanswered} unanswered); {self.events} changes seen by "
            f"watches, which resumed {self.resumed} times without a gap and had to list again "
            f"{self.expired} times; {self.sessions} sessions at the other server went on; it "
            f"was never without an acknowledged write for more than {self.longest_gap:.2f} s "
            f"and refused {len(self.survivors_refusals)} requests"
        )


class Follower:
    """
    A watch of all machines that continues at the other server when one dies.

    :ivar seen: the resourceVersions of all changes, in order.
    :ivar since: the version of the latest list.
    """

    def __init__(self, replicas: Replicas, first: str, figures: Figures) -> None:
        self._replicas, self._at, self._figures = replicas, first, figures
        self._version = ""
        self.since = 0
        self.seen: list[int] = []
        self.types: Counter[str] = Counter()
        self.faults: list[str] = []
        self._running: Deferred[None] | None = None

    def start(self) -> None:
        self._running = Deferred.fromCoroutine(self._run())

    async def stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.addErrback(lambda failure: failure.trap(CancelledError))
            running.cancel()
            await running

    async def _run(self) -> None:
        while self._running is None or not self._running.called:
            client = self._replicas.replicas[self._at].client
            try:
                if not self._version:
                    await self._list(client)
                await client.watch(MACHINES, self._changed, resource_version=self._version)
            except Expired:
                self._version = ""
                self._figures.expired += 1
                continue
            except APIError:
                pass  # the server is down
            self._at = other(self._at)
            self._figures.resumed += 1
            await pause()

    async def _list(self, client: KubeClient) -> None:
        listed = await client.list(MACHINES)
        self._version = listed["metadata"]["resourceVersion"]
        self.since = int(self._version)

    def _changed(self, change: str, obj: Object) -> None:
        version = int(obj["metadata"]["resourceVersion"])
        if version <= int(self._version) and change != "BOOKMARK":
            self.faults.append(f"{change} of {version} after {self._version}")
        self._version = str(max(version, int(self._version)))
        if change != "BOOKMARK":
            self.seen.append(version)
            self._figures.events += 1

    @property
    def version(self) -> int:
        """The latest version that it has received."""
        return int(self._version or 0)


def _written(obj: Object) -> tuple[str, Object, Object]:
    """Return what writers of a machine decide."""
    metadata = obj["metadata"]
    return metadata["uid"], metadata.get("labels", {}), obj["spec"]


def leads(replica: Replica) -> bool:
    """Return whether the server's latest message says that it leads."""
    said = replica.program.output
    return said.rfind(b" leads\n") > said.rfind(b" leads no longer")


class Survival:
    """
    Rounds that each kill and restart one server.

    :param replicas: all programs, with a shell machine called ``sh``.
    """

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.figures = Figures()
        self.known: dict[str, str] = {}
        self.stored: dict[str, Object] = {}
        self.acknowledged: list[int] = []
        self.followers = [Follower(replicas, name, self.figures) for name in REPLICAS]
        self._stopping = False
        self._killing = ""  # refusals of this server are expected

    async def run(self, rounds: int, writes: int) -> None:
        """
        :param writes: the least number of writes per round before the kill.
        :raises AssertionError: a guarantee is violated.
        """
        for each in self.followers:
            each.start()
        while not all(each.version for each in self.followers):
            await pause()
        try:
            for number in range(rounds):
                await self._round(number, await self.victim(number), writes)
                self.figures.rounds += 1
            await self._check_followers()
        finally:
            for each in self.followers:
                await each.stop()

    async def victim(self, number: int) -> str:
        """Return the server that a round kills: each in turn."""
        return REPLICAS[number % 2]

    async def leader(self) -> str:
        """Return the server that leads, as soon as one does."""
        replicas = self.replicas.replicas
        while not any(leads(each) for each in replicas.values()):
            await pause()
        return next(name for name in REPLICAS if leads(replicas[name]))

    async def takeover(self) -> float:
        """
        Kill the leader.

        :return: seconds until the other server has placed a machine without a pool.
        """
        leader = await self.leader()
        heir = self.replicas.replicas[other(leader)]
        await self.replicas.kill(leader)
        began = time.monotonic()
        body = machine("homeless", "shell")
        del body["spec"]["machinePoolRef"]
        await heir.client.create(MACHINES, body, namespace="default")
        await self.replicas.machine_in_state("homeless", "Running")
        took = time.monotonic() - began
        assert leads(heir)
        await self.replicas.start_replica(leader)
        return took

    async def _round(self, number: int, victim: str, writes: int) -> None:
        survivor = other(victim)
        dying, staying = (self.replicas.replicas[name] for name in (victim, survivor))
        cut, kept = await self._sessions(dying, staying)
        self._stopping, self._killing = False, ""
        lanes = [
            Deferred.fromCoroutine(self._write(replica, f"m-{number}-{replica.name}-{lane}"))
            for replica in (dying, staying)
            for lane in range(LANES)
        ]
        await self._until_written(writes)
        self._killing = victim
        await self.replicas.kill(victim)
        lost = await cut.ended
        assert isinstance(lost, ConsoleLost), lost
        await kept.ask(b"echo alive-$((6*7))\n", rb"alive-42\r\n")
        self.figures.sessions += 1
        anew = await watch(staying.kubeconfig, "sh")
        await self._until_written(writes)
        await self._check_stored(staying)
        await self.replicas.start_replica(victim)
        await self._until_written(writes)
        self._stopping = True
        await gatherResults(lanes)
        for name in REPLICAS:
            await self._check_stored(self.replicas.replicas[name])
        for screen in (kept, anew):
            await screen.ask(b"echo still-$((6*7))\n", rb"still-42\r\n")
            await screen.leave()

    async def _sessions(self, dying: Replica, staying: Replica) -> tuple[Screen, Screen]:
        screens = []
        for replica in (dying, staying):
            screen = await watch(replica.kubeconfig, "sh", resume=False)
            screens.append(screen)
            # The first drives, the second observes; both see the typed keys.
        (first, second) = screens
        await first.ask(b"echo open-$((6*7))\n", rb"open-42\r\n")
        await second.until(rb"open-42\r\n")
        return first, second

    async def _until_written(self, more: int) -> None:
        goal = self.figures.writes + more
        while self.figures.writes < goal:
            await pause()

    async def _write(self, replica: Replica, stem: str) -> None:
        """Create, change and delete machines until the server dies or the round ends."""
        turn, last = 0, time.monotonic()
        while not self._stopping:
            try:
                await self._write_one(replica.client, f"{stem}-{turn}", turn)
            except APIError as error:
                self.figures.unanswered += 1
                if replica.name != self._killing:
                    self.figures.survivors_refusals.append(f"{replica.name}: {error.message}")
                return
            now = time.monotonic()
            if replica.name != self._killing:
                self.figures.longest_gap = max(self.figures.longest_gap, now - last)
            turn, last = turn + 1, now

    async def _write_one(self, client: KubeClient, name: str, turn: int) -> None:
        body = machine(name, "shell", "nowhere")  # keep it unscheduled
        self.known[name] = UNKNOWN
        self._acknowledge(name, await client.create(MACHINES, body, namespace="default"))
        if turn % 2:
            patch = {"metadata": {"labels": {"turn": str(turn)}}}
            self.known[name] = UNKNOWN
            self._acknowledge(name, await client.patch(MACHINES, name, patch, "default"))
        if turn % 3 == 2:
            self.known[name] = UNKNOWN
            await client.delete(MACHINES, name, "default")
            self.known[name] = DELETED
            self.figures.writes += 1

    def _acknowledge(self, name: str, stored: Object) -> None:
        self.known[name] = stored["metadata"]["resourceVersion"]
        self.stored[name] = stored
        self.acknowledged.append(int(self.known[name]))
        self.figures.writes += 1

    async def _check_stored(self, replica: Replica) -> None:
        """
        Check that the server has every acknowledged object as it was acknowledged.

        In a slow run the scheduler writes the status of machines whose pool has been missing for long.
        """
        before = dict(self.known)
        listed = await replica.client.list(MACHINES, namespace="default")
        there = {each["metadata"]["name"]: each for each in listed["items"]}
        for name, version in before.items():
            if version != self.known[name]:
                continue  # it was written during the list
            if version == DELETED:
                assert name not in there, f"{name} is deleted, and there at {replica.name}"
            elif version != UNKNOWN:
                found = there.get(name)
                assert found, f"{name} of {version} is not there at {replica.name}"
                told = f"{name} of {version} at {replica.name}: {found}"
                assert int(found["metadata"]["resourceVersion"]) >= int(version), told
                assert _written(found) == _written(self.stored[name]), told

    async def _check_followers(self) -> None:
        newest = max(self.acknowledged)
        while any(each.version < newest for each in self.followers):
            await pause()
        for each in self.followers:
            assert not each.faults, each.faults[:5]
            missed = {one for one in self.acknowledged if one > each.since} - set(each.seen)
            assert not missed, f"{len(missed)} changes were not seen: {sorted(missed)[:5]}"
        since = max(each.since for each in self.followers)
        until = min(each.version for each in self.followers)
        told = [[one for one in each.seen if since < one <= until] for each in self.followers]
        assert told[0] == told[1], "two watches have seen different changes"
        assert not self.figures.survivors_refusals, self.figures.survivors_refusals[:5]
