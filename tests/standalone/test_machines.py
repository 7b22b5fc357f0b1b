"""
Tests for :mod:`twisted_exec.standalone.machines`.
"""

from __future__ import annotations

import json
import shlex

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.kinds import CLUSTERROLEBINDINGS
from twisted_exec.api.status import Forbidden
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.program.config_file import ConfigError
from twisted_exec.standalone.machines import (
    NAMESPACE,
    SHELL,
    console_commands,
    create_missing,
    demo_objects,
    load_classes,
    permission_binding,
    until_running,
)
from twisted_exec.testing.cluster import MemoryCluster

ALL = {
    "machineclasses/pty",
    "machineclasses/qemu",
    "machines/demo-shell",
    "machines/demo-vm",
}


FURTHER = """
classes:
- {name: lab, driver: pty, command: [/bin/cat], same_user: true, capabilities: {cpu: 2, memory: 64Mi}}
"""


class MachinesCase(SynchronousTestCase):
    """An API server in memory."""

    def setUp(self) -> None:
        self.cluster = MemoryCluster()
        self.client = self.cluster.client()

    def create(self, offered: set[str], created: set[str]) -> set[str]:
        made = create_missing(self.client, demo_objects(IRONCORE, "local", offered), created)
        return self.successResultOf(Deferred.fromCoroutine(made))

    def machines(self) -> list[str]:
        listed = self.successResultOf(self.client.list(IRONCORE.workload, NAMESPACE))
        return sorted(each["metadata"]["name"] for each in listed["items"])


class ToTryTests(MachinesCase):
    """Tests for :func:`console_commands`."""

    def suggested(self) -> tuple[str, ...]:
        return self.successResultOf(
            Deferred.fromCoroutine(console_commands(self.client, IRONCORE, "local"))
        )

    def test_what_is_there(self) -> None:
        """The console of the virtual machine; without it the shell's; never of a deleted machine."""
        self.create({"pty", "qemu"}, set())
        commands = ("kubectl get machines", "kubectl console demo-vm", "twisted-exec web demo-vm")
        self.assertEqual(self.suggested(), commands)
        self.successResultOf(self.client.delete(IRONCORE.workload, "demo-vm", NAMESPACE))
        self.assertEqual(self.suggested()[1], f"kubectl console {SHELL}")

    def test_nothing_is_there(self) -> None:
        """Without machines, the first command creates the machine of the second."""
        create, console, web = self.suggested()
        self.assertEqual(console, "kubectl console my-shell")
        self.assertEqual(web, "twisted-exec web my-shell")
        words = shlex.split(create)
        self.assertEqual([words[0], *words[2:]], ["echo", "|", "kubectl", "create", "-f", "-"])
        made = self.successResultOf(
            self.client.create(IRONCORE.workload, json.loads(words[1]), NAMESPACE)
        )
        self.assertEqual(made["metadata"]["name"], "my-shell")
        self.assertEqual(made["spec"]["machineClassRef"], {"name": "pty"})
        self.assertEqual(self.suggested()[1], console)


class CreateMissingTests(MachinesCase):
    """Tests for :func:`create_missing`."""

    def test_first_start(self) -> None:
        """Both machines and their classes are made, bound to the pool."""
        self.assertEqual(self.create({"pty", "qemu"}, set()), ALL)
        shell = self.successResultOf(self.client.get(IRONCORE.workload, SHELL, NAMESPACE))
        self.assertEqual(shell["spec"]["machineClassRef"], {"name": "pty"})
        self.assertEqual(shell["spec"]["machinePoolRef"], {"name": "local"})

    def test_deleted_ones_stay_deleted(self) -> None:
        """Who deleted a machine does not get it again."""
        created = self.create({"pty", "qemu"}, set())
        self.successResultOf(self.client.delete(IRONCORE.workload, SHELL, NAMESPACE))
        self.assertEqual(self.create({"pty", "qemu"}, created), ALL)
        self.assertEqual(self.machines(), ["demo-vm"])

    def test_class_offered_later(self) -> None:
        """When QEMU is installed later, its machine comes with the next start."""
        created = self.create({"pty"}, set())
        self.assertEqual(self.machines(), ["demo-shell"])
        self.assertEqual(self.create({"pty", "qemu"}, created), ALL)
        self.assertEqual(self.machines(), ["demo-shell", "demo-vm"])

    def test_further_classes(self) -> None:
        """A class of ``--classes`` gets a class of the API with its capabilities, and no machine."""
        path = self.mktemp()
        with open(path, "w") as file:
            file.write(FURTHER)
        further = load_classes(path)
        offered = {"pty", "lab"}
        objects = demo_objects(IRONCORE, "local", offered, further)
        made = create_missing(self.client, objects, set())
        self.successResultOf(Deferred.fromCoroutine(made))
        lab = self.successResultOf(self.client.get(IRONCORE.workload_class, "lab"))
        self.assertEqual(lab["capabilities"], {"cpu": "2", "memory": str(64 << 20)})
        self.assertEqual(self.machines(), ["demo-shell"])
        self.assertEqual(len(demo_objects(IRONCORE, "local", {"pty"}, further)), 2)

    def test_names_of_classes(self) -> None:
        """The program's own classes keep their names."""
        path = self.mktemp()
        with open(path, "w") as file:
            file.write(FURTHER.replace("lab", "pty"))
        with self.assertRaisesRegex(ConfigError, "class 'pty' is one of this program's own"):
            load_classes(path)
        self.assertEqual(load_classes(None), ())

    def test_made_but_not_written_down(self) -> None:
        """A start that was killed in between is finished by the next."""
        self.create({"pty", "qemu"}, set())
        self.assertEqual(self.create({"pty", "qemu"}, set()), ALL)

    def test_permission(self) -> None:
        """The poollet of the pool may watch permissions."""
        made = create_missing(self.client, [permission_binding(IRONCORE, "local")], set())
        self.successResultOf(Deferred.fromCoroutine(made))
        name = "console-permission-watcher-local"
        bound = self.successResultOf(self.client.get(CLUSTERROLEBINDINGS.resource, name))
        self.assertEqual(bound["roleRef"]["name"], "console-permission-watcher")
        (subject,) = bound["subjects"]
        self.assertEqual(subject["name"], "compute.ironcore.dev:system:machinepool:local")

    def test_refused(self) -> None:
        """Any other error is told."""
        self.cluster.problem = Forbidden("no")
        made = create_missing(self.client, demo_objects(IRONCORE, "local", {"pty"}), set())
        self.failureResultOf(Deferred.fromCoroutine(made), Forbidden)


class OneMachine:
    """A runtime with one machine."""

    state: int = pb.MACHINE_PENDING
    conditions: tuple[pb.MachineCondition, ...] = ()

    def list_machines(self, request: pb.ListMachinesRequest) -> Deferred[pb.ListMachinesResponse]:
        status = pb.MachineStatus(state=self.state, machine_conditions=self.conditions)  # type: ignore[arg-type]
        return succeed(pb.ListMachinesResponse(machines=[pb.Machine(status=status)]))


class UntilRunningTests(MachinesCase):
    """Tests for :func:`until_running`."""

    def setUp(self) -> None:
        super().setUp()
        self.clock = Clock()
        self.runtime = OneMachine()
        self.create({"pty"}, set())

    def wait(self) -> Deferred[None]:
        waiting = until_running(self.client, self.runtime, IRONCORE, SHELL, self.clock)  # type: ignore[arg-type]
        return Deferred.fromCoroutine(waiting)

    def patch(self, patch: dict[str, object], subresource: str = "") -> None:
        self.successResultOf(
            self.client.patch(IRONCORE.workload, SHELL, patch, NAMESPACE, subresource=subresource)
        )

    def test_waits(self) -> None:
        """It is not ready before it runs."""
        waiting = self.wait()
        self.clock.pump([0.1] * 5)
        self.assertNoResult(waiting)
        self.patch({"status": {"state": "Running"}}, "status")
        self.clock.advance(0.1)
        self.assertNoResult(waiting)  # so it was in an earlier run; is it now?
        self.runtime.state = pb.MACHINE_RUNNING
        self.clock.advance(0.1)
        self.successResultOf(waiting)

    def test_cannot_start(self) -> None:
        """Other machines can be used while this one cannot start."""
        waiting = self.wait()
        self.assertNoResult(waiting)
        problem = pb.MachineCondition(type="Ready", status="False", reason="StartFailed")
        self.runtime.conditions = (problem,)
        self.clock.advance(0.1)
        self.successResultOf(waiting)

    def test_powered_off(self) -> None:
        """One that its user switched off is not waited for."""
        self.patch({"spec": {"power": "Off"}})
        self.successResultOf(self.wait())

    def test_deleted(self) -> None:
        """Nor is one that is gone."""
        self.successResultOf(self.client.delete(IRONCORE.workload, SHELL, NAMESPACE))
        self.successResultOf(self.wait())
