"""
What is routed to a Network's interfaces, where a dialect keeps that in objects of its own.

Poollets of onmetal-api's own make follow them, and do not start where there are none to
follow.  Nothing here makes them: that is for a network plugin.

Source: onmetal-api v0.1.1 ``api/networking/v1alpha1``.
"""

from __future__ import annotations

from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.kinds.shapes import claim
from twisted_exec.api.meta import Resource
from twisted_exec.api.schema import Schema, array, integer, string, struct

VERSION = "v1alpha1"

_INTERFACE = claim("A NetworkInterface.")
_PORTS = array(
    struct(
        {
            "ip": string("An address of the gateway."),
            "port": integer("The first of its ports.", minimum=0, maximum=65535),
            "endPort": integer("The last of its ports.", minimum=0, maximum=65535),
        },
        required=["ip"],
    ),
    "By which addresses and ports the interface leaves.",
)
_LEAVING = struct(
    {
        "name": string("Name of a NetworkInterface."),
        "uid": string("UID of the NetworkInterface."),
        "ips": _PORTS,
    },
    required=["name"],
)


def _routing(domain: str, kind: str, what: str, destination: Schema) -> Kind:
    return Kind(
        resource=Resource(f"networking.{domain}", VERSION, f"{kind.lower()}s", kind),
        singular=kind.lower(),
        description=f"{kind} says to which interfaces {what}.",
        schema={
            "networkRef": claim("The Network that they are on."),
            "destinations": array(destination, "The interfaces."),
        },
        columns=(Column("NetworkRef", _network),),
    )


def _network(routing: Object) -> str:
    return str(routing.get("networkRef", {}).get("name") or "<none>")


def kinds(domain: str) -> tuple[Kind, ...]:
    """The routings of the group ``networking.DOMAIN``."""
    return (
        _routing(domain, "AliasPrefixRouting", "an AliasPrefix leads", _INTERFACE),
        _routing(domain, "LoadBalancerRouting", "a LoadBalancer leads", _INTERFACE),
        _routing(domain, "NATGatewayRouting", "a NATGateway is of use", _LEAVING),
    )
