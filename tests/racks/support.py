"""
Objects of metal-operator, and the kinds with which our API server serves them.

The fields are those of ``api/v1alpha1/server_types.go`` and ``bmc_types.go`` in github.com/ironcore-dev/metal-operator.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.chain import ChainTestCase
from twisted_exec.api import kinds
from twisted_exec.api.dialects import DEFAULT
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.schema import mapping, string, struct
from twisted_exec.racks.metal import BMCS, SERVERS
from twisted_exec.racks.plan import Target

_NAME = struct({"name": string("name is the name of the object.")}, required=["name"])
_POWER = struct({"powerState": string("powerState is the observed power.")})

KINDS = (
    Kind(
        SERVERS,
        "server",
        schema={
            "spec": struct(
                {
                    "systemUUID": string("systemUUID is the unique id of the server."),
                    "systemURI": string("systemURI is the path of the system."),
                    "bmcRef": _NAME,
                    "bmc": struct({"address": string("address is that of the BMC.")}),
                },
                required=["systemUUID"],
            ),
            "status": _POWER,
        },
        has_status=True,
    ),
    Kind(
        BMCS,
        "bmc",
        schema={
            "spec": struct(
                {
                    "access": struct({"ip": string("ip is the address of the BMC.")}),
                    "endpointRef": _NAME,
                    "bmcSecretRef": _NAME,
                    "protocol": mapping(string(), "protocol is how the BMC is reached."),
                }
            ),
            "status": struct({"ip": string("ip is the address of the BMC.")}),
        },
        has_status=True,
    ),
)

TARGET = Target(DEFAULT, "default", "server", "rack-7")


def server(name: str, power: str = "On", created: str = "", **spec: Any) -> Object:
    """A Server with a BMC of its name."""
    return {
        "apiVersion": SERVERS.api_version,
        "kind": "Server",
        "metadata": {
            "name": name,
            "labels": {"metadata.metal.ironcore.dev/rack": "r7", "other": "x"},
            **({"creationTimestamp": created} if created else {}),
        },
        "spec": {
            "systemUUID": f"uuid-{name}",
            "systemURI": "/redfish/v1/Systems/System_0",
            "bmcRef": {"name": f"{name}-bmc"},
            **spec,
        },
        "status": {"powerState": power} if power else {},
    }


def bmc(name: str, address: str) -> Object:
    """The BMC of a Server, as an administrator creates it."""
    return {
        "apiVersion": BMCS.api_version,
        "kind": "BMC",
        "metadata": {"name": f"{name}-bmc"},
        "spec": {"access": {"ip": address}, "bmcSecretRef": {"name": "secret"}},
        "status": {},
    }


class MetalCase(ChainTestCase):
    """A whole API server that serves Servers and BMCs beside Machines."""

    async def setUp(self) -> None:
        others = tuple(each for each in kinds._OTHERS if each.resource not in (SERVERS, BMCS))
        self.patch(kinds, "_OTHERS", (*others, *KINDS))
        await super().setUp()

    async def add(self, name: str, address: str, power: str = "On", **spec: Any) -> None:
        """Create a Server with its BMC."""
        await self.admin.create(BMCS, bmc(name, address))
        await self.admin.create(SERVERS, server(name, **spec))
        if power:
            status = {"status": {"powerState": power}}
            await self.admin.patch(SERVERS, name, status, subresource="status")
