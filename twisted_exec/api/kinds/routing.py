"""
Kinds that route traffic to network interfaces in onmetal-api.

Source: onmetal-api v0.1 ``api/networking/v1alpha1`` and ``internal/apis/networking/validation``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds import ipam, validation
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.kinds.schemas import LABEL_SELECTOR, TEMPLATE_METADATA, claim, strings
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

_FAMILIES = array(
    string(enum=list(validation.FAMILIES)),
    "ipFamilies are the IP families of the addresses, in order.",
)
_NETWORK = reference(description="networkRef is the Network of the object. It is immutable.")
_EPHEMERAL = struct(
    {
        "prefixTemplate": struct(
            {"metadata": TEMPLATE_METADATA, "spec": ipam.PREFIX_SPEC},
            description="prefixTemplate is the template of the Prefix to create.",
        )
    },
    description="ephemeral creates a Prefix that is deleted together with this object.",
)


def _port(description: str) -> Schema:
    return integer(description, minimum=0, maximum=_LAST_PORT)


_ALIAS_PREFIX = struct(
    {
        "networkRef": _NETWORK,
        "networkInterfaceSelector": LABEL_SELECTOR,
        "prefix": struct(
            {"value": string("value is the prefix."), "ephemeral": _EPHEMERAL},
            description="prefix is the prefix to route.",
        ),
    },
    required=["networkRef"],
    description="spec is the desired state of the alias prefix.",
)
_LOAD_BALANCER = struct(
    {
        "type": string("type is the type of the load balancer.", enum=["Public", "Internal"]),
        "ipFamilies": _FAMILIES,
        "ips": array(
            struct({"value": string("value is the address."), "ephemeral": _EPHEMERAL}),
            "ips are the addresses of the load balancer.",
        ),
        "networkRef": _NETWORK,
        "networkInterfaceSelector": LABEL_SELECTOR,
        "ports": array(
            struct(
                {
                    "protocol": string(
                        "protocol is TCP, UDP or SCTP.", enum=["TCP", "UDP", "SCTP"]
                    ),
                    "port": _port("port is the first port of the range."),
                    "endPort": _port("endPort is the last port of the range."),
                },
                required=["port"],
            ),
            "ports are the ports that the load balancer accepts.",
        ),
    },
    required=["type", "networkRef"],
    description="spec is the desired state of the load balancer.",
)
_NAT_GATEWAY = struct(
    {
        "type": string("type is the type of the gateway.", enum=["Public"]),
        "ipFamilies": _FAMILIES,
        "ips": array(
            struct({"name": string("name is unique within the gateway.")}, required=["name"]),
            "ips are the addresses of the gateway, one per item.",
            keys=["name"],
        ),
        "networkRef": _NETWORK,
        "networkInterfaceSelector": LABEL_SELECTOR,
        "portsPerNetworkInterface": integer(
            "portsPerNetworkInterface is the number of ports for each interface, a power of two.",
            minimum=1,
            maximum=_LAST_PORT,
        ),
    },
    required=["type", "networkRef"],
    description="spec is the desired state of the gateway.",
)
_VIRTUAL_IP = struct(
    {
        "type": string("type is the type of the virtual IP.", enum=["Public"]),
        "ipFamily": string(
            "ipFamily is the IP family of the address.", enum=list(validation.FAMILIES)
        ),
        "targetRef": claim("targetRef is the NetworkInterface that uses the virtual IP."),
    },
    required=["type", "ipFamily"],
    description="spec is the desired state of the virtual IP.",
)
_NAT_ADDRESSES = array(
    struct(
        {"name": string("name is the name in the spec."), "ip": string("ip is the address.")},
        required=["name", "ip"],
    ),
    "ips are the allocated addresses.",
)
_DESTINATION = {
    "name": string("name is the name of the interface."),
    "uid": string("uid is the UID of the interface."),
}
_NAT_DESTINATION = {
    **_DESTINATION,
    "ips": array(
        struct(
            {
                "ip": string("ip is the address."),
                "port": _port("port is the first port of the range."),
                "endPort": _port("endPort is the last port of the range."),
            },
            required=["ip", "port", "endPort"],
        ),
        "ips are the addresses and ports of the gateway that the interface uses.",
    ),
}


def _validate(obj: Object) -> list[Cause]:
    selector, field = "networkInterfaceSelector", "spec.networkInterfaceSelector"
    return [
        *validation.reference(obj["spec"], "networkRef", "spec.networkRef", needed=True),
        *validation.label_selector(obj["spec"].get(selector, {}), field),
    ]


def _changed(new: Object, old: Object) -> list[Cause]:
    key = "networkRef"
    return list(validation.unchanged(new["spec"].get(key), old["spec"].get(key), f"spec.{key}"))


def _joined(key: str, part: str, obj: Object) -> str:
    values = obj.get("status", {}).get(key, [])
    return ",".join(each[part] if part else each for each in values) or "<none>"


def _status_field(key: str, obj: Object) -> str:
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
        schema={
            "spec": spec,
            "status": struct(status, description="status is the observed state of the object."),
        },
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
        description=f"{kind}Routing lists the network interfaces of the {kind} with the same name.",
        schema={
            "networkRef": claim("networkRef is the Network of the interfaces."),
            "destinations": array(
                struct(destination, required=["name", "uid"]), "destinations are the interfaces."
            ),
        },
        required=("networkRef",),
        columns=(Column("Targets", _targets),),
    )


def _targets(routing: Object) -> str:
    return ",".join(each["name"] for each in routing.get("destinations", [])) or "<none>"


def virtualips(domain: str) -> Kind:
    """Return VirtualIPs in the group ``networking.DOMAIN``."""
    status = {
        "ip": string("ip is the address."),
        "phase": string(
            "phase is Bound while an interface uses the virtual IP.",
            enum=["Unbound", "Pending", "Bound"],
        ),
        "phaseLastTransitionTime": moment(
            "phaseLastTransitionTime is the last time the phase changed."
        ),
    }
    description = "VirtualIP is an external address of a network interface."
    return _routed(
        domain,
        "virtualips",
        "VirtualIP",
        description,
        _VIRTUAL_IP,
        status,
        ("ExternalIP", partial(_status_field, "ip")),
    )


def routed(domain: str) -> tuple[Kind, ...]:
    """Return the kinds that have routings."""
    return (
        _routed(
            domain,
            "aliasprefixes",
            "AliasPrefix",
            "AliasPrefix is a prefix that is routed to network interfaces.",
            _ALIAS_PREFIX,
            {"prefix": string("prefix is the prefix that is routed.")},
            ("Prefix", partial(_status_field, "prefix")),
        ),
        _routed(
            domain,
            "loadbalancers",
            "LoadBalancer",
            "LoadBalancer distributes traffic among network interfaces.",
            _LOAD_BALANCER,
            {"ips": strings("ips are the allocated addresses.")},
            ("IPs", partial(_joined, "ips", "")),
        ),
        _routed(
            domain,
            "natgateways",
            "NATGateway",
            "NATGateway translates outgoing traffic of network interfaces to its addresses.",
            _NAT_GATEWAY,
            {
                "ips": _NAT_ADDRESSES,
                "portsUsed": integer("portsUsed is the number of ports in use."),
            },
            ("IPs", partial(_joined, "ips", "ip")),
        ),
    )


def routings(domain: str) -> tuple[Kind, ...]:
    """Return the routings of :func:`routed`, in the same order."""
    return (
        _routing(domain, "AliasPrefix", _DESTINATION),
        _routing(domain, "LoadBalancer", _DESTINATION),
        _routing(domain, "NATGateway", _NAT_DESTINATION),
    )


def kinds(domain: str) -> tuple[Kind, ...]:
    """Return the kinds of this module in the group ``networking.DOMAIN``."""
    return *routed(domain), *routings(domain), virtualips(domain)
