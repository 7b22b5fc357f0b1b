"""
Tests for :mod:`twisted_exec.racks.plan` and :mod:`twisted_exec.racks.metal`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.racks.support import TARGET, bmc, server
from twisted_exec.kube.interfaces import Object
from twisted_exec.program import server_list
from twisted_exec.program.server_list import Server
from twisted_exec.racks import plan as plan_module
from twisted_exec.racks.metal import trim_bmc, trim_server
from twisted_exec.racks.plan import ON, Plan, missing, plan

LABELS = {"metadata.metal.ironcore.dev/rack": "r7"}


def row(name: str, address: str, system: str = "System_0") -> Server:
    return Server(f"default/{name}", address, system, LABELS)


def machine(name: str) -> Object:
    """A Machine of the program."""
    return TARGET.machine(server(name), "On")


class PlanTests(SynchronousTestCase):
    """Tests for :func:`plan`."""

    def plan(
        self,
        servers: Sequence[Object],
        bmcs: Sequence[Object] = (),
        machines: Sequence[Object] = (),
        rows: Sequence[Server] = (),
        gone: Collection[str] = (),
        target: Any = TARGET,
    ) -> Plan:
        known = {each["metadata"]["name"]: trim_bmc(each) for each in bmcs}
        return plan(
            [trim_server(each) for each in servers], known.get, machines, rows, gone, target
        )

    def test_new(self) -> None:
        """A Server becomes a row and a Machine, which has its power and its labels of the rack."""
        found = self.plan(
            [server("a"), server("b", "Off")], [bmc("a", "10.0.1.1"), bmc("b", "fd00::0:2")]
        )
        self.assertEqual(found.rows, [row("a", "10.0.1.1"), row("b", "fd00::2")])
        self.assertEqual([each["spec"]["power"] for each in found.create], ["On", "Off"])
        metadata = found.create[0]["metadata"]
        self.assertEqual((metadata["name"], metadata["namespace"]), ("a", "default"))
        managed = {"app.kubernetes.io/managed-by": "exec-racks"}
        self.assertEqual(metadata["labels"], {**LABELS, **managed})
        self.assertEqual(found.create[0]["spec"]["machinePoolRef"], {"name": "rack-7"})
        self.assertEqual((found.delete, found.waiting), ([], {}))

    def test_unknown_power(self) -> None:
        """A Machine of unknown power could switch its server, so it waits, unless it shall be on."""
        found = self.plan([server("a", "")], [bmc("a", "10.0.1.1")])
        self.assertEqual((found.rows, found.create), ([row("a", "10.0.1.1")], []))
        self.assertEqual(found.waiting, {"a": "its power state is not known yet"})
        found = self.plan(
            [server("a", "")], [bmc("a", "10.0.1.1")], target=replace(TARGET, power=ON)
        )
        self.assertEqual([each["spec"]["power"] for each in found.create], ["On"])

    def test_addresses(self) -> None:
        """The address is that of the BMC, of its status, or of the Server itself."""
        late = bmc("b", "")
        late["spec"] = {"endpointRef": {"name": "e"}}
        late["status"] = {"ip": "10.0.1.2"}
        inline = server("c", bmc={"address": "10.0.1.3"}, systemURI="")
        del inline["spec"]["bmcRef"]
        found = self.plan([server("a"), server("b"), inline], [bmc("a", "10.0.1.1"), late])
        self.assertEqual(
            found.rows, [row("a", "10.0.1.1"), row("b", "10.0.1.2"), row("c", "10.0.1.3", "")]
        )

    def test_waiting(self) -> None:
        """A Server without a usable address waits with a reason; the others do not."""
        bare = server("c")
        del bare["spec"]["bmcRef"]
        found = self.plan(
            [server("a"), server("b"), bare, server("d"), server("e"), server("f", systemURI="\n")],
            [bmc("b", ""), bmc("d", "bmc.lab"), bmc("e", "10.0.1.5"), bmc("f", "10.0.1.6")],
        )
        self.assertEqual([each.name for each in found.rows], ["default/e"])
        for name, why in (
            ("a", 'there is no BMC "a-bmc"'),
            ("b", 'BMC "b-bmc" has no address yet'),
            ("c", "it has neither spec.bmcRef nor spec.bmc"),
            ("d", "'bmc.lab', is not an IP address"),
            ("f", "is not the id of a system"),
        ):
            self.assertIn(why, found.waiting[name])

    def test_kept(self) -> None:
        """A Server whose BMC is replaced keeps its row meanwhile."""
        old = row("a", "10.0.1.1")
        found = self.plan([server("a")], rows=[old], machines=[machine("a")])
        self.assertEqual((found.rows, found.create, found.delete), ([old], [], []))

    def test_two_servers(self) -> None:
        """Of two Servers with one BMC the older one keeps it, whatever their names and systems."""
        young = server("a", created="2026-02-01T00:00:00Z")
        old = server("b", created="2026-01-01T00:00:00Z")
        bmcs = [bmc("a", "10.0.1.1"), bmc("b", "10.0.1.1")]
        other = server("a", created="2026-02-01T00:00:00Z")
        other["spec"]["systemURI"] = "/redfish/v1/Systems/System_1/"
        for second in (young, other):
            for rows in ([], [row("a", "10.0.1.1")]):
                found = self.plan([second, old], bmcs, rows=rows)
                self.assertEqual(found.rows, [row("b", "10.0.1.1")])
                self.assertIn(
                    "default/b has the BMC 10.0.1.1 already, and a BMC has one line",
                    found.waiting["a"],
                )
                self.assertEqual([each["metadata"]["name"] for each in found.create], ["b"])

    def test_missing(self) -> None:
        """A missing Server keeps row and Machine; one that is gone loses its Machine, then its row."""
        rows, machines = [row("a", "10.0.1.1"), row("b", "10.0.1.2")], [machine("a"), machine("b")]
        present = ([server("b")], [bmc("b", "10.0.1.2")])
        self.assertEqual(missing(present[0], machines, rows, TARGET), {"a"})
        self.assertEqual(self.plan(*present, machines, rows), Plan(rows, [], [], {}))
        found = self.plan(*present, machines, rows, {"a"})
        self.assertEqual((found.rows, found.delete), (rows, machines[:1]))
        found = self.plan(*present, machines[1:], rows, {"a"})
        self.assertEqual((found.rows, found.delete), (rows[1:], []))
        back = [server("a"), server("b")], [bmc("a", "10.0.1.1"), bmc("b", "10.0.1.2")]
        self.assertEqual(self.plan(*back, machines, rows, {"a"}), Plan(rows, [], [], {}))

    def test_taken_address(self) -> None:
        """The BMC of a missing Server goes to nobody else, until it is confirmed that the Server is gone."""
        rows = [row("a", "10.0.1.1")]
        present = ([server("b")], [bmc("b", "10.0.1.1")])
        self.assertEqual(self.plan(*present, rows=rows).rows, rows)
        self.assertEqual(self.plan(*present, rows=rows, gone={"a"}).rows, [row("b", "10.0.1.1")])

    def test_others(self) -> None:
        """Machines of users, and those for other pools, are neither created anew nor deleted."""
        users = {**machine("a"), "metadata": {"name": "a", "namespace": "default"}}
        foreign = machine("b")
        foreign["spec"]["machinePoolRef"] = {"name": "rack-8"}
        present = [server("a"), server("b")], [bmc("a", "10.0.1.1"), bmc("b", "10.0.1.2")]
        self.assertEqual(self.plan(*present, [users, foreign]).create, [])
        rows = [row("a", "10.0.1.1")]
        self.assertEqual(missing([], [users, foreign], rows, TARGET), {"a"})
        found = self.plan([], [], [users, foreign], rows, {"a", "b"})
        self.assertEqual(found, Plan([], [], [], {}))

    def test_other_class(self) -> None:
        """A Server whose Machine has another class keeps its row, and waits with the reason."""
        users = {**machine("a"), "metadata": {"name": "a", "namespace": "default"}}
        users["spec"] = {**users["spec"], "machineClassRef": {"name": "small"}}
        found = self.plan([server("a")], [bmc("a", "10.0.1.1")], [users])
        self.assertEqual((found.rows, found.create), ([row("a", "10.0.1.1")], []))
        self.assertEqual(
            found.waiting,
            {
                "a": 'the Machine of its name has the class "small", not "server"; delete that Machine to '
                "have one with this console"
            },
        )

    def test_many(self) -> None:
        """The list has a limit, and says what to do."""
        for module in (server_list, plan_module):
            self.patch(module, "MAX_SERVERS", 1)
        found = self.plan([server("a"), server("b")], [bmc("a", "10.0.1.1"), bmc("b", "10.0.1.2")])
        self.assertEqual(found.rows, [row("a", "10.0.1.1")])
        self.assertIn("divide them with --server-selector", found.waiting["b"])
