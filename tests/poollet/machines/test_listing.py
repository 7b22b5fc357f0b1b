"""
What becomes of Machines when their runtime dies, hangs or lies.

Numbers are those of the faults that were found in ironcore's poollet.
"""

from __future__ import annotations

import copy
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from tests.poollet.doubles import CONFIG, MACHINES, MemoryRuntime, machine
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.informers import Reflector
from twisted_exec.poollet.machines import listing
from twisted_exec.poollet.machines.config import machine_uid
from twisted_exec.poollet.machines.listing import MAX_ORPHANS
from twisted_exec.poollet.machines.loop import AWAY_SECONDS, RELIST_SECONDS, Loop
from twisted_exec.program.turns import REST_SECONDS
from twisted_exec.testing.cluster import MemoryCluster
from twisted_exec.testing.lying import LyingRuntime, crowd, in_state, nothing, twice


class LiesTests(SynchronousTestCase):
    """A pool of Machines on an unreliable runtime."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cluster = MemoryCluster()
        self.client = self.cluster.client()
        self.truth = MemoryRuntime()
        self.runtime = LyingRuntime(self.truth)
        self.reports: list[tuple[str, ...]] = []
        self.reflector = Reflector(
            self.client,
            MACHINES,
            self.clock,
            field_selector="spec.machinePoolRef.name=pool-a",
            on_change=lambda before, after: self.loop.changed(before, after),
        )
        self.loop = Loop(
            self.client,
            self.runtime,
            self.clock,
            machines=lambda: self.reflector,
            synced=lambda: self.reflector.synced,
            now=self.clock.seconds,
            report=lambda about, *arguments: self.reports.append(
                (about["metadata"]["name"], *arguments)
            ),
        )
        self.reflector.start()
        self.loop.start(CONFIG)
        self.addCleanup(self.loop.stop)
        self.addCleanup(self.reflector.stop)

    def create(self, name: str = "vm", **spec: Any) -> Any:
        return self.successResultOf(self.client.create(MACHINES, machine(name, **spec), "lab"))

    def status(self, name: str = "vm") -> Any:
        return self.cluster.objects[MACHINES, "lab", name]["status"]

    def ready(self, name: str = "vm") -> tuple[str, str]:
        (condition,) = (one for one in self.status(name)["conditions"] if one["type"] == "Ready")
        return condition["status"], condition["reason"]

    def turn(self, seconds: float, step: float = 0.25) -> None:
        for _ in range(int(seconds / step)):
            self.clock.advance(step)

    def test_dies(self) -> None:
        """Machines are not Ready while their runtime is dead, and again when it is back."""
        for name in ("a", "b"):
            self.create(name)
        self.runtime.dead = True
        self.turn(RELIST_SECONDS + 1)
        self.assertEqual(self.ready("a"), ("True", "Running"))  # a restart is no news
        self.turn(AWAY_SECONDS + RELIST_SECONDS)
        for name in ("a", "b"):
            self.assertEqual(self.ready(name), ("Unknown", "RuntimeUnreachable"))
        request_count = len(self.cluster.requests)
        self.turn(60)
        self.assertEqual(len(self.cluster.requests), request_count)
        self.runtime.dead = False
        self.turn(RELIST_SECONDS)
        for name in ("a", "b"):
            self.assertEqual(self.ready(name), ("True", "Running"))

    def test_hangs(self) -> None:
        """A hanging runtime gets few requests, and its Machines say so."""
        for number in range(40):
            self.create(f"vm-{number}")
        self.runtime.silent = {"*"}
        self.turn(RELIST_SECONDS)
        for _ in range(4):  # a client gives every call up after a while
            hanging, self.runtime.hanging = self.runtime.hanging, []
            self.assertLess(len(hanging), 20)
            for each in hanging:
                each.errback(ServiceUnavailable("the machine runtime does not answer"))
            self.turn(10)
        self.assertEqual(self.ready("vm-39"), ("Unknown", "RuntimeUnreachable"))
        self.runtime.silent = set()
        for each in self.runtime.hanging:
            each.errback(ServiceUnavailable("late"))
        self.turn(2 * RELIST_SECONDS)
        self.assertEqual(self.ready("vm-39"), ("True", "Running"))

    def test_one_hangs(self) -> None:
        """A machine that cannot be created delays no other."""
        real, held = self.truth.create_machine, Deferred[Any]()

        def create(request: Any) -> Deferred[Any]:
            name = request.machine.metadata.labels["machinepoollet.ironcore.dev/machine-name"]
            return held if name == "bad" else real(request)

        self.patch(self.truth, "create_machine", create)
        self.create("bad")
        self.create("good")
        self.assertEqual(self.ready("good"), ("True", "Running"))
        held.errback(ServiceUnavailable("late"))

    def test_37_twice(self) -> None:
        """A machine listed twice counts once; two machines for one Machine are reported and left alone."""
        self.runtime.lies["list_machines"] = twice
        machine = self.create()
        self.turn(2 * RELIST_SECONDS)
        self.assertEqual(self.ready(), ("True", "Running"))
        self.truth.add(machine_uid=machine["metadata"]["uid"])
        self.turn(2 * RELIST_SECONDS)
        self.assertEqual(self.ready(), ("False", "SeveralRuntimeMachines"))
        self.assertEqual(
            [entry[2] for entry in self.reports], ["Created", "SeveralRuntimeMachines"]
        )
        self.assertEqual(len(self.truth.machines), 2)

    def test_37_no_busy_loop(self) -> None:
        """A machine that never settles costs a few calls a minute, not thousands."""
        self.truth.starts_pending = True
        self.create()
        before = len(self.truth.calls) + self.truth.listings
        self.turn(60, step=0.01)
        self.assertLess(len(self.truth.calls) + self.truth.listings - before, 60)

    def test_37_stopped_is_shutdown(self) -> None:
        """Stopped and suspended machines are both Shutdown."""
        self.create(power="Off")
        for state in (pb.MACHINE_STOPPED, pb.MACHINE_SUSPENDED):
            self.runtime.lies["list_machines"] = in_state(state)
            self.turn(2 * RELIST_SECONDS)
            self.assertEqual(self.status()["state"], "Shutdown")

    def test_40_off_from_the_start(self) -> None:
        """A Machine with power Off is created off, never on for a moment."""
        self.create(power="Off")
        self.assertEqual(self.truth.calls, ["create_machine"])
        (machine,) = self.truth.machines.values()
        self.assertEqual(
            (machine.spec.power, machine.status.state), (pb.POWER_OFF, pb.MACHINE_STOPPED)
        )

    def test_states_out_of_order(self) -> None:
        """The last state counts, in whatever order they arrive; an unknown one is reported."""
        self.create()
        self.runtime.lies["list_machines"] = in_state(
            pb.MACHINE_TERMINATED, pb.MACHINE_RUNNING, pb.MACHINE_PENDING, 99, pb.MACHINE_RUNNING
        )
        self.turn(60)
        self.assertEqual((self.status()["state"], self.ready()), ("Running", ("True", "Running")))
        self.assertEqual(self.truth.calls.count("create_machine"), 1)

    def test_forgets(self) -> None:
        """A runtime that forgets its machines does not get thousands of them."""
        self.runtime.lies["list_machines"] = nothing
        self.create()
        self.turn(60)
        self.assertLess(self.truth.calls.count("create_machine"), 8)
        del self.runtime.lies["list_machines"]
        self.turn(40)
        self.assertEqual(self.ready(), ("False", "SeveralRuntimeMachines"))

    def test_nameless(self) -> None:
        """A machine without an id is ignored."""
        self.runtime.lies["create_machine"] = lambda answer: pb.CreateMachineResponse()
        self.runtime.lies["list_machines"] = nothing
        self.create()
        self.turn(60)
        self.assertEqual(self.ready(), ("False", "CreateFailed"))
        self.assertLess(self.truth.calls.count("create_machine"), 12)

    def test_crowd(self) -> None:
        """A crowd of unknown machines is left alone, costs linear time, and delays no other machine."""

        def relist(size: int) -> None:
            self.runtime.lies["list_machines"] = crowd(size, **{CONFIG.dialect.uid_label: "x"})
            self.turn(RELIST_SECONDS)

        assert_linear(relist, 5000)
        self.create()
        self.assertEqual(self.ready(), ("True", "Running"))
        self.assertNotIn("delete_machine", self.truth.calls)

    def test_short_turns(self) -> None:
        """A long list is read in short turns."""
        seen: list[str] = []

        def slow(machine: pb.Machine, dialect: Dialect) -> str:
            self.clock.rightNow += 0.0015
            seen.append(machine.metadata.id)
            return machine_uid(machine, dialect)

        self.turn(RELIST_SECONDS)
        self.patch(listing, "machine_uid", slow)
        self.runtime.lies["list_machines"] = crowd(20, **{CONFIG.dialect.uid_label: "x"})
        while not seen:
            self.clock.advance(0.25)
        turns = [len(seen)]
        while len(seen) < 20:
            before = len(seen)
            self.clock.advance(REST_SECONDS)
            turns.append(len(seen) - before)
        self.assertEqual(turns, [2] * 10)

    def test_crowd_of_ours(self) -> None:
        """100 000 orphans of this pool are not all deleted at once."""
        labels = {CONFIG.dialect.uid_label: "x", CONFIG.pool_label: CONFIG.pool}
        self.runtime.lies["list_machines"] = crowd(1000, **labels)
        self.create()
        self.turn(RELIST_SECONDS)
        self.assertLessEqual(self.truth.calls.count("delete_machine"), 2 * MAX_ORPHANS)
        self.assertEqual(self.ready(), ("True", "Running"))

    def test_more_than_asked(self) -> None:
        """If a runtime ignores filters, a Machine gets no foreign machine."""
        every = self.truth.list_machines

        def listed(request: Any) -> Deferred[Any]:
            return every(pb.ListMachinesRequest())

        self.patch(self.truth, "list_machines", listed)
        for name in ("a", "b", "c"):
            self.create(name)
        self.turn(2 * RELIST_SECONDS)
        self.assertEqual(len(self.truth.machines), 3)
        self.assertEqual({self.ready(name) for name in "abc"}, {("True", "Running")})

    def test_conditions(self) -> None:
        """The runtime's own conditions are copied, up to a limit, and removed again."""
        self.create()
        (machine,) = self.truth.machines.values()
        for number in range(100):
            machine.status.machine_conditions.add(
                type=f"T{number}", status="True", message="x" * 5000
            )
        machine.status.machine_conditions.add(type="not a type", status="True")
        machine.status.machine_conditions[0].reason = "\x1b]0;x\x07Off"
        machine.status.machine_conditions[0].message = "one\n\x1b[31mtwo\x9b"
        self.turn(RELIST_SECONDS)
        conditions = self.status()["conditions"]
        self.assertEqual(len(conditions), 17)
        self.assertEqual(max(len(condition["message"]) for condition in conditions), 1024)
        (words,) = (
            (condition["reason"], condition["message"])
            for condition in conditions
            if condition["type"] == "T0"
        )
        self.assertEqual(words, ("]0;x Off", "one [31mtwo"))  # nothing for a terminal to do
        del machine.status.machine_conditions[:]
        self.turn(RELIST_SECONDS)
        self.assertEqual(
            [condition["type"] for condition in self.status()["conditions"]], ["Ready"]
        )

    def test_forgetful_api_server(self) -> None:
        """A status that the API server stores differently is not written for ever."""
        patch = self.client.patch

        def kept(resource: Any, name: str, body: Any, *rest: Any, **more: Any) -> Deferred[Any]:
            body = copy.deepcopy(body)
            for condition in body.get("status", {}).get("conditions", ()):
                condition.pop("observedGeneration", None)
            return patch(resource, name, body, *rest, **more)

        self.patch(self.client, "patch", kept)
        self.create()
        request_count = len(self.cluster.requests)
        self.turn(10 * RELIST_SECONDS)
        self.assertEqual(len(self.cluster.requests), request_count)
        self.assertEqual(self.ready(), ("True", "Running"))
