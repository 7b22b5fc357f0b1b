"""
Tests for :mod:`twisted_exec.api.kinds.machines`.  Objects take the way into the store.
"""

from __future__ import annotations

from typing import Any

from tests.api.kinds.support import KindTestCase
from twisted_exec.api import kinds, table
from twisted_exec.api.dialects import ONMETAL, SPHERIC


class MachineTests(KindTestCase):
    """Machines."""

    kind = kinds.MACHINES
    good = {"machineClassRef": {"name": "small"}}

    def spec_refused(self, **spec: Any) -> list[str]:
        return self.refused(spec={**self.good, **spec})

    def test_needed(self) -> None:
        """``machineClassRef`` is required."""
        self.assertEqual(self.refused(), ["spec: Required value"])
        self.assertEqual(self.refused(spec={}), ["spec.machineClassRef: Required value"])
        self.assertEqual(
            self.refused(spec={"machineClassRef": {}}),
            ["spec.machineClassRef.name: Required value: must specify a name"],
        )

    def test_names(self) -> None:
        """A machine's name is a DNS label, references are DNS subdomains."""
        self.assertEqual(len(self.refused(spec=self.good, metadata={"name": "a.b"})), 1)
        self.assertEqual(len(self.spec_refused(machinePoolRef={"name": "A"})), 1)
        self.assertEqual(len(self.spec_refused(machinePoolSelector={"-": "x"})), 1)

    def test_power(self) -> None:
        """``power`` is On or Off."""
        self.assertEqual(
            self.spec_refused(power="Maybe"),
            ['spec.power: Unsupported value: "Maybe": supported values: "Off", "On"'],
        )

    def test_sizes(self) -> None:
        """A disk's size is a quantity, not negative, and fits the runtime's 64 bits."""
        for size in ("abc", "-1", -5, "99999999Ei", "8Ei"):
            for disk in ("localDisk", "emptyDisk"):
                (cause,) = self.spec_refused(volumes=[{"name": "a", disk: {"sizeLimit": size}}])
                self.assertTrue(cause.startswith(f"spec.volume[0].{disk}.sizeLimit: "), cause)
        for good in ("0", "1Gi", 512, "7Ei"):
            volume = {"name": "a", "emptyDisk": {"sizeLimit": good}}
            self.create(spec={**self.good, "volumes": [volume]})

    def test_volumes(self) -> None:
        """Unique names and devices, exactly one source."""
        one = {"name": "root", "localDisk": {"image": "i"}}
        self.assertEqual(
            self.spec_refused(volumes=[one, one]),
            ['spec.volume[1].name: Duplicate value: "root"'],
        )
        self.assertEqual(
            self.spec_refused(volumes=[{"name": "a"}]),
            [
                "spec.volume[0]: Required value: must specify one of volumeRef, emptyDisk, "
                "localDisk, ephemeral"
            ],
        )
        self.assertEqual(
            self.spec_refused(volumes=[{**one, "emptyDisk": {}}]),
            ["spec.volume[0].localDisk: Forbidden: must only specify one source"],
        )
        twice = [{**one, "device": "oda"}, {**one, "name": "b", "device": "oda"}]
        self.assertEqual(
            self.spec_refused(volumes=twice), ['spec.volume[1].device: Duplicate value: "oda"']
        )

    def test_devices(self) -> None:
        """Volumes without a device get the next free one."""
        volumes = [
            {"name": name, "localDisk": {}, **device}
            for name, device in [("a", {}), ("b", {"device": "odb"}), ("c", {})]
        ]
        made = self.create(spec={**self.good, "volumes": volumes})
        self.assertEqual(
            [item["device"] for item in made["spec"]["volumes"]], ["oda", "odb", "odc"]
        )

    def test_network_interfaces(self) -> None:
        """The same rules as for volumes."""
        self.assertEqual(
            self.spec_refused(
                networkInterfaces=[{"name": "A", "networkInterfaceRef": {"name": "x"}}]
            )[0][:36],
            "spec.networkInterface[0].name: Inval",
        )

    def test_immutable_parts(self) -> None:
        """The guest configuration and disks made from an image are immutable."""
        disk = {"name": "root", "localDisk": {"image": "i"}, "device": "oda"}
        spec = {**self.good, "guestConfig": {"hostname": "h"}, "volumes": [disk], "power": "On"}
        old = self.create(spec=spec)
        self.assertEqual(
            self.update_refused(old, spec={**spec, "guestConfig": {"hostname": "i"}}),
            ["spec.guestConfig: Forbidden: field is immutable"],
        )
        self.assertEqual(
            self.update_refused(old, spec={**spec, "volumes": []}),
            ["spec.volume: Forbidden: volume root with an image is immutable"],
        )

    def test_columns(self) -> None:
        """Columns of ``kubectl get machines``."""
        empty = {"metadata": {"name": "a"}, "spec": {}}
        self.assertEqual(
            [column.read(empty) for column in self.kind.columns],
            ["<none>", "<none>", "<none>", "<unknown>", "<unknown>", *["<none>"] * 3],
        )
        full = self.create(
            spec={
                **self.good,
                "machinePoolRef": {"name": "p"},
                "volumes": [{"name": "root", "localDisk": {"image": "os"}}],
            }
        )
        self.assertEqual(
            [column.read(full) for column in self.kind.columns],
            ["small", "os", "p", "Pending", "<unknown>", *["<none>"] * 3],
        )

    def test_ready_columns(self) -> None:
        """A machine that runs without its line is not ready, and the table shows why."""
        for status, reason, message, cells in (
            (
                "False",
                "LineLost",
                "line was lost",
                ["Running", "False", "LineLost", "line was lost"],
            ),
            ("True", "Running", "", ["Running", "True", "<none>", "<none>"]),
        ):
            condition = {"type": "Ready", "status": status, "reason": reason, "message": message}
            machine = {"spec": {}, "status": {"state": "Running", "conditions": [condition]}}
            self.assertEqual([column.read(machine) for column in self.kind.columns][3:7], cells)

    def test_width(self) -> None:
        """A row of ``kubectl get machines`` has one line in a terminal of 80 columns."""
        ready = {"type": "Ready", "status": "False", "reason": "FailedScheduling"}
        machine = {
            "metadata": {"name": "demo-shell", "creationTimestamp": "2026-11-22T18:02:10Z"},
            "spec": {
                "machineClassRef": {"name": "x3-xlarge"},
                "machinePoolRef": {"name": "metal-a"},
            },
            "status": {"state": "Terminating", "conditions": [ready]},
        }
        made = table.table(self.kind, [machine], 1_800_000_000, metadata={})
        (row,) = made["rows"]
        # kubectl writes three spaces between columns.
        widths = [
            max(len(column["name"]), len(cell)) + 3
            for column, cell in zip(made["columnDefinitions"], row["cells"], strict=True)
            if not column["priority"]
        ]
        self.assertLessEqual(sum(widths) - 3, 80)

    def test_last_line(self) -> None:
        """The last line of the console is a wide column, if the machine's runtime says it."""
        column = self.kind.columns[-1]
        self.assertEqual((column.name, column.priority), ("Last Line", 1))
        conditions = [{"type": "Ready"}, {"type": "ConsoleOutput", "message": "login:"}]
        self.assertEqual(column.read({"status": {"conditions": conditions}}), "login:")


class OnmetalTests(KindTestCase):
    """Machines of onmetal-api."""

    kind = kinds.machine_kind(ONMETAL)
    good = {"machineClassRef": {"name": "small"}, "image": "example.org/os:1"}

    def test_image(self) -> None:
        """``image`` is immutable and shown in its column."""
        made = self.create(spec=self.good)
        changed = {**made["spec"], "image": "example.org/os:2"}
        self.assertEqual(
            self.update_refused(made, spec=changed), ["spec.image: Forbidden: field is immutable"]
        )
        image = next(column for column in self.kind.columns if column.name == "Image")
        self.assertEqual(image.read(made), "example.org/os:1")

    def test_label_names(self) -> None:
        """Classes and secrets are named by DNS labels, pools by DNS subdomains."""
        pool, secret = {"name": "a.b"}, {"name": "a.b"}
        (cause,) = self.refused(spec={**self.good, "imagePullSecret": secret})
        self.assertTrue(cause.startswith('spec.imagePullSecret.name: Invalid value: "a.b"'), cause)
        (cause,) = self.refused(spec={**self.good, "machineClassRef": {"name": "a.b"}})
        self.assertTrue(cause.startswith("spec.machineClassRef.name"), cause)
        self.create(spec={**self.good, "machinePoolRef": pool})

    def test_what_it_has_not(self) -> None:
        """There are no local disks, no guest configuration and no conditions."""
        spec = self.kind.schema["spec"]["properties"]
        self.assertNotIn("guestConfig", spec)
        self.assertNotIn("localDisk", spec["volumes"]["items"]["properties"])
        self.assertNotIn("conditions", self.kind.schema["status"]["properties"])
        (cause,) = self.refused(spec={**self.good, "volumes": [{"name": "root"}]})
        self.assertIn("must specify one of volumeRef, emptyDisk, ephemeral", cause)

    def test_states(self) -> None:
        """The states of a machine do not include Terminating."""
        state = self.kind.schema["status"]["properties"]["state"]
        self.assertNotIn("Terminating", state["enum"])


class SphericTests(KindTestCase):
    """Instances of spheric."""

    kind = kinds.machine_kind(SPHERIC)
    good = {"instanceTypeRef": {"name": "small"}}

    def test_whole(self) -> None:
        """Every part that an instance may have is kept."""
        spec = {
            **self.good,
            "fleetRef": {"name": "f"},
            "fleetSelector": {"zone": "a"},
            "image": "example.org/os:1",
            "disks": [{"name": "root", "emptyDisk": {"sizeLimit": "1Gi"}}],
            "networkInterfaces": [
                {
                    "name": "eth0",
                    "subnetRef": {"networkName": "n", "name": "s"},
                    "ipFamilies": ["IPv4"],
                    "ips": ["10.0.0.2"],
                    "accessIPFamilies": ["IPv6"],
                    "accessIPs": ["2001:db8::1"],
                }
            ],
        }
        made = self.create(spec=spec)
        self.assertEqual(made["spec"]["disks"][0]["device"], "oda")
        self.assertEqual(made["spec"]["networkInterfaces"], spec["networkInterfaces"])
        self.assertEqual(
            [column.read(made) for column in self.kind.columns],
            ["small", "example.org/os:1", "f", "Pending"],
        )

    def test_disks(self) -> None:
        """Errors name disks in the singular; a disk has one source."""
        (cause,) = self.refused(spec={**self.good, "disks": [{"name": "root"}]})
        self.assertEqual(
            cause,
            "spec.disk[0]: Required value: must specify one of diskRef, emptyDisk, ephemeral",
        )

    def test_fixed(self) -> None:
        """``instanceTypeRef`` and ``fleetRef`` are immutable."""
        made = self.create(spec={**self.good, "fleetRef": {"name": "f"}})
        for key in ("instanceTypeRef", "fleetRef"):
            changed = {**made["spec"], key: {"name": "other"}}
            self.assertEqual(
                self.update_refused(made, spec=changed),
                [f"spec.{key}: Forbidden: field is immutable"],
            )

    def test_selectors(self) -> None:
        """Instances are found by fleet, by type, and by the conditions that the page and doctor ask for."""
        found = {
            "spec.fleetRef.name",
            "spec.instanceTypeRef.name",
            "status.conditions.ConsoleHealthy",
            "status.conditions.ConsoleStored",
        }
        self.assertEqual(set(self.kind.fields), found)

    def test_fleets(self) -> None:
        """The status of a fleet has no available classes, and its table has no column for them."""
        fleets = kinds.pool_kind(SPHERIC)
        self.assertEqual([each.name for each in fleets.columns], ["State", "Reason", "Message"])
        status = fleets.schema["status"]["properties"]
        self.assertEqual([key for key in status if "vailable" in key], [])
        self.assertIn("sphereletEndpoint", status["daemonEndpoints"]["properties"])
