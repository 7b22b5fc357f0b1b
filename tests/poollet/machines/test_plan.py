"""Tests for :mod:`twisted_exec.poollet.machines.plan`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.poollet.doubles import CONFIG, NOW, machine
from twisted_exec.api.dialects import IRONCORE, ONMETAL
from twisted_exec.api.display import BANNER
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.machines.actions import (
    Create,
    Delete,
    MachinePlan,
    PatchStatus,
    SetAnnotations,
    SetFinalizers,
    SetPower,
)
from twisted_exec.poollet.machines.claims import PatchObject
from twisted_exec.poollet.machines.plan import plan, unreachable_plan
from twisted_exec.poollet.machines.references import References, Unread
from twisted_exec.poollet.machines.runtime_machine import runtime_machine


def stored(**spec: Any) -> dict[str, Any]:
    """A Machine as the API server has it, adopted by the poollet."""
    obj = machine(**spec)
    obj["metadata"].update(
        namespace="lab",
        uid="u-1",
        generation=3,
        resourceVersion="7",
        finalizers=[IRONCORE.finalizer],
    )
    return obj


def made(obj: dict[str, Any], state: int = pb.MACHINE_RUNNING) -> pb.Machine:
    """The runtime's machine, exactly as requested."""
    runtime_copy = runtime_machine(obj, CONFIG)
    runtime_copy.metadata.id = "id-1"
    runtime_copy.status.state = state  # type: ignore[assignment]
    return runtime_copy


class PlanTestCase(SynchronousTestCase):
    """Plans."""

    def plan(self, obj: dict[str, Any], *observed: pb.Machine, trouble: str = "") -> MachinePlan:
        return plan(obj, observed, CONFIG, now=NOW, trouble=trouble)

    def status(self, obj: dict[str, Any], *observed: pb.Machine, trouble: str = "") -> Any:
        """The status that the plan writes."""
        actions = self.plan(obj, *observed, trouble=trouble).actions
        (patch,) = (action.status for action in actions if isinstance(action, PatchStatus))
        return patch

    def ready(self, status: Any) -> tuple[str, str, str]:
        (condition,) = (
            condition for condition in status["conditions"] if condition["type"] == "Ready"
        )
        return condition["status"], condition["reason"], condition["message"]


class CreateTests(PlanTestCase):
    """A Machine that the runtime does not have."""

    def test_finalizer_first(self) -> None:
        """Before a machine is created, a finalizer holds the Machine, beside those of others."""
        obj = stored()
        obj["metadata"]["finalizers"] = ["other"]
        self.assertEqual(
            self.plan(obj).actions, (SetFinalizers(("other", IRONCORE.finalizer), "7"),)
        )

    def test_beyond_the_interface(self) -> None:
        """A feature beyond the runtime's interface is reported, not tried."""
        for disk in ({"sizeLimit": "abc"}, {"sizeLimit": "16Ei"}, {"image": "\ud800"}):
            obj = stored(volumes=[{"name": "root", "localDisk": disk}])
            status, reason, message = self.ready(self.status(obj))
            self.assertEqual((status, reason), ("False", "Unsupported"))
            self.assertTrue(message.startswith('volume "root": '), message)
            self.assertEqual(len(self.plan(obj).actions), 1)

    def test_create(self) -> None:
        """The request contains the Machine's spec, with labels that identify it."""
        obj = stored(guestConfig={"hostname": "h"})
        (create,) = (action for action in self.plan(obj).actions if isinstance(action, Create))
        prefix = "machinepoollet.ironcore.dev/"
        self.assertEqual(
            dict(create.machine.metadata.labels),
            {
                f"{prefix}machine-uid": "u-1",
                f"{prefix}machine-namespace": "lab",
                f"{prefix}machine-name": "vm",
                f"{prefix}machine-pool": "pool-a",
            },
        )
        self.assertEqual(
            dict(create.machine.metadata.annotations),
            {
                f"{prefix}machine-generation": "3",
                f"{prefix}irimachine-generation": "0",
                f"{prefix}networkinterfacemapping": "{}",
            },
        )
        self.assertEqual(getattr(create.machine.spec, "class"), "pty")
        self.assertEqual(create.machine.spec.power, pb.POWER_ON)
        self.assertEqual(create.machine.spec.guest_config.hostname, "h")

    def test_create_powered_off(self) -> None:
        """A Machine whose power is Off is never on, not even at first."""
        (create,) = (
            action
            for action in self.plan(stored(power="Off")).actions
            if isinstance(action, Create)
        )
        self.assertEqual(create.machine.spec.power, pb.POWER_OFF)

    def test_volumes(self) -> None:
        """Disks that need no other object are passed on."""
        volumes = [
            {"name": "root", "device": "oda", "localDisk": {"sizeLimit": "1Gi", "image": "img"}},
            {"name": "tmp", "emptyDisk": {}},
        ]
        root, tmp = runtime_machine(stored(volumes=volumes), CONFIG).spec.volumes
        self.assertEqual((root.name, root.device), ("root", "oda"))
        self.assertEqual(
            (root.local_disk.size_bytes, root.local_disk.image.image), (1 << 30, "img")
        )
        self.assertEqual((tmp.name, tmp.local_disk.size_bytes), ("tmp", 0))

    def test_refused_before(self) -> None:
        """The last failure is in the status, and the action is retried."""
        planned = self.plan(stored(), trouble="no such class")
        self.assertEqual(
            self.ready(self.status(stored(), trouble="no such class")),
            ("False", "CreateFailed", "no such class"),
        )
        self.assertIsInstance(planned.actions[-1], Create)


class KeepTests(PlanTestCase):
    """A Machine that the runtime has."""

    def test_status(self) -> None:
        """The status has state, identity and the Ready condition."""
        obj = stored()
        self.assertEqual(
            self.status(obj, made(obj)),
            {
                "state": "Running",
                "machineID": "memory://id-1",
                "observedGeneration": 3,
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "reason": "Running",
                        "message": "",
                        "observedGeneration": 3,
                        "lastTransitionTime": NOW,
                    }
                ],
            },
        )

    def test_nothing_to_do(self) -> None:
        """A Machine in its desired state with a current status needs no action."""
        obj = stored()
        obj["status"] = self.status(obj, made(obj))
        self.assertEqual(self.plan(obj, made(obj)), MachinePlan())

    def test_states(self) -> None:
        """Every state of the runtime has one of the Machine; stopped is Shutdown."""
        obj = stored()
        for state, expected in (
            (pb.MACHINE_PENDING, "Pending"),
            (pb.MACHINE_SUSPENDED, "Shutdown"),
            (pb.MACHINE_STOPPED, "Shutdown"),
            (pb.MACHINE_TERMINATED, "Terminated"),
            (pb.MACHINE_TERMINATING, "Terminating"),
        ):
            status = self.status(obj, made(obj, state))
            self.assertEqual(status["state"], expected)
            self.assertEqual(self.ready(status), ("False", expected, ""))

    def test_off(self) -> None:
        """A machine that is off by its spec says so."""
        obj, runtime_copy = stored(power="Off"), made(stored(), pb.MACHINE_STOPPED)
        runtime_copy.spec.power = pb.POWER_OFF
        self.assertEqual(
            self.ready(self.status(obj, runtime_copy)),
            ("False", "Shutdown", "powered off, as spec.power says"),
        )
        runtime_copy.status.machine_conditions.add(type="PowerSwitched", status="False")
        self.assertEqual(
            self.ready(self.status(obj, runtime_copy))[2],
            "the console is closed, as spec.power says; the machine itself was not switched",
        )

    def test_why_not_ready(self) -> None:
        """The runtime's message about an unready machine is copied, up to a limit."""
        obj = stored()
        runtime_copy = made(obj, pb.MACHINE_PENDING)
        runtime_copy.status.machine_conditions.add(
            type="Ready", status="False", reason="StartFailed", message="no room " + "x" * 9999
        )
        runtime_copy.status.machine_conditions.add(
            type="Other", status="False", message="of no matter"
        )
        status, reason, message = self.ready(self.status(obj, runtime_copy))
        self.assertEqual((status, reason, message[:8]), ("False", "StartFailed", "no room "))
        self.assertEqual(len(message), 1024)
        runtime_copy.status.state = pb.MACHINE_RUNNING  # it runs, and is not ready for all that
        self.assertEqual(self.ready(self.status(obj, runtime_copy))[:2], ("False", "StartFailed"))
        runtime_copy.status.machine_conditions[0].status = "True"
        self.assertEqual(self.ready(self.status(obj, runtime_copy)), ("True", "Running", ""))

    def test_going_off(self) -> None:
        """A machine that still runs although its power is Off is looked at again soon."""
        off = stored(power="Off")
        self.assertTrue(self.plan(off, made(off)).unsettled)
        self.assertFalse(self.plan(off, made(off, pb.MACHINE_STOPPED)).unsettled)

    def test_not_known(self) -> None:
        """An unreachable runtime shows in the conditions; the state is the last known."""
        obj = stored()
        obj["status"] = {"state": "Running"}
        problem = "the machine runtime cannot be reached"
        (patch,) = unreachable_plan(obj, problem, IRONCORE, now=NOW).actions
        assert isinstance(patch, PatchStatus)
        self.assertEqual(list(patch.status), ["conditions"])
        self.assertEqual(
            self.ready(patch.status),
            ("Unknown", "RuntimeUnreachable", "the machine runtime cannot be reached"),
        )

    def test_unknown_state(self) -> None:
        """An undefined state is reported as a problem; the old one stays."""
        obj = stored()
        planned = self.plan(obj, made(obj, 42))
        self.assertEqual(planned.problem, "the runtime reports state 42")
        self.assertNotIn("state", self.status(obj, made(obj, 42)))

    def test_power(self) -> None:
        """Power is changed when it differs."""
        on, off = stored(), stored(power="Off")
        self.assertIn(SetPower("id-1", pb.POWER_OFF), self.plan(off, made(on)).actions)
        self.assertIn(SetPower("id-1", pb.POWER_ON), self.plan(on, made(off)).actions)

    def test_generation(self) -> None:
        """A new generation is recorded once; annotations of others are kept."""
        obj = stored()
        runtime_copy = made(obj)
        runtime_copy.metadata.annotations["other"] = "x"
        runtime_copy.metadata.generation = 5
        obj["metadata"]["generation"] = 4
        (noted,) = (
            a for a in self.plan(obj, runtime_copy).actions if isinstance(a, SetAnnotations)
        )
        self.assertEqual(
            noted.annotations,
            {
                "other": "x",
                CONFIG.mapping_annotation: "{}",
                IRONCORE.generation_annotation: "4",
                IRONCORE.runtime_generation_annotation: "5",
            },
        )
        runtime_copy.metadata.annotations.update(noted.annotations)
        runtime_copy.metadata.generation = 6  # noting it was a change that the runtime counted
        self.assertFalse(
            [a for a in self.plan(obj, runtime_copy).actions if isinstance(a, SetAnnotations)]
        )

    def test_generation_is_observed_later(self) -> None:
        """A generation that the runtime has not seen yet is not reported; the state is."""
        obj = stored()
        runtime_copy = made(obj)
        runtime_copy.metadata.annotations[IRONCORE.runtime_generation_annotation] = "9"
        status = self.status(obj, runtime_copy)
        self.assertNotIn("observedGeneration", status)
        self.assertEqual(status["state"], "Running")

    def test_generation_of_older_releases(self) -> None:
        """onmetal's first releases look for the generation under another name: it has both."""
        obj = stored()
        obj["metadata"]["finalizers"] = [ONMETAL.finalizer]
        config = replace(CONFIG, dialect=ONMETAL)
        observed = runtime_machine(obj, config)
        observed.metadata.id = "id-1"
        observed.metadata.annotations[ONMETAL.generation_annotation] = "3"
        planned = plan(obj, [observed], config, now=NOW)
        (patch,) = (each.status for each in planned.actions if isinstance(each, PatchStatus))
        self.assertEqual(patch["observedGeneration"], 3)
        self.assertEqual(patch["machinePoolObservedGeneration"], 3)

    def test_banner(self) -> None:
        """The runtime gets the Machine's banner, without what does not belong there, until that is deleted."""
        obj = stored()
        obj["metadata"]["annotations"] = {BANNER: "one\x1b[2J\n\ntwo\n" + "x" * 90 + "\n4\n5"}
        (create,) = (action for action in self.plan(obj).actions if isinstance(action, Create))
        lines = create.machine.metadata.annotations[BANNER].split("\n")
        self.assertEqual(lines, ["one[2J", "two", "x" * 80, "4"])
        with_banner = made(obj)
        self.assertEqual(self.plan(obj, with_banner).actions, self.plan(obj, made(obj)).actions)
        obj["metadata"]["annotations"] = {BANNER: "\x07"}
        (noted,) = (a for a in self.plan(obj, with_banner).actions if isinstance(a, SetAnnotations))
        self.assertNotIn(BANNER, noted.annotations)

    def test_foreign_annotations(self) -> None:
        """Annotations that are not numbers cause no crash."""
        obj = stored()
        runtime_copy = made(obj)
        runtime_copy.metadata.annotations[IRONCORE.runtime_generation_annotation] = "x"
        self.assertEqual(self.status(obj, runtime_copy)["state"], "Running")

    def test_two(self) -> None:
        """Two machines for one Machine: both stay untouched, and the problem is reported."""
        obj = stored(power="Off")
        planned = self.plan(obj, made(obj), made(obj))
        self.assertIn("the runtime has 2 machines for it: id-1, id-1", planned.problem)
        (action,) = planned.actions
        assert isinstance(action, PatchStatus)
        self.assertEqual(set(action.status), {"conditions"})
        self.assertEqual(self.ready(action.status)[1], "SeveralRuntimeMachines")


class DeleteTests(PlanTestCase):
    """A Machine that is being deleted."""

    def deleted(self, **more: Any) -> dict[str, Any]:
        obj = stored()
        obj["metadata"].update(deletionTimestamp=NOW, **more)
        return obj

    def test_all_are_deleted(self) -> None:
        """Every machine of the runtime is ended, be there two."""
        obj = self.deleted()
        planned = self.plan(obj, made(obj), made(obj))
        self.assertEqual(planned.actions[1:], (Delete("id-1"), Delete("id-1")))
        self.assertEqual(self.status(obj, made(obj))["state"], "Terminating")

    def test_released_when_gone(self) -> None:
        """Once the machine is gone our finalizer is removed, and only ours."""
        obj = self.deleted(finalizers=["other", IRONCORE.finalizer])
        self.assertEqual(self.plan(obj).actions, (SetFinalizers(("other",), "7"),))

    def test_held_by_others(self) -> None:
        """A Machine held by foreign finalizers is left alone; no machine is created again."""
        self.assertEqual(self.plan(self.deleted(finalizers=["other"])), MachinePlan())


class ReleaseTests(PlanTestCase):
    """A volume that the spec names no more, and the runtime has no more."""

    def test_claim_is_read(self) -> None:
        """The status lists the volume until its claim is known, and released."""
        obj = stored()
        obj["status"] = {"volumes": [{"name": "disk", "volumeRef": {"name": "data"}}]}
        volume = {
            "metadata": {"name": "data", "namespace": "lab", "uid": "v-1", "resourceVersion": "1"},
            "spec": {"claimRef": {"name": obj["metadata"]["name"], "uid": "u-1"}},
        }
        objects: list[dict[str, Any]] = []

        def find(resource: Any, namespace: str, name: str) -> dict[str, Any]:
            if not objects:
                raise Unread("volumes are being read", soon=True)
            return objects[0]

        def planned() -> MachinePlan:
            return plan(obj, [made(stored())], CONFIG, now=NOW, references=References(find=find))

        self.assertEqual(planned(), MachinePlan(waits=True))
        objects.append(volume)
        (patch,) = (each for each in planned().actions if isinstance(each, PatchObject))
        self.assertEqual(patch.name, "data")


class ManyPartsTests(PlanTestCase):
    """A machine with thousands of parts, none of which exists."""

    def test_time(self) -> None:
        """The work of a plan grows with the number of parts, and not with its square."""

        def calls(count: int) -> int:
            named = [
                {"name": f"n{each}", "networkInterfaceRef": {"name": Counted(f"nic{each}")}}
                for each in range(count)
            ]
            obj = stored(networkInterfaces=named)
            obj["status"] = {"networkInterfaces": named}
            Counted.compared = 0
            references = References(find=lambda resource, namespace, name: None)
            result = plan(obj, [made(stored())], CONFIG, now=NOW, references=references)
            self.messages = [
                condition["message"]
                for action in result.actions
                if isinstance(action, PatchStatus)
                for condition in action.status["conditions"]
            ]
            return Counted.compared

        self.assertLessEqual(calls(400), 5 * max(calls(100), 100))
        self.assertTrue(self.messages)
        self.assertLess(max(map(len, self.messages)), 2048)


class Counted(str):
    """Text that counts its comparisons."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)
