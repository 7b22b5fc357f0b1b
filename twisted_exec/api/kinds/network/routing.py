"""
What routes traffic to network interfaces in onmetal-api: alias prefixes, load balancers, NAT
gateways and virtual IPs, and the routings that say which interfaces each is for.

onmetal-api's poollet lists and watches them, and gives up when it cannot.  Nothing here makes
routings: that is for a network plugin, or for whoever writes them by hand.

Source: onmetal-api v0.1 ``api/networking/v1alpha1`` and ``internal/apis/networking/validation``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.common import validation
from twisted_exec.api.kinds.common.schemas import LABEL_SELECTOR, TEMPLATE_METADATA, claim, strings
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.kinds.network import ipam
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import (
    Schema,
    array,
    integer,
    moment,
    reference,
    string,
    struct,
)

VERSION = "v1alpha1"
_LAST_PORT = 65535

_FAMILIES = array(string(enum=list(validation.FAMILIES)), "The kind of each of its addresses.")
_NETWORK = reference(description="The Network that it is for; it cannot be changed.")
_EPHEMERAL = struct(
    {
        "prefixTemplate": struct(
            {"metadata": TEMPLATE_METADATA, "spec": ipam.PREFIX_SPEC},
            description="The Prefix that is made for it.",
        )
    },
    description="A Prefix that lives as long as this.",
)


def _port(description: str) -> Schema:
    return integer(description, minimum=0, maximum=_LAST_PORT)


_ALIAS_PREFIX = struct(
    {
        "networkRef": _NETWORK,
        "networkInterfaceSelector": LABEL_SELECTOR,
        "prefix": struct(
            {"value": string("A prefix."), "ephemeral": _EPHEMERAL},
            description="What is routed.",
        ),
    },
    required=["networkRef"],
    description="What is routed, and to which interfaces.",
)
_LOAD_BALANCER = struct(
    {
        "type": string("Whether it is reached from outside.", enum=["Public", "Internal"]),
        "ipFamilies": _FAMILIES,
        "ips": array(
            struct({"value": string("An address."), "ephemeral": _EPHEMERAL}), "Its addresses."
        ),
        "networkRef": _NETWORK,
        "networkInterfaceSelector": LABEL_SELECTOR,
        "ports": array(
            struct(
                {
                    "protocol": string("TCP, UDP or SCTP.", enum=["TCP", "UDP", "SCTP"]),
                    "port": _port("The first port."),
                    "endPort": _port("The last port."),
                },
                required=["port"],
            ),
            "Which ports it takes.",
        ),
    },
    required=["type", "networkRef"],
    description="What it takes, and for which interfaces.",
)
_NAT_GATEWAY = struct(
    {
        "type": string("Where to.", enum=["Public"]),
        "ipFamilies": _FAMILIES,
        "ips": array(
            struct({"name": string("Unique within the gateway.")}, required=["name"]),
            "How many addresses it has.",
            keys=["name"],
        ),
        "networkRef": _NETWORK,
        "networkInterfaceSelector": LABEL_SELECTOR,
        "portsPerNetworkInterface": integer(
            "How many ports each interface has, a power of two.", minimum=1, maximum=_LAST_PORT
        ),
    },
    required=["type", "networkRef"],
    description="For which interfaces it is.",
)
_VIRTUAL_IP = struct(
    {
        "type": string("Where it is reached from.", enum=["Public"]),
        "ipFamily": string("Its kind.", enum=list(validation.FAMILIES)),
        "targetRef": claim("Whose it is: a NetworkInterface."),
    },
    required=["type", "ipFamily"],
    description="Which kind of address.",
)
_NAT_ADDRESSES = array(
    struct(
        {"name": string("As in the spec."), "ip": string("The address.")},
        required=["name", "ip"],
    ),
    "The addresses that it has.",
)
_DESTINATION = {"name": string("Name of the interface."), "uid": string("UID of the interface.")}
_NAT_DESTINATION = {
    **_DESTINATION,
    "ips": array(
        struct(
            {
                "ip": string("The address."),
                "port": _port("The first port."),
                "endPort": _port("The last port."),
            },
            required=["ip", "port", "endPort"],
        ),
        "Addresses and ports that it has of the gateway.",
    ),
}


def _validate(obj: Object) -> list[Cause]:
    return list(validation.reference(obj["spec"], "networkRef", "spec.networkRef", needed=True))


def _changed(new: Object, old: Object) -> list[Cause]:
    key = "networkRef"
    return list(validation.unchanged(new["spec"].get(key), old["spec"].get(key), f"spec.{key}"))


def _joined(key: str, part: str, obj: Object) -> str:
    told = obj.get("status", {}).get(key, [])
    return ",".join(each[part] if part else each for each in told) or "<none>"


def _of_status(key: str, obj: Object) -> str:
    return str(obj.get("status", {}).get(key) or "<none>")


def _routed(
    domain: str,
    plural: str,
    kind: str,
    description: str,
    spec: Schema,
    status: dict[str, Schema],
    column: tuple[str, Callable[[Object], str]],
) -> Kind:
    on_a_network = "networkRef" in spec["properties"]
    rules: dict[str, Any] = (
        {"validate": _validate, "validate_update": _changed} if on_a_network else {}
    )
    return Kind(
        resource=Resource(f"networking.{domain}", VERSION, plural, kind),
        singular=kind.lower(),
        description=description,
        schema={"spec": spec, "status": struct(status, description="What it is.")},
        required=("spec",),
        columns=(Column(*column),),
        has_status=True,
        counts_generation=True,
        **rules,
    )


def _routing(domain: str, kind: str, destination: dict[str, Schema]) -> Kind:
    return Kind(
        resource=Resource(
            f"networking.{domain}", VERSION, f"{kind.lower()}routings", f"{kind}Routing"
        ),
        singular=f"{kind.lower()}routing",
        description=f"{kind}Routing says which interfaces the {kind} of its name is for.",
        schema={
            "networkRef": claim("The Network that the interfaces are on."),
            "destinations": array(struct(destination, required=["name", "uid"]), "The interfaces."),
        },
        required=("networkRef",),
        columns=(Column("Targets", _targets),),
    )


def _targets(routing: Object) -> str:
    return ",".join(each["name"] for each in routing.get("destinations", [])) or "<none>"


def virtualips(domain: str) -> Kind:
    """VirtualIPs of the group ``networking.DOMAIN``."""
    status = {
        "ip": string("The address."),
        "phase": string("Whose it is.", enum=["Unbound", "Pending", "Bound"]),
        "phaseLastTransitionTime": moment("When its phase changed last."),
    }
    told = "VirtualIP is an address by which an interface is reached from outside."
    return _routed(
        domain,
        "virtualips",
        "VirtualIP",
        told,
        _VIRTUAL_IP,
        status,
        ("ExternalIP", partial(_of_status, "ip")),
    )


def routed(domain: str) -> tuple[Kind, ...]:
    """What has routings."""
    return (
        _routed(
            domain,
            "aliasprefixes",
            "AliasPrefix",
            "AliasPrefix is a prefix that is routed to interfaces.",
            _ALIAS_PREFIX,
            {"prefix": string("The prefix that is routed.")},
            ("Prefix", partial(_of_status, "prefix")),
        ),
        _routed(
            domain,
            "loadbalancers",
            "LoadBalancer",
            "LoadBalancer shares what comes to its addresses among interfaces.",
            _LOAD_BALANCER,
            {"ips": strings("The addresses that it has.")},
            ("IPs", partial(_joined, "ips", "")),
        ),
        _routed(
            domain,
            "natgateways",
            "NATGateway",
            "NATGateway lets interfaces out under its addresses.",
            _NAT_GATEWAY,
            {"ips": _NAT_ADDRESSES, "portsUsed": integer("How many ports are in use.")},
            ("IPs", partial(_joined, "ips", "ip")),
        ),
    )


def routings(domain: str) -> tuple[Kind, ...]:
    """Which interfaces each of :func:`routed` is for, in the same order."""
    return (
        _routing(domain, "AliasPrefix", _DESTINATION),
        _routing(domain, "LoadBalancer", _DESTINATION),
        _routing(domain, "NATGateway", _NAT_DESTINATION),
    )


def kinds(domain: str) -> tuple[Kind, ...]:
    """All of these in the group ``networking.DOMAIN``."""
    return *routed(domain), *routings(domain), virtualips(domain)
