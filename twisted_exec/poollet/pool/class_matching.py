"""
Which class of the runtime stands for a MachineClass.

The one of the same name and capabilities; else the only one with these
capabilities, whatever it is called.  As ironcore's machine class mapper.  spheric's
runtimes count classes by name and tell no capabilities: there the name is all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted_exec.api import quantity
from twisted_exec.iri.protos import machine_pb2 as pb

Object = Mapping[str, Any]

_MOST_NAMED = 20


def offered(machine_class: Object, status: pb.StatusResponse) -> pb.MachineClassStatus | None:
    """What the runtime offers for ``machine_class``; ``None`` when it has nothing like it."""
    needed = capabilities(machine_class)
    alike: list[pb.MachineClassStatus] = [
        one
        for one in status.machine_class_status
        if dict(one.machine_class.capabilities.resources) == needed
    ]
    name = machine_class["metadata"]["name"]
    alike += [
        one
        for one in status.machine_class_status
        if one.machine_class.name == name and not one.machine_class.capabilities.resources
    ]
    named = [candidate for candidate in alike if candidate.machine_class.name == name]
    if named:
        return named[0]
    return alike[0] if len(alike) == 1 else None


def choice(name: str, classes: Iterable[Object], status: pb.StatusResponse) -> tuple[str, str]:
    """
    The runtime's class to ask for.

    :param name: of the MachineClass.
    :param classes: all MachineClasses, as last seen.
    :param status: what the runtime offers.
    :return: the class's name, and why there is none, of which one is empty.
    """
    found = next((item for item in classes if item["metadata"]["name"] == name), None)
    if found is None:
        return "", f'machine class "{name}" does not exist'
    match = offered(found, status)
    if match is None:
        return "", _why_none(found, status)
    return match.machine_class.name, ""


def _why_none(machine_class: Object, status: pb.StatusResponse) -> str:
    """Why the runtime has nothing for it, with what it has, so that one sees what is amiss."""
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
    alike = [name for name, resources in by_name.items() if resources == needed]
    if alike:
        return (
            f'the machine runtime has no class "{name}" on this host, and several with its '
            f"capabilities: {_listed(alike)}"
        )
    return (
        f'the machine runtime offers no class "{name}", and none with its capabilities '
        f"({_spelled(needed or {})}); it offers: {_listed(by_name) or 'none'}"
    )


def _listed(names: Iterable[str]) -> str:
    every = sorted(names)
    more = f" and {len(every) - _MOST_NAMED} more" if len(every) > _MOST_NAMED else ""
    return ", ".join(every[:_MOST_NAMED]) + more


def _spelled(resources: Mapping[str, int]) -> str:
    """Such as ``cpu 1, memory 64Mi``."""
    return ", ".join(f"{name} {quantity.binary(resources[name])}" for name in sorted(resources))


def capabilities(machine_class: Object) -> dict[str, int] | None:
    """A MachineClass's capabilities as a runtime counts them; ``None`` when one is no quantity."""
    listed = machine_class.get("capabilities") or {}
    try:
        return {name: quantity.value(amount) for name, amount in listed.items()}
    except ValueError:
        return None
