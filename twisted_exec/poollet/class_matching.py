"""
Match MachineClasses with classes of the runtime.

A class of the same name and capabilities matches, or else the only class with these capabilities,
unless that class is selected only by its name. Spheric's runtimes report classes without
capabilities: there the name decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted_exec.api import quantity
from twisted_exec.api.dialects import missing_class
from twisted_exec.api.display import listed
from twisted_exec.iri.protos import machine_pb2 as pb

ReadOnlyObject = Mapping[str, Any]

_MOST_NAMED = 20


def offered_for(
    machine_class: ReadOnlyObject, status: pb.StatusResponse
) -> pb.MachineClassStatus | None:
    """Return the runtime's class that matches ``machine_class``, if any."""
    needed = capabilities(machine_class)
    alike: list[pb.MachineClassStatus] = [
        offer
        for offer in status.machine_class_status
        if dict(offer.machine_class.capabilities.resources) == needed
    ]
    name = machine_class["metadata"]["name"]
    alike += [
        offer
        for offer in status.machine_class_status
        if offer.machine_class.name == name and not offer.machine_class.capabilities.resources
    ]
    named = [candidate for candidate in alike if candidate.machine_class.name == name]
    if named:
        return named[0]
    return alike[0] if len(alike) == 1 and not alike[0].only_by_name else None


def choice(
    name: str, classes: Iterable[ReadOnlyObject], status: pb.StatusResponse
) -> tuple[str, str]:
    """
    Return the class to request from the runtime.

    :return: the runtime's class name and an empty string, or an empty string and the reason.
    """
    by_name = {item["metadata"]["name"]: item for item in classes}
    machine_class = by_name.get(name)
    if machine_class is None:
        return "", missing_class(name, by_name)
    match = offered_for(machine_class, status)
    if match is None:
        return "", _why_none(machine_class, status)
    return match.machine_class.name, ""


def _why_none(machine_class: ReadOnlyObject, status: pb.StatusResponse) -> str:
    name, needed = machine_class["metadata"]["name"], capabilities(machine_class)
    by_name = {
        candidate.machine_class.name: dict(candidate.machine_class.capabilities.resources)
        for candidate in status.machine_class_status
    }
    if name in by_name:
        return (
            f'the machine runtime\'s class "{name}" has {_spelled(by_name[name])}, '
            f'and machine class "{name}" has {_spelled(needed or {})}: they must be the same'
        )
    alike = [other for other, resources in by_name.items() if resources == needed]
    if len(alike) == 1:
        return (
            f'the machine runtime has no class "{name}" on this host; its class "{alike[0]}" has the same '
            "capabilities, but only its name selects it"
        )
    if alike:
        return (
            f'the machine runtime has no class "{name}" on this host, and several with its '
            f"capabilities: {listed(sorted(alike), _MOST_NAMED)}"
        )
    return (
        f'the machine runtime offers no class "{name}", and none with its capabilities '
        f"({_spelled(needed or {})}); it offers: {listed(sorted(by_name), _MOST_NAMED) or 'none'}"
    )


def _spelled(resources: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {quantity.binary(resources[name])}" for name in sorted(resources))


def capabilities(machine_class: ReadOnlyObject) -> dict[str, int] | None:
    """Return the capabilities as a runtime counts them; ``None`` if one is not a quantity."""
    listed = machine_class.get("capabilities") or {}
    try:
        return {name: quantity.value(amount) for name, amount in listed.items()}
    except ValueError:
        return None
