"""
The objects of metal-operator, and the row of a list that a Server is.

Source: github.com/ironcore-dev/metal-operator, ``api/v1alpha1/server_types.go`` and ``bmc_types.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted_exec.api.resource import Resource
from twisted_exec.kube.interfaces import Object
from twisted_exec.program.server_list import (
    Server,
    address_of,
    name_problem,
    system_problem,
)

GROUP, VERSION = "metal.ironcore.dev", "v1alpha1"
SERVERS = Resource(GROUP, VERSION, "servers", "Server", namespaced=False)
BMCS = Resource(GROUP, VERSION, "bmcs", "BMC", namespaced=False)

LABELS = tuple(f"metadata.{GROUP}/{name}" for name in ("location", "rack", "shelf", "height"))
"""Labels of a Server that its row and its Machine have, too."""

_ON = frozenset({"On", "PoweringOn", "Paused"})
_OFF = frozenset({"Off", "PoweringOff"})


class NoRow(Exception):
    """A Server cannot have a row; the text says why."""


def trim_server(server: Object) -> Object:
    """Return the part of a Server that this program uses."""
    spec = server.get("spec", {})
    kept = {key: spec[key] for key in ("bmcRef", "bmc", "systemURI") if key in spec}
    power = server.get("status", {}).get("powerState")
    status = {} if power is None else {"powerState": power}
    return {"metadata": _trimmed(server), "spec": kept, "status": status}


def trim_bmc(bmc: Object) -> Object:
    """Return the part of a BMC that this program uses."""
    access, status = bmc.get("spec", {}).get("access"), bmc.get("status", {}).get("ip")
    return {"metadata": _trimmed(bmc), "spec": {"access": access}, "status": {"ip": status}}


def _trimmed(obj: Object) -> Object:
    keys = ("name", "uid", "resourceVersion", "creationTimestamp", "labels")
    return {key: obj["metadata"][key] for key in keys if key in obj["metadata"]}


def row_of(server: Object, bmc_of: Callable[[str], Object | None], namespace: str) -> Server:
    """
    Return the row of a Server, named as its Machine.

    :param bmc_of: returns the BMC of a name, or ``None``.
    :raises NoRow: its BMC or the BMC's address is not known yet, or cannot be in a list.
    """
    name = server["metadata"]["name"]
    row_name = f"{namespace}/{name}"
    if problem := name_problem(row_name):
        raise NoRow(problem)
    written = _address(server, bmc_of)
    try:
        address = address_of(written)
    except ValueError:
        raise NoRow(f"the address of its BMC, {written[:64]!r}, is not an IP address") from None
    system = str(server["spec"].get("systemURI", "")).rstrip("/").rpartition("/")[2]
    if problem := system_problem(system):
        raise NoRow(problem)
    return Server(row_name, address, system, labels_of(server))


def _address(server: Object, bmc_of: Callable[[str], Object | None]) -> str:
    spec: Mapping[str, Any] = server["spec"]
    reference = spec.get("bmcRef")
    if reference is None:
        if inline := (spec.get("bmc") or {}).get("address"):
            return str(inline)
        raise NoRow("it has neither spec.bmcRef nor spec.bmc")
    name = str(reference.get("name", ""))
    bmc = bmc_of(name)
    if bmc is None:
        raise NoRow(f'there is no BMC "{name}"')
    # Without spec.access, spec.endpointRef names an Endpoint, whose address metal-operator writes to the status.
    address = (bmc["spec"].get("access") or {}).get("ip") or bmc["status"].get("ip")
    if not address:
        raise NoRow(f'BMC "{name}" has no address yet')
    return str(address)


def labels_of(server: Object) -> Mapping[str, str]:
    """Return the :data:`LABELS` that a Server has."""
    labels = server["metadata"].get("labels", {})
    return {key: labels[key] for key in LABELS if key in labels}


def power_of(server: Object) -> str:
    """Return ``On`` or ``Off``, as metal-operator has observed it; empty if it is not known."""
    state = server["status"].get("powerState")
    return "On" if state in _ON else "Off" if state in _OFF else ""
