"""
Networks, and the interfaces by which machines are on them.

A poollet gives a machine the NetworkInterfaces that it names, under the identifiers that
their Networks have with their provider.  Nothing here makes networks: that is for a network
plugin, or for whoever writes spec and status by hand.

Source: ironcore ``api/networking/v1alpha1`` and ``internal/apis/networking/validation``.
"""

from __future__ import annotations

from collections.abc import Iterator

from twisted_exec.api import fields, names
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.common import validation
from twisted_exec.api.kinds.common.schemas import TEMPLATE_METADATA, claim, extend_schema, strings
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.kinds.network import ipam
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import (
    anything,
    array,
    mapping,
    moment,
    reference,
    string,
    struct,
)

VERSION = "v1alpha1"

_EPHEMERAL_PREFIX = struct(
    {
        "prefixTemplate": struct(
            {"metadata": TEMPLATE_METADATA, "spec": ipam.PREFIX_SPEC},
            description="The Prefix that is made for it.",
        )
    },
    description="A Prefix that lives as long as the interface.",
)
_VIRTUAL_IP = struct(
    {
        "virtualIPRef": reference(description="A VirtualIP that there is."),
        "ephemeral": struct(
            {
                "virtualIPTemplate": struct(
                    {
                        "metadata": TEMPLATE_METADATA,
                        "spec": anything("What the VirtualIP shall be."),
                    },
                    description="The VirtualIP that is made for it.",
                )
            },
            description="A VirtualIP that lives as long as the interface.",
        ),
    },
    description="The address by which it is reached from outside.",
)

_INTERFACE_SPEC = struct(
    {
        "providerID": string("What its provider calls it."),
        "networkRef": reference(description="The Network that it is on; it cannot be changed."),
        "machineRef": claim("Whose it is: the Machine that uses it."),
        "ipFamilies": array(
            string(enum=list(validation.FAMILIES)), "The kind of each of its addresses."
        ),
        "ips": array(
            struct({"value": string("An address."), "ephemeral": _EPHEMERAL_PREFIX}),
            "Its addresses.",
        ),
        "prefixes": array(
            struct({"value": string("A prefix."), "ephemeral": _EPHEMERAL_PREFIX}),
            "Prefixes that are routed to it.",
        ),
        "virtualIP": _VIRTUAL_IP,
        "attributes": mapping(string(), "What its provider needs to know besides."),
    },
    required=["networkRef"],
    description="What the interface shall be.",
)
_INTERFACE_STATUS = struct(
    {
        "state": string("What it is.", enum=["Pending", "Available", "Error"]),
        "lastStateTransitionTime": moment("When its state changed last."),
        "ips": strings("The addresses that it has."),
        "prefixes": strings("The prefixes that are routed to it."),
        "virtualIP": string("The address by which it is reached from outside."),
    },
    description="What the interface is.",
)


def _prepare_interface(interface: Object) -> None:
    spec = interface.get("spec")
    if not isinstance(spec, dict):
        return
    sources = spec.setdefault("ips", [])
    families = spec.setdefault("ipFamilies", [])
    for index, source in enumerate(sources):
        wanted = _template(source)
        if wanted is not None and index < len(families):
            wanted.setdefault("ipFamily", families[index])
    if not families:
        families += [family for source in sources if (family := _family(source))]
    for source in sources:
        wanted = _template(source)
        if wanted is not None and not wanted.get("prefix") and wanted.get("ipFamily"):
            wanted.setdefault("prefixLength", validation.bits_of(wanted["ipFamily"]))


def _template(source: Object) -> Object | None:
    """The spec of the Prefix that is to be made, in place."""
    template = source.get("ephemeral", {}).get("prefixTemplate")
    return None if template is None else template.setdefault("spec", {})


def _family(source: Object) -> str:
    if "value" in source:
        address = validation.address_of(source["value"])
        return "" if address is None else validation.family_of(address)
    return str((_template(source) or {}).get("ipFamily", ""))


def _validate_interface(interface: Object) -> list[Cause]:
    spec = interface["spec"]
    found = list(validation.reference(spec, "networkRef", "spec.networkRef", needed=True))
    found += validation.reference(spec, "machineRef", "spec.machineRef", rule=names.dns_label)
    families, sources = spec["ipFamilies"], spec["ips"]
    if len(set(families)) != len(families):
        found.append(fields.duplicate("spec.ipFamilies", families))
    if len(families) != len(sources):
        found.append(fields.invalid("spec.ips", families, "ip families must match ips"))
    for index, source in enumerate(sources):
        family = families[index] if index < len(families) else ""
        found += _address_causes(source, family, f"spec.ips[{index}]")
    for index, source in enumerate(spec.get("prefixes", [])):
        found += _prefix_causes(source, f"spec.prefixes[{index}]")
    if "virtualIP" in spec:
        found += _virtual_causes(spec["virtualIP"], "spec.virtualIP")
    return found


def _one_source(source: Object, keys: tuple[str, str], field: str) -> Iterator[Cause]:
    given = [key for key in keys if key in source]
    if not given:
        yield fields.required(field, f"must specify one of {', '.join(keys)}")
    for key in given[1:]:
        yield fields.forbidden(f"{field}.{key}", "must only specify one source")


def _address_causes(source: Object, family: str, field: str) -> Iterator[Cause]:
    yield from _one_source(source, ("value", "ephemeral"), field)
    if "value" in source:
        address = validation.address_of(source["value"])
        if address is None:
            yield fields.invalid(f"{field}.value", source["value"], "must be an IP address")
        elif family and validation.family_of(address) != family:
            told = f"must be of the ip family {family}"
            yield fields.invalid(f"{field}.value", source["value"], told)
    elif "ephemeral" in source:
        yield from _ephemeral_causes(source, f"{field}.ephemeral.prefixTemplate")
        length = (_template(source) or {}).get("prefixLength")
        if family and length not in (None, validation.bits_of(family)):
            told = "must be a single IP"
            here = f"{field}.ephemeral.prefixTemplate.spec.prefixLength"
            yield fields.forbidden(here, told)


def _prefix_causes(source: Object, field: str) -> Iterator[Cause]:
    yield from _one_source(source, ("value", "ephemeral"), field)
    if "value" in source:
        if validation.network_of(source["value"]) is None:
            told = "must be a prefix such as 10.0.0.0/8, without bits beyond its length"
            yield fields.invalid(f"{field}.value", source["value"], told)
    elif "ephemeral" in source:
        yield from _ephemeral_causes(source, f"{field}.ephemeral.prefixTemplate")


def _ephemeral_causes(source: Object, field: str) -> Iterator[Cause]:
    wanted = _template(source)
    if wanted is None:
        yield fields.required(field, "must specify template")
    else:
        yield from ipam.spec_causes(wanted, f"{field}.spec")


def _virtual_causes(virtual: Object, field: str) -> Iterator[Cause]:
    yield from _one_source(virtual, ("virtualIPRef", "ephemeral"), field)
    yield from validation.reference(virtual, "virtualIPRef", f"{field}.virtualIPRef")


_CHANGING = ("providerID", "ips", "prefixes", "machineRef", "virtualIP")


def _interface_changed(new: Object, old: Object) -> list[Cause]:
    found: list[Cause] = []
    for key in _INTERFACE_SPEC["properties"]:
        if key not in _CHANGING:
            found += validation.unchanged(new["spec"].get(key), old["spec"].get(key), f"spec.{key}")
    return found


def _joined(interface: Object, key: str) -> str:
    return ",".join(interface.get("status", {}).get(key, [])) or "<none>"


_OLDER_INTERFACE_STATUS = {
    "networkHandle": string("What the network's provider calls it."),
    "phase": string("Whose it is.", enum=["Unbound", "Pending", "Bound"]),
    "machinePoolRef": reference(description="The MachinePool that it is on."),
    "lastPhaseTransitionTime": moment("When its phase changed last."),
}


def networkinterfaces(domain: str, *, older: bool = False) -> Kind:
    """
    NetworkInterfaces of the group ``networking.DOMAIN``.

    :param older: with what onmetal-api v0.1 has besides.
    """
    status = extend_schema(_INTERFACE_STATUS, _OLDER_INTERFACE_STATUS if older else {})
    return Kind(
        resource=Resource(f"networking.{domain}", VERSION, "networkinterfaces", "NetworkInterface"),
        singular="networkinterface",
        description="NetworkInterface is how a machine is on a network.",
        schema={"spec": _INTERFACE_SPEC, "status": status},
        required=("spec",),
        columns=(
            Column("Network", lambda nic: nic["spec"]["networkRef"]["name"]),
            Column("Machine", lambda nic: nic["spec"].get("machineRef", {}).get("name", "<none>")),
            Column("IPs", lambda nic: _joined(nic, "ips")),
            Column("Prefixes", lambda nic: _joined(nic, "prefixes")),
            Column("VirtualIP", lambda nic: nic.get("status", {}).get("virtualIP") or "<none>"),
            Column("State", lambda nic: nic.get("status", {}).get("state") or "<unknown>"),
        ),
        has_status=True,
        counts_generation=True,
        initial_status={"state": "Pending"},
        prepare=_prepare_interface,
        validate=_validate_interface,
        validate_update=_interface_changed,
    )


_NETWORK_REFERENCE = struct(
    {
        "namespace": string("Namespace of the referent; empty: the same one."),
        "name": string("Name of the referent."),
    },
    required=["name"],
    description="The other Network.",
    atomic=True,
)
_PEERING = struct(
    {
        "name": string("Unique within the network."),
        "networkRef": _NETWORK_REFERENCE,
        "prefixes": array(
            struct(
                {
                    "name": string("Unique within the peering."),
                    "prefix": string("A prefix."),
                    "prefixRef": reference(description="A Prefix that there is."),
                },
                required=["name"],
            ),
            "What the other network gets to see; none: everything.",
        ),
    },
    required=["name", "networkRef"],
)
_CLAIM = struct(
    {
        "namespace": string("Namespace of the referent; empty: the same one."),
        "name": string("Name of the referent."),
        "uid": string("UID of the referent."),
    },
    required=["name"],
)
_NETWORK_STATUS = struct(
    {
        "state": string("What it is.", enum=["Pending", "Available", "Error"]),
        "peerings": array(
            struct(
                {
                    "name": string("As in the spec."),
                    "state": string("What it is.", enum=["Pending", "Ready", "Error"]),
                    "prefixes": array(
                        struct(
                            {"name": string("As in the spec."), "prefix": string("A prefix.")},
                            required=["name"],
                        ),
                        "What the other network sees.",
                    ),
                },
                required=["name"],
            ),
            "What its peerings are.",
            keys=["name"],
        ),
    },
    description="What the network is.",
)


def _validate_network(network: Object) -> list[Cause]:
    spec, namespace = network.get("spec", {}), network["metadata"].get("namespace", "")
    own = namespace, network["metadata"].get("name", "")
    found: list[Cause] = []
    seen, met = set(), set()
    for index, peering in enumerate(spec.get("peerings", [])):
        here = f"spec.peerings[{index}]"
        if peering["name"] in seen:
            found.append(fields.duplicate(f"{here}.name", peering["name"]))
        seen.add(peering["name"])
        other = peering["networkRef"].get("namespace") or namespace, peering["networkRef"]["name"]
        if other == own:
            told = "cannot peer a network with itself"
            found.append(fields.forbidden(f"{here}.networkRef", told))
        elif other in met:
            found.append(fields.duplicate(f"{here}.networkRef", peering["networkRef"]))
        met.add(other)
        found += validation.reference(peering, "networkRef", f"{here}.networkRef")
        found += _peered_causes(peering.get("prefixes", []), here)
    return found


def _peered_causes(prefixes: list[Object], field: str) -> Iterator[Cause]:
    for index, prefix in enumerate(prefixes):
        if "prefix" in prefix and validation.network_of(prefix["prefix"]) is None:
            here = f"{field}.prefixes[{index}].prefix"
            yield fields.forbidden(here, "must be a valid IP range")


def _network_changed(new: Object, old: Object) -> list[Cause]:
    key = "providerID"
    after, before = new.get("spec", {}).get(key), old.get("spec", {}).get(key)
    return list(validation.set_once(after, before, f"spec.{key}"))


_NETWORK_SPEC = struct(
    {
        "providerID": string("What its provider calls it; once set it stays."),
        "peerings": array(_PEERING, "The networks that it is joined with.", keys=["name"]),
        "incomingPeerings": array(_CLAIM, "The networks that may be joined with it."),
    },
    description="What the network shall be.",
)
_OLDER_NETWORK_SPEC = {"handle": string("What its provider calls it.")}


def networks(domain: str, *, older: bool = False) -> Kind:
    """
    Networks of the group ``networking.DOMAIN``.

    :param older: with what onmetal-api v0.1 has besides.
    """
    spec = extend_schema(_NETWORK_SPEC, _OLDER_NETWORK_SPEC if older else {})
    return Kind(
        resource=Resource(f"networking.{domain}", VERSION, "networks", "Network"),
        singular="network",
        description="Network is what interfaces are connected to.",
        schema={
            "spec": spec,
            "status": _NETWORK_STATUS,
        },
        columns=(
            Column("State", lambda network: network.get("status", {}).get("state") or "<unknown>"),
            Column(
                "ProviderID", lambda network: network.get("spec", {}).get("providerID") or "<none>"
            ),
        ),
        has_status=True,
        counts_generation=True,
        initial_status={"state": "Pending"},
        validate=_validate_network,
        validate_update=_network_changed,
    )


def kinds(domain: str, *, older: bool = False) -> tuple[Kind, ...]:
    """Everything in the group ``networking.DOMAIN``, but for :mod:`.routing`."""
    return networkinterfaces(domain, older=older), networks(domain, older=older)
