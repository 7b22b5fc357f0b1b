"""
Tests for :mod:`twisted_exec.cli.runtime.output`.
"""

from __future__ import annotations

import json

import yaml
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.runtime import output
from twisted_exec.iri.protos import event_pb2
from twisted_exec.iri.protos import machine_pb2 as pb

NOW = 1_800_000_000.0


def machine() -> pb.Machine:
    """Return a machine with all fields that the output shows, and with secrets."""
    made = pb.Machine(
        spec=pb.MachineSpec(
            power=pb.POWER_OFF,
            ignition_data=b"secret",
            volumes=[
                pb.Volume(
                    name="d",
                    connection=pb.VolumeConnection(
                        driver="ceph",
                        secret_data={"key": b"hidden"},
                        encryption_data={"k": b"x"},
                    ),
                )
            ],
        ),
        status=pb.MachineStatus(state=pb.MACHINE_STOPPED),
    )
    setattr(made.spec, "class", "small")
    made.metadata.id = "m-1"
    made.metadata.created_at = int(NOW - 90) * 10**9
    labels = made.metadata.labels
    labels["downward-api.machinepoollet.ironcore.dev/root-machine-name"] = "other"
    labels["spherelet.spheric.cloud/instance-namespace"] = "ns"
    labels["spherelet.spheric.cloud/instance-name"] = "vm"
    return made


class TableTests(SynchronousTestCase):
    """Tables for people."""

    def test_machines(self) -> None:
        """
        A row has id, owner, class, state, power and age; the owner comes from any poollet's labels.
        """
        self.assertEqual(
            output.machines([machine(), pb.Machine()], NOW),
            "ID       NAMESPACE   NAME     CLASS    STATE     POWER   AGE\n"
            "m-1      ns          vm       small    Stopped   Off     90s\n"
            "<none>   <none>      <none>   <none>   Pending   On      <none>\n",
        )

    def test_status(self) -> None:
        """Each row has a class and its resources."""
        answer = pb.StatusResponse()
        one = answer.machine_class_status.add(quantity=3)
        one.machine_class.name = "c"
        one.machine_class.capabilities.resources.update({"cpu": 2, "memory": 3 << 30, "gpu": 1})
        answer.machine_class_status.add(quantity=1).machine_class.name = "d"
        self.assertEqual(
            output.status(answer),
            "CLASS   CPU      MEMORY   OTHER    QUANTITY\n"
            "c       2        3Gi      gpu=1    3\n"
            "d       <none>   <none>   <none>   1\n",
        )

    def test_events(self) -> None:
        """Each row has time, type, reason, machine and message."""
        event = event_pb2.Event()
        event.spec.reason, event.spec.message, event.spec.type = "Started", "it runs", "Normal"
        event.spec.event_time = int(NOW) * 10**9
        event.spec.involved_object_meta.id = "m-1"
        shown = output.events([event, event_pb2.Event()]).splitlines()
        self.assertEqual(
            shown[1].split(maxsplit=4),
            ["2027-01-15T08:00:00Z", "Normal", "Started", "m-1", "it runs"],
        )
        self.assertEqual(shown[2].split(), ["<none>"] * 5)

    def test_terminal(self) -> None:
        """Control characters from a runtime are replaced."""
        answer = pb.VersionResponse(runtime_name="\x1b[2Jx\ny", runtime_version="1")
        self.assertEqual(output.version(answer), "NAME      VERSION\n?[2Jx y   1\n")

    def test_unknown_state(self) -> None:
        """An unknown state is printed as its number."""
        self.assertEqual(output.state(9), "9")


class DocumentTests(SynchronousTestCase):
    """JSON and YAML for scripts."""

    def test_forms(self) -> None:
        """JSON and YAML hold the same."""
        shown = json.loads(output.document(machine(), "json"))
        self.assertEqual(shown, yaml.safe_load(output.document(machine(), "yaml")))
        self.assertEqual(
            (shown["metadata"]["id"], shown["status"]["state"]), ("m-1", "MACHINE_STOPPED")
        )

    def test_list(self) -> None:
        """A list is printed as a list, even with one item or none."""
        self.assertEqual(json.loads(output.document([], "json")), [])
        self.assertEqual(len(json.loads(output.document([machine()], "json"))), 1)

    def test_secrets(self) -> None:
        """Of secrets only the size is shown."""
        (shown,) = json.loads(output.document([machine()], "json"))
        self.assertEqual(shown["spec"]["ignitionData"], "<6 bytes>")
        connection = shown["spec"]["volumes"][0]["connection"]
        self.assertEqual(connection["secretData"], {"key": "<6 bytes>"})
        self.assertEqual(connection["encryptionData"], {"k": "<1 bytes>"})
