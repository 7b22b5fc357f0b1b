"""
The decision: which rows the list has, and which Machines are created and deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.spaces import MANAGED_BY
from twisted_exec.kube.interfaces import Object
from twisted_exec.program.server_list import MAX_SERVERS, Server
from twisted_exec.racks import PROGRAM
from twisted_exec.racks.metal import NoRow, labels_of, power_of, row_of

OBSERVED, ON = "observed", "on"
"""The power of new Machines: as metal-operator has observed it, or always on."""


@dataclass(frozen=True)
class Target:
    """
    What new Machines have.

    :param power: :data:`OBSERVED` or :data:`ON`.
    """

    dialect: Dialect
    namespace: str
    machine_class: str
    pool: str
    power: str = OBSERVED

    def is_own(self, machine: Object) -> bool:
        """Return whether this program has created a Machine, for the same pool."""
        labels = machine["metadata"].get("labels", {})
        return labels.get(MANAGED_BY) == PROGRAM and self.dialect.pool_name(machine) == self.pool

    def machine(self, server: Object, power: str) -> Object:
        """Return a new Machine for a Server."""
        return {
            "apiVersion": self.dialect.workload.api_version,
            "kind": self.dialect.workload.kind,
            "metadata": {
                "name": server["metadata"]["name"],
                "namespace": self.namespace,
                "labels": {**labels_of(server), MANAGED_BY: PROGRAM},
            },
            "spec": {
                self.dialect.class_reference: {"name": self.machine_class},
                self.dialect.pool_reference: {"name": self.pool},
                "power": power,
            },
        }


@dataclass(frozen=True)
class Plan:
    """
    :param rows: the whole list, in order: earlier rows have precedence.
    :param create: Machines.
    :param delete: Machines.
    :param waiting: why Servers have no row, or no Machine that uses it, by their names.
    """

    rows: Sequence[Server]
    create: Sequence[Object] = ()
    delete: Sequence[Object] = ()
    waiting: Mapping[str, str] = field(default_factory=dict)


def missing(
    servers: Iterable[Object], machines: Iterable[Object], rows: Iterable[Server], target: Target
) -> set[str]:
    """Return the names of Servers that have a row or a Machine of ours, and that the cluster does not show."""
    known = {row.name.rpartition("/")[2] for row in rows}
    known |= {each["metadata"]["name"] for each in machines if target.is_own(each)}
    return known - {each["metadata"]["name"] for each in servers}


def plan(
    servers: Iterable[Object],
    bmc_of: Callable[[str], Object | None],
    machines: Iterable[Object],
    rows: Iterable[Server],
    gone: Collection[str],
    target: Target,
) -> Plan:
    """
    Plan one run.

    A Server that cannot have a new row keeps its old one.  The row of a Server that is gone goes after its Machine, so
    that the Machine can end its sessions.

    :param servers: those of the cluster.
    :param machines: all Machines of the namespace.
    :param rows: the present list.
    :param gone: names of Servers whose deletion is confirmed.
    """
    before = {row.name: row for row in rows}
    found = {each["metadata"]["name"]: each for each in machines}
    present = sorted(servers, key=_age)
    names = {each["metadata"]["name"] for each in present}
    planned: list[Server] = []
    for row in before.values():
        name = row.name.rpartition("/")[2]
        ours = name in found and target.is_own(found[name])
        if name not in names and (name not in gone or ours):
            planned.append(row)
    waiting: dict[str, str] = {}
    create: list[Object] = []
    taken = {row.address: row for row in planned}
    for server in present:
        name = server["metadata"]["name"]
        try:
            row = row_of(server, bmc_of, target.namespace)
            _check_free(row, taken, len(planned))
        except NoRow as problem:
            waiting[name] = str(problem)
            old = before.get(f"{target.namespace}/{name}")
            if old is None or old.address in taken:
                continue
            row = old
        taken[row.address] = row
        planned.append(row)
        if name in found:
            made = target.dialect.class_name(found[name])
            if made != target.machine_class:
                waiting.setdefault(
                    name,
                    f'the Machine of its name has the class "{made}", not "{target.machine_class}"; delete that '
                    "Machine to have one with this console",
                )
        else:
            power = "On" if target.power == ON else power_of(server)
            if power:
                create.append(target.machine(server, power))
            else:
                waiting.setdefault(name, "its power state is not known yet")
    delete = [
        found[name]
        for name in sorted(set(gone) - names)  # one may have come back since
        if name in found and target.is_own(found[name])
    ]
    return Plan(planned, create, delete, waiting)


def _age(server: Object) -> tuple[str, str]:
    return server["metadata"].get("creationTimestamp", ""), server["metadata"]["name"]


def _check_free(row: Server, taken: Mapping[str, Server], count: int) -> None:
    if other := taken.get(row.address):
        raise NoRow(
            f"{other.name} has the BMC {row.address} already, and a BMC has one line; give this Server a BMC "
            "address of its own, or leave it out with --server-selector"
        )
    if count >= MAX_SERVERS:
        raise NoRow(f"a list has at most {MAX_SERVERS} servers; divide them with --server-selector")
