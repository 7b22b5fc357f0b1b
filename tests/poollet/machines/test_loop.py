"""Tests for :mod:`twisted_exec.poollet.machines.loop`: a cluster and a runtime, both in memory."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.poollet.doubles import CONFIG, MACHINES, MemoryRuntime, machine
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.status import Conflict, Forbidden, ServiceUnavailable
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.informers import Reflector
from twisted_exec.poollet.machines.loop import FAILED, RELIST_SECONDS, SOON_SECONDS, Loop
from twisted_exec.poollet.machines.references import Unread
from twisted_exec.testing.cluster import MemoryCluster, unreachable


class LoopTests(SynchronousTestCase):
    """Tests for :class:`Loop`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cluster = MemoryCluster()
        self.client = self.cluster.client()
        self.runtime = MemoryRuntime()
        self.reports: list[tuple[str, ...]] = []
        self.classes_known = True
        self.reflector, self.loop = self.make()

    def make(self) -> tuple[Reflector, Loop]:
        reflector = Reflector(
            self.client,
            MACHINES,
            self.clock,
            field_selector="spec.machinePoolRef.name=pool-a",
            on_change=lambda before, after: loop.changed(before, after),
        )
        loop = Loop(
            self.client,
            self.runtime,
            self.clock,
            machines=lambda: reflector,
            synced=lambda: reflector.synced,
            now=self.clock.seconds,
            report=lambda about, *arguments: self.reports.append(
                (about["metadata"]["name"], *arguments)
            ),
            class_of=self.class_of,
        )
        return reflector, loop

    def class_of(self, name: str) -> tuple[str, str]:
        if not self.classes_known:
            raise Unread("machine classes are being read", soon=True)
        return name, ""

    def start(self) -> None:
        self.reflector.start()
        self.loop.start(CONFIG)

    def create(self, name: str = "vm", **more: Any) -> Any:
        return self.successResultOf(self.client.create(MACHINES, machine(name, **more), "lab"))

    def get(self, name: str = "vm") -> Any:
        return self.successResultOf(self.client.get(MACHINES, name, "lab"))

    def exists(self, name: str = "vm") -> bool:
        return (MACHINES, "lab", name) in self.cluster.objects

    def patch_spec(self, **spec: Any) -> None:
        self.patch_spec_of("vm", **spec)

    def patch_spec_of(self, name: str, **spec: Any) -> None:
        self.successResultOf(self.client.patch(MACHINES, name, {"spec": spec}, "lab"))

    def delete(self, name: str = "vm") -> None:
        self.successResultOf(self.client.delete(MACHINES, name, "lab"))

    def turn(self, seconds: float, step: float = 0.25) -> None:
        for _ in range(int(seconds / step)):
            self.clock.advance(step)

    def condition(self) -> Any:
        return self.get()["status"]["conditions"][0]

    def test_create(self) -> None:
        """A new Machine is running without waiting for a listing."""
        self.start()
        created = self.create()
        (machine,) = self.runtime.machines.values()
        self.assertEqual(getattr(machine.spec, "class"), "pty")
        status = self.get()["status"]
        self.assertEqual(status["state"], "Running")
        self.assertEqual(status["machineID"], f"memory://{machine.metadata.id}")
        self.assertEqual(self.loop.machine_of(created["metadata"]["uid"]), [machine])

    def test_quiet(self) -> None:
        """Machines in their desired state cost one listing per period and no other call."""
        self.start()
        self.create("a")
        self.create("b")
        before, request_count = self.runtime.listings, len(self.cluster.requests)
        self.turn(10 * RELIST_SECONDS)
        self.assertEqual(self.runtime.listings - before, 10)
        self.assertEqual(len(self.cluster.requests), request_count)

    def test_classes_late(self) -> None:
        """Machines that waited for classes are planned once these are known, not at the next listing."""
        self.start()
        self.create("a")
        self.create("b")
        self.successResultOf(self.loop.stop())
        self.runtime.machines.clear()
        self.classes_known = False
        self.reflector, self.loop = self.make()
        self.start()
        self.turn(0.5)
        self.assertEqual(self.runtime.machines, {})
        self.classes_known = True
        self.loop.look_at_all()
        self.loop.look_at_all()
        self.clock.advance(SOON_SECONDS)
        self.assertEqual(len(self.runtime.machines), 2)

    def test_told_and_stopped(self) -> None:
        """A loop that stops just after look_at_all does not look."""
        self.start()
        self.loop.look_at_all()
        self.successResultOf(self.loop.stop())
        self.successResultOf(self.reflector.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_other_pools(self) -> None:
        """Machines of other pools are ignored."""
        self.start()
        self.create(pool="pool-b")
        self.turn(20)
        self.assertEqual(self.runtime.machines, {})

    def test_power(self) -> None:
        """Power follows the Machine, both ways."""
        self.start()
        self.create()
        self.patch_spec(power="Off")
        self.assertEqual(self.get()["status"]["state"], "Shutdown")
        self.patch_spec(power="On")
        self.assertEqual(self.get()["status"]["state"], "Running")
        self.assertEqual(self.get()["status"]["observedGeneration"], 3)

    def test_created_off(self) -> None:
        """A Machine that is created Off is never powered on."""
        self.start()
        self.create(power="Off")
        self.assertNotIn("update_machine_power", self.runtime.calls)
        self.assertEqual(self.get()["status"]["state"], "Shutdown")

    def test_state_changes_by_itself(self) -> None:
        """A change in the runtime shows in the API after the next listing."""
        self.start()
        self.create()
        (machine,) = self.runtime.machines.values()
        machine.status.state = pb.MACHINE_TERMINATED
        self.clock.advance(RELIST_SECONDS)
        self.assertEqual(self.get()["status"]["state"], "Terminated")

    def test_pending(self) -> None:
        """A machine that takes time is looked at more often than listings run."""
        self.runtime.starts_pending = True
        self.start()
        self.create()
        self.assertNotIn("status", self.get())  # which is Pending: there will be more to tell
        self.turn(1)
        self.assertEqual(self.get()["status"]["state"], "Pending")
        self.assertEqual(self.condition()["reason"], "Pending")
        self.runtime.settle()
        self.turn(2)
        self.assertEqual(self.get()["status"]["state"], "Running")
        self.assertEqual(self.runtime.calls.count("create_machine"), 1)

    def test_delete(self) -> None:
        """A deleted Machine takes the runtime's machine with it, then goes."""
        self.start()
        self.create()
        self.delete()
        self.assertEqual(self.runtime.machines, {})
        self.assertFalse(self.exists())
        self.turn(30)
        self.assertEqual(self.runtime.calls.count("create_machine"), 1)

    def test_deleted_while_created(self) -> None:
        """A Machine that is deleted while its machine is created goes at once, without a warning."""
        create = self.runtime.create_machine

        def create_and_delete(request: Any) -> Deferred[Any]:
            created = create(request)
            self.delete()
            return created

        self.runtime.create_machine = create_and_delete  # type: ignore[method-assign]
        self.start()
        with capturedLogs() as logged:
            self.create()
        self.assertEqual(self.runtime.machines, {})
        self.assertFalse(self.exists())
        self.assertEqual([each for each in logged if each["log_level"] is LogLevel.warn], [])

    def test_delete_slowly(self) -> None:
        """The Machine stays, Terminating, until the runtime has ended its machine."""
        self.runtime.ends_slowly = True
        self.start()
        self.create()
        self.delete()
        self.turn(3)
        self.assertEqual(self.get()["status"]["state"], "Terminating")
        self.assertLess(self.runtime.calls.count("delete_machine"), 8)
        self.runtime.settle()
        self.turn(10)
        self.assertFalse(self.exists())

    def test_adoption(self) -> None:
        """After a restart existing machines are adopted, not created again."""
        self.start()
        self.create("a")
        self.create("b")
        self.successResultOf(self.loop.stop())
        self.successResultOf(self.reflector.stop())
        self.delete("b")
        self.reflector, self.loop = self.make()
        self.start()
        self.turn(20)
        self.assertEqual(len(self.runtime.machines), 1)
        self.assertEqual(self.runtime.calls.count("create_machine"), 2)
        self.assertFalse(self.exists("b"))

    def test_lost_by_the_runtime(self) -> None:
        """A machine that the runtime lost is created again."""
        self.start()
        self.create()
        self.clock.advance(RELIST_SECONDS)
        self.runtime.machines.clear()
        self.clock.advance(RELIST_SECONDS)
        self.assertEqual(len(self.runtime.machines), 1)

    def test_two_machines(self) -> None:
        """Two machines for one Machine are reported and left alone."""
        self.start()
        uid = self.create()["metadata"]["uid"]
        self.runtime.add(machine_uid=uid)
        self.turn(20)
        self.assertEqual(len(self.runtime.machines), 2)
        self.assertEqual(self.condition()["reason"], "SeveralRuntimeMachines")

    def test_orphans(self) -> None:
        """Machines of this pool without a Machine are deleted; those of others stay."""
        orphan = self.runtime.add(machine_uid="gone", machine_pool="pool-a")
        self.runtime.add(machine_uid="theirs", machine_pool="pool-b")
        self.runtime.add(machine_uid="foreign")
        self.runtime.add()
        self.start()
        self.turn(6)
        self.assertEqual(len(self.runtime.machines), 3)
        self.assertNotIn(orphan.metadata.id, self.runtime.machines)

    def test_orphans_need_certainty(self) -> None:
        """While the API server is unreachable no machine counts as an orphan."""
        self.runtime.add(machine_uid="gone", machine_pool="pool-a")
        self.cluster.problem = unreachable()
        self.start()
        self.turn(60)
        self.assertEqual(len(self.runtime.machines), 1)

    def test_stale_copy(self) -> None:
        """Nor while the copy of the Machines is stale: the API server decides."""
        self.start()
        self.create()
        self.patch(self.loop, "machines", list)
        self.turn(20)
        self.assertEqual(len(self.runtime.machines), 1)

    def test_refused(self) -> None:
        """A refused machine is retried with growing pauses; users see why."""
        self.runtime.refusals["create_machine"] = Forbidden("no such class")
        self.start()
        self.create()
        self.turn(120)
        self.assertTrue(6 < self.runtime.calls.count("create_machine") < 16)
        self.assertEqual(
            (self.condition()["reason"], self.condition()["message"]),
            ("CreateFailed", "no such class"),
        )
        del self.runtime.refusals["create_machine"]
        self.turn(31)
        self.assertEqual(self.get()["status"]["state"], "Running")
        self.assertEqual(self.condition()["message"], "")

    def test_a_new_wish_ends_the_pause(self) -> None:
        """A change of the Machine ends a back-off at once."""
        self.runtime.refusals["create_machine"] = Forbidden("no such class")
        self.start()
        self.create()
        self.turn(120)
        del self.runtime.refusals["create_machine"]
        self.delete()
        self.clock.advance(0)
        self.assertFalse(self.exists())

    def test_one_does_not_hold_up_others(self) -> None:
        """A Machine in trouble does not delay another."""
        self.runtime.refusals["create_machine"] = Forbidden("no such class")
        self.start()
        self.create("bad")
        self.turn(60)
        del self.runtime.refusals["create_machine"]
        self.create("good")
        self.assertEqual(self.get("good")["status"]["state"], "Running")

    def test_no_machine_stops_the_sweep(self) -> None:
        """A Machine whose plan raises does not keep the others from being created."""
        self.create("bad")
        bad = self.cluster.objects[MACHINES, "lab", "bad"]
        bad["metadata"]["finalizers"] = [IRONCORE.finalizer]  # of an earlier run
        bad["spec"]["volumes"] = [{}]  # nameless: no API server of ours lets it pass
        self.create("good")
        self.start()  # both were there before the runtime was known
        self.assertEqual(self.get("good")["status"]["state"], "Running")
        self.turn(RELIST_SECONDS)
        self.assertEqual(self.loop.problem, "")
        self.assertGreater(len(self.flushLoggedErrors(KeyError)), 0)

    def test_runtime_away(self) -> None:
        """An unreachable runtime gets few requests; when it is back all work goes on."""
        self.runtime.problem = ServiceUnavailable("the machine runtime cannot be reached")
        self.start()
        self.create()
        self.turn(60)
        self.assertIn("cannot be reached", self.loop.problem)
        self.assertLess(self.runtime.listings, 40)
        self.assertEqual(
            (self.condition()["status"], self.condition()["reason"]),
            ("Unknown", "RuntimeUnreachable"),
        )
        self.runtime.problem = None
        self.turn(31)
        self.assertEqual((self.loop.problem, self.get()["status"]["state"]), ("", "Running"))

    def test_conflict(self) -> None:
        """A finalizer that changed meanwhile is not overwritten."""
        refused = [Conflict("modified")]
        real = self.client.patch

        def patch(*args: Any, **more: Any) -> Deferred[Any]:
            if refused:
                self.cluster.problem = refused.pop()
            try:
                return real(*args, **more)
            finally:
                self.cluster.problem = None

        self.patch(self.client, "patch", patch)
        self.start()
        self.create()
        self.assertEqual(self.runtime.machines, {})
        self.turn(2)
        self.assertEqual(self.get()["status"]["state"], "Running")
        self.assertEqual(self.condition()["message"], "")

    def test_changes_after_the_stop(self) -> None:
        """Changes from reflectors after the stop wake no worker."""
        self.start()
        self.create("a")
        self.successResultOf(self.loop.stop())
        self.create("b")
        self.patch_spec_of("a", power="Off")
        self.turn(2 * RELIST_SECONDS)
        self.assertEqual(len(self.runtime.machines), 1)
        self.successResultOf(self.reflector.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop(self) -> None:
        """Stopping leaves no timer and no work; machines go on running."""
        self.runtime.starts_pending = True
        self.start()
        self.create()
        self.patch(self.runtime, "list_machines", lambda request: Deferred())
        self.clock.advance(RELIST_SECONDS)
        self.successResultOf(self.loop.stop())
        self.successResultOf(self.reflector.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(len(self.runtime.machines), 1)

    def test_bug(self) -> None:
        """A bug in the work on one Machine is logged with its traceback and retried later."""

        def broken(request: Any) -> Any:
            raise LookupError("mine")

        real = self.runtime.create_machine
        self.patch(self.runtime, "create_machine", broken)
        self.start()
        self.create()
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)
        why = "the poollet failed; its log says more"
        self.assertEqual(self.reports, [("vm", "Warning", FAILED, why)])
        self.patch(self.runtime, "create_machine", real)
        self.turn(6)
        self.assertEqual(self.get()["status"]["state"], "Running")

    def test_reports(self) -> None:
        """Users get Events about the work on their machine."""
        self.start()
        self.create()
        (machine_id,) = self.runtime.machines
        self.delete()
        self.assertEqual(
            self.reports,
            [
                ("vm", "Normal", "Created", f"created machine {machine_id}"),
                ("vm", "Normal", "Deleting", f"deleting machine {machine_id}"),
            ],
        )

    def test_reports_refusals(self) -> None:
        """Every refusal by the runtime is reported; the listener counts them."""
        self.runtime.refusals["create_machine"] = ServiceUnavailable("no room")
        self.start()
        self.create()
        self.turn(5)
        self.assertGreater(len(self.reports), 2)
        self.assertEqual(set(self.reports), {("vm", "Warning", "CreateFailed", "no room")})
        self.assertEqual(len(self.reports), self.runtime.calls.count("create_machine"))

    def test_reports_unsupported(self) -> None:
        """An unsupported feature is reported once."""
        self.start()
        self.create(volumes=[{"name": "v", "localDisk": {"sizeLimit": "many"}}])
        self.turn(30)
        ((name, type, reason, message),) = self.reports
        self.assertEqual((name, type, reason), ("vm", "Warning", "Unsupported"))
        self.assertIn('volume "v": quantities must match', message)

    def test_reports_away(self) -> None:
        """An unreachable runtime is reported once."""
        self.start()
        self.runtime.problem = ServiceUnavailable("the machine runtime is away")
        self.create()
        self.turn(30)
        expected = ("vm", "Warning", "RuntimeUnreachable", "the machine runtime is away")
        self.assertEqual(self.reports, [expected])
