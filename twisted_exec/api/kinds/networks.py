"""
Networks and network interfaces.

Sources: ironcore ``api/networking/v1alpha1`` and ``internal/apis/networking/validation``.
"""

from __future__ import annotations

from collections.abc import Iterator

from twisted_exec.api import fields, names
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds import validation
from twisted_exec.api.kinds.ipam import PREFIX_SPEC, VERSION, prefix_spec_causes
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.kinds.schemas import TEMPLATE_METADATA, claim, extend_schema, strings
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

_EPHEMERAL_PREFIX = struct(
    {
        "prefixTemplate": struct(
            {"metadata": TEMPLATE_METADATA, "spec": PREFIX_SPEC},
            description="prefixTemplate is the template of the Prefix to create.",
        )
    },
    description="ephemeral creates a Prefix that is deleted together with the interface.",
)
_VIRTUAL_IP = struct(
    {
        "virtualIPRef": reference(description="virtualIPRef is an existing VirtualIP."),
        "ephemeral": struct(
            {
                "virtualIPTemplate": struct(
                    {
                        "metadata": TEMPLATE_METADATA,
                        "spec": anything("spec is the desired state of the VirtualIP."),
                    },
                    description="virtualIPTemplate is the template of the VirtualIP to create.",
                )
            },
            description="ephemeral creates a VirtualIP that is deleted together with the interface.",
        ),
    },
    description="virtualIP is the external address of the interface.",
)

_INTERFACE_SPEC = struct(
    {
        "providerID": string("providerID is the ID of the interface at its provider."),
        "networkRef": reference(
            description="networkRef is the Network of the interface. It is immutable."
        ),
        "machineRef": claim("machineRef is the Machine that uses the interface."),
        "ipFamilies": array(
            string(enum=list(validation.FAMILIES)),
            "ipFamilies are the IP families of the addresses, in order.",
        ),
        "ips": array(
            struct({"value": string("value is the address."), "ephemeral": _EPHEMERAL_PREFIX}),
            "ips are the addresses of the interface.",
        ),
        "prefixes": array(
            struct({"value": string("value is the prefix."), "ephemeral": _EPHEMERAL_PREFIX}),
            "prefixes are the prefixes to route to the interface.",
        ),
        "virtualIP": _VIRTUAL_IP,
        "attributes": mapping(string(), "attributes are additional parameters for the provider."),
    },
    required=["networkRef"],
    description="spec is the desired state of the interface.",
)
_INTERFACE_STATUS = struct(
    {
        "state": string(
            "state is the state of the interface.", enum=["Pending", "Available", "Error"]
        ),
        "lastStateTransitionTime": moment(
            "lastStateTransitionTime is the last time the state changed."
        ),
        "ips": strings("ips are the addresses of the interface."),
        "prefixes": strings("prefixes are the prefixes that are routed to the interface."),
        "virtualIP": string("virtualIP is the external address of the interface."),
    },
    description="status is the observed state of the interface.",
)


def _prepare_interface(interface: Object) -> None:
    spec = interface.get("spec")
    if not isinstance(spec, dict):
        return
    sources = spec.setdefault("ips", [])
    families = spec.setdefault("ipFamilies", [])
    for index, source in enumerate(sources):
        template = _template(source)
        if template is not None and index < len(families):
            template.setdefault("ipFamily", families[index])
    if not families:
        families += [family for source in sources if (family := _family(source))]
    for source in sources:
        template = _template(source)
        if template is not None and not template.get("prefix") and template.get("ipFamily"):
            template.setdefault("prefixLength", validation.bits_of(template["ipFamily"]))


def _template(source: Object) -> Object | None:
    template = source.get("ephemeral", {}).get("prefixTemplate")
    return None if template is None else template.setdefault("spec", {})


def _family(source: Object) -> str:
    if "value" in source:
        address = validation.address_of(source["value"])
        return "" if address is None else validation.family_of(address)
    return str((_template(source) or {}).get("ipFamily", ""))


def _validate_interface(interface: Object) -> list[Cause]:
    spec = interface["spec"]
    problems = list(validation.reference(spec, "networkRef", "spec.networkRef", needed=True))
    problems += validation.reference(spec, "machineRef", "spec.machineRef", rule=names.dns_label)
    families, sources = spec["ipFamilies"], spec["ips"]
    if len(set(families)) != len(families):
        problems.append(fields.duplicate("spec.ipFamilies", families))
    if len(families) != len(sources):
        problems.append(fields.invalid("spec.ips", families, "ip families must match ips"))
    for index, source in enumerate(sources):
        family = families[index] if index < len(families) else ""
        problems += _address_causes(source, family, f"spec.ips[{index}]")
    for index, source in enumerate(spec.get("prefixes", [])):
        problems += _prefix_causes(source, f"spec.prefixes[{index}]")
    if "virtualIP" in spec:
        problems += _virtual_causes(spec["virtualIP"], "spec.virtualIP")
    return problems


def _one_source(source: Object, keys: tuple[str, str], field: str) -> Iterator[Cause]:
    present = [key for key in keys if key in source]
    if not present:
        yield fields.required(field, f"must specify one of {', '.join(keys)}")
    for key in present[1:]:
        yield fields.forbidden(f"{field}.{key}", "must only specify one source")


def _address_causes(source: Object, family: str, field: str) -> Iterator[Cause]:
    yield from _one_source(source, ("value", "ephemeral"), field)
    if "value" in source:
        address = validation.address_of(source["value"])
        if address is None:
            yield fields.invalid(f"{field}.value", source["value"], "must be an IP address")
        elif family and validation.family_of(address) != family:
            problem = f"must be of the ip family {family}"
            yield fields.invalid(f"{field}.value", source["value"], problem)
    elif "ephemeral" in source:
        yield from _ephemeral_causes(source, f"{field}.ephemeral.prefixTemplate")
        length = (_template(source) or {}).get("prefixLength")
        if family and length not in (None, validation.bits_of(family)):
            problem = "must be a single IP"
            here = f"{field}.ephemeral.prefixTemplate.spec.prefixLength"
            yield fields.forbidden(here, problem)


def _prefix_causes(source: Object, field: str) -> Iterator[Cause]:
    yield from _one_source(source, ("value", "ephemeral"), field)
    if "value" in source:
        if validation.network_of(source["value"]) is None:
            problem = "must be a prefix such as 10.0.0.0/8, without bits beyond its length"
            yield fields.invalid(f"{field}.value", source["value"], problem)
    elif "ephemeral" in source:
        yield from _ephemeral_causes(source, f"{field}.ephemeral.prefixTemplate")


def _ephemeral_causes(source: Object, field: str) -> Iterator[Cause]:
    template = _template(source)
    if template is None:
        yield fields.required(field, "must specify template")
    else:
        yield from prefix_spec_causes(template, f"{field}.spec")


def _virtual_causes(virtual: Object, field: str) -> Iterator[Cause]:
    yield from _one_source(virtual, ("virtualIPRef", "ephemeral"), field)
    yield from validation.reference(virtual, "virtualIPRef", f"{field}.virtualIPRef")


_CHANGING = ("providerID", "ips", "prefixes", "machineRef", "virtualIP")


def _interface_changed(new: Object, old: Object) -> list[Cause]:
    problems: list[Cause] = []
    for key in _INTERFACE_SPEC["properties"]:
        if key not in _CHANGING:
            problems += validation.unchanged(
                new["spec"].get(key), old["spec"].get(key), f"spec.{key}"
            )
    return problems


def _joined(interface: Object, key: str) -> str:
    return ",".join(interface.get("status", {}).get(key, [])) or "<none>"


_OLDER_INTERFACE_STATUS = {
    "networkHandle": string("networkHandle is the ID of the network at its provider."),
    "phase": string(
        "phase is Bound while a Machine uses the interface.", enum=["Unbound", "Pending", "Bound"]
    ),
    "machinePoolRef": reference(
        description="machinePoolRef is the MachinePool of the interface's machine."
    ),
    "lastPhaseTransitionTime": moment(
        "lastPhaseTransitionTime is the last time the phase changed."
    ),
}


def networkinterfaces(domain: str, *, older: bool = False) -> Kind:
    """
    Return NetworkInterfaces in the group ``networking.DOMAIN``.

    :param older: include the fields of onmetal-api v0.1.
    """
    status = extend_schema(_INTERFACE_STATUS, _OLDER_INTERFACE_STATUS if older else {})
    return Kind(
        resource=Resource(f"networking.{domain}", VERSION, "networkinterfaces", "NetworkInterface"),
        singular="networkinterface",
        description="NetworkInterface connects a machine to a network.",
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
        "namespace": string(
            "namespace is the namespace of the referent. Empty means the same namespace."
        ),
        "name": string("name is the name of the referent."),
    },
    required=["name"],
    description="networkRef is the Network to peer with.",
    atomic=True,
)
_PEERING = struct(
    {
        "name": string("name is unique within the network."),
        "networkRef": _NETWORK_REFERENCE,
        "prefixes": array(
            struct(
                {
                    "name": string("name is unique within the peering."),
                    "prefix": string("prefix is the prefix."),
                    "prefixRef": reference(description="prefixRef is an existing Prefix."),
                },
                required=["name"],
            ),
            "prefixes are the prefixes that the other network may reach. Empty means all.",
        ),
    },
    required=["name", "networkRef"],
)
_CLAIM = struct(
    {
        "namespace": string(
            "namespace is the namespace of the referent. Empty means the same namespace."
        ),
        "name": string("name is the name of the referent."),
        "uid": string("uid is the UID of the referent."),
    },
    required=["name"],
)
_NETWORK_STATUS = struct(
    {
        "state": string(
            "state is the state of the network.", enum=["Pending", "Available", "Error"]
        ),
        "peerings": array(
            struct(
                {
                    "name": string("name is the name in the spec."),
                    "state": string(
                        "state is the state of the peering.", enum=["Pending", "Ready", "Error"]
                    ),
                    "prefixes": array(
                        struct(
                            {
                                "name": string("name is the name in the spec."),
                                "prefix": string("prefix is the prefix."),
                            },
                            required=["name"],
                        ),
                        "prefixes are the prefixes that the other network can reach.",
                    ),
                },
                required=["name"],
            ),
            "peerings are the states of the peerings.",
            keys=["name"],
        ),
    },
    description="status is the observed state of the network.",
)


def _validate_network(network: Object) -> list[Cause]:
    spec, namespace = network.get("spec", {}), network["metadata"].get("namespace", "")
    own = namespace, network["metadata"].get("name", "")
    problems: list[Cause] = []
    names_seen, met = set(), set()
    for index, peering in enumerate(spec.get("peerings", [])):
        here = f"spec.peerings[{index}]"
        if peering["name"] in names_seen:
            problems.append(fields.duplicate(f"{here}.name", peering["name"]))
        names_seen.add(peering["name"])
        other = peering["networkRef"].get("namespace") or namespace, peering["networkRef"]["name"]
        if other == own:
            problem = "cannot peer a network with itself"
            problems.append(fields.forbidden(f"{here}.networkRef", problem))
        elif other in met:
            problems.append(fields.duplicate(f"{here}.networkRef", peering["networkRef"]))
        met.add(other)
        problems += validation.reference(peering, "networkRef", f"{here}.networkRef")
        problems += _peered_causes(peering.get("prefixes", []), here)
    return problems


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
        "providerID": string(
            "providerID is the ID of the network at its provider. It is immutable once set."
        ),
        "peerings": array(_PEERING, "peerings are the networks to peer with.", keys=["name"]),
        "incomingPeerings": array(
            _CLAIM, "incomingPeerings are the networks that may peer with this one."
        ),
    },
    description="spec is the desired state of the network.",
)
_OLDER_NETWORK_SPEC = {"handle": string("handle is the ID of the network at its provider.")}


def networks(domain: str, *, older: bool = False) -> Kind:
    """
    Return Networks in the group ``networking.DOMAIN``.

    :param older: include the fields of onmetal-api v0.1.
    """
    spec = extend_schema(_NETWORK_SPEC, _OLDER_NETWORK_SPEC if older else {})
    return Kind(
        resource=Resource(f"networking.{domain}", VERSION, "networks", "Network"),
        singular="network",
        description="Network connects network interfaces.",
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
    """Return all kinds in the group ``networking.DOMAIN`` except those of :mod:`.routing`."""
    return networkinterfaces(domain, older=older), networks(domain, older=older)
