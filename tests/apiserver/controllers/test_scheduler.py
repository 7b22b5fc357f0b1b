"""
Tests for :mod:`twisted_exec.apiserver.controllers.scheduler`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.controllers.test_placement import READY
from tests.apiserver.support import CLASSES, MACHINES, MERGE, POOLS, APITestCase
from tests.control.support import WithoutJitter
from tests.retained import instances
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.kinds import EVENTS, NAMESPACES, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, Forbidden
from twisted_exec.apiserver.controllers import placement, scheduler
from twisted_exec.apiserver.controllers.placement import Placement
from twisted_exec.apiserver.controllers.scheduler import (
    AT_ONCE,
    EVENT_SECONDS,
    MISSING_SECONDS,
    SOON_SECONDS,
    Scheduler,
)
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.program.turns import REST_SECONDS
from twisted_exec.storage.memory import MemoryStorage

SMALL = "class/machine.small"
TABLE = [("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")]


class BrokenStorage(MemoryStorage):
    """A store whose disk is full now and then."""

    broken = False

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """As the real one, or not at all."""
        if self.broken and resource == IRONCORE.workload:
            return fail(APIError("the disk is full", code=500, reason="InternalError"))
        return super().update(resource, obj)


class SchedulerTests(APITestCase):
    """An API server that places machines."""

    def settings(self) -> dict[str, Any]:
        return {"scheduling": True}

    def setUp(self) -> None:
        super().setUp()
        self.make_class("small")

    def make_class(self, name: str) -> None:
        made = {"metadata": {"name": name}, "capabilities": {"cpu": "1", "memory": "1Gi"}}
        self.answer("POST", CLASSES, made, code=201)

    def make_ready(self, name: str, room: int = 10, **status: Any) -> None:
        self.make_pool(
            name,
            conditions=[READY],
            capacity={SMALL: room},
            allocatable={SMALL: room},
            **status,
        )

    def soon(self) -> None:
        self.clock.advance(SOON_SECONDS)

    def pool_of(self, name: str) -> str:
        spec = self.answer("GET", f"{MACHINES}/{name}")["spec"]
        return str(spec.get("machinePoolRef", {}).get("name", ""))

    def events(self) -> list[tuple[str, str]]:
        found = self.answer("GET", "/api/v1/namespaces/default/events")["items"]
        return [(each["reason"], each["involvedObject"]["name"]) for each in found]

    def test_placed(self) -> None:
        """A machine without a pool has one a moment later, and an Event says so."""
        self.make_ready("pool-a")
        self.make_machine("vm", "")
        self.soon()
        self.assertEqual(self.pool_of("vm"), "pool-a")
        self.assertEqual(self.events(), [("Scheduled", "vm")])
        obj = self.answer("GET", f"{MACHINES}/vm")
        self.assertIn("scheduler", [each["manager"] for each in obj["metadata"]["managedFields"]])

    def test_given(self) -> None:
        """A machine whose user chose a pool is left alone."""
        self.make_ready("pool-a")
        self.make_machine("vm", "pool-z")
        self.soon()
        self.assertEqual(self.pool_of("vm"), "pool-z")

    def test_given_wrongly(self) -> None:
        """One whose pool does not exist reads so, once, with those that do; it is left where it is."""
        self.make_ready("pool-a")
        self.make_machine("vm", "pool-z")
        self.soon()
        (event,) = self.answer("GET", "/api/v1/namespaces/default/events")["items"]
        self.assertEqual(
            (event["reason"], event["message"]),
            ("FailedScheduling", 'machine pool "pool-z" does not exist; there are: pool-a'),
        )
        self.assertEqual(self.pool_of("vm"), "pool-z")
        self.make_ready("pool-z")
        self.soon()
        self.make_machine("other", "pool-z")
        self.soon()
        self.assertEqual(self.events(), [("FailedScheduling", "vm")])

    def test_later(self) -> None:
        """The reason for waiting is reported once; the machine is placed when a pool fits."""
        self.make_machine("vm", "")
        self.soon()
        self.assertEqual(self.events(), [("FailedScheduling", "vm")])
        self.make_ready("pool-a")
        self.soon()
        self.assertEqual(self.pool_of("vm"), "pool-a")

    def ready(self, name: str) -> tuple[str, str, str] | None:
        """The condition Ready of a machine."""
        status = self.answer("GET", f"{MACHINES}/{name}")["status"]
        for each in status.get("conditions", ()):
            if each["type"] == "Ready":
                return each["status"], each["reason"], each["message"]
        return None

    def test_condition(self) -> None:
        """A waiting machine is not ready, with the reason; the condition goes when it has a pool."""
        self.make_machine("vm", "")
        self.soon()
        why = "there are no machinepools"
        self.assertEqual(self.ready("vm"), ("False", "FailedScheduling", why))
        self.make_ready("pool-a", 0)
        self.make_machine("other", "")
        self.soon()
        full = "no room for class small: 1 of 1 machinepools"
        self.assertEqual(self.ready("other"), ("False", "OutOfCapacity", full))
        self.clock.advance(EVENT_SECONDS)
        self.assertEqual(self.ready("vm"), ("False", "OutOfCapacity", full))
        room = {"conditions": [READY], "capacity": {SMALL: 2}, "allocatable": {SMALL: 2}}
        self.answer("PATCH", f"{POOLS}/pool-a/status", {"status": room}, content_type=MERGE)
        self.soon()
        for name in ("vm", "other"):
            self.assertEqual((self.pool_of(name), self.ready(name)), ("pool-a", None))

    def test_pool_becomes_ready(self) -> None:
        """The message says soon after a start why a machine waits, when the pool is ready."""
        self.make_pool("pool-a")
        self.make_machine("vm", "")
        self.soon()
        self.assertIn("not ready: 1 of 1", self.ready("vm")[2])
        room = {"conditions": [READY], "capacity": {SMALL: 0}, "allocatable": {SMALL: 0}}
        self.answer("PATCH", f"{POOLS}/pool-a/status", {"status": room}, content_type=MERGE)
        self.soon()
        self.assertIn("no room", self.ready("vm")[2])

    def test_no_class(self) -> None:
        """A machine whose class does not exist reads so, with those that do, until the class is there."""
        self.answer("DELETE", f"{CLASSES}/small")
        self.make_class("large")
        self.make_machine("vm", "")
        self.soon()
        why = 'class "small" does not exist; there are: large'
        self.assertEqual(self.ready("vm"), ("False", "FailedScheduling", why))
        (event,) = self.answer("GET", "/api/v1/namespaces/default/events")["items"]
        self.assertEqual(event["message"], why)
        self.make_class("medium")
        self.soon()
        self.assertEqual(self.ready("vm")[2], f"{why}, medium")
        self.make_class("small")
        self.soon()
        self.assertEqual(
            self.ready("vm"), ("False", "FailedScheduling", "there are no machinepools")
        )

    def test_columns(self) -> None:
        """``kubectl get machines`` shows the reason."""
        self.make_machine("vm", "")
        self.soon()
        table = self.answer("GET", MACHINES, headers=TABLE)
        names = [each["name"] for each in table["columnDefinitions"]]
        (row,) = table["rows"]
        cells = dict(zip(names, row["cells"], strict=True))
        self.assertEqual((cells["Ready"], cells["Reason"]), ("False", "FailedScheduling"))

    def test_missing_pool(self) -> None:
        """A machine whose pool does not exist is not ready, unless the pool registers soon."""
        for name in ("vm", "other"):
            self.make_machine(name, f"pool-of-{name}")
        self.soon()
        self.assertEqual(len(self.events()), 2)
        self.assertEqual((self.ready("vm"), self.ready("other")), (None, None))
        self.make_ready("pool-of-other")
        self.clock.advance(MISSING_SECONDS)
        why = 'machine pool "pool-of-vm" does not exist'
        self.assertEqual(self.ready("vm"), ("False", "FailedScheduling", why))
        self.assertIsNone(self.ready("other"))
        self.assertEqual(len(self.events()), 2)

    def test_pool_deleted(self) -> None:
        """A machine whose pool is deleted is not ready, unless the pool registers again soon."""
        for name in ("vm", "other"):
            self.make_ready(f"pool-of-{name}")
            self.make_machine(name, f"pool-of-{name}")
        self.soon()
        self.assertEqual(self.events(), [])
        for name in ("vm", "other"):
            self.answer("DELETE", f"{POOLS}/pool-of-{name}")
        self.soon()
        self.assertEqual(self.events(), [])
        self.make_ready("pool-of-other")
        self.clock.advance(MISSING_SECONDS)
        why = 'machine pool "pool-of-vm" does not exist'
        self.assertEqual(self.ready("vm"), ("False", "FailedScheduling", why))
        self.assertEqual(self.events(), [("FailedScheduling", "vm")])
        self.assertIsNone(self.ready("other"))

    def test_many_of_a_missing_pool(self) -> None:
        """What is decided for all machines of a missing pool is in memory once."""
        for number in range(5):
            self.make_machine(f"vm-{number}", "pool-z")
        self.soon()
        beside = [self.storage, self.clock]
        self.assertEqual(len(instances(self.own_scheduler(), Placement, beside=beside)), 1)

    def test_poollet_has_reported(self) -> None:
        """The condition Ready of a poollet stays, also if its pool is deleted."""
        self.make_machine("vm", "pool-z")
        report = {"type": "Ready", "status": "True", "reason": "Running", "message": "well"}
        patch = {"status": {"conditions": [report]}}
        self.answer("PATCH", f"{MACHINES}/vm/status", patch, content_type=MERGE)
        self.soon()
        self.clock.advance(MISSING_SECONDS)
        self.assertEqual(self.events(), [("FailedScheduling", "vm")])
        self.assertEqual(self.ready("vm"), ("True", "Running", "well"))

    def test_many(self) -> None:
        """Machines created at once share the pools' room without exceeding it."""
        self.make_ready("pool-a", 3)
        self.make_ready("pool-b", 2)
        for number in range(7):
            self.make_machine(f"vm-{number}", "")
        self.soon()
        found = Counter(self.pool_of(f"vm-{number}") for number in range(7))
        self.assertEqual(found, {"pool-a": 3, "pool-b": 2, "": 2})
        reasons = Counter(reason for reason, _ in self.events())
        self.assertEqual(reasons, {"Scheduled": 5, "OutOfCapacity": 2})

    def test_freed(self) -> None:
        """Freed room is used once the pool reports it."""
        self.make_ready("pool-a", 1)
        self.make_machine("vm-1", "")
        self.soon()
        self.make_machine("vm-2", "")
        self.soon()
        self.assertEqual(self.pool_of("vm-2"), "")
        self.answer("DELETE", f"{MACHINES}/vm-1")
        self.soon()
        self.assertEqual(self.pool_of("vm-2"), "pool-a")

    def test_changed_pool(self) -> None:
        """Taints and labels of pools count from when they change."""
        self.make_ready("pool-a")
        taint = {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}}
        self.answer("PATCH", f"{POOLS}/pool-a", taint, content_type=MERGE)
        self.make_machine("vm", "")
        self.soon()
        self.assertEqual(self.pool_of("vm"), "")
        self.answer("PATCH", f"{POOLS}/pool-a", {"spec": {"taints": []}}, content_type=MERGE)
        self.soon()
        self.assertEqual(self.pool_of("vm"), "pool-a")

    def test_told_now_and_then(self) -> None:
        """A changing reason is reported at most twice a minute."""
        self.make_machine("vm", "")
        self.soon()
        for name in ("pool-a", "pool-b", "pool-c"):
            self.make_pool(name)
            self.soon()
        self.assertEqual(len(self.events()), 2)
        self.assertIn("1 of 1", self.ready("vm")[2])
        self.clock.advance(EVENT_SECONDS)
        self.assertEqual(len(self.events()), 3)
        told = self.answer("GET", "/api/v1/namespaces/default/events")["items"]
        self.assertIn("not ready: 3", " ".join(each["message"] for each in told))
        self.clock.advance(EVENT_SECONDS)
        self.assertEqual(len(self.events()), 3)

    def test_heartbeats(self) -> None:
        """Heartbeats of pools trigger no placement."""
        self.make_ready("pool-a", 0)
        self.make_machine("vm", "")
        self.soon()
        self.soon()  # the machine's new condition has started another run
        beat = {"status": {"conditions": [{**READY, "lastUpdateTime": "2026-01-01T00:00:00Z"}]}}
        self.answer("PATCH", f"{POOLS}/pool-a/status", beat, content_type=MERGE)
        before = self.clock.getDelayedCalls()
        self.assertFalse([c for c in before if c.getTime() <= self.clock.seconds() + SOON_SECONDS])

    def test_going(self) -> None:
        """A machine that is being deleted needs no pool."""
        body = {"metadata": {"finalizers": ["a/b"]}}
        self.make_machine("vm", "")
        self.answer("PATCH", f"{MACHINES}/vm", body, content_type=MERGE)
        self.answer("DELETE", f"{MACHINES}/vm")
        self.make_ready("pool-a")
        self.soon()
        self.assertEqual(self.pool_of("vm"), "")

    def test_alike(self) -> None:
        """Of machines that are alike one that has no place is enough to know of the others."""
        asked = []

        plan = placement.plan

        def counting(dialect: Any, machine: Object, *rest: Any) -> Placement:
            asked.append(machine["metadata"]["name"])
            return plan(dialect, machine, *rest)

        self.patch(scheduler, "plan", counting)
        self.make_ready("pool-a", 1)
        for number in range(10):
            self.make_machine(f"vm-{number}", "")
        self.soon()
        self.assertEqual([name for name in asked if self.pool_of(name)], ["vm-0"])
        self.assertEqual(len(asked), 2)
        self.make_machine("other", "", machinePoolSelector={"a": "b"})
        self.soon()
        self.assertEqual(sorted(asked[2:]), ["other", "vm-1"])
        self.assertEqual(Counter(self.events())["FailedScheduling", "other"], 1)

    def test_short_turns(self) -> None:
        """Many machines that wait, each with its own requirements, are looked at in short turns."""
        looked_at: list[str] = []

        def slow(_: Any, machine: Object, *rest: Any) -> Placement:
            self.clock.rightNow += 0.0015
            looked_at.append(machine["metadata"]["name"])
            return Placement("", "FailedScheduling", "nowhere")

        self.patch(scheduler, "plan", slow)
        names = [f"vm-{number:02}" for number in range(20)]
        for name in names:
            self.make_machine(name, "", machinePoolSelector={"name": name})
        turns = []
        self.clock.advance(SOON_SECONDS - REST_SECONDS)
        while len(looked_at) < len(names):
            before = len(looked_at)
            self.clock.advance(REST_SECONDS)
            turns.append(len(looked_at) - before)
        self.assertEqual(turns, [2] * 10)
        self.assertEqual(sorted(looked_at), names)

    def test_others_settled(self) -> None:
        """A new machine costs no look at those whose pool does not exist, nor at those that wait already."""
        for number in range(10):
            self.make_machine(f"stray-{number}", "pool-z")
            self.make_machine(f"waiting-{number}", "")
        self.soon()
        self.clock.advance(MISSING_SECONDS)
        self.soon()
        looked_at = []

        with_decision = placement.with_decision

        def counting(dialect: Any, machine: Object, *rest: Any) -> Any:
            looked_at.append(machine["metadata"]["name"])
            return with_decision(dialect, machine, *rest)

        self.patch(scheduler, "with_decision", counting)
        self.make_machine("stray", "pool-z")
        self.make_machine("waiting", "")
        self.soon()
        self.clock.advance(MISSING_SECONDS)
        self.soon()
        self.assertEqual(set(looked_at), {"stray", "waiting"})

    def test_told_before(self) -> None:
        """After a restart, Events are not repeated for machines whose conditions say why they wait."""
        self.make_machine("stray", "pool-z")
        self.make_machine("waiting", "")
        self.soon()
        self.clock.advance(MISSING_SECONDS)
        verbs = Verbs(self.storage, [], self.clock.seconds)
        again = Scheduler(IRONCORE, self.storage, verbs, self.clock, self.clock.seconds)
        self.own_scheduler().stopService()
        again.startService()
        self.addCleanup(again.stopService)
        self.soon()
        self.clock.advance(MISSING_SECONDS)
        events = self.answer("GET", "/api/v1/namespaces/default/events")["items"]
        self.assertEqual([each["count"] for each in events], [1, 1])

    def own_scheduler(self) -> Scheduler:
        """The server's own scheduler."""
        return next(each for each in self.parts.leading.services if isinstance(each, Scheduler))

    def test_two_servers(self) -> None:
        """A second scheduler over the same store binds nothing twice, and nothing fails."""
        verbs = Verbs(self.storage, [], self.clock.seconds)
        other = Scheduler(IRONCORE, self.storage, verbs, self.clock, self.clock.seconds)
        other.startService()
        self.addCleanup(other.stopService)
        self.make_ready("pool-a")
        self.make_ready("pool-b")
        for number in range(10):
            self.make_machine(f"vm-{number}", "")
        self.soon()
        self.soon()
        found = Counter(self.pool_of(f"vm-{number}") for number in range(10))
        self.assertEqual(found, {"pool-a": 5, "pool-b": 5})
        self.assertEqual(Counter(reason for reason, _ in self.events()), {"Scheduled": 10})

    def test_restart(self) -> None:
        """Machines of an earlier process are placed."""
        scheduler = self.own_scheduler()
        scheduler.stopService()
        self.make_ready("pool-a", 1)
        self.make_machine("vm-1", "pool-a")
        self.make_machine("vm-2", "")
        scheduler.startService()
        self.soon()
        self.assertEqual(self.pool_of("vm-2"), "")
        self.answer("DELETE", f"{MACHINES}/vm-1")
        self.soon()
        self.assertEqual(self.pool_of("vm-2"), "pool-a")


class FullStorage(MemoryStorage):
    """A store in which some namespaces have no room for the status of a machine, nor for Events."""

    full: frozenset[str] = frozenset()

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self._refusal(obj) or super().update(resource, obj)

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        is_event = resource == EVENTS.resource
        return (self._refusal(obj) if is_event else None) or super().create(resource, obj)

    def _refusal(self, obj: Object) -> Deferred[Object] | None:
        if obj["metadata"]["namespace"] not in self.full:
            return None
        self.refused += 1
        name = obj["metadata"]["name"]
        return fail(Forbidden(f'machines "{name}" is forbidden: exceeded quota'))


class FullNamespacesTests(SynchronousTestCase):
    """Machines in namespaces whose objects cannot be written."""

    def setUp(self) -> None:
        self.clock, self.storage = Clock(), FullStorage()
        verbs = Verbs(self.storage, [], self.clock.seconds)
        self.scheduler = Scheduler(IRONCORE, self.storage, verbs, self.clock, self.clock.seconds)
        for name in ("a", "b", "c"):
            body = {"metadata": {"name": name, "uid": f"uid-of-{name}"}}
            self.successResultOf(self.storage.create(NAMESPACES.resource, body))

    def make(self, namespace: str, pool: str = "", count: int = 100) -> None:
        for number in range(count):
            spec = {"machineClassRef": {"name": "small"}}
            machine = {
                "apiVersion": IRONCORE.workload.api_version,
                "kind": "Machine",
                "metadata": {
                    "name": f"vm-{number}",
                    "namespace": namespace,
                    "uid": f"{namespace}-{number}",
                },
                "spec": {**spec, **({"machinePoolRef": {"name": pool}} if pool else {})},
            }
            self.successResultOf(self.storage.create(IRONCORE.workload, machine))

    def make_pool(self) -> None:
        pool = {"metadata": {"name": "pool-a", "uid": "p"}, "status": {"state": "Ready"}}
        pool["status"] |= {"allocatable": {SMALL: 1000}}
        self.successResultOf(self.storage.create(IRONCORE.pool, pool))

    def start(self) -> None:
        self.scheduler.startService()
        self.addCleanup(self.scheduler.stopService)
        self.clock.advance(SOON_SECONDS)

    def machines(self, namespace: str) -> list[Object]:
        return list(self.successResultOf(self.storage.list(IRONCORE.workload, namespace)).items)

    def waiting(self, namespace: str) -> int:
        """Return how many machines show why they wait."""
        shown = [each.get("status", {}).get("conditions") for each in self.machines(namespace)]
        return len([each for each in shown if each])

    def test_missing_pool(self) -> None:
        """
        One line of the log for each namespace and cause, and few attempts; all machines have their
        condition when there is room.
        """
        for namespace in "abc":
            self.make(namespace, "pool-z")
        self.storage.full = frozenset("ab")
        with capturedLogs() as logged:
            self.start()
            self.clock.pump([1.0] * 600)
        texts = sorted(formatEvent(each).partition(": ")[0] for each in logged)
        self.assertEqual(len(texts), 4, texts)
        self.assertEqual(set(texts), {"namespace a", "namespace b"})
        self.assertLess(self.storage.refused, 2 * 2 * (AT_ONCE + 30))
        self.assertEqual([self.waiting(each) for each in "abc"], [0, 0, 100])
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.storage.full = frozenset("b")
        self.clock.pump([1.0] * 61)
        self.assertEqual([self.waiting(each) for each in "abc"], [100, 0, 100])

    def test_binding(self) -> None:
        """Machines that cannot be bound hold up none in other namespaces, and are bound later."""
        self.make_pool()
        self.make("a")
        self.make("b")
        self.storage.full = frozenset("a")
        self.start()
        self.clock.pump([0.1] * 5)
        bound = [each["spec"].get("machinePoolRef") for each in self.machines("b")]
        self.assertEqual(bound, [{"name": "pool-a"}] * 100)
        self.assertEqual(self.storage.refused, 1)
        self.storage.full = frozenset()
        self.clock.pump([0.1] * 20)
        bound = [each["spec"].get("machinePoolRef") for each in self.machines("a")]
        self.assertEqual(bound, [{"name": "pool-a"}] * 100)

    def test_broken_plan(self) -> None:
        """A machine whose plan raises has an Event, is tried again, and holds up no other."""
        plan, broken = placement.plan, [True]

        def breaking(dialect: Any, machine: Object, *rest: Any) -> Placement:
            if broken and machine["metadata"]["name"] == "vm-1":
                raise ZeroDivisionError
            return plan(dialect, machine, *rest)

        self.patch(scheduler, "plan", breaking)
        self.make_pool()
        self.make("a", count=3)
        self.start()
        self.clock.pump([1.0] * 120)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        bound = [each["spec"].get("machinePoolRef") for each in self.machines("a")]
        self.assertEqual(bound, [{"name": "pool-a"}, None, {"name": "pool-a"}])
        events = self.successResultOf(self.storage.list(EVENTS.resource)).items
        (event,) = [each for each in events if each["involvedObject"]["name"] == "vm-1"]
        self.assertEqual((event["reason"], event["count"]), ("FailedScheduling", 1))
        broken.clear()
        self.clock.pump([1.0] * 61)
        bound = [each["spec"].get("machinePoolRef") for each in self.machines("a")]
        self.assertEqual(bound, [{"name": "pool-a"}] * 3)


class SlowClock(Clock):
    """Each look at the clock takes three milliseconds."""

    def seconds(self) -> float:
        self.rightNow += 0.003
        return super().seconds()


class StopTests(APITestCase):
    """A scheduler that stops while it works."""

    def test_rest(self) -> None:
        """It leaves no call for later, and places no further machine."""
        clock, storage = SlowClock(), BrokenStorage()
        scheduler = Scheduler(
            IRONCORE, storage, Verbs(storage, [], clock.seconds), clock, clock.seconds
        )
        for number in range(3):
            machine = {
                "apiVersion": IRONCORE.workload.api_version,
                "kind": "Machine",
                "metadata": {"name": f"vm-{number}", "namespace": "default", "uid": f"{number}"},
                "spec": {"machineClassRef": {"name": "small"}},
            }
            self.successResultOf(storage.create(IRONCORE.workload, machine))
        scheduler.startService()
        clock.advance(SOON_SECONDS)
        self.assertEqual(len(clock.getDelayedCalls()), 1)
        scheduler.stopService()
        self.assertEqual(clock.getDelayedCalls(), [])


class NotWritableTests(APITestCase):
    """A store that cannot write."""

    def test_back_off(self) -> None:
        """It is tried again, ever less often, until it can be written; one line each time."""
        clock, storage = Clock(), BrokenStorage()
        verbs = Verbs(storage, [], clock.seconds)
        rng = WithoutJitter()
        scheduler = Scheduler(IRONCORE, storage, verbs, clock, clock.seconds, rng=rng)
        pool = {"metadata": {"name": "pool-a", "uid": "p"}, "status": {"state": "Ready"}}
        pool["status"] |= {"allocatable": {SMALL: 1}}
        machine = {
            "apiVersion": IRONCORE.workload.api_version,
            "kind": "Machine",
            "metadata": {"name": "vm", "namespace": "default", "uid": "m"},
            "spec": {"machineClassRef": {"name": "small"}},
        }
        self.successResultOf(storage.create(IRONCORE.pool, pool))
        self.successResultOf(storage.create(IRONCORE.workload, machine))
        storage.broken = True
        scheduler.startService()
        self.addCleanup(scheduler.stopService)
        clock.advance(SOON_SECONDS)
        waits = []
        for _ in range(8):
            (call,) = clock.getDelayedCalls()
            waits.append(round(call.getTime() - clock.seconds()))
            clock.advance(call.getTime() - clock.seconds())
        self.assertEqual(waits, [1, 2, 4, 8, 16, 32, 60, 60])
        storage.broken = False
        clock.advance(60)
        got = self.successResultOf(storage.get(IRONCORE.workload, "default", "vm"))
        self.assertEqual(got["spec"]["machinePoolRef"], {"name": "pool-a"})
