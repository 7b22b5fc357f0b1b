"""
Tests for :mod:`twisted_exec.api.kinds.nodes`.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.api import table
from twisted_exec.api.kinds import NODES, Object
from twisted_exec.api.schema import check
from twisted_exec.api.strategy import full_schema

READY = {"type": "Ready", "status": "True"}


def node(labels: dict[str, str] | None = None, **parts: Any) -> Object:
    metadata = {"name": "a", "labels": labels or {}, "creationTimestamp": "2023-11-14T22:13:20Z"}
    return {"metadata": metadata, **parts}


class ColumnTests(SynchronousTestCase):
    """Columns of ``kubectl get nodes``, the same as those of kube-apiserver."""

    def shown(self, told: Object) -> list[str]:
        return table.cells(NODES, told, 1_700_000_060.0)

    def test_names(self) -> None:
        """Five columns, and five more with -o wide."""
        found = table.column_definitions(NODES)
        self.assertEqual(
            [(each["name"], each["priority"]) for each in found],
            [
                ("Name", 0),
                ("Status", 0),
                ("Roles", 0),
                ("Age", 0),
                ("Version", 0),
                ("Internal-IP", 1),
                ("External-IP", 1),
                ("OS-Image", 1),
                ("Kernel-Version", 1),
                ("Container-Runtime", 1),
            ],
        )

    def test_bare(self) -> None:
        """The row of an empty Node."""
        self.assertEqual(
            self.shown(node()),
            ["a", "Unknown", "<none>", "60s", "", "<none>", "<none>", *["<unknown>"] * 3],
        )

    def test_full(self) -> None:
        """A Node that reports itself."""
        labels = {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/edge": "x"}
        told = node(
            labels | {"kubernetes.io/role": "old", "node-role.kubernetes.io/": ""},
            spec={"unschedulable": True},
            status={
                "conditions": [{"type": "DiskPressure", "status": "False"}, READY],
                "addresses": [
                    {"type": "Hostname", "address": "a.example"},
                    {"type": "InternalIP", "address": "192.0.2.1"},
                    {"type": "InternalIP", "address": "2001:db8::1"},
                    {"type": "ExternalIP", "address": "198.51.100.1"},
                ],
                "nodeInfo": {
                    "kubeletVersion": "v1.33.1",
                    "osImage": "Debian",
                    "kernelVersion": "6.1",
                    "containerRuntimeVersion": "containerd://2",
                },
            },
        )
        self.assertEqual(
            self.shown(told),
            [
                "a",
                "Ready,SchedulingDisabled",
                "edge,old,worker",
                "60s",
                "v1.33.1",
                "192.0.2.1",
                "198.51.100.1",
                "Debian",
                "6.1",
                "containerd://2",
            ],
        )

    def test_not_ready(self) -> None:
        """A Ready condition that is False or Unknown is shown as NotReady."""
        for status in ("False", "Unknown"):
            told = node(status={"conditions": [{"type": "Ready", "status": status}]})
            self.assertEqual(self.shown(told)[1], "NotReady")


class RuleTests(SynchronousTestCase):
    """Validation of Nodes."""

    def causes(self, spec: Object | None = None, status: Object | None = None) -> list[str]:
        found = NODES.validate(node(spec=spec or {}, status=status or {}))
        return [cause["field"] for cause in found]

    def test_good(self) -> None:
        """Valid taints, Pod networks of both families, and amounts are accepted."""
        taint = {"key": "example.com/a", "effect": "NoSchedule"}
        spec = {
            "taints": [taint, taint | {"effect": "NoExecute"}],
            "podCIDRs": ["10.0.0.0/24", "2001:db8::/64"],
        }
        status = {"capacity": {"cpu": 4, "memory": "8Gi", "pods": "0"}}
        self.assertEqual(self.causes(spec, status), [])

    def test_taints(self) -> None:
        """Taints need valid keys and values, and each pair of key and effect must be unique."""
        taint = {"key": "a", "effect": "NoSchedule"}
        self.assertEqual(self.causes({"taints": [taint, taint]}), ["metadata.taints[1]"])
        bad = {"key": "-", "value": "a b", "effect": "NoSchedule"}
        self.assertEqual(
            self.causes({"taints": [bad]}),
            ["metadata.taints[0].key", "metadata.taints[0].value"],
        )

    def test_addresses_of_pods(self) -> None:
        """``podCIDRs`` holds at most one network of each family."""
        self.assertEqual(self.causes({"podCIDRs": ["10.0.0.0"]}), [])
        self.assertEqual(self.causes({"podCIDRs": ["all"]}), ["spec.podCIDRs[0]"])
        twice = ["10.0.0.0/24", "10.0.1.0/24"]
        self.assertEqual(self.causes({"podCIDRs": twice}), ["spec.podCIDRs"])
        spec = {"podCIDRs": ["10.0.0.0/24"] * 2}  # the schema leaves it to this rule
        self.assertEqual(check(full_schema(NODES), node(spec=spec)), [])
        self.assertEqual(self.causes(spec), ["spec.podCIDRs"])

    def test_amounts(self) -> None:
        """Amounts are quantities of at least zero."""
        status = {"capacity": {"cpu": "-1"}, "allocatable": {"memory": "much"}}
        fields = ["status.capacity.cpu", "status.allocatable.memory"]
        self.assertEqual(self.causes(None, status), fields)
        found = NODES.validate_status(node(status=status), node())
        self.assertEqual([cause["field"] for cause in found], fields)

    def test_addresses(self) -> None:
        """Each pair of address and type must be unique."""
        one = {"type": "InternalIP", "address": "192.0.2.1"}
        status = {"addresses": [one, one | {"type": "ExternalIP"}, one]}
        (cause,) = NODES.validate_status(node(status=status), node())
        self.assertEqual(cause["field"], "status.addresses[2]")

    def test_for_good(self) -> None:
        """``podCIDRs`` and ``providerID`` are immutable once set."""
        old = node(spec={"podCIDRs": ["10.0.0.0/24"], "providerID": "a://1"})
        for spec, fields in (
            ({"podCIDRs": ["10.0.0.0/24"], "providerID": "a://1"}, []),
            ({"podCIDRs": ["10.0.1.0/24"], "providerID": "a://1"}, ["spec.podCIDRs"]),
            ({"podCIDRs": ["10.0.0.0/24"]}, ["spec.providerID"]),
        ):
            found = NODES.validate_update(node(spec=spec), old)
            self.assertEqual([cause["field"] for cause in found], fields)
        self.assertEqual(NODES.validate_update(old, node()), [])

    def test_one_and_several(self) -> None:
        """``podCIDR`` and the first of ``podCIDRs`` agree, whichever was set."""
        assert NODES.prepare is not None
        for spec in ({"podCIDR": "10.0.0.0/24"}, {"podCIDRs": ["10.0.0.0/24", "2001:db8::/64"]}):
            told = node(spec=dict(spec))
            NODES.prepare(told)
            self.assertEqual(told["spec"]["podCIDR"], told["spec"]["podCIDRs"][0])


class StatusTests(SynchronousTestCase):
    """The status that a kubelet writes."""

    def addresses(self, *addresses: tuple[str, str]) -> list[str]:
        status = {"addresses": [{"type": kind, "address": text} for kind, text in addresses]}
        return [each["field"] for each in NODES.validate_status(node(status=status), node())]

    def test_repeated_address(self) -> None:
        """An address may be there once of each type."""
        told = self.addresses(("InternalIP", "10.0.0.1"), ("Hostname", "10.0.0.1"))
        self.assertEqual(told, [])
        told = self.addresses(*[("InternalIP", "10.0.0.1")] * 2)
        self.assertEqual(told, ["status.addresses[1]"])

    def test_many_addresses(self) -> None:
        """Thousands of addresses take linear time."""

        def check(size: int) -> None:
            self.assertEqual(self.addresses(*[("Hostname", str(each)) for each in range(size)]), [])

        assert_linear(check, 1000)
